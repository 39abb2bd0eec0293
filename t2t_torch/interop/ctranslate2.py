"""Transformers as models of CTranslate2, an engine of its own for CPUs and GPUs.

https://github.com/OpenNMT/CTranslate2, through its `ctranslate2.specs`.  What its Transformer has
not is refused by name: nothing is left out.  What it has in another form is brought into it:

- an embedding's row of padding is zero, as the model takes it; so the softmax has its own table;
- rows that only fill `vocab_divisor` up are left away, as a search never sees them;
- positions are a table, as CTranslate2 counts its own sinusoids from 1; the vector of the target
  space is added to the encoder's, or with relative attention, which has none, to the vectors of
  inputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from t2t_torch import registry
from t2t_torch.decode.loading import Loaded
from t2t_torch.errors import ExportError, UsageError, install_extra
from t2t_torch.features import Feature, Text, TreeFeature
from t2t_torch.layers.positions import sinusoids
from t2t_torch.modalities.text import Embedding
from t2t_torch.text.encoder import EOS, NUM_RESERVED, PAD
from t2t_torch.text.subword import SubwordEncoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from t2t_torch.model import T2TModel

QUANTIZATIONS = (
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
)
"""How CTranslate2 can store weights, besides float32."""

POSITIONS = 2048
"""The most tokens of an input, and of an output."""

_MODEL = "transformer"
_PRE_NORM = {("n", "a"): True, ("", "an"): False}  # by what stands around a sublayer, no dropout


def convert(loaded: Loaded, folder: Path, quantization: str | None = None) -> None:
    """Writes a model as CTranslate2 reads it: model.bin, config.json and its vocabularies.

    Args:
      loaded: an encoder and decoder, from text to text, and what it is of.
      folder: that is there.
      quantization: one of `QUANTIZATIONS`; None stores float32.

    Raises:
      ExportError: CTranslate2 is not installed, or its Transformer has not what the model has.
      UsageError: there is no such quantization.
    """
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise UsageError(
            f"CTranslate2 has no quantization {quantization!r}; expected one of "
            f"{', '.join(QUANTIZATIONS)}."
        )
    require()
    check_convertible(loaded)
    spec = _spec(loaded)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def require() -> Any:
    """Returns CTranslate2; ExportError if it is not installed."""
    try:
        import ctranslate2
    except ImportError:
        raise ExportError(f"CTranslate2 is not installed:  {install_extra('ct2')}") from None
    return ctranslate2


def check_convertible(loaded: Loaded) -> None:
    """Checks that CTranslate2's Transformer has what a model has.

    Raises:
      ExportError: it has not; names what.
    """
    if reason := _misfit(loaded):
        raise ExportError(
            f"the model of {loaded.problem.full_name!r} does not fit CTranslate2: {reason}. It "
            "answers with  t2t-decoder"
        )


def _misfit(loaded: Loaded) -> str | None:
    """Returns why a model cannot be converted; None if it can."""
    model: Any = loaded.model
    features, hparams = loaded.features, model.hparams
    if type(loaded.model) is not registry.model(_MODEL):
        return f"it is no {_MODEL!r} but a {type(model).__name__}"
    if not features.has_inputs:
        return "it is a language model, without an encoder"
    if len(features.inputs) != 1 or len(features.targets) != 1:
        return f"it has {', '.join(features.all)}, where one input and one target are read"
    for name, feature in features.all.items():
        if not isinstance(feature, Text) or isinstance(feature, TreeFeature):
            return f"{name!r} is a {type(feature).__name__}, not a text"
        if not isinstance(model.modalities[name].bottom, Embedding):
            return f"the vectors of {name!r} are not of a table alone"
    if not features.targets["targets"].generates:
        return "its outputs have no end symbol"
    if hparams.prepend_mode != "none":
        return f"prepend_mode={hparams.prepend_mode}: its decoder reads targets alone"
    if hparams.furthest and hparams.pos != "none":
        return f"pos={hparams.pos} and relative attention, of which it has one at a time"
    if not (len(model.encoder) and len(model.decoder)):
        return "it has no layers"
    if _around(hparams) not in _PRE_NORM:
        return (
            f"layer_preprocess_sequence={hparams.layer_preprocess_sequence} and "
            f"layer_postprocess_sequence={hparams.layer_postprocess_sequence}, where n and da "
            "(pre-norm) or none and dan (post-norm) are read"
        )
    return None


def _around(hparams: Any) -> tuple[str, str]:
    """Returns what stands before and after a sublayer, dropout aside."""
    before, after = hparams.layer_preprocess_sequence, hparams.layer_postprocess_sequence
    return before.replace("none", "").replace("d", ""), after.replace("none", "").replace("d", "")


def tokens_of(source: Feature, target: Feature) -> tuple[list[str], list[str]]:
    """Returns what CTranslate2 calls the ids of both sides: subwords, or else their numbers."""
    sides = [_pieces_of(feature) for feature in (source, target)]
    if all(sides) and sides[0][:NUM_RESERVED] == sides[1][:NUM_RESERVED]:
        return sides[0], sides[1]
    read, written = ([str(number) for number in range(f.vocab_size)] for f in (source, target))
    return read, written


def _pieces_of(feature: Feature) -> list[str]:
    """Returns the subwords of a vocabulary; none if it has others, or two of the same name."""
    if not isinstance(feature, Text) or not isinstance(feature.encoder, SubwordEncoder):
        return []
    pieces = feature.encoder.pieces
    return pieces if len(set(pieces)) == len(pieces) else []


class _Weights:
    """A model's weights; those that nobody has asked for are left."""

    def __init__(self, model: T2TModel) -> None:
        self._weights = model.state_dict()
        self.left = set(self._weights)

    def __call__(self, name: str) -> NDArray[np.float32]:
        self.left.discard(name)
        # A copy: quantizing writes into what it is given.
        found: NDArray[np.float32] = self._weights[name].float().cpu().numpy().copy()
        return found


