"""The first part of a file, by which the readers recognize their format.

A reader's `matches(head)` returns a `Match` with its confidence, or None:

    1.0  proven: a magic number, or a root element or structure that no other format has
    0.9  the structure agrees on nearly all lines
    0.6  a likely structure
    0.3  the file extension only
    0.1  any text
"""

from __future__ import annotations

import codecs
import functools
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.errors import DataError
from t2t_torch.files import DAMAGED, open_bytes, without_packing

SURE = 0.9
"""Minimum fraction of lines or values that must agree."""

MAX_HEAD_LINES = 1000
"""Maximum number of lines of a head."""

NOT_IN_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters that no text has."""

_NOT_IN_CP1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_MOST_UNKNOWN = 1000  # bytes, of which one may be of no character in cp1252
_START = 1 << 16  # bytes
_READ = 1 << 24  # bytes from which lines and encoding are inferred
_MAX_JSON = 1 << 28  # bytes of a document that is parsed as a whole
_MAX_FOREIGN = 0.3  # maximum fraction of letters with accents in Western European text


class Match(NamedTuple):
    """The judgement of a reader on a file.

    Attributes:
      confidence: on the scale of this module.
      options: options of the format that differ from the defaults; `encoding` is added by the
        caller.
      doubts: warnings about uncertain results, as sentences.
      refusal: error message for a format that is recognized but not read; detection raises it as
        DataError if this match ranks first.
    """

    confidence: float
    options: Mapping[str, Any] = {}
    doubts: Sequence[str] = ()
    refusal: str = ""


_FEWEST_RETURNS = 3


def has_returns_alone(raw: bytes) -> bool:
    """Returns whether the lines of a text end with carriage returns alone."""
    return b"\n" not in raw and raw.count(b"\r") >= _FEWEST_RETURNS


class Head:
    """The first part of a file, or the entries of a folder; read when first used.

    Args:
      path: the file or folder.

    Attributes:
      path: the file or folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @functools.cached_property
    def is_folder(self) -> bool:
        """True for a folder."""
        return self.path.is_dir()

    @functools.cached_property
    def names(self) -> Sequence[str]:
        """Names of a folder's visible entries, sorted; empty for files."""
        entries = self.path.iterdir() if self.is_folder else ()
        return sorted(one.name for one in entries if not one.name.startswith("."))

    @property
    def start(self) -> bytes:
        """The first 64 KiB, decompressed; empty for folders and damaged files."""
        return self._raw[:_START]

    @functools.cached_property
    def _raw(self) -> bytes:
        if self.is_folder:
            return b""
        try:
            with open_bytes(self.path) as file:
                return file.read(_READ)
        except (*DAMAGED, OSError):
            return b""  # its reader reports the problem

    @property
    def encoding(self) -> str:
        """The encoding as of Python's codecs; "" for UTF-8 and binary files.

        Raises:
          DataError: it is a text of an encoding that cannot be inferred.
        """
        return self.inferred_encoding[0]

    @functools.cached_property
    def inferred_encoding(self) -> tuple[str, Sequence[str]]:
        """The encoding, and warnings about it; see `encoding_of`."""
        return encoding_of(self._raw, self.path)

    @functools.cached_property
    def lines(self) -> Sequence[str]:
        """The first 1,000 lines that can be decoded, without ends; empty for folders and binary."""
        text = self._raw.decode(self.encoding, "ignore").encode() if self.encoding else self._raw
        text = text.replace(b"\r", b"\n") if has_returns_alone(text) else text
        raw = text.removeprefix(codecs.BOM_UTF8).split(b"\n", MAX_HEAD_LINES)
        if len(raw) > MAX_HEAD_LINES or len(self._raw) == _READ or not raw[-1]:
            raw.pop()
        lines = [one.decode() for one in raw if b"\0" not in one and _is_utf8(one)]
        return [line.removesuffix("\r") for line in lines] if len(lines) * 2 > len(raw) else []

    @functools.cached_property
    def full_lines(self) -> Sequence[str]:
        """The lines that are not blank."""
        return [line for line in self.lines if line.strip()]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)

    def has_ending(self, *endings: str) -> bool:
        """Returns whether the file name ends so, in any case, apart from its compression."""
        return without_packing(self.path.name).lower().endswith(endings)

    @functools.cached_property
    def json_lines(self) -> Sequence[Any]:
        """The value of each full line; empty unless nearly all lines are JSON objects or arrays."""
        values = []
        for line in self.full_lines:
            if line.lstrip().startswith(("{", "[")):
                try:
                    values.append(json.loads(line))
                except (ValueError, RecursionError):
                    continue
        return values if len(values) >= SURE * len(self.full_lines) else []

    @functools.cached_property
    def json(self) -> Any:
        """The whole file as one JSON object or array; None if it is not JSON."""
        start = self._raw.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
        if not self.full_lines or (not self.encoding and start not in (b"{", b"[")):
            return None
        try:
            with open_bytes(self.path) as file:
                content = file.read(_MAX_JSON)
            value = json.loads(content.decode(self.encoding or "utf-8-sig"))
        except (*DAMAGED, OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict | list) else None


