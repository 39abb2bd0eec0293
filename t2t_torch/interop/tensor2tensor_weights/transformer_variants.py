"""Hyperparameters and weights of tensor2tensor's models that derive from its Transformer.

Language models (attention_lm, attention_lm_moe, transformer_memory), transformer_moe, the Evolved
Transformer and the Universal Transformers.  Variables are renamed to those of a Transformer, except
those that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import Array, as_ours, renamed, tensors, transformer

_LANGUAGE_MODEL: dict[str, tuple[Any, ...]] = {
    "attention_layers": ("",),
    "attention_type": ("multihead",),
    "prepend_mode": ("none",),
    **dict.fromkeys(
        """
        attention_local diet_experts encoder_full_attention memory_efficient_ffn use_inputs
        use_sepconv
        """.split(),
        (False,),
    ),
}
_UNIVERSAL: dict[str, tuple[Any, ...]] = {
    "add_or_concat_timing_signal": ("add",),
    "add_sru": (False,),
    "gate_ffn_layer": ("dense",),
    "mix_with_transformer": (None, ""),
    "num_mixedin_layers": (0, 1, 2),
    "position_start_index": (None, ""),
    "transformer_ffn_type": ("fc",),
    "use_memory_as_final_state": (False,),
}
_MUST_BE: dict[str, dict[str, tuple[Any, ...]]] = {
    "attention_lm": _LANGUAGE_MODEL,
    "attention_lm_moe": _LANGUAGE_MODEL,
    "evolved_transformer": {
        "et_encoder_self_attention": (True,),
        "num_trainable_top_decoder_layers": (-1,),
    },
    "transformer_memory": {"memory_type": ("transformer_xl",), "unconditional": (True, False)},
    "transformer_moe": {},
    "universal_transformer": _UNIVERSAL,
    "universal_transformer_encoder": _UNIVERSAL,
}
"""By model, the values for which it equals ours, besides those that `transformer` checks."""
_UNREAD_OF_LANGUAGE_MODEL = """
    attention_block_length attention_exp_factor attention_exp_inputdim attention_kq_size
    attention_load_balance attention_moe_k attention_nonlinearity attention_num_experts
    attention_num_head attention_red_factor attention_reduction_type attention_split_batch
    attention_v_size lsh_num_hyperplanes lsh_use_map_fn moe_hidden_sizes moe_k moe_layers
    moe_loss_coef moe_num_experts
"""
_UNREAD = {
    "attention_lm": _UNREAD_OF_LANGUAGE_MODEL,
    "attention_lm_moe": _UNREAD_OF_LANGUAGE_MODEL,
    "evolved_transformer": "print_vars",
    "transformer_memory": (
        "split_targets_chunk_length split_targets_max_chunks split_targets_strided_training "
        "recurrent_memory_batch_size"
    ),
    "transformer_moe": "attention_red_factor attention_red_nonlinearity attention_red_type",
}
"""By model, the hyperparameters that have no effect with these values."""


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`.  A chunk is a block of streams."""
    unread = _UNREAD.get(model, "").split()
    read = {name: value for name, value in values.items() if name not in unread}
    if read.get("recurrence_type") in ("gru", "lstm") and model.startswith("universal"):
        read["num_inrecurrence_layers"] = 1  # these have one layer
    if _MUST_BE[model] is _LANGUAGE_MODEL or model == "transformer_memory":
        variables = {}  # which would show what follows from the problem
    hparams = transformer.convert_hparams(model, read, variables, _MUST_BE[model])
    if model == "transformer_memory":
        return hparams.replace(stream_length=int(values["split_targets_chunk_length"]))
    return hparams


