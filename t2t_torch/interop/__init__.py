"""Conversion of weights and hyperparameters from and to other libraries."""