def encoding_of(raw: bytes, path: Path) -> tuple[str, Sequence[str]]:
    """Infers the encoding of a text from its first bytes.

    Args:
      raw: the bytes.
      path: the file, for messages.

    Returns:
      The encoding, "" for UTF-8 and binary files; and warnings.

    Raises:
      DataError: it is a text of an encoding that cannot be inferred.
    """
    even, odd = raw[:2000:2].count(0), raw[1:2000:2].count(0)
    encoding = ""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif _is_two_byte_text(raw, even, odd):
        encoding = "utf-16-le" if odd > even else "utf-16-be"
    if encoding:
        return encoding, [f'{path.name} is UTF-16, so "encoding" is {encoding!r}.']
    marked = [line for line in raw.split(b"\n") if not line.isascii()]
    if len(raw) == _READ:
        marked = marked[:-1]
    if NOT_IN_TEXT.search(raw) or sum(map(_is_utf8, marked)) * 2 >= len(marked):
        return "", []
    text, encoding = raw.decode("cp1252", "replace"), "cp1252"
    if "\ufffd" in text:
        text, encoding = raw.decode("latin-1"), "latin-1"
    letters = [one for one in text if one.isalpha()]
    foreign = sum(not one.isascii() for one in letters)
    unknown = len(_NOT_IN_CP1252.findall(raw)) * _MOST_UNKNOWN
    if unknown > len(raw) or foreign > _MAX_FOREIGN * len(letters):
        raise DataError(
            f"{path} is text, but neither UTF-8 nor Western European (cp1252); its encoding is not "
            "clear. Convert it with the right one, such as cp1251 (Cyrillic), GB18030 or "
            f"SHIFT-JIS:  iconv -f cp1251 -t UTF-8 {shlex.quote(str(path))} > NEW"
        )
    shown = next(line for line in text.splitlines() if not line.isascii())
    at = next(place for place, one in enumerate(shown) if not one.isascii())
    return encoding, [
        f"{path.name} is not UTF-8. It is read as {encoding} (Western European), where it says "
        f'{shown[max(0, at - 20) : at + 20]!r}; if that is wrong, change "encoding".'
    ]


def _is_two_byte_text(raw: bytes, even: int, odd: int) -> bool:
    """Returns whether every second byte is often 0, and the other bytes are those of texts."""
    half = len(raw[:2000:2])
    if max(even, odd) * 4 <= half or min(even, odd) * 20 >= max(even, odd):
        return False
    others = raw[:2000:2] if odd > even else raw[1:2000:2]
    printable = sum(byte >= 0x20 for byte in others)
    return len(NOT_IN_TEXT.findall(others)) * 20 < half and printable * 2 > half


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def starts_with(pattern: bytes) -> Callable[[Head], Match | None]:
    """Returns a reader's `matches` of files whose first bytes match a regular expression."""
    magic = re.compile(pattern, re.DOTALL)
    return lambda head: Match(1.0) if magic.match(head.start) else None
