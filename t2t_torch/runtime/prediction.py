"""Predictions, inputs, and their JSON records."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features.text import words_of
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.text.tags import scheme_of
from t2t_torch.text.tokenizer import tokenize


def ranked(labels: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Returns the scores by label, highest first; ties in the order of the labels."""
    return dict(sorted(zip(labels, scores, strict=True), key=lambda one: -one[1]))


@dataclass(frozen=True)
class Hypothesis:
    """One generated output for an input.

    Attributes:
      text: decoded text of the ids.
      ids: generated ids without the end symbol.
      score: log-probability (nats), divided by the length penalty if the beam is wider than 1.
      repaired: True if the ids are not a valid tree and were repaired; always False for texts.
      alignment: with `write_alignments`, pairs (input word index, output word index), from 0.
    """

    text: str
    ids: tuple[int, ...]
    score: float
    repaired: bool = False
    alignment: tuple[tuple[int, int], ...] = ()


_NO_SCORE = -1e7  # `NO_SCORE` of decode.beam: the score of an empty hypothesis slot, or less


def sorted_hypotheses(
    rows: Sequence[Sequence[int]], scores: Sequence[float]
) -> list[tuple[list[int], float]]:
    """Returns (ids without end symbol and padding, score) of an input's hypotheses."""
    hypotheses: list[tuple[list[int], float]] = []
    for row, score in zip(rows, scores, strict=True):
        if hypotheses and score <= _NO_SCORE:
            break  # unfilled places
        ids = list(row[: row.index(EOS)] if EOS in row else row)
        while ids and ids[-1] == PAD:
            ids.pop()
        hypotheses.append((ids, score))
    return hypotheses


@dataclass(frozen=True)
class Attention:
    """Attention weights from the output words to the input words.

    Attributes:
      read: input words, as written by the vocabulary.
      written: output words.
      weights: weights of each output word over the input words; the remainder to 1 is the weight
        of the input's end symbol.
    """

    read: tuple[str, ...]
    written: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Prediction:
    """Prediction of a model for one input.

    Runs, artifacts and trials have the same method: `predict(inputs) -> list[Prediction]`.

    Attributes:
      values: predicted value by target: a label, a list of tags, numbers, a text, a text span.
      probabilities: probability of the value by target; only targets that have one.
      scores: by target, the probability of each label, highest first; for tags, the probability of
        each word's tag; only targets that have them.
      hypotheses: hypotheses of a generated target, at least one, best first: more than one only
        with `return_beams`, or with `num_decodes`, where they are in the order of sampling.
      attention: attention of the best hypothesis, if requested.
    """

    values: Mapping[str, Any]
    probabilities: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float] | Sequence[float]] = field(default_factory=dict)
    hypotheses: tuple[Hypothesis, ...] = ()
    attention: Attention | None = None

    @classmethod
    def of_texts(
        cls, target: str, hypotheses: Sequence[Hypothesis], attention: Attention | None = None
    ) -> Prediction:
        """Returns the prediction of a text target from its hypotheses, best first."""
        return cls({target: hypotheses[0].text}, hypotheses=tuple(hypotheses), attention=attention)

    @classmethod
    def of_value(
        cls,
        target: str,
        value: Any,
        probability: float | None = None,
        scores: Mapping[str, float] | Sequence[float] | None = None,
    ) -> Prediction:
        """Returns the prediction of one target."""
        return cls(
            {target: value},
            {} if probability is None else {target: probability},
            {} if scores is None else {target: scores},
        )

    @classmethod
    def joined(cls, predictions: Iterable[Prediction]) -> Prediction:
        """Returns the predictions of different targets of one input merged into one."""
        values: dict[str, Any] = {}
        probabilities: dict[str, float] = {}
        scores: dict[str, Any] = {}
        for one in predictions:
            values |= one.values
            probabilities |= one.probabilities
            scores |= one.scores
        return cls(values, probabilities, scores)

    def of(self, target: str) -> Prediction:
        """Returns the prediction of one of several targets."""
        probability, scores = self.probabilities.get(target), self.scores.get(target)
        return Prediction.of_value(target, self.values[target], probability, scores)

    @property
    def value(self) -> Any:
        """The value of the only target, or the values of all targets by name."""
        return next(iter(self.values.values())) if len(self.values) == 1 else dict(self.values)

    @property
    def probability(self) -> float | None:
        """The probability of the only target's value; None if it has none."""
        return next(iter(self.probabilities.values()), None)

    @property
    def text(self) -> str:
        """The text of the best hypothesis."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The score of the best hypothesis."""
        return self.hypotheses[0].score


class Predicts(Protocol):
    """Interface of runs, artifacts and trials for inference."""

    def predict(self, inputs: Sequence[Any]) -> Sequence[Prediction]:
        """Returns the predictions of the inputs in order."""


