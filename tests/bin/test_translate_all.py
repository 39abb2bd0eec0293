"""t2t-translate-all: a file of outputs for each checkpoint, also of those that come."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from t2t_torch import registry
from t2t_torch.bin.commands import avg_all, bleu, decoder, translate_all
from t2t_torch.run import storage
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.workflows.decode_checkpoints import CheckpointDecoder

HPARAMS = "transformer_test"
SMALL = "--decode_hparams=extra_length=3,batch_size=2"


def save(run: Path, step: int) -> None:
    hparams = registry.hparams(HPARAMS)
    torch.manual_seed(step)
    model = registry.model("transformer")(hparams, registry.problem("dates_to_iso").features(run))
    adam = torch.optim.Adam(model.parameters())
    made = CheckpointDirectory(run).save(Snapshot.take(model, adam, TrainerState(step=step)))
    os.utime(made.path / "MANIFEST.json", (1_000 + step, 1_000 + step))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of steps 3 and 7 that has learnt nothing."""
    path = tmp_path / "run"
    directory = RunDirectory(path)
    record = TaskRecord(problem="dates_to_iso", model="transformer", hparams_set=HPARAMS)
    directory.begin(record, registry.hparams(HPARAMS))
    directory.unlock()
    for step in (3, 7):
        save(path, step)
    os.utime(path / "task.json", (500, 500))
    return path


@pytest.fixture
def flags(run: Path, tmp_path: Path) -> list[str]:
    source = tmp_path / "in.txt"
    source.write_text("May 1\nMay 2\nJune 3\n")
    folder = tmp_path / "translations"
    return [f"--model_dir={run}", f"--source={source}", f"--translations_dir={folder}", SMALL]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_each_checkpoint_is_decoded_as_the_decoder_would(
    run: Path, flags: list[str], tmp_path: Path, capsys
) -> None:
    folder = tmp_path / "translations"
    assert translate_all.main(flags) == 0
    expected = ["dates_to_iso-3", "dates_to_iso-7", "dates_to_iso-decode.json"]
    assert names(folder) == expected
    for step in (3, 7):
        out = tmp_path / "out"
        assert (
            decoder.main(
                [
                    *(f"--output_dir={run}", f"--checkpoint_path={step}", SMALL),
                    *(f"--decode_from_file={tmp_path / 'in.txt'}", f"--decode_to_file={out}"),
                ]
            )
            == 0
        )
        assert (folder / f"dates_to_iso-{step}").read_bytes() == out.read_bytes()
        assert (folder / f"dates_to_iso-{step}").stat().st_mtime == 1_000 + step
    assert (folder / "dates_to_iso-decode.json").stat().st_mtime == 500
    right = tmp_path / "right.txt"
    right.write_text("2020-05-01\n" * 3)
    assert bleu.main([f"--translations_dir={folder}", f"--reference={right}"]) == 0
    printed = capsys.readouterr().out
    assert "step 3  t2t_bleu " in printed and "step 7  t2t_bleu " in printed


