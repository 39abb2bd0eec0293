"""What may be tried, and how it is drawn."""

from __future__ import annotations

import json
import random
import statistics

import pytest

from t2t_torch.errors import HParamsError
from t2t_torch.search_space import (
    Categorical,
    Constant,
    Double,
    Integer,
    LogDouble,
    RangedHParams,
    Space,
)

PEDL = {
    "global_batch_size": 64,
    "dropout": {"type": "double", "minval": 0.2, "maxval": 0.8, "count": 3},
    "optimizer": {
        "learning_rate": {"type": "log", "minval": -4, "maxval": -1, "base": 10, "count": 2},
        "name": {"type": "const", "val": "sgd"},
    },
    "layers": {"type": "int", "minval": 1, "maxval": 3, "count": 9},
    "kernels": {"type": "categorical", "vals": [[3, 3], [5]]},
}


def test_the_hyperparameters_of_an_experiment_are_read() -> None:
    space = Space.of_mapping(PEDL)
    assert space.kinds == {
        "global_batch_size": Constant(64),
        "dropout": Double(0.2, 0.8, 3),
        "optimizer.learning_rate": LogDouble(-4.0, -1.0, 10.0, 2),
        "optimizer.name": Constant("sgd"),
        "layers": Integer(1, 3, 9),
        "kernels": Categorical(([3, 3], [5])),
    }
    assert list(space.searched) == ["dropout", "optimizer.learning_rate", "layers", "kernels"]


def test_values_are_nested_as_they_were_written() -> None:
    space = Space.of_mapping(PEDL)
    nested = space.nested(next(space.grid()))
    assert nested == {
        "global_batch_size": 64,
        "dropout": 0.2,
        "optimizer": {"learning_rate": 1e-4, "name": "sgd"},
        "layers": 1,
        "kernels": [3, 3],
    }


def test_a_grid_has_every_combination_and_ends_are_in_it() -> None:
    space = Space.of_mapping(PEDL)
    grid = list(space.grid())
    assert len(grid) == space.grid_size() == 3 * 2 * 3 * 2  # of the layers there are but three
    assert len({json.dumps(one) for one in grid}) == 36
    assert sorted({one["optimizer.learning_rate"] for one in grid}) == pytest.approx([1e-4, 0.1])
    assert Integer(1, 10, 4).points() == [1, 4, 7, 10]
    assert Double(0, 1, 1).points() == [0.5]


def test_a_grid_without_counts_says_where() -> None:
    space = Space({"a.b": Integer(1, 3), "c": Double(0, 1, 2), "d": LogDouble(0, 1)})
    with pytest.raises(HParamsError, match=r"a\.b, d has none"):
        space.grid_size()


def test_a_draw_is_of_its_range_and_of_its_seed_alone() -> None:
    space = Space.of_mapping(PEDL)
    drawn = [space.sample(random.Random(f"1/{number}")) for number in range(200)]
    assert drawn == [space.sample(random.Random(f"1/{number}")) for number in range(200)]
    assert {one["layers"] for one in drawn} == {1, 2, 3}
    assert all(0.2 <= one["dropout"] <= 0.8 for one in drawn)
    assert all(1e-4 <= one["optimizer.learning_rate"] <= 0.1 for one in drawn)
    below = sum(one["optimizer.learning_rate"] < 10**-2.5 for one in drawn)
    assert 70 < below < 130  # half of the decades


def test_scales_of_ranges_say_where_values_crowd() -> None:
    ranges = RangedHParams()
    ranges.set_float("linear", 1.0, 100.0)
    ranges.set_float("log", 1.0, 100.0, scale=ranges.LOG_SCALE)
    ranges.set_float("mirrored", 1.0, 100.0, scale=ranges.REVERSE_LOG_SCALE)
    ranges.set_int("whole", 1, 100, scale=ranges.LOG_SCALE)
    ranges.set_discrete("discrete", [64, 128], scale=ranges.LOG_SCALE)
    ranges.set_categorical("choice", ["a", "b"])
    space = Space.of_ranges(ranges)
    drawn = [space.sample(random.Random(number)) for number in range(400)]
    medians = {n: statistics.median(one[n] for one in drawn) for n in list(space.kinds)[:4]}
    assert medians["linear"] == pytest.approx(50.5, abs=8)
    assert medians["log"] == pytest.approx(10, abs=3)
    assert medians["mirrored"] == pytest.approx(91, abs=3)
    assert medians["whole"] == pytest.approx(7, abs=3)  # from 0.5 to 100.5
    assert {one["whole"] for one in drawn} <= set(range(1, 101))
    assert {one["discrete"] for one in drawn} == {64, 128}
    assert Integer(1, 100, log=True).at(1) == 100


