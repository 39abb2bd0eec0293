"""Answers from an exported model, with onnxruntime and numpy alone: `session.Artifact`."""
