"""Registry folder: optimizers, each a function of (parameters, hparams)."""
