"""The run directory: its files, lock, checkpoints, history, and the rules of resuming."""
