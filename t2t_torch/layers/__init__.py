"""Layers that more than one model is made of."""
