"""Checkpoints on disk: atomic writes, verification, retention, averaging."""
