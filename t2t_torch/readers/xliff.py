"""Reader of XLIFF, the exchange format of localization."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.readers.xml_file import read_elements, text_of
from t2t_torch.registry import register_reader

_UNFINISHED = ("new", "needs-translation", "initial")


def _match_xliff(head: Head) -> Match | None:
    return Match(1.0) if re.search(r"<(?:\w+:)?xliff\b", head.text[:5000]) else None


@register_reader("xliff", endings=(".xlf", ".xliff"), matches=_match_xliff)
def read_xliff(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields {"source", "target"} for each translated unit of XLIFF 1.2, or segment of 2.0.

    Units without a target, and those whose state says that it is not translated, are skipped.
    Inline codes are removed, and runs of spaces become one.  A place holds the number of the unit,
    from 1.  A unit with a target but no source is bad.

    Args:
      path: the file, compressed or not.
      bad: policy for bad units.
      encoding: the file's, empty for the one that it declares.

    Raises:
      DataError: the file cannot be read, or is not XML.
    """
    for number, unit in enumerate(read_elements(path, ("trans-unit", "segment"), encoding), 1):
        target = unit.find("target")
        state = "" if target is None else target.get("state", unit.get("state", ""))
        texts = text_of(unit.find("source")), text_of(target)
        if texts[1] and (state not in _UNFINISHED or texts[0] != texts[1]):
            place = Place(path, number, unit="unit")
            if texts[0]:
                yield Record(place, {"source": texts[0], "target": texts[1]})
            else:
                bad.report(place, "a target without a source")
