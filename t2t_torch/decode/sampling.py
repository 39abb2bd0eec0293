"""Outputs drawn at random, id by id, from what a model's `step` finds.

Temperature and `sampling_keep_top_k` are tensor2tensor's; `top_p` is nucleus sampling, Holtzman et
al. 2020, arXiv:1904.09751; `typical_p` is typical sampling, Meister et al. 2022, arXiv:2202.00666.
A draw depends on the seed, its input and its number alone: each has
random numbers of its own, made of these by a hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.decode.bans import Written
from t2t_torch.decode.beam import Hypotheses
from t2t_torch.decode.rules import Rules
from t2t_torch.decode.search import Step
from t2t_torch.errors import DecodeError
from t2t_torch.pipeline.plan import uniform
from t2t_torch.text.encoder import EOS, PAD


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Which ids may be drawn, and how often.

    Attributes:
      temperature: what logits are divided by; below 1 likely ids become likelier.
      top_k: only so many of the likeliest; 0 or less: all.
      top_p: of those the likeliest that together reach this probability; 1: all.
      typical_p: of those the ones whose surprise (nats) is closest to the mean, as many as together
        reach this probability; 1: all.  Meister et al. 2022, arXiv:2202.00666.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0

    def kept(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ids, likeliest first, and their probabilities: 0 of those that are left out.

        [R, V] -> [R, V] each, the probabilities float64.
        """
        logits = logits.double() / self.temperature
        logits[:, PAD] = -torch.inf
        sorted_logits, ids = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = sorted_logits.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        left_out = before >= self.top_p  # never the first: nothing is before it
        if self.top_k > 0:
            left_out[:, self.top_k :] = True
        probabilities = probabilities.masked_fill(left_out, 0.0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        if self.typical_p < 1:
            probabilities = probabilities.masked_fill(self._untypical(probabilities), 0.0)
            probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        return ids, probabilities

    def _untypical(self, probabilities: Tensor) -> Tensor:
        """Returns what `typical_p` leaves out, [R, V] bool; never the most typical."""
        surprise = -probabilities.clamp(min=1e-300).log()
        mean = (probabilities * surprise).sum(-1, keepdim=True)
        unlike = (surprise - mean).abs().masked_fill(probabilities == 0, torch.inf)
        order = unlike.sort(dim=-1, stable=True).indices
        ordered = probabilities.gather(-1, order)
        left_out = ordered.cumsum(-1) - ordered >= self.typical_p
        return torch.empty_like(left_out).scatter_(-1, order, left_out)

    def draw(self, logits: Tensor, numbers: Tensor) -> Tensor:
        """Returns an id for each row: where its number, from 0 on below 1, falls among them.

        [R, V] and [R] -> [R].
        """
        ids, probabilities = self.kept(logits)
        ends = probabilities.cumsum(-1)
        place = (ends <= numbers[:, None]).sum(-1)
        places = torch.arange(ids.size(-1), device=ids.device)
        last = ((probabilities > 0) * places).amax(-1)  # the sum of all may be a little below 1
        return ids.gather(1, torch.minimum(place, last)[:, None]).squeeze(1)


def numbers_of(
    seed: int, inputs: Sequence[Sequence[int]], draws: int, length: int, device: torch.device
) -> Tensor:
    """Returns the random numbers of each draw of each input, side by side.

    Args:
      seed: of all.
      inputs: ids.
      draws: of each input.
      length: ids of an output at most.
      device: where they are needed.

    Returns:
      [inputs * draws, length] float64, from 0 on below 1.
    """
    rows = []
    for ids in inputs:
        for draw in range(draws):
            told = f"{seed} {draw} {' '.join(map(str, ids))}".encode()
            key = int.from_bytes(hashlib.sha256(told).digest()[:16], "little")
            rows.append(uniform(np.random.Philox(key=key).random_raw(length)))
    return torch.from_numpy(np.stack(rows)).to(device)


def sample(
    step: Step,
    state: Any,
    *,
    max_lengths: Tensor,
    numbers: Tensor,
    sampler: Sampler,
    prefix: Tensor | None = None,
    eos: int = EOS,
    rules: Rules | None = None,
) -> Hypotheses:
    """Draws a continuation of each row.  A row that ends leaves the batch.

    Args:
      step: one step of the model; the first id is PAD.
      state: the model's state of R rows.
      max_lengths: [R] int64, the most ids of each row, end symbol and prefix included.
      numbers: [R, L], what the ids after the prefix are drawn with.
      sampler: how.
      prefix: [R, P] int64, ids that each row begins with, PAD after them.
      eos: the id that ends a row, except inside its prefix; with rules it is `EOS`.
      rules: what may not be drawn.

    Returns:
      One hypothesis of each row, without its prefix; the score is the sum of the model's own
      log-probabilities (nats) of what was drawn.

    Raises:
      DecodeError: the model's logits are not numbers.
    """
    if prefix is None or not prefix.numel():
        prefix = max_lengths.new_zeros(len(max_lengths), 1)
    given = (prefix != PAD).sum(1)  # [R]
    longest = int(max_lengths.max())
    drawn = max_lengths.new_zeros(len(max_lengths), max(longest, 1))
    scores = torch.zeros(len(max_lengths), dtype=torch.float64, device=max_lengths.device)
    rows = (max_lengths > 0).nonzero().flatten()
    state = state.expand(1).reorder(rows)
    last, written = torch.full_like(rows, PAD), torch.zeros_like(drawn)
    for position in range(longest):
        logits, state = step(last, state)
        if bool(logits.isnan().any()):
            raise DecodeError("the model's logits are not numbers: decode an earlier checkpoint.")
        inside = position < given[rows]
        place = (position - given[rows]).clamp(min=0)
        limited = _allowed(logits, rules, written, rows, position)
        ids = sampler.draw(limited, numbers[rows, place])
        ids = torch.where(inside, prefix[rows, min(position, prefix.size(1) - 1)], ids)
        found = logits.double().log_softmax(-1).gather(1, ids[:, None]).squeeze(1)
        written[rows, position] = ids
        scores[rows] += torch.where(inside, 0.0, found)
        drawn[rows, place] = torch.where(inside, PAD, ids)
        ended = (~inside & (ids == eos)) | (position + 1 >= max_lengths[rows])
        going = (~ended).nonzero().flatten()
        if not len(going):
            break
        if len(going) < len(rows):
            rows, ids, state = rows[going], ids[going], state.reorder(going)
        last = ids
    return Hypotheses(drawn[:, None], scores.float()[:, None])


def _allowed(
    logits: Tensor, rules: Rules | None, written: Tensor, rows: Tensor, position: int
) -> Tensor:
    """The logits of R rows with minus infinity where an id may not follow.  written [B, L]."""
    if rules is None:
        return logits
    allowed = logits.double()  # a copy
    rules.forbid(allowed, Written(written[rows, :position], rows))
    return allowed
