"""Base hparams set, and its search range."""

from __future__ import annotations

from t2t_torch.hparam import HParams
from t2t_torch.registry import register_hparams, register_ranged_hparams
from t2t_torch.search_space import RangedHParams


@register_hparams
def basic_params1() -> HParams:
    """tensor2tensor's defaults, layers/common_hparams.py; equal to the fields' defaults."""
    return HParams()


@register_ranged_hparams("basic1")
@register_ranged_hparams
def basic_range1(rhp: RangedHParams) -> None:
    """tensor2tensor's wide ranges, layers/common_hparams.py, named basic1 there.

    Omitted, as unused in this library: dropout (0 to 0.5; sets here use
    layer_prepostprocess_dropout), kernel_height, kernel_width, compress_steps, and the optimizer
    yellow_fin.  `learning_rate` and its decay scheme apply to the schedule legacy, as in
    `basic_params1`.
    """
    rhp.set_discrete("batch_size", [1024, 2048, 4096])
    rhp.set_discrete("num_hidden_layers", [1, 2, 3, 4, 5, 6])
    rhp.set_discrete("hidden_size", [32, 64, 128, 256, 512], scale=rhp.LOG_SCALE)
    rhp.set_float("weight_decay", 1e-4, 10.0, scale=rhp.LOG_SCALE)
    rhp.set_float("label_smoothing", 0.0, 0.2)
    rhp.set_float("clip_grad_norm", 0.01, 50.0, scale=rhp.LOG_SCALE)
    rhp.set_float("learning_rate", 0.005, 2.0, scale=rhp.LOG_SCALE)
    rhp.set_categorical("initializer", ["uniform", "orthogonal", "uniform_unit_scaling"])
    rhp.set_float("initializer_gain", 0.5, 3.5)
    rhp.set_categorical("learning_rate_decay_scheme", ["none", "sqrt", "noam", "exp"])
    rhp.set_float("optimizer_adam_epsilon", 1e-7, 1e-2, scale=rhp.LOG_SCALE)
    rhp.set_float("optimizer_adam_beta1", 0.8, 0.9)
    rhp.set_float("optimizer_adam_beta2", 0.995, 0.999)
    rhp.set_categorical("optimizer", ["adam", "adagrad", "momentum", "rms_prop", "sgd"])
