"""`--verify_data=full` finds bytes that changed without any change of size or times."""

from __future__ import annotations

import shutil

import pytest

from t2t_torch.bin.commands import decoder, evaluation, trainer
from t2t_torch.data import manifest

PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture
def rotten(data_dir, tmp_path, monkeypatch):
    """Data of which a byte of a shard of each split differs, unnoticed by `stat`."""
    folder = shutil.copytree(data_dir, tmp_path / "rotten")
    for file in folder.glob("*.arrow"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    monkeypatch.setattr(manifest, "unchanged", lambda _, __, shards: {s.file for s in shards})
    return folder


@pytest.mark.parametrize("command", ["trainer", "resumed", "eval", "decoder"])
def test_bit_rot_is_found_when_asked_for(arguments, rotten, tmp_path, capsys, command):
    if command != "trainer":
        assert trainer.main(arguments(train_steps=1)) == 0
    run = [f"--output_dir={tmp_path / 'run'}", f"--data_dir={rotten}", "--verify_data=full"]
    flags = {
        "trainer": arguments(data_dir=rotten, verify_data="full"),
        "resumed": [*arguments(data_dir=rotten, train_steps=2), "--verify_data=full"],
        "eval": [*run, "--worker_gpu=0"],
        "decoder": run,
    }
    main = {"eval": evaluation.main, "decoder": decoder.main}.get(command, trainer.main)
    capsys.readouterr()
    assert main(flags[command]) == 2
    printed = capsys.readouterr().err
    assert f"The data of '{PROBLEM}' is damaged" in printed
    split = "train" if main == trainer.main else "dev"
    assert f"{PROBLEM}-{split}-00000" in printed
    assert ("-train-" in printed) == (main == trainer.main)
