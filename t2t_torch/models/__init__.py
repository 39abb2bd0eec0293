"""Shelf: registered models, one a file."""
