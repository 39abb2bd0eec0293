"""Shelf: problems, one file each, found by name."""
