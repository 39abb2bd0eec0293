"""Inference with trained models: search, predictors, decoding of files, the interactive prompt."""
