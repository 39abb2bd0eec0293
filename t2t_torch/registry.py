"""Registry of problems, models, hparams sets and ranges, optimizers, schedules, metrics ...

A name is declared by a decorator, with the same spelling as in tensor2tensor:

    @register_problem                      # snake_case of the class: translate_multi30k_ende
    class TranslateMulti30kEnde(...)

    @register_hparams("transformer_base")  # or a literal
    def transformer_base(): ...

A registry folder (`root` in the code) is a directory, or a file, of such declarations.  It
is parsed, not imported: listing takes milliseconds, and looking up a name imports only the file
that declares it.  `--t2t_usr_dir` adds a registry folder.  A problem may also be declared in a
`.json` file, which `declaration/` converts to a class on first use.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.util
import inspect
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, overload

from t2t_torch.errors import RegistryError, T2TError, UsageError
from t2t_torch.files import read_bytes
from t2t_torch.registry_folder import KINDS as KINDS
from t2t_torch.registry_folder import PACKAGE as PACKAGE
from t2t_torch.registry_folder import Entry, declarations, not_readable
from t2t_torch.registry_folder import camelcase_to_snakecase as camelcase_to_snakecase
from t2t_torch.registry_folder import default_name as default_name
from t2t_torch.registry_folder import has_python as has_python
from t2t_torch.registry_folder import json_declaration as json_declaration
from t2t_torch.registry_folder import sources as sources
from t2t_torch.search_space import RangedHParams

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.problem import Problem


_WIDTH = 140  # characters of a line of `help_string`


def make_importable(root: Path) -> None:
    """Makes a user's directory importable under its own name.

    Its parent is appended to `sys.path`, where it shadows no other package and is also visible to
    processes that `multiprocessing` spawns.

    Raises:
      RegistryError: the name is taken by another package, or cannot be imported.
    """
    name = root.stem if root.is_file() else root.name
    if not name or "." in name:
        raise RegistryError(f"{root} cannot be imported: its name needs to be without a dot.")
    if str(root.parent) not in sys.path:
        sys.path.append(str(root.parent))
        importlib.invalidate_caches()
    spec = importlib.util.find_spec(name)
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec else []
    if str(root) not in [str(Path(place).resolve()) for place in places if place]:
        owner = next(filter(None, reversed(places)), "another module")
        raise RegistryError(
            f"{root} cannot be imported: the name {name!r} belongs to {owner}. "
            "Rename the directory."
        )


def import_source(source: Path, root: Path, wanted: str) -> None:
    """Imports a file of a registry folder.

    Args:
      source: file to import.
      root: registry folder of the file.
      wanted: reason of the import, as in "problem 'poetry'", for messages.

    Raises:
      RegistryError: a user's file raised; the message ends with the user's part of the traceback.
    """
    ours = source.is_relative_to(PACKAGE)
    parts = source.relative_to(PACKAGE.parent if ours else root.parent).with_suffix("").parts
    module_name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    old: Any = None
    if not ours and any(b"tensor2tensor" in read_bytes(path) for path in root.rglob("*.py")):
        old = importlib.import_module("t2t_torch.interop.tensor2tensor_modules")
        old.provide(users)
    try:
        module = importlib.import_module(module_name)
    except RegistryError:
        raise
    except Exception as error:
        if ours:
            raise  # A defect, or a library that is not installed.
        frames = error.__traceback__
        while frames and not Path(frames.tb_frame.f_code.co_filename).is_relative_to(root):
            frames = frames.tb_next
        trace = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        raise RegistryError(f"looking for {wanted}, importing {source} failed:\n{trace}") from error
    finally:
        if old is not None:
            old.forget()
    if Path(module.__file__ or "").resolve() != source:
        raise RegistryError(
            f"{module_name!r} is {module.__file__}, not {source}. Rename the directory or the file."
        )


class ProblemSpec(NamedTuple):
    """Parts of the name of a problem."""

    base_name: str
    was_reversed: bool
    was_copy: bool
    corruption: str = ""


PRETRAINED = "_pretrained"
"""Suffix of a problem whose texts are read by the tokenizer of a pretrained model."""
CORRUPTIONS = ("masked", "spans", "noised")
"""Last parts of the names of problems of restoring a text (`features/denoising.py`)."""


def parse_problem_name(name: str) -> ProblemSpec:
    """Splits the suffixes `_rev` and `_copy`, in any order, or `_masked` etc. off a name.

    Raises:
      RegistryError: a suffix is repeated.
    """
    for kind in CORRUPTIONS:
        if name.endswith(f"_{kind}") and not _knows("problem", name):
            base = name.removesuffix(f"_{kind}")
            _check_last(base, name)
            return ProblemSpec(base, False, False, kind)
    base, was_reversed, was_copy = name, False, False
    while base.endswith(("_rev", "_copy")):
        suffix = "_rev" if base.endswith("_rev") else "_copy"
        if was_reversed if suffix == "_rev" else was_copy:
            raise RegistryError(f"problem name {name!r} says {suffix!r} twice; say it once.")
        was_reversed |= suffix == "_rev"
        was_copy |= suffix == "_copy"
        base = base.removesuffix(suffix)
    _check_last(base.removesuffix(PRETRAINED), name)
    return ProblemSpec(base, was_reversed, was_copy)


def _check_last(base: str, name: str) -> None:
    """Raises RegistryError if a part of a name that comes last is within it."""
    parts = [f"_{kind}" for kind in CORRUPTIONS]
    if base.endswith((*parts, "_rev", "_copy")) and not _knows("problem", base):
        raise RegistryError(
            f"problem name {name!r}: one of {', '.join(parts)} comes last, after {PRETRAINED}, and "
            "not with _rev or _copy."
        )


def get_problem_name(
    base_name: str, was_reversed: bool = False, was_copy: bool = False, corruption: str = ""
) -> str:
    """Builds the name of a problem; the inverse of `parse_problem_name`.

    Raises:
      RegistryError: `base_name` already ends in `_rev` or `_copy`.
    """
    if base_name.endswith(("_rev", "_copy")):
        raise RegistryError(f"base name {base_name!r} may not end in '_rev' or '_copy'.")
    name = base_name + ("_copy" if was_copy else "") + ("_rev" if was_reversed else "")
    return f"{name}_{corruption}" if corruption else name


_TITLES = {
    **{kind: kind for kind in KINDS},
    "hparams": "hparams set",
    "ranged_hparams": "hparams range",
    "schedule": "learning-rate schedule",
    "run_kind": "kind of run",
}

_H = TypeVar("_H", bound="HParams")
_Declared = TypeVar("_Declared", bound=Callable[..., Any])


class Register:
    """Decorator that registers a class or a function, bare or with a literal name.

    It returns the decorated object; problems and models get the class attribute `name`.  A function
    that makes an hparams set is wrapped to record its name as the source of the fields it changes.

    Args:
      kind: one of `KINDS`.
      **attributes: attributes of the object that the decorator may be given, with their defaults.
    """

    def __init__(self, kind: str, **attributes: Any) -> None:
        self.kind, self.attributes = kind, attributes

    @overload
    def __call__(
        self, target: str | None = None, **attributes: Any
    ) -> Callable[[_Declared], _Declared]: ...

    @overload
    def __call__(self, target: _Declared) -> _Declared: ...

    def __call__(self, target: Any = None, **attributes: Any) -> Any:
        """Registers `target`, or returns a decorator that registers under the name `target`."""
        if odd := sorted(attributes.keys() - self.attributes.keys()):
            raise TypeError(f"@register_{self.kind} takes no argument {odd[0]!r}")

        def declare(obj: Any) -> Any:
            made = _register(self.kind, target if isinstance(target, str) else None, obj)
            for name, value in {**self.attributes, **attributes}.items():
                setattr(made, name, value)
            return made

        return declare if target is None or isinstance(target, str) else declare(target)


register_problem = Register("problem")
"""Declares a `Problem`."""
register_model = Register("model")
"""Declares a `T2TModel`."""
register_hparams = Register("hparams")
"""Declares a function without arguments that returns an `HParams`."""
register_ranged_hparams = Register("ranged_hparams")
"""Declares a function that sets ranges in the `RangedHParams` which is its only argument."""
register_optimizer = Register("optimizer")
"""Declares a function that makes an optimizer."""
register_schedule = Register("schedule")
"""Declares a function (hparams, train_steps) -> learning rate, or a factor of it, by the step."""
register_metric = Register("metric")
"""Declares a `Metric`, or a function (logits, targets, counted) -> (sum of values, of weights)."""
register_loss = Register("loss")
"""Declares what is trained on; see `losses/`."""
register_hook = Register("hook")
"""Declares a `Hook`, which watches a run."""
register_run_kind = Register("run_kind")
"""Declares a `RunKind`, what the library does with the runs of one kind; see `run_kinds/`."""
register_executor = Register("executor")
"""Declares an `Executor`, which runs the parts of a command's work; see `executor.py`."""
register_proposer = Register("proposer")
"""Declares a function that proposes problems for a table; see `declaration/proposal.py`."""
register_reader = Register("reader", endings=(), matches=None)
"""Declares a function (path, bad, *, options) that yields the `Record`s of a file.

`endings` are suffixes of file names, such as ".tagged"; such files need no "format".  `matches` is
a function of a file's head (`readers/head.py`) that returns the confidence that it is of this
format, with the options to read it by; None: the suffix alone decides."""


