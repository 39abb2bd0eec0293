"""Batches nested at will."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from t2t_torch.trial import nested
from t2t_torch.trial.nested import leaves, shapes, to_device

CPU, META = torch.device("cpu"), torch.device("meta")
Pair = namedtuple("Pair", ["words", "lengths"])


def tensor() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def array() -> np.ndarray:
    return np.arange(6.0).reshape(2, 3)


# The structures that the document lists, and what trials have made of them.
STRUCTURES = {
    "array": array(),
    "tensor": tensor(),
    "tuple of arrays": (array(), array()),
    "tuple of tensors": (tensor(), tensor()),
    "dict of arrays": {"a": array(), "b": array()},
    "dict of tensors": {"a": tensor(), "b": tensor()},
    "list": [tensor(), array()],
    "named tuple": Pair(tensor(), array()),
    "nested": ({"a": (tensor(), {"b": [array(), None]})}, [Pair(array(), {"c": tensor()})]),
    "empty": ({}, [], ()),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_structure_comes_back_as_it_was(name):
    moved = to_device(STRUCTURES[name], CPU)
    assert same_shape(moved, STRUCTURES[name])
    result, expected = leaves(moved), leaves(STRUCTURES[name])
    assert list(result) == list(expected)
    for key, leaf in result.items():
        if leaf is not None:
            assert isinstance(leaf, torch.Tensor)
            assert leaf.dtype == torch.as_tensor(expected[key]).dtype
            torch.testing.assert_close(leaf, torch.as_tensor(expected[key]), rtol=0, atol=0)


def same_shape(left, right) -> bool:
    if isinstance(right, dict):
        return left.keys() == right.keys() and all(same_shape(left[k], right[k]) for k in right)
    if isinstance(right, list | tuple):
        return (
            type(left) is type(right)
            and len(left) == len(right)
            and all(map(same_shape, left, right))
        )
    return True


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_tensor_is_moved_and_the_batch_itself_stays(name):
    before = list(leaves(STRUCTURES[name]).values())
    moved = leaves(to_device(STRUCTURES[name], META))
    assert all(leaf is None or leaf.device == META for leaf in moved.values())
    assert list(map(id, leaves(STRUCTURES[name]).values())) == list(map(id, before))


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int64", "int32", "uint8", "bool", "complex64"]
)
def test_arrays_keep_their_dtype(dtype):
    moved = to_device(np.ones(2, dtype), CPU)
    assert str(moved.dtype) == f"torch.{dtype}"


def test_arrays_that_torch_would_not_take_are_taken():
    frozen = np.arange(3)
    frozen.flags.writeable = False
    for odd in (frozen, np.arange(3)[::-1][::-1], np.arange(3, dtype=">i4"), np.arange(6)[::2]):
        assert to_device(odd, CPU).tolist() == odd.tolist()
    assert to_device(np.arange(3)[::-1], CPU).tolist() == [2, 1, 0]
    assert to_device(np.array(1.5), CPU).shape == ()


def test_strings_objects_and_numbers_stay():
    words, objects = np.array(["a", "b"]), np.array([None, {}], object)
    unchanged = to_device((words, objects, "text", b"bytes", 1, 2.5, None, np.float32(3)), CPU)
    assert unchanged[0] is words
    assert unchanged[1] is objects
    assert unchanged[2:] == ("text", b"bytes", 1, 2.5, None, np.float32(3))


def test_kinds_of_dicts_stay_what_they_are():
    ordered = to_device(OrderedDict(b=array(), a=array()), CPU)
    assert type(ordered) is OrderedDict
    assert list(ordered) == ["b", "a"]
    default = to_device(defaultdict(list, a=array()), CPU)
    assert default["none"] == []


def test_what_can_move_itself_does():
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    assert to_device({"x": packed}, META)["x"].data.device == META


def test_a_strange_leaf_is_said_once(monkeypatch):
    class Strange:
        pass

    lines: list[str] = []
    monkeypatch.setattr(nested.logging, "warning", lambda line, *given: lines.append(line % given))
    leaf = Strange()
    assert to_device([leaf, leaf, Strange()], CPU)[0] is leaf
    assert len(lines) == 1
    assert "A batch holds a Strange, which stays where it is" in lines[0]


def test_leaves_are_named_by_their_way():
    batch = ({"input1": {"sub_input1": 1}, "input2": [2, 3]}, Pair(4, None))
    assert leaves(batch) == {
        "0.input1.sub_input1": 1,
        "0.input2.0": 2,
        "0.input2.1": 3,
        "1.words": 4,
        "1.lengths": None,
    }
    assert leaves(5) == {"": 5}


def test_shapes_are_shown_by_line():
    batch = ({"image": torch.ones(4, 1, 2)}, (np.ones(4, np.int64), np.array(["a"]), None, "x"))
    assert shapes(batch) == [
        "0.image: float32 [4, 1, 2]",
        "1.0: int64 [4]",
        "1.1: <U1 [1]",
        "1.2: None",
        "1.3: str",
    ]
    assert shapes(torch.ones(2)) == ["float32 [2]"]


def test_a_walk_keeps_containers_and_names_leaves():
    value = OrderedDict(b=[1, (2, Pair(3, None))], a={})
    seen: dict[str, object] = {}
    doubled = nested.mapped(value, lambda name, leaf: seen.setdefault(name, leaf) and leaf * 2)
    assert seen == {"b.0": 1, "b.1.0": 2, "b.1.1.words": 3, "b.1.1.lengths": None}
    assert doubled == OrderedDict(b=[2, (4, Pair(6, None))], a={})
    assert type(doubled) is OrderedDict
    assert value["b"][0] == 1
    assert nested.mapped([[1], 2], lambda _, leaf: leaf, is_leaf=lambda v: v == [1]) == [[1], 2]


def test_rows_and_copies_are_of_all_tensors():
    batch = {"x": tensor(), "y": [array(), None, "text"]}
    row = nested.sliced(batch, slice(1, 2))
    assert (row["x"].tolist(), row["y"][0].tolist()) == ([[3.0, 4.0, 5.0]], [[3.0, 4.0, 5.0]])
    assert row["y"][1:] == [None, "text"]
    copies = nested.copied(batch)
    copies["x"].zero_()
    assert batch["x"].sum() == 15
