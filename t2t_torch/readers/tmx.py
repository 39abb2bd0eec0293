"""Reader of translation memories, TMX."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.readers.xml_file import read_elements, text_of
from t2t_torch.registry import register_reader

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_SOURCE = re.compile(r"\bsrclang\s*=\s*[\"']([^\"'*]+)")
_VARIANT = re.compile(r"<tuv\b[^>]*?\blang\s*=\s*[\"']([^\"']+)")


def _match_tmx(head: Head) -> Match | None:
    text = head.text
    if not re.search(r"<tmx\b", text[:5000]):
        return None
    counts = Counter(map(_language, _VARIANT.findall(text)))
    if len(counts) < 3:
        return Match(1.0)
    declared = _SOURCE.search(text)
    first = _language(declared[1]) if declared else ""
    source = first if first in counts else next(iter(counts))
    target = max((one for one in counts if one != source), key=lambda one: counts[one])
    doubt = (
        f"the memory is of {len(counts)} languages, {', '.join(counts)}: {source!r} is the source "
        f'and {target!r} the target; "options" names others.'
    )
    return Match(1.0, {"source": source, "target": target}, [doubt])


@register_reader("tmx", endings=(".tmx",), matches=_match_tmx)
def read_tmx(
    path: Path, bad: BadRecords, *, source: str = "", target: str = "", encoding: str = ""
) -> Iterator[Record]:
    """Yields {"source", "target"} for each translation unit that has both languages.

    Inline codes (`bpt`, `ph` ...) are removed, and runs of spaces become one.  A place holds the
    number of the unit, from 1.  A unit with an empty text is bad.

    TMX 1.4b, gala-global.org/tmx-14b.

    Args:
      path: the file, compressed or not.
      bad: policy for bad units.
      source: language of the source, such as "en" for "en-US" or "EN"; by default that of the
        header, or else the first of the first unit.
      target: language of the target; by default the first other one.
      encoding: the file's, empty for the one that it declares.

    Raises:
      DataError: the file cannot be read, or is not XML.
    """
    number = 0
    for element in read_elements(path, ("header", "tu"), encoding):
        if element.tag == "header":
            declared = element.get("srclang", "")
            source = source or ("" if declared.startswith("*") else declared)
            continue
        number += 1
        variants = {one.get(_LANGUAGE) or one.get("lang", ""): one for one in element.iter("tuv")}
        first = _closest(source, variants) if source else next(iter(variants), "")
        others = {name: one for name, one in variants.items() if name != first}
        second = _closest(target, others) if target else next(iter(others), "")
        if not first or not second:
            continue
        source, target = source or first, target or second
        texts = [text_of(variants[name].find("seg")) for name in (first, second)]
        place = Place(path, number, unit="unit")
        if all(texts):
            yield Record(place, {"source": texts[0], "target": texts[1]})
        else:
            bad.report(place, f"no text in {(first, second)[texts.index('')]!r}")


def _language(code: str) -> str:
    """Returns the language of a code such as "en-US"."""
    return code.lower().replace("_", "-").partition("-")[0]


def _closest(code: str, names: Collection[str]) -> str:
    """Returns a code itself, or else the first of its language; "" if there is none."""
    of_language = (one for one in names if _language(one) == _language(code))
    return code if code in names else next(of_language, "")
