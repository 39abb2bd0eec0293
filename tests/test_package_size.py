"""The form of the package: files, code lines, sections, names, importers, cycles, feature types.

`make size` prints what the tests measure.
"""

from __future__ import annotations

import ast
import collections
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "t2t_torch"

MOST_FILES = 481
MOST_LINES = 84_482
MOST_SMALL = 18
MOST_FEATURE_CHECKS = 26
MOST_FEATURE_METHODS = 16
MOST_PROBLEM_METHODS = 18
MOST_KIND_READS = 13
MOST_DUPLICATES = 0
MOST_SMALL_FUNCTIONS = 196
"""The figures as they are: they only fall, to 440 files and 66,000 lines."""

PREDICATES = frozenset(
    "is_text is_sequence is_encoded aligned_to classifies is_multilabel is_image is_sound "
    "selects_words starts_words generates is_listed_by_word produced_like is_discrete".split()
)
"""Attributes that say of which kind a feature is; what depends on it is dispatched on the kind."""

BANNED = frozenset(
    "Refusal Stop Drain Gate Tally Learner Wishes Rules Ban Less Patience Peers Subject Census "
    "Figures Ledger Presence".split()
)
"""Names that only this project used, and that have been replaced by the field's."""

REGISTRY_FOLDERS = (
    "problems", "models", "hparams", "optimizers", "schedules", "losses", "metrics", "hooks",
    "modalities",
)  # fmt: skip

MOST_OF_PACKAGES = {
    "bin": 680, "data": 2939, "declaration": 3439, "decode": 4694, "distributed": 850,
    "export": 5028, "features": 1897, "interop": 5397, "layers": 3119, "objectives": 418,
    "optim": 584, "pipeline": 1913, "problem_types": 1004, "readers": 3473, "remote": 650,
    "reports": 2592, "root": 5623, "run": 2533, "run_kinds": 186, "runtime": 1335, "serve": 2550,
    "text": 2687, "train": 4992, "trial": 4990, "tune": 2087, "workflows": 5942,
}  # fmt: skip
"""Package -> its code lines, which only fall; `root` is the files of the package itself.

Registry folders are not listed: each of their files is one registered thing."""

SMALL = 60
"""Code lines below which a file needs a reason."""

SMALL_FUNCTION = 8
"""Lines below which a private function with a single caller needs a name that explains it."""

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


def count_sections(source: str) -> int:
    """Counts comments at module level between blank lines: titles of sections."""
    return len(re.findall(r"(?m)^\n(?:#.*\n)+\n", source))


def small_functions(tree: ast.Module) -> list[str]:
    """Returns the private functions and methods of few lines that their file reads once."""
    reads = collections.Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [
        node.name
        for node in (*tree.body, *(one for kind in classes for one in kind.body))
        if isinstance(node, ast.FunctionDef)
        and re.match("_[a-z]", node.name)
        and (node.end_lineno or 0) - node.lineno + 1 < SMALL_FUNCTION
        and reads[node.name] == 1
    ]


@dataclass
class Size:
    """The measured form.

    Attributes:
      lines: file, relative to the package -> its code lines.
      sections: file -> how many comment-headed sections it has.
      classes: class name -> the files that define one.
      small_functions: file -> how many private functions of few lines it has that it reads once.
      importers: module -> the modules that import it, also inside functions and for types.
      runtime: package -> the packages that it imports when it runs.
      types: the same of imports for types alone.
      feature_checks: file -> how many `isinstance` it has whose types are features.
      kind_reads: file -> how many `PREDICATES` it reads, and `isinstance` of text encoders it has.
      methods: class -> how many methods and properties it has, without special ones.
    """

    lines: dict[str, int] = field(default_factory=dict)
    sections: dict[str, int] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=dict)
    small_functions: dict[str, int] = field(default_factory=dict)
    importers: dict[str, set[str]] = field(default_factory=dict)
    runtime: dict[str, set[str]] = field(default_factory=dict)
    types: dict[str, set[str]] = field(default_factory=dict)
    feature_checks: dict[str, int] = field(default_factory=dict)
    kind_reads: dict[str, int] = field(default_factory=dict)
    methods: dict[str, int] = field(default_factory=dict)

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
    def duplicates(self) -> dict[str, list[str]]:
        """Class names that are defined more than once, with their files."""
        return {name: files for name, files in self.classes.items() if len(files) > 1}

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


def _types(folder: str, base: str) -> set[str]:
    """Returns the names of the classes of a folder that are a base class or derive from it."""
    names = {base}
    files = sorted((PACKAGE / folder).glob("*.py"))
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


