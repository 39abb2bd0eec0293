"""A PyTorchTrial as a task: PEDL's interface, what is asked of it, and what it may ask."""
