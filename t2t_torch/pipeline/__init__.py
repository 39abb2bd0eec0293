"""From disk to batches: buckets, the plan of an epoch, padding, the loader."""
