"""Reader of the JSON of Rasa, LUIS, Wit, Dialogflow and Snips: utterances with intents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.jsonl import load_json
from t2t_torch.readers.spans import Span, records_of_spans
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.registry import register_reader

_USERSAYS = "_usersays_"
_SLOTS = ("slot_name", "entity", "alias")


def _match_nlu(head: Head) -> Match | None:
    if head.is_folder:
        files = _dialogflow_files(head.path)
        languages = sorted({one.stem.rpartition("_")[2] for one in files})
        doubt = f"utterances of {len(languages)} languages are read: {', '.join(languages)}."
        return Match(1.0, doubts=[doubt] if languages[1:] else ()) if files else None
    if not any(f'"{key}"' in head.text for key in ("utterances", "data", "common_examples")):
        return None
    return Match(1.0) if next(_utterances(head.path, head.json), None) else None


@register_reader("nlu", matches=_match_nlu)
def read_nlu(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields {"text", "words", "tags", "intent", "spans", "cut"} for each utterance.

    Reads the JSON of Rasa, LUIS and Wit.ai, of Snips (a data set, or the files of its benchmark of
    2017), and the files NAME_usersays_LANGUAGE.json of Dialogflow, one or all of a folder.
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
    intents = loaded.get("intents", loaded)
    for intent, held in intents.items() if isinstance(intents, dict) else ():
        rows = held.get("utterances") if isinstance(held, dict) else held
        for one in rows if isinstance(rows, list) else ():
            if isinstance(one, dict) and isinstance(one.get("data"), list):
                yield intent, one


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
    return row["text"] + "", [(a, b, "_".join(kind.split())) for a, b, kind in sorted(spans)]


def _of_parts(parts: list[dict[str, Any]]) -> tuple[str, list[Span]]:
    """Returns the text and the spans of an utterance in parts, of Snips or Dialogflow."""
    text, spans = "", []
    for part in parts:
        start, text = len(text), text + part["text"]
        slot = next((part[key] for key in _SLOTS if part.get(key)), "")
        if slot and part["text"].strip():
            spans.append((start, len(text), "_".join(str(slot).split())))
    blanks = len(text) - len(text.lstrip())
    text = text.strip()
    moved = [(max(0, a - blanks), min(b - blanks, len(text)), kind) for a, b, kind in spans]
    return text, moved
