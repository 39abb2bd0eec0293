"""Sentence encoder in three steps: tokens, contextual encoding, pooling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.features.feature import select_texts
from t2t_torch.features.text import meanings
from t2t_torch.hparam_groups import SentenceHParams
from t2t_torch.layers import pooling
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.pooling import masked_softmax
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.text.encoder import NUM_RESERVED


class Contexts(nn.Module):
    """Contextual token vectors: LSTM or convolution layers, or the token vectors themselves.

    Args:
      input_size: E.
      hparams: encoder, encoder_size, kernel_size, num_hidden_layers; dropout between layers.

    Attributes:
      size: output width.
    """

    def __init__(self, input_size: int, hparams: SentenceHParams) -> None:
        super().__init__()
        rate, layers = hparams.layer_prepostprocess_dropout, hparams.num_hidden_layers
        self._kind = hparams.encoder
        self.dropout = Dropout(rate)
        if hparams.encoder == "lstm":
            self.lstm = LSTM.both_ways(input_size, hparams.encoder_size, hparams)
            self.size = self.lstm.size if layers else input_size
        elif hparams.encoder == "cnn":
            sizes = [input_size, *[hparams.encoder_size] * layers]
            self.convolutions = nn.ModuleList(
                nn.Conv1d(before, after, hparams.kernel_size, padding="same")
                for before, after in itertools.pairwise(sizes)
            )
            self.size = sizes[-1]
        else:
            self.size = input_size

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the outputs, zeros at padding.  [B, S, E], [B, S] -> [B, S, H]."""
        there = mask[..., None].to(x.dtype)
        x = x * there
        if self._kind == "lstm":
            x = self.lstm(x, mask)
        if self._kind == "cnn":
            for number, convolution in enumerate(self.convolutions):
                x = self.dropout(x) if number else x
                x = convolution(x.transpose(1, 2)).relu().transpose(1, 2) * there
        return x


class Pool(nn.Module):
    """Pools a text into one vector.  [B, S, H], [B, S] -> [B, H].

    Args:
      size: H.
      hparams: sentence_pooling.
    """

    def __init__(self, size: int, hparams: SentenceHParams) -> None:
        super().__init__()
        self._kind = hparams.sentence_pooling
        if self._kind == "attention":
            self.weights: Callable[[Tensor, Tensor], Tensor] = SelfAttentive(size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the vectors; zeros for a text without tokens."""
        if self._kind == "attention":
            return self.weights(x, mask)
        return pooling.mean(x, mask) if self._kind == "mean" else pooling.maximum(x, mask)


class SelfAttentive(nn.Module):
    """Weighted mean of a text's vectors, with softmax weights from a linear map of each.

    Chen et al. 2017, arXiv:1704.00051, section 3.2, for questions.

    Args:
      size: H.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.score = nn.Linear(size, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the means, zeros if empty.  [B, S, H], [B, S] -> [B, H]."""
        weights = masked_softmax(self.score(x).squeeze(-1), mask).to(x.dtype)
        return (weights[..., None] * x).sum(1)


class Alignment(nn.Module):
    """Aligns each token of a text with the mean of another text's vectors, weighted by similarity.

    Parikh et al. 2016, arXiv:1606.01933, section 3.1, with the projection; without it, Chen et al.
    2017, arXiv:1609.06038.

    Args:
      size: H of the compared vectors.
      projected: width of a linear map and a ReLU before the comparison; 0 compares the vectors
        directly.
    """

    def __init__(self, size: int, projected: int = 0) -> None:
        super().__init__()
        self._scale = 1.0 if projected else size**-0.5
        if projected:
            self.project = nn.Linear(size, projected)

    def scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the similarity of each pair of vectors.  [B, S, H], [B, T, H] -> [B, S, T]."""
        if hasattr(self, "project"):
            x, y = self.project(x).relu(), self.project(y).relu()
        return torch.matmul(x, y.transpose(1, 2)) * self._scale

    def forward(self, scores: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """Returns the means; zeros if `y` is empty.

        Args:
          scores: [B, S, T].
          y: averaged vectors, [B, T, H].
          mask: True where `y` has data, [B, T] bool.

        Returns:
          [B, S, H].
        """
        return torch.matmul(masked_softmax(scores, mask[:, None]).to(y.dtype), y)


_LARGEST_WEIGHT = 2.0  # initial weight of the last id of a vocabulary; the first has about 0.2


def occurring(ids: Tensor, others: Tensor, skipped: Sequence[int] = ()) -> Tensor:
    """Returns which ids of one text occur in another.  [B, S], [B, T] -> [B, S] bool.

    Args:
      ids: ids of the text; padding and EOS never match.
      others: ids of the other text.
      skipped: further ids that never match, such as that of unknown words.
    """
    found = (ids[:, :, None] == others[:, None, :]).any(-1) & (ids >= NUM_RESERVED)
    for identity in skipped:
        found = found & (ids != identity)
    return found


class Matches(nn.Module):
    """Two values for each token: whether it occurs in the other text, and the match's weight.

    The weight of each id is learned.  Learned vocabularies are sorted by frequency, so weights are
    initialized with the logarithm of the id: by Zipf's law it grows like the inverse document
    frequency.

    For sentence pairs with shared words this is decisive with little data: Yih et al. 2013, and
    Severyn and Moschitti 2015, "Learning to Rank Short Text Pairs with Convolutional Deep Neural
    Networks", whose network also uses the fractions of shared words, plain and weighted by idf.

    Args:
      features: the problem's features; the texts share one vocabulary.
      texts: names of the compared inputs.

    Raises:
      HParamsError: the texts have different vocabularies, so their ids are not comparable.

    Attributes:
      size: number of values per token.
      summary_size: number of values per text pair.
    """

    size = 2
    summary_size = 4
    rows_by_id = ("weight",)

    def __init__(self, features: Features, texts: Sequence[str]) -> None:
        super().__init__()
        first, *others = texts
        for other in others:
            _check_one_vocabulary(features, first, other)
        vocab_size = features.inputs[first].vocab_size
        start = torch.arange(vocab_size).float().add(1).log() / math.log(vocab_size)
        self.weight = nn.Parameter(start.clamp(min=0.1) * _LARGEST_WEIGHT)
        inputs = select_texts({name: features.inputs[name] for name in texts})
        encoders = [its.encoder for its in inputs.values()]
        self._skipped = sorted({number for one in encoders for number in one.unknown_ids})

    def forward(self, ids: Tensor, others: Tensor) -> Tensor:
        """Returns the values of each token of `ids`.  [B, S], [B, T] -> [B, S, 2]."""
        found = occurring(ids, others, self._skipped).to(self.weight.dtype)
        return torch.stack([found, found * self._weights(ids)], -1)

    def summary(self, ids: Tensor, others: Tensor) -> Tensor:
        """Returns the fraction of each text found in the other, plain and weighted.  -> [B, 4]."""
        return torch.cat([self._shares(ids, others), self._shares(others, ids)], -1)

    def _shares(self, ids: Tensor, others: Tensor) -> Tensor:
        there = (ids >= NUM_RESERVED).to(self.weight.dtype)
        all_of = torch.stack([there, there * self._weights(ids)], -1).sum(1)  # [B, 2]
        return torch.div(self(ids, others).sum(1), all_of.clamp(min=1e-3))

    def _weights(self, ids: Tensor) -> Tensor:
        return self.weight.abs()[ids]


def _check_one_vocabulary(features: Features, first: str, other: str) -> None:
    """Raises HParamsError unless both texts have the same vocabulary."""
    inputs: Mapping[str, Any] = features.inputs
    one, another = inputs[first], inputs[other]
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
