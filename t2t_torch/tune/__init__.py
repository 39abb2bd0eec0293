"""Search over hyperparameters: what to try, how far to train it, and what was found."""