def problem(name: str) -> Problem:
    """Creates the problem of this name, which may have the suffixes `_rev` and `_copy`.

    `<problem>_pretrained` is a problem of texts with the tokens of a pretrained model,
    `<problem>_masked`, `_spans` and `_noised` those of restoring its text, and
    `<mixture>__<problem>` is a task of a `TaskMixtureProblem`.
    """
    whole, mark, part = name.partition("__")
    if mark and _knows("problem", whole):
        mixture: Any = problem(whole)
        if hasattr(mixture, "component"):
            return cast("Problem", mixture.component(part))
    base = parse_problem_name(name).base_name
    found = base if _knows("problem", base) else base.removesuffix(PRETRAINED)
    return problem_view(_find("problem", found), name)


def problem_view(kind: Any, name: str) -> Problem:
    """Creates a problem of a class with the view that the suffixes of its name select."""
    spec = parse_problem_name(name)
    base = spec.base_name
    made = kind(reverse=spec.was_reversed, copy=spec.was_copy)
    reads_pretrained = base.endswith(PRETRAINED) and not _knows("problem", base)
    if (reads_pretrained or spec.corruption) and not hasattr(made, "use_pretrained_vocabulary"):
        raise RegistryError(f"problem {base!r} has no texts, which {name!r} would read.")
    if reads_pretrained:
        made.use_pretrained_vocabulary()
    if spec.corruption:
        made.corrupt(spec.corruption)
    return cast("Problem", made)


