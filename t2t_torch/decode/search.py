"""Beam search over a model's `step`.  Greedy search is a beam of one with one candidate.

The rules are tensor2tensor's (utils/beam_search.py), with one difference: a row whose result is
certain leaves the batch at once.  So a row's result depends on that row alone, and the work shrinks
with every row that ends.  docs/from_tensor2tensor.md says where that shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from t2t_torch.decode.beam import (
    Hypotheses,
    assemble,
    candidates_of,
    first_beam,
    force,
    grow,
    is_done,
)
from t2t_torch.model import State
from t2t_torch.text.encoder import EOS, PAD

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""(ids [rows] int64, state) -> (logits [rows, V], state): a model's `step`."""


def beam_search(
    step: Step,
    state: State,
    *,
    max_lengths: Tensor,
    beam_size: int,
    alpha: float = 0.0,
    stop_early: bool = True,
    candidates_per_beam: int = 2,
    prefix: Tensor | None = None,
    eos: int = EOS,
) -> Hypotheses:
    """Searches for the likeliest sequences.

    Args:
      step: one step of the model; at the first step every id is PAD.
      state: the model's state of B rows, one per input.
      max_lengths: [B] int64, the most ids of each row, end symbol and prefix included.
      beam_size: K, hypotheses kept per row.
      alpha: exponent of the length penalty; at least 0.
      stop_early: a row is done when its best hypothesis is certain; otherwise when all K are.
      candidates_per_beam: continuations looked at per place.  With 2, enough to keep K that go on
        whatever ends; with 1 and a beam of 1, the search is greedy.
      prefix: [B, P] int64, ids that each row must begin with, PAD after them.  They count as length
        and add nothing to the log-probability.
      eos: the id that ends a hypothesis, except inside a prefix.

    Returns:
      Hypotheses of the B rows, in their order.

    Raises:
      DecodeError: the model's logits are not numbers.
    """
    if prefix is None:
        prefix = max_lengths.new_zeros(max_lengths.size(0), 0)
    prefix_lengths = (prefix != PAD).sum(1)  # [B]
    length = int(prefix_lengths.min()) if prefix.numel() else 0  # what all rows are forced to
    beam = first_beam(max_lengths, prefix[:, :length], beam_size)
    state = state.expand(beam_size)
    for position in range(length):
        _, state = step(beam.alive_ids[:, :, position].flatten(), state)
    parents = torch.arange(beam_size, device=prefix.device).expand(len(prefix), -1)
    done_beams = []
    while True:
        done = is_done(beam, length, alpha, stop_early=stop_early)
        going = (~done).nonzero().flatten()  # the one wait for the device in a step
        if leaving := going.numel() < done.numel():
            done_beams.append(beam.select(done.nonzero().flatten()))
            beam = beam.select(going)
        if not going.numel():
            return assemble(done_beams, prefix_lengths)
        if leaving or beam_size > 1:
            index = going.unsqueeze(1) * beam_size + parents[going]  # [R', K]
            state = state.reorder(index.flatten())
        logits, state = step(beam.alive_ids[:, :, -1].flatten(), state)
        candidates = candidates_of(logits, beam, length, alpha, candidates_per_beam)
        grown, parents = grow(beam, candidates, eos)
        if length < prefix.size(1):
            grown, parents = force(beam, grown, parents, prefix[beam.rows, length])
        beam, length = grown, length + 1
