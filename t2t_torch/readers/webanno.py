"""Reader of WebAnno TSV 3, the export of WebAnno and INCEpTION."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords, Place, Record, TextFile, blocks_of
from t2t_torch.registry import register_reader

_FORMAT = "#FORMAT=WebAnno TSV 3"
_TEXT = "#Text="
_LAYERS = {"#T_SP=": "span", "#T_CH=": "chain", "#T_RL=": "relation"}
_OF_WORDS = ("lexmorph", "segmentation", "morph")  # packages of layers with a value for each word
_ID = re.compile(r"\d+-\d+")
_DISAMBIGUATED = re.compile(r"(.*?)(?:\[(\d+)\])?", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")
_UNNAMED = "*"  # of an annotation without a value


class LayerFeature(NamedTuple):
    """A column of a span layer.

    Attributes:
      column: its number.
      layer: short name of the layer.
      name: LAYER.FEATURE.
      is_span: False for a value of each word, such as its part of speech.
    """

    column: int
    layer: str
    name: str
    is_span: bool


def _match_webanno(head: Head) -> Match | None:
    if not head.full_lines or not head.full_lines[0].startswith(_FORMAT):
        return None
    rows = [line.split("\t") for line in head.lines if line[:1].isdigit()]
    used = [
        one
        for one in _features(head.lines)
        if any(len(row) > one.column and row[one.column][:1] not in ("", "*", "_") for row in rows)
    ]
    if not used:
        return Match(1.0)
    others = " or ".join(repr(one.name) for one in used[1:])
    doubt = (
        f'the tags are those of the layer {used[0].name!r}; the option "layer" may name {others}.'
    )
    return Match(1.0, {"layer": used[0].name}, [doubt] if others else [])


@register_reader("webanno", matches=_match_webanno)
def read_webanno(
    path: Path, bad: BadRecords, *, layer: str = "", encoding: str = ""
) -> Iterator[Record]:
    """Yields {"text", "words", "tags"} for each sentence.

    The annotations of a span layer become IOB2 tags; those of parts of speech, lemmas and other
    morphology are the tags themselves, "_" for none.  Of several annotations of a word the first is
    used.  Annotations of parts of words, chains and relations are skipped.  A sentence is bad if a
    line has fewer columns than the layers require.

    WebAnno TSV 3.3, inception-project.github.io, user guide.

    Args:
      path: the file, compressed or not.
      bad: policy for bad sentences.
      layer: the layer and feature of the tags, such as "NamedEntity.value"; by default the first
        feature of a span layer.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read, or has no layers.
      UsageError: there is no such layer.
    """
    blocks = blocks_of(TextFile(path, bad, encoding))
    header: list[str] = []
    for block in blocks:
        lines = (line for _, line in block)
        own = list(itertools.takewhile(lambda x: x[:1] == "#" and not x.startswith(_TEXT), lines))
        header += own
        if len(own) < len(block):
            blocks = itertools.chain([block], blocks)
            break
    features = {one.name: one for one in _features(header)}
    if not header or not header[0].startswith(_FORMAT) or not features:
        raise DataError(f"{path} does not begin with {_FORMAT} and the layers (#T_SP=...).")
    layer = layer or next(iter(features))
    if layer not in features:
        known = ", ".join(features)
        raise UsageError(f"{path} has no layer {layer!r}; its layers are {known}.")
    for block in blocks:
        yield from _sentence(path, block, features[layer], bad)


def _features(lines: Sequence[str]) -> list[LayerFeature]:
    """Returns the columns of the span layers that the header declares.

    Spans are before values of words, and identifiers, such as addresses in Wikidata, are last.
    """
    features, column = [], 3
    for line in lines:
        kind = _LAYERS.get(line[:6], "")
        layer, *names = line[6:].split("|")
        short = layer.rpartition(".")[2]
        is_span = not any(f".{part}." in layer for part in _OF_WORDS)
        if kind == "span":
            for number, name in enumerate(names, column):
                features.append(LayerFeature(number, short, f"{short}.{name}".rstrip("."), is_span))
        column += 2 if kind == "chain" else len(names) * bool(kind)
    return sorted(features, key=lambda one: (one.name.endswith(".identifier"), not one.is_span))


def _sentence(
    path: Path, block: Sequence[tuple[int, str]], feature: LayerFeature, bad: BadRecords
) -> Iterator[Record]:
    """Yields the record of the lines between blank ones, if they have words."""
    lines = [(number, line.split("\t")) for number, line in block]
    texts = [row[0].removeprefix(_TEXT) for _, row in lines if row[0].startswith(_TEXT)]
    rows = {number: row for number, row in lines if _ID.fullmatch(row[0])}
    if short := next((number for number, row in rows.items() if len(row) <= feature.column), 0):
        bad.report(Place(path, short), f"{len(rows[short])} columns; {feature.name} is another")
    elif rows:
        words = [_ESCAPED.sub(r"\1", row[2]).replace(" ", "\u00a0") for row in rows.values()]
        tags = _tags([row[feature.column] for row in rows.values()], feature)
        text = _ESCAPED.sub(r"\1", " ".join(texts).strip())
        yield Record(Place(path, min(rows)), {"text": text, "words": words, "tags": tags})


def _tags(cells: Sequence[str], feature: LayerFeature) -> list[str]:
    """Returns the tags of a column: IOB2 of a span layer, else its values."""
    tags, before = [], ""
    for cell in cells:
        found = _DISAMBIGUATED.fullmatch(re.split(r"(?<!\\)\|", cell)[0])
        value, number = (found[1], found[2] or "") if found else (cell, "")
        if not feature.is_span or value == "_":
            tags.append(value)
        else:
            label = feature.layer if value == _UNNAMED else _ESCAPED.sub(r"\1", value)
            mark = "I" if number and number == before else "B"
            tags.append(f"{mark}-{'_'.join(label.split())}")
        before = number
    return ["O" if tag == "_" and feature.is_span else tag for tag in tags]
