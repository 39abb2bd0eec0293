"""Code of a trial: a directory, a file or a module, located, imported, checked and called.

While a trial runs, its directory is on `sys.path`; files with relative imports such as `from
.layers import Flatten` are imported as a package.  A process has one trial at a time: loading
another one unloads the modules of the previous one.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from t2t_torch.errors import T2TError, TrialError
from t2t_torch.files import read_bytes
from t2t_torch.registry import PACKAGE
from t2t_torch.registry_folder import UNPARSABLE, top_level
from t2t_torch.trial.pytorch_trial import PyTorchTrial
from t2t_torch.trust import file_of

BASE = "PyTorchTrial"


def trials_in(folder: Path) -> dict[str, Path]:
    """Returns the trials defined in a directory's files, by static analysis; no base classes.

    Files with invalid syntax are skipped: their import reports the error.
    """
    classes: dict[str, tuple[Path, set[str]]] = {}
    for path in sorted(folder.glob("*.py")):
        for node in top_level(tree_of(path).body):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
                classes[node.name] = path, bases
    trials: set[str] = set()
    while new := {n for n, (_, bases) in classes.items() if bases & {BASE, *trials}} - trials:
        trials |= new
    parents = set().union(*(classes[name][1] for name in trials))
    return {name: classes[name][0] for name in sorted(trials - parents)}


def imports(path: Path, package: str) -> bool:
    """Returns True if a file imports a package or a part of it, by dotted name."""
    names: list[str] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            names += [f"{module}.{one.name}" if module else one.name for one in node.names]
    return any(f"{name}.".startswith(f"{package}.") for name in names)


def functions_in(path: Path) -> set[str]:
    """Returns the names of the functions defined in a file."""
    nodes = top_level(tree_of(path).body)
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def tree_of(path: Path) -> ast.Module:
    """Returns the syntax tree of a file; empty if its syntax is invalid."""
    try:
        return ast.parse(read_bytes(path), str(path))
    except UNPARSABLE:
        return ast.Module([], [])


_OTHER_TRIALS = (
    "pedl.frameworks.keras pedl.frameworks.tensorflow pedl.trial pedl.data determined.keras "
    "determined.estimator determined.tensorflow determined.pytorch.deepspeed"
).split()
_OTHERS = (*_OTHER_TRIALS, "tensorflow", "keras", "tensorpack")
_NO_PYTORCH = (
    "This is no trial of PyTorch: it imports {}. Only PyTorchTrial is run here; trials of Keras, "
    "TensorFlow and its Estimator are not."
)

_NO_MODULE = (
    "Of the package determined there are determined and determined.pytorch here, not {}. Trials of "
    "determined.pytorch.PyTorchTrial are run; see docs/how_to/from_determined.md."
)


def split_spec(spec: str) -> tuple[str, str]:
    """Returns the location and the class name of a spec; the name is empty if unspecified."""
    head, _, class_name = spec.rpartition(":")
    is_name = re.fullmatch(r"[^\W\d]\w*", class_name)
    return (head, class_name) if head and is_name and not Path(spec).exists() else (spec, "")


@dataclasses.dataclass(frozen=True)
class CodeSource:
    """Parsed spec of a trial: `dir`, `file.py` or `pkg.mod`, optionally followed by `:Class`.

    Attributes:
      spec: original spec.
      path: directory or file; None for a module that is not yet imported.
      module: dotted name of a module; empty for a path.
      class_name: name of the class; empty if unspecified.
    """

    spec: str
    path: Path | None
    module: str
    class_name: str

    @classmethod
    def of(cls, spec: str) -> CodeSource:
        """Parses a spec.

        Raises:
          TrialError: the directory, file or module does not exist.
        """
        head, class_name = split_spec(spec)
        path = Path(head).expanduser()
        if path.is_dir() or (path.is_file() and path.suffix == ".py"):
            return cls(spec, path.resolve(), "", class_name)
        if path.exists() or not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", head):
            raise TrialError(
                f"--trial={spec}: there is no such directory or Python file. Expected: a "
                "directory, a file.py or a module pkg.mod, each also with :Class at its end."
            )
        return cls(spec, None, head, class_name)


def load(source: CodeSource) -> list[ModuleType]:
    """Imports a trial's code; returns the modules to search, in order of precedence.

    Raises:
      TrialError: it cannot be imported (the message ends with the user's part of the traceback),
        has no trial, or has several.
    """
    from t2t_torch.trial import pedl_module  # imports torch

    pedl_module.install_shim()
    _Loaded.forget()
    pedl_module.add_removed_names()
    if source.path is None:
        return [_load_module(source)]
    folder = source.path if source.path.is_dir() else source.path.parent
    files = sorted(folder.glob("*.py")) if source.path.is_dir() else [source.path]
    _refuse_others(source, files, _OTHER_TRIALS)
    _Loaded.enter(folder)
    if source.path.is_file():
        return [_load_file(source.path)]
    return _load_directory(source, folder)


def _refuse_others(source: CodeSource, files: list[Path], names: Iterable[str]) -> None:
    """Rejects files that define trials of other frameworks.

    Raises:
      TrialError: a file imports one of these names.
    """
    if other := next((name for name in names if any(imports(path, name) for path in files)), None):
        raise TrialError(f"--trial={source.spec}: {_NO_PYTORCH.format(other)}")


def module_beside(source: CodeSource, name: str) -> ModuleType | None:
    """Imports the file of a trial's directory that defines a function; None if there is none.

    Raises:
      TrialError: several files define it, or the file cannot be imported.
    """
    if source.path is None or not source.path.is_dir():
        return None
    files = [path for path in sorted(source.path.glob("*.py")) if name in functions_in(path)]
    if len(files) > 1:
        raise TrialError(
            f"{name} is defined in {', '.join(path.name for path in files)}. Import the one that "
            "is meant beside the trial."
        )
    return _load_file(files[0]) if files else None


def module_of(source: CodeSource, name: str) -> ModuleType:
    """Imports a module by name; modules in the trial's directory take precedence.

    Raises:
      TrialError: it does not exist or cannot be imported.
    """
    file = file_beside(source.path, name) if source.path is not None else None
    if file is not None and file.name != "__init__.py":
        return _load_file(file)
    try:
        exists = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        exists = False
    if not exists:
        raise TrialError(f"entrypoints: there is no module {name} in {source.spec}.")
    return _import(lambda: importlib.import_module(name), Path(name))


def file_beside(place: Path, name: str) -> Path | None:
    """Returns the file of a module in a trial's directory; None if there is none.

    Args:
      place: the directory, or a file in it.
      name: dotted name, which may begin with that of the directory.
    """
    folder = place if place.is_dir() else place.parent
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    if parts[0] == folder.name and len(parts) > 1:
        parts = parts[1:]
    module = folder.joinpath(*parts)
    files = (module.with_suffix(".py"), module / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def imported_files() -> list[Path]:
    """Returns the files imported from the directory of the loaded trial."""
    return [Path(_place(sys.modules[name])) for name in _Loaded.names()]


class _Loaded:
    """Changes to this process made by loading a trial."""

    folder: Path | None = None
    package: str = ""
    before: frozenset[str] = frozenset()  # module names; a user's folder may hold Python itself

    @classmethod
    def enter(cls, folder: Path) -> None:
        """Adds a directory to `sys.path`."""
        cls.folder, cls.package, cls.before = folder, "", frozenset(sys.modules)
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()

    @classmethod
    def forget(cls) -> None:
        """Removes the previous trial from `sys.path`, and its modules from `sys.modules`."""
        from t2t_torch.trial.pedl_module import remove_removed_names  # imports torch

        remove_removed_names()
        if cls.folder is None:
            return
        if str(cls.folder) in sys.path:
            sys.path.remove(str(cls.folder))
        for name in cls.names():
            del sys.modules[name]
        sys.modules.pop(cls.package, None)
        cls.folder = None

    @classmethod
    def names(cls) -> list[str]:
        """Returns the names of the modules imported from the directory."""
        below = f"{cls.folder}{os.sep}"
        places = {name: _place(sys.modules[name]) for name in set(sys.modules) - cls.before}
        return [
            name
            for name, place in places.items()
            if f"{place}{os.sep}".startswith(below) and "site-packages" not in place
        ]


def is_of_user(kind: type[object]) -> bool:
    """Returns True if a class belongs neither to Python nor to an installed package."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not file or kind.__module__.split(".")[0] in {*sys.stdlib_module_names, "t2t_torch"}:
        return False
    return "site-packages" not in file and "dist-packages" not in file


def _place(module: ModuleType | None) -> str:
    """Returns a module's file, or the directory of a namespace package; empty if it has neither."""
    content = vars(module) if module is not None else {}  # getattr of torch.ops never fails
    if content.get("__file__"):
        return str(content["__file__"])
    path = content.get("__path__")
    return next(map(str, path), "") if isinstance(path, Iterable) else ""


def _load_directory(source: CodeSource, folder: Path) -> list[ModuleType]:
    init, packages = folder / "__init__.py", list[ModuleType]()
    if init.is_file():
        package = _import(lambda: _load_package(folder), init)
        packages.append(package)
        named = [source.class_name] if source.class_name else list(trials_in(folder))
        if any(hasattr(package, name) for name in named):
            return [package]
        kinds = [value for value in vars(package).values() if isinstance(value, type)]
        if not named and any(base.__name__ == BASE for one in kinds for base in one.__mro__[1:]):
            return [package]  # a trial defined in a subdirectory or elsewhere
    return [_load_file(_file_of_trial(source, folder)), *packages]


def _file_of_trial(source: CodeSource, folder: Path) -> Path:
    """Returns the file of a directory that defines the requested trial.

    Raises:
      TrialError: there is none, or there are several.
    """
    trials = trials_in(folder)
    listed = ", ".join(f"{name} ({path.name})" for name, path in trials.items())
    files = sorted(folder.glob("*.py"))
    if not trials:
        _refuse_others(source, files, _OTHERS)
    if source.class_name in trials:
        return trials[source.class_name]
    if not trials or source.class_name:
        raise TrialError(
            f"--trial={source.spec}: no file of {folder} defines {source.class_name or 'a trial'}, "
            f"a subclass of {BASE}. It has: "
            f"{listed or ', '.join(path.name for path in files) or 'no Python file'}."
        )
    if len(trials) > 1:
        raise several(source.spec, listed, next(iter(trials)))
    return next(iter(trials.values()))


def several(spec: str, listed: str, first: str) -> TrialError:
    """Returns the error for a file with several trials."""
    return TrialError(
        f"--trial={spec} has several trials: {listed}. Choose one, as in --trial={spec}:{first}."
    )


def _load_module(source: CodeSource) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path and not file_of(source.module, beside=False):
        sys.path.append(here)
        importlib.invalidate_caches()
    if importlib.util.find_spec(source.module.split(".")[0]) is None:
        raise TrialError(
            f"--trial={source.spec}: there is no directory, Python file or module of that name."
        )
    return _import(lambda: importlib.import_module(source.module), Path(source.module))


def _load_file(path: Path) -> ModuleType:
    """Imports a file if not yet imported, within a package if it has relative imports."""
    for name in set(sys.modules) - _Loaded.before:
        if _place(sys.modules[name]) == str(path):
            return sys.modules[name]
    if not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree_of(path))):
        taken = path.stem in sys.modules  # such as a standard module, which is kept
        return _import(lambda: _execute(f"trial_{path.stem}" if taken else path.stem, path), path)

    def in_package() -> ModuleType:
        package = sys.modules.get(_Loaded.package) or _load_package(path.parent)
        name = f"{package.__name__}.{path.stem}"
        return sys.modules.get(name) or _execute(name, path)

    return _import(in_package, path)


