"""Shelf: losses by name.  The registry imports them; nobody else does."""
