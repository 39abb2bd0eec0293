"""Shelf: named hparams sets.  The registry imports them; nobody else does."""
