"""Names -> things: problems, models, hparams sets and ranges, optimizers, metrics, losses, hooks.

A name is declared by a decorator, which grep finds and tensor2tensor spells the same way:

    @register_problem                      # snake_case of the class: translate_multi30k_ende
    class TranslateMulti30kEnde(...)

    @register_hparams("transformer_base")  # or a literal
    def transformer_base(): ...

A *shelf* is a directory (or one file) of such declarations.  Shelves (`shelf.py`) are read, not
imported: listing costs milliseconds, and looking a name up imports only the file that declares it.
`--t2t_usr_dir` is one more shelf.  A problem may also be declared in a `.json` file on a shelf:
`declaration/` makes a class of it when it is asked for.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from t2t_torch.errors import RegistryError
from t2t_torch.problem_name import parse_problem_name
from t2t_torch.ranged_hparam import RangedHParams
from t2t_torch.shelf import (
    KINDS,
    PACKAGE,
    Entry,
    camelcase_to_snakecase,
    declarations,
    default_name,
    has_python,
    import_source,
    make_importable,
    not_readable,
    sources,
)

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.problem import Problem

_TITLES = {
    "problem": "problem",
    "model": "model",
    "hparams": "hparams set",
    "ranged_hparams": "hparams range",
    "optimizer": "optimizer",
    "metric": "metric",
    "loss": "loss",
    "hook": "hook",
}
_BUILT_IN_SHELVES = {
    "problem": "problems",
    "model": "models",
    "hparams": "hparams",
    "ranged_hparams": "hparams",
    "optimizer": "optimizers",
    "metric": "metrics",
    "loss": "losses",
    "hook": "hooks",
}

_Declared = TypeVar("_Declared", bound=Callable[..., Any])


class Register:
    """A decorator that gives a class or a function its name, bare or with a literal.

    It returns what it decorates; problems and models get the class attribute `name`.  A function
    that makes an hparams set is wrapped so that the set remembers which function changed what.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @overload
    def __call__(self, target: str | None = None) -> Callable[[_Declared], _Declared]: ...

    @overload
    def __call__(self, target: _Declared) -> _Declared: ...

    def __call__(self, target: Any = None) -> Any:
        """Registers `target`, or returns a decorator that registers under the name `target`."""
        if target is None or isinstance(target, str):
            return functools.partial(_register, self.kind, target)
        return _register(self.kind, None, target)


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
register_metric = Register("metric")
"""Declares a `Metric`, or a function (logits, targets, counted) -> (sum of values, of weights)."""
register_loss = Register("loss")
"""Declares what is trained on; see `losses/`."""
register_hook = Register("hook")
"""Declares a `Hook`, which watches a run."""


def problem(name: str) -> Problem:
    """Makes the problem of this name; `_rev` and `_copy` at its end are understood."""
    spec = parse_problem_name(name)
    made = _find("problem", spec.base_name)(reverse=spec.was_reversed, copy=spec.was_copy)
    return cast("Problem", made)


def model(name: str) -> type[T2TModel]:
    """Returns the model class of this name."""
    return cast("type[T2TModel]", _find("model", name))


def hparams(name: str) -> HParams:
    """Makes the hparams set of this name; each field knows which set gave it its value."""
    return cast("HParams", _find("hparams", name)())


def ranged_hparams(name: str) -> RangedHParams:
    """Returns the ranges of this name, new with every call."""
    ranges = RangedHParams()
    _find("ranged_hparams", name)(ranges)
    return ranges


def optimizer(name: str) -> Callable[..., Any]:
    """Returns the function that makes the optimizer of this name."""
    return cast("Callable[..., Any]", _find("optimizer", name))


def metric(name: str) -> Callable[..., Any]:
    """Returns the metric of this name."""
    return cast("Callable[..., Any]", _find("metric", name))


def loss(name: str) -> Callable[..., Any]:
    """Returns the loss of this name."""
    return cast("Callable[..., Any]", _find("loss", name))


def hook(name: str) -> Callable[..., Any]:
    """Returns the class of the hook of this name."""
    return cast("Callable[..., Any]", _find("hook", name))


def list_names(kind: str) -> list[str]:
    """Lists the names of one of `KINDS`, sorted; imports nothing."""
    return [entry.name for entry in entries(kind)]


def entries(kind: str) -> list[Entry]:
    """Lists where the names of one of `KINDS` are declared, sorted by name; imports nothing."""
    if kind not in KINDS:
        raise RegistryError(f"there is no kind {kind!r}; kinds are {', '.join(KINDS)}.")
    known = {name: place for name, (_, place) in _STATE.things[kind].items()}
    known.update(_STATE.index()[kind])
    return [known[name] for name in sorted(known)]


