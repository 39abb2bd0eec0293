"""Registry folder: optimizers, each a function of (parameters, hparams).

`optim/` has what all optimizers share: parameter groups, gradients and weight averages.
"""
