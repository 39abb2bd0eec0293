"""Hyperparameters and weights of tensor2tensor's transformer_memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from t2t_torch.hparam import HParams
from t2t_torch.interop.tensor2tensor_weights import Array, transformer

_MUST_BE: dict[str, tuple[Any, ...]] = {
    "memory_type": ("transformer_xl",),
    "unconditional": (True, False),
}
_CHUNKS = (
    "split_targets_chunk_length",
    "split_targets_max_chunks",
    "split_targets_strided_training",
    "recurrent_memory_batch_size",
)


def convert_hparams(
    model: str, values: Mapping[str, Any], variables: Mapping[str, Array]
) -> HParams:
    """See `tensor2tensor_weights.convert_hparams`.  A chunk is a block of streams."""
    read = {name: value for name, value in values.items() if name not in _CHUNKS}
    hparams = transformer.convert_hparams(model, read, {}, _MUST_BE)
    return hparams.replace(stream_length=int(values["split_targets_chunk_length"]))


def convert_weights(variables: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns all variables as weights by our names."""
    return transformer.convert_weights(
        {name: value for name, value in variables.items() if "/recurrent_memory/" not in name}
    )
