"""One value of each hyperparameter: of the configuration, of the command, of the run before."""

from __future__ import annotations

import math

import pytest

from t2t_torch.errors import ConfigError
from t2t_torch.trial.experiment import by_name, chosen_values, parse_changes, read_value

HYPERPARAMETERS = {
    "learning_rate": {"type": "log", "minval": -4, "maxval": -1, "base": 10, "count": 4},
    "batch_size": 32,
    "net": {"layers": {"type": "const", "val": [8, 4]}, "act": "relu"},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5},
}


def test_values_and_constants_stand_and_ranges_take_what_the_command_says():
    values = chosen_values(HYPERPARAMETERS, {"learning_rate": 0.01, "dropout": 0.2})
    assert values == {
        "learning_rate": 0.01,
        "batch_size": 32,
        "net": {"layers": [8, 4], "act": "relu"},
        "dropout": 0.2,
    }


def test_all_ranges_without_a_value_are_named_with_the_way_out():
    with pytest.raises(ConfigError) as caught:
        chosen_values(HYPERPARAMETERS)
    assert "hyperparameters.learning_rate, hyperparameters.dropout: a range" in str(caught.value)
    assert "t2t-tuner" in str(caught.value)
    assert "--hparams=learning_rate=...,dropout=..." in str(caught.value)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no hyperparameter 'net.act1'. Did you mean 'net.act'"):
        chosen_values(HYPERPARAMETERS, {"net.act1": "tanh"})


def test_ranges_have_the_values_of_the_run_that_goes_on():
    before = {"learning_rate": 0.01, "batch_size": 64, "dropout": 0.3, "gone": 1}
    values = chosen_values(HYPERPARAMETERS, {"dropout": 0.1}, before)
    assert (values["learning_rate"], values["dropout"], values["batch_size"]) == (0.01, 0.1, 32)


def test_nested_values_have_the_names_of_the_configuration():
    values = chosen_values(HYPERPARAMETERS, {"learning_rate": 0.01, "dropout": 0.2})
    assert by_name(HYPERPARAMETERS, values) == {
        "learning_rate": 0.01,
        "batch_size": 32,
        "net.layers": [8, 4],
        "net.act": "relu",
        "dropout": 0.2,
    }


def test_values_are_copies():
    values = chosen_values({"layers": [8, 4]})
    values["layers"].append(2)
    assert chosen_values({"layers": [8, 4]}) == {"layers": [8, 4]}


def test_changes_are_read_as_yaml_has_them():
    changes = parse_changes(
        "learning_rate=1e-3,net.layers=[32, [16, 8]],name=adam,shuffle=true,rest={a: 1, b: 2},x=",
        ["seed=7", "text='a,b'"],
    )
    assert changes == {
        "learning_rate": 0.001,
        "net.layers": [32, [16, 8]],
        "name": "adam",
        "shuffle": True,
        "rest": {"a": 1, "b": 2},
        "x": None,
        "seed": 7,
        "text": "a,b",
    }


@pytest.mark.parametrize("text", ["learning_rate", "=3", "a=1,b"])
def test_what_is_no_name_and_value_is_refused(text):
    with pytest.raises(ConfigError, match="should be name=value"):
        parse_changes(text)


def test_a_name_that_stands_twice_is_refused():
    with pytest.raises(ConfigError, match="--hparams sets 'a' twice"):
        parse_changes("a=1", ["a=2"])


def test_what_is_no_yaml_is_refused():
    with pytest.raises(ConfigError, match="--hparams: a='\\[1' cannot be read"):
        parse_changes("a=[1")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("1E5", 1e5), ("-.5e2", -50.0), ("3", 3), ("1.5", 1.5), (".inf", math.inf)],
)
def test_numbers_are_numbers(text, value):
    result = read_value("a", text)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=[1e-3, 1e-4],b=2019-10-31", {"a": [1e-3, 1e-4], "b": "2019-10-31"}),
        ("a=1:30,b={when: 1:30, rate: 1e-2}", {"a": "1:30", "b": {"when": "1:30", "rate": 0.01}}),
        ("a='x,y',b=\"1, 'two', \\\"3\\\"\"", {"a": "x,y", "b": "1, 'two', \"3\""}),
        ("a=it's,b='it''s, too',c=1", {"a": "it's", "b": "it's, too", "c": 1}),
        ("a={b: {d: [2, '],']}, e: 3},f=4", {"a": {"b": {"d": [2, "],"]}, "e": 3}, "f": 4}),
        ("a=[[[1, 2], 3], 4],b= 'c' ,", {"a": [[[1, 2], 3], 4], "b": "c"}),
    ],
)  # fmt: skip
def test_the_command_reads_values_as_a_configuration_does(text, values):
    assert parse_changes(text) == values


@pytest.mark.parametrize("text", ["a=[1,b=2", "a='x,b=2", 'a={b: "1},c=2', "a={b: 1, b: 2}"])
def test_what_is_not_closed_or_stands_twice_is_refused(text):
    with pytest.raises(ConfigError, match=r"--hparams: a=.* cannot be read"):
        parse_changes(text)