def _load_package(folder: Path) -> ModuleType:
    """Imports a directory as a package, including its `__init__.py` if present."""
    name = re.sub(r"\W", "_", folder.name)
    found = None if name[:1].isdigit() else importlib.util.find_spec(name)
    is_elsewhere = found and str(folder) not in (found.submodule_search_locations or ())
    if name[:1].isdigit() or name in sys.modules or is_elsewhere:
        name = f"trial_{name}"
    _Loaded.package = name
    init = folder / "__init__.py"
    if init.is_file():
        return _execute(name, init, [str(folder)])
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = package
    return package


def _execute(name: str, path: Path, within: list[str] | None = None) -> ModuleType:
    """Imports a file under a name, regardless of other modules of that name."""
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=within)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported as {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import(importing: Callable[[], ModuleType], what: Path) -> ModuleType:
    """Imports user code.

    Raises:
      TrialError: the code raised an exception or exited.
    """
    try:
        return importing()
    except T2TError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit):
            raise TrialError(
                f"importing {what} ended the process ({error!r}). Put what runs as a script under "
                f'`if __name__ == "__main__":`.\n{users_traceback(error)}'
            ) from error
        if isinstance(error, ModuleNotFoundError):
            if (error.name or "").split(".")[0] == "determined":
                raise TrialError(f"{what}: {_NO_MODULE.format(error.name)}") from error
            if any(f"{error.name}.".startswith(f"{other}.") for other in _OTHERS):
                raise TrialError(f"{what}: {_NO_PYTORCH.format(error.name)}") from error
        raise TrialError(f"importing {what} failed:\n{users_traceback(error)}") from error


