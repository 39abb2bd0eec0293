"""Data on disk: downloads, archives, Arrow shards, manifests and their generation."""
