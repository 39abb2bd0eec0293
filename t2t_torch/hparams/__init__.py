"""Registry folder: named hparams sets.  Imported by the registry only."""