SURROGATE = re.compile("[\ud800-\udfff]")
"""Matches a character that no UTF-8 text has."""

Input: TypeAlias = str | Mapping[str, Any]
"""An input as a mapping by field, or as a plain text if the text is the only field."""


class InputError(DataError):
    """An input that cannot be encoded.

    Attributes:
      number: index of the input, from 0.
      why: reason.
    """

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"input {number} cannot be encoded: {why}")
        self.number = number
        self.why = why


WRITTEN_LIST = "[]"
"""Separator of lists in Python or JSON notation."""

_BETWEEN = " + "  # between the names of columns that are joined, in `Problem.column_names`


_NUMPY_PART = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|-?\d+""")
_NUMPY_ARRAY = re.compile(
    rf"\[\s*((?:{_NUMPY_PART.pattern})(?:\s+(?:{_NUMPY_PART.pattern}))+)\s*\]"
)


def _numpy_array(text: str) -> list[Any]:
    """Returns an array as numpy writes it, ['a' 'b']; Python reads that as one string."""
    found = _NUMPY_ARRAY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is no array")
    return [ast.literal_eval(part) for part in _NUMPY_PART.findall(found[1])]


def parts_of(text: str, separator: str) -> list[Any]:
    """Returns the parts of a list in string form.

    Raises:
      ValueError: the separator is `WRITTEN_LIST`, and the string is no such list.
    """
    if separator != WRITTEN_LIST:
        return text.split(separator)
    for parse in (_numpy_array, json.loads, ast.literal_eval):
        try:
            found = parse(text.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(found, list | tuple):
            return list(found)
    raise ValueError(f"{text[:80]!r} is no list as Python or JSON writes it")


def text_of_cell(value: Any) -> str:
    """Returns a value as text: "" for none, words joined by spaces.

    Raises:
      ValueError: the value is no text, number or list of texts.
    """
    if isinstance(value, str):
        return value
    if is_empty(value):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | np.number):
        return str(value)
    if (held := list_of(value)) is not None and all(isinstance(part, str) for part in held):
        return " ".join(held)
    raise ValueError(f"{str(value)[:80]!r} is no text")


def list_of(value: Any) -> list[Any] | None:
    """Returns a list, tuple or array as a list; None for anything else."""
    if hasattr(value, "tolist") and hasattr(value, "__len__"):
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple) else None


def is_empty(value: Any) -> bool:
    """Returns whether a cell has no value: None, or NaN, NaT and NA of data frames."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # of pandas
        return True
    return not hasattr(value, "__len__") and bool(value != value)


