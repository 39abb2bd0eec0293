"""Inference with exported models, using only onnxruntime and numpy: `session.Artifact`."""
