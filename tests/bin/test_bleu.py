"""t2t-bleu: a file, and a folder that fills."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from t2t_torch.bin.commands import bleu
from t2t_torch.workflows import every_checkpoint as workflow

REFERENCE = "the cat sat on the mat\na dog ran in the park\n"
SCORES = {100: "the dog sat on a mat\n\n", 200: REFERENCE.lower(), 300: REFERENCE.upper()}


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    file = tmp_path / "right.txt"
    file.write_text(REFERENCE)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "translations"
    made.mkdir()
    for step, text in SCORES.items():
        add(made, step, text)
    (made / "a-decode.json").write_text("{}")
    os.utime(made / "a-decode.json", (1_000, 1_000))
    (made / ".unfinished").mkdir()
    return made


def add(folder: Path, step: int, text: str) -> None:
    file = folder / f"a_problem-{step}"
    file.write_text(text)
    os.utime(file, (1_000 + step, 1_000 + step))


def score(reference: Path, *flags: str) -> int:
    return bleu.main([f"--reference={reference}", *flags])


def curves(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """By tag, (step, time, value) of each event."""
    result = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(one.step, one.wall_time, round(one.value, 2)) for one in result.Scalars(tag)]
        for tag in result.Tags()["scalars"]
    }


def test_each_file_of_a_folder_is_an_event_at_its_step_and_time(
    folder: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score(reference, f"--translations_dir={folder}") == 0
    result = curves(folder)
    assert result["BLEU_uncased"][2:] == [(200, 1200.0, 100.0), (300, 1300.0, 100.0)]
    assert [one[:2] for one in result["BLEU_cased"]] == [
        *((0, 1000.0), (100, 1100.0), (200, 1200.0), (300, 1300.0))
    ]
    assert [one[2] for one in result["bleu"]] == [0.0, 7.1, 100.0, 0.0]
    assert set(result) == {"BLEU_cased", "BLEU_uncased", "bleu", "bleu_uncased"}
    assert (folder / "last_evaluated_step.txt").read_text() == "300\n"
    out = capsys.readouterr().out
    assert "step 200  t2t_bleu 100.0000  t2t-bleu|nrefs:1|case:mixed" in out


def test_what_was_scored_is_not_scored_again(
    folder: Path, reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--translations_dir={folder}", f"--event_dir={tmp_path / 'events'}"]
    assert score(reference, *flags, "--bleu_variant=cased") == 0
    add(folder, 400, REFERENCE)
    capsys.readouterr()
    assert score(reference, *flags, "--bleu_variant=cased") == 0
    printed = capsys.readouterr().out
    assert "step 400" in printed and "step 300" not in printed
    assert [one[0] for one in curves(tmp_path / "events")["BLEU_cased"]] == [0, 100, 200, 300, 400]
    assert score(reference, *flags) == 0
    assert "no translation of step 401 or later" in capsys.readouterr().out
    assert score(reference, *flags, "--min_steps=300", "--tag_suffix=_again") == 0
    assert [one[0] for one in curves(tmp_path / "events")["BLEU_cased_again"]] == [300, 400]


def test_a_score_of_zero_is_told_or_not_as_is_asked(folder: Path, reference: Path) -> None:
    flags = [f"--translations_dir={folder}", "--scores=chrf"]
    assert score(reference, *flags, "--noreport_zero", "--tag_suffix=_a") == 0
    assert score(reference, *flags, "--report_zero", "--min_steps=200", "--tag_suffix=_b") == 0
    result = curves(folder)
    assert [one[0] for one in result["chrf_a"]] == [100, 200, 300]
    assert [one[0] for one in result["chrf_b"]] == [0, 200, 300]


def test_files_that_come_are_scored_until_none_comes(
    folder: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, coming = [0.0], [(400, REFERENCE), (450, REFERENCE)]

    def pause(seconds: float) -> None:
        now[0] += seconds
        if coming and now[0] >= 40.0:
            add(folder, *coming.pop(0))

    monkeypatch.setattr(workflow.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(workflow.time, "sleep", pause)
    assert score(reference, f"--translations_dir={folder}", "--wait_minutes=1") == 0
    assert [one[0] for one in curves(folder)["BLEU_cased"]] == [0, 100, 200, 300, 400, 450]
    assert now[0] == pytest.approx(40.0 + 10.0 + 60.0)


def test_a_folder_that_comes_is_waited_for(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    folder, now = tmp_path / "later", [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds
        if now[0] >= 30.0 and not folder.exists():
            folder.mkdir()
            add(folder, 7, REFERENCE)

    monkeypatch.setattr(workflow.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(workflow.time, "sleep", pause)
    assert score(reference, f"--translations_dir={tmp_path / 'no'}") == 2
    assert "there is no folder" in capsys.readouterr().err
    assert score(reference, f"--translations_dir={folder}", "--wait_minutes=1") == 0
    assert "step 7  t2t_bleu 100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--translation=a", "--translations_dir=b"], "give one of them"),
        (["--translation=a", "--tag_suffix=x"], "--tag_suffix: read with --translations_dir alone"),
        (["--translation=a", "--noreport_zero"], "--report_zero: read with --translations_dir"),
        ([], "--translation=..."),
        (["--translations_dir={}", "--scores=blue"], "there is no score 'blue'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    folder: Path, reference: Path, capsys, flags: list[str], told: str
) -> None:
    assert score(reference, *(flag.format(folder) for flag in flags)) == 2
    assert told in capsys.readouterr().err
    assert not list(folder.glob("events*"))


def test_a_file_of_fewer_lines_is_told_and_what_came_before_it_is_scored(
    folder: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(folder, 300, "one line\n")
    assert score(reference, f"--translations_dir={folder}") == 2
    text = f"a_problem-300 cannot be scored: --reference={reference} has 2 lines, but there are 1"
    assert text in capsys.readouterr().err
    assert (folder / "last_evaluated_step.txt").read_text() == "200\n"


def test_two_files_of_one_step_are_refused(folder: Path, reference: Path, capsys) -> None:
    (folder / "another-100").write_text(REFERENCE)
    assert score(reference, f"--translations_dir={folder}") == 2
    assert "are of the same step" in capsys.readouterr().err
