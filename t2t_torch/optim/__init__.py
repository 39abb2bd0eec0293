"""Optimization: gradients, learning rates, parameter groups, noise, weight averages."""
