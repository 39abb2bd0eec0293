"""Reader of the JSON of Rasa, LUIS, Wit, Dialogflow and Snips: utterances with intents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.jsonl import array_in, load_json
from t2t_torch.readers.spans import Span, records_of_spans
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.registry import register_reader

_USERSAYS = "_usersays_"
_LONGEST_LABEL = 40
_SLOTS = ("slot_name", "entity", "alias")


def _match_nlu(head: Head) -> Match | None:
    if head.is_folder:
        files = _dialogflow_files(head.path)
        languages = sorted({one.stem.rpartition("_")[2] for one in files})
        doubt = f"utterances of {len(languages)} languages are read: {', '.join(languages)}."
        return Match(1.0, doubts=[doubt] if languages[1:] else ()) if files else None
    if next(_utterances(head.path, head.json), None) is None:
        return None
    if keys := _labelled_lists(head.json):
        doubt = f"each text of the list {keys[1]!r} is a row with the label {keys[0]!r}."
        return Match(0.97, doubts=[doubt])
    return Match(1.0)


@register_reader("nlu", matches=_match_nlu)
def read_nlu(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields {"text", "words", "tags", "intent", "spans", "cut"} for each utterance.

    Reads the JSON of Rasa, LUIS and Wit.ai, of Snips (a data set, or the files of its benchmark of
    2017), lists of texts by label, as {"tag": ..., "patterns": [...]}, and the files
    NAME_usersays_LANGUAGE.json of Dialogflow, one or all of a folder.
    Entities become tags as of the format "spans".  An utterance is bad if its parts are missing or
    of other types.

    Args:
      path: the file, compressed or not, or the folder of a Dialogflow export.
      bad: policy for bad utterances.
      encoding: the files', empty for UTF-8.

    Raises:
      DataError: a file cannot be read, or holds no utterances.
    """
    utterances = (
        (Place(one, number, unit="utterance"), intent, row)
        for one in (_dialogflow_files(path) if path.is_dir() else [path])
        for number, (intent, row) in enumerate(_utterances(one, load_json(one, encoding)), 1)
    )
    missing = f"{path} holds no utterances in the form of Rasa, LUIS, Wit, Dialogflow or Snips."
    return records_of_utterances(utterances, _of_json, bad, missing)


def records_of_utterances(
    utterances: Iterable[tuple[Place, str, Any]],
    read: Callable[[Any], tuple[str, list[Span]]],
    bad: BadRecords,
    missing: str,
) -> Iterator[Record]:
    """Yields the records of utterances.

    Args:
      utterances: place, intent and content of each.
      read: returns text and spans of a content.
      bad: policy for contents that cannot be read.
      missing: error message if there are none.
    """
    found = False
    for place, intent, content in utterances:
        found = True
        try:
            text, spans = read(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            bad.report(place, f"an entity that cannot be read: {error}")
        else:
            yield from records_of_spans(place, text, spans, bad, intent=intent)
    if not found:
        raise DataError(missing)


def _dialogflow_files(folder: Path) -> list[Path]:
    return sorted((*folder.glob(f"*{_USERSAYS}*.json"), *folder.glob(f"*/*{_USERSAYS}*.json")))


def _utterances(path: Path, loaded: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the intents and utterances of a file; none if it has another form."""
    if isinstance(loaded, list) and _USERSAYS in path.name:
        loaded = {path.name.rpartition(_USERSAYS)[0]: loaded}
    if not isinstance(loaded, dict):
        return
    data = loaded.get("rasa_nlu_data")
    rows = data.get("common_examples") if isinstance(data, dict) else None
    rows = rows or loaded.get("utterances")
    if isinstance(rows, list):
        rows = [one for one in rows if isinstance(one, dict) and isinstance(one.get("intent"), str)]
        yield from ((one["intent"], one) for one in rows)
        return
    if labelled := _labelled_lists(loaded):
        label, texts = labelled
        yield from (
            (row[label], {"text": one}) for row in array_in(loaded)[1] for one in row[texts]
        )
        return
    intents = loaded.get("intents", loaded)
    for intent, held in intents.items() if isinstance(intents, dict) else ():
        rows = held.get("utterances") if isinstance(held, dict) else held
        for one in rows if isinstance(rows, list) else ():
            if isinstance(one, dict) and isinstance(one.get("data"), list):
                yield intent, one


_NO_LABEL = re.compile(r"(?:.*[_\W])?(?:id|uuid|url|index|title|author|file|path|date)s?", re.I)
_ANSWERS = re.compile(r"(?:response|answer|context|repl)", re.I)
_MOST_LABELS = 200


def _labelled_lists(loaded: Any) -> tuple[str, str] | None:
    """Returns the keys of the label and the texts if each row of an array is a label with a list of
    its texts: few labels, short and all different, and nothing else that could be one.
    """
    rows = array_in(loaded)[1] if isinstance(loaded, dict) else []
    if not (1 < len(rows) <= _MOST_LABELS and all(isinstance(row, dict) for row in rows)):
        return None
    values = {key: [row[key] for row in rows] for key in rows[0] if all(key in r for r in rows)}
    lists = [key for key, held in values.items() if all(map(_are_texts, held))]
    lists = [key for key in lists if not _ANSWERS.match(key)]
    others = {
        key: [str(one) for one in held if one]
        for key, held in values.items()
        if all(isinstance(one, str | int | None) for one in held)
    }
    labels = [
        key
        for key, held in others.items()
        if len(set(held)) == len(rows) or key.lower() in ("tag", "intent")
    ]
    named = [key for key in labels if not _NO_LABEL.fullmatch(key)]
    if (
        len(lists) != 1
        or not named
        or any(key not in labels and held for key, held in others.items())
    ):
        return None  # without texts, or another key may be the label of each row
    texts = [text for held in values[lists[0]] for text in held]
    are_short = all(len(one) <= _LONGEST_LABEL and len(one.split()) < 5 for one in others[named[0]])
    are_many = len(texts) >= 2 * len(rows) and sum(" " in one for one in texts) * 3 > len(texts)
    return (named[0], lists[0]) if are_short and are_many else None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _of_json(row: dict[str, Any]) -> tuple[str, list[Span]]:
    """Returns text and spans of an utterance: in parts, or with offsets, of LUIS with the last."""
    if "text" not in row:
        return _of_parts(row["data"])
    spans = [
        (int(one["startPos"]), int(one["endPos"]) + 1, one["entity"])
        if "startPos" in one
        else (int(one["start"]), int(one["end"]), one["entity"])
        for one in row.get("entities") or ()
    ]
    return row["text"] + "", [(a, b, kind + "") for a, b, kind in sorted(spans)]


def _of_parts(parts: list[dict[str, Any]]) -> tuple[str, list[Span]]:
    """Returns the text and the spans of an utterance in parts, of Snips or Dialogflow."""
    text, spans = "", []
    for part in parts:
        start, text = len(text), text + part["text"]
        slot = next((part[key] for key in _SLOTS if part.get(key)), "")
        if slot and part["text"].strip():
            spans.append((start, len(text), str(slot)))
    blanks = len(text) - len(text.lstrip())
    text = text.strip()
    moved = [(max(0, a - blanks), min(b - blanks, len(text)), kind) for a, b, kind in spans]
    return text, moved
