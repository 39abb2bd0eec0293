"""SHELF: optimizers, each a function of (parameters, hparams)."""
