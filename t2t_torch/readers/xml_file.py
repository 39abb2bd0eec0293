"""XML as a stream of elements, read with defusedxml."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError, require
from t2t_torch.files import DAMAGED, open_bytes
from t2t_torch.readers.text_file import Place, known_encoding

_CODES = frozenset("bpt ept it ph ut sc ec".split())
_DEEPEST = 100


def read_elements(path: Path, names: Collection[str], encoding: str = "") -> Iterator[Any]:
    """Yields the elements of some names, in document order, with constant memory.

    Names have no namespace.  Inline codes of translation memories (bpt, ept, it, ph ...) are empty:
    they hold the markup of another document.

    Args:
      path: the file, compressed or not.
      names: names of the elements, not one within another.
      encoding: the file's, empty for the one that it declares.

    Raises:
      DataError: the file cannot be read, is not XML, or defines entities.
    """
    library = require("defusedxml.ElementTree", "xml", f"{path} is read with defusedxml", DataError)
    parser = library.DefusedXMLParser(encoding=known_encoding(path, encoding) or None)
    opened: list[Any] = []
    inside = 0
    try:
        with open_bytes(path) as file:
            for event, element in library.iterparse(file, ("start", "end"), parser):
                name = element.tag.rpartition("}")[2]
                if event == "start":
                    opened.append(element)
                    inside += name in names
                    if len(opened) > _DEEPEST:
                        raise DataError(f"{path}: elements are nested deeper than {_DEEPEST}.")
                    continue
                opened.pop()
                element.tag = name  # the parser has compared it with the end tag
                if name in _CODES:
                    tail = element.tail
                    element.clear()
                    element.tail = tail
                if name in names:
                    inside -= 1
                    yield element
                if opened and not inside:
                    del opened[-1][:]
    except library.ParseError as error:
        line, column = error.position
        why = str(error).partition(":")[0]
        raise DataError(f"{Place(path, line, column + 1)}: no XML: {why}") from None
    except (*DAMAGED, OSError, ValueError, LookupError) as error:  # ValueError: of defusedxml
        raise DataError(f"Cannot read {path}: {error}") from None


def text_of(element: Any) -> str:
    """Returns the text of an element and those in it, with single spaces; "" for None."""
    return "" if element is None else " ".join("".join(element.itertext()).split())