def users_traceback(error: BaseException) -> str:
    """Returns the traceback of an error, from the first to the last frame of user code.

    Errors that were handled before it are left out, unless it was raised `from` them.
    """
    frames = error.__traceback__
    while frames and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    shown = traceback.TracebackException(type(error), error, frames)
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    own = [
        number
        for number, one in enumerate(shown.stack)
        if not _is_ours(one.filename)
        and not any(Path(one.filename).is_relative_to(path) for path in libraries)
    ]
    if own:
        del shown.stack[own[-1] + 1 :]
    return "".join(shown.format(chain=error.__cause__ is not None)).rstrip()


def _is_ours(file: str) -> bool:
    importing = str(Path(importlib.__file__ or "").parent)
    return file.startswith(("<frozen", importing)) or Path(file).is_relative_to(PACKAGE)


DOCUMENTED, TRAIN_BATCH, CONTEXT = "documented", "train_batch", "context"

_NEEDED = {
    DOCUMENTED: ("build_model", "losses", "optimizer", "validation_metrics"),
    TRAIN_BATCH: ("build_model", "optimizer", "train_batch"),
    CONTEXT: ("train_batch",),
}
_MAKE = "make_data_loaders"
_CONTEXT_NAMES = ("context", "trial_context")
_HPARAMS_NAMES = ("hyperparameters", "hyperparams", "hps", "config")
_EVALUATIONS = ("evaluate_batch", "evaluate_full_dataset")
LOADERS = ("build_training_data_loader", "build_validation_data_loader")
"""Methods of Determined's trials that return the loaders."""


