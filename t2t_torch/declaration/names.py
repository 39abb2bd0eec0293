"""The names in a declaration of what stands elsewhere: problems, models and hparams sets."""

from __future__ import annotations

from pathlib import Path

from t2t_torch import registry
from t2t_torch.declaration.kinds import MIXTURE
from t2t_torch.declaration.schema import Declaration, content_of, mistake, nearest
from t2t_torch.errors import RegistryError
from t2t_torch.problem_name import parse_problem_name

_KINDS = {"model": "model", "hparams_set": "hparams"}
"""By key, the kind of its name in the registry."""


def check_names(declaration: Declaration, path: Path) -> None:
    """Checks that all names are known; it imports a user's files for a name that none declares.

    Args:
      declaration: what names them.
      path: where it stands.

    Raises:
      RegistryError: one is not, or a mixture names itself.
    """
    for key, kind in _KINDS.items():
        name, known = getattr(declaration, key), registry.list_names(kind)
        if name and name not in known:
            raise mistake(path, key, f"there is no {key} {name!r}.{nearest(name, known)}")
    for name in _metrics(declaration):
        known = registry.list_names("metric")
        if name not in known:
            raise mistake(path, "metrics", f"there is no metric {name!r}.{nearest(name, known)}")
    for name in _losses(declaration):
        known = registry.list_names("loss")
        if name not in known:
            raise mistake(path, "loss", f"there is no loss {name!r}.{nearest(name, known)}")
    other = declaration.use_vocab_from_other_problem
    if other is not None:
        if _base_name(other, "use_vocab_from_other_problem", path) == declaration.problem:
            raise mistake(path, "use_vocab_from_other_problem", "names the problem itself.")
        _check_problem(other, "use_vocab_from_other_problem", path)
    _check_circle(declaration.problems, path, (declaration.problem,))
    for name in declaration.problems:
        _check_problem(name, "problems", path)


def _metrics(declaration: Declaration) -> list[str]:
    said = declaration.metrics or ()
    return [*said] if isinstance(said, tuple) else [name for of in said.values() for name in of]


def _losses(declaration: Declaration) -> list[str]:
    said = declaration.loss
    if said is None:
        return []
    return [said] if isinstance(said, str) else [*said.values()]


def _base_name(name: str, key: str, path: Path) -> str:
    """A problem's name without `_rev` and `_copy`."""
    try:
        return parse_problem_name(name).base_name
    except RegistryError as error:
        raise mistake(path, key, str(error)) from None


def _check_problem(name: str, key: str, path: Path) -> None:
    """Raises RegistryError if there is no problem of this name."""
    base = _base_name(name, key, path)
    if base in registry.list_names("problem"):
        return
    try:
        registry.problem(base)  # A name made in a loop is known when its file is imported.
    except RegistryError as error:
        raise mistake(path, key, str(error)) from None


def _check_circle(names: tuple[str, ...], path: Path, within: tuple[str, ...]) -> None:
    """Raises RegistryError if a mixture is among what it mixes, also in declared mixtures of it."""
    places = {entry.name: Path(entry.path) for entry in registry.entries("problem")}
    for name in names:
        base = _base_name(name, "problems", path)
        if base in within:
            told = " -> ".join([*within[within.index(base) :], base])
            raise mistake(path, "problems", f"a mixture cannot mix itself: {told}.")
        if base in places and places[base].suffix == ".json":
            inner = content_of(places[base])
            if inner.get("kind") == MIXTURE:
                named = Declaration.parse(inner, places[base]).problems
                _check_circle(named, places[base], (*within, base))
