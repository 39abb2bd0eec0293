"""Facts about the columns of a file, computed from their values.

Facts that are a matter of degree are scores from 0 to 1; names only add a little.
"""

from __future__ import annotations

import functools
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from t2t_torch.declaration.files import split_of
from t2t_torch.declaration.rows import OFF, ON, UnfitError, number_of
from t2t_torch.errors import DataError
from t2t_torch.readers.detection import DetectedFormat
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.idx import AUDIO, kind_of
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.runtime.prediction import WRITTEN_LIST, is_empty, parts_of
from t2t_torch.text.tags import SCHEME_TAG
from t2t_torch.text.tree import parse_tree

MAX_ROWS = 50_000
"""Maximum number of inspected rows."""

MAX_LABELS = 200
"""Maximum number of different labels of a column."""

LABEL_NAMES = (
    "label labels class classes category intent target queue sentiment emotion judgment judgement "
    "topic tag tags type gold polarity stance verdict"
)
RATING_NAMES = "overall score rating ratings stars star grade"
_SAMPLE = 300  # rows from which relations between columns are computed
_MANY = 3000  # rows whose lengths are compared
_FEWER = 1000  # rows whose tags are compared with their words
_SURE = 0.9  # minimum fraction of values that must agree
_FEW = 20  # maximum distinct integers of a label column
_OFTEN = 200  # rows of each value that is a label though it is a text
_FEW_NAMED = 20  # rows of which a column with a label's name may have different labels in all
_MISSING = frozenset(("nan", "null", "none", "n/a", "na"))  # among numbers
_COUNTED = 0.98  # correlation of a text's length with a number that is it
_PARSED = 50  # values parsed to detect trees
_DATE = re.compile(
    r"(?:[A-Za-z]{3,9},? )?(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}"
    r"|[A-Za-z]{3,9} \d{1,2},? \d{4}|[A-Za-z]{3} [A-Za-z]{3} \d{1,2}|\d{1,2}:\d{2}(?::\d{2})?)"
    r"\.?(?:[T ,]+\d{1,2}:\d{2}.{0,24})?"
)
_MONEY = re.compile(
    r"[^\w\s]?\s?[+-]?\d{1,3}(?:[ .,']?\d{3})*(?:[.,]\d{1,2})?\s?(?:[^\w\s]|[A-Z]{3})?"
)
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[\w.+-]+@[\w-]+\.[\w.]+|[\w./\\-]*[/\\]\S+\.\w{2,5}")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_QUANTITIES = (
    "price cost amount value salary income revenue sales score rating views votes likes count "
    "quantity weight length duration grade"
)
_ABOUT_ROWS = (
    "author authors user username reviewer profile date time timestamp datetime created updated "
    "modified published url link href email phone filename filepath file path licence license "
    "attribution copyright annotator worker location timezone lang language split ip device golden "
    "state judgments"
)
_DERIVED = re.compile(r"(?P<base>.+?)[ :_.-]+(?:confidence|conf|gold|score|prob\w*|id|parse|raw)")


