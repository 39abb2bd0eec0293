"""Connectionist temporal classification: loss, greedy decoding and prefix beam search.

Graves et al. 2006, "Connectionist Temporal Classification".  The blank is the id of padding, 0; the
end of a text is not an output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.text.encoder import EOS, PAD

BLANK = PAD


def ctc_losses(logits: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
    """Returns the negative log-likelihood of each text; 0 if its ids do not fit into the frames.

    Between two equal ids a path has a blank.  torch 2.13's gradient of a text that does not fit is
    not finite, also if it is multiplied by zero: such texts are replaced by empty ones.

    Args:
      logits: [B, S, V].
      mask: valid frames, the first ones of each row, [B, S] bool.
      targets: [B, T] ids, with or without `EOS`, then padding.

    Returns:
      [B] float32.
    """
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)  # [S, B, V]
    ids, frames = target_ids(targets), mask.sum(1)
    lengths = ids.sum(1)
    repeated = (targets[:, 1:] == targets[:, :-1]) & ids[:, 1:]
    fits = lengths + repeated.sum(1) <= frames
    values = F.ctc_loss(
        log_probs, targets, frames, lengths * fits, BLANK, reduction="none", zero_infinity=True
    )
    return values.masked_fill(~fits, 0.0)


def target_ids(targets: Tensor) -> Tensor:
    """Returns the mask of the ids that CTC predicts: all but padding and `EOS`.  [B, T] bool."""
    return (targets != PAD) & (targets != EOS)


def collapsed(frames: Tensor) -> Tensor:
    """Returns the ids of a path without blanks and repetitions, then padding.  [B, S]."""
    before = F.pad(frames[:, :-1], (1, 0), value=BLANK)
    ids = torch.where(frames == before, BLANK, frames)
    order = (ids == BLANK).long().sort(dim=1, stable=True).indices
    return ids.gather(1, order)


# Prefix beam search.  Hannun et al. 2014, arXiv:1408.2873, algorithm 1, without a language model.


class Prefix(NamedTuple):
    """A hypothesis of the search, without `EOS`.

    Attributes:
      ids: its ids.
      log_prob: logarithm of the sum of the probabilities of its paths in the beam.
      score: `log_prob` divided by the length penalty.
    """

    ids: tuple[int, ...]
    log_prob: float
    score: float


_NEVER = -math.inf
_UNLIKELY = -12.0  # log-probability of an id of a frame below which it is not tried


def prefix_beam_search(
    log_probs: npt.NDArray[np.float32],
    beam_size: int,
    penalty: Callable[[int], float] = lambda length: 1.0,
) -> list[Prefix]:
    """Returns the best texts of an utterance, by score, at most `beam_size`.

    Args:
      log_probs: log-probabilities of each frame, [S, V], without padding.
      beam_size: number of prefixes that are kept after each frame.
      penalty: divisor of the log-probability of a text of so many ids.
    """
    # By prefix: log-probabilities of the paths that end in a blank, and of those that do not.
    beam: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, _NEVER)}
    for row in log_probs.tolist():
        best = sorted(range(len(row)), key=lambda i: -row[i])[: 2 * beam_size]
        tried = [i for i in best if i != BLANK and row[i] > _UNLIKELY]
        grown: dict[tuple[int, ...], list[float]] = {}
        for prefix, (blank, other) in beam.items():
            both = _sum(blank, other)
            stays = grown.setdefault(prefix, [_NEVER, _NEVER])
            stays[0] = _sum(stays[0], both + row[BLANK])
            if prefix:
                stays[1] = _sum(stays[1], other + row[prefix[-1]])
            for i in tried:
                # The same id twice needs a blank in between.
                before = blank if prefix and prefix[-1] == i else both
                longer = grown.setdefault((*prefix, i), [_NEVER, _NEVER])
                longer[1] = _sum(longer[1], before + row[i])
        kept = sorted(grown.items(), key=lambda one: (-_sum(*one[1]), one[0]))[:beam_size]
        beam = {prefix: (blank, other) for prefix, (blank, other) in kept}
    prefixes = [
        Prefix(ids, log_prob, log_prob / penalty(len(ids)))
        for ids, log_prob in ((ids, _sum(*parts)) for ids, parts in beam.items())
        if log_prob > _NEVER
    ]
    return sorted(prefixes, key=lambda one: (-one.score, one.ids))


def _sum(first: float, second: float) -> float:
    """Returns the logarithm of the sum of two probabilities, given their logarithms."""
    high, low = (first, second) if first > second else (second, first)
    return high if low == _NEVER else high + math.log1p(math.exp(low - high))
