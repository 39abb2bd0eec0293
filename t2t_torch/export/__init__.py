"""Export of trained models, for example to one ONNX graph from strings to named predictions."""
