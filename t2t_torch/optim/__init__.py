"""Use of optimizers in training: parameter groups, gradient clipping and noise, weight averages.

The optimizers themselves are in `optimizers/`, learning-rate schedules in `schedules/`.
"""
