"""The shelf of hooks, what watches a run: `--hooks=name,name`."""