def model(name: str) -> type[T2TModel]:
    """Returns the model class of this name."""
    return cast("type[T2TModel]", _find("model", name))


def hparams(name: str, reader: str | type[T2TModel] = "") -> HParams:
    """Creates the hparams set of this name; each field records the set that it comes from.

    Args:
      name: name of the set.
      reader: the model that reads the values, which may be of another family than the set
        (`Params.read_by`); "": the set in its own class.
    """
    made = cast("HParams", _find("hparams", name)())
    if not reader:
        return made
    kind = _hparams_of_model(reader) if isinstance(reader, str) else reader.HParams
    return made if isinstance(made, kind) else made.read_by(kind).signed(name)


def _hparams_of_model(name: str) -> type[HParams]:
    """Returns the class that a model reads; one in `hparams/` is imported without torch.

    It is in the file of the model's own name or of that of its family, under the model's name.
    """
    file = next((Path(entry.path).stem for entry in entries("model") if entry.name == name), "")
    for stem in (name, file):
        if file and (PACKAGE / "hparams" / f"{stem}.py").is_file():
            for kind, held in vars(importlib.import_module(f"t2t_torch.hparams.{stem}")).items():
                if camelcase_to_snakecase(kind.removesuffix("HParams")) == name:
                    return cast("type[HParams]", held)
    return model(name).HParams


