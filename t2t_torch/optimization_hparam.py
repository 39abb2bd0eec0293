"""The hyperparameters of how weights are changed; `hparam.py` has the others."""

from __future__ import annotations

from typing import Literal

from t2t_torch.params import Params, hp


class OptimizationHParams(Params):
    """Optimization: the optimizer and its learning rate."""

    optimizer: str = hp("adam", "Registered optimizer.")
    optimizer_adam_epsilon: float = hp(1e-6, "Adam's epsilon, added to the root.", above=0)
    optimizer_adam_beta1: float = hp(
        0.85, "Decay of Adam's first moment, per step.", low=0, below=1
    )
    optimizer_adam_beta2: float = hp(
        0.997, "Decay of Adam's second moment, per step.", low=0, below=1
    )
    optimizer_multistep_accumulate_steps: int = hp(
        0, "Batches per process whose gradients make one step.  0: one.", low=0
    )
    optimizer_zero_grads: bool = hp(
        False, "A weight that a step did not use has a gradient of zero, not none: moments decay."
    )
    optimizer_adafactor_beta1: float = hp(
        0.0, "Decay of Adafactor's first moment, per step.  0: it has none.", low=0, below=1
    )
    optimizer_adafactor_beta2: float = hp(
        0.999, "Decay of its second moment where decay_type is adam.", low=0, below=1
    )
    optimizer_adafactor_factored: bool = hp(
        True, "The second moment of a matrix is kept as its rows' and its columns' means."
    )
    optimizer_adafactor_decay_type: Literal["pow", "adam"] = hp(
        "pow", "How the second moment's decay grows: pow by memory_exponent, adam up to beta2."
    )
    optimizer_adafactor_memory_exponent: float = hp(
        0.8, "Decay of the second moment at step t, from 1: 1 - t^-exponent.", low=0
    )
    optimizer_adafactor_clipping_threshold: float = hp(
        1.0, "Largest root mean square of a weight's update before its rate.", above=0
    )
    optimizer_adafactor_multiply_by_parameter_scale: bool = hp(
        True, "A weight's rate is multiplied by its root mean square, 0.001 at least."
    )
    optimizer_momentum_momentum: float = hp(
        0.9, "Part of the last update that momentum keeps.", low=0, below=1
    )
    optimizer_momentum_nesterov: bool = hp(False, "Momentum looks one step ahead.")
    optimizer_muon_momentum: float = hp(0.95, "Part of the sum that muon keeps.", low=0, below=1)
    optimizer_muon_excludes: tuple[str, ...] = hp(
        ("modalities", "embedding", "target_space"),
        "Patterns of the names of matrices that muon leaves to adam_w: tables and the softmax.",
    )
    grad_noise_scale: float = hp(
        0.0, "Deviation of the noise that is added to each gradient.  0: none.", low=0
    )
    weight_noise: float = hp(
        0.0,
        "Noise is added to the body's weights at each step, of a deviation of this times the "
        "learning rate / 1000.  0: none.",
        low=0,
    )
    freeze: tuple[str, ...] = hp(
        (), "Regular expressions; weights in whose name one is found are not trained."
    )
    unfreeze_schedule: tuple[str, ...] = hp(
        (),
        "pattern=step: weights in whose name the pattern is found are not trained before so many "
        "steps are done; the first that is found counts.",
    )
    ema_decay: float = hp(
        0.0,
        "Part of the moving average of the weights that a step keeps; it is what is evaluated and "
        "decoded.  0: no average.",
        low=0,
        below=1,
    )
    swa_start_step: int = hp(
        0,
        "Step whose weights are the first of their plain mean, which is what is evaluated and "
        "decoded.  0: no mean.",
        low=0,
    )
    swa_patience: int = hp(
        0, "The mean begins when an evaluation is worse than the best of all but the last n.", low=0
    )
    swa_every: int = hp(1, "Steps between the weights that the mean is of.", low=1)
    learning_rate_schedule: str = hp(
        "legacy", "Factors joined by *, as in constant*linear_warmup*rsqrt_decay."
    )
    learning_rate_constant: float = hp(1.0, "The factor constant.", low=0)
    learning_rate_decay_scheme: Literal["none", "noam", "exp", "piecewise", "cosine", "sqrt"] = hp(
        "none", "Decay of the schedule legacy."
    )
    learning_rate_decay_steps: int = hp(5000, "Steps over which a factor decays.", low=1)
    learning_rate_decay_staircase: bool = hp(False, "Exponential decay goes in whole steps.")
    learning_rate_minimum: float | None = hp(None, "The learning rate never falls below it.", low=0)
    learning_rate_decay_rate: float = hp(1.0, "Exponential decay per decay_steps.", low=0)
    learning_rate_warmup_steps: int = hp(100, "Steps until the warm-up ends.", low=0)
    learning_rate_cosine_cycle_steps: int = hp(
        250000, "Steps of a cycle of the legacy decay cosine.", low=1
    )
    learning_rate: float = hp(0.1, "Factor of the schedule legacy.", low=0)
    learning_rate_boundaries: tuple[int, ...] = hp(
        (), "Steps at which the legacy decay piecewise changes."
    )
    learning_rate_multiples: tuple[float, ...] = hp(
        (), "Factor of the legacy decay piecewise from each boundary on."
    )
    learning_rate_end_factor: float = hp(
        0.0,
        "Where polynomial_decay and cosine_annealing end, and the lowest of cyclic, as a part of "
        "the peak.",
        low=0,
        high=1,
    )
    learning_rate_decay_power: float = hp(1.0, "Exponent of polynomial_decay.", above=0)
    learning_rate_cut_fraction: float = hp(
        0.1, "Part of the run in which slanted_triangular rises.", above=0, below=1
    )
    learning_rate_ratio: float = hp(
        32.0, "Peak of slanted_triangular, as a multiple of its lowest.", low=1
    )
    learning_rate_scales: tuple[str, ...] = hp(
        (),
        "pattern=factor: weights in whose name the pattern is found learn at the rate times the "
        "factor; the first that is found counts.",
    )
    learning_rate_layer_decay: float = hp(
        1.0,
        "Each layer of a stack learns at the rate of the one above it times this, embeddings at "
        "that of the lowest times this.",
        above=0,
        high=1,
    )