@dataclass(frozen=True)
class Inspected:
    """An inspected column.

    Attributes:
      name: the column's name.
      rows: its value in each row; None if empty.
    """

    name: str
    rows: Sequence[Any]

    @functools.cached_property
    def values(self) -> Sequence[Any]:
        """The non-empty values, in order."""
        return [value for value in self.rows if value is not None]

    @property
    def empty(self) -> int:
        """The number of rows with an empty value."""
        return len(self.rows) - len(self.values)

    @property
    def filled(self) -> float:
        """The fraction of rows with a value."""
        return len(self.values) / max(1, len(self.rows))

    @property
    def distinct(self) -> int:
        """The number of distinct values."""
        return len(self.counts)

    @functools.cached_property
    def counts(self) -> Counter[str]:
        """The number of occurrences of each value, as text."""
        return Counter(map(str, self.values))

    @functools.cached_property
    def is_plain(self) -> bool:
        """True if all values are strings or numbers."""
        return bool(self.values) and all(isinstance(v, str | int | float) for v in self.values)

    @functools.cached_property
    def mean_words(self) -> float:
        """The mean number of words per value; of scripts without spaces, of pairs of characters."""
        some = [str(value) for value in self.values[:_SAMPLE]]
        words = sum(len(one.split()) + len(_UNSPACED.findall(one)) / 2 for one in some)
        return words / max(1, len(some))

    @property
    def is_unspaced(self) -> bool:
        """True for texts of a script without spaces."""
        return any(len(_UNSPACED.findall(str(one))) > 4 for one in self.values[:20])

    @functools.cached_property
    def mean_characters(self) -> float:
        """The mean number of characters per value."""
        return sum(len(value) * n for value, n in self.counts.items()) / max(1, len(self.values))

    @functools.cached_property
    def is_number(self) -> bool:
        """True if all values are numbers, also as strings."""
        return self.is_plain and all(_number(value) is not None for value in self.values)

    @property
    def is_whole(self) -> bool:
        """True if all values are integers."""
        numbers = [_number(value) for value in self.values]
        return all(number is not None and number.is_integer() for number in numbers)

    @functools.cached_property
    def is_binary(self) -> bool:
        """True if the values are 0 and 1, or true and false."""
        if not self.is_plain or self.distinct != 2:
            return False
        kinds = {value.lower() for value in self.counts}
        both = kinds <= {*ON, *OFF} and not kinds.isdisjoint(ON)
        return both and not kinds.isdisjoint(OFF)

    @functools.cached_property
    def is_date(self) -> bool:
        """True if nearly all values are dates or times."""
        return not self.is_number and self._fit(_DATE.fullmatch)

    @functools.cached_property
    def is_money(self) -> bool:
        """True if nearly all values are amounts of money that are not plain numbers."""
        return not self.is_number and self._fit(
            lambda value: not value.isdecimal() and _MONEY.fullmatch(value)
        )

    @functools.cached_property
    def is_address(self) -> bool:
        """True if nearly all values are addresses of the web, of mail or of files."""
        return self._fit(_ADDRESS.fullmatch)

    def _fit(self, fits: Callable[[str], Any]) -> bool:
        """Returns whether nearly all values are texts or numbers that fit."""
        if not self.is_plain:
            return False
        fitting = sum(n for value, n in self.counts.items() if fits(value.strip()))
        return fitting >= _SURE * len(self.values)

    @functools.cached_property
    def splits(self) -> Mapping[str | None, list[str]]:
        """By split, the values that name it, if most name that of training or another one."""
        found: dict[str | None, list[str]] = {}
        is_label = self.is_named(LABEL_NAMES) or not self.is_plain or self.distinct > _FEW
        for value in () if is_label else self.counts:
            found.setdefault(split_of(value, whole=True), []).append(value)
        others = sum(self.counts[value] for value in found.get(None, ()))
        are_most = others <= (1 - _SURE) * len(self.values)
        return found if are_most and len(found.keys() - {None}) > 1 and "train" in found else {}

    @functools.cached_property
    def is_sound(self) -> bool:
        """True if the values are paths of sounds, as texts or as files of a folder."""
        some = self.values[:_PARSED]
        are_files = all(isinstance(one, Path) and kind_of(one) == "audio" for one in some)
        return bool(some) and (are_files or self._fit(lambda value: value.lower().endswith(AUDIO)))

    @functools.cached_property
    def is_picture(self) -> bool:
        """True if the values are pictures, as arrays or as the bytes of files."""
        some = self.values[:_PARSED]
        return bool(some) and all(
            isinstance(one, bytes) or (isinstance(one, np.ndarray) and one.ndim in (2, 3))
            for one in some
        )

    def is_named(self, names: str) -> bool:
        """Returns whether a word of the column's name is among some names."""
        return not set(names.split()).isdisjoint(self.words_of_name)

    @functools.cached_property
    def words_of_name(self) -> Sequence[str]:
        """The words of the column's name, in lower case."""
        spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).lower()
        return [word for word in re.split(r"[\W_\d]+", spaced) if word]

    @functools.cached_property
    def boilerplate(self) -> float:
        """The fraction of the words that are in nearly all values, as in notes of licences."""
        some = [str(value).split() for value in self.values[:_SAMPLE]]
        if len(some) < _FEW:
            return 0.0
        inside = Counter(word for words in some for word in set(words))
        usual = {word for word, count in inside.items() if count >= _SURE * len(some)}
        total = sum(map(len, some))
        return sum(word in usual for words in some for word in words) / max(1, total)

    @property
    def is_about_rows(self) -> bool:
        """True if the values or the name are metadata: when, where or by whom a row was written."""
        named = self.is_named(_ABOUT_ROWS) or self.name.startswith("_")
        return self.is_date or self.is_address or named

    @functools.cached_property
    def is_identity(self) -> bool:
        """True if the values only identify rows."""
        if self.is_named("unnamed"):
            return self.is_number
        named = self.is_named("id ids uuid guid index key idx")
        named = named or (self.is_number and bool(re.search(r"[a-z]{3}id\d?$", self.name.lower())))
        if not self.is_plain or self.distinct < len(self.values):
            is_kind = self.is_named(LABEL_NAMES) or not (self.is_number and self.distinct > _FEW)
            return named and self.mean_words < 2 and not (self.repeats and is_kind)
        if self.is_number and not named:
            return self.is_whole and not self.is_named(_QUANTITIES)
        return named or all(_is_code(str(value)) for value in self.values)

    @functools.cached_property
    def repeats(self) -> bool:
        """True if there are at least two values, few enough to be labels, and each repeated."""
        few = self.distinct <= (_FEW if self.is_number else MAX_LABELS)
        return self.distinct >= 2 and few and self.distinct * 2 <= len(self.values)

    @property
    def is_often(self) -> bool:
        """True for values each of which is on hundreds of rows, as labels of many words are."""
        return self.distinct * _OFTEN <= len(self.values)

    @functools.cached_property
    def label(self) -> float:
        """The fit of the values as labels: few, short, repeated, and in every row."""
        if not self.is_plain or self.is_date or self.is_money or not self.values or self.splits:
            return 0.0
        if (self.is_number and not self.is_whole) or self.written_list:
            return 0.0
        is_named = self.is_named(LABEL_NAMES)
        longest = max(map(len, self.counts))
        if self.repeats and ((self.mean_words <= 6 and longest <= 60) or self.is_often):
            score = 0.9 - 0.05 * (self.mean_words > 3) - 0.1 * (self.distinct > 50)
            score -= 0.6 * self.distinct / len(self.values)
        elif is_named and self.mean_words <= 4 and longest <= 60:
            few = self.distinct < _SURE * len(self.values) and self.distinct <= MAX_LABELS
            score = 0.7 if few or len(self.values) <= _FEW_NAMED else 0.15
        else:
            return 0.0
        most = max(self.counts.values()) / len(self.values)
        score -= 0.2 * (most > 0.98 and self.distinct > 1) + 0.5 * (1 - self.filled)
        if self.is_number and not self.is_binary and not is_named:
            score += 0.05 * self.is_named(RATING_NAMES) - 0.03
        if self.is_identity or self.name.startswith("_"):
            score -= 0.3
        elif self.is_about_rows:
            score -= 0.1 if is_named else 0.3
        if not self.is_number and all(any(map(str.isdigit, value)) for value in self.counts):
            score -= 0.12
        return max(0.0, min(1.0, score + 0.08 * is_named + 0.02 * _named_as_label(self)))

    @functools.cached_property
    def text(self) -> float:
        """The fit of the values as texts: words that differ from row to row."""
        other = self.is_number or self.is_date or self.is_money or self.is_address or self.is_tree
        if not self.is_plain or other or self.written_list or self.is_sound or self.has_scheme:
            return 0.0
        if (self.distinct < 2 and len(self.values) > 1) or self.is_identity:
            return 0.1
        fraction = self.distinct / max(1, len(self.values))
        if self.mean_words >= 2:
            score = min(1.0, 0.8 + self.mean_words / 40)
        elif sum(map(_is_code, itertools.islice(self.counts, _SAMPLE))) * 3 > min(
            self.distinct, _SAMPLE
        ):
            return 0.05
        else:
            score = 0.45 if fraction > 0.5 or self.distinct > MAX_LABELS else 0.3
        if self.label > 0.5 and not (self.mean_words > 4 and self.distinct > _FEW):
            score *= 0.4
        elif self.is_often:
            score *= 0.3
        if self.is_named(LABEL_NAMES):
            score *= 0.6
        return score * (0.5 + 0.5 * self.filled)

    @functools.cached_property
    def number(self) -> float:
        """The fit of the values as quantities to predict."""
        if not self.is_number or self.is_identity or self.distinct < 2:
            return 0.0
        is_named = self.is_named(_QUANTITIES)
        score = 0.75 if not self.is_whole or (is_named and self.distinct > _FEW) else 0.55
        repeats = self.distinct * 2 <= len(self.values)
        score += 0.1 * (repeats and not self.is_whole and self.distinct <= _FEW)  # grades, as 5.5
        score += 0.15 * is_named - 0.3 * (self.is_about_rows or self.is_binary)
        return max(0.0, score - 0.5 * (1 - self.filled))

    @functools.cached_property
    def is_list(self) -> bool:
        """True if all values are lists of strings."""
        return self._are_lists(str)

    @functools.cached_property
    def is_list_of_ids(self) -> bool:
        """True if all values are lists of integers."""
        return self._are_lists(int)

    def _are_lists(self, kind: type) -> bool:
        some = self.values
        lists = all(isinstance(value, list) for value in some)
        return bool(some) and lists and all(isinstance(one, kind) for v in some for one in v)

    @functools.cached_property
    def written_list(self) -> bool:
        """True if all values are lists of strings or integers in Python or JSON notation."""
        if not self.is_plain or not all(str(v).strip().startswith("[") for v in self.counts):
            return False
        try:
            held = [one for value in self.counts for one in parts_of(value, WRITTEN_LIST)]
        except ValueError:
            return False
        return bool(held) and all(isinstance(one, str | int) for one in held)

    @functools.cached_property
    def tokens(self) -> Sequence[Sequence[str] | None]:
        """The items of each row's list, or the words of its text; None for other values."""
        if self.written_list:
            return [v and list(map(str, parts_of(str(v), WRITTEN_LIST))) for v in self.rows]
        if self.is_list or self.is_list_of_ids:
            return [v and list(map(str, v)) for v in self.rows]
        texts = self.is_plain and not self.is_number
        return [v.split() if texts and isinstance(v, str) else None for v in self.rows]

    @property
    def is_listed(self) -> bool:
        """True if the values are lists, also in Python or JSON notation."""
        return self.is_list or self.is_list_of_ids or self.written_list

    @functools.cached_property
    def vocabulary(self) -> Counter[str]:
        """The number of occurrences of each item or word."""
        return Counter(token for row in self.tokens for token in row or ())

    @functools.cached_property
    def has_scheme(self) -> bool:
        """True if the items are tags of spans, such as O, B-PER and I-PER."""
        some = [token for row in self.tokens[:_PARSED] for token in row or ()]
        if not all(map(SCHEME_TAG.fullmatch, some)):
            return False
        kinds = self.vocabulary.keys() - {"O"}
        return bool(kinds) and all(map(SCHEME_TAG.fullmatch, kinds))

    @functools.cached_property
    def is_tree(self) -> bool:
        """True if the values are bracketed trees."""
        return self.is_plain and all(_is_tree(str(value)) for value in self.values[:_PARSED])

    @functools.cached_property
    def separator(self) -> tuple[str, float]:
        """The separator of several labels in a cell, and how well its parts look like labels.

        Parts of labels recombine: there are fewer than there are values.
        """
        if not self.is_plain or self.is_number or self.is_tree or not self.values:
            return "", 0.0
        if self.written_list:
            lengths = {len(row) for row in self.tokens if row is not None}
            is_set = len(self.vocabulary) <= MAX_LABELS and len(lengths) > 1
            return WRITTEN_LIST, 0.9 if is_set else 0.3
        for mark in ("|", ";", ",", "#", "/", " "):
            several = sum(n for value, n in self.counts.items() if mark in value)
            if several * 10 < len(self.values):
                continue
            held = [str(value).split(mark) for value in self.values]
            kinds = Counter(label.strip() for labels in held for label in labels)
            short = all(len(label.split()) <= 3 for label in kinds)
            repeated = len(kinds) * 4 <= len(held) or (mark == "|" and len(kinds) * 2 <= len(held))
            if not short or not 2 <= len(kinds) <= MAX_LABELS:
                continue
            is_set = self.is_named(LABEL_NAMES) and several < 0.95 * len(held)
            if mark == " " and not (is_set and len(kinds) * 3 <= self.distinct):
                continue  # names of several words, or texts
            if len(kinds) < self.distinct and repeated:
                return mark, 0.9 if mark != "/" else 0.5
            if repeated and len(kinds) <= self.distinct * 2:
                return mark, 0.4
        return "", 0.0


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file.

    Attributes:
      columns: by name.
      rows: number of inspected rows.
      bad: reasons why rows cannot be read.
      path: the file.
    """

    columns: Mapping[str, Inspected]
    rows: int
    bad: BadRecords
    path: Path = Path()

    def __iter__(self) -> Iterator[Inspected]:
        """Yields the columns that are not empty."""
        return iter([one for one in self.columns.values() if one.values])

    def best(self, role: str, least: float = 0.2) -> list[Inspected]:
        """Returns the columns whose score of a fact is high enough, the best first."""
        found = [one for one in self if getattr(one, role) >= least]
        return sorted(found, key=lambda one: -getattr(one, role))

    @functools.cached_property
    def derived(self) -> Mapping[str, str]:
        """By column that another one determines, the other: its parse or confidence."""
        found: dict[str, str] = {}
        for one in self:
            if (base := _DERIVED.fullmatch(one.name)) and base["base"] in self.columns:
                found[one.name] = base["base"]
                continue
            same = [o for o in self if o.is_plain and one.is_plain and o.rows == one.rows]
            equal = [max(same, key=_named_as_label)] if len(same) > 1 else []
            equal = [other for other in equal if other is not one]
            others = itertools.chain(equal, (other for other in self if is_derived(one, other)))
            if other := next((other.name for other in others if other.name not in found), ""):
                found[one.name] = other
        return found

    @functools.cached_property
    def twins(self) -> Mapping[str, str]:
        """By column, the first with the same values; a list of one item is as the item."""
        first: dict[tuple[str, ...], str] = {}
        found = {}
        for one in self:
            if one.is_plain or one.is_list:
                alone = (v[0] if isinstance(v, list) and len(v) == 1 else v for v in one.rows)
                found[one.name] = first.setdefault(tuple(map(str, alone)), one.name)
        return found

    def information(self, one: Inspected) -> float:
        """Returns how much an unused column would be missed, from 0 to 1."""
        if one.is_identity or one.name in self.derived or one.filled < 0.1:
            return 0.0
        if one.is_plain and one.distinct < 2:
            return 0.0
        if one.is_listed or one.is_tree or one.is_picture or one.is_sound:
            return 1.0
        # A name of what a row is about repeats.
        novel = min(1.0, 1.5 * one.distinct / len(one.values)) * (0.2 if one.is_about_rows else 1.0)
        return max(one.text * novel, 0.6 * one.label, 0.3 * one.number)


def is_derived(one: Inspected, other: Inspected) -> bool:
    """Returns whether each value of a column follows from that of another one.

    A tree has the words of a text, a text is a list of words joined, a label is the first of a
    list, the majority of its votes, the number of another label, or its part before a colon, and a
    number is that of the words or characters of a text.
    """
    is_label = (bool(one.label) or one.is_list) and bool(other.label)
    counts = one.number > 0 and other.text > 0.5
    if one is other or not (one.is_tree or (one.is_plain and other.is_list) or is_label or counts):
        return False
    pairs = list(zip(one.rows[:_SAMPLE], other.rows[:_SAMPLE], strict=True))
    pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(pairs) < 2:
        return False
    some = pairs[:_PARSED]
    if counts and not is_label:
        numbers = [number_of(a) for a, _ in pairs]
        sizes = zip(*((len(str(b).split()), len(str(b))) for _, b in pairs), strict=True)
        return any(
            min(len(set(numbers)), len(set(size))) > 2
            and statistics.correlation(numbers, size) > _COUNTED
            for size in sizes
        )
    if one.is_tree:
        is_text = other.is_plain and not other.is_tree
        return is_text and all(
            _letters(parse_tree(str(a)).words) == _letters([str(b)]) for a, b in some
        )
    if one.is_plain and other.is_list:
        words = all(_letters([str(a)]) == _letters(b) for a, b in some)
        return not one.is_number and (words or all(b and str(a) == b[0] for a, b in pairs))
    if one.is_list:
        votes = sum(Counter(a).most_common(1)[0][0] == str(b) for a, b in pairs if a)
        return votes >= 0.8 * len(pairs) and one.vocabulary.keys() <= other.counts.keys()
    if one.is_number and not other.is_number:
        kinds = {(str(a), str(b)) for a, b in pairs}
        return len(kinds) == len({a for a, _ in kinds}) == len({b for _, b in kinds}) > 1
    coarser = one.distinct < other.distinct
    return coarser and all(bool(re.match(re.escape(str(a)) + r"[:/.]|$", str(b))) for a, b in pairs)


def _named_as_label(one: Inspected) -> int:
    return len(set(LABEL_NAMES.split()) & set(one.words_of_name))


def _letters(words: Iterable[str]) -> str:
    """Returns texts without blanks, brackets and the escapes of treebanks."""
    return re.sub(r"[\s()\[\]{}]|-[LR][RSC]B-", "", "".join(words))


def _units(*columns: Inspected) -> list[Sequence[Sequence[str] | None]]:
    """Returns the words of the first rows; of scripts without spaces, the characters."""
    rows = [one.tokens[:_SAMPLE] for one in columns]
    if not any(one.is_unspaced for one in columns):
        return rows
    return [[row and list("".join(row)) for row in own] for own in rows]


def overlap(one: Inspected, other: Inspected) -> float:
    """Returns how similar the words of two texts of a row are, beyond texts of different rows."""
    pairs = [(set(a), set(b)) for a, b in zip(*_units(one, other), strict=True) if a and b]
    if len(pairs) < 2:
        return 0.0
    same = [len(a & b) / len(a | b) for a, b in pairs]
    shifted = [len(a & b) / len(a | b) for (a, _), (_, b) in itertools.pairwise(pairs)]
    return sum(same) / len(same) - sum(shifted) / len(shifted)


def shared_words(one: Inspected, other: Inspected) -> float:
    """Returns the fraction of running words that two columns share; small for two languages."""
    first, second = (
        Counter(unit for row in rows for unit in row or ()) for rows in _units(one, other)
    )
    total = min(first.total(), second.total())
    return sum((first & second).values()) / total if total else 0.0


def aligned(one: Inspected, other: Inspected) -> float:
    """Returns the fraction of the first rows in which two columns have as many items."""
    rows = zip(one.tokens[:_MANY], other.tokens[:_MANY], strict=True)
    pairs = [(a, b) for a, b in rows if a or b]
    equal = sum(a is not None and b is not None and len(a) == len(b) for a, b in pairs)
    return equal / len(pairs) if pairs else 0.0


def determined(words: Inspected, tags: Inspected) -> float:
    """Returns the fraction of repeated words that have the usual tag of their word."""
    held: dict[str, Counter[str]] = {}
    for row, its in zip(words.tokens[:_FEWER], tags.tokens[:_FEWER], strict=True):
        for word, tag in zip(row or (), its or (), strict=False):
            held.setdefault(word, Counter())[tag] += 1
    repeated = [one for one in held.values() if one.total() > 1]
    usual = sum(max(one.values()) for one in repeated)
    return usual / max(1, sum(one.total() for one in repeated))


def first_rows(
    path: Path, detected: DetectedFormat, bad: BadRecords, most: int | None
) -> list[dict[str, Any]]:
    """Returns the values of the first rows of a file; of all rows without a maximum."""
    records = open_records(path, format=detected.format, bad=bad, options=detected.options)
    return [record.values for record in itertools.islice(records, most)]


def inspect(path: Path, detected: DetectedFormat) -> FileColumns:
    """Inspects the first `MAX_ROWS` rows of a file.

    Raises:
      DataError: the file cannot be read, or has no rows.
    """
    bad = BadRecords("skip")
    rows = first_rows(path, detected, bad, MAX_ROWS)
    if not rows:
        why = f": {bad.listed[0]}" if bad.listed else ""
        raise DataError(f"{path} has no row that can be read{why}.")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _inspect(name, [row.get(name) for row in rows]) for name in names}
    return FileColumns(columns, len(rows), bad, path)


def _inspect(name: str, values: Sequence[Any]) -> Inspected:
    # Small arrays are lists.
    values = [v.tolist() if isinstance(v, np.ndarray) and v.ndim == 1 else v for v in values]
    lists = [value for value in values if isinstance(value, list)]
    if lists and all(len(one) == 1 and isinstance(one[0], str) for one in lists):
        named = Inspected(name, []).is_named(LABEL_NAMES)  # of one label, as Doccano writes it
        values = [one[0] if named and isinstance(one, list) else one for one in values]
    empty = [is_empty(v) or (isinstance(v, str) and not v.strip()) for v in values]
    missing = [
        no or str(v).strip().lower() in _MISSING for v, no in zip(values, empty, strict=True)
    ]
    numbers = [_number(v) is not None for v, no in zip(values, missing, strict=True) if not no]
    empty = missing if numbers and all(numbers) else empty
    return Inspected(name, [None if no else v for v, no in zip(values, empty, strict=True)])


def _number(value: Any) -> float | None:
    try:
        return number_of(value)
    except UnfitError:
        return None


def _is_code(text: str) -> bool:
    """Returns whether a text is one word of Latin letters and digits, with a digit or a mark."""
    return " " not in text and text.isascii() and not text.isalpha()


def _is_tree(text: str) -> bool:
    if not text.lstrip().startswith(("[", "(")):
        return False
    try:
        return len(parse_tree(text).words) > 0
    except DataError:
        return False
