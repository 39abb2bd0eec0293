"""Conversion of inputs to the tensors of an exported graph, and of its outputs to predictions."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features import InputSpec, OutputSpec, audio, image, real
from t2t_torch.features.text import check_whole, words_of
from t2t_torch.features.word import entries_of_words, labels_of, numbers_of_words
from t2t_torch.runtime.prediction import (
    SURROGATE,
    Attention,
    Hypothesis,
    InputError,
    Prediction,
    ranked,
    sorted_hypotheses,
)
from t2t_torch.text.tokenizer import tokenize

_WORDS_GIVEN = "_words_given"
WEIGHTS = "_weights"
"""Suffix of the name of a gazetteer's labels in the name of their weights."""

_OF_WORDS = ("labels", "word_numbers", "gazetteer")  # kinds with one entry per word
_PIXELS = 64  # pixels of a picture that count as one word
_SAMPLES = 640  # samples of a sound that count as one word
_ENTRIES = 8  # entries per word (maximum of the input) that count as another word
_MOST_ENTRIES = 250_000  # per input, after padding every word to the maximum
_LETTERS = 5  # characters of a text that count as one word, for batch sizes
_NO_LABEL = "�"  # replaces a label that cannot be known because it contains a space


def words_given_name(field: str) -> str:
    """Returns the name of the input that disables the tokenizer of a field.

    It is bool [B], false by default; true for a row that is words separated by spaces.
    """
    return f"{field}{_WORDS_GIVEN}"


def offsets_name(field: str) -> str:
    """Returns the name of the output with the words' start and end in characters.  [B, W, 2]."""
    return f"{field}_offsets"


@dataclasses.dataclass(frozen=True)
class GraphInput:
    """An encoded input of the graph.

    Attributes:
      values: values by field: a text, words or labels separated by spaces, numbers, numbers or
        entries per word, or a picture.
      words: number of words, by field with one entry per word.
      length: approximate length of the longest field in words; words with many entries count more.
    """

    values: Mapping[str, Any]
    words: Mapping[str, int]
    length: int


