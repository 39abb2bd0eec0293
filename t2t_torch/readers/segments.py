"""Sentences that are marked up, one a line: evaluation sets in SGML or XML, and talks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import unescape

from t2t_torch.readers.bad_records import BadRecords, Place
from t2t_torch.readers.text_file import Numbered, TextFile

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)
_OPENING = re.compile(r"<seg\b", re.IGNORECASE)
_ENTITIES = {"&quot;": '"', "&apos;": "'"}  # beside &amp; &lt; &gt;, which `unescape` knows
_TALK_TEXT = re.compile(r"\s*<(title|description)>(.*)</\1>\s*")
_TALK_MARK = re.compile(r"\s*</?(?:url|talkid|keywords|speaker|reviewer|translator|doc)\b")


def read_segments(path: Path, bad: BadRecords) -> Iterator[Numbered]:
    """Yields the sentences between <seg> and </seg>, in WMT's and IWSLT's evaluation sets.

    Each is told with the number of its line, entities resolved and blanks around it left out.  Bad
    is a segment that does not end on its line; its text is None, so that those of a translation
    stay beside theirs.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad segments.
    """
    for number, line in TextFile(path, bad):
        if line is None:
            yield number, None
            continue
        end = 0
        for match in _SEGMENT.finditer(line):
            yield number, unescape(match[1], _ENTITIES).strip()
            end = match.end()
        opening = _OPENING.search(line, end)
        if opening is not None:
            place = Place(path, number, opening.start() + 1)
            bad.report(place, "a <seg> without a </seg> on its line")
            yield number, None


def read_talk(path: Path, bad: BadRecords) -> Iterator[Numbered]:
    """Yields the lines of IWSLT's `train.tags`: of talks, with their titles and descriptions.

    Lines with other marks (address, key words, speaker, translators ...) are left out.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of lines that are no text; that of a text is None.
    """
    for number, line in TextFile(path, bad):
        if line is None:
            yield number, None
        elif not _TALK_MARK.match(line):
            match = _TALK_TEXT.fullmatch(line)
            yield number, (match[2] if match else line).strip()
