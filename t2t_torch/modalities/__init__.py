"""Modalities: input and output layers for each type of feature."""
