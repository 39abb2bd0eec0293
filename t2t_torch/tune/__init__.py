"""Hyperparameter search: suggestions, schedules and results."""
