"""Shelves: directories whose files declare named things, read without importing them.

A shelf's sources are parsed with `ast` to learn which names they declare; importing is for the one
file that is asked for.  `registry.py` puts names and shelves together.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from t2t_torch.errors import RegistryError

KINDS = ("problem", "model", "hparams", "optimizer", "metric")
"""Every kind of thing that has names."""

PACKAGE = Path(__file__).resolve().parent
"""This package's directory."""

_UNPARSABLE = (SyntaxError, ValueError)  # ValueError: null bytes, before Python 3.12.


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
    """Yields a shelf's Python files: its own and those of the packages inside it."""
    if shelf.is_file():
        yield shelf
    elif shelf.is_dir():
        yield from sorted(shelf.glob("*.py"))
        for folder in sorted(shelf.iterdir()):
            if (folder / "__init__.py").is_file():
                yield from sources(folder)


def declarations(source: Path) -> Iterator[Entry]:
    """Yields what a file declares, by reading it."""
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


def not_python(source: Path) -> str | None:
    """Says where and why a file is not valid Python; None if it is."""
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
