"""Metrics as exact sums: a value and a weight, added over batches and processes, divided once."""
