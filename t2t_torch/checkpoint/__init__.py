"""Checkpoints on disk: written whole, verified, kept, averaged."""