def _type_checks(tree: ast.AST, kinds: Iterable[str]) -> int:
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


def _predicate_reads(tree: ast.AST) -> int:
    return sum(
        1 for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in PREDICATES
    )


def _methods(path: str, name: str) -> int:
    (node,) = (n for n in tree_of(PACKAGE / path).body if getattr(n, "name", "") == name)
    methods = [n.name for n in ast.iter_child_nodes(node) if isinstance(n, ast.FunctionDef)]
    return sum(not name.startswith("__") for name in methods)


def measure() -> Size:
    """Measures the package."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    modules = {_module(name): path for name, path in paths.items()}
    kinds, encoders = _types("features", "Feature"), _types("text", "TextEncoder")
    size = Size()
    size.methods["Feature"] = _methods("features/feature.py", "Feature")
    size.methods["Problem"] = _methods("problem.py", "Problem")
    for name, path in paths.items():
        source = path.read_text("utf-8")
        tree = tree_of(path)
        size.lines[name] = code_lines(source, tree)
        if count := count_sections(source):
            size.sections[name] = count
        if count := len(small_functions(tree)):
            size.small_functions[name] = count
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                size.classes.setdefault(node.name, []).append(name)
        own = name.split("/")[0] if "/" in name else ""
        count = _type_checks(tree, kinds) if own not in ("features", "modalities") else 0
        if count:
            size.feature_checks[name] = count
        # A declaration's columns have predicates of the same names.
        count = _predicate_reads(tree) if own not in ("features", "declaration") else 0
        count += _type_checks(tree, encoders) if own not in ("features", "text") else 0
        if count:
            size.kind_reads[name] = count
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


def test_a_concern_owns_its_kinds(size):
    """New kinds need no method of the two interfaces, and no new question about the kind."""
    assert size.methods["Feature"] <= MOST_FEATURE_METHODS
    assert size.methods["Problem"] <= MOST_PROBLEM_METHODS
    assert sum(size.kind_reads.values()) <= MOST_KIND_READS, size.kind_reads


def test_files_have_no_comment_headed_sections(size):
    assert not size.sections


def test_names_of_classes_are_unique(size):
    assert len(size.duplicates) <= MOST_DUPLICATES, size.duplicates


def test_few_small_functions_have_a_single_caller(size):
    assert sum(size.small_functions.values()) <= MOST_SMALL_FUNCTIONS, size.small_functions


def test_no_package_has_grown(size):
    of_packages = size.of_packages
    grown = {
        name: of_packages[name]
        for name, most in MOST_OF_PACKAGES.items()
        if of_packages[name] > most
    }
    assert not grown


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


def test_sections_and_small_functions_are_found():
    assert count_sections("x = 1\n\n# Title.\n#\n# More.\n\n\ny = 2\n\n# No title.\nz = 3\n") == 1
    assert count_sections("x = 1\n\n\n# Title.\n\ny = 2\n") == 1
    source = "def _f():\n    pass\n\ndef _g():\n    _f()\n\n_g(); _g()\n"
    assert small_functions(ast.parse(source)) == ["_f"]


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
        print(f"  {name:14} {files:4} files {count:7,} lines")
    print(f"{len(size.small)} files of fewer than {SMALL} lines: {' '.join(size.small)}")
    print(
        f"{len(size.private)} of fewer than {PRIVATE} with one importer: {' '.join(size.private)}"
    )
    print(f"{sum(size.sections.values())} comment-headed sections in {len(size.sections)} files")
    duplicates = " ".join(f"{name}:{len(files)}" for name, files in size.duplicates.items())
    print(f"{len(size.duplicates)} class names defined more than once: {duplicates}")
    print(
        f"{sum(size.small_functions.values())} private functions of fewer than {SMALL_FUNCTION} "
        "lines with a single caller"
    )
    print(f"package cycles: {cycles(size.runtime) or 'none'}")
    print(f"mutual imports of packages, one side for types: {', '.join(size.mutual) or 'none'}")
    print(f"{sum(size.feature_checks.values())} checks of feature types outside features/")
    reads = sorted(size.kind_reads.items(), key=lambda pair: -pair[1])
    print(
        f"{sum(size.kind_reads.values())} reads of a feature's kind outside features/, and checks "
        f"of encoders outside text/: {' '.join(f'{name}:{count}' for name, count in reads)}"
    )
    print("methods: " + ", ".join(f"{name} {count}" for name, count in size.methods.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
