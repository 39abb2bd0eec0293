"""Inputs, a separator and targets in one row: what a decoder alone reads of an example.

tensor2tensor's `prepend_mode`; Liu et al. 2018, arXiv:1801.10198, section 4.2.1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.layers.masks import causal


def prepend(inputs: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """Puts each row's inputs before its targets, one zero vector between them.

    Row by row, so that no row depends on how long the inputs of others are: padding comes last.

    Args:
      inputs: embedded, [B, S, H].
      targets: embedded, [B, T, H].
      lengths: of the inputs, [B].

    Returns:
      [B, S + 1 + T, H].
    """
    size, width = inputs.size(1), inputs.size(1) + 1 + targets.size(1)
    both = torch.cat([inputs, inputs.new_zeros(len(inputs), 1, inputs.size(2)), targets], 1)
    places = torch.arange(width, device=inputs.device)
    after = places - lengths[:, None]  # [B, L], 0 at the separator
    index = torch.where(after < 0, places, size + after)
    index = torch.where(index < width, index, size)  # behind the targets: zeros, too
    return both.gather(1, index[..., None].expand(-1, -1, inputs.size(2)))


def at_targets(hidden: Tensor, lengths: Tensor, count: int) -> Tensor:
    """Returns the states of rows of `prepend` that foretell the targets.

    Args:
      hidden: of a decoder that read them one position later, [B, S + 1 + T, H].
      lengths: of the inputs, [B].
      count: T.

    Returns:
      [B, T, H].
    """
    index = lengths[:, None] + 1 + torch.arange(count, device=hidden.device)  # [B, T]
    return hidden.gather(1, index[..., None].expand(-1, -1, hidden.size(2)))


def full_over_inputs(lengths: Tensor, width: int) -> Tensor:
    """Returns an attention mask under which inputs see all inputs, and targets what is before them.

    Raffel et al. 2020, arXiv:1910.10683, section 3.2.1, "prefix LM".

    Args:
      lengths: of the inputs, [B]; a decoder reads them at positions 0 (the start) to their length.
      width: L.

    Returns:
      [B, 1, L, L] bool.
    """
    is_input = torch.arange(width, device=lengths.device) <= lengths[:, None]  # [B, L]
    return causal(width, lengths.device) | is_input[:, None, None, :]
