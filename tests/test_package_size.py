"""The form of the package: files, code lines, importers, cycles, checks of feature types.

`make size` prints what the tests measure.
"""

from __future__ import annotations

import ast
import collections
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "t2t_torch"

MOST_FILES = 474
MOST_LINES = 80_490
MOST_SMALL = 30
MOST_FEATURE_CHECKS = 30
"""Lines are where they stood when files were joined: they only fall from here, to 52,000."""

BANNED = frozenset(
    "Refusal Stop Drain Gate Tally Learner Wishes Rules Ban Less Patience Peers Subject Census "
    "Figures Ledger Presence".split()
)
"""Names that only this project used, and that have been replaced by the field's."""

REGISTRY_FOLDERS = (
    "problems", "models", "hparams", "optimizers", "schedules", "losses", "metrics", "hooks",
    "modalities",
)  # fmt: skip

BUDGETS = {
    "export": 4100, "decode": 3900, "bin": 3300, "trial": 3400, "tune": 2600, "train": 3100,
    "data": 2600, "root": 2600, "serve": 2100, "reports": 2300,
}  # fmt: skip
"""Package -> code lines that it should have at most; `root` is the files of the package itself."""

SMALL = 60
"""Code lines below which a file needs a reason."""

PRIVATE = 80
"""Code lines below which a file with a single importer belongs into that importer."""


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file, parsed once."""
    return ast.parse(path.read_text("utf-8"))


def nodes_of(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a tree that hold statements, and the statements; no expressions."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.expr):
            yield from nodes_of(node)


def code_lines(source: str, tree: ast.Module | None = None) -> int:
    """Counts the lines that are neither blank, nor a comment, nor part of a docstring."""
    lines = set()
    for node in nodes_of(tree or ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            lines |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return sum(
        1
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and number not in lines
    )


@dataclass
class Size:
    """The measured form.

    Attributes:
      lines: file, relative to the package -> its code lines.
      importers: module -> the modules that import it, also inside functions and for types.
      runtime: package -> the packages that it imports when it runs.
      types: the same of imports for types alone.
      feature_checks: file -> how many `isinstance` it has whose types are features.
    """

    lines: dict[str, int] = field(default_factory=dict)
    importers: dict[str, set[str]] = field(default_factory=dict)
    runtime: dict[str, set[str]] = field(default_factory=dict)
    types: dict[str, set[str]] = field(default_factory=dict)
    feature_checks: dict[str, int] = field(default_factory=dict)

    @property
    def mutual(self) -> list[str]:
        """Pairs of packages of which one imports the other when it runs, and is typed by it."""
        return sorted(
            f"{a} -> {b}"
            for a, bs in self.types.items()
            for b in bs
            if a in self.runtime.get(b, ())
        )

    @property
    def of_packages(self) -> dict[str, int]:
        """Package -> code lines."""
        sums: collections.Counter[str] = collections.Counter()
        for name, count in self.lines.items():
            sums[name.split("/")[0] if "/" in name else "root"] += count
        return dict(sums)

    def outside_registries(self) -> Iterator[tuple[str, int]]:
        """Yields (file, code lines) of those that are neither registered things nor `__init__`."""
        for name, count in self.lines.items():
            if name.split("/")[0] not in REGISTRY_FOLDERS and not name.endswith("__init__.py"):
                yield name, count

    @property
    def small(self) -> list[str]:
        """Files of fewer than `SMALL` code lines."""
        return [name for name, count in self.outside_registries() if count < SMALL]

    @property
    def private(self) -> list[str]:
        """Files of fewer than `PRIVATE` lines that one other file imports; no commands."""
        return [
            name
            for name, count in self.outside_registries()
            if count < PRIVATE
            and not name.startswith("bin/")
            and len(self.importers.get(_module(name), ())) == 1
        ]


def _module(name: str) -> str:
    parts = name.removesuffix(".py").split("/")
    return ".".join(["t2t_torch", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def _feature_types() -> set[str]:
    names = {"Feature"}
    files = sorted((PACKAGE / "features").glob("*.py"))
    trees = [tree_of(path) for path in files]
    while True:  # subclasses of subclasses
        known = len(names)
        for node in (node for tree in trees for node in tree.body):
            bases = node.bases if isinstance(node, ast.ClassDef) else []
            if names & {ast.unparse(base).split(".")[-1] for base in bases}:
                names.add(node.name)
        if len(names) == known:
            return names


def _imports(
    tree: ast.AST, modules: Mapping[str, Path], *, types: bool = False
) -> Iterator[tuple[str, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        of_types = types
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            of_types = True
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                target = full if full in modules else node.module or ""
                if target in modules:
                    yield target, of_types
        elif isinstance(node, ast.Import):
            yield from ((a.name, of_types) for a in node.names if a.name in modules)
        yield from _imports(node, modules, types=of_types)


def _feature_checks(tree: ast.AST, kinds: Iterable[str]) -> int:
    named = set(kinds)
    return sum(
        1
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "issubclass")
        and len(node.args) == 2
        and named & {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
    )


def measure() -> Size:
    """Measures the package."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    modules = {_module(name): path for name, path in paths.items()}
    kinds = _feature_types()
    size = Size()
    for name, path in paths.items():
        source = path.read_text("utf-8")
        tree = tree_of(path)
        size.lines[name] = code_lines(source, tree)
        own = name.split("/")[0] if "/" in name else ""
        if own not in ("features", "modalities"):
            count = _feature_checks(tree, kinds)
            if count:
                size.feature_checks[name] = count
        for target, of_types in _imports(tree, modules):
            size.importers.setdefault(target, set()).add(_module(name))
            other = target.split(".")[1] if target.count(".") > 1 else ""
            if other and own and other != own:
                (size.types if of_types else size.runtime).setdefault(own, set()).add(other)
    return size


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the groups of packages that reach each other."""
    reach = {name: set(targets) for name, targets in graph.items()}
    changed = True
    while changed:
        changed = False
        for targets in reach.values():
            more = set().union(*(reach.get(t, set()) for t in targets)) - targets
            if more:
                targets |= more
                changed = True
    groups = {tuple(sorted(t for t in reach[n] if n in reach.get(t, ()))) for n in reach}
    return [list(group) for group in sorted(groups) if len(group) > 1]


@pytest.fixture(scope="module")
def size():
    return measure()


def test_the_package_has_few_files(size):
    assert len(size.lines) <= MOST_FILES
    assert len(size.small) <= MOST_SMALL, size.small


def test_the_package_has_not_grown(size):
    assert sum(size.lines.values()) <= MOST_LINES
    assert sum(size.feature_checks.values()) <= MOST_FEATURE_CHECKS, size.feature_checks


def test_no_small_file_has_a_single_importer(size):
    assert size.private == []


def test_packages_form_no_cycle(size):
    assert cycles(size.runtime) == []


def test_no_class_has_a_name_that_was_replaced():
    classes = {
        node.name: path.name
        for path in PACKAGE.rglob("*.py")
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    assert not BANNED & classes.keys()


def test_a_cycle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert cycles(graph) == [["a", "b", "c"]]
    assert cycles({"a": {"b"}, "b": {"c"}}) == []


def test_docstrings_and_comments_are_no_code():
    lines = [
        '"""Says',
        'much."""',
        "",
        "# More.",
        "x = 1",
        "def f():",
        '    "Too."',
        "    return x",
    ]
    assert code_lines("\n".join(lines)) == 3


def main() -> int:
    """Prints the measured form beside its limits."""
    size = measure()
    print(f"{len(size.lines)} files, {sum(size.lines.values()):,} code lines")
    for name, count in sorted(size.of_packages.items(), key=lambda pair: -pair[1]):
        files = sum(1 for f in size.lines if (f.split("/")[0] if "/" in f else "root") == name)
        budget = f"  at most {BUDGETS[name]:,}" if name in BUDGETS else ""
        print(f"  {name:14} {files:4} files {count:7,} lines{budget}")
    print(f"{len(size.small)} files of fewer than {SMALL} lines: {' '.join(size.small)}")
    print(
        f"{len(size.private)} of fewer than {PRIVATE} with one importer: {' '.join(size.private)}"
    )
    print(f"package cycles: {cycles(size.runtime) or 'none'}")
    print(f"mutual imports of packages, one side for types: {', '.join(size.mutual) or 'none'}")
    print(f"{sum(size.feature_checks.values())} checks of feature types outside features/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
