"""Rules of form: layers, the torch line, sizes, names, roots and docstrings."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import resource
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin import commands
from t2t_torch.params import Params

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "t2t_torch"
SOURCES = sorted(PACKAGE.rglob("*.py"))
REGISTRY_FOLDERS = ("problems", "models", "hparams", "hooks", "schedules")
COMMANDS = sorted(commands.COMMANDS)

# A subpackage or file of the package -> its layer.  Imports run to the same layer or down.
LAYERS = {
    "errors": 0, "overrides": 0, "mode": 0, "files": 0, "registry": 0, "params": 0, "hparam": 0,
    "search_space": 0, "settings": 0, "trust": 0, "registry_folder": 0, "reporter": 0, "signals": 0,
    "yaml_file": 0, "remote": 0, "atomic_files": 0, "executor": 0, "executors": 0,
    "runtime": 1, "text": 1, "features": 1, "readers": 1, "data": 1, "hparams": 1,
    "hparam_groups": 1,
    "problem": 2, "text_problem": 2, "problem_types": 2, "declaration": 2, "problems": 2,
    "reports": 2,
    "pipeline": 3, "layers": 3,
    "metrics": 4, "loss": 4, "losses": 4, "modality": 4, "modalities": 4, "model": 4, "models": 4,
    "ensemble": 4, "objectives": 4,
    "run": 5, "optimizers": 5, "optim": 5, "schedules": 5, "distributed": 5, "hooks": 5,
    "train": 5, "decode": 5, "export": 5,
    "tune": 6, "serve": 6, "interop": 6,
    "workflows": 7,
    "trial": 8, "run_kinds": 8,
    "api": 9, "bin": 9, "testing": 9,
}  # fmt: skip
TORCH_LINE = 2
"""The last layer above which nothing imports torch."""

MOST_TEST_LINES = 80
"""Lines of the test file of a reader or a proposer: it shows what the reader accepts."""

TORCH = ("torch", "torchdata", "torchmetrics")
HEAVY = {*TORCH, *"numpy pyarrow pydantic sentencepiece sacrebleu tensorboard yaml".split()}
"""What a command may not import before it knows that it has work to do."""


def module_of(path: Path) -> str:
    """The dotted name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Trees(Mapping[str, ast.Module]):
    """The syntax trees of all modules, each parsed when it is first asked for.

    Those that collect these tests and do not run them parse nothing.
    """

    def __init__(self) -> None:
        self._paths = {module_of(path): path for path in SOURCES}
        self._trees: dict[str, ast.Module] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, module: str) -> ast.Module:
        if module not in self._trees:
            path = self._paths[module]
            text = path.read_text("utf-8")
            self._trees[module] = ast.parse(text, str(path), feature_version=(3, 11))
        return self._trees[module]


TREES = _Trees()


def imports(module: str, *, of_types: bool = True) -> Iterator[tuple[str, int]]:
    """Returns (imported module, line) of every import in a module, also inside functions.

    Args:
      module: whose imports.
      of_types: also those under `if TYPE_CHECKING`, which never happen.
    """
    return ((name, line) for name, line, typed in _imports(module) if of_types or not typed)


@functools.cache
def _imports(module: str) -> list[tuple[str, int, bool]]:
    """The imports of a module, their lines, and whether they are for types alone."""
    found: list[tuple[str, int, bool]] = []
    pending: list[tuple[ast.AST, bool]] = [(TREES[module], False)]
    while pending:
        node, typed = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend((child, typed) for child in node.orelse)
            pending.extend((child, True) for child in node.body)
            continue
        if isinstance(node, ast.expr):
            continue  # imports are statements
        pending.extend((child, typed) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, typed) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.append((full if full in TREES else node.module or "", node.lineno, typed))
    return found


def package_of(module: str) -> str:
    """`t2t_torch.data.shards` -> `data`; the package itself -> ``."""
    return [*module.split("."), ""][1]


def ours(module: str) -> bool:
    return module.split(".")[0] == "t2t_torch"


