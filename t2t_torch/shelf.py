"""Shelves: directories whose files declare named things, read without importing them.

A shelf's sources are parsed with `ast` to learn which names they declare; importing is for the one
file that is asked for.  A `.json` file that is an object with "problem" and "kind" declares that
problem; all other JSON files, data for instance, are passed over.  `registry.py` puts names and
shelves together.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch.errors import RegistryError

KINDS = (
    "problem", "model", "hparams", "ranged_hparams", "optimizer", "metric", "loss", "hook",
)  # fmt: skip
"""Every kind of thing that has names."""

PACKAGE = Path(__file__).resolve().parent
"""This package's directory."""

_UNPARSABLE = (SyntaxError, ValueError)  # ValueError: null bytes, before Python 3.12.

_DECLARATION_BYTES = 1 << 20  # A longer JSON file is data.
_BESIDE_PROBLEM = ("kind", "files")  # One of them beside "problem", and the file is a declaration.
_DECLARED_ONLY = ("files", "problems")  # What data with a "problem" and a "kind" has not.


@dataclass(frozen=True)
class Entry:
    """Where a name is declared: `path:line`."""

    kind: str
    name: str
    path: str
    line: int


def camelcase_to_snakecase(name: str) -> str:
    """Turns `SentimentIMDB` into `sentiment_imdb`.  tensor2tensor, utils/misc_utils.py."""
    words = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words).lower()


def default_name(name: str, is_class: bool) -> str:
    """Returns what a bare decorator names: a class in snake_case, a function as it is."""
    return camelcase_to_snakecase(name) if is_class else name


def sources(shelf: Path) -> Iterator[Path]:
    """Yields a shelf's Python and JSON files: its own and those of the packages inside it."""
    if shelf.is_file():
        yield shelf
    elif shelf.is_dir():
        yield from sorted(shelf.glob("*.py"))
        yield from sorted(path for path in shelf.glob("*.json") if path.is_file())
        for folder in sorted(shelf.iterdir()):
            if (folder / "__init__.py").is_file():
                yield from sources(folder)


def declarations(source: Path) -> Iterator[Entry]:
    """Yields what a file declares, by reading it."""
    if source.suffix == ".json":
        declared = json_declaration(source)
        if declared is not None:
            name = declared["problem"]
            yield Entry("problem", name, str(source), _line_of_problem(source, name))
        return
    text = source.read_bytes()
    if b"register_" not in text:  # Most files declare nothing, and parsing is what costs time.
        return
    try:
        body = ast.parse(text, filename=str(source)).body
    except _UNPARSABLE as error:
        place, fault = _fault(source, error)
        raise RegistryError(f"{place} is not valid Python: {fault}. Mend or move it.") from error
    for node in _top_level(body):
        for decorator in node.decorator_list:
            kind, name = _declared_name(decorator, node)
            if kind and name:
                yield Entry(kind, name, str(source), node.lineno)


def json_declaration(source: Path) -> dict[str, Any] | None:
    """Returns the object of a JSON file that declares a problem; None if it declares none.

    Raises:
      RegistryError: it was meant to, but is not valid JSON (names line and column), is not UTF-8,
        says a key twice, or its "problem" is no name.
    """
    if source.stat().st_size > _DECLARATION_BYTES:
        return None
    raw = source.read_bytes()
    meant = b'"problem"' in raw and any(b'"%s"' % key.encode() in raw for key in _BESIDE_PROBLEM)
    if not meant:
        return None
    content: dict[str, Any]
    try:
        content = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_once)
    except _SaidTwiceError as error:
        raise RegistryError(f"{source} says {error.args[0]!r} twice; say it once.") from None
    except UnicodeDecodeError as error:
        raise RegistryError(
            f"{source} is not UTF-8 at byte {error.start + 1}. Save it as UTF-8."
        ) from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # JSON lines: data.
            return None
        raise RegistryError(
            f"{source}:{error.lineno}:{error.colno} is not valid JSON: {error.msg} "
            f"(line {error.lineno}, column {error.colno}). Mend or move it."
        ) from None
    declares = (
        isinstance(content, dict)
        and "problem" in content
        and any(key in content for key in _BESIDE_PROBLEM)
    )
    if not declares:
        return None
    name = content["problem"]
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
        if not any(key in content for key in _DECLARED_ONLY):
            return None
        raise RegistryError(
            f'{source}: "problem" is {name!r}; a name of letters, digits and _ was expected.'
        )
    if name.endswith(("_rev", "_copy")):
        raise RegistryError(
            f"{source}: problem name {name!r} may not end in '_rev' or '_copy'. Rename it."
        )
    return content