def _spec(loaded: Loaded) -> Any:
    """Returns CTranslate2's description of the model, with its weights."""
    from ctranslate2.specs import TransformerSpec

    model: Any = loaded.model
    hparams = model.hparams
    spec: Any = TransformerSpec.from_config(
        (len(model.encoder), len(model.decoder)),
        hparams.num_heads,
        pre_norm=_PRE_NORM[_around(hparams)],
        with_relative_position=bool(hparams.furthest),
    )
    weights = _Weights(loaded.model)
    (source,), (target,) = loaded.features.inputs, loaded.features.targets
    _embed(spec.encoder, spec.encoder.embeddings[0], source, loaded, weights)
    _embed(spec.decoder, spec.decoder.embeddings, target, loaded, weights)
    if hparams.use_target_space_embedding:
        _add_space(spec.encoder, weights("target_space")[model.target_space_id], model, source)
    for side in ("encoder", "decoder"):
        stack = getattr(spec, side)
        for number, layer in enumerate(stack.layer):
            _fill_layer(layer, f"{side}.{number}.", weights, pre_norm=bool(stack.pre_norm))
        if stack.pre_norm:
            _fill_norm(stack.layer_norm, f"{side}_output.norm", weights)
    size = loaded.features.targets[target].vocab_size
    spec.decoder.projection.weight = weights(f"modalities.{target}.top.weight")[:size]
    if weights.left:
        raise ExportError(
            f"the model has weights that CTranslate2's Transformer has not: "
            f"{', '.join(sorted(weights.left))}."
        )
    _register_tokens(spec, loaded, hparams)
    return spec


def _register_tokens(spec: Any, loaded: Loaded, hparams: Any) -> None:
    """Says what ids are called, which of them is special, and whether inputs have an end."""
    (source,), (target,) = loaded.features.inputs.values(), loaded.features.targets.values()
    read, written = tokens_of(source, target)
    spec.register_source_vocabulary(read)
    spec.register_target_vocabulary(written)
    config = spec.config
    config.eos_token, config.bos_token = written[EOS], written[PAD]
    config.decoder_start_token = written[PAD]  # whose vector is zero
    # An unknown token is as if nothing stood there.
    config.unk_token = written[PAD]
    config.add_source_eos = bool(getattr(source, "add_eos", False))
    config.layer_norm_epsilon = hparams.norm_epsilon


def _embed(stack: Any, spec: Any, name: str, loaded: Loaded, weights: _Weights) -> None:
    """Fills in what ids become: vectors, their factor, positions."""
    model: Any = loaded.model
    size = loaded.features.all[name].vocab_size
    table = weights(f"modalities.{name}.bottom.weight")[:size]
    table[PAD] = 0.0
    spec.weight = table
    stack.scale_embeddings = model.modalities[name].bottom.scale != 1.0
    if model.hparams.furthest:
        return
    width = table.shape[1]
    positions = np.zeros((POSITIONS, width), np.float32)
    if model.hparams.pos == "timing":
        positions = sinusoids(torch.arange(POSITIONS), width).numpy()
    stack.position_encodings.encodings = positions


def _add_space(stack: Any, space: NDArray[np.float32], model: Any, source: str) -> None:
    """Adds the vector of the target space to every place of an input."""
    if model.hparams.furthest:
        spec = stack.embeddings[0]
        spec.weight = spec.weight + space / np.float32(model.modalities[source].bottom.scale)
    else:
        spec = stack.position_encodings
        spec.encodings = spec.encodings + space


def _fill_layer(spec: Any, prefix: str, weights: _Weights, *, pre_norm: bool) -> None:
    """Fills in a layer; before a sublayer or after it stands its norm."""
    place = "before" if pre_norm else "after"

    def attention(spec: Any, name: str, projections: list[str]) -> None:
        for linear, projection in zip(spec.linear, [*projections, "output"], strict=True):
            linear.weight = weights(f"{prefix}{name}.{projection}.weight")
        _fill_norm(spec.layer_norm, f"{prefix}{name}_{place}.norm", weights)

    attention(spec.self_attention, "attention", ["query_key_value"])
    if hasattr(spec.self_attention, "relative_position_keys"):
        name = f"{prefix}attention.relative"
        spec.self_attention.relative_position_keys = weights(f"{name}.keys.weight")
        spec.self_attention.relative_position_values = weights(f"{name}.values.weight").T.copy()
    if hasattr(spec, "attention"):
        attention(spec.attention, "memory_attention", ["query", "key_value"])
    for linear, name in ((spec.ffn.linear_0, "inner"), (spec.ffn.linear_1, "outer")):
        linear.weight = weights(f"{prefix}feed_forward.{name}.weight")
        linear.bias = weights(f"{prefix}feed_forward.{name}.bias")
    _fill_norm(spec.ffn.layer_norm, f"{prefix}feed_forward_{place}.norm", weights)


def _fill_norm(spec: Any, name: str, weights: _Weights) -> None:
    spec.gamma, spec.beta = weights(f"{name}.weight"), weights(f"{name}.bias")
