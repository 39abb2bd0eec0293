"""Hyperparameters and weights of tensor2tensor's Transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from t2t_torch import registry
from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import (
    Array,
    as_ours,
    checked_hparams,
    collect,
    renamed,
)

_LOCAL_MOE_LOSS = 1e-2
_QUANTIZATION = frozenset(
    """
    beta bottleneck_kind decay ema epsilon noise_dev num_blocks num_residuals num_samples
    random_top_k residual_centroids soft_em use_scales z_size
    """.split()
)
_SPEECH = "modalities.inputs.bottom.convolutions"
_SUBLAYER = r"body/(encoder|decoder)/layer_(\d+)/(self_attention|encdec_attention|ffn)"
_NORM = r"layer_norm/layer_norm_(scale|bias)"
_ATTENTION = "multihead_attention"
_NAMES = {
    r"body/target_space_embedding/kernel": "target_space",
    r"(?:class_label_modality_\d+_\d+/dense|reg_top_ffn/model_top)/(kernel|bias)": (
        r"modalities.targets.top.\1"
    ),
    r"speech_recognition_modality/conv2d/kernel": f"{_SPEECH}.first.weight",
    r"speech_recognition_modality/conv2d_1/kernel": f"{_SPEECH}.second.weight",
    r"speech_recognition_modality/conv2d_2/kernel": f"{_SPEECH}.last.weight",
    rf"speech_recognition_modality/{_NORM}": rf"{_SPEECH}.norms.0.\1",
    r"speech_recognition_modality/layer_norm_(\d)/layer_norm_(scale|bias)": (
        rf"{_SPEECH}.norms.\1.\2"
    ),
    rf"body/(encoder|decoder)/layer_prepostprocess/{_NORM}": r"\1_output.norm.\2",
    rf"{_SUBLAYER}/layer_prepostprocess/{_NORM}": r"\1.\2.\3_before.norm.\4",
    rf"{_SUBLAYER}/layer_postprocess/{_NORM}": r"\1.\2.\3_after.norm.\4",
    rf"{_SUBLAYER}/conv1/(kernel|bias)": r"\1.\2.\3.inner.\4",
    rf"{_SUBLAYER}/conv2/(kernel|bias)": r"\1.\2.\3.outer.\4",
    rf"{_SUBLAYER}/{_ATTENTION}/dot_product_attention_relative/relative_positions_(\w+?)/.+": (
        r"\1.\2.\3.relative.\4.weight"
    ),
    rf"{_SUBLAYER}/.*dot_product_self_attention_relative_v2/key_relative_embeddings": (
        r"\1.\2.\3.relative.table"
    ),
    rf"{_SUBLAYER}/local_moe/parallel_\d+/w_0": r"\1.\2.\3.inner",
    rf"{_SUBLAYER}/local_moe/parallel_\d+/w_1": r"\1.\2.\3.outer",
    rf"{_SUBLAYER}/local_moe/noisy_top_k_gating/w_gate": r"\1.\2.\3.router.weight",
    rf"{_SUBLAYER}/local_moe/noisy_top_k_gating/w_noise": r"\1.\2.\3.noise.weight",
    r"body/(encoder|decoder)/layer_(\d+)/self_attention/multihead_attention/[qkv]/kernel": (
        r"\1.\2.attention.query_key_value.weight"
    ),
    rf"{_SUBLAYER}/{_ATTENTION}/q/kernel": r"\1.\2.\3.query.weight",
    rf"{_SUBLAYER}/{_ATTENTION}/[kv]/kernel": r"\1.\2.\3.key_value.weight",
    rf"{_SUBLAYER}/{_ATTENTION}/output_transform/kernel": r"\1.\2.\3.output.weight",
}
"""Our names by patterns of the ends of tensor2tensor's; several variables may be parts of one."""
_SUBLAYERS = {
    "self_attention": "attention",
    "encdec_attention": "memory_attention",
    "ffn": "feed_forward",
}
TABLES = {
    "input_emb": ("modalities.inputs.bottom.weight",),
    "target_emb": ("modalities.targets.bottom.weight",),
    "softmax": ("modalities.targets.top.weight",),
    "shared": ("modalities.inputs.bottom.weight", "modalities.targets.bottom.weight"),
}