class _SaidTwiceError(Exception):
    """A key is twice in one object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _SaidTwiceError(next(name for name in names if names.count(name) > 1))
    return made


def _line_of_problem(source: Path, name: str) -> int:
    """The line on which a JSON file says its problem's name."""
    text = source.read_bytes().decode("utf-8-sig")
    for found in re.finditer(r'"problem"\s*:\s*("(?:[^"\\]|\\.)*")', text):
        if json.loads(found[1]) == name:
            return text.count("\n", 0, found.start()) + 1
    return 1  # the key itself is written with escapes


def has_python(shelf: Path) -> bool:
    """Whether there is something on a shelf to import."""
    return shelf.is_file() or any(shelf.glob("*.py")) or any(shelf.glob("*/__init__.py"))


def not_readable(source: Path) -> str | None:
    """Says where and why a file is not valid Python, or no valid declaration; None if it is."""
    if source.suffix == ".json":
        try:
            json_declaration(source)
        except RegistryError as error:
            return str(error)
        return None
    try:
        ast.parse(source.read_bytes(), filename=str(source))
    except _UNPARSABLE as error:
        return ": ".join(_fault(source, error))
    return None


def _fault(source: Path, error: Exception) -> tuple[str, str]:
    return f"{source}:{getattr(error, 'lineno', None) or 1}", str(error)


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Yields the classes and functions of a module, also those under a top-level `if` or `try`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try):
            yield from _top_level([*node.body, *node.orelse])


def _declared_name(
    decorator: ast.expr, node: ast.ClassDef | ast.FunctionDef
) -> tuple[str | None, str | None]:
    """Reads (kind, name) off `@register_x`, `@registry.register_x` or `@register_x("name")`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    spelt = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    kind = spelt.removeprefix("register_")
    if kind == spelt or kind not in KINDS:
        return None, None
    if isinstance(decorator, ast.Call) and decorator.args:
        literal = decorator.args[0]
        # A name that is computed cannot be read; it is found when the file is imported.
        value = literal.value if isinstance(literal, ast.Constant) else None
        return kind, value if isinstance(value, str) else None
    return kind, default_name(node.name, isinstance(node, ast.ClassDef))


def make_importable(shelf: Path) -> None:
    """Makes a user's directory importable under its own name.

    Its parent goes to the end of `sys.path`, where it shadows nothing, and where the processes that
    `multiprocessing` spawns find it too.

    Raises:
      RegistryError: the name is taken by another package, or cannot be imported.
    """
    name = shelf.stem if shelf.is_file() else shelf.name
    if not name or "." in name:
        raise RegistryError(f"{shelf} cannot be imported: its name needs to be without a dot.")
    if str(shelf.parent) not in sys.path:
        sys.path.append(str(shelf.parent))
        importlib.invalidate_caches()
    spec = importlib.util.find_spec(name)
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec else []
    if str(shelf) not in [str(Path(place).resolve()) for place in places if place]:
        owner = next(filter(None, reversed(places)), "another module")
        raise RegistryError(
            f"{shelf} cannot be imported: the name {name!r} belongs to {owner}. "
            "Rename the directory."
        )


def import_source(source: Path, shelf: Path, wanted: str) -> None:
    """Imports one file of a shelf.

    Args:
      source: the file.
      shelf: the shelf on which it stands.
      wanted: what it is imported for, as in "problem 'poetry'".

    Raises:
      RegistryError: a user's file raised; the message ends with the user's part of the traceback.
    """
    ours = source.is_relative_to(PACKAGE)
    parts = source.relative_to(PACKAGE.parent if ours else shelf.parent).with_suffix("").parts
    module_name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    try:
        module = importlib.import_module(module_name)
    except RegistryError:
        raise
    except Exception as error:
        if ours:
            raise  # A defect, or a library that is not installed.
        frames = error.__traceback__
        while frames and not Path(frames.tb_frame.f_code.co_filename).is_relative_to(shelf):
            frames = frames.tb_next
        told = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        raise RegistryError(f"looking for {wanted}, importing {source} failed:\n{told}") from error
    if Path(module.__file__ or "").resolve() != source:
        raise RegistryError(
            f"{module_name!r} is {module.__file__}, not {source}. Rename the directory or the file."
        )