def test_every_room_has_a_floor() -> None:
    assert {package_of(module) for module in TREES} - {""} <= LAYERS.keys()


@pytest.mark.quick
def test_imports_run_to_the_same_floor_or_down() -> None:
    upward = [
        f"{module}:{line} imports {target}"
        for module in TREES
        if package_of(module)
        # Types may say what a package is handed from above; that import never happens.
        for target, line in imports(module, of_types=False)
        if ours(target)
        and package_of(target)
        and LAYERS[package_of(target)] > LAYERS[package_of(module)]
    ]
    assert not upward


def test_the_package_itself_imports_nothing_until_asked() -> None:
    top = [
        node for node in TREES["t2t_torch"].body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = [getattr(node, "module", None) or node.names[0].name for node in top]
    assert not [name for name in names if ours(name) or name.split(".")[0] in HEAVY]


WITHOUT_CIRCLES_OF_TYPES = set(
    "layers loss losses modality modalities model models ensemble objectives".split()
)
"""Packages in which types form no circle either: what two of them need lies below both."""


def test_no_imports_run_in_a_circle() -> None:
    def imported(module: str) -> Iterator[tuple[str, int]]:
        return imports(module, of_types=package_of(module) in WITHOUT_CIRCLES_OF_TYPES)

    graph = {
        module: {target for target, _ in imported(module) if target in TREES}
        for module in TREES
        if package_of(module)
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"circle: {' -> '.join([*path[path.index(module) :], module])}"
        if module not in done:
            for target in graph.get(module, ()):
                visit(target, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_nothing_below_the_commands_knows_a_flag_or_prints() -> None:
    """The library takes values, and reports to the reporter; a dialogue writes its prompts."""
    below = {m: t for m, t in TREES.items() if package_of(m) not in ("bin", "reporter")}
    known = [m for m in below for target, _ in imports(m) if target.startswith("absl.flags")]
    printing = {
        module
        for module, tree in below.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    }
    above = [m for m in below for target, _ in imports(m) if target.startswith("t2t_torch.bin")]
    assert not known
    assert printing == {"t2t_torch.workflows.decode", "t2t_torch.workflows.serve"}  # dialogues
    assert above == ["t2t_torch.testing"]  # a command by itself: python -m t2t_torch.testing


def test_only_the_registry_reaches_a_shelf() -> None:
    # A file of models has the hparams of its own name, a family's, and of each of its models.
    own: dict[str, set[str]] = {}
    for entry in registry.entries("model"):
        stem = Path(entry.path).stem
        names = own.setdefault(f"t2t_torch.models.{stem}", {f"t2t_torch.hparams.{stem}"})
        names.add(f"t2t_torch.hparams.{entry.name}")
    reached = []
    for module in TREES:
        for target, line in imports(module):
            folder = package_of(target)
            if (
                ours(target)
                and folder in REGISTRY_FOLDERS
                and folder != package_of(module)
                and target not in own.get(module, ())
            ):
                reached.append(f"{module}:{line} imports {target}; look it up in the registry")
    assert not reached


@pytest.mark.quick
def test_nothing_above_the_torch_line_imports_torch() -> None:
    assert not [
        f"{module}:{line}"
        for module in TREES
        if LAYERS.get(package_of(module), 0) <= TORCH_LINE
        for target, line in imports(module)
        if target.split(".")[0] in TORCH
    ]


def python(script: str, *arguments: str) -> str:
    """Runs a script in a fresh process; returns what it printed."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_above_the_torch_line_works_without_torch() -> None:
    above = [module for module in TREES if LAYERS.get(package_of(module), 0) <= TORCH_LINE]
    script = (
        f"import importlib, sys\nfor name in {TORCH}: sys.modules[name] = None\n"
        f"for name in {above}: importlib.import_module(name)\nprint('imported')"
    )
    assert python(script) == "imported\n"


def heavy_of(command: str, flag: str) -> str:
    """Runs a command in a fresh process; returns the last line, of what it has loaded."""
    script = (
        "import sys; from t2t_torch.bin.commands import COMMANDS; "
        f"code = COMMANDS['{command}'].main(['{flag}'])\n"
        f"print('loaded:', *sorted({HEAVY} & set(sys.modules))); sys.exit(code)"
    )
    return python(script).splitlines()[-1]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "command", sorted({*COMMANDS} - {"t2t-quick", "t2t-compare", "t2t-query-server"})
)
def test_listings_load_nothing_heavy(command: str) -> None:
    assert heavy_of(command, "--registry_help") == "loaded:"


@pytest.mark.sample(6)
@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_heavy_and_takes_little_processor_time(command: str) -> None:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    took: list[float] = []  # not on the clock: that depends on what else the machine does
    while not took or (took[-1] >= 0.3 and len(took) < 9):  # and so do caches, now and then
        before = spent()
        assert heavy_of(command, "--help") == "loaded:"
        took.append(spent() - before)
    assert min(took) < 0.3


OPENERS = set("read_bytes read_text open load_file safe_open memory_map ZipFile np.load".split())
"""Functions of Path and of libraries that open a path."""
CHECKED = re.compile(
    r"check_regular\(|[\"'](w|x|a|r\+|rb\+)"  # a checked path; a file that is written
    r"|^(open_regular|open_bytes|read_bytes|read_text|files\.read_bytes)\("
    r"|\b(file|opened|checked|source|mode|BytesIO|archive|image|journal)\b|\.open\(\)|^about\b"
    r"|^(Shards|SortedRun|os|cls|result|pickle|numpy|torch|_TEMPLATE|_ASSET)\b"
    r"|Unpickler"
)


def test_every_path_is_opened_by_one_function() -> None:
    others = [
        f"{module}:{node.lineno}: {ast.unparse(node)}; see files.open_regular"
        for module, tree in TREES.items()
        if module != "t2t_torch.files"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and {(name := ast.unparse(node.func)), name.split(".")[-1]} & OPENERS
        and not CHECKED.search(ast.unparse(node))
    ]
    assert not others, "\n".join(others)


def test_a_file_has_one_subject() -> None:
    long: list[str] = []
    for path in SOURCES:
        lines = path.read_text("utf-8").count("\n")
        if lines > 900:
            long.append(f"{path}: {lines} lines; split it by subject")
        for node in ast.walk(TREES[module_of(path)]):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > 60:
                    long.append(f"{path}:{node.lineno}: {node.name} has {length} lines")
    assert not long


@pytest.mark.parametrize("folder", ["readers", "declaration/proposers"])
def test_each_reader_and_proposer_has_a_short_test_file(folder: str) -> None:
    for path in sorted((PACKAGE / folder).glob("*.py")):
        names = re.findall(r'@register_(?:reader|proposer)\(\s*"(\w+)"', path.read_text("utf-8"))
        files = [ROOT / f"tests/{folder}/test_{name}.py" for name in (path.stem, *names)]
        lines = {
            one.name: len(one.read_text("utf-8").splitlines()) for one in files if one.exists()
        }
        assert lines or not names, f"{path.name} has no test file"
        assert not names or max(lines.values()) <= MOST_TEST_LINES, lines


@pytest.mark.parametrize("package", ["t2t_torch", "tests", "benchmarks", "examples"])
def test_no_line_has_more_than_100_characters(package: str) -> None:
    # ruff lets those be that end in a URL or in "# type: ignore".
    assert not [
        f"{path.relative_to(ROOT)}:{number} has {len(line)} characters"
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").split("\n"), 1)
        if len(line) > 100
    ]


def test_no_file_is_called_after_no_subject() -> None:
    vague = {"common", "util", "utils", "helper", "helpers", "misc"}
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    assert not [path for path in files if vague & {*path.stem.split("_"), path.parent.name}]


def test_every_source_is_python_3_10() -> None:
    assert [module for module in TREES if TREES[module]] == list(TREES)


def public(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Yields the public classes, functions and methods of a module."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If | ast.Try):
            pending += node.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                pending += node.body


def test_every_public_thing_has_a_docstring() -> None:
    bare = [module for module, tree in TREES.items() if not ast.get_docstring(tree)]
    bare += [
        f"{module}:{node.lineno} {node.name}"
        for module, tree in TREES.items()
        for node in public(tree)
        if not ast.get_docstring(node)
        and not any("overload" in ast.unparse(mark) for mark in node.decorator_list)
    ]
    assert not bare


def import_everything() -> None:
    for module in TREES:
        importlib.import_module(module)


def test_the_listing_of_the_registry_folders_is_what_importing_them_registers() -> None:
    import_everything()
    for kind in registry.KINDS:
        listed = {
            entry.name
            for entry in registry.entries(kind)
            # A declaration in JSON is made a class when it is looked up.
            if Path(entry.path).is_relative_to(PACKAGE) and entry.path.endswith(".py")
        }
        registered = {
            name
            for name, (_, place) in registry._STATE.objects[kind].items()
            if Path(place.path).is_relative_to(PACKAGE)
        }
        assert registered == listed


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_listed_name_is_found(kind: str) -> None:
    look_up = getattr(registry, kind)
    for name in registry.list_names(kind):
        assert look_up(name) is not None


def test_a_shelf_holds_nothing_but_what_is_registered() -> None:
    for module, tree in TREES.items():
        if (
            package_of(module) not in REGISTRY_FOLDERS
            or module == f"t2t_torch.{package_of(module)}"
        ):
            continue
        things = [node for node in public(tree) if node in tree.body]
        unregistered = [
            node
            for node in things
            if not any("register_" in ast.unparse(mark) for mark in node.decorator_list)
        ]
        assert len(unregistered) < len(things), f"{module} registers nothing"
        for node in unregistered:
            told = f"{module}:{node.lineno}: {node.name} is neither registered nor private"
            assert isinstance(node, ast.ClassDef), told
            bases = [ast.unparse(base) for base in node.bases]
            # A model's layers and state stand in its file, a set's fields beside the set, and what
            # several problems of a file share in an abstract one.
            assert (
                package_of(module) == "models"
                or (
                    package_of(module) == "hparams"
                    and any(base.endswith("HParams") for base in bases)
                )
                or "abstractmethod" in ast.unparse(node)
            ), told


def test_every_hyperparameter_has_a_meaning() -> None:
    import_everything()
    pending: list[type[Params]] = [Params]
    while pending:
        params = pending.pop()
        pending += params.__subclasses__()
        for name, field in params.model_fields.items():
            assert field.description, f"{params.__name__}.{name} has no meaning"


def test_no_room_is_empty() -> None:
    packages = [path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    held = {path: [p for p in path.glob("*.py") if p.stem != "__init__"] for path in packages}
    empty = [path for path in packages if not held[path]]
    assert not empty, f"{empty} hold nothing; make one when something is to stand in it"


ODD_WORDS = re.compile(
    r"\b(shel(f|ves)|census|ledgers?|tally|told|tells|begun|anew|joints|lockstep|made up"
    r"|(go|goes|going|gone|went) on|rehearsals?|sniff\w*|guess(es|ed)?|strangers?|asks"
    r"|mend(s|ed|ing)?|doors?|rooms?|neighbours?|whoever|comes of|came of)\b",
    re.IGNORECASE,
)
"""Words that only this project used; CONTRIBUTING.md has those of the field."""


def texts_of(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring, comment and message of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def test_the_words_are_those_of_the_field() -> None:
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r} in {text[:80]!r}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in texts_of(path, TREES[module_of(path)])
        for match in ODD_WORDS.finditer(text)
        if "/ledger`" not in text  # the stored name of a study
    ]
    assert not odd, "\n".join(odd)


def test_a_docstring_begins_with_a_noun_or_an_imperative() -> None:
    odd = [
        f"{module}: {text.splitlines()[0]}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and re.match(r"(What|Which|Who|Whoever|Whether|How|Where|That|So)\b", text)
    ]
    assert not odd, "\n".join(odd)
