"""From a trained model to what a user reads: search, predictor, files, the interactive prompt."""
