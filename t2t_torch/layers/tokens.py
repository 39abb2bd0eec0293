"""Inputs and outputs of a model's body, and vectors of a text's tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.features.feature import find_alignments, select_texts
from t2t_torch.hparam_groups import TokenHParams
from t2t_torch.layers.dropout import Dropout, LockedDropout
from t2t_torch.layers.pooling import never_empty
from t2t_torch.layers.recurrent import LSTM, Memory, backward_places, turned


@dataclass(frozen=True)
class ModelInput:
    """One feature of a batch, as `T2TModel.body` reads it.

    Attributes:
      values: from the batch: ids [B, S] of a text, classes [B], numbers [B, size].
      embedded: the output of the feature's bottom, [B, S, H]; the values of a target or a note
        that has no bottom.
      mask: True where there is data, [B, S] bool; [B, 1] if the feature has no positions.
      segments: of packed examples, the number of the example at each position, from 1, [B, S].
      positions: of packed examples, the position within the example, [B, S].
      before: of streams, the id before the first one of each row, [B].
      streams: of streams, the number of each row's stream, [B].
      blocks: of streams, how many blocks of its stream come before each row, [B].
    """

    values: Tensor
    embedded: Tensor
    mask: Tensor
    segments: Tensor | None = None
    positions: Tensor | None = None
    before: Tensor | None = None
    streams: Tensor | None = None
    blocks: Tensor | None = None


ModelInputs = Mapping[str, ModelInput]
"""The argument of `T2TModel.body`: each feature of the batch, by name."""


class Prepended(NamedTuple):
    """Positions before a target that are trained like those of the target.

    Attributes:
      states: that predict the ids, [B, P, H].
      ids: [B, P], 0 at padding.
    """

    states: Tensor
    ids: Tensor


@dataclass(frozen=True)
class Hidden:
    """The output of `T2TModel.body` for one target.

    Attributes:
      states: the input of the target's `top`: [B, T, H] of a text, [B, H] of a class, [B, W, H] of
        tags.
      mask: where logits are not minus infinity: [B, T] bool, or [B, T, V] by id; None is
        everywhere.
      penalty: added to the training loss: [B] to that of each item of an example, so that it has
        the example's weight; [] to the sum.
      prepended: more positions to train.
    """

    states: Tensor
    mask: Tensor | None = None
    penalty: Tensor | None = None
    prepended: Prepended | None = None


class PenalizedLayer(nn.Module):
    """Base class of layers that add to the training loss; `take_penalties` collects.

    Attributes:
      penalty: of the last pass in TRAIN, added to the loss of each item of an example, [B]; None
        if there is none.
    """

    penalty: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.penalty = None


def take_penalties(model: nn.Module) -> Tensor | None:
    """Returns the sum of the penalties of all layers of a model, [B], and removes them.

    For `Hidden.penalty`; a body calls it once, at its end.
    """
    total = None
    for layer in model.modules():
        if isinstance(layer, PenalizedLayer) and layer.penalty is not None:
            total = layer.penalty if total is None else total + layer.penalty
            layer.penalty = None
    return total


class WordPlaces:
    """Goes from the positions of a text's ids to its words and back.

    Where each word has one id, the two are the same.

    Args:
      features: the problem's.
    """

    def __init__(self, features: Features) -> None:
        self._starts = features.word_starts

    def at_words(self, text: str, hidden: Tensor, features: ModelInputs) -> Tensor:
        """Returns the vectors at the first ids of a text's words.  [B, S, H] -> [B, W, H]."""
        if text not in self._starts:
            return hidden
        starts = features[self._starts[text]].values  # [B, W]
        return hidden.gather(1, starts[..., None].expand(-1, -1, hidden.size(-1)))

    def at_ids(self, text: str, words: Tensor, ids: Tensor, features: ModelInputs) -> Tensor:
        """Puts vectors of words at the words' first ids, zeros elsewhere.

        Args:
          text: whose words.
          words: [B, W, H].
          ids: the text's own vectors, [B, S, ...].
          features: the output of `T2TModel.bottom`.

        Returns:
          [B, S, H].
        """
        if text not in self._starts:
            return words
        starts = features[
            self._starts[text]
        ].values  # [B, W]; what fills up adds zeros to position 0
        index = starts[..., None].expand_as(words)
        return words.new_zeros(*ids.shape[:2], words.size(-1)).scatter_add(1, index, words)

    def mask(self, text: str, features: ModelInputs) -> Tensor:
        """Returns where a text has words.  [B, W] bool."""
        if text not in self._starts:
            return features[text].mask
        starts = features[self._starts[text]].values
        # Only the first word starts at 0, which is also what fills up.
        return (starts != 0) | (torch.arange(starts.size(1), device=starts.device) == 0)


