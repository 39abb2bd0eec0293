"""Alignment of the words of an output to words of the input, from attention weights.

A finished output is read once more, and each of its words is aligned to the input's word with the
highest attention: the mean of all heads of one layer, summed over the parts of words.  Either when
the word is written, in the last layer but one (Garg et al. 2019, "Jointly Learning to Align and
Translate with Transformer Models", arXiv:1909.02074), or when it is read to write the next one, in
the middle layer (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine
Translation", arXiv:2004.14837).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import HParamsError
from t2t_torch.features import Text
from t2t_torch.layers.pooling import at_targets, padding_mask
from t2t_torch.model import T2TModel
from t2t_torch.runtime.prediction import Attention, Hypothesis, Prediction
from t2t_torch.text.encoder import EOS, PAD


def pad_sequences(rows: Sequence[Sequence[int]]) -> Tensor:
    """Returns rows of ids of different lengths as [R, S] int64, padded with PAD."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


@runtime_checkable
class Attends(Protocol):
    """A decoder layer that attends to the inputs."""

    def attention_of(self, *args: Any) -> Tensor:
        """Returns the attention weights for the arguments of `forward`, [R, N, T, S]."""


class Aligner:
    """Computes the alignments of a model's outputs.

    Args:
      model: model that attends to its inputs, or an ensemble, whose mean is used.
      source: the input feature; None if there is none.
      target: the output feature.
      names: names of both features in a batch.
      layer: number of the attending layer, from 1; 0: the best one according to the papers.
      read: True to use the attention when a word is read, not when it is written.

    Raises:
      HParamsError: the model does not attend to an input, or the layer does not exist.
    """

    def __init__(
        self,
        model: T2TModel | Ensemble,
        source: Text | None,
        target: Text,
        names: tuple[str, str],
        layer: int = 0,
        *,
        read: bool = False,
    ) -> None:
        if reason := why_unaligned(model, source, target):
            raise HParamsError(f"write_alignments=true: {reason}. Leave it out.")
        assert source is not None
        self._models = _members(model)
        self._layers = asked_layers(model, layer, read=read)
        self._read = read
        self._source, self._target = source, target
        self._names = names

    @torch.inference_mode()
    def align(
        self, inputs: Sequence[Sequence[int]], predictions: Sequence[Prediction]
    ) -> list[Prediction]:
        """Returns predictions with the `alignment` of each hypothesis.

        Args:
          inputs: ids with the end symbol.
          predictions: prediction for each input.
        """
        pairs = [
            (list(ids), hypothesis)
            for ids, prediction in zip(inputs, predictions, strict=True)
            for hypothesis in prediction.hypotheses
        ]
        if not pairs:
            return list(predictions)
        weights = self._weights(
            [ids for ids, _ in pairs], [[*hypothesis.ids, EOS] for _, hypothesis in pairs]
        )
        aligned = iter(
            dataclasses.replace(hypothesis, alignment=self._pairs(ids, hypothesis, row))
            for (ids, hypothesis), row in zip(pairs, weights.cpu(), strict=True)
        )
        return [
            dataclasses.replace(
                prediction, hypotheses=tuple(next(aligned) for _ in prediction.hypotheses)
            )
            for prediction in predictions
        ]

    @torch.inference_mode()
    def attend(self, inputs: Sequence[int], prediction: Prediction) -> Prediction:
        """Returns a prediction with the `attention` and the alignment of its best hypothesis.

        Args:
          inputs: ids with the end symbol.
          prediction: prediction for the input.
        """
        best, *others = prediction.hypotheses
        ids = list(inputs)
        weights = self._weights([ids], [[*best.ids, EOS]])[0].cpu()
        best = dataclasses.replace(best, alignment=self._pairs(ids, best, weights))
        attention = self._attention(ids, best, weights)
        return dataclasses.replace(prediction, hypotheses=(best, *others), attention=attention)

    def _weights(self, sources: list[list[int]], targets: list[list[int]]) -> Tensor:
        """Returns the attention of each id of the outputs, [R, T, S]."""
        device = next(self._models[0].parameters()).device
        batch = {
            name: pad_sequences(rows).to(device)
            for name, rows in zip(self._names, (sources, targets), strict=True)
        }
        return torch.stack(
            [
                _attention(model, layer, batch, read=self._read)
                for model, layer in zip(self._models, self._layers, strict=True)
            ]
        ).mean(0)

    def _pairs(
        self, source: list[int], hypothesis: Hypothesis, weights: Tensor
    ) -> tuple[tuple[int, int], ...]:
        """Returns the aligned pairs of words.  `weights` is [T, S]."""
        read, written = self._numbers(source, hypothesis)
        if not read or not written:
            return ()
        by_words = _by_words(weights, written, read)
        return tuple((int(i), j) for j, i in enumerate(by_words.argmax(1)))

    def _attention(self, source: list[int], hypothesis: Hypothesis, weights: Tensor) -> Attention:
        """Returns the attention of words, averaged over the parts of each.  `weights` is [T, S]."""
        read, written = self._numbers(source, hypothesis)
        if not read or not written:
            return Attention((), (), ())
        parts = torch.tensor(written).bincount().clamp(min=1)[:, None]
        rows: list[list[float]] = (_by_words(weights, written, read) / parts).tolist()
        return Attention(
            _names(self._source.encoder.decode(_content(source)), max(read)),
            _names(hypothesis.text, max(written)),
            tuple(map(tuple, rows)),
        )

    def _numbers(self, source: list[int], hypothesis: Hypothesis) -> tuple[list[int], list[int]]:
        """Returns the word index of each input id and each output id."""
        return _words(self._source, _content(source)), _words(self._target, list(hypothesis.ids))


