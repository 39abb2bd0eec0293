"""The commands: t2t-datagen, t2t-trainer, t2t-decoder."""
