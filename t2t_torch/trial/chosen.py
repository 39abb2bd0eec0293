"""A trial's hyperparameters: those of its configuration, and what the command says."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from t2t_torch.errors import ConfigError
from t2t_torch.trial.strict_yaml import read_text
from t2t_torch.tune.space import Constant, Space

CLIP_NORM, CLIP_VALUE = "clip_grad_l2_norm", "clip_grad_val"
"""Hyperparameters by which PEDL clips gradients: their global norm, or each of their numbers."""

_MISSING = object()
_QUOTED = r"""'(?:[^']|'')*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$)"""
_TOKENS = re.compile(rf"(?<=[=,:\[{{])\s*(?:{_QUOTED})|.", re.DOTALL)


def chosen_values(
    hyperparameters: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns one value of each hyperparameter, nested as the configuration has them.

    Args:
      hyperparameters: values and ranges.
      changes: dotted names and the values that the command gives them.
      before: the values, nested, with which a run was begun: ranges have theirs.

    Raises:
      ConfigError: a range is left without a value; a name is unknown.
      HParamsError: the configuration's hyperparameters cannot be read.
    """
    space = Space.of_mapping(hyperparameters)
    given, known = dict(changes or {}), by_name(hyperparameters, before or {})
    for name in given:
        if name not in space.kinds:
            raise ConfigError(_unknown(name, list(space.kinds)))
    values, ranges = {}, []
    for name, kind in space.kinds.items():
        if name in given:
            values[name] = given[name]
        elif isinstance(kind, Constant):
            values[name] = copy.deepcopy(kind.value)
        elif name in known:
            values[name] = known[name]
        else:
            ranges.append(name)
    if ranges:
        example = ",".join(f"{name}=..." for name in ranges)
        raise ConfigError(
            f"hyperparameters.{', hyperparameters.'.join(ranges)}: a range, and one training needs "
            f"one value. Search with t2t-tuner --trial=... --config=..., or give values: "
            f"--hparams={example}"
        )
    return space.nested(values)


def check_clipping(chosen: Mapping[str, Any], clip_grad_norm: float) -> None:
    """Checks the hyperparameters that the loop itself reads.

    Args:
      chosen: the values, nested.
      clip_grad_norm: of `optimizations`; 0 does not clip.

    Raises:
      ConfigError: one is no positive number, or two of the three ways to clip are chosen.
    """
    given = [name for name in (CLIP_NORM, CLIP_VALUE) if chosen.get(name) is not None]
    for name in given:
        value = chosen[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(
                f"hyperparameters.{name}: {value!r}: a positive number was expected; gradients are "
                "clipped by it. Leave it out, or set it to null, to clip none."
            )
    ways = [f"hyperparameters.{name}" for name in given]
    if clip_grad_norm:
        ways.append("optimizations.clip_grad_norm")
    if len(ways) > 1:
        raise ConfigError(f"{' and '.join(ways)} both clip gradients: keep one of them.")


def by_name(hyperparameters: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested values by the dotted names that a configuration has for them.

    Args:
      hyperparameters: values and ranges.
      values: of some of them.
    """
    found = {}
    for name in Space.of_mapping(hyperparameters).kinds:
        value: Any = values
        for key in name.split("."):
            value = value.get(key, _MISSING) if isinstance(value, Mapping) else _MISSING
        if value is not _MISSING:
            found[name] = copy.deepcopy(value)
    return found


def parse_changes(text: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """Reads "learning_rate=0.1,net.layers=[32,16]": dotted names, values as YAML has them.

    Args:
      text: of `--hparams`.
      more: of each `--hp`, "name=value".

    Raises:
      ConfigError: something is no name=value, or a name stands there twice.
    """
    changes: dict[str, Any] = {}
    for item in [*_items(text), *more]:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise ConfigError(f"--hparams: {item.strip()!r} should be name=value.")
        if name in changes:
            raise ConfigError(f"--hparams sets {name!r} twice.")
        changes[name] = read_value(name, value)
    return changes


def read_value(name: str, text: str) -> Any:
    """Reads a value as the configuration would: 1e-3 is a number, 2019-10-31 a text.

    Raises:
      ConfigError: it is no YAML.
    """
    try:
        return read_text(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--hparams: {name}={text!r} cannot be read: {error}") from None


def _items(text: str) -> list[str]:
    """Divides at commas that stand neither in quotes nor in brackets or braces.

    A quote opens where a text may begin; elsewhere it is an apostrophe.
    """
    items, depth, begin = [], 0, 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth = max(depth - 1, 0)
        elif token[0] == "," and not depth:
            items.append(text[begin : token.start()])
            begin = token.end()
    return [item for item in (*items, text[begin:]) if item]


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else ""
    listed = hint or f"It has: {', '.join(known) or 'none'}."
    return f"--hparams: the configuration has no hyperparameter {name!r}. {listed}"
