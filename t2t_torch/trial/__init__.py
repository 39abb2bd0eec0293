"""PEDL's PyTorchTrial interface: trials as tasks."""
