"""What messages tell to run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen
from t2t_torch.data.manifest import Manifest, datagen_command
from t2t_torch.errors import DataError

pytestmark = pytest.mark.usefixtures("own_registry")

DECLARED = '{"problem": "mine", "kind": "text2self", "files": {"train": "a.txt", "eval": 0.5}, '


def test_a_command_that_is_told_runs_as_it_is(tmp_path: Path):
    usr_dir = tmp_path / "my own problems"
    usr_dir.mkdir()
    (usr_dir / "mine.json").write_text(DECLARED + '"vocab_type": "character"}')
    (usr_dir / "a.txt").write_text("".join(f"line {n}\n" for n in range(40)))
    registry.import_usr_dir(usr_dir)
    data_dir = tmp_path / "its data"
    with pytest.raises(DataError) as told:
        Manifest.load(data_dir, "mine")
    command = shlex.split(str(told.value).partition("Make it:  ")[2])
    assert f"--t2t_usr_dir={usr_dir}" in command
    assert command[0] == "t2t-datagen"
    raw = f"--tmp_dir={tmp_path}"
    arguments = [raw if word.startswith("--tmp_dir=") else word for word in command[1:]]
    registry._STATE.roots.remove(usr_dir)
    registry._STATE.forget_index()
    assert datagen.main(arguments) == 0
    assert sum(split.rows for split in Manifest.load(data_dir, "mine").splits.values()) == 40


def test_without_directories_of_users_none_is_told():
    command = "t2t-datagen --problem=x --data_dir=data --tmp_dir=RAW_FILES"
    assert datagen_command("x", Path("data")) == command
