"""Reader of Rasa's training data: utterances with intents and entities."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from t2t_torch.errors import DataError
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.nlu import records_of_utterances
from t2t_torch.readers.spans import Span
from t2t_torch.readers.text_file import BadRecords, Place, Record, TextFile, read_whole
from t2t_torch.registry import register_reader
from t2t_torch.yaml_file import parse_yaml

_MARKDOWN = ".md"
_ENDINGS = (".yml", ".yaml", _MARKDOWN)  # in a folder
_MAX_YAML = 1 << 24  # characters
_ENTITY = re.compile(r"\[([^\]]+)\](?:\(([^)]+)\)|(\{[^}]+\}))")
_ITEM = re.compile(r"\s*[-*+] +(.*?)\s*", re.DOTALL)
_HEADING = re.compile(r"##?\s*(\w+):\s*(.+?)\s*")
_MARKS = re.compile(
    r"^nlu:\s*$.*^ *- +intent:|^##?\s*intent:[^\n]*\s+[-*+] ", re.MULTILINE | re.DOTALL
)


def _match_rasa(head: Head) -> Match | None:
    heads = map(Head, _files(head.path)[:100]) if head.is_folder else [head]
    return Match(1.0) if any(_MARKS.search(one.text) for one in heads) else None


@register_reader("rasa", matches=_match_rasa)
def read_rasa(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields {"text", "words", "tags", "intent", "spans", "cut"} for each example of an intent.

    Reads the YAML of Rasa 2 and 3, and the Markdown of Rasa 1; the format "nlu" reads its JSON.
    Entities, as in `[Riga](city)` or `[Riga]{"entity": "city"}`, become tags as of the format
    "spans"; roles, groups and values of synonyms are ignored.  Synonyms, regular expressions,
    lookup tables, stories and rules are skipped.  A record is bad if an annotation cannot be read.
    In YAML, a place holds the number of the example, from 1.

    Args:
      path: the file, compressed or not, or a folder, of which all YAML and Markdown is read, and
        that of its subfolders.
      bad: policy for bad examples.
      encoding: the files', empty for UTF-8.

    Raises:
      DataError: a file cannot be read or is invalid, or there are no examples.
    """
    utterances = (
        example
        for one in (_files(path) if path.is_dir() else [path])
        for example in (_of_markdown if Head(one).has_ending(_MARKDOWN) else _of_yaml)(
            one, bad, encoding
        )
    )
    missing = f"{path} holds no examples of intents, which Rasa has in a section nlu."
    return records_of_utterances(utterances, _unmarked, bad, missing)


def _files(folder: Path) -> list[Path]:
    held = (*folder.glob("*"), *folder.glob("*/*"))
    return sorted(one for one in held if Head(one).has_ending(*_ENDINGS) and one.is_file())


Example = tuple[Place, str, str]
"""Place, intent and annotated text of an example."""


def _of_markdown(path: Path, bad: BadRecords, encoding: str) -> Iterator[Example]:
    intent = ""
    for number, line in TextFile(path, bad, encoding):
        if heading := _HEADING.fullmatch(line or ""):
            intent = heading[2] if heading[1] == "intent" else ""
        elif intent and (item := _ITEM.fullmatch(line or "")):
            yield Place(path, number), intent, item[1]


def _of_yaml(path: Path, bad: BadRecords, encoding: str) -> Iterator[Example]:
    text = read_whole(path, encoding)
    if len(text) > _MAX_YAML:
        most = f"{_MAX_YAML:,} characters"
        raise DataError(f"{path} has more than {most}; divide it into several files.")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # with libyaml, 10 times as fast
    try:
        loaded = parse_yaml(text, loader)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(path, mark.line + 1, mark.column + 1) if mark else path
        why = getattr(error, "problem", None) or error
        raise DataError(f"{place}: no YAML: {why}") from None
    number = 0
    for section in _listed(loaded, "nlu"):
        intent, block = _value(section, "intent"), _value(section, "examples")
        lines = block.splitlines() if isinstance(block, str) else ()
        items = [item[1] for line in lines if (item := _ITEM.fullmatch(line))]
        texts = [_value(one, "text") for one in _listed(section, "examples")]
        for text in (*items, *texts) if isinstance(intent, str) else ():
            number += 1
            place = Place(path, number, unit="example")
            if isinstance(text, str) and text.strip():
                yield place, intent, text.strip().removeprefix("- ")
            else:
                bad.report(place, "an example that is no text")


def _value(mapping: Any, key: str) -> Any:
    return mapping.get(key) if isinstance(mapping, dict) else None


def _listed(mapping: Any, key: str) -> list[Any]:
    value = _value(mapping, key)
    return value if isinstance(value, list) else []


def _unmarked(marked: str) -> tuple[str, list[Span]]:
    """Returns a text without its annotations, and their spans.

    Raises:
      ValueError: an annotation has no entity.
    """
    text, spans, end = "", [], 0
    for found in _ENTITY.finditer(marked):
        text += marked[end : found.start()]
        # In brackets, a value may stand behind the name; in braces there is an object of JSON.
        entity = found[2].partition(":")[0] if found[2] else json.loads(found[3]).get("entity")
        if not entity or not isinstance(entity, str):
            raise ValueError(found[0])
        spans.append((len(text), len(text) + len(found[1]), entity))
        text += found[1]
        end = found.end()
    return text + marked[end:], spans
