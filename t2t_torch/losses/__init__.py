"""Registry folder: named losses.  Imported by the registry only."""
