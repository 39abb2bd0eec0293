"""Registry folders: directories whose files declare names, parsed without importing them.

Source files are parsed with `ast` for the names that they declare; `registry.py` imports the file
of a requested name.  A `.json` file that is an object with "problem" and "kind" declares that
problem; all other JSON files, for example data, are ignored.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch.errors import RegistryError
from t2t_torch.files import RepeatedKeyError, read_bytes, read_json, unique_keys

KINDS = {
    "problem": "problems", "model": "models", "hparams": "hparams", "ranged_hparams": "hparams",
    "optimizer": "optimizers", "schedule": "schedules", "metric": "metrics", "loss": "losses",
    "hook": "hooks", "reader": "readers", "run_kind": "run_kinds",
    "proposer": "declaration/proposers", "executor": "executors.py",
}  # fmt: skip
"""Every kind of thing that has names, and the folder of this package that declares them."""

PACKAGE = Path(__file__).resolve().parent
"""This package's directory."""

UNPARSABLE = (SyntaxError, ValueError, MemoryError, RecursionError)
"""What `ast.parse` raises: also for null bytes, and for expressions that are too deep."""

_DECLARATION_BYTES = 1 << 20  # A longer JSON file is data.
_BESIDE_PROBLEM = ("kind", "files")  # A file with "problem" and one of these is a declaration.
_DECLARED_ONLY = ("files", "problems")  # Keys that data files lack.


@dataclass(frozen=True)
class Entry:
    """Declaration of a name.

    Attributes:
      kind: one of `KINDS`.
      name: the name.
      path: file.
      line: line in the file.
      meaning: first line of the documentation; may be empty.
    """

    kind: str
    name: str
    path: str
    line: int
    meaning: str = ""


def camelcase_to_snakecase(name: str) -> str:
    """Converts `SentimentIMDB` to `sentiment_imdb`.  tensor2tensor, utils/misc_utils.py."""
    words = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words).lower()


def default_name(name: str, is_class: bool) -> str:
    """Returns the name of a bare decorator: snake_case of a class, the name of a function."""
    return camelcase_to_snakecase(name) if is_class else name


def sources(root: Path) -> Iterator[Path]:
    """Yields the Python and JSON files of a registry folder, including those of its packages.

    Of a folder that was written for tensor2tensor they are those that its `__init__.py` imports, as
    there: others may be old copies.
    """
    imported = _imported_files(root)
    for path in _files_of(root):
        if not imported or path.suffix == ".json" or path in imported:
            yield path


