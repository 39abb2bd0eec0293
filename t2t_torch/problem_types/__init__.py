"""Problem types: base classes of problems, by kind of inputs and targets."""
