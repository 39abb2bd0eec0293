"""Architecture of a Transformer of another library: its encoder, its decoder, or both.

Weights by our names show the sizes, biases, gates, tables of positions and norms of a stack of
layers.  A `Side` has what they do not show; `hparams_of` joins both to hyperparameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from t2t_torch import registry
from t2t_torch.errors import CheckpointError
from t2t_torch.hparam import HParams
from t2t_torch.interop.translation import base_hparams, refuse, sharing
from t2t_torch.params import value_text

ACTIVATIONS: Mapping[str, str] = {
    **{name: name for name in ("relu", "gelu", "silu", "quick_gelu", "tanh", "linear")},
    **dict.fromkeys(("gelu_python", "gelu_10"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate"), "gelu_tanh"),
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    **dict.fromkeys(("swish", "swish1"), "silu"),
    **dict.fromkeys(("relu2", "relu_squared"), "relu_squared"),
}
"""Our names of activation functions by those of all libraries, where each has one meaning."""

PRE_NORM, POST_NORM = ("n", "da"), ("none", "dan")
"""Operations before and after a sublayer."""

_PLACES = {"encoder": "join.positions", "decoder": "positions"}  # of vectors of positions


@dataclass(frozen=True)
class Side:
    """Properties of a stack of layers that its weights do not show.

    Attributes:
      num_heads: attention heads.
      activation: activation function of feed-forward sublayers, as the library calls it.
      norms: operations before and after a sublayer, in our letters.
      norm_epsilon: of all norms.
      pos: kind of the positions, if they are no table in the weights.
      position_offset: added to each of them.
      limit: number of them, if later ones have the last vector; 0: no limit.
    """

    num_heads: int
    activation: str
    norms: tuple[str, str]
    norm_epsilon: float
    pos: str = "none"
    position_offset: int = 0
    limit: int = 0


def hparams_of(
    library: str,
    model: str,
    weights: Mapping[str, Tensor],
    sides: Mapping[str, Side],
    **values: Any,
) -> HParams:
    """Returns the hyperparameters of a Transformer.

    Args:
      library: name of the library, for messages.
      model: our name of the model.
      weights: weights by our names, with the tables of both vocabularies if there are two sides.
      sides: by "encoder" and "decoder"; one or both.
      values: further hyperparameters.

    Raises:
      CheckpointError: a stack has no layers.
      HParamsError: no model here has the activation function.
    """
    names = [side.activation for side in sides.values() if side.activation not in ACTIVATIONS]
    refuse(library, [f"the activation function {name}" for name in sorted(set(names))])
    counts = {side: _layers(weights, side) for side in sides}
    found = {side: _measured(weights, side, of) for side, of in sides.items()}
    base = next(iter(found.values()))
    limits = {"encoder": "max_source_positions", "decoder": "max_target_positions"}
    for side, of in sides.items():
        table = weights.get(f"{_PLACES[side]}.table")
        values[limits[side]] = of.limit if table is None else len(table)
    if len(sides) == 1:
        values["num_hidden_layers"] = next(iter(counts.values()))
    else:
        values |= {f"num_{side}_layers": count for side, count in counts.items()}
        decoder = found["decoder"]
        values["decoder_hparams"] = tuple(
            f"{name}={value_text(value)}" for name, value in decoder.items() if value != base[name]
        )
        tables = ("inputs.bottom", "targets.bottom", "targets.top")
        values |= sharing(*(weights[f"modalities.{name}.weight"] for name in tables))
        values["output_bias"] = "modalities.targets.top.bias" in weights
    known = registry.model(model).HParams.model_fields
    base = {name: value for name, value in base.items() if name in known}
    return base_hparams(model, use_target_space_embedding=False, **base, **values)


def _layers(weights: Mapping[str, Tensor], side: str) -> int:
    """Returns the number of layers; CheckpointError if there are none."""
    numbers = {name.split(".")[1] for name in weights if name.startswith(f"{side}.")}
    if not numbers:
        raise CheckpointError(f"the {side} of the checkpoint has no layers. Copy it again.")
    return len(numbers)


def _measured(weights: Mapping[str, Tensor], side: str, given: Side) -> dict[str, Any]:
    """Returns the hyperparameters of the layers of a side."""
    layer, places = f"{side}.0", _PLACES[side]
    joint = weights[f"{layer}.attention.query_key_value.weight"]  # [H + 2 K, H]
    inner = f"{layer}.feed_forward.inner"
    size = joint.size(1)
    heads = (len(joint) - size) // 2 // max(1, size // given.num_heads)
    before, after = given.norms
    norms = {name.rpartition(".")[0] for name in weights if name.startswith(f"{layer}.")}
    is_rms = any(one.endswith(".norm") and f"{one}.bias" not in weights for one in norms)
    distances = weights.get(f"{layer}.attention.relative.keys.weight")
    return {
        "hidden_size": size,
        "num_heads": given.num_heads,
        "num_key_value_heads": 0 if heads == given.num_heads else heads,
        "filter_size": len(weights[f"{inner}.weight"]),
        "ffn_activation": ACTIVATIONS[given.activation],
        "ffn_gated": f"{layer}.feed_forward.gate.weight" in weights,
        "ffn_bias": f"{inner}.bias" in weights,
        "attention_bias": f"{layer}.attention.query_key_value.bias" in weights,
        "layer_preprocess_sequence": before,
        "layer_postprocess_sequence": after,
        "norm_type": "rms" if is_rms else "layer",
        "norm_epsilon": given.norm_epsilon,
        "output_norm": "n" not in before.replace("none", "")
        or f"{side}_output.norm.weight" in weights,
        "embedding_norm": f"{places}.norm.weight" in weights,
        "pos": "learned" if f"{places}.table" in weights else given.pos,
        "position_offset": 0 if f"{places}.table" in weights else given.position_offset,
        "self_attention_type": "dot_product" if distances is None else "dot_product_relative",
        "max_relative_position": 0 if distances is None else len(distances) // 2,
    }
