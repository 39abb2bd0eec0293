"""Inputs for which memory does not suffice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from t2t_torch.errors import DecodeError
from t2t_torch.train.backward import is_out_of_memory


@contextlib.contextmanager
def memory_errors(indices: Sequence[int], batch: Sequence[Sequence[int]]) -> Iterator[None]:
    """Names the inputs of a batch for which memory does not suffice.

    Args:
      indices: of the inputs.
      batch: their ids, the longest first.

    Raises:
      DecodeError: memory ran out in the body.
    """
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        number, tokens = indices[0] + 1, len(batch[0])
        told = str(error).strip().splitlines()[0]
        if len(batch) > 1:
            raise DecodeError(
                f"memory ran out over {len(batch)} inputs of at most {tokens:,} tokens (the "
                f"longest is number {number}): {told}. Decode fewer at a time: "
                f"--decode_hparams=batch_size={len(batch) // 2}"
            ) from None
        raise DecodeError(
            f"memory ran out over input {number} (line {number} of a file), which has {tokens:,} "
            f"tokens: {told}. Leave it out, divide it, or cut inputs: "
            "--decode_hparams=max_input_size=1000"
        ) from None
