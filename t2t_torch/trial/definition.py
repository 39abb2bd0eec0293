"""Definition of a trial: its class and functions, imported and checked."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from t2t_torch.errors import TrialError
from t2t_torch.trial.pedl_module import install_shim
from t2t_torch.trial.pytorch_trial import PyTorchTrial
from t2t_torch.trial.user_code import BASE, CodeSource, load, module_beside, module_of, several

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
    install_shim()
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
