"""Reader of the JSON of spaCy 2, which `spacy convert` reads and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.readers.docbin import CHOSEN
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.jsonl import load_json
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.registry import register_reader

_COLUMNS = {"words": "orth", "tags": "ner", "pos": "tag"}


def _match_spacy_json(head: Head) -> Match | None:
    if '"paragraphs"' not in head.text or '"tokens"' not in head.text:
        return None
    return Match(1.0) if isinstance(head.json, list) and _paragraphs(head.json) else None


@register_reader("spacy_json", matches=_match_spacy_json)
def read_spacy_json(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields {"words", "tags", "pos", "labels"} for each sentence; loads the file into memory.

    "tags" are those of the entities, in BILOU, and "pos" those of the words; each is left out where
    tokens have none.  "labels" are the categories of the sentence's paragraph with a score of at
    least 0.5, left out if there are no categories.  A place holds the number of the paragraph.

    spaCy's JSON input format, v2.spacy.io/api/annotation#json-input.

    Args:
      path: the file, compressed or not.
      bad: policy for sentences that are not of this form.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read, or is not of this form down to paragraphs.
    """
    loaded = load_json(path, encoding)
    paragraphs = _paragraphs(loaded if isinstance(loaded, list) else [loaded])
    if not paragraphs:
        raise DataError(f'{path} is not of spaCy\'s form, [{{"id": 0, "paragraphs": [...]}}, ...].')
    for number, paragraph in enumerate(paragraphs, 1):
        place = Place(path, number, unit="paragraph")
        try:
            categories = paragraph.get("cats") or ()
            labels = [str(one["label"]) for one in categories if one["value"] >= CHOSEN]
            made = [_sentence(one["tokens"]) for one in paragraph["sentences"]]
        except (KeyError, TypeError, AttributeError) as error:
            bad.report(place, f"no sentences of tokens: {error!r}")
            continue
        for values in made:
            yield Record(place, {**values, "labels": labels} if categories else values)


def _paragraphs(loaded: list[Any]) -> list[Any]:
    held = [one.get("paragraphs") if isinstance(one, dict) else None for one in loaded]
    lists = [one for one in held if isinstance(one, list)]
    paragraphs = [paragraph for one in lists for paragraph in one]
    if len(lists) < len(loaded):
        return []
    return paragraphs if all(isinstance(p, dict) and "sentences" in p for p in paragraphs) else []


def _sentence(tokens: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Returns the columns of a sentence that all of its tokens have."""
    columns = {
        name: [one[key] for one in tokens]
        for name, key in _COLUMNS.items()
        if key == "orth" or all(one.get(key) for one in tokens)
    }
    for held in columns.values():
        if not tokens or not all(isinstance(value, str) and value.strip() for value in held):
            raise TypeError("a token without a word")
    return columns