def rows_of(inputs: Any) -> list[dict[str, Any]] | None:
    """Returns the rows of a table; None if the inputs are no data frame and no Arrow table."""
    if hasattr(inputs, "to_pylist") and hasattr(inputs, "column_names"):  # pyarrow
        names, columns = inputs.column_names, [one.to_pylist() for one in inputs.columns]
    elif hasattr(inputs, "iloc") and hasattr(inputs, "columns"):  # pandas
        names = list(map(str, inputs.columns))
        columns = [inputs.iloc[:, place].tolist() for place in range(len(names))]
    else:
        return None
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DecodeError(f"the table has several columns {twice[0]!r}. Rename all but one.")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class InputColumns:
    """The columns of a problem's fields.

    Tables have rows of named columns, in place of inputs by field.  A table is a pandas DataFrame,
    a pyarrow Table, or, if all fields are texts, a mapping of columns to lists.

    Attributes:
      problem: full name of the problem, for error messages.
      kinds: by field of an input, the `InputSpec.kind` of its values.
      names: by field, the user's name of its column; " + " stands between several.
      forms: by field, the "column", "join" and "split" of its declaration, if `names` do not
        determine them.
    """

    problem: str
    kinds: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(
            f"{name} (column {own!r})" if (own := self.names.get(name, name)) != name else name
            for name in self.kinds
        )

    def samples(self, inputs: Any) -> list[Any]:
        """Returns the rows of a table, and mappings of a list, by field; other inputs unchanged.

        Raises:
          DecodeError: a table lacks a column, or a value is not of its field's kind.
        """
        rows = rows_of(inputs)
        if rows is None and isinstance(inputs, Mapping):
            rows = self._rows_of_lists(inputs)
        if rows is not None:
            return [self.sample(row, number, is_row=True) for number, row in enumerate(rows)]
        return [
            self.sample(one, number) if isinstance(one, Mapping) else one
            for number, one in enumerate(inputs)
        ]

    def sample(
        self, row: Mapping[str, Any], number: int | str = 0, *, is_row: bool = False
    ) -> Mapping[str, Any]:
        """Returns a row with the values of its columns under the names of their fields.

        A mapping with all fields by name is taken as it is, except that columns to be joined, one
        of which has the name of the field, are joined, and then left out.

        Args:
          row: values by column, or by field.
          number: number of the row, or its place, for error messages.
          is_row: True for a row of a table: all fields must be there, and cells may be empty.

        Raises:
          DecodeError: a value is not of its field's kind, or a table lacks a column.
        """
        found: dict[str, Any] = {}
        joined: set[str] = set()
        by_field = not is_row and self.kinds.keys() <= row.keys()
        for name, kind in self.kinds.items():
            columns = self._found(name, row)
            if columns is None or (columns == (name,) and not is_row):
                continue  # missing, or as the caller wrote it
            if name in columns:
                joined |= {*columns} - self.kinds.keys()
            elif by_field:
                continue
            try:
                found[name] = self._value(name, kind, [row[column] for column in columns])
            except (ValueError, TypeError) as error:
                place = number if isinstance(number, str) else f"input {number}"
                raise DecodeError(f"{place}, column {columns[0]!r}: {error}.") from None
        if is_row and self.lacks(row):
            raise DecodeError(self.expected(row))
        return {**{k: row[k] for k in row if k not in joined}, **found} if found else row

    def whole_samples(self, inputs: Sequence[Input]) -> list[Mapping[str, Any]]:
        """Returns the inputs, or the rows of a table, as mappings with all fields.

        Raises:
          DecodeError: an input lacks a field or is not a mapping, or `inputs` is a single input
            instead of a list.
          InputError: a text of an input cannot be encoded as UTF-8; names the input.
        """
        if isinstance(inputs, str):
            raise DecodeError("inputs should be a list of strings, not a string: predict([text])")
        samples = enumerate(self.samples(inputs))
        return [self.whole_sample(number, value) for number, value in samples]

    def sample_of(self, value: Any, number: int = 0) -> Mapping[str, Any]:
        """Returns an input as a mapping by field; see `sample`."""
        if isinstance(value, Mapping):
            return self.sample(value, number)
        is_value = len(self.kinds) == 1 or isinstance(value, str | bytes | Path)
        return {next(iter(self.kinds)): value} if is_value else value

    def whole_sample(self, number: int, value: Input) -> Mapping[str, Any]:
        """Returns an input as a mapping with all fields; see `whole_samples`."""
        sample = self.sample_of(value, number)
        if not isinstance(sample, Mapping):
            raise DecodeError(
                f"input {number} is {value!r}, where a text or a mapping with the fields "
                f"{', '.join(self.kinds)} was expected."
            )
        if missing := [field for field in self.kinds if field not in sample]:
            raise DecodeError(
                f"input {number} has no {', '.join(missing)}; {self.problem!r} takes "
                f"the fields {self}. Give a mapping (in a file a JSON object, one a line)."
            )
        for name in self.kinds:
            _check_sound(number, sample[name])
        return sample

    def _found(self, name: str, row: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Returns the columns of a row that hold a field."""
        ways = (self.columns(name), (self.names.get(name, name),), (name,))
        return next((way for way in ways if all(one in row for one in way)), None)

    def lacks(self, row: Mapping[str, Any]) -> bool:
        """Returns True if a row has no column for some field."""
        return any(self._found(name, row) is None for name in self.kinds)

    def columns(self, name: str) -> tuple[str, ...]:
        """Returns the columns of a field."""
        own = self.names.get(name, name)
        if name in self.forms:
            return tuple(self.forms[name]["column"])
        return tuple(own.split(_BETWEEN))

    def expected(self, row: Mapping[str, Any]) -> str:
        """Returns the message for a row without the columns of all fields."""
        wanted = [column for name in self.kinds for column in self.columns(name)]
        return (
            f"the columns are {', '.join(map(repr, row)) or 'none'}; {self.problem!r} takes "
            f"{', '.join(map(repr, wanted))}. Name them so in the first row, or in the data frame."
        )

    def _rows_of_lists(self, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        columns = {name: list_of(held) for name, held in inputs.items()}
        lengths = {len(one) for one in columns.values() if one is not None}
        if None in columns.values() or len(lengths) != 1 or {*self.kinds.values()} != {"text"}:
            raise DecodeError(
                "inputs should be a list of mappings, not a mapping: predict([one]). A table is a "
                "data frame, or, for fields of text, a mapping of equally long lists."
            )
        values: list[Any] = list(columns.values())
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    def _value(self, name: str, kind: str, cells: Sequence[Any]) -> Any:
        """Returns the value of a field from the cells of its columns."""
        form = self.forms.get(name, {})
        if kind == "text":
            texts = [text_of_cell(cell) for cell in cells]
            return form.get("join", " ").join(filter(None, texts)) if texts[1:] else texts[0]
        if separator := form.get("split"):
            cells = [parts_of(one, separator) if isinstance(one, str) else one for one in cells]
        if kind == "numbers":
            parts = [one for cell in cells for one in (list_of(cell) or [cell])]
            numbers = [math.nan if is_empty(one) else float(one) for one in parts]
            if not all(map(math.isfinite, numbers)):
                raise ValueError(f"{parts} are no numbers")
            return numbers
        held = [list_of(cell) or ([] if is_empty(cell) else cell) for cell in cells]
        if len(held) == 1:
            return "" if is_empty(cells[0]) and kind in ("words", "labels") else held[0]
        return [one for part in held for one in (part if isinstance(part, list) else [part])]


def _check_sound(number: int, value: Any) -> None:
    """Raises InputError if a text, or a text of a list, contains an unpaired surrogate."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    for text in (one for one in texts if isinstance(one, str)):
        if match := SURROGATE.search(text):
            raise InputError(
                number,
                f"{text!r} has a lone surrogate at character {match.start() + 1}, "
                f"{match[0]!r}: it is no text that was read as UTF-8.",
            )


BEST = 5
"""Default number of labels returned with their probabilities."""

_DIGITS = 6  # decimals of probabilities: the precision of float32


def value_record(prediction: Prediction, target: str, best: int = BEST) -> dict[str, Any]:
    """Returns the predicted value of a target as a JSON record.

    The record has the `value`; the `probability`, if any; and the `probabilities` of the best
    labels, or, for tags, the probability of each word's tag.

    Args:
      prediction: prediction of an input.
      target: one of its targets.
      best: number of labels whose probabilities are included.
    """
    record: dict[str, Any] = {"value": prediction.values[target]}
    if target in prediction.probabilities:
        record["probability"] = round(prediction.probabilities[target], _DIGITS)
    scores = prediction.scores.get(target)
    if isinstance(scores, Mapping):
        first = list(scores.items())[:best]
        record["probabilities"] = {label: round(score, _DIGITS) for label, score in first}
    elif scores is not None:
        record["probabilities"] = [round(score, _DIGITS) for score in scores]
    return record


def words_record(
    tags: Sequence[str], value: str | Sequence[str], labels: Sequence[str], tokenizer: str = ""
) -> dict[str, Any]:
    """Returns the additional fields of tags: their `words`, and the `spans` that they mark.

    For a text that a tokenizer splits, `offsets` are the start and the end (exclusive) of each
    word in characters of the text, and each span has a `start` and an `end`.

    Args:
      tags: predicted tags.
      value: the tagged text or words.
      labels: all tags; the record has no `spans` if they do not mark spans.
      tokenizer: expression of a word of the problem's tokenizer; "" if it has none.
    """
    tokens = tokenize(value, tokenizer) if tokenizer and isinstance(value, str) else None
    words = words_of(value) if tokens is None else [token.text for token in tokens]
    record: dict[str, Any] = {"words": list(words)}
    if tokens is not None:
        record["offsets"] = [[token.start, token.end] for token in tokens]
    scheme = scheme_of(labels)
    if not scheme.letters:
        return record
    record["spans"] = []
    for span in scheme.spans([tag or "O" for tag in tags]):
        text = " ".join(words[span.first : span.last + 1])
        about = {"kind": span.kind, "first": span.first, "last": span.last, "text": text}
        if tokens is not None:
            start, end = tokens[span.first].start, tokens[span.last].end
            about |= {"text": value[start:end], "start": start, "end": end}
        record["spans"].append(about)
    return record


def prediction_record(
    prediction: Prediction, *, ids: bool = False, alignments: bool = False
) -> dict[str, Any]:
    """Returns an output as a JSON record: `value` and `score`, and each of several hypotheses.

    Args:
      prediction: prediction of a text.
      ids: if True, includes the `ids`.
      alignments: if True, includes the `alignment`: pairs of word indices, the input's first.
    """
    records = []
    for hypothesis in prediction.hypotheses:
        record: dict[str, Any] = {"value": hypothesis.text, "score": hypothesis.score}
        if ids:
            record["ids"] = list(hypothesis.ids)
        if alignments:
            record["alignment"] = [list(pair) for pair in hypothesis.alignment]
        records.append(record)
    several = {"hypotheses": records} if len(records) > 1 else {}
    return {**records[0], **several}


def attention_record(attention: Attention) -> dict[str, Any]:
    """Returns attention weights as a JSON record.

    It has the input words (`read`), the output words (`written`), and the `weights` of each output
    word over the input words.
    """
    return {
        "read": list(attention.read),
        "written": list(attention.written),
        "weights": [[round(weight, _DIGITS) for weight in row] for row in attention.weights],
    }