def hparams_class(kind: type[_H], text: str, sets: Iterable[str] = ()) -> type[_H]:
    """Returns the class whose fields hyperparameters written as JSON have.

    It is a subclass of `kind` if the hparams set that they come from adds fields to `kind`, and is
    `kind` itself if no known set does: reading the text then names the fields that do not fit.

    Args:
      kind: the class that the model needs, `model.HParams`.
      text: output of `HParams.to_json`, which names the sets of its values.
      sets: names of sets to try before those.
    """
    try:
        values = json.loads(text)
        sources = [name for name in values.pop("provenance", {}).values() if type(name) is str]
    except (ValueError, AttributeError, TypeError):
        return kind  # no JSON object: `from_json` reports it
    if values.keys() <= kind.model_fields.keys():
        return kind
    for name in dict.fromkeys((*sets, *sources)):
        try:
            wider = type(hparams(name)) if _knows("hparams", name) else kind
        except UsageError:  # it is in a run's copy, which is not trusted
            raise
        except T2TError:
            continue
        if issubclass(wider, kind) and values.keys() <= wider.model_fields.keys():
            return wider
    return kind


def ranged_hparams(name: str) -> RangedHParams:
    """Creates the hyperparameter ranges of this name."""
    ranges = RangedHParams()
    _find("ranged_hparams", name)(ranges)
    return ranges


def optimizer(name: str) -> Callable[..., Any]:
    """Returns the function that creates the optimizer of this name."""
    return cast("Callable[..., Any]", _find("optimizer", name))


def schedule(name: str) -> Callable[..., Any]:
    """Returns the function that creates the learning-rate schedule of this name."""
    return cast("Callable[..., Any]", _find("schedule", name))


def metric(name: str) -> Callable[..., Any]:
    """Returns the metric of this name."""
    return cast("Callable[..., Any]", _find("metric", name))


def loss(name: str) -> Any:
    """Returns the loss of this name."""
    return _find("loss", name)


def hook(name: str) -> Callable[..., Any]:
    """Returns the hook class of this name."""
    return cast("Callable[..., Any]", _find("hook", name))


def run_kind(name: str) -> Any:
    """Returns the kind of run of this name."""
    return _find("run_kind", name)


def reader(name: str) -> Callable[..., Any]:
    """Returns the function that reads files of the format of this name."""
    return cast("Callable[..., Any]", _find("reader", name))


def proposer(name: str) -> Callable[..., Any]:
    """Returns the function that proposes problems of the kind of this name."""
    return cast("Callable[..., Any]", _find("proposer", name))


def executor(name: str) -> Callable[..., Any]:
    """Returns the class of the executor of this name."""
    return cast("Callable[..., Any]", _find("executor", name))


def list_names(kind: str) -> list[str]:
    """Lists the names of one of `KINDS`, sorted; imports nothing."""
    return [entry.name for entry in entries(kind)]


def entries(kind: str) -> list[Entry]:
    """Lists the declarations of one of `KINDS`, sorted by name; imports nothing."""
    if kind not in KINDS:
        raise RegistryError(f"there is no kind {kind!r}; kinds are {', '.join(KINDS)}.")
    known = {name: place for name, (_, place) in _STATE.objects[kind].items()}
    known.update(_STATE.index()[kind])
    return [known[name] for name in sorted(known)]


def add_folder(path: str | Path) -> None:
    """Adds a registry folder: a directory, or a single file.

    A directory outside this package is imported as a package under its own name; its files may
    import each other.

    Raises:
      RegistryError: there is no such path, its name is taken by another package, a file in it is
        not valid Python, or it declares a name that is already taken.
    """
    root = Path(path).expanduser().resolve()
    if not root.exists():
        raise RegistryError(f"there is no directory {root} to read problems, models and sets from.")
    if root in _STATE.roots:
        return
    # A folder with only JSON declarations may have any name.
    only_json = not has_python(root) and any(source.suffix == ".json" for source in sources(root))
    if not root.is_relative_to(PACKAGE) and not only_json:
        make_importable(root)
    _STATE.roots.append(root)
    _STATE.forget_index()
    try:
        _STATE.index()
    except RegistryError:
        _STATE.roots.remove(root)
        _STATE.forget_index()
        raise


DECLARATIONS = "declarations"
"""Folder of a data directory with the declarations that were made in Python; see `api.generate`."""


