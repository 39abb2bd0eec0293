"""Registry folder: problems, one file each."""
