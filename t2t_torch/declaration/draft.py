"""Draft of a declaration for inspected files."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.declaration.detect_format import (
    Neighbours,
    Sniffed,
    check_unpacked,
    neighbours,
    sniff,
)
from t2t_torch.declaration.problem import problem_of
from t2t_torch.declaration.rows import WRITTEN_LIST, UnfitError, located, number_of, pieces
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.formats import format_of, open_records
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.text.tree import parse_tree

# Content of a file's columns, inferred from their values.


MAX_ROWS = 50_000
"""Maximum number of inspected rows."""

_MAX_LABELS = 200
_SURE = 0.9  # minimum fraction of values that must agree
_FEW = 20  # maximum distinct integers of a label column
_DATE = re.compile(
    r"(?:[A-Za-z]{3,9},? )?(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}"
    r"|[A-Za-z]{3,9} \d{1,2},? \d{4})\.?(?:[T ,]+\d{1,2}:\d{2}.{0,24})?"
)
_MONEY = re.compile(
    r"[^\w\s]?\s?[+-]?\d{1,3}(?:[ .,']?\d{3})*(?:[.,]\d{1,2})?\s?(?:[^\w\s]|[A-Z]{3})?"
)
_QUANTITIES = (
    "price cost amount value salary income revenue sales score rating views votes likes count "
    "quantity weight length duration age size"
)
_ABOUT_ROWS = (
    "author authors user username date time timestamp datetime created updated modified published "
    "url link href email phone filename filepath"
)
_PARSED = 50  # values parsed to detect trees


@dataclass(frozen=True)
class Look:
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
    def distinct(self) -> int:
        """The number of distinct values."""
        return len(self.counts)

    @functools.cached_property
    def counts(self) -> Counter[str]:
        """The number of occurrences of each value, as text."""
        return Counter(map(str, self.values))

    @functools.cached_property
    def is_list(self) -> bool:
        """True if all values are lists of strings."""
        return bool(self.values) and all(
            isinstance(value, list) and all(isinstance(one, str) for one in value)
            for value in self.values
        )

    @functools.cached_property
    def is_plain(self) -> bool:
        """True if all values are strings or numbers."""
        return bool(self.values) and all(isinstance(v, str | int | float) for v in self.values)

    @functools.cached_property
    def mean_words(self) -> float:
        """The mean number of words per value."""
        return sum(len(str(value).split()) for value in self.values) / max(1, len(self.values))

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
    def is_date(self) -> bool:
        """True if nearly all values are dates, with or without times."""
        return self._fit(_DATE)

    @functools.cached_property
    def is_money(self) -> bool:
        """True if nearly all values are amounts of money that are not plain numbers."""
        return not self.is_number and self._fit(_MONEY)

    def _fit(self, pattern: re.Pattern[str]) -> bool:
        if not self.is_plain:
            return False
        fitting = sum(n for value, n in self.counts.items() if pattern.fullmatch(value.strip()))
        return fitting >= _SURE * len(self.values)

    def is_named(self, names: str) -> bool:
        """Returns whether a word of the column's name is among some names."""
        spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).lower()
        return not set(names.split()).isdisjoint(re.split(r"[\W_\d]+", spaced))

    @property
    def is_about_rows(self) -> bool:
        """True if the values or the name are metadata: when, where or by whom a row was written."""
        return self.is_date or self.is_named(_ABOUT_ROWS)

    @functools.cached_property
    def is_label(self) -> bool:
        """True if the values look like labels: few, short, and each repeated."""
        if not self.is_plain or self.is_date or self.distinct < 2 or self.mean_words > 6:
            return False
        if self.is_number:
            return self.is_whole and self.distinct <= _FEW and self.distinct * 2 <= len(self.values)
        few = self.distinct <= _MAX_LABELS and self.distinct * 2 <= len(self.values)
        return few and max(map(len, self.counts)) <= 60

    @functools.cached_property
    def is_text(self) -> bool:
        """True if the values look like texts."""
        several = self.mean_words >= 2 or self.distinct > _MAX_LABELS
        other = self.is_number or self.is_label or self.is_tree or self.is_date or self.is_money
        return self.is_plain and several and not other and not self.is_written_list

    @functools.cached_property
    def is_written_list(self) -> bool:
        """True if all values are lists of strings in Python or JSON notation."""
        if not self.is_plain or not all(str(v).strip().startswith("[") for v in self.counts):
            return False
        try:
            held = [one for value in self.counts for one in pieces(value, WRITTEN_LIST)]
        except UnfitError:
            return False
        return bool(held) and all(isinstance(one, str) for one in held)

    @functools.cached_property
    def is_code(self) -> bool:
        """True if all values are single ASCII words: names, addresses, codes."""
        return self.is_plain and all(v.isascii() and len(v.split()) == 1 for v in self.counts)

    @functools.cached_property
    def is_identity(self) -> bool:
        """True if the values only identify rows."""
        if self.is_named("unnamed"):
            return self.is_number
        named = self.is_named("id uuid guid index key")
        if not self.is_plain or self.distinct < len(self.values):
            return named and self.mean_words < 2 and not self.is_label
        if self.is_number and not named:
            return self.is_whole and not self.is_named(_QUANTITIES)
        return named or _codes(self.values)

    @functools.cached_property
    def is_tree(self) -> bool:
        """True if the values are bracketed trees."""
        first = self.values[:_PARSED]
        return self.is_plain and all(_is_tree(str(value)) for value in first)

    def parts(self) -> str | None:
        """The separator of labels, if the values look like several labels each."""
        if not self.is_plain or self.is_number:
            return None
        if self.is_written_list:
            return WRITTEN_LIST
        for mark in ("|", ";", ","):
            held = [str(value).split(mark) for value in self.values]
            several = sum(len(labels) > 1 for labels in held)
            kinds = {label.strip() for labels in held for label in labels}
            short = all(len(label.split()) <= 3 for label in kinds)
            fewer = len(kinds) < self.distinct or len(kinds) * 4 <= len(held)
            if several * 10 >= len(held) and short and fewer and 2 <= len(kinds) <= _MAX_LABELS:
                return mark
        return None


