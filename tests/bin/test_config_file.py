"""`--config` of every command: a JSON file of flags, and the schema of it."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from t2t_torch.bin import config_file
from t2t_torch.bin import flags as shared
from t2t_torch.errors import UsageError
from t2t_torch.settings import Settings, hp

COMMANDS = (
    *("avg_all", "bleu", "data", "datagen", "decoder", "eval", "exporter", "latency", "server"),
    *("trainer", "translate_all", "tuner"),
)


class BakingOptions(Settings):
    """Flags of `bake`."""

    loaves: int = hp(2, "Loaves.", low=1, high=9)
    heat: float | None = hp(None, "Degrees.", low=0.0)
    flour: str = hp("rye", "What is ground.", choices=("rye", "wheat"))
    seeds: tuple[str, ...] = hp((), "What is sprinkled: a,b.")
    recipes: tuple[str, ...] = hp((), "File of a recipe.", path=True, repeated=True)
    decode_hparams: str = hp("", "How it is decoded.")


@pytest.fixture
def bake(tmp_path):
    """Runs `bake` with a configuration file; returns the flags' values, or the exit code."""
    values = shared.CommandFlags("bake", BakingOptions, common=("hparams", "data_dir"))

    def run(content: object, *argv: str) -> Any:
        file = tmp_path / "bake.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        code = shared.run_main(lambda: 0, values, "Bakes.", [f"--config={file}", *argv])
        return code or {name: values.value_of(name) for name in values}

    return run


def test_keys_are_flags_and_the_command_line_wins(bake):
    content = {"loaves": 3, "seeds": ["a", "b"], "recipes": ["x,y", "z"], "heat": 180}
    got = bake(content, "--loaves=4", "--seeds=c")
    assert (got["loaves"], got["seeds"], got["recipes"]) == (4, ["c"], ["x,y", "z"])
    assert (got["heat"], got["flour"]) == (180.0, "rye")


def test_hyperparameters_may_be_an_object(bake):
    content = {"hparams": {"hidden_size": 8, "multiples": [1, 2]}, "decode_hparams": {"alpha": 0.5}}
    got = bake(content)
    assert (got["hparams"], got["decode_hparams"]) == ("hidden_size=8,multiples=[1,2]", "alpha=0.5")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"loafs": 3}, "bake.json: unknown flag 'loafs'. Did you mean 'loaves'?"),
        ({"loaves": "3"}, 'bake.json: loaves: "3" should be an integer.'),
        ({"loaves": True}, "bake.json: loaves: true should be an integer."),
        ({"seeds": "a"}, 'bake.json: seeds: "a" should be a list of strings.'),
        ({"loaves": 10}, "error: --loaves=10: expected an integer in the range [1, 9]."),
        ({"flour": "oat"}, "error: --flour=oat: expected rye or wheat."),
        ({"hidden_size": 8}, "'hidden_size' is a hyperparameter: write it as \"hparams\""),
        ({"config": "other.json"}, "unknown flag 'config'"),
        ("[1]", "should be a JSON object of flags"),
        ("{", "is not valid JSON"),
    ],
)
def test_a_mistake_in_the_file_is_named(bake, capsys, content, message):
    assert bake(content) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_schema_of_a_command_describes_all_its_flags(name, capsys):
    module = importlib.import_module(f"t2t_torch.bin.{name}")
    assert module.main(["--config_schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    properties = schema["properties"]
    assert schema["additionalProperties"] is False
    flags = module.FLAGS
    for command in config_file.COMMANDS:
        assert properties.pop(command)["type"] == "object"
    assert set(properties) == set(flags) - {"config", "config_schema"}
    for key, field in properties.items():
        default = flags[key].default
        assert field["default"] == default, key
        assert field["description"]
        of_default = {key: default} if default is not None else {}
        assert config_file.RunJson(module.__file__, of_default, flags).words.keys() == set(
            of_default
        )


def test_the_schema_has_types_bounds_and_choices():
    properties = shared.CommandFlags("bake", BakingOptions, common=["hparams"]).json_schema()[
        "properties"
    ]
    loaves = {key: properties["loaves"][key] for key in ("type", "minimum", "maximum")}
    assert loaves == {"type": "integer", "minimum": 1, "maximum": 9}
    assert properties["flour"]["enum"] == ["rye", "wheat"]
    assert properties["recipes"]["items"] == {"type": "string"}
    assert [kind["type"] for kind in properties["heat"]["anyOf"]] == ["number", "null"]
    assert properties["hparams"]["type"] == ["string", "object"]


def test_a_field_with_choices_refuses_other_values():
    with pytest.raises(Exception, match="flour=oat: should be 'rye' or 'wheat'"):
        BakingOptions(flour="oat")
    assert BakingOptions(flour="wheat").flour == "wheat"


def test_a_file_that_says_a_flag_twice_is_refused(tmp_path):
    file = tmp_path / "twice.json"
    file.write_text('{"loaves": 1, "loaves": 2}')
    with pytest.raises(UsageError, match="says loaves twice"):
        config_file.RunJson.read(file, shared.CommandFlags("bake", BakingOptions))