class Tokens(nn.Module):
    """Concatenates a token's own vector with those of its word's characters, shape, entries.

    Where a word has several ids, what is known of it stands at the first.

    Args:
      features: the problem's.
      hparams: the widths of the parts.
      text: the name of the input.

    Attributes:
      size: E, of a token's vector.
      places: where the words stand.
    """

    def __init__(self, features: Features, hparams: TokenHParams, text: str) -> None:
        super().__init__()
        self._text = text
        self._parts = [name for name, of in find_alignments(features.inputs).items() if of == text]
        widths = [hparams.input_width(features.inputs[name]) for name in (text, *self._parts)]
        self.size = sum(widths)
        self.places = WordPlaces(features)

    def forward(self, features: ModelInputs) -> Tensor:
        """Returns the vectors of the output of `T2TModel.bottom`, zeros at padding.  [B, S, E]."""
        own = features[self._text].embedded
        parts = [
            self.places.at_ids(self._text, features[name].embedded, own, features)
            for name in self._parts
        ]
        x = torch.cat([own, *(part.to(own.dtype) for part in parts)], -1) if parts else own
        return x * features[self._text].mask[..., None].to(x.dtype)


def texts_of(features: Features) -> list[str]:
    """Returns the names of the inputs that are texts, in their order."""
    return list(select_texts(features.inputs))


def dense_of(features: Features) -> list[str]:
    """Returns the names of the inputs that are of a whole example, such as numbers."""
    parts = {**select_texts(features.inputs), **find_alignments(features.inputs)}
    return [name for name in features.inputs if name not in parts]


def dense_width(features: Features, hparams: TokenHParams) -> int:
    """Returns the width of what `beside_dense` adds.

    Args:
      features: of the problem.
      hparams: the widths of the parts.
    """
    return sum(hparams.input_width(features.inputs[name]) for name in dense_of(features))


def beside_dense(hidden: Tensor, names: Sequence[str], features: ModelInputs) -> Tensor:
    """Concatenates the vectors of numbers to each of an example's.

    Args:
      hidden: [B, H] or [B, W, H].
      names: of the inputs; see `dense_of`.
      features: the output of `T2TModel.bottom`, [B, 1, width] of each name.

    Returns:
      [B, H'] or [B, W, H'].
    """
    if not names:
        return hidden
    parts = [features[name].embedded.to(hidden.dtype) for name in names]
    if hidden.dim() == 2:
        return torch.cat([hidden, *(part.squeeze(1) for part in parts)], -1)
    return torch.cat([hidden, *(part.expand(-1, hidden.size(1), -1) for part in parts)], -1)


