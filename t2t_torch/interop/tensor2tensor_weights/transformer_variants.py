"""Hyperparameters and weights of tensor2tensor's models that derive from its Transformer.

Language models (attention_lm, attention_lm_moe, transformer_memory), transformer_moe, the Evolved
Transformer and the Universal Transformers.  Variables are renamed to those of a Transformer, except
those that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import (
    Array,
    collect,
    is_training_state,
    renamed,
    tensors,
    transformer,
)

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
            if match[4] == "depthwise_kernel":  # [K, 1, E, 1] -> [E, 1, K]
                value = value[:, 0].transpose(1, 2, 0)
            elif match[4] == "pointwise_kernel":
                value = value[0, 0].T
            own[f"{layer}.{_SEPARABLE[match[4]]}"] = value
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
            array = value.T if rest.endswith("/kernel") else value
            if rest.endswith("_embedding"):  # [steps, 1, 1, H]
                array = value.reshape(len(value), -1)
            own[f"{side}_recurrence.{ours}"] = array
            continue
        rest = re.sub(r"^rec_layer_(\d+)/", r"layer_\1/", rest)
        if not rest.startswith("layer_"):  # gru and lstm have no layer in the name
            rest = f"layer_0/{rest}"
        plain[f"{match[1]}{side}/{rest}"] = value
    return own, plain


# Our sublayer, attention and second norm by tensor2tensor's scope, of encoder and decoder.
_SCOPES = {
    "gated_linear_unit": ("unit", "", ""),
    "conv_branches": ("conv", "", "conv_between"),
    "self_attention": ("attention", "attention", ""),
    "dense_layers": ("dense", "", "dense_between"),
    "16_head_self_attention": ("first", "first_attention", ""),
    "first_attend_to_encoder": ("", "first_memory", ""),
    "second_attend_to_encoder": ("memory", "second_memory", ""),
}
_LINEARS = {
    "gated_linear_unit/dense": "unit_values",
    "gated_linear_unit/dense_1": "unit_gates",
    "conv_branches/dense": "conv_left",
    "conv_branches/standard_conv_3x1": "conv_right",
    "conv_branches/separable_conv_9x1": "conv_final",
    "conv_branches/separable_conv11x1": "conv_left",
    "conv_branches/separable_conv_7x1_1": "conv_right",
    "conv_branches/separable_conv_7x1_2": "conv_final",
    "dense_layers/dense": "dense_inner",
    "dense_layers/dense_1": "dense_outer",
}


def _split_evolved(variables: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Returns the weights of all layers by our names, and the variables of the rest."""
    matches = {name: _OF_LAYER.search(name) for name in variables if not is_training_state(name)}

    def weights_of(name: str, value: Array) -> Iterator[tuple[str, Array]]:
        side, number, scope, inside = own[name].groups()
        if found := re.fullmatch(r"multihead_attention/(q|k|v|output_transform)/kernel", inside):
            place = _SCOPES[scope][1]
            part = _PARTS[place.endswith("_memory")][found[1]]
            yield f"{side}.{number}.{place}.{part}", value.T
        elif (one := _evolved_weight(scope, inside, value)) is not None:
            yield f"{side}.{number}.{one[0]}", one[1]

    own = {name: match for name, match in matches.items() if match}
    plain = {name: value for name, value in variables.items() if name not in own}
    layers = {name: variables[name] for name in own}
    return collect(layers, weights_of, "an Evolved Transformer"), plain


_OF_LAYER = re.compile(r"body/(encoder|decoder)/layer_(\d+)/(\w+)/(.+)$")


_SELF = {part: f"query_key_value.weight#{number}" for number, part in enumerate("qkv")}
_MEMORY = {"q": "query.weight", "k": "key_value.weight#0", "v": "key_value.weight#1"}
_PARTS = [{**parts, "output_transform": "output.weight"} for parts in (_SELF, _MEMORY)]
"""Our names of the maps of attention: to the layer itself, and to the encoder's output."""


def _evolved_weight(scope: str, inside: str, value: Array) -> tuple[str, Array] | None:
    """Returns our name in a layer and the weight of a variable outside of attention."""
    norm = re.fullmatch(r"layer_prepostprocess(_1)?/layer_norm/layer_norm_(scale|bias)", inside)
    if norm:
        before, _, between = _SCOPES[scope]
        place = between if norm[1] else f"{before}_before"
        return f"{place}.norm.{'weight' if norm[2] == 'scale' else 'bias'}", value
    module, _, kind = inside.rpartition("/")
    ours = _LINEARS.get(f"{scope}/{module}")
    if ours is None:
        return None
    if kind == "depthwise_kernel":  # [K, E, 1] -> [E, 1, K]
        return f"{ours}.depthwise.weight", value.transpose(1, 2, 0)
    if kind == "pointwise_kernel":
        return f"{ours}.pointwise.weight", value[0].T
    if kind == "bias":
        is_separable = module.startswith("separable")
        return f"{ours}.{'pointwise.' if is_separable else ''}bias", value
    return f"{ours}.weight", value.transpose(2, 1, 0) if value.ndim == 3 else value.T
