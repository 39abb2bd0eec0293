"""Conversion of tensor2tensor's hyperparameters and variables, a file for each family of models.

Variables have their TensorFlow names; they may come from a checkpoint or, for example, from an
`.npz` file:

    hparams = convert_hparams("transformer", json.load(open("hparams.json")))
    model = Transformer(hparams, dataclasses.replace(features, target_space_id=3))
    load_variables(model, dict(numpy.load("variables.npz")))

A file of this package has two functions: `convert_hparams(model, values, variables)`, and
`convert_weights(model, variables)`, which returns weights by our names.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.interop.importer import load_all

Array = npt.NDArray[np.float32]

FAMILIES = {
    **dict.fromkeys(
        ("transformer", "transformer_encoder", "transformer_regressor", "transformer_scorer"),
        "transformer",
    ),
    **dict.fromkeys(
        """
        attention_lm attention_lm_moe evolved_transformer transformer_memory transformer_moe
        universal_transformer universal_transformer_encoder
        """.split(),
        "transformer_variants",
    ),
    **dict.fromkeys(
        """
        lstm_encoder lstm_seq2seq lstm_seq2seq_attention lstm_seq2seq_bidirectional_encoder
        lstm_seq2seq_attention_bidirectional_encoder text_cnn
        """.split(),
        "text_models",
    ),
    **dict.fromkeys(("basic_fc_relu", "imagetransformer", "resnet", "shake_shake"), "pictures"),
}
"""Files of this package by the models of tensor2tensor that can be converted."""
_OF_RUN = frozenset(
    "data_dir eval_freq_in_steps eval_steps eval_timeout_mins model_dir schedule "
    "std_server_protocol train_steps warm_start_from".split()
)
"""Flags of the trainer that tensor2tensor adds to hparams.json."""

MODALITIES: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("bottom", "loss", "name", "top", "weights_fn"), ({},)),
    "factored_logits": (False,),
    "prepend_mode": ("none",),
    "input_modalities": ("default",),
    "target_modality": ("default",),
    "symbol_modality_skip_top": (False,),
}
"""Values of modalities for which tensor2tensor's models equal ours."""


def _family(model: str) -> Any:
    return importlib.import_module(f"{__name__}.{FAMILIES[model]}")


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array] | None = None
) -> HParams:
    """Returns our hyperparameters for those of tensor2tensor, as stored in its `hparams.json`.

    Hyperparameters that only affect its training infrastructure (shards, summaries, TPUs, the noise
    shape of dropout ...) and the flags of the trainer among them are dropped.

    Args:
      model: name of a model, one of `FAMILIES`.
      values: values by tensor2tensor's names.
      variables: variables of the model, which show what `values` do not determine, such as whether
        a model with prepended inputs has an encoder.

    Raises:
      HParamsError: a value requires a model that differs from ours, or is out of bounds; all are
        named.
    """
    own = {name: value for name, value in values.items() if name not in _OF_RUN}
    hparams: HParams = _family(model).convert_hparams(model, own, variables or {})
    return hparams.signed("tensor2tensor")


