"""From a trained model to one ONNX graph that reads strings and answers by name."""
