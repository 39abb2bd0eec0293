"""E6: a decoding that was killed and is given again writes the file of one that was not."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import processes
import pytest
import torch

from t2t_torch import registry
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord

TEXTS = ("dates_to_iso", "transformer", "transformer_test")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of texts that has learnt nothing."""
    path = tmp_path_factory.mktemp("runs") / "run"
    problem, model, hparams_set = TEXTS
    directory, hparams = RunDirectory(path), registry.hparams(hparams_set)
    directory.begin(TaskRecord(problem=problem, model=model, hparams_set=hparams_set), hparams)
    torch.manual_seed(1)
    network = registry.model(model)(hparams, registry.problem(problem).features(path))
    adam = torch.optim.Adam(network.parameters())
    CheckpointDirectory(path).save(Snapshot.take(network, adam, TrainerState(step=1)))
    directory.unlock()
    return path


@pytest.fixture
def arguments(run: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """Makes the flags of `t2t-decoder`."""
    draw = random.Random(1)
    source = tmp_path / "in.txt"
    source.write_text(
        "".join(f"May {draw.randrange(10 ** draw.randrange(5))}\n" for _ in range(24))
    )

    def make(name: str, **more: object) -> list[str]:
        settings = "beam_size=2,extra_length=3,batch_size=4,return_beams=true,output_format=jsonl"
        settings += "".join(f",{key}={value}" for key, value in more.items())
        return [
            f"--output_dir={run}",
            f"--decode_from_file={source}",
            f"--decode_to_file={tmp_path / name}",
            f"--decode_hparams={settings}",
        ]

    return make


def decode(tmp_path: Path, arguments: list[str], at: str = "", number: int = 0, by: int = 9) -> int:
    child = processes.start(tmp_path / "err", processes.decode_and_end, arguments, at, number, by)
    return child.wait()


def test_a_file_is_byte_by_byte_the_same_however_often_its_decoding_was_killed(
    arguments: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert decode(tmp_path, arguments("whole")) == 0
    instants = [("line", 1), ("batch", 2), ("line", 2), ("batch", 1), ("files", 1)]
    for at, number in instants:
        assert decode(tmp_path, arguments("killed"), at, number) == -signal.SIGKILL
        assert not (tmp_path / "killed").exists()
    assert decode(tmp_path, arguments("killed")) == 0
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "whole").read_bytes()
    said = (tmp_path / "err").read_text()
    for found in (8, 12, 16, 24):  # after what was killed in the middle of a line: none more
        assert f"{found} of 24 inputs were there" in said
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.slow
def test_what_is_killed_with_its_file_complete_ends_the_next_time(
    arguments: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert decode(tmp_path, arguments("out"), "end", 1) == -signal.SIGKILL
    before = (tmp_path / "out").read_bytes()
    assert (tmp_path / "out.part").exists()
    assert decode(tmp_path, arguments("out")) == 0
    assert (tmp_path / "out").read_bytes() == before
    assert not (tmp_path / "out.part").exists()


@pytest.mark.slow
def test_a_schedulers_signal_loses_no_batch(
    arguments: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert decode(tmp_path, arguments("out"), "batch", 3, signal.SIGTERM) == -signal.SIGTERM
    assert decode(tmp_path, arguments("out")) == 0
    assert "12 of 24 inputs were there" in (tmp_path / "err").read_text()


@pytest.mark.slow
def test_a_killed_part_goes_on_and_is_joined(
    arguments: Callable[..., list[str]], tmp_path: Path
) -> None:
    part = arguments("out", shards=2, shard_id=1)
    assert decode(tmp_path, part, "batch", 2) == -signal.SIGKILL
    assert decode(tmp_path, arguments("out", shards=2)) == 0
    assert "8 of 12 inputs were there" in (tmp_path / "err").read_text()
    assert (tmp_path / "out").read_text().count("\n") == 24
