"""A decode's state as tensors by name, and back."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from t2t_torch.errors import ExportError
from t2t_torch.export.search import Axes, axes_of, tensors_of, with_tensors
from t2t_torch.layers.attention import KeyValueCache


class Pair(NamedTuple):
    one: Tensor
    other: Tensor


@dataclasses.dataclass
class State:
    caches: list[KeyValueCache]
    memory: Pair
    mask: Tensor | None
    hypotheses: int = 4


def state() -> State:
    cache = KeyValueCache.empty(2, 3, 4, like=torch.zeros(0))
    cache.append(torch.ones(2, 3, 1, 4), torch.zeros(2, 3, 1, 4))
    return State([cache], Pair(torch.zeros(1), torch.ones(2)), None)


def test_the_tensors_of_a_state_have_the_names_of_their_places() -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors_of(state()).items()}
    assert shapes == {
        "state.caches.0.keys": (1, 2, 3, 4),
        "state.caches.0.values": (1, 2, 3, 4),
        "state.memory.one": (1,),
        "state.memory.other": (2,),
    }


def test_a_state_has_the_tensors_that_it_is_given() -> None:
    given = {name: tensor + 5 for name, tensor in tensors_of(state()).items()}
    after = with_tensors(state(), given)
    found = tensors_of(after)
    assert found.keys() == given.keys()
    assert all(torch.equal(found[name], given[name]) for name in given)
    assert (after.caches[0].length, after.hypotheses, after.mask) == (1, 4, None)


def test_what_is_no_tensor_is_refused_with_its_place() -> None:
    with pytest.raises(ExportError, match=r"state\.memory of a decode's state is a dict"):
        tensors_of(dataclasses.replace(state(), memory={"one": torch.zeros(1)}))


def test_axes_are_told_by_what_varies() -> None:
    # Two and three sentences of four hypotheses; a step later; longer inputs.
    assert axes_of("a", (3, 8, 5), ((3, 12, 5), (4, 8, 5), (3, 8, 5)), (2, 3)) == Axes(
        rows=1, batch=None, varying=(0,)
    )
    assert axes_of("a", (2, 7), ((3, 7), (2, 7), (2, 9)), (2, 3)) == Axes(
        rows=None, batch=0, varying=(1,)
    )


def test_an_axis_that_grows_in_another_way_is_refused() -> None:
    with pytest.raises(ExportError, match="axis 0 of a of a decode's state has 3 places for 2"):
        axes_of("a", (3,), ((4,), (3,), (3,)), (2, 3))
    with pytest.raises(ExportError, match="not always as many axes"):
        axes_of("a", (3,), ((3,), (3, 1), (3,)), (2, 3))
