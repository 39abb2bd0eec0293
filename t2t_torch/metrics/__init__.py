"""Metrics as exact sums: values and weights, added over batches and processes, divided once."""
