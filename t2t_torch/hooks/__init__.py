"""Registry folder: training hooks, `--hooks=name,name`."""