def add_shelf(path: str | Path) -> None:
    """Adds a directory, or one file, whose declarations become known by name.

    A directory outside this package is imported as a package under its own name, so that its files
    may import each other.

    Raises:
      RegistryError: there is no such path, its name is taken by another package, a file in it is
        no Python, or it declares a name that is already taken.
    """
    shelf = Path(path).expanduser().resolve()
    if not shelf.exists():
        raise RegistryError(
            f"there is no directory {shelf} to read problems, models and sets from."
        )
    if shelf in _STATE.shelves:
        return
    # A folder with nothing but declarations in JSON may have any name.
    only_json = not has_python(shelf) and any(source.suffix == ".json" for source in sources(shelf))
    if not shelf.is_relative_to(PACKAGE) and not only_json:
        make_importable(shelf)
    _STATE.shelves.append(shelf)
    _STATE.forget_index()
    try:
        _STATE.index()
    except RegistryError:
        _STATE.shelves.remove(shelf)
        _STATE.forget_index()
        raise


def import_usr_dir(directory: str | Path) -> None:
    """Adds a user's directory (`--t2t_usr_dir`) as one more shelf; it needs no `__init__.py`.

    Raises:
      RegistryError: as `add_shelf`; or `directory` is a file.
    """
    folder = Path(directory).expanduser().resolve()
    if folder.is_file():
        raise RegistryError(
            f"{folder} is a file; give its directory: --t2t_usr_dir={folder.parent}"
        )
    add_shelf(folder)


def usr_dirs() -> list[str]:
    """Lists the users' directories, absolute, in the order in which they were added."""
    return [str(shelf) for shelf in _STATE.shelves if not shelf.is_relative_to(PACKAGE)]


def help_string() -> str:
    """Lists every name by kind, those that share their first word together.

    Users' files that are not valid Python or JSON, whose names are not known, are named at the end.
    """
    lines = ["Registry contents:", "------------------"]
    for kind in KINDS:
        lines += ["", f"  {_plural(kind).capitalize()}:"]
        groups: dict[str, list[str]] = {}
        for name in list_names(kind):
            groups.setdefault(name.split("_")[0], []).append(name)
        for prefix, names in groups.items():
            if len(names) == 1:
                lines.append(f"    * {names[0]}")
            else:
                lines += [f"    {prefix}:", *(f"      * {name}" for name in names)]
    users = [shelf for shelf in _STATE.shelves if not shelf.is_relative_to(PACKAGE)]
    faults = [
        fault for shelf in users for source in sources(shelf) if (fault := not_readable(source))
    ]
    if faults:
        lines += ["", "  Not read, for it is not valid:", *(f"    {f}" for f in faults)]
    return "\n".join(lines) + "\n"


def _plural(kind: str) -> str:
    title = _TITLES[kind]
    return f"{title}es" if title.endswith("s") else f"{title}s"


class _State:
    """What is known: the shelves, what they declare, and what has been imported."""

    def __init__(self) -> None:
        # Sets and ranges of hyperparameters stand on one shelf.
        self.shelves = [PACKAGE / shelf for shelf in dict.fromkeys(_BUILT_IN_SHELVES.values())]
        self.things: dict[str, dict[str, tuple[Any, Entry]]] = {kind: {} for kind in KINDS}
        self._index: dict[str, dict[str, Entry]] | None = None

    def index(self) -> dict[str, dict[str, Entry]]:
        """Kind -> name -> where the shelves declare it."""
        if self._index is None:
            found: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
            for shelf in self.shelves:
                for source in sources(shelf):
                    for entry in declarations(source):
                        other = found[entry.kind].setdefault(entry.name, entry)
                        if other is not entry:
                            raise _taken(other, entry)
            self._index = found
        return self._index

    def forget_index(self) -> None:
        """Makes the next look-up read the shelves again."""
        self._index = None


_STATE = _State()


