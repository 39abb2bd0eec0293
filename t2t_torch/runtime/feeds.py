"""Inputs of an exported graph as tensors, and its outputs as answers and alignments."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.features.feature import ranked
from t2t_torch.features.real import numbers_of, pixels_of
from t2t_torch.features.text import check_whole, words_of
from t2t_torch.features.word import entries_of_words, labels_of, numbers_of_words
from t2t_torch.runtime.prediction import (
    Attention,
    Hypothesis,
    InputError,
    Prediction,
)

WEIGHTS = "_weights"
"""Behind the name of a gazetteer's labels, the name of their weights."""

_OF_WORDS = ("labels", "word_numbers", "gazetteer")  # kinds with an entry for each word
_PIXELS = 64  # of a picture count as a word
_ENTRIES = 8  # of a word, as the one with the most has, make it count as another
_MOST_ENTRIES = 250_000  # of an input: each word has as much room as the one with the most
_LETTERS = 5  # of a text count as a word, for the sizes of batches
_NO_LABEL = "�"  # stands for a label that cannot be known, as there is a space in it


@dataclasses.dataclass(frozen=True)
class Row:
    """An input, as the graph takes it.

    Attributes:
      values: by field: a text, words or labels with spaces between, numbers, numbers or entries of
        each word, a picture.
      words: by field of words, or of what each word has, how many there are.
      length: of the longest field, about, in words; what gives words more room counts as more.
    """

    values: Mapping[str, Any]
    words: Mapping[str, int]
    length: int


