"""A problem's name, with what its endings ask for: `_rev` and `_copy`."""

from __future__ import annotations

from typing import NamedTuple

from t2t_torch.errors import RegistryError


class ProblemSpec(NamedTuple):
    """A problem's name taken apart."""

    base_name: str
    was_reversed: bool
    was_copy: bool


def parse_problem_name(name: str) -> ProblemSpec:
    """Takes `_rev` and `_copy` off the end of a problem's name, in any order.

    Raises:
      RegistryError: one of them stands there twice.
    """
    base, was_reversed, was_copy = name, False, False
    while base.endswith(("_rev", "_copy")):
        suffix = "_rev" if base.endswith("_rev") else "_copy"
        if was_reversed if suffix == "_rev" else was_copy:
            raise RegistryError(f"problem name {name!r} says {suffix!r} twice; say it once.")
        was_reversed |= suffix == "_rev"
        was_copy |= suffix == "_copy"
        base = base.removesuffix(suffix)
    return ProblemSpec(base, was_reversed, was_copy)


def get_problem_name(base_name: str, was_reversed: bool = False, was_copy: bool = False) -> str:
    """Puts a problem's name together; the inverse of `parse_problem_name`.

    Raises:
      RegistryError: `base_name` already ends in `_rev` or `_copy`.
    """
    if base_name.endswith(("_rev", "_copy")):
        raise RegistryError(f"base name {base_name!r} may not end in '_rev' or '_copy'.")
    return base_name + ("_copy" if was_copy else "") + ("_rev" if was_reversed else "")