@dataclass(frozen=True)
class Definition:
    """Definition of a trial: its imported class and functions.

    Attributes:
      spec: spec of the trial.
      path: directory or file of the trial.
      trial_class: subclass of `PyTorchTrial`.
      download_data: module-level function; None if missing.
      make_data_loaders: module-level function; None if the class has it as a method.
    """

    spec: str
    path: Path
    trial_class: type[Any]
    download_data: Callable[..., Any] | None
    make_data_loaders: Callable[..., Any] | None

    @functools.cached_property
    def takes_context(self) -> bool:
        """True if the class is created with Determined's context."""
        parameters = list(inspect.signature(self.trial_class.__init__).parameters)[1:]
        named = any(name in _CONTEXT_NAMES for name in parameters)
        return named or any(_method(self.trial_class, name) is not None for name in LOADERS)

    @functools.cached_property
    def generation(self) -> str:
        """The interface of the trial.

        "documented": `losses` and `validation_metrics`; "train_batch": a single method per step;
        "context": a single method that also updates the weights.

        Raises:
          TrialError: it mixes two interfaces.
        """
        names = ("losses", "train_batch", *_EVALUATIONS)
        has = {name for name in names if _method(self.trial_class, name) is not None}
        for pair in (("losses", "train_batch"), _EVALUATIONS):
            if has.issuperset(pair):
                raise TrialError(
                    f"{self.trial_class.__name__} has both {' and '.join(pair)}: keep one, with "
                    "the methods of its interface (docs/how_to/trials.md), or rename it."
                )
        if "losses" in has or not has:
            return DOCUMENTED
        older = any(_method(self.trial_class, name) for name in ("build_model", "optimizer"))
        return CONTEXT if self.takes_context and not older else TRAIN_BATCH

    def has(self, method: str) -> bool:
        """Returns True if the class has a method."""
        return callable(_method(self.trial_class, method))

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods called by training and evaluation."""
        if self.generation == CONTEXT:  # called by the names of their arguments
            return ()
        optional = ["create_lr_scheduler"]
        if self.generation == TRAIN_BATCH:
            optional += _EVALUATIONS
        else:
            optional.append("training_metrics")
        return (*_NEEDED[self.generation], *filter(self.has, optional))

    def check(self) -> None:
        """Checks that the trial has all methods of its interface.

        Raises:
          TrialError: methods are missing; names all of them.
        """
        missing = [name for name in _NEEDED[self.generation] if not self.has(name)]
        if self.generation != DOCUMENTED and not any(map(self.has, _EVALUATIONS)):
            missing.append("evaluate_batch or evaluate_full_dataset")
        loaders = [name for name in LOADERS if not self.has(name)]
        if self.generation == CONTEXT or len(loaders) == 1:
            missing += loaders
        elif self.make_data_loaders is None and loaders and not self.has(_MAKE):
            missing.append(
                f"{_MAKE}, a function beside the class or in a file of --trial=DIRECTORY"
            )
        if missing:
            raise TrialError(
                f"{self.trial_class.__name__} is missing: {', '.join(missing)} (as of "
                f"{self.generation} trials). --trial={self.spec}"
            )


def load_definition(spec: str, functions: Mapping[str, str] | None = None) -> Definition:
    """Imports a trial's code and locates its class and functions.

    The context must be entered before, as modules may read hyperparameters on import.

    Args:
      spec: `dir`, `file.py` or `pkg.mod`, optionally followed by `:Class`.
      functions: name -> module:function, for functions that the configuration locates elsewhere.

    Raises:
      TrialError: the location is missing or cannot be imported, it has no trial or several, or the
        trial lacks methods or mixes two interfaces.
    """
    source = CodeSource.of(spec)
    modules = load(source)
    trial_class = _trial_class(source, modules)
    places = functions or {}
    modules.append(sys.modules.get(trial_class.__module__, modules[0]))
    path = source.path or Path(getattr(modules[0], "__file__", None) or source.module)
    make_data_loaders = None
    own = any(callable(_method(trial_class, name)) for name in (_MAKE, *LOADERS))
    if _MAKE in places or not own:
        make_data_loaders = _function(source, modules, _MAKE, places)
    download_data = _function(source, modules, "download_data", places)
    definition = Definition(spec, path, trial_class, download_data, make_data_loaders)
    definition.check()
    return definition


def _function(
    source: CodeSource, modules: list[ModuleType], name: str, places: Mapping[str, str]
) -> Callable[..., Any] | None:
    """Returns the first callable with that name; in a directory, any file may define it.

    Raises:
      TrialError: the configuration names a function that does not exist.
    """
    if name in places:
        module_name, _, own = places[name].partition(":")
        placed = getattr(module_of(source, module_name), own, None)
        if not callable(placed):
            raise TrialError(
                f"entrypoints: {places[name]!r}: {module_name} has no function {own}. Name the "
                f"function that stands for {name}, or leave the key out."
            )
        return placed  # type: ignore[no-any-return]
    candidates = (getattr(module, name, None) for module in modules)
    function: Callable[..., Any] | None = next(filter(callable, candidates), None)
    return function or getattr(module_beside(source, name), name, None)


def _trial_class(source: CodeSource, modules: list[ModuleType]) -> type[Any]:
    """Returns the class selected by the spec.

    Raises:
      TrialError: there is none, there are several, or the named class is not a trial.
    """
    entry, name = modules[0], source.class_name
    candidates = (vars(module).get(name) for module in modules)
    named: Any = next((value for value in candidates if value is not None), None)
    kinds = dict.fromkeys(filter(_is_trial, vars(entry).values()))
    trials: list[type[Any]] = [
        one for one in kinds if not any(one in other.__mro__[1:] for other in kinds)
    ]
    if name and _is_trial(named):
        trials = [named]
    listed = ", ".join(trial.__name__ for trial in trials)
    where = getattr(entry, "__file__", None) or entry.__name__
    if name and trials != [named]:
        fault = f"has no class {name}" if named is None else f"has {name}, no subclass of {BASE}"
        raise TrialError(f"--trial={source.spec}: {where} {fault}. Its trials: {listed or 'none'}.")
    if not trials:
        raise TrialError(
            f"--trial={source.spec}: there is no subclass of {BASE} in {where}. Write `from "
            f"t2t_torch import {BASE}` (or pedl's or determined's) and `class MyTrial({BASE})`."
        )
    if len(trials) > 1:
        raise several(source.spec, listed, trials[0].__name__)
    return trials[0]


def _is_trial(value: Any) -> bool:
    """Returns True for subclasses of this package's class, or of an installed package's."""
    return isinstance(value, type) and any(
        base is PyTorchTrial or (base.__name__ == BASE and _is_installed(base))
        for base in value.__mro__[1:]
    )


def _is_installed(kind: type[Any]) -> bool:
    return kind.__module__.split(".")[0] in ("pedl", "determined")


def _method(trial_class: type[Any], name: str) -> Any:
    """Returns a member of a class; None if only a base class of an installed package has it."""
    owner = next((base for base in trial_class.__mro__ if name in vars(base)), None)
    return None if owner is None or _is_installed(owner) else getattr(trial_class, name)


def instance_of(definition: Definition, chosen: Mapping[str, Any], context: Any) -> Any:
    """Returns an instance of the trial class.

    An argument `hparams` of its constructor gets all hyperparameters as a dictionary, as does a
    required one with another usual name for them; an argument with the name of a hyperparameter
    gets its value; others keep their default.  The first argument of a class that takes a context
    gets it, whatever its name, unless another has the name of a context.  The only required
    argument of a class without a context gets the dictionary; `*args` get what the first would.

    Raises:
      TrialError: an argument without a default has another name.
    """
    hparams = copy.deepcopy(dict(chosen))
    values = {**hparams, "hparams": hparams}
    parameters = list(inspect.signature(definition.trial_class).parameters.values())
    first: list[Any] = []
    if definition.takes_context:
        values |= dict.fromkeys(_CONTEXT_NAMES, context)
        if not any(parameter.name in _CONTEXT_NAMES for parameter in parameters):
            first = [context]
    elif required(parameters) == parameters[:1] or parameters[0].kind is _ANY:
        first = [hparams]
    known = {**dict.fromkeys(_HPARAMS_NAMES, hparams), **values}
    if not parameters or parameters[0].name in known:
        first = []
    arguments: dict[str, Any] = {}
    for parameter in parameters[len(first) :]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = values.get(parameter.name, parameter.default)
        value = known.get(parameter.name, value) if value is parameter.empty else value
        if value is parameter.empty:
            raise TrialError(
                f"{definition.trial_class.__name__}.__init__ takes {parameter.name}, which is no "
                f"hyperparameter: there are {', '.join(hparams) or 'none'}. Declare it, give it a "
                "default, or rename it to hparams: that is the dictionary of all. "
                f"--trial={definition.spec}"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            first.append(value)
        else:
            arguments[parameter.name] = value
    return definition.trial_class(*first, **arguments)


ACCEPTED: dict[str, tuple[tuple[str, ...], ...]] = {
    "download_data": (("experiment_config", "hparams"), ()),
    "make_data_loaders": (
        ("experiment_config", "hparams"),
        ("experiment_config", "hparams", "download_data_dir"),
        (),
    ),
    "build_model": (("hparams",), ()),
    "losses": (("predictions", "labels"),),
    "optimizer": (("model",), ("model", "hparams")),
    "batch_size": ((), ("hparams",)),
    "validation_metrics": (("predictions", "labels", "losses"), ("predictions", "labels")),
    "training_metrics": (("predictions", "labels", "losses"), ("predictions", "labels")),
    "create_lr_scheduler": (("optimizer",),),
    "train_batch": (("batch", "model", "epoch_idx", "batch_idx"),),
    "evaluate_batch": (("batch", "model"), ("batch", "model", "batch_idx")),
    "evaluate_full_dataset": (("data_loader", "model"),),
}
"""Accepted signatures, without `self`; callers pass the arguments of the longest."""

_ANY = inspect.Parameter.VAR_POSITIONAL
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def required(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Returns the positional parameters without a default."""
    return [one for one in parameters if one.kind in POSITIONAL and one.default is one.empty]


