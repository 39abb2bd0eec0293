"""The commands, one module each: `t2t-datagen`, `t2t-trainer`, `t2t-decoder` and others."""
