"""Token vectors of a text, with the features of its words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.features import Features, Text, WordStarts
from t2t_torch.layers.dropout import Dropout, LockedDropout
from t2t_torch.layers.recurrent import LSTM, Memory, backward_places, turned
from t2t_torch.token_hparam import TokenHParams

# Positions of words among the ids of a text.


class WordPlaces:
    """Maps between the positions of a text's ids and its words.

    With one id per word, both are the same.

    Args:
      features: the problem's features.
    """

    def __init__(self, features: Features) -> None:
        self._starts = {
            note.of: name for name, note in features.notes.items() if isinstance(note, WordStarts)
        }

    def at_words(self, text: str, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Returns the vectors at the first ids of a text's words.  [B, S, H] -> [B, W, H]."""
        if text not in self._starts:
            return hidden
        starts = features[self._starts[text]]  # [B, W]
        return hidden.gather(1, starts[..., None].expand(-1, -1, hidden.size(-1)))

    def at_ids(self, text: str, words: Tensor, ids: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Places word vectors at the words' first ids, zeros elsewhere.

        Args:
          text: name of the text.
          words: [B, W, H].
          ids: vectors of the text's ids, [B, S, ...].
          features: result of `T2TModel.bottom`.

        Returns:
          [B, S, H].
        """
        if text not in self._starts:
            return words
        starts = features[self._starts[text]]  # [B, W]; padding adds zeros to position 0
        index = starts[..., None].expand_as(words)
        placed = words.new_zeros(*ids.shape[:2], words.size(-1))
        return placed.scatter_add(1, index, words)

    def mask(self, text: str, features: dict[str, Tensor]) -> Tensor:
        """Returns the mask of a text's words.  [B, W] bool."""
        if text not in self._starts:
            return features[f"{text}_mask"]
        starts = features[self._starts[text]]
        # Only the first word starts at 0, which is also the padding value.
        return (starts != 0) | (torch.arange(starts.size(1), device=starts.device) == 0)


class Tokens(nn.Module):
    """Concatenates a token's vector with those of its word's characters, shape and gazetteer.

    If a word has several ids, its word features are at the first.

    Args:
      features: the problem's features.
      hparams: the widths of the parts.
      text: the name of the input.

    Attributes:
      size: E, width of a token's vector.
      places: positions of the words.
    """

    def __init__(self, features: Features, hparams: TokenHParams, text: str) -> None:
        super().__init__()
        self._text = text
        self._parts = [name for name, its in features.inputs.items() if its.aligned_to == text]
        widths = [hparams.input_width(features.inputs[name]) for name in (text, *self._parts)]
        self.size = sum(widths)
        self.places = WordPlaces(features)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """Returns the vectors for a result of `T2TModel.bottom`, zeros at padding.  [B, S, E]."""
        own = features[self._text]
        parts = [
            self.places.at_ids(self._text, features[name], own, features) for name in self._parts
        ]
        x = torch.cat([own, *(part.to(own.dtype) for part in parts)], -1) if parts else own
        return x * features[f"{self._text}_mask"][..., None].to(x.dtype)


def texts_of(features: Features) -> list[str]:
    """Returns the names of the text inputs, in order."""
    return [name for name, its in features.inputs.items() if isinstance(its, Text)]


def dense_of(features: Features) -> list[str]:
    """Returns the names of example-level inputs, such as numbers."""
    return [
        name
        for name, its in features.inputs.items()
        if not isinstance(its, Text) and not its.aligned_to
    ]


# Example-level numeric inputs, appended to vectors of the example or its words.


def dense_width(features: Features, hparams: TokenHParams) -> int:
    """Returns the width added by `beside_dense`.

    Args:
      features: the problem's features.
      hparams: the widths of the parts.
    """
    return sum(hparams.input_width(features.inputs[name]) for name in dense_of(features))


def beside_dense(hidden: Tensor, names: Sequence[str], features: dict[str, Tensor]) -> Tensor:
    """Concatenates numeric inputs to each vector of an example.

    Args:
      hidden: [B, H] or [B, W, H].
      names: names of the inputs; see `dense_of`.
      features: result of `T2TModel.bottom`, [B, 1, width] for each name.

    Returns:
      [B, H'] or [B, W, H'].
    """
    if not names:
        return hidden
    parts = [features[name].to(hidden.dtype) for name in names]
    if hidden.dim() == 2:
        return torch.cat([hidden, *(part.squeeze(1) for part in parts)], -1)
    return torch.cat([hidden, *(part.expand(-1, hidden.size(1), -1) for part in parts)], -1)


# Outputs of word-level models.


class WordOutputs:
    """Provides each target with a vector per word and the word mask.

    Args:
      features: the problem's features.
      text: name of the input with the words.
      targets: names of the word-level targets; all by default.
    """

    def __init__(self, features: Features, text: str, targets: Iterable[str] | None = None) -> None:
        self._text = text
        self._targets = list(features.targets if targets is None else targets)
        self._dense = dense_of(features)
        self._places = WordPlaces(features)

    def at_words(self, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Returns the vectors at the first id of each word.  [B, S, H] -> [B, W, H].

        Args:
          hidden: a vector for each id.
          features: result of `T2TModel.bottom`.
        """
        return self._places.at_words(self._text, hidden, features)

    def __call__(self, words: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the result of `T2TModel.body`: [B, W, H'] and a mask, [B, W] bool, per target.

        Args:
          words: a vector for each word, [B, W, H]; numeric inputs are appended to it.
          features: result of `T2TModel.bottom`.
        """
        words = beside_dense(words, self._dense, features)
        there = self._places.mask(self._text, features)
        found: dict[str, Tensor] = {}
        for name in self._targets:
            found |= {name: words, f"{name}_mask": there}
        return found


# Bidirectional LSTM over the tokens of a sentence.


class TokenLSTM(nn.Module):
    """Tokens, bidirectional LSTM layers, dropout before and after them.

    Args:
      features: the problem's features.
      hparams: the widths of the tokens' parts, `hidden_size` of each direction, and the dropout
        rate, `layer_prepostprocess_dropout`.
      text: the name of the input.
      num_layers: number of stacked layers.
      locked: use the same dropout mask at all positions of a sentence (Gal and Ghahramani 2016,
        arXiv:1512.05287).

    Attributes:
      size: 2 H, output width.
      dropout: the dropout module before and after.
    """

    def __init__(
        self,
        features: Features,
        hparams: TokenHParams,
        text: str,
        *,
        num_layers: int,
        locked: bool,
    ) -> None:
        super().__init__()
        self._text = text
        rate = hparams.layer_prepostprocess_dropout
        self.tokens = Tokens(features, hparams, text)
        self.dropout = LockedDropout(rate) if locked else Dropout(rate)
        self.lstm = LSTM(
            self.tokens.size,
            hparams.hidden_size,
            num_layers,
            bidirectional=True,
            dropout=rate,
            locked=locked,
        )
        self.size = self.lstm.size

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """Returns a vector for each token, zeros at padding.  [B, S, 2 H].

        Args:
          features: result of `T2TModel.bottom`.
        """
        read = self.lstm(self.dropout(self.tokens(features)), features[f"{self._text}_mask"])
        hidden: Tensor = self.dropout(read)
        return hidden


# LSTM encoder of sequence-to-sequence models, reading from right to left.
#
# Sutskever et al. 2014, arXiv:1409.3215, section 3.3: this places the first output tokens close to
# the last tokens read.


class Encoded(NamedTuple):
    """Result of an encoder.

    Attributes:
      outputs: [B, S, H], in token order.
      mask: True where there are tokens, [B, S] bool.
      memory: state of each layer after the first token, which is read last.
    """

    outputs: Tensor
    mask: Tensor
    memory: Memory


class ReversedEncoder(nn.Module):
    """LSTM layers over the tokens of a text in reverse order.

    Args:
      features: the problem's features; reads its only text input.
      hparams: sizes.
      dropout: probability of zeroing an input unit of a layer.
    """

    def __init__(self, features: Features, hparams: TokenHParams, dropout: float) -> None:
        super().__init__()
        self.text = texts_of(features)[0]
        self.tokens = Tokens(features, hparams, self.text)
        self.dropout = Dropout(dropout)
        self.lstm = LSTM(
            self.tokens.size, hparams.hidden_size, hparams.num_hidden_layers, dropout=dropout
        )

    def forward(self, features: dict[str, Tensor]) -> Encoded:
        """Returns the encoding of the result of `T2TModel.bottom`."""
        mask = features[f"{self.text}_mask"]
        backward = backward_places(mask)
        x = self.dropout(turned(self.tokens(features), backward))
        outputs, memory = self.lstm.run(x, mask)
        return Encoded(turned(outputs, backward), mask, memory)
