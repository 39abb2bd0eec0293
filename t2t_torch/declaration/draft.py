"""Draft of a declaration for inspected files."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.declaration.columns import LABEL_NAMES, MAX_ROWS, FileColumns, Inspected, inspect
from t2t_torch.declaration.detect_format import (
    MAX_PIXELS,
    DetectedFiles,
    DetectedFormat,
    check_unpacked,
    detect_files,
    detect_format,
    unpacked,
)
from t2t_torch.declaration.problem import problem_of
from t2t_torch.declaration.rows import UnfitError, located
from t2t_torch.errors import DataError
from t2t_torch.features.picture import decoded
from t2t_torch.features.text import words_of
from t2t_torch.mode import Split
from t2t_torch.readers.formats import format_of, open_records
from t2t_torch.readers.idx import AUDIO
from t2t_torch.readers.spans import TOKENIZER
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.runtime.prediction import WRITTEN_LIST
from t2t_torch.text.tokenizer import tokenize, word_expression

_NUMBER_NAMES = "score rating stars star price value grade"
_WRITTEN_NAMES = (
    "output response completion answer target targets highlights summary translation reply"
)
_SOURCE_NAMES = "instruction input inputs prompt question source document article context text"
_TEXT_NAMES = "text body sentence content message utterance review question inputs input"
_SPOKEN_NAMES = "text sentence transcript transcription"
_HEADING_NAMES = "title subject headline heading summary name"
_MAX_LISTED = 5  # maximum column names listed in a message
_ALTERNATIVES = 3  # maximum alternatives that are printed
_MAX_REPEATED = 0.6  # maximum fraction of distinct values of a query column, as queries repeat


@dataclass
class Inferred:
    """Inferred content of a declaration.

    Attributes:
      kind: kind of problem.
      fields: by field of a sample, its column in JSON form.
      doubts: warnings about uncertain results, as sentences.
      notes: facts about the columns, as sentences.
      more: other keys.
      alternatives: other inferences that are possible, with what they would learn.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    alternatives: list[tuple[str, Inferred]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> set[str]:
        """The used columns."""
        used: set[str] = set()
        for column in self.fields.values():
            named = column["column"] if isinstance(column, Mapping) else column
            used |= set(named if isinstance(named, list) else [named])
        return used

    def lacks(self, table: FileColumns) -> bool:
        """Returns whether a column that is the only one of a field is empty in some rows."""
        alone = [column for column in self.fields.values() if isinstance(column, str)]
        return any(table.columns[name].empty for name in alone if name in table.columns)


def infer_problem(format_name: str, table: FileColumns) -> Inferred:
    """Infers the kind of problem of a table.

    Raises:
      DataError: the table has no text.
    """
    by_format: Mapping[str, Callable[[], Inferred]] = {
        "bio": lambda: _bio(table),
        "labelled": lambda: _labelled(table),
        "squad": lambda: Inferred("spanqa"),
        "trees": lambda: Inferred("text2tree"),
        "lines": lambda: Inferred("text2self"),
        "parallel": lambda: Inferred("text2text"),
        "conllu": _conllu,
        "conll": lambda: _conll(table),
        "idx": lambda: _pictures(table),
        "spans": lambda: _spans(table),
        "class_folders": lambda: _class_folders(table),
    }
    if format_name in by_format:
        return by_format[format_name]()
    made = _of_columns(table)
    made.notes += _unused(table, made)
    return made


def _bio(table: FileColumns) -> Inferred:
    if "label" in table.columns:
        return Inferred("intentslot")
    doubt = "there is no file of intents (label), so only the tags are predicted."
    return Inferred("text2tags", {"inputs": "words", "targets": "tags"}, [doubt])


def _labelled(table: FileColumns) -> Inferred:
    if any(isinstance(one, list) and len(one) > 1 for one in table.columns["labels"].values):
        return Inferred("text2multilabel", {"inputs": "text", "targets": "labels"})
    label, coarse = table.columns["label"], table.columns["coarse"]
    doubts = []
    if 1 < coarse.distinct < label.distinct:
        doubts.append(
            f"'label' has {label.distinct} labels, such as {label.values[0]!r}; 'coarse' has the "
            f"{coarse.distinct} that stand before the colon, and could be the target instead."
        )
    return Inferred("text2class", {"inputs": "text", "targets": "label"}, doubts)


def _conllu() -> Inferred:
    doubt = 'the tags are the universal ones ("upos"); "xpos" has the language\'s own.'
    return Inferred("text2tags", {"inputs": "form", "targets": "upos"}, [doubt])


def _conll(table: FileColumns) -> Inferred:
    columns = list(table.columns)
    if len(columns) < 2:
        raise DataError("There is one column, where words and tags were expected.")
    doubts = []
    if len(columns) > 2:
        doubts.append(
            f"the words are in column {columns[0]} and the tags in column {columns[-1]}, the last; "
            f"{', '.join(columns[1:-1])} is not used."
        )
    return Inferred("text2tags", {"inputs": columns[0], "targets": columns[-1]}, doubts)


def _pictures(table: FileColumns) -> Inferred:
    labels = sorted(table.columns["label"].counts, key=int)
    doubt = f"the labels are the numbers that are there, {labels[0]} to {labels[-1]}."
    return Inferred("image2class", {}, [doubt], {"labels": labels, "settings": _size(table)})


_INSPECTED = 50  # pictures


def _size(table: FileColumns) -> dict[str, int]:
    images = table.columns["image"].values
    image = images[0]
    if not isinstance(image, bytes):
        return dict(zip(("height", "width", "channels"), image.shape, strict=True))
    # Files of any size.  Classes take turns, so a regular choice could be of one class.
    chosen = random.Random(0).sample(images, min(len(images), _INSPECTED))
    some = [decoded(one, 3) for one in (image, *chosen)]
    side = min(MAX_PIXELS, max(some[0].shape))
    is_grey = all((one == one[..., :1]).all() for one in some)
    return {"height": side, "width": side, "channels": 1 if is_grey else 3}


def _class_folders(table: FileColumns) -> Inferred:
    if "image" not in table.columns:
        return Inferred("text2class", {"inputs": "text", "targets": "label"})
    more = {"labels": sorted(table.columns["label"].counts), "settings": _size(table)}
    return Inferred("image2class", {"inputs": "image", "targets": "label"}, [], more)


def _spans(table: FileColumns) -> Inferred:
    spans, cut = (sum(table.columns[name].rows) for name in ("spans", "cut"))
    by_text = Inferred("text2class", {"inputs": "text", "targets": "label"})
    if not spans:
        return by_text
    doubts = ["words are runs of letters and digits, and single other characters."]
    if cut:
        doubts.append(
            f"{cut} of {spans} spans end within a word, and are extended to it, or overlap an "
            "earlier one, and are left out."
        )
    made = Inferred("text2tags", {"inputs": "words", "targets": "tags"}, doubts)
    if table.columns["label"].values:
        made.alternatives.append(("the choice for each text", by_text))
    return made


def _of_columns(table: FileColumns) -> Inferred:
    columns = {name: one for name, one in table.columns.items() if one.values}
    named = {name.lower(): name for name in columns}
    _check_no_word_rows(columns)
    for attempt in (_spoken, _question, _ranking, _tree, _tagged):
        made = attempt(columns, named)
        if made is not None:
            return made
    rest = [one for one in columns.values() if not one.is_identity]
    labels = [one for one in rest if one.is_label]
    texts = [one for one in rest if one.is_text and not one.is_named_label]
    if not any(one.is_named(LABEL_NAMES) for one in labels):
        labels += [one for one in rest if one.is_named_label and one not in labels]
    texts = texts or [one for one in rest if one.is_text]
    texts = [one for one in texts if one.distinct > 1] or texts
    labels = [one for one in labels if one not in texts]
    about = [one for one in texts if one.is_about_rows]
    texts = [one for one in texts if one not in about] or texts
    if any(one.mean_words >= 2 for one in texts):  # otherwise words, or a language without spaces
        texts = [one for one in texts if not one.is_code]
    if not texts and labels and any(one.is_list for one in rest):
        turns = next(one for one in rest if one.is_list)
        doubts = [f"{turns.name!r} is used as the utterances of a dialogue, in order."]
        label = _chosen(labels, LABEL_NAMES, doubts, "the label")
        return Inferred("multiturn2class", {"inputs": turns.name, "targets": label.name}, doubts)
    if not texts:
        words = [one for one in rest if one.is_plain and not one.is_number and one.distinct > 1]
        texts = sorted(words, key=lambda one: -one.mean_words)[:1]
        labels = [one for one in labels if one not in texts]
        if not labels:  # a label is not a text from which to learn numbers or a language model
            texts = [one for one in texts if not one.is_label]
    if not texts:
        raise DataError(
            f"There is no column of texts among its columns ({_some(list(table.columns))}), so "
            "no declaration is drafted. Write it by hand: see docs/tutorials/own_data.md."
        )
    return _texts(rest, texts, labels)


def _spoken(columns: Mapping[str, Inspected], named: Mapping[str, str]) -> Inferred | None:
    """Infers speech recognition from a column of paths of sounds, and one of texts."""
    sounds = [
        one
        for one in columns.values()
        if sum(str(value).lower().endswith(AUDIO) for value in one.values) >= 0.9 * len(one.values)
    ]
    texts = [one for one in columns.values() if one.is_text and one not in sounds]
    if len(sounds) != 1 or not texts:
        return None
    doubts: list[str] = []
    text = _chosen(texts, _SPOKEN_NAMES, doubts, "what is said")
    doubts.append(
        'sounds of any sampling rate are converted to 16,000 Hz: "resample"; "sample_rate": 8000 '
        "is for telephone speech."
    )
    fields = {"inputs": sounds[0].name, "targets": text.name}
    return Inferred("speech2text", fields, doubts, {"settings": {"resample": True}})


def _texts(rest: Sequence[Inspected], texts: list[Inspected], labels: list[Inspected]) -> Inferred:
    """Infers the target of texts: labels, a number, another text, or none."""
    separated = [one for one in rest if one not in texts and one.parts()]
    lists = [one for one in rest if one.is_list]
    if any(one.is_named(LABEL_NAMES) for one in labels):
        lists = []
    numbers = [one for one in rest if one.is_number and one not in labels]
    heading = [one for one in texts if one.is_named(_HEADING_NAMES)]
    if lists or (separated and not (set(map(id, labels)) - set(map(id, separated)))):
        return _several(texts, lists, separated)
    written = [one for one in texts if one.is_named(_WRITTEN_NAMES)]
    if written and len(texts) > 1 and not labels:
        return _written(texts, written[-1])
    if len(texts) == 2 and not heading:
        return _pair(texts, labels, numbers)
    body, doubts = _body(texts, heading)
    if labels:
        return _classified(body, labels, numbers, doubts)
    if numbers:
        number = _chosen(numbers, _NUMBER_NAMES, doubts, "the number to predict")
        made = Inferred("text2real", {"inputs": body, "targets": number.name}, doubts)
        made.alternatives = _numbers(body, [one for one in numbers if one is not number])
        return made
    doubts.append(
        'no label column was found, so the declaration is of a language model ("text2self"); if '
        'a column is the label, set "kind": "text2class" and name the column as "targets".'
    )
    return Inferred("text2self", {"targets": body}, doubts)


def _classified(
    body: Any, labels: list[Inspected], numbers: list[Inspected], doubts: list[str]
) -> Inferred:
    """Returns the classification of texts, with other labels and numbers as alternatives."""
    label = _chosen(labels, LABEL_NAMES, doubts, "the label")
    if numbers:
        others = _some([repr(one.name) for one in numbers], " or ")
        doubts.append(f'"kind": "text2real" could learn {others} instead.')
    doubts += _of_labels(label)
    made = Inferred("text2class", {"inputs": body, "targets": label.name}, doubts)
    if label.is_number and label.distinct > 2:
        doubts.append(
            f"{label.name!r} has {label.distinct} whole numbers, which are used as labels; as a "
            "number to predict, they keep their order."
        )
        made.alternatives += _numbers(body, [label])
    for other in [one for one in labels if one is not label][:_MAX_LISTED]:
        fields = {"inputs": body, "targets": other.name}
        made.alternatives.append((f"the label {other.name!r}", Inferred("text2class", fields)))
    made.alternatives += _numbers(body, numbers)
    return made


def _numbers(body: Any, numbers: Sequence[Inspected]) -> list[tuple[str, Inferred]]:
    return [
        (
            f"the number {one.name!r}, by regression",
            Inferred("text2real", {"inputs": body, "targets": one.name}),
        )
        for one in numbers[:_MAX_LISTED]
    ]


def _of_labels(label: Inspected) -> list[str]:
    """Returns warnings about the values of a label."""
    messages = []
    if label.distinct == 1:
        messages.append(
            f"{label.name!r} has only one label, {label.values[0]!r}: there is no choice."
        )
    elif label.distinct * 2 > len(label.values):
        messages.append(
            f"{label.name!r} is used as the label because of its name: it has {label.distinct} "
            f"labels in {len(label.values)} rows, too few rows to learn them."
        )
    by_form: dict[str, list[str]] = {}
    for value in label.counts:
        by_form.setdefault(" ".join(value.lower().split()), []).append(value)
    alike = [values for values in by_form.values() if len(values) > 1]
    if alike:
        shown = "; ".join(", ".join(map(repr, values)) for values in alike[:_MAX_LISTED])
        messages.append(f"labels that differ only by case or spaces are different labels: {shown}.")
    return messages


def _written(texts: list[Inspected], target: Inspected) -> Inferred:
    sources = [one for one in texts if one is not target]
    named = [one for one in sources if one.is_named(_SOURCE_NAMES)] or sources
    names = [one.name for one in named]
    inputs = names if len(names) > 1 else names[0]
    message = f"{target.name!r} is used as the text to generate from {', '.join(map(repr, names))}."
    made = Inferred("text2text", {"inputs": inputs, "targets": target.name}, [message])
    if len(names) == 1:
        other = Inferred("text2text", {"inputs": target.name, "targets": inputs})
        made.alternatives.append(("the other direction", other))
    return made


_WORD_NAMES = "word words token tokens"
_TAG_NAMES = "tag tags ner pos label iob bio"


def _check_no_word_rows(columns: Mapping[str, Inspected]) -> None:
    """Raises DataError if each row is a word and its tag, without sentences."""
    plain = [one for one in columns.values() if one.is_plain]
    words = [one for one in plain if one.is_named(_WORD_NAMES) and one.mean_words < 1.2]
    tags = [one for one in plain if one.is_named(_TAG_NAMES) and one.is_label]
    if not words or not tags or any(one.mean_words > 3 for one in plain):
        return
    sentence = next((one.name for one in plain if one.is_named("sentence sent id")), "SENTENCE")
    word, tag = words[0].name, tags[-1].name
    raise DataError(
        f"each row is one word ({word!r}) with its tag ({tag!r}); a sentence for each row was "
        "expected. Group the rows with pandas:\n"
        f"  df[{sentence!r}] = df[{sentence!r}].ffill()\n"
        f"  df.groupby({sentence!r}, sort=False)[[{word!r}, {tag!r}]].agg(list)"
        ".to_json('sentences.jsonl', orient='records', lines=True)"
    )


def _several(
    texts: list[Inspected], lists: list[Inspected], separated: list[Inspected]
) -> Inferred:
    body, doubts = _body(texts, [])
    if lists:
        return Inferred("text2multilabel", {"inputs": body, "targets": lists[0].name}, doubts)
    mark = separated[0].parts()
    how = "as a list" if mark == WRITTEN_LIST else f"with {mark!r} between them"
    message = f"{separated[0].name!r} is read as several labels, {how}."
    column = {"column": separated[0].name, "split": mark}
    return Inferred("text2multilabel", {"inputs": body, "targets": column}, [*doubts, message])


def _pair(texts: list[Inspected], labels: list[Inspected], numbers: list[Inspected]) -> Inferred:
    """Infers the target of two texts: a label, a number, or the second text."""
    first, second = texts
    pair = {"first": first.name, "second": second.name}
    doubts: list[str] = []
    if labels:
        label = _chosen(labels, LABEL_NAMES, doubts, "the label")
        repeated = first.distinct <= _MAX_REPEATED * len(first.values)
        if label.distinct == 2 and label.is_number and repeated:
            doubts.append(
                f'{first.name!r} often repeats, so it is used as a query; otherwise it is "kind": '
                '"textpair2class" with "first" and "second".'
            )
            fields = {"query": first.name, "document": second.name, "targets": label.name}
            return Inferred("queryrelevance", fields, doubts)
        joined = {"inputs": [first.name, second.name], "targets": label.name}
        others = [("one text of two parts", Inferred("text2class", joined))]
        for one in numbers[-1:] or ([label] if label.is_number and label.distinct > 2 else []):
            doubts.append(f'"kind": "textpair2real" could learn {one.name!r} instead.')
            fields = {**pair, "targets": one.name}
            others.append((f"the number {one.name!r}", Inferred("textpair2real", fields)))
        doubts.append(
            "the two texts are used as a pair; if they are parts of one text, it is "
            f'"kind": "text2class", "fields": {{"inputs": ["{first.name}", "{second.name}"], '
            f'"targets": "{label.name}"}}.'
        )
        fields = {**pair, "targets": label.name}
        return Inferred("textpair2class", fields, doubts, alternatives=others)
    if numbers:
        number = _chosen(numbers, "score similarity relatedness", doubts, "the number")
        return Inferred("textpair2real", {**pair, "targets": number.name}, doubts)
    message = f"{first.name!r} is used as the input and {second.name!r} as the text to generate."
    other = Inferred("text2text", {"inputs": second.name, "targets": first.name})
    return Inferred(
        "text2text",
        {"inputs": first.name, "targets": second.name},
        [message],
        alternatives=[("the other direction", other)],
    )


def _question(columns: Mapping[str, Inspected], named: Mapping[str, str]) -> Inferred | None:
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
        return Inferred("spanqa", fields)
    fields = {"inputs": question, "context": context, "targets": answer}
    return Inferred("questioncontext2text", fields, ["the answers are no parts of the contexts."])


def _ranking(columns: Mapping[str, Inspected], named: Mapping[str, str]) -> Inferred | None:
    wanted = ("query", "positive", "negative")
    if all(name in named for name in wanted):
        return Inferred("pairranking", {name: named[name] for name in wanted})
    return None


def _tree(columns: Mapping[str, Inspected], named: Mapping[str, str]) -> Inferred | None:
    trees = [one for one in columns.values() if one.is_tree]
    if not trees:
        return None
    doubt = f"{trees[-1].name!r} is used as the trees; the words are those of the trees."
    name: str = trees[-1].name
    places = list(columns)
    if name.isdecimal() and name == places[-1]:
        name = "-1"  # the last, also in files with other columns before it
    return Inferred("text2tree", {"targets": name}, [doubt])


def _tagged(columns: Mapping[str, Inspected], named: Mapping[str, str]) -> Inferred | None:
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
                    return Inferred("text2tags", fields)
                doubts: list[str] = []
                intent = _chosen(intents, "intent label", doubts, "the intent")
                fields = {"inputs": words.name, "intent": intent.name, "slots": tags.name}
                return Inferred("intentslot", fields, doubts)
    return None


def _lengths(column: Inspected) -> list[int]:
    """Returns the list length in each row, except for empty lists."""
    return [len(value or ()) for value in column.rows]


def _body(texts: list[Inspected], heading: Sequence[Inspected]) -> tuple[Any, list[str]]:
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
    message = f"{longest.name!r} is used as the text; {others} could be joined to it with a list."
    return longest.name, [message]


def _chosen(found: Sequence[Inspected], names: str, doubts: list[str], what: str) -> Inspected:
    named = [one for one in found if one.is_named(names)]
    named = named or [one for one in found if one.is_named(_NUMBER_NAMES)]
    chosen = (named or list(found))[-1 if not named else 0]
    others = [repr(one.name) for one in found if one is not chosen]
    if others:
        doubts.append(
            f"{chosen.name!r} is used as {what}; it could also be {_some(others, ' or ')}."
        )
    return chosen


def _some(names: Sequence[str], between: str = ", ") -> str:
    """Returns the first names, and how many others there are."""
    if len(names) <= _MAX_LISTED + 1:
        return between.join(names)
    return f"{', '.join(names[:_MAX_LISTED])} and {len(names) - _MAX_LISTED} others"


def _unused(table: FileColumns, made: Inferred) -> Iterable[str]:
    """Yields notes on empty values of the used columns, and one on the unused columns."""
    used = {list(table.columns)[-1] if name == "-1" else name for name in made.columns}
    unused = []
    for name, one in table.columns.items():
        if name in used:
            if one.empty:
                yield f"column {name!r} is empty in {one.empty:,} of {table.rows:,} rows."
        elif not any(isinstance(value, Mapping) for value in one.values):  # its keys are columns
            why = _why_not(one).replace("NAME", name)
            unused.append((repr(name), f" ({why})" if why else ""))
    if unused:
        few = len(unused) <= _MAX_LISTED + 1
        yield f"unused columns: {_some([name + why * few for name, why in unused])}."


def _why_not(one: Inspected) -> str:
    """Returns why a column is unused, "" if only its kind is; NAME stands for its name."""
    if not one.values:
        return "empty"
    if one.is_date:
        return "dates"
    if one.is_money:
        return f"not plain numbers, such as {one.values[0]!r}; write 1234.5"
    if one.is_identity and one.distinct == len(one.values):
        why = "all values differ"
        if one.is_number and not one.is_named("unnamed id uuid guid index key"):
            why += '; to predict it: "targets": "NAME" of "text2real"'
        return why
    if one.is_identity:
        return "an identifier, by its name"
    if one.is_plain and one.distinct == 1:
        return f"{one.values[0]!r} in every row"
    if one.is_text and one.is_about_rows:
        return "metadata of the row, by its name"
    if one.is_plain and one.is_number and not one.is_label:
        return 'numbers; "features": {"dense": ["NAME"]} makes them inputs'
    return ""


_WORDS = 20_000  # words from which a tokenizer is chosen
_WHOLE = 0.95  # minimum fraction of them that it must not split


def _of_words(made: Inferred, words: Sequence[Sequence[str]], format_name: str) -> dict[str, Any]:
    """Returns the features of words, and the tokenizer for texts in place of words."""
    if made.kind not in _TAGGED:
        return {}
    tokenizer = TOKENIZER if format_name == "spans" else _tokenizer(words)
    settings = {"settings": {"tokenizer": tokenizer}} if tokenizer else {}
    # The model then reads unknown words, and words that occur once, by their characters.
    return {"features": {"characters": 12, "shape": True}, **settings}


def _tokenizer(words: Sequence[Sequence[str]]) -> str:
    """Returns the tokenizer that splits the fewest words; "" if it splits too many."""
    some = list(itertools.islice(itertools.chain.from_iterable(words), _WORDS))
    whole = {
        name: sum(len(tokenize(word, word_expression(name))) == 1 for word in some)
        for name in ("words", "clitics", "punctuation")
    }
    best = max(whole, key=whole.__getitem__)
    return best if some and whole[best] >= _WHOLE * len(some) else ""


_SAMPLES = 2
_FEW_ROWS = 500
_MANY_ROWS = 5000  # of which a twentieth is a development split
_VOCAB_SIZE = 8000
_TAGGED = ("intentslot", "text2tags")
_WITHOUT_VOCAB_SIZE = "intentslot text2tags text2tree spanqa image2class speech2text".split()


@dataclass(frozen=True)
class Draft:
    """A drafted declaration.

    Attributes:
      content: content of the declaration.
      path: suggested path; the file does not exist.
      samples: the first samples it yields.
      doubts: warnings about uncertain results, as sentences.
      notes: facts about the data, as sentences.
      alternatives: other declarations, with what they learn.
      has_bad_rows: some rows cannot be read or lack required values.
    """

    content: Mapping[str, Any]
    path: Path
    samples: list[dict[str, Any]]
    doubts: list[str]
    notes: list[str]
    alternatives: list[tuple[str, Mapping[str, Any]]]
    has_bad_rows: bool

    @property
    def text(self) -> str:
        """The declaration as JSON, with one line per key."""
        return text_of(self.content)


def text_of(content: Mapping[str, Any]) -> str:
    """Returns a declaration as JSON, with one line per key."""
    lines = [f"  {json.dumps(k)}: {_json(value)}" for k, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def draft(path: Path) -> Draft:
    """Inspects a file or folder, and drafts a declaration.

    Raises:
      DataError: it cannot be read, or no problem can be inferred.
    """
    path, unpacking = unpacked(path)
    check_unpacked(path)
    found = detect_files(path)
    parallel = not isinstance(found.files["train"], str)
    inspected = _first(found)
    detected = DetectedFormat("lines") if parallel else detect_format(inspected)
    table = inspect(inspected, detected)
    made = Inferred("text2text") if parallel else infer_problem(detected.format, table)
    fitting, unfit = (found, []) if parallel else _fitting(found, detected, made)
    content = _content(fitting, detected, made, table, parallel=parallel)
    beside = _absent(found.folder, content["problem"])
    content |= _of_words(made, _words_of(content, beside, found.folder), detected.format)
    doubts = [*found.doubts, *detected.doubts, *made.doubts]
    notes = [*unpacking, *unfit, *made.notes, *_of_rows(table)]
    if "eval" not in fitting.files:
        try:
            chosen = _of_held_out(content, beside, found.folder, table.rows, notes)
            notes.append(f"no evaluation file was found: {chosen}; equal texts stay together.")
        except DataError as error:
            doubts.append(f"no evaluation file was found: {error}")
    problem, samples = _samples(content, beside, found.folder)
    first = list(itertools.islice(samples, _SAMPLES))
    for _ in itertools.islice(samples, _FEW_ROWS):
        pass  # its report of bad rows is used below
    bad = table.bad.count or problem.bad_records.count or made.lacks(table)
    others: list[tuple[str, Mapping[str, Any]]] = [
        (meaning, _content(fitting, detected, other, table, parallel=parallel))
        for meaning, other in made.alternatives[:_ALTERNATIVES]
    ]
    return Draft(content, beside, first, doubts, notes, others, bool(bad))


def _samples(
    content: Mapping[str, Any], path: Path, folder: Path
) -> tuple[Any, Iterator[dict[str, Any]]]:
    """Returns the problem of a declaration, and its training samples without bad rows."""
    problem: Any = problem_of(content, path)
    problem.bad_records = BadRecords("skip")
    problem.prepare(folder)
    return problem, problem.generate_samples(folder, Split.TRAIN)


def _of_held_out(
    content: Mapping[str, Any], path: Path, folder: Path, rows: int, notes: list[str]
) -> str:
    """Returns which of the training rows are held out; adds notes about their labels.

    Raises:
      DataError: none can be held out.
    """
    part = content["files"]["eval"]
    if isinstance(part, float):
        return f"{part:.0%} of the training rows are held out, chosen by a hash of their content"
    problem, _ = _samples(content, path, folder)
    problem.sample_maker.say = notes.append
    count = sum(1 for _ in problem.generate_samples(folder, Split.EVAL))
    chosen = f"{count:,} of the {rows:,} training rows are held out"
    shares = ", with the same shares of the labels" if problem.sample_maker.labelled else ""
    return chosen + shares


def _words_of(content: Mapping[str, Any], path: Path, folder: Path) -> list[Sequence[str]]:
    """Returns the words of the first samples of a problem of tags; none of others."""
    if content["kind"] not in _TAGGED:
        return []
    _, samples = _samples(content, path, folder)
    return [words_of(one["inputs"]) for one in itertools.islice(samples, _FEW_ROWS)]


def _fitting(
    found: DetectedFiles, detected: DetectedFormat, made: Inferred
) -> tuple[DetectedFiles, list[str]]:
    """Leaves out splits without the used columns, such as a test set without labels."""
    files, messages = dict(found.files), []
    for split in ("eval", "test"):
        name = files.get(split)
        if not isinstance(name, str) or not made.fields:
            continue
        one = next(iter(sorted(found.folder.glob(name))), found.folder / name)
        records = open_records(
            one, format=detected.format, bad=BadRecords("skip"), options=detected.options
        )
        first = next(records, None)
        numbered = {column for column in made.columns if column.lstrip("-").isdecimal()}
        missing = sorted(made.columns - numbered - set(first.values if first else ()))
        if missing:
            messages.append(
                f"{name} is not used: it has no column {', '.join(map(repr, missing))}."
            )
            del files[split]
    return replace(found, files=files), messages


def _first(found: DetectedFiles) -> Path:
    """Returns the file to inspect, the first match of a pattern."""
    train = found.train
    return train if train.exists() else next(iter(sorted(found.folder.glob(train.name))))


def _content(
    found: DetectedFiles,
    detected: DetectedFormat,
    made: Inferred,
    table: FileColumns,
    *,
    parallel: bool,
) -> dict[str, Any]:
    files: dict[str, Any] = dict(found.files)
    if "eval" not in files:
        files["eval"] = _held_out(table.rows)
    content: dict[str, Any] = {
        "problem": _free_name(found.name),
        "kind": made.kind,
        "files": {split: files[split] for split in ("train", "eval", "test") if split in files},
    }
    if not parallel and _must_be_named(_first(found), detected):
        content["format"] = detected.format
    if detected.options:
        content["options"] = dict(detected.options)
    if made.fields:
        content["fields"] = made.fields
    if made.kind not in _WITHOUT_VOCAB_SIZE:
        content["vocab_size"] = _VOCAB_SIZE
    return {**content, **made.more}


def _held_out(rows: int) -> float | dict[str, int]:
    """Returns the part of the rows to hold out: from 10 to 20 % of few rows, aiming at 200."""
    if rows >= _MANY_ROWS:
        return 0.05
    return {"rows": max(1, round(min(max(200, 0.1 * rows), 0.2 * rows)))}


def _must_be_named(path: Path, detected: DetectedFormat) -> bool:
    """Returns whether the format must be named, because the extension does not determine it."""
    try:
        return format_of(path) != detected.format
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


def _of_rows(table: FileColumns) -> list[str]:
    messages = []
    if table.bad.count:
        messages.append(
            f"rows that cannot be read: {table.bad.count:,}, the first: "
            f"{table.bad.listed[0].rstrip('.')}. Correct them, or skip them with "
            "--on_bad_record=skip."
        )
    if table.rows == MAX_ROWS:
        messages.append(f"only the first {MAX_ROWS:,} rows were inspected.")
    return messages


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