class Feeds:
    """Validates inputs and converts them to tensors.

    Args:
      fields: fields of a signature.
    """

    def __init__(self, fields: Sequence[InputSpec]) -> None:
        self._fields = fields

    def row(self, number: int, sample: Mapping[str, Any]) -> GraphInput:
        """Returns an encoded input.

        Args:
          number: index of the input, for error messages.
          sample: values of all fields.

        Raises:
          InputError: the input cannot be encoded.
        """
        values: dict[str, Any] = {}
        counts: dict[str, int] = {}
        lengths = [1]
        try:
            for field in self._fields:
                values[field.name], count = _value(field, sample[field.name])
                if field.tokenizer:
                    given = not isinstance(sample[field.name], str)
                    values[words_given_name(field.name)] = given
                length = count
                if field.kind == "gazetteer":  # a word of many entries counts as several
                    most = max(map(len, values[field.name]), default=0)
                    length *= max(1, -(-most // _ENTRIES))
                lengths.append(length)
                if field.kind in ("words", *_OF_WORDS):
                    counts[field.name] = count
            self._check_lengths(sample, counts)
        except DataError as error:
            raise InputError(number, f"{str(error).removesuffix('.')}.") from None
        return GraphInput(values, counts, max(lengths))

    def _check_lengths(self, sample: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        for field in self._fields:
            if field.kind in _OF_WORDS and counts[field.name] != counts[field.of]:
                of = next(one for one in self._fields if one.name == field.of)
                words = list(words_of(sample[field.of], of.tokenizer))
                raise DataError(
                    f"{counts[field.of]} words and {counts[field.name]} {field.name}, where one "
                    f"for each word was expected: {words!r}, "
                    f"{reprlib.repr(sample[field.name])}."
                )
        for field in self._fields:
            if field.tagged and field.longest and counts[field.name] > field.longest:
                raise DataError(
                    f"{field.name!r} has {counts[field.name]} ids, and this model was trained on "
                    f"{field.longest} at most. Cut the text."
                )

    def check_offsets(
        self,
        numbers: Sequence[int],
        rows: Sequence[GraphInput],
        outputs: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Checks that the graph split texts into the same words as this Python.

        Args:
          numbers: index of the input of each row, for the error message.
          rows: inputs of the graph.
          outputs: outputs of the graph by name.

        Raises:
          InputError: a text has other words.
        """
        for field in (one for one in self._fields if one.tokenizer):
            offsets = outputs[offsets_name(field.name)]
            for number, row, given in zip(numbers, rows, offsets.tolist(), strict=True):
                if row.values[words_given_name(field.name)]:
                    continue
                tokens = tokenize(row.values[field.name], field.tokenizer)
                if given[: len(tokens)] != [[token.start, token.end] for token in tokens]:
                    raise InputError(
                        number,
                        f"{reprlib.repr(row.values[field.name])} has other words in the graph than "
                        "in this Python, whose Unicode tables differ. Give a list of words.",
                    )

    def batch(self, rows: Sequence[GraphInput]) -> dict[str, npt.NDArray[Any]]:
        """Returns the inputs of the graph, with the dtypes of `InputSpec.dtype`."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        for field in self._fields:
            values = [row.values[field.name] for row in rows]
            if field.kind == "gazetteer":
                arrays |= _entries(field.name, values)
            elif field.kind == "audio":
                arrays[field.name] = _padded(values, audio.NO_SAMPLE, np.int16)
            elif field.kind == "word_numbers":
                arrays[field.name] = _padded(values, 0, np.float32, field.size)
            else:
                dtype = {"numbers": np.float32, "image": np.uint8}.get(field.kind, object)
                arrays[field.name] = np.array(values, dtype=dtype)
            if field.tokenizer:
                given = words_given_name(field.name)
                arrays[given] = np.array([row.values[given] for row in rows])
        return arrays


def _padded(
    rows: Sequence[Any], filler: int, dtype: npt.DTypeLike, *shape: int
) -> npt.NDArray[Any]:
    """Returns rows of different lengths with `filler` after the end.  [B, longest, *shape]."""
    array = np.full((len(rows), max(map(len, rows)), *shape), filler, dtype)
    for number, row in enumerate(rows):
        if len(row):
            array[number, : len(row)] = row
    return array


def _entries(name: str, rows: Sequence[Sequence[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Returns labels and weights of gazetteer entries, padded with "" and 0.  [B, W, E]."""
    width = max((len(entries) for row in rows for entries in row), default=0)
    shape = len(rows), max(map(len, rows)), width
    labels, weights = np.full(shape, "", object), np.zeros(shape, np.float64)
    for number, row in enumerate(rows):
        for word, entries in enumerate(row):
            for place, (label, weight) in enumerate(entries):
                labels[number, word, place] = label
                weights[number, word, place] = weight
    return {name: labels, f"{name}{WEIGHTS}": weights}


def words_of_array(array: npt.NDArray[Any]) -> int:
    """Returns the number of words that a picture, [height, width, channels], or sound counts as."""
    if array.ndim == 3:
        return int(array.shape[0]) * int(array.shape[1]) // _PIXELS + 1
    return len(array) // _SAMPLES + 1 if array.dtype == np.int16 and array.ndim == 1 else 1


def _value(field: InputSpec, value: Any) -> tuple[Any, int]:
    """Returns the encoded value of a field and its approximate number of words.

    Raises:
      DataError: the value is not of the field's kind.
    """
    if field.kind == "numbers":
        numbers = real.numbers_of(value)
        if len(numbers) != field.size:
            raise DataError(f"{value!r}: {len(numbers)} numbers; {field.size} were expected.")
        return numbers, 1
    if field.kind == "text":
        if not isinstance(value, str):
            raise DataError(f"{value!r} is no text, where one was expected.")
        return value, len(value) // _LETTERS + 1
    if field.kind == "words":
        words = words_of(value, field.tokenizer)
        check_whole(words)
        if field.tokenizer and isinstance(value, str):
            return value, len(words)  # the graph splits it
        return " ".join(words), len(words)
    if field.kind == "word_numbers":
        rows = numbers_of_words(value, field.name, field.size)
        return rows, len(rows)
    if field.kind == "gazetteer":
        entries = [[one for one in row if _may_be_known(one[0])] for row in entries_of_words(value)]
        most = max(map(len, entries), default=0)
        if len(entries) * most > _MOST_ENTRIES:
            raise DataError(
                f"{field.name}: {len(entries)} words, of which one has {most} labels, are more "
                f"than the {_MOST_ENTRIES:,} that an artifact takes together. Leave out labels "
                "that the model does not know."
            )
        return entries, len(entries)
    if field.kind == "audio":
        samples = audio.Audio(field.size, resample=True).samples_of(value)
        return samples, words_of_array(samples)
    if field.kind == "image":
        pixels = image.pixels_of(value, field.shape)
        return pixels, words_of_array(pixels)
    labels = [label if label.split() == [label] else _NO_LABEL for label in labels_of(value)]
    return " ".join(labels), len(labels)


def _may_be_known(label: Any) -> bool:
    """Returns True if a graph accepts a label: labels that no label file can hold are excluded."""
    return isinstance(label, str) and bool(label) and not SURROGATE.search(label)


_Scores = Mapping[str, float] | Sequence[float]


def answers_of(
    targets: Sequence[OutputSpec],
    outputs: Mapping[str, npt.NDArray[Any]],
    rows: Sequence[GraphInput],
) -> list[Prediction]:
    """Returns the prediction of each row of a batch.

    Args:
      targets: targets of a signature.
      outputs: outputs of the graph by name, each [B, ...].
      rows: inputs of the graph.
    """
    plain = {name: values.tolist() for name, values in outputs.items()}
    return [_answer(targets, plain, number, row) for number, row in enumerate(rows)]


def predictions_of(target: OutputSpec, outputs: Mapping[str, npt.NDArray[Any]]) -> list[Prediction]:
    """Returns the texts predicted for each row of a batch, best first.

    Args:
      target: a target of kind "text" of a signature.
      outputs: outputs of the graph by name: texts and scores [B, n], ids [B, n, T].
    """
    texts, scores, ids = (outputs[f"{target.name}{of}"].tolist() for of in ("", "_scores", "_ids"))
    return [_prediction(target.name, *row) for row in zip(texts, scores, ids, strict=True)]


def _prediction(
    target: str, texts: Sequence[str], scores: Sequence[float], ids: Sequence[Sequence[int]]
) -> Prediction:
    pairs = zip(texts, sorted_hypotheses(ids, scores), strict=False)
    hypotheses = [Hypothesis(text, tuple(row), score) for text, (row, score) in pairs]
    return Prediction.of_texts(target, hypotheses)


def _answer(
    targets: Sequence[OutputSpec], outputs: Mapping[str, Any], number: int, row: GraphInput
) -> Prediction:
    values: dict[str, Any] = {}
    probabilities: dict[str, float] = {}
    scores: dict[str, _Scores] = {}
    for target in targets:
        value, probability, label_scores = (
            outputs[name][number] if (name := f"{target.name}{of}") in outputs else None
            for of in ("", "_probability", "_scores")
        )
        words = row.words[target.of] if target.kind == "tags" else None
        values[target.name] = _read_value(target, value, words)
        if probability is not None:
            probabilities[target.name] = float(probability)
        if label_scores is not None:
            if words is None:
                scores[target.name] = ranked(target.labels, label_scores)
            else:
                scores[target.name] = list(label_scores[:words])
    return Prediction(values, probabilities, scores)


def _read_value(target: OutputSpec, value: Any, words: int | None) -> Any:
    if target.kind == "tags":
        return value[:words]
    if target.kind == "multilabel":
        return [label for label, is_set in zip(target.labels, value, strict=True) if is_set]
    if target.kind == "distribution":
        return dict(zip(target.labels, value, strict=True))
    return value


def attention_names(target: str) -> tuple[str, str, str]:
    """Returns the names of the attention outputs.

    They are the weights [B, n, W, R], negative at padding; the input words [B, R]; and the output
    words [B, n, W].

    Args:
      target: name of the target text.
    """
    return f"{target}_attention", f"{target}_attention_read", f"{target}_attention_written"


def wanted_name(target: str) -> str:
    """Returns the name of the input that enables the attention outputs, [] bool, default true."""
    return f"{target}_attention_wanted"


def check_size(number: int, size: int, most: int) -> None:
    """Raises DecodeError if the best hypothesis of an input has too many attention weights.

    Args:
      number: index of the input, for the error message.
      size: number of its weights.
      most: maximum number of weights per input.
    """
    if size > most:
        raise DecodeError(
            f"input {number} has {size:,} attention weights (pairs of an input word and an output "
            f"word); at most {most:,} are returned. Leave out `attention`, or send a shorter input."
        )


def aligned(
    target: str,
    outputs: Mapping[str, npt.NDArray[Any]],
    predictions: Sequence[Prediction],
    numbers: Sequence[int],
    most: int | None,
) -> list[Prediction]:
    """Returns predictions with the `alignment` of each hypothesis.

    Args:
      target: name of the target text.
      outputs: outputs of the graph by name.
      predictions: predictions of the rows.
      numbers: index of the input of each row, for error messages.
      most: maximum number of weights of the `attention` of a best hypothesis; None: it is not
        added.

    Raises:
      DecodeError: a best hypothesis has more weights.
    """
    found = []
    parts = (outputs[name] for name in attention_names(target))
    for number, prediction, weights, read, written in zip(
        numbers, predictions, *parts, strict=True
    ):
        hypotheses = tuple(
            dataclasses.replace(hypothesis, alignment=_pairs(rows))
            for hypothesis, rows in zip(prediction.hypotheses, weights, strict=False)
        )
        attention = None
        if most is not None:
            best = _there(weights[0])
            check_size(number, best.size, most)
            count, width = best.shape
            rows = tuple(map(tuple, best.tolist()))
            words = tuple(read[:width].tolist()), tuple(written[0][:count].tolist())
            attention = Attention(*words, rows)
        found.append(dataclasses.replace(prediction, hypotheses=hypotheses, attention=attention))
    return found


def _there(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the weights [W, R] of a hypothesis without padding."""
    if not weights.size:
        return weights[:0, :0]
    written = int((weights[:, 0] >= 0).sum())
    return weights[:written, : int((weights[0] >= 0).sum())]


def _pairs(weights: npt.NDArray[Any]) -> tuple[tuple[int, int], ...]:
    """Returns pairs (index of the most attended input word, index of the output word)."""
    return tuple((int(row.argmax()), place) for place, row in enumerate(_there(weights)))