def convert_weights(model: str, variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    if model == "evolved_transformer":
        own, plain = _split_evolved(variables)
    elif model.startswith("universal_transformer"):
        own, plain = _split_universal(variables)
    else:
        own, plain = _split_renamed(variables)
    return tensors(own) | transformer.convert_weights(model, plain)


_PLAIN_NAMES = {  # of language models and of transformer_moe
    r"^attention_lm_moe/layer_(\d+)/attention_multihead/decoder_self_attention/": (
        r"attention_lm/body/decoder/layer_\1/self_attention/multihead_attention/"
    ),
    r"^attention_lm_moe/layer_(\d+)/attention_multihead/": (
        r"attention_lm/body/decoder/layer_\1/self_attention/"
    ),
    r"^attention_lm_moe/layer_(\d+)/ffn/": r"attention_lm/body/decoder/layer_\1/ffn/",
    r"/(encoder|decoder)/layer_(\d+)/(?:self_)?att_(?!ende_)\w+?/": (
        r"/\1/layer_\2/self_attention/"
    ),
    r"/decoder/layer_(\d+)/att_ende_\w+?/": r"/decoder/layer_\1/encdec_attention/",
    r"/layer_(\d+)/ff_\w+?/": r"/layer_\1/ffn/",
    r"/ffn/conv_hidden_relu/conv([12])_single/": r"/ffn/conv\1/",
    r"^transformer_moe/(encoder|decoder|target_space)": r"transformer_moe/body/\1",
}
_SEPARABLE = {
    "depthwise_kernel": "depthwise.weight",
    "pointwise_kernel": "pointwise.weight",
    "bias": "pointwise.bias",
}


def _split_renamed(variables: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Returns the weights of separable convolutions by our names, and the variables of the rest."""
    own, plain = {}, {}
    separable = {name.rpartition("/")[0] for name in variables if name.endswith("depthwise_kernel")}
    for full, value in variables.items():
        if "/recurrent_memory/" in full:
            continue
        name = full
        for pattern, ours in _PLAIN_NAMES.items():
            name = re.sub(pattern, ours, name)
        match = re.search(r"/(encoder|decoder)/layer_(\d+)/ffn/conv([12])/(\w+)$", name)
        if match and full.rpartition("/")[0] in separable:
            layer = f"{match[1]}.{match[2]}.feed_forward.{'inner' if match[3] == '1' else 'outer'}"
            own[f"{layer}.{_SEPARABLE[match[4]]}"] = as_ours(full, value)
        else:
            plain[name] = value[0, 0] if value.ndim == 4 else value  # a convolution of width 1
    return own, plain


_RECURRENCE = {
    r"^layer_embedding": "step_embedding",
    r"^depth_embedding": "cell.depth_embedding",
    r"^sigmoid_activation_for_pondering/dense/(kernel|bias)": r"halting.\1",
    r"^dense/(kernel|bias)": r"cell.weights.\1",
    r"^gru/(update|reset|candidate)/(kernel|bias)": r"cell.\1.\2",
    r"^lstm/(input|forget|output)/(kernel|bias)": r"cell.\1_gate.\2",
    r"^lstm/input_modulation/(kernel|bias)": r"cell.modulation.\1",
    r"^layer_prepostprocess/layer_norm/layer_norm_(scale|bias)": r"cell.before.norm.\1",
    r"^layer_prepostprocess_1/layer_norm/layer_norm_(scale|bias)": r"cell.after.norm.\1",
}
"""Our names of variables outside of the layers of a block."""


def _split_universal(variables: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Returns the weights of the recurrence by our names, and the variables of the rest."""
    own, plain = {}, {}
    scope = re.compile(r"(.*/body/)(encoder|decoder)/universal_transformer_\w+?/")
    for name, value in variables.items():
        match = scope.match(name)
        if match is None:
            plain[name] = value
            continue
        side, rest = match[2], name[match.end() :]
        if ours := renamed(rest, _RECURRENCE):
            is_table = rest.endswith("_embedding")  # [steps, 1, 1, H]
            array = value.reshape(len(value), -1) if is_table else as_ours(rest, value)
            own[f"{side}_recurrence.{ours}"] = array
            continue
        rest = re.sub(r"^rec_layer_(\d+)/", r"layer_\1/", rest)
        if not rest.startswith("layer_"):  # gru and lstm have no layer in the name
            rest = f"layer_0/{rest}"
        plain[f"{match[1]}{side}/{rest}"] = value
    return own, plain


_NORMS = {
    "gated_linear_unit/layer_prepostprocess": "unit_before",
    "conv_branches/layer_prepostprocess": "conv_before",
    "conv_branches/layer_prepostprocess_1": "conv_between",
    "self_attention/layer_prepostprocess": "attention_before",
    "dense_layers/layer_prepostprocess": "dense_before",
    "dense_layers/layer_prepostprocess_1": "dense_between",
    "16_head_self_attention/layer_prepostprocess": "first_before",
    "second_attend_to_encoder/layer_prepostprocess": "memory_before",
}
_LINEARS = {
    "gated_linear_unit/dense": "unit_values",
    "gated_linear_unit/dense_1": "unit_gates",
    "conv_branches/dense": "conv_left",
    "conv_branches/standard_conv_3x1": "conv_right",
    "dense_layers/dense": "dense_inner",
    "dense_layers/dense_1": "dense_outer",
}
_CONVOLUTIONS = {  # separable ones
    "conv_branches/separable_conv_9x1": "conv_final",
    "conv_branches/separable_conv11x1": "conv_left",
    "conv_branches/separable_conv_7x1_1": "conv_right",
    "conv_branches/separable_conv_7x1_2": "conv_final",
}
_SELF = {"self_attention": "attention", "16_head_self_attention": "first_attention"}
_MEMORY = {"first_attend_to_encoder": "first_memory", "second_attend_to_encoder": "second_memory"}
_HEADS = "multihead_attention"
_OUTPUT = {f"{_HEADS}/output_transform/kernel": "output.kernel"}
_QUERY = {f"{_HEADS}/q/kernel": "query.kernel", f"{_HEADS}/[kv]/kernel": "key_value.kernel"}
_EVOLVED = {
    rf"body/(encoder|decoder)/layer_(\d+)/{theirs}": rf"\1.\2.{ours}"
    for names, endings in (
        (_NORMS, {r"layer_norm/layer_norm_(scale|bias)": r"norm.\3"}),
        (_LINEARS, {"(kernel|bias)": r"\3"}),
        (_CONVOLUTIONS, {"(depthwise|pointwise)_kernel": r"\3.kernel", "bias": "pointwise.bias"}),
        (_SELF, {f"{_HEADS}/[qkv]/kernel": "query_key_value.kernel", **_OUTPUT}),
        (_MEMORY, {**_QUERY, **_OUTPUT}),
    )
    for scope, place in names.items()
    for theirs, ours in ((f"{scope}/{old}", f"{place}.{new}") for old, new in endings.items())
}
"""Our names of the variables of a layer of the Evolved Transformer."""


def _split_evolved(variables: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Returns the weights of all layers by our names, and the variables of the rest."""
    ours = {name: renamed(name, _EVOLVED) for name in variables}
    own = {
        f"{one}#{transformer.place_of(name)[1]}": as_ours(name, variables[name])
        for name, one in ours.items()
        if one
    }
    return own, {name: value for name, value in variables.items() if not ours[name]}