def _files_of(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    elif root.is_dir():
        yield from sorted(root.glob("*.py"))
        yield from sorted(path for path in root.glob("*.json") if path.is_file())
        for folder in sorted(root.iterdir()):
            if (folder / "__init__.py").is_file():
                yield from _files_of(folder)


_IMPORTS = re.compile(r"^[ \t]*(?:from|import)\b[^()\n]*(?:\([^)]*\))?", re.MULTILINE)


def _imported_files(root: Path) -> set[Path]:
    """Returns the files that the `__init__.py` of a folder for tensor2tensor imports, and itself.

    The set is empty if it imports none of the folder's, or computes what it imports.
    """
    found: dict[Path, str] = {}
    waiting = [root / "__init__.py"]
    if root.is_relative_to(PACKAGE) or not waiting[0].is_file():
        return set()
    known = {path: path.stem for path in _files_of(root)}
    known.update({path: path.parent.name for path in known if path.name == "__init__.py"})
    while waiting:
        path = waiting.pop()
        found[path] = read_bytes(path).decode(errors="replace")
        named = set(re.findall(r"\w+", " ".join(_IMPORTS.findall(found[path]))))
        waiting += [one for one, name in known.items() if name in named and one not in found]
    computes = re.search(
        r"\b(importlib|__import__|i?glob|listdir|scandir|iter_modules)\b",
        found[root / "__init__.py"],
    )
    is_old = any("tensor2tensor" in text for text in found.values())
    return set(found) if is_old and len(found) > 1 and not computes else set()


def declarations(source: Path) -> Iterator[Entry]:
    """Yields the declarations of a file, without importing it."""
    if source.suffix == ".json":
        if (declared := json_declaration(source)) is not None:
            name = declared["problem"]
            meaning = f"declared: {declared.get('kind', 'a mixture')}"
            yield Entry("problem", name, str(source), _line_of_problem(source, name), meaning)
        return
    text = read_bytes(source)
    if b"register_" not in text:  # Most files declare nothing, and parsing is slow.
        return
    try:
        body = ast.parse(text, filename=str(source)).body
    except UNPARSABLE as error:
        place, fault = _fault(source, error)
        raise RegistryError(f"{place} is not valid Python: {fault}. Fix or move it.") from error
    for node in top_level(body):
        for decorator in node.decorator_list:
            kind, name = _declared_name(decorator, node)
            if kind and name:
                lines = (ast.get_docstring(node) or "").splitlines()
                yield Entry(kind, name, str(source), node.lineno, lines[0] if lines else "")


def json_declaration(source: Path) -> dict[str, Any] | None:
    """Returns the object of a JSON file that declares a problem; None if it declares none.

    Raises:
      RegistryError: the file looks like a declaration but is not valid JSON (the message has line
        and column), is not UTF-8, repeats a key, or its "problem" is not a name.
    """
    if source.stat().st_size > _DECLARATION_BYTES:
        return None
    raw = read_bytes(source)
    meant = b'"problem"' in raw and any(b'"%s"' % key.encode() in raw for key in _BESIDE_PROBLEM)
    if not meant:
        return None
    content: dict[str, Any]
    try:
        content = read_json(source, max_bytes=_DECLARATION_BYTES, object_pairs_hook=unique_keys)
    except RepeatedKeyError as error:
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
            f"(line {error.lineno}, column {error.colno}). Fix or move it."
        ) from None
    except ValueError as error:
        raise RegistryError(f"{source} is no declaration: {error}. Fix or move it.") from None
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


def _line_of_problem(source: Path, name: str) -> int:
    """Returns the line of a JSON file with the name of its problem."""
    text = read_bytes(source).decode("utf-8-sig")
    for match in re.finditer(r'"problem"\s*:\s*("(?:[^"\\]|\\.)*")', text):
        if json.loads(match[1]) == name:
            return text.count("\n", 0, match.start()) + 1
    return 1  # the key itself is written with escapes


def has_python(root: Path) -> bool:
    """Returns True if a registry folder has Python files."""
    return root.is_file() or any(root.glob("*.py")) or any(root.glob("*/__init__.py"))


def not_readable(source: Path) -> str | None:
    """Returns where and why a file is not valid Python or a valid declaration; None if it is."""
    if source.suffix == ".json":
        try:
            json_declaration(source)
        except RegistryError as error:
            return str(error)
        return None
    try:
        ast.parse(read_bytes(source), filename=str(source))
    except UNPARSABLE as error:
        return ": ".join(_fault(source, error))
    return None


def _fault(source: Path, error: Exception) -> tuple[str, str]:
    fault = str(error) or "an expression is nested too deeply"  # MemoryError says nothing
    return f"{source}:{getattr(error, 'lineno', None) or 1}", fault


def top_level(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Yields the classes and functions of a module, also those under a top-level `if` or `try`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try):
            yield from top_level([*node.body, *node.orelse])


def _declared_name(
    decorator: ast.expr, node: ast.ClassDef | ast.FunctionDef
) -> tuple[str | None, str | None]:
    """Returns (kind, name) of `@register_x`, `@registry.register_x` or `@register_x("name")`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    spelt = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    kind = spelt.removeprefix("register_")
    if kind == spelt or kind not in KINDS:
        return None, None
    if isinstance(decorator, ast.Call) and decorator.args:
        literal = decorator.args[0]
        # A computed name cannot be parsed; it is known only after the file is imported.
        value = literal.value if isinstance(literal, ast.Constant) else None
        return kind, value if isinstance(value, str) else None
    return kind, default_name(node.name, isinstance(node, ast.ClassDef))