class Feeds:
    """Checks inputs and makes tensors of them.

    Args:
      fields: of a signature.
    """

    def __init__(self, fields: Sequence[InputSpec]) -> None:
        self._fields = fields

    def row(self, number: int, sample: Mapping[str, Any]) -> Row:
        """Returns what stands for an input.

        Args:
          number: of the input, for errors.
          sample: has all fields.

        Raises:
          InputError: it cannot be encoded.
        """
        values: dict[str, Any] = {}
        counts: dict[str, int] = {}
        lengths = [1]
        try:
            for field in self._fields:
                values[field.name], count = _value(field, sample[field.name])
                lengths.append(count * _room(field, values[field.name]))
                if field.kind in ("words", *_OF_WORDS):
                    counts[field.name] = count
            self._check_lengths(sample, counts)
        except DataError as error:
            raise InputError(number, f"{str(error).removesuffix('.')}.") from None
        return Row(values, counts, max(lengths))

    def _check_lengths(self, sample: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        for field in self._fields:
            if field.kind in _OF_WORDS and counts[field.name] != counts[field.of]:
                raise DataError(
                    f"{counts[field.of]} words and {counts[field.name]} {field.name}, where one "
                    f"for each word was expected: {list(words_of(sample[field.of]))!r}, "
                    f"{reprlib.repr(sample[field.name])}."
                )
        for field in self._fields:
            if field.tagged and field.longest and counts[field.name] > field.longest:
                raise DataError(
                    f"{field.name!r} has {counts[field.name]} ids, and this model was trained on "
                    f"{field.longest} at most. Cut the text."
                )

    def batch(self, rows: Sequence[Row]) -> dict[str, npt.NDArray[Any]]:
        """Returns the graph's inputs, as `InputSpec.dtype` says."""
        found: dict[str, npt.NDArray[Any]] = {}
        for field in self._fields:
            values = [row.values[field.name] for row in rows]
            if field.kind == "gazetteer":
                found |= _entries(field.name, values)
            elif field.kind == "word_numbers":
                found[field.name] = _filled(values, (field.size,))
            else:
                dtype = {"numbers": np.float32, "image": np.uint8}.get(field.kind, object)
                found[field.name] = np.array(values, dtype=dtype)
        return found


def _filled(rows: Sequence[Sequence[Any]], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Returns what words have, 0 behind each text's.  [B, W, *shape], of `shape` for each word."""
    found = np.zeros((len(rows), max(map(len, rows)), *shape), np.float32)
    for number, row in enumerate(rows):
        if row:
            found[number, : len(row)] = row
    return found


def _entries(name: str, rows: Sequence[Sequence[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Returns labels and weights of gazetteer entries, "" and 0 where there is none.  [B, W, E]."""
    width = max((len(entries) for row in rows for entries in row), default=0)
    shape = len(rows), max(map(len, rows)), width
    labels, weights = np.full(shape, "", object), np.zeros(shape, np.float64)
    for number, row in enumerate(rows):
        for word, entries in enumerate(row):
            for place, (label, weight) in enumerate(entries):
                labels[number, word, place] = label
                weights[number, word, place] = weight
    return {name: labels, f"{name}{WEIGHTS}": weights}


def _room(field: InputSpec, value: Any) -> int:
    """Returns how many words a word of a field counts as, by what it has."""
    if field.kind != "gazetteer":
        return 1
    return max(1, -(-max(map(len, value), default=0) // _ENTRIES))


def _value(field: InputSpec, given: Any) -> tuple[Any, int]:
    """Returns what stands for a field, and how many words it has, about.

    Raises:
      DataError: it is not of the field's kind.
    """
    if field.kind == "numbers":
        numbers = numbers_of(given)
        if len(numbers) != field.size:
            raise DataError(f"{given!r}: {len(numbers)} numbers; {field.size} were expected.")
        return numbers, 1
    if field.kind == "text":
        if not isinstance(given, str):
            raise DataError(f"{given!r} is no text, where one was expected.")
        return given, len(given) // _LETTERS + 1
    if field.kind == "words":
        words = words_of(given)
        check_whole(words)
        return " ".join(words), len(words)
    if field.kind == "word_numbers":
        rows = numbers_of_words(given, field.name, field.size)
        return rows, len(rows)
    if field.kind == "gazetteer":
        entries = [[one for one in row if _may_be_known(one[0])] for row in entries_of_words(given)]
        most = max(map(len, entries), default=0)
        if len(entries) * most > _MOST_ENTRIES:
            raise DataError(
                f"{field.name}: {len(entries)} words, of which one has {most} labels, are more "
                f"than the {_MOST_ENTRIES:,} that an artifact takes together. Leave out labels "
                "that the model does not know."
            )
        return entries, len(entries)
    if field.kind == "image":
        pixels = pixels_of(given, field.shape)
        return pixels, pixels.shape[0] * pixels.shape[1] // _PIXELS + 1
    labels = [label if _is_one(label) else _NO_LABEL for label in labels_of(given)]
    return " ".join(labels), len(labels)


def _is_one(label: str) -> bool:
    return label.split() == [label]


def _may_be_known(label: Any) -> bool:
    """Whether a graph can be given a label: those that no file of labels holds are left out."""
    if not isinstance(label, str) or not label:
        return False
    try:
        label.encode()
    except UnicodeEncodeError:
        return False
    return True


# From the tensors that a graph gives to what users read.


_Scores = Mapping[str, float] | Sequence[float]


def output_names(target: OutputSpec) -> tuple[str, ...]:
    """Returns the names that a target's outputs may have."""
    return target.name, f"{target.name}_probability", f"{target.name}_scores"


_NO_SCORE = -1e7  # `NO_SCORE` of decode.beam: of a place that nothing filled, or less
_END = 1  # the id of `EOS`


def answers_of(
    targets: Sequence[OutputSpec], outputs: Mapping[str, npt.NDArray[Any]], rows: Sequence[Row]
) -> list[Prediction]:
    """Returns what was found for each row of a batch.

    Args:
      targets: of a signature.
      outputs: of the graph, by name, each [B, ...].
      rows: what it was given.
    """
    plain = {name: values.tolist() for name, values in outputs.items()}
    return [_answer(targets, plain, number, row) for number, row in enumerate(rows)]


def predictions_of(target: OutputSpec, outputs: Mapping[str, npt.NDArray[Any]]) -> list[Prediction]:
    """Returns the texts that were found for each row of a batch, the best first.

    Args:
      target: of a signature, of the kind "text".
      outputs: of the graph, by name: texts and scores [B, n], ids [B, n, T].
    """
    texts, scores, ids = (outputs[f"{target.name}{of}"].tolist() for of in ("", "_scores", "_ids"))
    return [_prediction(target.name, *row) for row in zip(texts, scores, ids, strict=True)]


def _prediction(
    target: str, texts: Sequence[str], scores: Sequence[float], ids: Sequence[Sequence[int]]
) -> Prediction:
    filled = [score > _NO_SCORE for score in scores]
    count = max(1, filled.index(False) if False in filled else len(filled))
    rows = zip(texts[:count], ids, scores, strict=False)
    hypotheses = [Hypothesis(text, _content(its), score) for text, its, score in rows]
    return Prediction.of_texts(target, hypotheses)


def _content(ids: Sequence[int]) -> tuple[int, ...]:
    """Returns the ids before the end symbol and the padding at the end."""
    kept = list(ids[: ids.index(_END)]) if _END in ids else list(ids)
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)


def _answer(
    targets: Sequence[OutputSpec], outputs: Mapping[str, Any], number: int, row: Row
) -> Prediction:
    values: dict[str, Any] = {}
    probabilities: dict[str, float] = {}
    scores: dict[str, _Scores] = {}
    for target in targets:
        names = output_names(target)
        found, probability, its = (
            outputs[name][number] if name in outputs else None for name in names
        )
        words = row.words[target.of] if target.kind == "tags" else None
        values[target.name] = _read_value(target, found, words)
        if probability is not None:
            probabilities[target.name] = float(probability)
        if its is not None:
            known = ranked(target.labels, its) if words is None else list(its[:words])
            scores[target.name] = known
    return Prediction(values, probabilities, scores)


def _read_value(target: OutputSpec, found: Any, words: int | None) -> Any:
    if target.kind == "tags":
        return found[:words]
    if target.kind == "multilabel":
        return [label for label, there in zip(target.labels, found, strict=True) if there]
    if target.kind == "distribution":
        return dict(zip(target.labels, found, strict=True))
    return found


# Which word of an input each word of a text comes from, as a graph tells it.


def attention_names(target: str) -> tuple[str, str, str]:
    """Returns the names of the outputs that tell what words look at.

    They are the weights, [B, n, W, R], below 0 where there is no word; the words that are read,
    [B, R]; and those that are written, [B, n, W].

    Args:
      target: whose texts it is about.
    """
    return f"{target}_attention", f"{target}_attention_read", f"{target}_attention_written"


def wanted_name(target: str) -> str:
    """Returns the name of the input that says whether they are wanted, [] bool; by default true."""
    return f"{target}_attention_wanted"


def check_size(
    target: str, outputs: Mapping[str, npt.NDArray[Any]], numbers: Sequence[int], most: int
) -> None:
    """Raises DecodeError if the best hypothesis of an input has more than so many weights.

    Args:
      target: whose texts they are.
      outputs: of the graph, by name.
      numbers: of the inputs of each row, for the error.
      most: weights of an input.
    """
    weights, _, _ = attention_names(target)
    for number, its in zip(numbers, outputs[weights], strict=True):
        size = _there(its[0]).size
        if size > most:
            raise DecodeError(
                f"input {number} has {size:,} pairs of a word that is read and one that is "
                f"written, and attention is told of {most:,}. Ask without attention, or less at "
                "once."
            )


def paired(
    target: str, outputs: Mapping[str, npt.NDArray[Any]], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Returns predictions with the `alignment` of each hypothesis.

    Args:
      target: whose texts they are.
      outputs: of the graph, by name.
      predictions: of each row.
    """
    weights, _, _ = attention_names(target)
    return [
        dataclasses.replace(
            prediction,
            hypotheses=tuple(
                dataclasses.replace(hypothesis, alignment=_pairs(_there(rows)))
                for hypothesis, rows in zip(prediction.hypotheses, its, strict=False)
            ),
        )
        for prediction, its in zip(predictions, outputs[weights], strict=True)
    ]


def aligned(
    target: str, outputs: Mapping[str, npt.NDArray[Any]], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Returns predictions with the `alignment` of each hypothesis, and the best one's `attention`.

    Args:
      target: whose texts they are.
      outputs: of the graph, by name.
      predictions: of each row.
    """
    parts = [outputs[name] for name in attention_names(target)]
    return [
        dataclasses.replace(prediction, attention=_attention(_there(weights[0]), read, written[0]))
        for prediction, weights, read, written in zip(
            paired(target, outputs, predictions), *parts, strict=True
        )
    ]


def _there(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns what there is of a hypothesis's words, of [W, R]."""
    if not weights.size:
        return weights[:0, :0]
    written = int((weights[:, 0] >= 0).sum())
    return weights[:written, : int((weights[0] >= 0).sum())]


def _attention(
    weights: npt.NDArray[Any], read: npt.NDArray[Any], written: npt.NDArray[Any]
) -> Attention:
    if not weights.size:
        return Attention((), (), ())
    count, width = weights.shape
    rows = tuple(map(tuple, weights.tolist()))
    return Attention(tuple(read[:width].tolist()), tuple(written[:count].tolist()), rows)


def _pairs(weights: npt.NDArray[Any]) -> tuple[tuple[int, int], ...]:
    """Returns of each written word the number of the word that it looks at most, and its own."""
    if not weights.size:
        return ()
    return tuple((at, place) for place, at in enumerate(weights.argmax(1).tolist()))