def test_a_space_survives_json() -> None:
    for space in (Space.of_mapping(PEDL), Space({"x": Integer(1, 9, log=True)})):
        assert Space.from_list(json.loads(json.dumps(space.to_list()))) == space


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            {"a": {"b": {"type": "int", "minval": 5, "maxval": 2}}},
            r"a\.b: minval is 5 and maxval 2",
        ),
        ({"a": {"type": "int", "minval": 1.5, "maxval": 2}}, "a: minval is 1.5; a whole number"),
        ({"a": {"type": "double", "minval": "x", "maxval": 2}}, "minval is 'x'; a finite number"),
        ({"a": {"type": "doublle", "minval": 0, "maxval": 2}}, "Did you mean 'double'"),
        ({"a": {"type": "double", "minval": 0}}, "double needs maxval"),
        (
            {"a": {"type": "double", "minval": 0, "maxval": 1, "cout": 2}},
            "cout is no key of double",
        ),
        ({"a": {"type": "log", "minval": -5, "maxval": 1e6}}, "are exponents"),
        ({"a": {"type": "log", "minval": 0, "maxval": 1, "base": -1}}, "base is -1"),
        ({"a": {"type": "categorical", "vals": []}}, "a list of one or more"),
        ({"a": {"type": "int", "minval": 0, "maxval": 1, "count": 0}}, "count is 0"),
        ({"a.b": 1}, "a word without dots"),
        ({3: 1}, "a word without dots"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_name(written: dict, message: str) -> None:
    with pytest.raises(HParamsError, match=message):
        Space.of_mapping(written)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(HParamsError) as caught:
        Space.of_mapping({"a": {"type": "x"}, "b": {"c": {"type": "int"}}})
    assert "hyperparameters.a" in str(caught.value)
    assert "hyperparameters.b.c" in str(caught.value)


def test_faults_of_a_file_of_ranges_name_the_file() -> None:
    with pytest.raises(HParamsError) as caught:
        Space.of_mapping(
            {"layers": {"type": "int", "minval": 6, "maxval": 2}, "a.b": 1}, "ranges.yaml: "
        )
    first, second = str(caught.value).splitlines()
    assert first.startswith("ranges.yaml: layers: minval is 6 and maxval 2")
    assert second.startswith("ranges.yaml: a.b: a name should be a word")


def test_numbers_that_yaml_takes_for_texts_are_numbers() -> None:
    space = Space.of_mapping({"a": {"type": "double", "minval": "1e-4", "maxval": 1}})
    assert space.kinds["a"] == Double(1e-4, 1.0)


def test_nested_values_are_flat_by_their_dotted_names() -> None:
    nested = {"a": {"b": 1, "c": {"d": [2], "e": {}}}, "f": None}
    assert Space.flat(nested) == {"a.b": 1, "a.c.d": [2], "a.c.e": {}, "f": None}
    assert Space.nested(Space.flat(nested)) == nested


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        (Integer(1, 9), 9, 0),
        (Double(0.1, 0.9, log=True, reverse=True), 0.2, 1.0),
        (LogDouble(-3, -1), 0.01, 10.0),
        (Categorical((1, "a", None)), None, True),
    ],
)
def test_a_value_has_one_place_on_an_axis(kind, inside, outside) -> None:
    assert kind.from_axis(kind.to_axis(inside)) == pytest.approx(inside)
    assert kind.allows(inside)
    assert all(map(kind.allows, kind.ends))
    assert not kind.allows(outside)
    assert kind.allows(kind.at(0)) and kind.allows(kind.at(1))