class WordOutputs:
    """Gives each target a vector of every word, and marks the positions of words.

    Args:
      features: the problem's.
      text: the name of the input whose words they are.
      targets: the names of the targets that are of words; all if not given.
    """

    def __init__(self, features: Features, text: str, targets: Iterable[str] | None = None) -> None:
        self._text = text
        self._targets = list(features.targets if targets is None else targets)
        self._dense = dense_of(features)
        self._places = WordPlaces(features)

    def at_words(self, hidden: Tensor, features: ModelInputs) -> Tensor:
        """Returns what stands at the first id of each word.  [B, S, H] -> [B, W, H].

        Args:
          hidden: a vector of each id.
          features: the output of `T2TModel.bottom`.
        """
        return self._places.at_words(self._text, hidden, features)

    def __call__(self, words: Tensor, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the output of `T2TModel.body`: [B, W, H'], with a mask, of each target.

        Args:
          words: a vector of each word, [B, W, H]; the example's numbers are put beside it.
          features: the output of `T2TModel.bottom`.
        """
        words = beside_dense(words, self._dense, features)
        return dict.fromkeys(self._targets, Hidden(words, self._places.mask(self._text, features)))


class TokenLSTM(nn.Module):
    """Tokens, layers of LSTM in both directions, dropout before and behind them.

    Args:
      features: the problem's.
      hparams: the widths of the tokens' parts, `hidden_size` of each direction,
        `num_hidden_layers`, the rate of dropout, `layer_prepostprocess_dropout`, and whether all
        positions of a sentence lose the same units, `locked_dropout` (Gal and Ghahramani 2016,
        arXiv:1512.05287).
      text: the name of the input.

    Attributes:
      size: 2 H, of what a token gets.
      dropout: the one before and behind.
    """

    def __init__(self, features: Features, hparams: Any, text: str) -> None:
        super().__init__()
        self._text = text
        rate, locked = hparams.layer_prepostprocess_dropout, hparams.locked_dropout
        self.tokens = Tokens(features, hparams, text)
        self.dropout: Callable[[Tensor], Tensor] = LockedDropout(rate) if locked else Dropout(rate)
        self.lstm = LSTM.both_ways(self.tokens.size, hparams.hidden_size, hparams, locked=locked)
        self.size = self.lstm.size

    def forward(self, features: ModelInputs) -> Tensor:
        """Returns a vector of each token, zeros at padding.  [B, S, 2 H].

        Args:
          features: the output of `T2TModel.bottom`.
        """
        read = self.lstm(self.dropout(self.tokens(features)), features[self._text].mask)
        return self.dropout(read)


class EncoderOutput(NamedTuple):
    """Output of an encoder.

    Attributes:
      outputs: [B, S, H], each at the place of its token.
      mask: where there are tokens, [B, S] bool.
      memory: of each layer after the first token, which is read last.
    """

    outputs: Tensor
    mask: Tensor
    memory: Memory


class SequenceLSTMEncoder(nn.Module):
    """Layers of LSTM over the tokens of a text, the last one first, or in both directions.

    Sutskever et al. 2014, arXiv:1409.3215, section 3.3: what is written first is then near to what
    was read last.

    Args:
      features: the problem's; its one input that is a text is read.
      hparams: sizes.
      dropout: probability of zeroing a unit that a layer reads.
      bidirectional: True for two directions, each with half of the units.
      backward: False to read the first token first, with one direction.

    Raises:
      HParamsError: hidden_size cannot be halved.
    """

    def __init__(
        self,
        features: Features,
        hparams: TokenHParams,
        dropout: float,
        *,
        bidirectional: bool = False,
        backward: bool = True,
    ) -> None:
        super().__init__()
        self.text = texts_of(features)[0]
        self.tokens = Tokens(features, hparams, self.text)
        self.dropout = Dropout(dropout)
        self.backward = backward and not bidirectional
        if bidirectional and hparams.hidden_size % 2:
            raise HParamsError(
                f"hidden_size={hparams.hidden_size} cannot be halved for the two directions of a "
                "bidirectional encoder. Set an even number."
            )
        self.lstm = LSTM(
            self.tokens.size,
            hparams.hidden_size // 2 if bidirectional else hparams.hidden_size,
            hparams.num_hidden_layers,
            bidirectional=bidirectional,
            dropout=dropout,
        )

    def forward(self, features: ModelInputs) -> EncoderOutput:
        """Reads the output of `T2TModel.bottom`."""
        mask = features[self.text].mask
        read = never_empty(mask)
        backward = backward_places(read) if self.backward else None
        outputs, memory = self.lstm.run(self.dropout(turned(self.tokens(features), backward)), read)
        return EncoderOutput(turned(outputs, backward), mask, memory)


class TwoWayLSTMEncoder(nn.Module):
    """Two stacks of LSTM, one for each direction, whose outputs and states are concatenated.

    Unlike in a bidirectional `SequenceLSTMEncoder` a layer reads its own direction only.

    Args:
      features: the problem's; its one input that is a text is read.
      hparams: sizes; each direction has `hidden_size` units.
      dropout: probability of zeroing a unit that a layer reads.
    """

    def __init__(self, features: Features, hparams: TokenHParams, dropout: float) -> None:
        super().__init__()
        self.text = texts_of(features)[0]
        self.tokens = Tokens(features, hparams, self.text)
        self.dropout = Dropout(dropout)
        self.stacks: Any = nn.ModuleList(
            LSTM(self.tokens.size, hparams.hidden_size, hparams.num_hidden_layers, dropout=dropout)
            for _ in range(2)
        )

    def forward(self, features: ModelInputs) -> EncoderOutput:
        """Reads the output of `T2TModel.bottom`; widths of the result are 2 H."""
        mask = features[self.text].mask
        read = never_empty(mask)
        backward = backward_places(read)
        x = self.tokens(features)
        forth, back = self.stacks
        first, one = forth.run(self.dropout(x), read)
        last, other = back.run(self.dropout(turned(x, backward)), read)
        outputs = torch.cat([first, turned(last, backward)], -1)
        hidden, cell = (torch.cat(both, -1) for both in zip(one, other, strict=True))
        return EncoderOutput(outputs, mask, Memory(hidden, cell))
