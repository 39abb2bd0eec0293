"""`--config` of every command: a JSON file of flags, and the schema of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from t2t_torch.bin.command import Command
from t2t_torch.bin.commands import COMMANDS
from t2t_torch.errors import UsageError
from t2t_torch.settings import Settings, hp
from t2t_torch.workflows import config_file
from t2t_torch.workflows.context import DATA_DIR, HPARAMS


class BakingSettings(Settings):
    """Settings of `bake`."""

    hparams: str = HPARAMS
    data_dir: str | None = DATA_DIR
    loaves: int = hp(2, "Loaves.", low=1, high=9)
    heat: float | None = hp(None, "Degrees.", low=0.0)
    steps: int = hp(1, "Steps.")
    flour: str = hp("rye", "What is ground.", choices=("rye", "wheat"))
    seeds: tuple[str, ...] = hp((), "What is sprinkled: a,b.")
    recipes: tuple[str, ...] = hp((), "File of a recipe.", path=True, repeated=True)
    decode_hparams: str = hp("", "How it is decoded.")


@pytest.fixture
def bake(tmp_path):
    """Runs `bake` with a configuration file; returns its settings, or the exit code."""
    made: list[BakingSettings] = []
    command = Command("bake", BakingSettings, made.append)

    def run(content: object, *argv: str) -> Any:
        file = tmp_path / "bake.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        code = command.main([f"--config={file}", *argv])
        return code or made[-1]

    return run


def test_keys_are_flags_and_the_command_line_wins(bake):
    content = {"loaves": 3, "seeds": ["a", "b"], "recipes": ["x,y", "z"], "heat": 180}
    got = bake(content, "--loaves=4", "--seeds=c")
    assert (got.loaves, got.seeds, got.recipes) == (4, ("c",), ("x,y", "z"))
    assert (got.heat, got.flour) == (180.0, "rye")
    assert got.given == content.keys()


def test_hyperparameters_may_be_an_object(bake):
    content = {"hparams": {"hidden_size": 8, "multiples": [1, 2]}, "decode_hparams": {"alpha": 0.5}}
    got = bake(content)
    assert (got.hparams, got.decode_hparams) == ("hidden_size=8,multiples=[1,2]", "alpha=0.5")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"loafs": 3}, "bake.json: unknown flag 'loafs'. Did you mean 'loaves'?"),
        ({"loaves": "3"}, 'bake.json: loaves: "3" should be an integer.'),
        ({"loaves": True}, "bake.json: loaves: true should be an integer."),
        ({"seeds": "a"}, 'bake.json: seeds: "a" should be a list of strings.'),
        ({"loaves": 10}, "bake.json: loaves: 10 should be at most 9."),
        ({"flour": "oat"}, "bake.json: flour: \"oat\" should be 'rye' or 'wheat'."),
        ({"hidden_size": 8}, "'hidden_size' is a hyperparameter: write it as \"hparams\""),
        ({"config": "other.json"}, "unknown flag 'config'"),
        ("[1]", "should be a JSON object of flags"),
        ("{", "is not valid JSON"),
    ],
)
def test_a_mistake_in_the_file_is_named(bake, capsys, content, message):
    assert bake(content) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_schema_of_a_command_describes_all_its_flags(command, capsys, tmp_path):
    assert command.main(["--config_schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    properties = schema["properties"]
    assert schema["additionalProperties"] is False
    for name in set(config_file.COMMANDS) - command.declared.keys():
        assert properties.pop(name)["type"] == "object"
    assert set(properties) == command.declared.keys() - {"config", "config_schema"}
    defaults = {name: command.new_flags()[name].default for name in properties}
    for name, field in properties.items():
        assert field["default"] == defaults[name], name
        assert field["description"]
    file = tmp_path / "defaults.json"
    file.write_text(json.dumps(defaults))
    read = dict(command.settings_of([f"--config={file}"])) | {"config": None}
    assert read == {"config": None, **dict(command.settings_of([]))}


def test_the_schema_has_types_bounds_and_choices():
    command = Command("bake", BakingSettings, print)
    properties = command.json_schema()["properties"]
    loaves = {key: properties["loaves"][key] for key in ("type", "minimum", "maximum")}
    assert loaves == {"type": "integer", "minimum": 1, "maximum": 9}
    assert properties["flour"]["enum"] == ["rye", "wheat"]
    assert properties["recipes"]["items"] == {"type": "string"}
    assert [kind["type"] for kind in properties["heat"]["anyOf"]] == ["number", "null"]
    assert properties["hparams"]["type"] == ["string", "object"]


def test_a_field_with_choices_refuses_other_values():
    with pytest.raises(Exception, match="flour=oat: should be 'rye' or 'wheat'"):
        BakingSettings(flour="oat")
    assert BakingSettings(flour="wheat").flour == "wheat"


def test_a_file_that_says_a_flag_twice_is_refused(tmp_path):
    file = tmp_path / "twice.json"
    file.write_text('{"loaves": 1, "loaves": 2}')
    with pytest.raises(UsageError, match="says loaves twice"):
        config_file.ConfigFile.read(file, BakingSettings)


def test_a_number_that_is_too_large_is_refused(bake, capsys):
    assert bake({"steps": 2**31}) == 2
    assert "steps: 2147483648 expected at most 2,147,483,647" in capsys.readouterr().err
