"""Where the ids of one text occur in another, and how much of a text that is.

Of sentences that share words this is decisive where there is little data: Yih et al. 2013, and
Severyn and Moschitti 2015, "Learning to Rank Short Text Pairs with Convolutional Deep Neural
Networks", who give their network the shares of common words, plain and weighted by idf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.features.meanings import meanings
from t2t_torch.text.encoder import NUM_RESERVED

_LARGEST_WEIGHT = 2.0  # of the last id of a vocabulary at the start; the first has about 0.2


def occurring(ids: Tensor, others: Tensor, skipped: Sequence[int] = ()) -> Tensor:
    """Returns where an id of one text is among those of another.  [B, S], [B, T] -> [B, S] bool.

    Args:
      ids: of the text; padding and EOS never occur.
      others: of the other text.
      skipped: more ids that never do, such as that of unknown words.
    """
    found = (ids[:, :, None] == others[:, None, :]).any(-1) & (ids >= NUM_RESERVED)
    for identity in skipped:
        found = found & (ids != identity)
    return found


class Matches(nn.Module):
    """Two numbers for each token: whether it occurs in the other text, and what that weighs.

    A weight is learnt for each id.  Learnt vocabularies have the frequent ids first, so weights
    start as the logarithm of the id: by Zipf's law that rises as the inverse document frequency.

    Args:
      features: the problem's; the texts share one vocabulary.
      texts: names of the inputs that are compared.

    Raises:
      HParamsError: the texts' vocabularies differ: an id means one thing here and another there.

    Attributes:
      size: numbers for a token.
      summary_size: numbers for two texts.
    """

    size = 2
    summary_size = 4

    def __init__(self, features: Features, texts: Sequence[str]) -> None:
        super().__init__()
        first, *others = texts
        for other in others:
            _check_one_vocabulary(features, first, other)
        vocab_size = features.inputs[first].vocab_size
        start = torch.arange(vocab_size).float().add(1).log() / math.log(vocab_size)
        self.weight = nn.Parameter(start.clamp(min=0.1) * _LARGEST_WEIGHT)
        inputs = [features.inputs[name] for name in texts]
        encoders = [its.encoder for its in inputs if isinstance(its, Text)]
        self._skipped = sorted({number for one in encoders for number in one.unknown_ids})

    def forward(self, ids: Tensor, others: Tensor) -> Tensor:
        """Returns the numbers of each token of `ids`.  [B, S], [B, T] -> [B, S, 2]."""
        found = occurring(ids, others, self._skipped).to(self.weight.dtype)
        return torch.stack([found, found * self._weights(ids)], -1)

    def summary(self, ids: Tensor, others: Tensor) -> Tensor:
        """Returns what part of each text occurs in the other, plain and weighted.  -> [B, 4]."""
        return torch.cat([self._shares(ids, others), self._shares(others, ids)], -1)

    def _shares(self, ids: Tensor, others: Tensor) -> Tensor:
        there = (ids >= NUM_RESERVED).to(self.weight.dtype)
        all_of = torch.stack([there, there * self._weights(ids)], -1).sum(1)  # [B, 2]
        return self(ids, others).sum(1) / all_of.clamp(min=1e-3)

    def _weights(self, ids: Tensor) -> Tensor:
        return self.weight.abs()[ids]


def _check_one_vocabulary(features: Features, first: str, other: str) -> None:
    """Raises HParamsError unless each id means the same in both texts."""
    one, another = features.inputs[first], features.inputs[other]
    assert isinstance(one, Text) and isinstance(another, Text)
    if one.encoder is another.encoder:
        return
    (_, ours), (_, theirs) = meanings(features, first), meanings(features, other)
    if ours == theirs:
        return
    fault = f"{first} has {len(ours)} ids, {other} has {len(theirs)}"
    if len(ours) == len(theirs):
        here, there = next(pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1])
        fault = f"{first} has {here!r} where {other} has {there!r}"
    raise HParamsError(
        f"match_feature=True compares ids, and the vocabularies differ: {fault}. Let the texts "
        "share one, or set --hparams=match_feature=False."
    )
