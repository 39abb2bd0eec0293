"""A row's columns to the fields of a sample."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_torch.declaration.kinds import Value
from t2t_torch.declaration.schema import Column, nearest
from t2t_torch.errors import DataError
from t2t_torch.readers.text_file import split_at_blanks

WRITTEN_LIST = "[]"
"""What a declaration says for "split" where strings are lists as Python or JSON writes them."""

_FROM_THE_END = re.compile(r"-[1-9]\d*")
_IN_NO_WORD = re.compile(r"[ \t\r\n]")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_MAX_NUMBER = float(np.finfo(np.float32).max)  # numbers are stored in 32 bits
_SUM_TOLERANCE = 1e-3  # what a sum of probabilities may differ from 1; as features/label.py


class UnfitError(DataError):
    """A value is not what its field needs; the row is bad."""


class MissingColumnError(UnfitError):
    """A row has no such column.

    Attributes:
      wanted: the column.
      found: the columns that the row has.
    """

    def __init__(self, wanted: str, found: Sequence[str]) -> None:
        self.wanted = wanted
        self.found = tuple(found)
        # Of nested objects the inner names are told too; a row has a few, or it is the wrong file.
        super().__init__(f"there is no column {wanted!r}.{nearest(wanted, self.found[:100])}")


def picked(values: Mapping[str, Any], column: Column) -> list[Any]:
    """Returns what a row has in a field's columns.

    Raises:
      MissingColumnError: it has no such column.
    """
    found = []
    for name in column.column:
        if name in values:
            found.append(values[name])
        elif _FROM_THE_END.fullmatch(name) and -int(name) <= len(values):
            found.append(list(values.values())[int(name)])
        else:
            raise MissingColumnError(name, list(values))
    return found


def converted(value: Value, parts: Sequence[Any], column: Column) -> Any:
    """Returns a field's value, made of what a row has in the field's columns.

    Raises:
      UnfitError: it is not what the field holds.
    """
    if value is Value.PROBABILITIES and len(parts) > 1:
        parts = [dict(zip(column.column, parts, strict=True))]
    return _CONVERSIONS[value](parts, column)


def text(parts: Sequence[Any], column: Column) -> str:
    """Returns a text; several are joined, empty ones left out."""
    made = any_text(parts, column)
    if not made.strip():
        raise UnfitError("an empty text")
    return made


def any_text(parts: Sequence[Any], column: Column) -> str:
    """Returns a text, empty or not."""
    texts = [_text_of(part) for part in parts]
    return column.join.join(part for part in texts if part) if len(texts) > 1 else texts[0]


def texts(parts: Sequence[Any], column: Column) -> list[str]:
    """Returns a list of texts, one at least, none of them empty."""
    made = [_text_of(part) for part in _listed(parts, column)]
    if not made:
        raise UnfitError("an empty list, where texts were expected")
    if not all(part.strip() for part in made):
        raise UnfitError(f"an empty text, number {[bool(t.strip()) for t in made].index(False)}")
    return made


def words(parts: Sequence[Any], column: Column) -> list[str]:
    """Returns a list of words, one at least; a string is cut at its spaces and tabs."""
    made = [_text_of(part) for part in _listed(parts, column, at_blanks=True)]
    if not made:
        raise UnfitError("no words")
    for word in made:
        if not word or _IN_NO_WORD.search(word):
            raise UnfitError(f"{_short(word)} is no word: empty, or with a space")
    return made


def label(parts: Sequence[Any], column: Column) -> str:
    """Returns a label."""
    made = text(parts, column)
    if "\n" in made or "\r" in made:
        raise UnfitError(f"the label {_short(made)} holds a line break")
    return made


def labels(parts: Sequence[Any], column: Column) -> list[str]:
    """Returns labels, or none; blanks around those of one string are no part of them."""
    made = _listed(parts, column)
    if column.split is not None:
        made = [part.strip() if isinstance(part, str) else part for part in made]
        made = [part for part in made if part != ""]
    return [label([part], column) for part in made]


def numbers(parts: Sequence[Any], column: Column) -> list[float]:
    """Returns finite numbers."""
    made: list[float] = []
    for part in parts:
        held = _list_of(part) or [part]
        if isinstance(part, str) and column.split is not None:
            held = pieces(part, column.split)
        for number in held:
            made.append(number_of(number))
    return made


def pieces(text: str, separator: str) -> list[Any]:
    """Returns the parts of a list that is written as a string.

    Raises:
      UnfitError: it is not written as Python or JSON writes lists, where the separator says so.
    """
    if separator != WRITTEN_LIST:
        return text.split(separator)
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(text.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(found, list | tuple):
            return list(found)
    raise UnfitError(f"{_short(text)} is no list as Python or JSON writes it")


def number_of(value: Any) -> float:
    """Returns a finite number of 32 bits; true and 1_000 are none.

    Raises:
      UnfitError: it is no number, or is too great.
    """
    if isinstance(value, bool | np.bool_) or (isinstance(value, str) and "_" in value):
        raise UnfitError(f"{_short(value)} is no number")
    try:
        number = float(value)
    except OverflowError:  # of a whole number
        number = math.inf
    except (TypeError, ValueError):
        raise UnfitError(f"{_short(value)} is no number") from None
    if not math.isfinite(number):
        raise UnfitError(f"{_short(value)} is no finite number")
    if abs(number) > _MAX_NUMBER:
        raise UnfitError(f"{_short(value)} is too great: numbers are stored in 32 bits")
    return number


def answers(parts: Sequence[Any], column: Column) -> list[dict[str, Any]]:
    """Returns answers as {"text", "start"}; a string is one without a start, an empty one none."""
    made: list[dict[str, Any]] = []
    for part in _list_of(parts[0]) or ([parts[0]] if parts[0] else []):
        if isinstance(part, str):
            made.append({"text": part})
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            start = part.get("start", part.get("answer_start"))
            place = {} if start is None else {"start": _whole(start, "answer_start")}
            made.append({"text": part["text"], **place})
        else:
            raise UnfitError(f'{_short(part)} is no answer: {{"text", "start"}} was expected')
    return made


def located(found: Sequence[Mapping[str, Any]], context: str) -> list[dict[str, Any]]:
    """Returns answers with the place of each in the context, in characters.

    Raises:
      UnfitError: one is not there.
    """
    made = []
    for answer in found:
        start = answer["start"] if "start" in answer else context.find(answer["text"])
        end = start + len(answer["text"])
        if start < 0 or not answer["text"].strip() or context[start:end] != answer["text"]:
            where = f"at character {start} of" if "start" in answer else "in"
            raise UnfitError(f"the answer {_short(answer['text'])} is not {where} its context")
        made.append({"text": answer["text"], "start": start})
    return made


def image(parts: Sequence[Any], column: Column) -> Any:
    """Returns a picture's pixels."""
    pixels = np.asarray(parts[0])
    if pixels.ndim not in (2, 3) or pixels.dtype.kind not in "iu":
        raise UnfitError(f"no picture but {pixels.dtype} {pixels.shape}")
    if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 255):
        raise UnfitError("pixels are not from 0 to 255")
    return pixels.astype(np.uint8)