def import_usr_dir(directory: str | Path) -> None:
    """Adds a user's directory (`--t2t_usr_dir`) as a registry folder; no `__init__.py` needed.

    Raises:
      RegistryError: as `add_folder`; or `directory` is a file.
    """
    folder = Path(directory).expanduser().resolve()
    if folder.is_file():
        raise RegistryError(
            f"{folder} is a file; give its directory: --t2t_usr_dir={folder.parent}"
        )
    if folder.name == DECLARATIONS:  # of one data directory at a time, if names are the same
        names = {path.name for path in folder.glob("*.json")}
        for other in [
            root for root in _STATE.roots if root.name == DECLARATIONS and root != folder
        ]:
            if names & {path.name for path in other.glob("*.json")}:
                _STATE.roots.remove(other)
                _STATE.forget_index()
    add_folder(folder)


def add_declarations(data_dir: str | Path | None) -> None:
    """Adds the declarations in a data directory, if it has any, as a registry folder.

    Raises:
      RegistryError: a declaration has a name that is already taken.
    """
    if not (data_dir and isinstance(data_dir, str | Path)):
        return  # a wrong type is reported where it is read
    folder = Path(data_dir, DECLARATIONS).expanduser()
    if any(folder.glob("*.json")) and not has_python(folder):
        import_usr_dir(folder)


def add_declaration(declaration: Mapping[str, Any]) -> None:
    """Registers the declaration that a run carries; does nothing if there is none.

    A problem of this name in a registry folder takes precedence: the user may have written one.
    """
    if declaration:
        _STATE.carried[str(declaration["problem"])] = dict(declaration)


def carry(folder: Path, check: Callable[[Path], None]) -> None:
    """Registers a copy of a user's folder that a run carries.

    It becomes a registry folder when a name is looked up that only it declares.

    Args:
      folder: the copy.
      check: called with the folder before; raises if its code may not be executed.
    """
    _STATE.copies.pop(folder, None)
    _STATE.copies[folder] = check


def declares_all(folder: Path) -> bool:
    """Returns True if registry folders declare all names of another folder, at least one."""
    names = list(_declared_in_folder(folder))
    return bool(names) and all(name in _STATE.index()[kind] for kind, name in names)


def declared_in(name: str, kind: str = "problem") -> Path | None:
    """Returns the file in a registry folder that declares a name; None if there is none."""
    entry = _STATE.index()[kind].get(name)
    return None if entry is None else Path(entry.path)