def why_unaligned(model: T2TModel | Ensemble, source: Text | None, target: Text) -> str:
    """Returns why alignments cannot be computed; "" if they can.

    Args:
      model: model that generates the output.
      source: the input feature; None if there is none.
      target: the output feature.
    """
    if source is None or target.refers_to is not None:
        kind = "a language model continues" if source is None else "a parser writes trees of"
        return f"{kind} its input, which is no other text"
    for member in _members(model):
        if not any(isinstance(module, Attends) for module in member.modules()):
            return (
                f"a {type(member).__name__} does not attend to its inputs word by word, so the "
                "input word of an output word is unknown"
            )
    return ""


def _members(model: T2TModel | Ensemble) -> list[T2TModel]:
    members: list[Any] = list(model.models) if isinstance(model, Ensemble) else [model]
    return members


def _content(source: list[int]) -> list[int]:
    """Returns the ids of an input without the end symbol."""
    return source[:-1] if source[-1:] == [EOS] else source


def _by_words(weights: Tensor, written: list[int], read: list[int]) -> Tensor:
    """Returns the summed weights of words' parts, [T, S] -> [output words, input words]."""
    rows = weights[: len(written), : len(read)]
    by_words = rows.new_zeros(max(written) + 1, max(read) + 1)
    index = torch.tensor(written)[:, None], torch.tensor(read)[None]
    return by_words.index_put_(index, rows, accumulate=True)


def _names(text: str, last: int) -> tuple[str, ...]:
    """Returns the words of a text up to index `last`, "" for missing ones."""
    words = text.split()[: last + 1]
    return (*words, *[""] * (last + 1 - len(words)))


def asked_layers(model: T2TModel | Ensemble, number: int, *, read: bool) -> list[nn.Module]:
    """Returns the attention layer for alignments, one per member of an ensemble.

    Args:
      model: model that attends to its inputs.
      number: number of the layer, from 1; 0: the best one according to the papers.
      read: True to use the attention when a word is read, not when it is written.

    Raises:
      HParamsError: the layer does not exist.
    """
    chosen: list[nn.Module] = []
    for member in _members(model):
        layers = [module for module in member.modules() if isinstance(module, Attends)]
        if number > len(layers):
            raise HParamsError(
                f"alignment_layer={number}: a {type(member).__name__} of {len(layers)} layers that "
                "attend to the inputs. Expected at most that; 0 is what is best as a rule."
            )
        best = (len(layers) + 1) // 2 if read else max(1, len(layers) - 1)
        chosen.append(layers[(number or best) - 1])
    return chosen


@contextlib.contextmanager
def watched_layers(layers: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Yields a list that collects the attention of layers at each call, [R, N, T, S] each."""
    seen: list[Tensor] = []

    def watch(layer: Any, args: Any) -> None:
        seen.append(layer.attention_of(*args))

    with contextlib.ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(layer.register_forward_pre_hook(watch))
        yield seen


def _attention(model: Any, layer: nn.Module, batch: dict[str, Tensor], *, read: bool) -> Tensor:
    """Returns the attention of a layer at each id of the targets, [R, T, S], in one pass."""
    with watched_layers([layer]) as seen:
        model.body(model.bottom(batch))
    weights = torch.cat(seen, 2).float().mean(1)
    source, target = batch.values()
    if weights.size(1) > target.size(1):  # a decoder that reads the inputs as a prefix
        weights = at_targets(weights, padding_mask(source).sum(1), target.size(1))
    return weights[:, 1:] if read else weights[:, :-1]  # the ids that are read are shifted right


def _words(feature: Text, ids: list[int]) -> list[int]:
    """Returns the word index of each id, from 0."""
    decode = feature.encoder.decode  # returns text for word vocabularies, too
    lengths = (len(decode(ids[: end + 1]).split()) for end in range(len(ids)))
    return [max(length, 1) - 1 for length in lengths]
