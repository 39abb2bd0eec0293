"""Registered models, one per file."""
