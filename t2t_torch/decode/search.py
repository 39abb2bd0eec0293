"""Beam search over a model's `step`.  Greedy search is a beam of one with one candidate.

The rules are tensor2tensor's (utils/beam_search.py), with one difference: a row whose result is
certain leaves the batch at once.  So a row's result depends on that row alone, and the work shrinks
with every row that ends.  docs/from_tensor2tensor.md says where that shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from t2t_torch.decode.beam import (
    Beam,
    Hypotheses,
    assemble,
    candidates_of,
    first_beam,
    force,
    grow,
    is_done,
)
from t2t_torch.decode.rules import Rules
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
    rules: Rules | None = None,
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
      eos: the id that ends a hypothesis, except inside a prefix; with rules it is `EOS`.
      rules: what is asked beyond that, made for this search; None: nothing is.

    Returns:
      Hypotheses of the B rows, in their order; DecodeError if the logits are not numbers.
    """
    if prefix is None:
        prefix = max_lengths.new_zeros(max_lengths.size(0), 0)
    prefix_lengths = (prefix != PAD).sum(1)  # [B]
    length = int(prefix_lengths.min()) if prefix.numel() else 0  # what all rows are forced to
    forced = prefix[:, :length]
    beam, state, step, places = _begin(step, state, max_lengths, forced, beam_size, rules)
    beam_size = beam.alive_ids.size(1)  # with groups, of each
    done_of, grow_by_one = _as_ruled(rules, eos)
    parents = torch.arange(beam_size, device=prefix.device).expand(len(beam.rows), -1)
    done_beams = []
    while True:
        done = done_of(beam, length, alpha, stop_early=stop_early)
        going = (~done).nonzero().flatten()  # the one wait for the device in a step
        if leaving := going.numel() < done.numel():
            done_beams.append(beam.select(done.nonzero().flatten()))
            beam = beam.select(going)
        if not going.numel():
            return assemble(done_beams, prefix_lengths, rules.united if rules else None)
        if leaving or places > 1:
            index = going.unsqueeze(1) * places + parents[going, :places]  # [R', K or 1]
            state = _reordered(state, index, rules)
        logits, state = step(beam.alive_ids[:, :places, -1].flatten(), state)
        if places < beam_size:
            logits, state, places = _spread(logits, state, beam_size, candidates_per_beam)
        grown, parents = grow_by_one(logits, beam, length, alpha, candidates_per_beam)
        if length < prefix.size(1):
            grown, parents = force(beam, grown, parents, prefix[beam.rows, length])
        beam, length = grown, length + 1


def _as_ruled(
    rules: Rules | None, eos: int
) -> tuple[Callable[..., Tensor], Callable[..., tuple[Beam, Tensor]]]:
    """Returns what tells which rows are done, and what lets a beam grow."""
    if rules is None:
        return is_done, functools.partial(_grow, eos=eos)
    return rules.done, rules.grow


def _begin(
    step: Step,
    state: Any,
    max_lengths: Tensor,
    prefix: Tensor,
    beam_size: int,
    rules: Rules | None,
) -> tuple[Beam, Any, Step, int]:
    """Returns the beam, the state and the step after what all rows are forced to, [B, P].

    The last value is the number of places of a row that the state is of: until hypotheses differ
    one stands for all; rules may tell them apart at once.
    """
    beam = first_beam(max_lengths, prefix, beam_size // (rules.groups if rules else 1))
    together = rules is None or not rules.tells_places_apart
    if rules is not None:
        state = state if together else state.expand(beam_size)
        beam, state, step = rules.begin(beam, state, step)
    read = beam.alive_ids[:, 0] if together else beam.alive_ids.flatten(0, 1)
    for position in range(prefix.size(1)):
        _, state = step(read[:, position], state)
    return beam, state, step, 1 if together else beam.alive_ids.size(1)


def _spread(
    logits: Tensor, state: Any, beam_size: int, candidates_per_beam: int
) -> tuple[Tensor, Any, int]:
    """Returns logits, state and places of a step after which the K hypotheses of a row differ.

    The logits stay those of one place, [R, V], where its ids alone are enough continuations.
    """
    if logits.size(-1) < candidates_per_beam * beam_size:
        logits = logits.repeat_interleave(beam_size, 0)
    return logits, state.expand(beam_size), beam_size


def _reordered(state: Any, index: Tensor, rules: Rules | None) -> Any:
    if rules is not None:
        rules.reorder(index)
    return state.reorder(index.flatten())


def _grow(
    logits: Tensor, beam: Beam, length: int, alpha: float, candidates_per_beam: int, *, eos: int
) -> tuple[Beam, Tensor]:
    return grow(beam, candidates_of(logits, beam, length, alpha, candidates_per_beam), eos)