def _declared_in_folder(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the kinds and names that a folder declares."""
    yield from ((entry.kind, entry.name) for entry in _list_folder(folder))


def _knows(kind: str, name: str) -> bool:
    """Returns True if a name is declared, also by the copies that runs carry."""
    if name in list_names(kind) or (kind == "problem" and name in _STATE.carried):
        return True
    return any((kind, name) in _declared_in_folder(folder) for folder in _STATE.copies)


def _add_copy(kind: str, name: str) -> bool:
    """Adds the carried copy that declares a name, or may do so; returns False if there is none.

    Of several, the one that was carried last is taken.

    Raises:
      UsageError: its code may not be executed.
    """
    copies = reversed(_STATE.copies.items())
    left = {folder: check for folder, check in copies if folder not in _STATE.roots}
    for folder, check in left.items():
        if (kind, name) in _declared_in_folder(folder):
            check(folder)
            add_folder(folder)
            return True
    for folder, check in left.items():  # computed names are known only after an import
        with contextlib.suppress(UsageError):
            check(folder)
            add_folder(folder)
            return True
    return False


def users() -> list[Path]:
    """Lists the users' directories, in the order of addition."""
    return [root for root in _STATE.roots if not root.is_relative_to(PACKAGE)]


def usr_dirs() -> list[str]:
    """Lists the absolute paths of the users' directories, in the order of addition."""
    return list(map(str, users()))


def help_string() -> str:
    """Lists all names by kind, one line each, with the first line of their documentation.

    Users' files that are not valid Python or JSON are listed at the end.
    """
    lines = ["Registry contents:", "------------------"]
    for kind in KINDS:
        lines += ["", f"  {_plural(kind).capitalize()}:"]
        known = entries(kind)
        width = max((len(one.name) for one in known), default=0)
        lines += [f"    {one.name:<{width}}  {one.meaning}".rstrip()[:_WIDTH] for one in known]
    faults = [
        fault for root in users() for source in sources(root) if (fault := not_readable(source))
    ]
    if faults:
        lines += ["", "  Not read, for it is not valid:", *(f"    {f}" for f in faults)]
    return "\n".join(lines) + "\n"


def _plural(kind: str) -> str:
    title = _TITLES[kind]
    return f"{title}es" if title.endswith("s") else f"{title}s"


class _State:
    """State of the registry: the folders, their declarations, and the imported objects."""

    def __init__(self) -> None:
        # Sets and ranges of hyperparameters share a registry folder.
        self.roots = [PACKAGE / root for root in dict.fromkeys(KINDS.values())]
        self.objects: dict[str, dict[str, tuple[Any, Entry]]] = {kind: {} for kind in KINDS}
        self.carried: dict[str, dict[str, Any]] = {}  # declarations of runs, by problem
        self.copies: dict[Path, Callable[[Path], None]] = {}  # of users' folders, in runs
        self._index: dict[str, dict[str, Entry]] | None = None

    def index(self) -> dict[str, dict[str, Entry]]:
        """Returns the declarations by kind and name."""
        if self._index is None:
            declared: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
            for root in self.roots:
                for entry in (
                    _list_own(root) if root.is_relative_to(PACKAGE) else _list_folder(root)
                ):
                    if other := declared[entry.kind].get(entry.name):
                        if not _replaces(entry, other):
                            raise _taken(other, entry)
                        _LOG.info("problem %r is that of %s.", entry.name, entry.path)
                    declared[entry.kind][entry.name] = entry
            self._index = declared
        return self._index

    def forget_index(self) -> None:
        """Invalidates the index; the next look-up reads the registry folders again."""
        self._index = None


def _list_folder(root: Path) -> list[Entry]:
    return [entry for source in sources(root) for entry in declarations(source)]


_list_own = functools.cache(_list_folder)


def _replaces(entry: Entry, other: Entry) -> bool:
    """Returns True if a user's problem for tensor2tensor has the name of one of ours."""
    users, ours = Path(entry.path), Path(other.path)
    if entry.kind != "problem" or users.suffix != ".py" or not ours.is_relative_to(PACKAGE):
        return False
    return not users.is_relative_to(PACKAGE) and b"tensor2tensor" in read_bytes(users)


_LOG = logging.getLogger(__name__)
_STATE = _State()


def _register(kind: str, name: str | None, obj: Any) -> Any:
    """Registers an object with its location; returns it."""
    if not callable(obj):
        raise RegistryError(f"@register_{kind} decorates a class or a function, not {obj!r}.")
    name = name or default_name(obj.__name__, inspect.isclass(obj))
    if kind == "problem" and name.endswith(("_rev", "_copy")):
        raise RegistryError(f"problem name {name!r} may not end in '_rev' or '_copy'. Rename it.")
    place = Entry(kind, name, *_place(obj))
    if kind == "ranged_hparams":
        _check_arguments(name, obj)
    if kind == "hparams":
        obj = _signing(name, obj)
    elif kind in ("problem", "model", "run_kind") and inspect.isclass(obj):
        cast("Any", obj).name = name
    if name in _STATE.objects[kind]:
        old, old_place = _STATE.objects[kind][name]
        # The same file, executed again (notebook, reload, spawned process), may register again.
        same = old.__qualname__ == obj.__qualname__ and old_place.path == place.path
        if not (same or _replaces(place, old_place) or _replaces(old_place, place)):
            raise _taken(old_place, place)
        if _replaces(old_place, place):
            return obj
    _STATE.objects[kind][name] = obj, place
    return obj


def _place(obj: Any) -> tuple[str, int]:
    """Returns the file and line of a class or function."""
    if (code := getattr(obj, "__code__", None)) is not None:
        return str(Path(code.co_filename).resolve()), code.co_firstlineno
    file = getattr(sys.modules.get(obj.__module__), "__file__", None)
    try:
        line = inspect.getsourcelines(obj)[1] if file is None else 1
    except (OSError, TypeError):
        line = 1
    return str(Path(file).resolve()) if file else f"<{obj.__module__}>", line


def _signing(name: str, make: Callable[[], HParams]) -> Callable[[], HParams]:
    """Wraps the function of a set to sign the fields that it changes."""
    needed = [p.name for p in inspect.signature(make).parameters.values() if p.default is p.empty]
    if needed:
        raise RegistryError(
            f"hparams set {name!r} takes no arguments, but its function requires {needed}."
        )

    @functools.wraps(make)
    def signed() -> HParams:
        made = make()
        if not hasattr(made, "signed"):
            raise RegistryError(
                f"hparams set {name!r} must return an HParams; it returned {made!r}."
            )
        return made.signed(name)

    return signed


def _check_arguments(name: str, fill: Callable[..., Any]) -> None:
    """Checks that a function of ranges takes exactly one argument, the ranges to fill."""
    taken = inspect.signature(fill)
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if [parameter.kind in by_place for parameter in taken.parameters.values()] != [True]:
        raise RegistryError(
            f"hparams range {name!r} takes one argument, the RangedHParams that it fills; its "
            f"function takes {taken}."
        )


def _find(kind: str, name: str) -> Any:
    """Returns the object of a name; imports its file if necessary."""
    if name not in _STATE.index()[kind] and name not in _STATE.objects[kind]:
        _STATE.forget_index()  # A file may have been added since the last look-up.
        _list_own.cache_clear()
    declared = _STATE.index()[kind].get(name)
    if declared is not None and declared.path.endswith(".json"):
        if name in _STATE.objects[kind]:
            raise _taken(declared, _STATE.objects[kind][name][1])
        # Not cached: a file that is edited while a notebook runs is read again.
        maker = importlib.import_module("t2t_torch.declaration.problem")
        return maker.problem_class(Path(declared.path))
    imported = _STATE.objects[kind].get(name)
    if imported is None or (declared is not None and _replaces(declared, imported[1])):
        for root in _STATE.roots:
            # A computed name cannot be parsed; importing the user's files may register it.
            unread = () if declared or root.is_relative_to(PACKAGE) else sources(root)
            for source in [Path(declared.path)] if declared else unread:
                if source.is_relative_to(root) and source.suffix == ".py":
                    import_source(source, root, f"{_TITLES[kind]} {name!r}")
    if name not in _STATE.objects[kind] and kind == "problem" and name in _STATE.carried:
        maker = importlib.import_module("t2t_torch.declaration.problem")
        return type(maker.problem_of(_STATE.carried[name], Path(f"{name}.json")))
    if name not in _STATE.objects[kind]:
        if _add_copy(kind, name):
            return _find(kind, name)
        raise RegistryError(_missing(kind, name))
    obj, place = _STATE.objects[kind][name]
    if declared is not None and declared.path != place.path:
        raise _taken(declared, place)
    return obj


def _missing(kind: str, name: str) -> str:
    """Returns the error message for an unknown name, with the nearest names."""
    names = list_names(kind)
    near = difflib.get_close_matches(name, names, n=3)
    snake = camelcase_to_snakecase(name)  # tensor2tensor 1.0 has `--optimizer=Adam`.
    near = [snake] if snake in names else near or [n for n in names if name and name in n][:3]
    other = [_plural(k) for k in KINDS if k != kind and name in list_names(k)]
    own = PACKAGE / KINDS[kind]
    roots = [s for s in _STATE.roots if s == own or not s.is_relative_to(PACKAGE)]
    looked = "\n".join(f"  {root}" for root in roots)
    return (
        f"no {_TITLES[kind]} is named {name!r}."
        + (f" Did you mean {' or '.join(map(repr, near))}?" if near else "")
        + (f" ({name!r} is among the {' and '.join(other)}.)" if other else "")
        + " If it is your own, add --t2t_usr_dir=FOLDER."
        + f"\nLooked in:\n{looked}\nList all:  t2t-trainer --registry_help"
    )


def _taken(first: Entry, second: Entry) -> RegistryError:
    return RegistryError(
        f"{_TITLES[first.kind]} {first.name!r} is declared twice:\n"
        f"  {first.path}:{first.line}\n  {second.path}:{second.line}\nRename one of them."
    )