@dataclass(frozen=True)
class Table:
    """The columns of a file.

    Attributes:
      columns: by name.
      rows: number of inspected rows.
      bad: reasons why rows cannot be read.
      first: the first row's values.
    """

    columns: Mapping[str, Look]
    rows: int
    bad: BadRecords
    first: Mapping[str, Any]


def look(path: Path, sniffed: Sniffed) -> Table:
    """Inspects the first `MAX_ROWS` rows of a file.

    Raises:
      DataError: the file cannot be read, or has no rows.
    """
    bad = BadRecords("skip")
    records = open_records(path, format=sniffed.format, bad=bad, options=sniffed.options)
    rows = [record.values for record in itertools.islice(records, MAX_ROWS)]
    if not rows:
        raise DataError(f"{path} has no row that can be read{_why(bad)}.")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _look(name, (row.get(name) for row in rows)) for name in names}
    return Table(columns, len(rows), bad, rows[0])


def _look(name: str, values: Iterable[Any]) -> Look:
    return Look(name, [None if _is_empty(value) else value for value in values])


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _why(bad: BadRecords) -> str:
    return f": {bad.listed[0]}" if bad.listed else ""


def _number(value: Any) -> float | None:
    try:
        return number_of(value)
    except UnfitError:
        return None


def _codes(values: Sequence[Any]) -> bool:
    """Returns whether all values are single words with digits."""
    return all(
        " " not in str(value) and any(character.isdigit() for character in str(value))
        for value in values
    )


def _is_tree(text: str) -> bool:
    if not text.lstrip().startswith(("[", "(")):
        return False
    try:
        return len(parse_tree(text).words) > 0
    except DataError:
        return False


# Inference of the problem kind from the columns of a file.


