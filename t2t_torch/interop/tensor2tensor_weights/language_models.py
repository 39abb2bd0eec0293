"""Hyperparameters and weights of tensor2tensor's attention_lm(_moe) and transformer_memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import Array, transformer

# Of attention_lm_moe: values for which all layers are plain.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "attention_layers": ("",),
    "attention_local": (False,),
    "attention_type": ("multihead",),
    "diet_experts": (False,),
    "encoder_full_attention": (False,),
    "memory_efficient_ffn": (False,),
    "prepend_mode": ("none",),
    "use_inputs": (False,),
    "use_sepconv": (False,),
}
_MEMORY_MUST_BE: dict[str, tuple[Any, ...]] = {
    "memory_type": ("transformer_xl",),
    "unconditional": (True, False),
}
_CHUNKS = (
    "split_targets_chunk_length",
    "split_targets_max_chunks",
    "split_targets_strided_training",
    "recurrent_memory_batch_size",
)
_UNREAD = frozenset(
    """
    attention_block_length attention_exp_factor attention_exp_inputdim attention_kq_size
    attention_load_balance attention_moe_k attention_nonlinearity attention_num_experts
    attention_num_head attention_red_factor attention_reduction_type attention_split_batch
    attention_v_size lsh_num_hyperplanes lsh_use_map_fn moe_hidden_sizes moe_k moe_layers
    moe_loss_coef moe_num_experts
    """.split()
)
"""Hyperparameters that have no effect with those values."""
_NAMES = {
    r"^attention_lm_moe/layer_(\d+)/attention_multihead/decoder_self_attention/": (
        r"attention_lm/body/decoder/layer_\1/self_attention/multihead_attention/"
    ),
    r"^attention_lm_moe/layer_(\d+)/attention_multihead/": (
        r"attention_lm/body/decoder/layer_\1/self_attention/"
    ),
    r"^attention_lm_moe/layer_(\d+)/ffn/": r"attention_lm/body/decoder/layer_\1/ffn/",
    r"/ffn/conv_hidden_relu/conv([12])_single/": r"/ffn/conv\1/",
}


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`.  A chunk is a block of streams."""
    if model == "transformer_memory":
        read = {name: value for name, value in values.items() if name not in _CHUNKS}
        hparams = transformer.convert_hparams(model, read, {}, _MEMORY_MUST_BE)
        return hparams.replace(stream_length=int(values["split_targets_chunk_length"]))
    read = {name: value for name, value in values.items() if name not in _UNREAD}
    return transformer.convert_hparams(model, read, {}, _MUST_BE)


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    renamed = {}
    for name, value in variables.items():
        if "/recurrent_memory/" in name:
            continue
        for pattern, ours in _NAMES.items():
            name = re.sub(pattern, ours, name)
        is_convolution = value.ndim == 4  # of width 1
        renamed[name] = value[0, 0] if is_convolution else value
    return transformer.convert_weights(renamed)
