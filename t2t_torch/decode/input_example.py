"""What an input may look like, for those who are to write one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from t2t_torch.features import Feature, Gazetteer, Real, Text, WordReal
from t2t_torch.features.word import WordLabel

_MANY = 8  # numbers that an example writes out


def example_of(kinds: Mapping[str, Feature], lists: Collection[str]) -> dict[str, Any]:
    """Returns an input, of two words where it is a list of them.

    Args:
      kinds: by field, a feature that is made of it.
      lists: the fields that are given as lists.
    """
    return {field: _value_of(kind, field in lists) for field, kind in kinds.items()}


def _value_of(kind: Feature, is_list: bool) -> Any:
    if isinstance(kind, Text):
        return ["...", "..."] if is_list else "..."
    if isinstance(kind, Gazetteer):
        return [{kind.encoder.labels[0]: 1.0}, {}]
    if isinstance(kind, WordLabel):
        return [kind.encoder.labels[0]] * 2
    if isinstance(kind, WordReal):
        return [_numbers(kind.size)] * 2
    if isinstance(kind, Real):
        return 0.5 if kind.size == 1 else _numbers(kind.size)
    return ["..."]


def _numbers(size: int) -> Any:
    return [0.5] * size if size <= _MANY else [f"{size} numbers"]