def test_what_is_there_is_not_decoded_again_and_what_was_ended_goes_on(
    flags: list[str], tmp_path: Path, monkeypatch, capsys
) -> None:
    folder, call = tmp_path / "translations", CheckpointDecoder.__call__
    polls: list[int] = []

    def poll() -> None:
        polls.append(1)
        if len(polls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(CheckpointDecoder, "__call__", lambda self, one: call(self, one, poll=poll))
    assert translate_all.main(flags) == 130
    assert names(folder) == ["dates_to_iso-3", "dates_to_iso-decode.json"]
    assert names(folder / ".unfinished") == ["dates_to_iso-7.part"]
    assert translate_all.main(flags) == 0
    assert len(polls) == 2 + 2 + 1  # two batches each, one of which was begun twice
    assert f"{folder / 'dates_to_iso-3'} is there" in capsys.readouterr().out
    assert not names(folder / ".unfinished")
    assert (folder / "dates_to_iso-7").read_text().count("\n") == 3


def test_checkpoints_that_come_are_decoded_and_those_that_go_are_let_go(
    run: Path, flags: list[str], tmp_path: Path, monkeypatch
) -> None:
    now, coming = [0.0], [9, 11]

    def pause(seconds: float) -> None:
        now[0] += seconds
        if coming:
            save(run, coming.pop(0))
            shutil.rmtree(run / "ckpt-3", ignore_errors=True)

    monkeypatch.setattr(storage.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(storage.time, "sleep", pause)
    assert translate_all.main([*flags, "--wait_minutes=1", "--min_steps=4"]) == 0
    made = [name for name in names(tmp_path / "translations") if not name.endswith("json")]
    assert made == ["dates_to_iso-11", "dates_to_iso-7", "dates_to_iso-9"]


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_told(
    run: Path, flags: list[str], tmp_path: Path, monkeypatch, capsys
) -> None:
    call = CheckpointDecoder.__call__

    def delete(self: CheckpointDecoder, one) -> object:
        if one.step == 3:
            shutil.rmtree(one.path)
        return call(self, one)

    monkeypatch.setattr(CheckpointDecoder, "__call__", delete)
    assert translate_all.main(flags) == 0
    assert "ckpt-3 was deleted before it was decoded" in capsys.readouterr().err
    assert "dates_to_iso-7" in names(tmp_path / "translations")


def test_averages_are_decoded_with_the_times_of_the_newest(
    run: Path, flags: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "avg"
    assert avg_all.main([f"--model_dir={run}", f"--output_dir={out}", "--n=2"]) == 0
    folder = tmp_path / "averaged"
    given = [f"--model_dir={out}", flags[1], f"--translations_dir={folder}", SMALL]
    assert translate_all.main(given) == 0
    assert (folder / "dates_to_iso-7").stat().st_mtime == 1_007
    assert (folder / "dates_to_iso-decode.json").stat().st_mtime == 500


def test_a_folder_of_other_outputs_is_refused(flags: list[str], tmp_path: Path, capsys) -> None:
    assert translate_all.main(flags) == 0
    made = json.loads((tmp_path / "translations" / "dates_to_iso-decode.json").read_text())
    assert made["decode_hparams"] == {"extra_length": 3, "batch_size": 2} and made["lines"] == 3
    assert translate_all.main([*flags, "--beam_size=2"]) == 2
    assert "holds outputs of another decode_hparams" in capsys.readouterr().err
    (tmp_path / "in.txt").write_text("May 1\n")
    assert translate_all.main(flags) == 2
    assert "holds outputs of another source and lines" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--min_steps=8"], "no whole checkpoint of step 8 or later: [3, 7]"),
        (["--model=lstm_lm"], "is a run of model 'transformer'"),
        (["--decode_hparams=beam_size=3", "--beam_size=2"], "give one of them"),
        (["--decode_hparams=shards=2,shard_id=0"], "does not read shards, shard_id"),
        (["--decode_hparams=num_samples=1"], "--source is decoded whole and does not read num_s"),
        (["--source=nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_is_refused(flags: list[str], capsys, more: list[str], told: str) -> None:
    assert translate_all.main([*flags, *more]) == 2
    assert told in capsys.readouterr().err


def test_outputs_of_another_run_do_not_pass_for_those_of_this_one(
    run: Path, flags: list[str], tmp_path: Path, capsys
) -> None:
    assert translate_all.main(flags) == 0
    other = tmp_path / "other"
    shutil.copytree(run, other)
    assert translate_all.main([f"--model_dir={other}", *flags[1:]]) == 2
    assert "holds outputs of another run" in capsys.readouterr().err
    (tmp_path / "link").symlink_to(run)
    assert translate_all.main([f"--model_dir={tmp_path / 'link'}", *flags[1:]]) == 0


def test_a_command_that_decodes_nothing_describes_nothing(flags: list[str], tmp_path: Path) -> None:
    assert translate_all.main([*flags, "--min_steps=8", "--beam_size=2"]) == 2
    assert not names(tmp_path / "translations")
    assert translate_all.main(flags) == 0