def convert_weights(model: str, variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns weights by our names.

    Args:
      model: name of a model, one of `FAMILIES`.
      variables: arrays by TensorFlow's names; optimizer slots and counters are ignored.

    Raises:
      CheckpointError: variables are unknown.
    """
    weights: dict[str, Tensor] = _family(model).convert_weights(model, variables)
    return weights


def load_variables(model: nn.Module, variables: Mapping[str, Array]) -> None:
    """Loads the trainable variables of a model of tensor2tensor.

    Args:
      model: our model with the same hyperparameters and vocabulary sizes.
      variables: arrays by TensorFlow's names; optimizer slots and counters are ignored.

    Raises:
      CheckpointError: a variable is unknown to the model, a weight is missing, or a shape differs.
    """
    weights = convert_weights(str(model.name), variables)
    inputs = "modalities.inputs.bottom.weight"
    is_shared = any(re.search(r"/shared/weights_\d+$", name) for name in variables)
    if is_shared and inputs not in model.state_dict():  # a language model has no inputs
        weights.pop(inputs, None)
    load_all(model, weights)


def checked_hparams(
    model: str, values: Mapping[str, Any], expected: Mapping[str, tuple[Any, ...]]
) -> HParams:
    """Returns the hyperparameters of a model, after checks.

    Args:
      model: name of our model.
      values: values by tensor2tensor's names.
      expected: by name, the values for which its model equals ours; these are not hyperparameters
        of our model.

    Raises:
      HParamsError: a value is not one of the expected ones, or a name is unknown.
    """
    other = [
        f"{name}={values[name]!r} (expected {allowed[0]!r})"
        for name, allowed in expected.items()
        if name in values and values[name] not in allowed
    ]
    if other:
        raise HParamsError(
            f"this tensor2tensor model computes what our {model} does not: " + ", ".join(other)
        )
    kind = registry.model(model).HParams
    unknown = values.keys() - kind.model_fields.keys() - kind.unsupported.keys() - expected.keys()
    if unknown:
        raise HParamsError(
            f"tensor2tensor's {model} has no hyperparameter {', '.join(sorted(unknown))}. "
            "Expected the contents of an hparams.json of tensor2tensor 1.15."
        )
    kept = {k: v for k, v in values.items() if k in kind.model_fields and k not in expected}
    kept.pop("multiproblem_mixing_schedule", None)  # tensor2tensor has one for single problems too
    if "pos" in kept and kept["pos"] is None:
        kept["pos"] = "none"
    if "optimizer" in kept:  # also named like a class there, "Adafactor"
        kept["optimizer"] = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kept["optimizer"]).lower()
    return kind().replace(**kept)


def renamed(name: str, patterns: Mapping[str, str]) -> str | None:
    """Returns our name of a variable: that of the first pattern that is its end; None without one.

    Kernels and scales of norms are called weights.
    """
    for pattern, ours in patterns.items():
        if match := re.search(rf"{pattern}$", name):
            return re.sub(r"(?<=\.)(kernel|scale)$", "weight", match.expand(ours))
    return None


def as_ours(name: str, value: Array) -> Array:
    """Returns a variable in torch's order of axes: [out, in] of kernels, [out, in, ...] of others.

    Args:
      name: name in tensor2tensor; kernels of separable convolutions have a rank of their own.
      value: the variable: a kernel [..., in, out], or a vector.
    """
    if name.endswith("depthwise_kernel"):  # [K, E, 1], or [K, 1, E, 1]
        return value.reshape(len(value), -1, 1).transpose(1, 2, 0)
    if name.endswith("pointwise_kernel"):
        return value.reshape(value.shape[-2:]).T
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T


def tensors(weights: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns arrays as contiguous tensors of float32; `a.b#1` is the second part of `a.b`."""
    parts: dict[str, dict[int, Array]] = {}
    for name, value in weights.items():
        ours, _, number = name.partition("#")
        parts.setdefault(ours, {})[int(number or 0)] = value
    arrays = {name: np.concatenate([of[i] for i in sorted(of)]) for name, of in parts.items()}
    return {
        name: torch.from_numpy(np.array(array, np.float32, order="C"))
        for name, array in arrays.items()
    }


def collect(
    variables: Mapping[str, Array],
    weights_of: Callable[[str, Array], Iterable[tuple[str, Array]]],
    what: str,
) -> dict[str, Tensor]:
    """Returns the weights of all variables.

    Args:
      variables: by their names in tensor2tensor.
      weights_of: returns our names and weights of a variable, see `tensors`; none if it is unknown.
      what: name of the model, for the error.

    Raises:
      CheckpointError: an unknown one is no variable of the optimizer or a counter.
    """
    found = {name: dict(weights_of(name, value)) for name, value in variables.items()}
    if unknown := [name for name, own in found.items() if not own and not is_training_state(name)]:
        raise CheckpointError(f"not variables of {what} that we know: {', '.join(unknown[:10])}")
    return tensors({name: value for own in found.values() for name, value in own.items()})


def is_training_state(name: str) -> bool:
    """Returns True if a tensor2tensor variable belongs to the optimizer or counts steps."""
    return name.startswith(("training/", "global_step", "losses_avg", "train_stats/")) or bool(
        re.search(r"/(Adam(_1)?|Momentum|[vm][rc]?|grad_acc)$", name)
    )
