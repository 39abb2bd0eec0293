"""Linear-chain CRF: sums and maxima over all tag sequences, in time linear in their length.

Lafferty, McCallum and Pereira 2001, "Conditional random fields"; over an LSTM Huang et al. 2015,
arXiv:1508.01991, and Lample et al. 2016, arXiv:1603.01360.  Sums over sequences use float64, even
under autocast: a step is a product with the matrix of exp(transitions), and float32 loses terms
87 nats below the best.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.text.tags import TagRules

Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, Tensor]]
"""(carry, an entry of each sequence) -> (next carry, output)."""


def scan(step: Step, carried: Tensor, sequences: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Scans over sequences: a loop, or one operation of any length in an exported graph.

    Args:
      step: function of tensors only.
      carried: initial carry; its shape is constant.
      sequences: [N, ...] each, N at least 1.

    Returns:
      The final carry, and the stacked outputs, [N, ...].
    """
    if torch.compiler.is_exporting():
        from torch._higher_order_ops.scan import scan as operation

        def apart(carried: Tensor, entries: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            # The carry keeps its layout; outputs must not share memory with it.
            after, kept = step(carried, entries)
            return after.contiguous(), kept.clone()

        layout = torch.contiguous_format
        last, all_kept = operation(apart, carried.clone(memory_format=layout), sequences)
        return last, all_kept
    kept = []
    for entries in zip(*(each.unbind(0) for each in sequences), strict=True):
        carried, one = step(carried, entries)
        kept.append(one)
    return carried, torch.stack(kept)


NEVER = -1e9
"""Score of forbidden transitions: finite, to avoid NaN."""

_START_RANGE = 0.1  # range of initial scores; same as PyText's models/crf.py
_LEAST = torch.finfo(torch.float64).tiny


class Chain(NamedTuple):
    """Scores of tags and tag transitions.

    Attributes:
      start: score of each first tag, [C].
      follow: score of tag b (column) after tag a (row), [C, C].
      end: score of each last tag, [C].
    """

    start: Tensor
    follow: Tensor
    end: Tensor

    def plus(self, other: Chain) -> Chain:
        """Returns the sum of two chains."""
        return Chain(self.start + other.start, self.follow + other.follow, self.end + other.end)


class TagConstraints(nn.Module):
    """Transition constraints as a chain: 0 for allowed transitions, `NEVER` for forbidden ones.

    Args:
      rules: rules of the tags.
    """

    def __init__(self, rules: TagRules) -> None:
        super().__init__()
        for name, allowed in rules._asdict().items():
            scores = torch.where(torch.tensor(allowed), 0.0, NEVER)
            self.register_buffer(name, scores, persistent=False)

    def forward(self) -> Chain:
        """Returns the chain."""
        return Chain(self.starts, self.follows, self.ends)  # type: ignore[arg-type]


class CRF(nn.Module):
    """Learned scores of a chain.

    Args:
      size: C, number of tags.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.empty(size).uniform_(-_START_RANGE, _START_RANGE))
        self.follow = nn.Parameter(torch.empty(size, size).uniform_(-_START_RANGE, _START_RANGE))
        self.end = nn.Parameter(torch.empty(size).uniform_(-_START_RANGE, _START_RANGE))

    def forward(self) -> Chain:
        """Returns the chain."""
        return Chain(self.start, self.follow, self.end)


class Posterior(NamedTuple):
    """Tag probabilities over all sequences.

    Attributes:
      marginals: log-probability of each tag at each word, [B, W, C] float32; `NEVER` at padding.
      log_sum: see the function, [B] float64.
    """

    marginals: Tensor
    log_sum: Tensor


def negative_log_likelihood(
    emissions: Tensor, tags: Tensor, mask: Tensor, chain: Chain
) -> tuple[Tensor, Tensor]:
    """Returns the negative log-likelihood of the tags, in nats, marginalized over unknown tags.

    Args:
      emissions: score of each tag at each word, [B, W, C].
      tags: [B, W] integers, negative where the tag is unknown.
      mask: True where there are words, [B, W] bool, left-aligned.
      chain: transition scores.

    Returns:
      [B] float32, and [B] bool: whether the tags are allowed.  If the chain forbids all sequences
      that match them, or there is no word, that is False and the loss is 0.
    """
    known = tags >= 0
    every = log_sum(emissions, mask, chain)
    if bool((known | ~mask).all()):
        agreeing = score(emissions, tags, mask, chain)
    else:
        chosen = torch.zeros_like(emissions, dtype=torch.bool)
        chosen.scatter_(-1, tags.clamp(min=0)[..., None], True)
        others = known[..., None] & ~chosen
        agreeing = log_sum(emissions.masked_fill(others, NEVER), mask, chain)
    there = mask.any(1) & (agreeing > NEVER / 2)
    return torch.where(there, every - agreeing, 0.0).float(), there


def score(emissions: Tensor, tags: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """Returns the score of a sequence of tags.

    Args:
      emissions: [B, W, C].
      tags: [B, W] integers, non-negative where there are words.
      mask: True where there are words, [B, W] bool, left-aligned.
      chain: transition scores.

    Returns:
      [B] float64.
    """
    tags = tags.clamp(min=0)
    own = emissions.gather(-1, tags[..., None]).squeeze(-1).double()  # [B, W]
    follow = chain.follow[tags[:, :-1], tags[:, 1:]].double()  # [B, W - 1]
    last = tags.gather(1, (mask.sum(1) - 1).clamp(min=0)[:, None]).squeeze(1)
    ends = chain.start[tags[:, 0]].double() + chain.end[last].double()
    return (own * mask).sum(1) + (follow * mask[:, 1:]).sum(1) + ends


def log_sum(emissions: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """Returns the logarithm of the sum of exp(score) over all sequences.

    Args:
      emissions: [B, W, C].
      mask: True where there are words, [B, W] bool, left-aligned.
      chain: transition scores.

    Returns:
      [B] float64.
    """
    alpha = _forward(emissions, mask, chain)
    return (alpha + chain.end.double()).logsumexp(-1)


def posterior(emissions: Tensor, mask: Tensor, chain: Chain) -> Posterior:
    """Returns the probabilities of tags, computed by the forward-backward algorithm.

    Args:
      emissions: [B, W, C].
      mask: True where there are words, [B, W] bool, left-aligned.
      chain: transition scores.
    """
    scores, there = emissions.double().transpose(0, 1), mask.T[..., None]  # [W, B, C], [W, B, 1]
    follow = chain.follow.double().exp()
    # Forward and backward recursion in one loop.
    weights = torch.stack([follow, follow.T])  # [2, C, C]
    outside = torch.stack([chain.start, chain.end]).double()[:, None]  # [2, 1, C]

    def on(beyond: Tensor, here: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        own, there = here
        return torch.where(there, _sums(beyond + own, weights), outside), beyond

    both_ways = (torch.stack([scores, scores.flip(0)], 1), torch.stack([there, there.flip(0)], 1))
    _, beyond = scan(on, outside.expand_as(both_ways[0][0]), both_ways)  # [W, 2, B, C]
    both = (beyond[:, 0] + scores + beyond[:, 1].flip(0)).transpose(0, 1)
    sums = both.logsumexp(-1, keepdim=True)
    found = (both - sums).clamp(min=NEVER).float()
    return Posterior(found.masked_fill(~mask[..., None], NEVER), sums[:, 0, 0])


def best_tags(emissions: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """Returns the sequence with the highest score.  Viterbi 1967.

    Args:
      emissions: [B, W, C].
      mask: True where there are words, [B, W] bool, left-aligned.
      chain: transition scores.

    Returns:
      [B, W] int64; undefined at padding.
    """
    scores, follow = emissions.float(), chain.follow.float()
    came_from = follow.T.contiguous()

    def after(best: Tensor, following: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        own, there = following
        found = (best[:, :, None] + follow).amax(1)  # [B, C]
        return torch.where(there, found + own, best), best

    def before(tag: Tensor, here: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        best, there = here
        # Only the column of the chosen tag is needed, not the matrix.
        found = (best + came_from.index_select(0, tag)).argmax(-1)
        tag = torch.where(there, found, tag)
        return tag, tag

    following = _following(scores, mask)
    best, bests = scan(after, chain.start.float() + scores[:, 0], following)
    tag = (best + chain.end.float()).argmax(-1)  # [B]
    _, tags = scan(before, tag, (bests.flip(0), following[1].squeeze(-1).flip(0)))
    return tags.flip(0).T


def _forward(emissions: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """Returns log-sums over all prefixes of a sentence by their last tag, [B, C] float64."""
    weights, scores = chain.follow.double().exp(), emissions.double()

    def after(alpha: Tensor, following: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        own, there = following
        return torch.where(there, _sums(alpha, weights) + own, alpha), alpha

    first = chain.start.double() + scores[:, 0]
    last, _ = scan(after, first, _following(scores, mask))
    return last


def _following(scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the scores after each word, [W, B, C], and whether they exist, [W, B, 1].

    Nothing follows the last word, so there is a step even if sentences have one word.
    """
    nothing = torch.zeros_like(mask[:, :1])
    there = torch.cat([mask[:, 1:], nothing], 1)
    return scores.roll(-1, 1).transpose(0, 1), there.T[..., None]


def _sums(logs: Tensor, weights: Tensor) -> Tensor:
    """Returns log(exp(logs) @ weights), `NEVER` for log(0).  [B, C] float64, [C, C]."""
    top = logs.detach().amax(-1, keepdim=True)
    sums = (logs - top).exp() @ weights
    return torch.where(sums > 0, sums.clamp(min=_LEAST).log() + top, NEVER)