def call(function: Callable[..., Any], *arguments: Any, what: str) -> Any:
    """Calls a user's function with the first arguments, as many as it accepts.

    An optional argument is passed only if its name is the one in the accepted signatures: a user's
    own `lr=0.1` keeps its default.  An argument in the place of `hparams` with the name of a
    hyperparameter gets its value, not the dictionary of all.

    Args:
      function: a function, bound method or class.
      arguments: arguments of the longest accepted signature.
      what: name of the function in `ACCEPTED`.

    Returns:
      The result of the function.

    Raises:
      TrialError: the number of arguments is unsupported.  Exceptions of the function propagate.
    """
    given = list(arguments[: arity(function, what)])
    names = max(ACCEPTED[what], key=len)
    place = names.index("hparams") if "hparams" in names else len(given)
    if place < len(given) and isinstance(hparams := given[place], Mapping):
        own = list(inspect.signature(function).parameters)[place : place + 1]
        given[place] = next((hparams[name] for name in own if name in hparams), hparams)
    return function(*given)


def arity(function: Callable[..., Any], what: str) -> int:
    """Returns the number of arguments to pass to a user's function.

    Raises:
      TrialError: its signature is not accepted.
    """
    accepted = {len(names): names for names in ACCEPTED[what]}
    parameters = list(inspect.signature(function).parameters.values())
    by_place = tuple(one.name for one in parameters if one.kind in POSITIONAL)
    needed = len(required(parameters))
    takes_any = any(one.kind is _ANY for one in parameters)
    by_name = any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters)
    fitting = [
        count
        for count, names in accepted.items()
        if needed <= count
        and not by_name
        and (takes_any or names[needed:] == by_place[needed:count])
    ]
    if not fitting:
        name = getattr(function, "__qualname__", what)
        taken = ", ".join(map(str, parameters))
        shown = " or ".join(f"{what}({', '.join(names)})" for names in ACCEPTED[what])
        raise TrialError(f"{name} takes ({taken}). Accepted is {shown}, self left out.")
    return max(fitting)
