"""Reader of the evaluation sets of machine translation: segments in SGML or XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import unescape

from t2t_torch.errors import DataError
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords, Numbered, Place, Record, TextFile
from t2t_torch.registry import register_reader

_ENTITIES = {"&quot;": '"', "&apos;": "'"}
_MARK = re.compile(
    r"<(?P<side>src|ref|hyp|tst)(?:set)?\b|<doc\b(?P<doc>[^>]*)>"
    r"|<seg\b(?P<seg>[^>]*)>(?:(?P<text>.*?)</seg>)?",
    re.IGNORECASE,
)
_ID = re.compile(r"\b(?:doc)?id\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)
_SET = re.compile(r"<(src|ref)set\b[^>]*\bsetid\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)
_ENDINGS = (".sgm", ".sgml", ".xml")

Key = tuple[str, str]
"""Ids of a document and of a segment in it."""


def _match_sgm(head: Head) -> Match | None:
    if head.is_folder:
        named = [one for one in head.names if not one.lower().startswith(("readme", "license"))]
        return Match(1.0) if named and all(_set_of(head.path / one) for one in named) else None
    text = head.text
    if not re.search(r"<seg\b", text) or not re.search(r"<(?:src|ref)(?:set)?\b", text):
        return None
    partner = _partner(head.path)
    doubts = [f"{partner.name} has the translations, by its setid."] if partner else ()
    return Match(1.0, doubts=doubts)


@register_reader("sgm", endings=(".sgm", ".sgml"), matches=_match_sgm)
def read_sgm(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields {"source", "target"} for each segment with a reference; {"text"} without references.

    Reads the SGML of WMT and NIST (`srcset` and `refset` in two files), the XML of IWSLT, and that
    of WMT since 2021 (`src` and `ref` in one file, of which the first reference is used).  The
    references of a srcset are the file beside it with a refset of the same `setid`.  A segment is
    bad if it does not end on its line, or has no reference where others have.

    Args:
      path: the file, compressed or not, or a folder, of which all srcsets are read.
      bad: policy for bad segments.
      encoding: the files', empty for UTF-8.

    Raises:
      DataError: a file cannot be read, or has no segments.
    """
    files = [path]
    if path.is_dir():
        files = [one for one in sorted(path.iterdir()) if (_set_of(one) or ("",))[0] == "src"]
    made = [_segments(one, bad, encoding) for one in files]
    if not any(made):
        raise DataError(f"{path} has no segments, <seg>...</seg>.")
    for one, sides in zip(files, made, strict=True):
        sources = sides.get("src") or next(iter(sides.values()), {})
        targets = sides.get("ref", {}) if "src" in sides else {}
        if not targets and (partner := _partner(one)):
            targets = _segments(partner, bad, encoding).get("ref", {})
        for key, (place, text) in sources.items():
            if not targets:
                yield Record(place, {"text": text})
            elif key in targets:
                yield Record(place, {"source": text, "target": targets[key][1]})
            else:
                bad.report(place, f"segment {key[1]} of the document {key[0]!r} has no reference")


def _segments(
    path: Path, bad: BadRecords, encoding: str
) -> dict[str, dict[Key, tuple[Place, str]]]:
    """Returns by side (src, ref ...) the places and texts of the segments."""
    sides: dict[str, dict[Key, tuple[Place, str]]] = {}
    side = document = ""
    for number, line in TextFile(path, bad, encoding):
        for mark in _MARK.finditer(line or ""):
            if mark["side"]:
                side = mark["side"].lower()
            elif mark["doc"] is not None:
                document = _id(mark["doc"])
            elif (text := _text(mark, Place(path, number), bad)) is not None:
                held = sides.setdefault(side, {})
                key = document, _id(mark["seg"]) or str(len(held))
                held.setdefault(key, (Place(path, number), text))
    return sides


def read_segments(path: Path, bad: BadRecords) -> Iterator[Numbered]:
    """Yields the line number and the text of each segment, in any document.

    A segment that does not end on its line is bad; it yields None, which keeps parallel files
    aligned.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad segments.
    """
    for number, line in TextFile(path, bad):
        if line is None:
            yield number, None
        for mark in _MARK.finditer(line or ""):
            if mark["seg"] is not None:
                yield number, _text(mark, Place(path, number), bad)


def _text(mark: re.Match[str], line: Place, bad: BadRecords) -> str | None:
    """Returns the text of a segment with entities resolved; None if it does not end on its line."""
    if mark["text"] is None:
        bad.report(line._replace(column=mark.start() + 1), "a <seg> without a </seg> on its line")
        return None
    return unescape(mark["text"], _ENTITIES).strip()


def _id(attributes: str) -> str:
    found = _ID.search(attributes)
    return found[1] if found else ""


def _set_of(path: Path) -> tuple[str, str] | None:
    """Returns src or ref, and the setid of a file; None if it has another form."""
    head = Head(path)
    if not path.is_file() or not head.has_ending(*_ENDINGS):
        return None
    found = _SET.search(head.text)
    return (found[1].lower(), found[2]) if found else None


def _partner(path: Path) -> Path | None:
    """Returns the file beside a srcset with the references of its setid."""
    own = _set_of(path)
    if own is None or own[0] != "src":
        return None
    there = sorted(path.parent.iterdir())
    return next((one for one in there if _set_of(one) == ("ref", own[1])), None)
