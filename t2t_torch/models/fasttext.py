"""Text classifier: mean of the embeddings of words and n-grams.

Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification", arXiv:1607.01759.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Text
from t2t_torch.features.feature import find_alignments
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.fasttext import FasttextHParams
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.tokens import Tokens, beside_dense, dense_of, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model

_MODULUS = 2**31 - 1  # a prime; products of two numbers below it fit in 64 bits
_FACTOR = 116_049_371  # fastText's


@register_model
class Fasttext(T2TModel):
    """Mean of word embeddings and hashed n-gram embeddings."""

    HParams = FasttextHParams
    hparams: FasttextHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: FasttextHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = texts_of(features)
        self._dense = dense_of(features)
        self.tokens = Tokens(features, hparams, self._text)
        self.ngrams: NGrams | None = None
        if hparams.ngram_order > 1:
            self.ngrams = NGrams(self.tokens.size, hparams.ngram_order, hparams.ngram_buckets)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of a token embedding and of dense inputs."""
        (text,) = texts_of(features)
        of = {**find_alignments(features.inputs), text: text}
        parts = [its for name, its in features.inputs.items() if of.get(name) == text]
        return int(sum(map(hparams.input_width, parts)) + dense_width(features, hparams))

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the mean for each target, [B, H]."""
        ids, mask = features[self._text].values, features[self._text].mask
        words = self.tokens(features)  # [B, S, E]
        kept = self._kept(mask, ids)
        total = (words * kept[..., None].to(words.dtype)).sum(1)  # [B, E]
        count = kept.sum(1, keepdim=True)
        if self.ngrams is not None:
            rows = self.ngrams.rows(ids, mask)  # [B, N]
            rows = rows * self._kept(rows > 0, rows)
            total = total + self.ngrams(rows).to(total.dtype)
            count = count + (rows > 0).sum(1, keepdim=True)
        mean = self.dropout(total / count.clamp(min=1).to(total.dtype))
        found = beside_dense(mean, self._dense, features)
        return dict.fromkeys(self.features.targets, Hidden(found))

    def _kept(self, mask: Tensor, ids: Tensor) -> Tensor:
        """Returns the mask of ids in the mean.  [B, N] bool, [B, N] -> [B, N] bool."""
        if self.hparams.count_once:
            mask = mask & _is_first(ids)
        if self.training and self.hparams.bag_dropout:
            mask = mask & (torch.rand(mask.shape, device=mask.device) >= self.hparams.bag_dropout)
        return mask


class NGrams(nn.Module):
    """Hashed embedding table of n-grams, initialized with zeros; row 0 is padding.

    Args:
      size: E, width of an embedding.
      order: maximum n; n-grams from n = 2 on are used.
      buckets: number of rows, shared by hashing.
    """

    def __init__(self, size: int, order: int, buckets: int) -> None:
        super().__init__()
        self.order = order
        self.weight = nn.Parameter(torch.zeros(buckets + 1, size))

    def rows(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Returns the row of each n-gram of the ids, 0 at padding.

        Args:
          ids: ids of words, [B, S].
          mask: mask of data, [B, S] bool; padding is on the right.

        Returns:
          [B, N], first the bigrams, then the trigrams ...
        """
        if torch.compiler.is_exporting():  # a graph takes sizes such as S - 2 as they are
            ids, mask = (F.pad(one, (0, self.order - 1)) for one in (ids, mask))
        buckets = len(self.weight) - 1
        found = []
        hashes = ids
        for length in range(2, self.order + 1):
            last = ids[:, length - 1 :]
            hashes = (hashes[:, : last.size(1)] * _FACTOR + last + length) % _MODULUS
            rows = hashes % buckets + 1
            found.append(torch.where(mask[:, length - 1 :], rows, 0))
        return torch.cat(found, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Returns the sum of the embeddings of rows.  [B, N] -> [B, E]."""
        rows = F.pad(rows, (0, 1))  # a text of one word has no n-grams; a bag needs one entry
        return F.embedding_bag(rows, self.weight, mode="sum", padding_idx=0)


def _is_first(ids: Tensor) -> Tensor:
    """Returns the mask of first occurrences of ids in a row.  [B, N] -> [B, N] bool."""
    order = ids.argsort(dim=1, stable=True)
    ranked = ids.gather(1, order)
    new = F.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0), value=True)
    return torch.zeros_like(new).scatter(1, order, new)