def _register(kind: str, name: str | None, thing: Any) -> Any:
    """Notes what is declared, by whom and where; returns it."""
    if not callable(thing):
        raise RegistryError(f"@register_{kind} decorates a class or a function, not {thing!r}.")
    name = name or default_name(thing.__name__, inspect.isclass(thing))
    if kind == "problem" and name.endswith(("_rev", "_copy")):
        raise RegistryError(f"problem name {name!r} may not end in '_rev' or '_copy'. Rename it.")
    place = Entry(kind, name, *_place(thing))
    if kind == "ranged_hparams":
        _check_arguments(name, thing)
    if kind == "hparams":
        thing = _signing(name, thing)
    elif kind in ("problem", "model") and inspect.isclass(thing):
        cast("Any", thing).name = name
    if name in _STATE.things[kind]:
        old, old_place = _STATE.things[kind][name]
        # The same file read again (a notebook, a reload, a spawned process) may say the same again.
        if old.__qualname__ != thing.__qualname__ or old_place.path != place.path:
            raise _taken(old_place, place)
    _STATE.things[kind][name] = thing, place
    return thing


def _place(thing: Any) -> tuple[str, int]:
    """Returns the file and line where a class or function stands."""
    code = getattr(thing, "__code__", None)
    if code is not None:
        return str(Path(code.co_filename).resolve()), code.co_firstlineno
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    try:
        line = inspect.getsourcelines(thing)[1] if file is None else 1
    except (OSError, TypeError):
        line = 1
    return str(Path(file).resolve()) if file else f"<{thing.__module__}>", line


def _signing(name: str, make: Callable[[], HParams]) -> Callable[[], HParams]:
    """Wraps a set's function: the fields that it changed say so."""
    needed = [p.name for p in inspect.signature(make).parameters.values() if p.default is p.empty]
    if needed:
        raise RegistryError(
            f"hparams set {name!r} takes no arguments; its function asks for {needed}."
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
    """Refuses a function of ranges that does not take exactly what it is to fill."""
    taken = inspect.signature(fill)
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if [parameter.kind in by_place for parameter in taken.parameters.values()] != [True]:
        raise RegistryError(
            f"hparams range {name!r} takes one argument, the RangedHParams that it fills; its "
            f"function takes {taken}."
        )


def _find(kind: str, name: str) -> Any:
    """Returns what is declared under a name, importing its file if need be."""
    if name not in _STATE.index()[kind] and name not in _STATE.things[kind]:
        _STATE.forget_index()  # A file may have come since the shelves were read.
    declared = _STATE.index()[kind].get(name)
    if declared is not None and declared.path.endswith(".json"):
        if name in _STATE.things[kind]:
            raise _taken(declared, _STATE.things[kind][name][1])
        # Not remembered: a file that is edited while a notebook runs is read again.
        maker = importlib.import_module("t2t_torch.declaration.problem")
        return maker.problem_class(Path(declared.path))
    if name not in _STATE.things[kind]:
        for shelf in _STATE.shelves:
            # A name made in a loop cannot be read; importing a user's files may show it.
            unread = () if declared or shelf.is_relative_to(PACKAGE) else sources(shelf)
            for source in [Path(declared.path)] if declared else unread:
                if source.is_relative_to(shelf) and source.suffix == ".py":
                    import_source(source, shelf, f"{_TITLES[kind]} {name!r}")
    if name not in _STATE.things[kind]:
        raise RegistryError(_missing(kind, name))
    thing, place = _STATE.things[kind][name]
    if declared is not None and declared.path != place.path:
        raise _taken(declared, place)
    return thing


def _missing(kind: str, name: str) -> str:
    """Says that a name is unknown: the nearest names, where it was looked for, how to list."""
    names = list_names(kind)
    near = difflib.get_close_matches(name, names, n=3)
    snake = camelcase_to_snakecase(name)  # tensor2tensor 1.0 said `--optimizer=Adam`.
    near = [snake] if snake in names else near or [n for n in names if name and name in n][:3]
    other = [_plural(k) for k in KINDS if k != kind and name in list_names(k)]
    own = PACKAGE / _BUILT_IN_SHELVES[kind]
    shelves = [s for s in _STATE.shelves if s == own or not s.is_relative_to(PACKAGE)]
    looked = "\n".join(f"  {shelf}" for shelf in shelves)
    return (
        f"no {_TITLES[kind]} is named {name!r}."
        + (f" Did you mean {' or '.join(map(repr, near))}?" if near else "")
        + (f" ({name!r} is among the {' and '.join(other)}.)" if other else "")
        + f"\nLooked in:\n{looked}\n"
        + "List all:  t2t-trainer --registry_help  (with --t2t_usr_dir=... for your own)"
    )


def _taken(first: Entry, second: Entry) -> RegistryError:
    return RegistryError(
        f"{_TITLES[first.kind]} {first.name!r} is declared twice:\n"
        f"  {first.path}:{first.line}\n  {second.path}:{second.line}\nRename one of them."
    )