def probabilities(parts: Sequence[Any], column: Column) -> dict[str, float]:
    """Returns a probability for each label."""
    if not isinstance(parts[0], Mapping):
        raise UnfitError(f"{_short(parts[0])} is no mapping of labels to probabilities")
    made = {
        str(name): number_of(0.0 if value is None else value) for name, value in parts[0].items()
    }
    good = min(made.values(), default=-1.0) >= 0
    if not good or not math.isclose(sum(made.values()), 1.0, abs_tol=_SUM_TOLERANCE):
        raise UnfitError(f"{_short(made)} is no distribution: their sum is to be 1")
    return made


def gazetteer(parts: Sequence[Any], column: Column) -> dict[int, dict[str, float]]:
    """Returns by the number of a word, from 0, its labels and their weights.

    A value is a list with a mapping for each word, or PyText's list of {"tokenIdx", "features"},
    of which words without labels are left out; either may be written as JSON in a string.
    """
    held = parts[0]
    if isinstance(held, str):
        try:
            held = json.loads(held or "[]")
        except (ValueError, RecursionError):
            raise UnfitError(f"{_short(held)} is no JSON list") from None
    entries = [] if held is None else _list_of(held)
    if entries is None:
        raise UnfitError(f"{_short(held)} is no list with labels and weights for each word")
    made: dict[int, dict[str, float]] = {}
    following = 0
    for entry in entries:
        place, weights = following, entry
        if isinstance(entry, Mapping) and entry.keys() == {"tokenIdx", "features"}:
            place, weights = _whole(entry["tokenIdx"], "tokenIdx"), entry["features"]
        if place < 0:
            raise UnfitError(f"tokenIdx {place} is no place of a word: they count from 0")
        if not isinstance(weights, Mapping | None):
            raise UnfitError(f"{_short(weights)} is no mapping of labels to weights")
        following = max(following, place + 1)
        made[place] = {str(name): number_of(weight) for name, weight in (weights or {}).items()}
    return made


_CONVERSIONS: Mapping[Value, Callable[[Sequence[Any], Column], Any]] = {
    Value.TEXT: text,
    Value.ANY_TEXT: any_text,
    Value.TEXTS: texts,
    Value.WORDS: words,
    Value.TAGS: words,
    Value.LABEL: label,
    Value.LABELS: labels,
    Value.NUMBERS: numbers,
    Value.ANSWERS: answers,
    Value.TREE: text,
    Value.IMAGE: image,
    Value.PROBABILITIES: probabilities,
    Value.GAZETTEER: gazetteer,
}


def _text_of(value: Any) -> str:
    """A text as it stands; numbers as they are written, words with spaces between."""
    if isinstance(value, str):
        return value
    if value is None or value != value:  # NaN: what data frames have for nothing
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | np.number):
        return str(value)
    held = _list_of(value)
    if held is not None and all(isinstance(part, str) for part in held):
        return " ".join(held)
    raise UnfitError(f"{_short(value)} is no text")


def _list_of(value: Any) -> list[Any] | None:
    if isinstance(value, np.ndarray):
        return list(value.tolist())
    return list(value) if isinstance(value, list | tuple) else None


def _listed(parts: Sequence[Any], column: Column, *, at_blanks: bool = False) -> list[Any]:
    """The parts of all columns; those of a string are separated as the declaration says."""
    if len(parts) > 1:
        return [one for part in parts for one in _listed([part], column, at_blanks=at_blanks)]
    held = _list_of(parts[0])
    if held is not None:
        return held
    if parts[0] is None:
        return []
    if column.split is not None:
        return pieces(_text_of(parts[0]), column.split)
    if at_blanks:
        return split_at_blanks(_text_of(parts[0]))
    raise UnfitError(
        f"{_short(parts[0])} is one text, where a list was expected; say what separates its parts: "
        f'{{"column": "{column.column[0]}", "split": ","}}'
    )


def _whole(value: Any, what: str) -> int:
    """A whole number, also one that is written as a string or as 6.0."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    raise UnfitError(f"{what} {_short(value)} is no whole number")


def _short(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= 80 else told[:77] + "..."