_LABEL_NAMES = "label class category intent target queue sentiment judgment topic tag type gold"
_TEXT_NAMES = "text body sentence content message utterance review question inputs input"
_HEADING_NAMES = "title subject headline heading summary name"
_TOLD = 5  # maximum column names listed in a message
_MAX_REPEATED = 0.6  # maximum fraction of distinct values of a query column, as queries repeat


@dataclass
class Guess:
    """Inferred content of a declaration.

    Attributes:
      kind: kind of problem.
      fields: by field of a sample, its column in JSON form.
      doubts: warnings about uncertain results, as sentences.
      more: other keys.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> set[str]:
        """The used columns."""
        used: set[str] = set()
        for column in self.fields.values():
            named = column["column"] if isinstance(column, Mapping) else column
            used |= set(named if isinstance(named, list) else [named])
        return used

    def lacks(self, table: Table) -> bool:
        """Returns whether a column that is the only one of a field is empty in some rows."""
        alone = [column for column in self.fields.values() if isinstance(column, str)]
        return any(table.columns[name].empty for name in alone if name in table.columns)


def guess(format_name: str, table: Table) -> Guess:
    """Infers the kind of problem of a table.

    Raises:
      DataError: the table has no text.
    """
    by_format: Mapping[str, Callable[[], Guess]] = {
        "bio": lambda: _bio(table),
        "labelled": lambda: _labelled(table),
        "squad": lambda: Guess("spanqa"),
        "trees": lambda: Guess("text2tree"),
        "lines": lambda: Guess("text2self"),
        "parallel": lambda: Guess("text2text"),
        "conllu": _conllu,
        "conll": lambda: _conll(table),
        "idx": lambda: _pictures(table),
    }
    if format_name in by_format:
        return by_format[format_name]()
    made = _of_columns(table)
    made.doubts += _left_out(table, made)
    return made


def _bio(table: Table) -> Guess:
    if "label" in table.columns:
        return Guess("intentslot")
    doubt = "there is no file of intents (label), so only the tags are learnt."
    return Guess("text2tags", {"inputs": "words", "targets": "tags"}, [doubt])


def _labelled(table: Table) -> Guess:
    if any(len(labels) > 1 for labels in table.columns["labels"].values):
        return Guess("text2multilabel", {"inputs": "text", "targets": "labels"})
    label, coarse = table.columns["label"], table.columns["coarse"]
    doubts = []
    if 1 < coarse.distinct < label.distinct:
        doubts.append(
            f"'label' has {label.distinct} labels, such as {label.values[0]!r}; 'coarse' has the "
            f"{coarse.distinct} that stand before the colon, and could be the target instead."
        )
    return Guess("text2class", {"inputs": "text", "targets": "label"}, doubts)


def _conllu() -> Guess:
    doubt = 'the tags are the universal ones ("upos"); "xpos" has the language\'s own.'
    return Guess("text2tags", {"inputs": "form", "targets": "upos"}, [doubt])


def _conll(table: Table) -> Guess:
    columns = list(table.columns)
    if len(columns) < 2:
        raise DataError("There is one column, where words and tags were expected.")
    doubts = []
    if len(columns) > 2:
        doubts.append(
            f"the words are in column {columns[0]} and the tags in column {columns[-1]}, the last; "
            f"{', '.join(columns[1:-1])} is left out."
        )
    return Guess("text2tags", {"inputs": columns[0], "targets": columns[-1]}, doubts)


def _pictures(table: Table) -> Guess:
    image = table.first["image"]
    height, width, channels = image.shape
    labels = sorted(table.columns["label"].counts, key=int)
    settings = {"height": height, "width": width, "channels": channels}
    doubt = f"the labels are the numbers that are there, {labels[0]} to {labels[-1]}."
    return Guess("image2class", {}, [doubt], {"labels": labels, "settings": settings})


def _of_columns(table: Table) -> Guess:
    columns = {name: one for name, one in table.columns.items() if one.values}
    named = {name.lower(): name for name in columns}
    for attempt in (_question, _ranking, _tree, _tagged):
        made = attempt(columns, named)
        if made is not None:
            return made
    rest = [one for one in columns.values() if not one.is_identity]
    labels = [one for one in rest if one.is_label]
    texts = [one for one in rest if one.is_text]
    about = [one for one in texts if one.is_about_rows]
    texts = [one for one in texts if one not in about] or texts
    if any(one.mean_words >= 2 for one in texts):  # otherwise words, or a language without spaces
        texts = [one for one in texts if not one.is_code]
    if not texts and labels and any(one.is_list for one in rest):
        return _turns(rest, labels)
    if not texts:
        words = [one for one in rest if one.is_plain and not one.is_number and one.distinct > 1]
        texts = sorted(words, key=lambda one: -one.mean_words)[:1]
        labels = [one for one in labels if one not in texts]
        if not labels:  # a label is not a text from which to learn numbers or a language model
            texts = [one for one in texts if not one.is_label]
    if not texts:
        raise DataError(
            f"There is no column of texts among its columns ({_some(list(table.columns))}), so "
            "there is no guess. Write the declaration by hand: see docs/tutorials/own_data.md."
        )
    return _texts(rest, texts, labels)


def _texts(rest: Sequence[Look], texts: list[Look], labels: list[Look]) -> Guess:
    """Infers the target of texts: labels, a number, another text, or none."""
    separated = [one for one in rest if one not in texts and one.parts()]
    lists = [one for one in rest if one.is_list]
    numbers = [one for one in rest if one.is_number and one not in labels]
    heading = [one for one in texts if one.is_named(_HEADING_NAMES)]
    if lists or (separated and not (set(map(id, labels)) - set(map(id, separated)))):
        return _several(texts, lists, separated)
    if len(texts) == 2 and not heading:
        return _pair(texts, labels, numbers)
    body, doubts = _body(texts, heading)
    if labels:
        label = _chosen(labels, _LABEL_NAMES, doubts, "the label")
        if numbers:
            told = _some([repr(one.name) for one in numbers], " or ")
            doubts.append(f'"kind": "text2real" could learn {told} instead.')
        return Guess("text2class", {"inputs": body, "targets": label.name}, doubts)
    if numbers:
        number = _chosen(numbers, "score rating price value", doubts, "the number to be learnt")
        return Guess("text2real", {"inputs": body, "targets": number.name}, doubts)
    doubts.append("there is neither a label nor a number, so texts of this sort are learnt.")
    return Guess("text2self", {"targets": body}, doubts)


def _several(texts: list[Look], lists: list[Look], separated: list[Look]) -> Guess:
    body, doubts = _body(texts, [])
    if lists:
        return Guess("text2multilabel", {"inputs": body, "targets": lists[0].name}, doubts)
    mark = separated[0].parts()
    how = "as a list" if mark == WRITTEN_LIST else f"with {mark!r} between them"
    told = f"{separated[0].name!r} is taken for several labels, {how}."
    column = {"column": separated[0].name, "split": mark}
    return Guess("text2multilabel", {"inputs": body, "targets": column}, [*doubts, told])


def _pair(texts: list[Look], labels: list[Look], numbers: list[Look]) -> Guess:
    """Infers the target of two texts: a label, a number, or the second text."""
    first, second = texts
    pair = {"first": first.name, "second": second.name}
    doubts: list[str] = []
    if labels:
        label = _chosen(labels, _LABEL_NAMES, doubts, "the label")
        repeated = first.distinct <= _MAX_REPEATED * len(first.values)
        if label.distinct == 2 and label.is_number and repeated:
            doubts.append(
                f'{first.name!r} is often the same, so it is taken for a query; else it is "kind": '
                '"textpair2class" with "first" and "second".'
            )
            fields = {"query": first.name, "document": second.name, "targets": label.name}
            return Guess("queryrelevance", fields, doubts)
        if numbers:
            doubts.append(f'"kind": "textpair2real" could learn {numbers[-1].name!r} instead.')
        doubts.append(
            "the two texts are taken for a pair; if they are parts of one text, it is "
            f'"kind": "text2class", "fields": {{"inputs": ["{first.name}", "{second.name}"], '
            f'"targets": "{label.name}"}}.'
        )
        return Guess("textpair2class", {**pair, "targets": label.name}, doubts)
    if numbers:
        number = _chosen(numbers, "score similarity relatedness", doubts, "the number")
        return Guess("textpair2real", {**pair, "targets": number.name}, doubts)
    told = f"{first.name!r} is taken for the input and {second.name!r} for what is to be written."
    return Guess("text2text", {"inputs": first.name, "targets": second.name}, [told])


def _turns(rest: Sequence[Look], labels: list[Look]) -> Guess:
    turns = next(one for one in rest if one.is_list)
    doubts = [f"{turns.name!r} is taken for the utterances of a dialogue, one after another."]
    label = _chosen(labels, _LABEL_NAMES, doubts, "the label")
    return Guess("multiturn2class", {"inputs": turns.name, "targets": label.name}, doubts)


def _question(columns: Mapping[str, Look], named: Mapping[str, str]) -> Guess | None:
    question, context = named.get("question"), named.get("context") or named.get("passage")
    answer = named.get("answers") or named.get("answer")
    if not (question and context and answer):
        return None
    fields = {"question": question, "context": context, "answers": answer}
    rows = zip(columns[answer].rows, columns[context].rows, strict=True)
    texts = [(text, str(held)) for text, held in rows if text is not None and held is not None]
    try:
        spans = [located([{"text": text}], held) for text, held in texts if text in held]
        of_context = len(spans) * 2 >= len(texts)
    except (UnfitError, TypeError):
        of_context = True
    if of_context:
        return Guess("spanqa", fields)
    fields = {"inputs": question, "context": context, "targets": answer}
    return Guess("questioncontext2text", fields, ["the answers are no parts of the contexts."])


def _ranking(columns: Mapping[str, Look], named: Mapping[str, str]) -> Guess | None:
    wanted = ("query", "positive", "negative")
    if all(name in named for name in wanted):
        return Guess("pairranking", {name: named[name] for name in wanted})
    return None


def _tree(columns: Mapping[str, Look], named: Mapping[str, str]) -> Guess | None:
    trees = [one for one in columns.values() if one.is_tree]
    if not trees:
        return None
    doubt = f"{trees[-1].name!r} is taken for the trees; the words are those of the trees."
    name: str = trees[-1].name
    places = list(columns)
    if name.isdecimal() and name == places[-1]:
        name = "-1"  # the last, also in files with other columns before it
    return Guess("text2tree", {"targets": name}, [doubt])


def _tagged(columns: Mapping[str, Look], named: Mapping[str, str]) -> Guess | None:
    lists = [one for one in columns.values() if one.is_list]
    for words in lists:
        for tags in lists:
            kinds = {tag for value in tags.values for tag in value}
            all_words = {word for value in words.values for word in value}
            parallel = words is not tags and _lengths(words) == _lengths(tags)
            if parallel and len(kinds) < len(all_words) and not any(" " in w for w in all_words):
                fields = {"inputs": words.name, "targets": tags.name}
                intents = [one for one in columns.values() if one.is_label]
                if not intents:
                    return Guess("text2tags", fields)
                doubts: list[str] = []
                intent = _chosen(intents, "intent label", doubts, "the intent")
                fields = {"inputs": words.name, "intent": intent.name, "slots": tags.name}
                return Guess("intentslot", fields, doubts)
    return None


def _lengths(column: Look) -> list[int]:
    """Returns the list length in each row, except for empty lists."""
    return [len(value or ()) for value in column.rows]


def _body(texts: list[Look], heading: Sequence[Look]) -> tuple[Any, list[str]]:
    """Returns the column or columns of the text, and warnings."""
    if len(texts) == 1:
        return texts[0].name, []
    if len(texts) == 2 and len(heading) == 1:
        other = next(one for one in texts if one is not heading[0])
        names = [heading[0].name, other.name]
        return names, [f"{names[0]!r} and {names[1]!r} are joined to one text."]
    named = [one for one in texts if one.is_named(_TEXT_NAMES)] or texts
    longest = max(named, key=lambda one: one.mean_words)
    others = _some([repr(one.name) for one in texts if one is not longest])
    told = f"{longest.name!r} is taken for the text; {others} could be joined to it with a list."
    return longest.name, [told]


def _chosen(found: Sequence[Look], names: str, doubts: list[str], what: str) -> Look:
    named = [one for one in found if one.is_named(names)]
    chosen = (named or list(found))[-1 if not named else 0]
    others = [repr(one.name) for one in found if one is not chosen]
    if others:
        doubts.append(
            f"{chosen.name!r} is taken for {what}; it could also be {_some(others, ' or ')}."
        )
    return chosen


def _some(names: Sequence[str], between: str = ", ") -> str:
    """Returns the first names, and how many others there are."""
    if len(names) <= _TOLD + 1:
        return between.join(names)
    return f"{', '.join(names[:_TOLD])} and {len(names) - _TOLD} others"


def _left_out(table: Table, made: Guess) -> Iterable[str]:
    """Yields the reasons why columns are unused, combining columns with the same reason."""
    used = {list(table.columns)[-1] if name == "-1" else name for name in made.columns}
    by_reason: dict[str, list[str]] = {}
    for name, one in table.columns.items():
        if name in used:
            if one.empty:
                yield f"column {name!r} is empty in {one.empty:,} of {table.rows:,} rows."
        elif not any(isinstance(value, Mapping) for value in one.values):  # its keys are columns
            by_reason.setdefault(_why_not(one), []).append(name)
    for why, names in by_reason.items():
        if len(names) > _TOLD:
            yield f"columns {_some([repr(name) for name in names])} are left out: {why}."
        else:
            for name in names:
                yield f"column {name!r} is left out: {why.replace('NAME', name)}."


def _why_not(one: Look) -> str:
    """Returns the reason why a column is unused; NAME is a placeholder for its name."""
    if not one.values:
        return "it is empty"
    if one.is_date:
        return "its values are dates"
    if one.is_money:
        return f"its values, such as {one.values[0]!r}, are not plain numbers; write 1234.5"
    if one.is_identity and one.distinct == len(one.values):
        why = "its values are all different"
        if one.is_number and not one.is_named("unnamed id uuid guid index key"):
            why += '; if they are what is to be learnt, "targets": "NAME" of "text2real"'
        return why
    if one.is_identity:
        return "its name says that it tells rows apart"
    if one.is_plain and one.distinct == 1:
        return f"it says {one.values[0]!r} in every row"
    if one.is_text and one.is_about_rows:
        return "its name says that it is about the row, no text of it"
    if one.is_plain and one.is_number and not one.is_label:
        return 'its values are numbers; "features": {"dense": ["NAME"]} makes them inputs'
    return "it is not needed for this kind"


_SAMPLES = 2
_FEW_ROWS = 500
_VOCAB_SIZE = 8000
_WITHOUT_VOCAB_SIZE = ("intentslot", "text2tags", "text2tree", "spanqa", "image2class")


@dataclass(frozen=True)
class Draft:
    """A drafted declaration.

    Attributes:
      content: content of the declaration.
      path: suggested path; the file does not exist.
      samples: the first samples it yields.
      doubts: warnings about uncertain results, as sentences.
      has_bad_rows: some rows cannot be read or lack required values.
    """

    content: Mapping[str, Any]
    path: Path
    samples: list[dict[str, Any]]
    doubts: list[str]
    has_bad_rows: bool

    @property
    def text(self) -> str:
        """The declaration as JSON, with one line per key."""
        lines = [f"  {json.dumps(k)}: {_json(value)}" for k, value in self.content.items()]
        return "{\n" + ",\n".join(lines) + "\n}"


def draft(path: Path) -> Draft:
    """Inspects a file or folder, and drafts a declaration.

    Raises:
      DataError: it cannot be read, or no problem can be inferred.
    """
    check_unpacked(path)
    found = neighbours(path)
    parallel = not isinstance(found.files["train"], str)
    looked_at = _first(found)
    sniffed = Sniffed("lines") if parallel else sniff(looked_at)
    table = look(looked_at, sniffed)
    made = Guess("text2text") if parallel else guess(sniffed.format, table)
    content = _content(found, sniffed, made, table, parallel=parallel)
    doubts = [*found.doubts, *sniffed.doubts, *made.doubts, *_of_rows(table)]
    if "eval" not in found.files:
        part = content["files"]["eval"]
        doubts.append(
            f"no file for evaluation was found: {part:.0%} of the training rows are held out, by "
            "their content."
        )
    beside = _absent(found.folder, content["problem"])
    problem: Any = problem_of(content, beside)
    problem.bad_records = BadRecords("skip")
    problem.prepare(found.folder)
    samples = problem.generate_samples(found.folder, Split.TRAIN)
    first = list(itertools.islice(samples, _SAMPLES))
    for _ in itertools.islice(samples, _FEW_ROWS):
        pass  # its report of bad rows is used below
    bad = table.bad.count or problem.bad_records.count or made.lacks(table)
    return Draft(content, beside, first, doubts, bool(bad))


def _first(found: Neighbours) -> Path:
    """Returns the file to inspect, the first match of a pattern."""
    train = found.train
    return train if train.exists() else next(iter(sorted(found.folder.glob(train.name))))


def _content(
    found: Neighbours, sniffed: Sniffed, made: Guess, table: Table, *, parallel: bool
) -> dict[str, Any]:
    files: dict[str, Any] = dict(found.files)
    if "eval" not in files:
        files["eval"] = 0.1 if table.rows < _FEW_ROWS else 0.05
    content: dict[str, Any] = {
        "problem": _free_name(found.name),
        "kind": made.kind,
        "files": {split: files[split] for split in ("train", "eval", "test") if split in files},
    }
    if not parallel and _must_be_named(_first(found), sniffed):
        content["format"] = sniffed.format
    if sniffed.options:
        content["options"] = dict(sniffed.options)
    if made.fields:
        content["fields"] = made.fields
    if made.kind not in _WITHOUT_VOCAB_SIZE:
        content["vocab_size"] = _VOCAB_SIZE
    return {**content, **made.more}


def _must_be_named(path: Path, sniffed: Sniffed) -> bool:
    """Returns whether the format must be named, because the extension does not determine it."""
    try:
        return format_of(path) != sniffed.format
    except DataError:
        return True


def _free_name(name: str) -> str:
    """Returns a name that no other problem has."""
    taken = set(registry.list_names("problem"))
    name = re.sub(r"(_rev|_copy)+$", "", name) or "mine"
    for candidate in (name, f"my_{name}", *(f"my_{name}{n}" for n in range(2, 100))):
        if candidate not in taken:
            return candidate
    return name


def _absent(folder: Path, name: str) -> Path:
    """Returns an unused path for a declaration in a folder."""
    stems = itertools.chain((name, f"{name}_problem"), (f"{name}_{n}" for n in itertools.count(2)))
    return next(path for path in (folder / f"{s}.json" for s in stems) if not os.path.lexists(path))


def _of_rows(table: Table) -> list[str]:
    told = []
    if table.bad.count:
        told.append(
            f"rows that cannot be read: {table.bad.count:,}, the first: "
            f"{table.bad.listed[0].rstrip('.')}. Mend them, or leave them out with "
            "--on_bad_record=skip."
        )
    if table.rows == MAX_ROWS:
        told.append(f"the first {MAX_ROWS:,} rows were looked at, no more.")
    return told


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