def convert_hparams(
    model: str,
    values: Mapping[str, Any],
    variables: Mapping[str, Array],
    must_be: Mapping[str, tuple[Any, ...]] | None = None,
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`.

    `transformer_encoder` ignores the settings of a decoder.  A model of prepended inputs has no
    encoder if the problem has no `inputs`, which only the variables show.

    Args:
      model: name of the model.
      values: values by tensor2tensor's names.
      variables: variables of the model.
      must_be: further expected values, of a relative of the Transformer.
    """
    values = _with_experts(values)
    transformer = registry.model("transformer").HParams
    fields = transformer.model_fields.keys() - {"norm_type"}
    expected = {  # other values change the function or the weights
        name: known.values
        for name, known in transformer.unsupported.items()
        if known.reads == "model" and name not in fields
    }
    expected |= {"loss": ({},), "gating_type": ("topk",), **(must_be or {})}
    if values.get("prepend_mode", "none") != "none":
        del expected["weights_fn"]  # tensor2tensor itself sets it to the weights that we use
    settings = transformer.model_fields.keys() | transformer.unsupported.keys()
    kind = registry.model(model).HParams
    other = settings - kind.model_fields.keys() - expected.keys()  # read by no model of this kind
    known = {name: value for name, value in values.items() if name not in other}
    hparams = checked_hparams(model, _in_frames(known), expected)
    if not variables:
        return hparams
    has_space = any(name.endswith("target_space_embedding/kernel") for name in variables)
    changes: dict[str, Any] = {"use_target_space_embedding": has_space}
    if model == "transformer" and not any("/body/encoder/" in name for name in variables):
        changes = {"encode_inputs": False} if values.get("prepend_mode") != "none" else {}
    return hparams.replace(**changes) if changes else hparams


def _with_experts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values whose feed-forward sublayers have our names.

    tensor2tensor does not read `moe_loss_coef` for local_moe, and vector quantization only with
    another `gating_type`.
    """
    found = dict(values)
    if found.get("ffn_layer") == "conv_hidden_relu":
        found["ffn_layer"] = "dense_relu_dense"
    if found.get("gating_type") == "topk":
        found = {name: value for name, value in found.items() if name not in _QUANTIZATION}
    if found.get("ffn_layer") == "local_moe":
        found["moe_loss_coef"] = _LOCAL_MOE_LOSS
    return found


def _in_frames(values: dict[str, Any]) -> dict[str, Any]:
    """Returns hyperparameters of speech whose lengths are frames of sounds.

    tensor2tensor's `max_length` is frames times mel filters.  Its speech problems count examples by
    `batch_size`, ours count frames.
    """
    bins = values.get("audio_num_mel_bins")
    if not bins:
        return values
    bins = max(bins, 80)  # the number of its sets
    return {**values, "use_fixed_batch_size": True, "max_length": values["max_length"] // bins}


def convert_weights(model: str, variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    read = {
        name: value
        for name, value in variables.items()
        if not re.search("/targets_bottom/real/|/ffn/means$", name)
    }

    def weights_of(name: str, value: Array) -> list[tuple[str, Array]]:
        found, number = place_of(name)
        return [(f"{ours}#{number}", _as_ours(name, value)) for ours in found]

    return collect(read, weights_of, "a Transformer")


def place_of(name: str) -> tuple[tuple[str, ...], int]:
    """Returns our names of a variable, none if it is unknown, and the index of its part there."""
    part = re.search(r"/([qkv])/kernel$|/parallel_(\d+)/w_\d$|/weights_(\d+)$", name)
    number = 0
    if part:
        number = "qkv".index(part[1]) if part[1] else int(part[2] or part[3])
    if table := re.search(r"symbol_modality_\d+_\d+/(\w+)/weights_\d+$", name):
        return TABLES.get(table[1], ()), number
    ours = renamed(name, _NAMES)
    if ours is None:
        return (), number
    sublayer = rf"(?<=\.)({'|'.join(_SUBLAYERS)})(?=[._])"
    return (re.sub(sublayer, lambda match: _SUBLAYERS[match[0]], ours),), number


def _as_ours(name: str, value: Array) -> Array:
    """Returns a kernel [in, out] transposed to torch's [out, in]; embeddings are unchanged."""
    is_kernel = name.endswith("/kernel") and "target_space" not in name
    is_kernel |= "relative_positions_values" in name  # here a map from attention weights
    is_kernel |= "noisy_top_k_gating" in name
    if "/local_moe/parallel_" in name:  # one of a table of experts
        value = value[None]
    return as_ours(name, value) if is_kernel else value
