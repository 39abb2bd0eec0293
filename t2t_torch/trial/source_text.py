"""What the files of a trial define and import, by reading them: nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

BASE = "PyTorchTrial"


def trials_in(folder: Path) -> dict[str, Path]:
    """Returns the trials that a directory's files define, by reading them; none but the last heirs.

    A file that is not valid Python is passed over: who imports it is told.
    """
    found: dict[str, tuple[Path, set[str]]] = {}
    for path in sorted(folder.glob("*.py")):
        for node in _top_level(tree_of(path).body):
            if isinstance(node, ast.ClassDef):
                found[node.name] = path, {ast.unparse(base).split(".")[-1] for base in node.bases}
    known: set[str] = set()
    while heirs := {name for name, (_, bases) in found.items() if bases & {BASE, *known}} - known:
        known |= heirs
    parents = set().union(*(found[name][1] for name in known))
    return {name: found[name][0] for name in sorted(known - parents)}


def imports(path: Path, package: str) -> bool:
    """Whether a file imports a package, or a part of one, by its dotted name."""
    names = (name for node in ast.walk(tree_of(path)) for name in _imported(node))
    return any(f"{name}.".startswith(f"{package}.") for name in names)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def functions_in(path: Path) -> set[str]:
    """Returns the names of the functions that a file defines."""
    nodes = _top_level(tree_of(path).body)
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements that run when a module is imported, also those under `if` and `try`."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _top_level([*node.body, *node.orelse])


def tree_of(path: Path) -> ast.Module:
    """Returns the syntax tree of a file; an empty one if it is not valid Python."""
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError):
        return ast.Module([], [])
