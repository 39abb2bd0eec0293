"""Input pipeline: length buckets, epoch plans, padding and data loaders."""
