"""Perplexity and bits per character of language models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from t2t_torch.features import Feature, PixelSequence, Text
from t2t_torch.metrics.metric import WITH_IDS, Metric, counted, quotient, sums_of
from t2t_torch.metrics.sequence import neg_log_perplexity
from t2t_torch.registry import register_metric
from t2t_torch.text.encoder import EOS

_LARGEST = 700.0  # nats; the exponential of more overflows


@register_metric("perplexity")
class Perplexity(Metric):
    """Exponential of the mean loss per token, including EOS; for classes, per example."""

    lower_is_better = True
    of: ClassVar[tuple[type[Feature], ...]] = WITH_IDS

    def update(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the log-likelihood and the units."""
        value, tokens = neg_log_perplexity(logits, targets, counted(self.feature, targets))
        return sums_of(value, self.units(targets, tokens))

    def units(self, targets: Tensor, tokens: Tensor) -> Tensor:
        """Returns the number of units that the loss is divided by, []: the tokens.

        Args:
          targets: as in the batch.
          tokens: their number.
        """
        return tokens

    def result(self, sums: Tensor) -> float:
        """Returns the perplexity."""
        return math.exp(min(-quotient(sums), _LARGEST))


@register_metric("word_perplexity")
class WordPerplexity(Perplexity):
    """Perplexity per word, comparable between vocabularies.

    Words are separated by spaces and line breaks; the end of a line or text counts as another word,
    as in the word-level Penn Treebank.  See `TextEncoder.words_of_ids`.
    """

    of = (Text,)

    def __init__(self, feature: Text) -> None:
        super().__init__(feature)
        self._words = torch.tensor(feature.encoder.words_of_ids(), dtype=torch.float64)

    def units(self, targets: Tensor, tokens: Tensor) -> Tensor:
        """Returns the number of words."""
        return self._words[targets.cpu()].sum().to(tokens.device)


@register_metric("bits_per_byte")
class BitsPerByte(Perplexity):
    """Loss in bits per UTF-8 byte of the text, comparable between vocabularies.

    The bytes are those of the decoded ids; the end of a text adds to the loss but not to the bytes.
    """

    of = (Text,)

    def units(self, targets: Tensor, tokens: Tensor) -> Tensor:
        """Returns the number of bytes."""
        return tokens.new_tensor(sum(map(self._size, self._texts(targets))))

    def result(self, sums: Tensor) -> float:
        """Returns the bits; 0 without text."""
        return -quotient(sums) / math.log(2)

    def _texts(self, targets: Tensor) -> Iterator[str]:
        """Yields the texts of a batch: a stream row may contain several, each with its end."""
        for row in targets.tolist():
            rest = row
            while rest:
                ends = rest.index(EOS) + 1 if EOS in rest else len(rest)
                read = self.feature.decode(rest[:ends])
                yield read if isinstance(read, str) else " ".join(read)
                rest = rest[ends:]

    def _size(self, text: str) -> int:
        return len(text.encode("utf-8", "replace"))


@register_metric("bits_per_character")
class BitsPerCharacter(BitsPerByte):
    """Loss in bits per Unicode character; Graves 2013, arXiv:1308.0850."""

    def _size(self, text: str) -> int:
        return len(text)


@register_metric("bits_per_dim")
class BitsPerDim(BitsPerByte):
    """Loss in bits per value of a picture, the usual measure of its generation."""

    of = (PixelSequence,)

    def units(self, targets: Tensor, tokens: Tensor) -> Tensor:
        """Returns the number of values; the end of a picture is certain."""
        return (targets > EOS).sum()
