"""Models that answer requests, and how fast they do."""
