"""`t2t-quick`: one command from a file to a served model, the report, and what goes wrong."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.bin.commands import quick
from t2t_torch.errors import CheckpointError, DataError, T2TError, UsageError
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.run.directory import RunDirectory, TaskRecord, training_lock
from t2t_torch.signals import StopRequest
from t2t_torch.workflows import config_file
from t2t_torch.workflows import quick as workflow
from t2t_torch.workflows.context import data_dir_of_run
from t2t_torch.workflows.quick import QuickSettings
from t2t_torch.workflows.train_settings import TrainSettings

ROWS = [
    f'"the {thing} was {mood}, {number}",{label}'
    for label, moods in {"good": ("great", "fine"), "bad": ("awful", "poor")}.items()
    for mood in moods
    for thing in ("film", "book", "meal")
    for number in range(10)
]


@pytest.fixture
def file(tmp_path, monkeypatch, own_registry):
    """A CSV of opinions in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "opinions.csv"
    path.write_text("\n".join(["text,label", *ROWS]) + "\n")
    return path


def steps_of(file, folder, **settings):
    """The steps of `t2t-quick`."""
    return workflow._Quick(QuickSettings(**settings), file, folder, StopRequest())


def test_a_file_becomes_an_artifact_a_report_and_the_commands_that_made_them(
    file, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(Text2ClassProblem, "portfolio", ("linear/linear_tiny",))  # is faster
    file.write_text(f"{file.read_text()}{ROWS[0]}\n")
    assert quick.main(["opinions.csv", "--minutes=1"]) == 0
    out = capsys.readouterr().out
    folder = tmp_path / "opinions_quick"
    commands = [shlex.split(line[2:]) for line in out.splitlines() if line.startswith("$ ")]
    names = "t2t-datagen t2t-datagen t2t-trainer t2t-eval t2t-exporter t2t-latency".split()
    assert [command[0] for command in commands] == names
    assert f"t2t-server --artifact={folder.name}/artifact" in out
    assert t2t.load(folder / "artifact")(["the film was great"]) == ["good"]

    page = (folder / "report.html").read_text()
    for title in ("Results", "Confusion of targets", "Samples", "Curves", "Latency", "Commands"):
        assert re.search(rf"<h2[^>]*>[^<]*{title}", page), title
    assert "a linear model of n-grams" in page
    assert re.search(r"Worth a look.*repeats? an earlier row", page, re.DOTALL)
    assert shlex.join(commands[2])[:40] in re.sub("</?span>", "", page)
    assert "Leaderboard" in page
    assert (folder / "run").resolve().parent == folder / "run.race"

    # Once more: nothing is declared, generated or trained again.
    before = json.loads((folder / "run" / "latest.json").read_text())
    assert quick.main(["opinions.csv", "--minutes=1"]) == 0
    captured = capsys.readouterr()
    assert "is there already, and is used" in captured.out
    assert "--declare" not in captured.out
    assert "nothing to train" in captured.err and "examples/s" not in captured.err
    assert json.loads((folder / "run" / "latest.json").read_text()) == before


@pytest.mark.quick
def test_a_moved_folder_goes_on_with_the_moved_file(tmp_path, capsys):
    for place in ("there", "here"):
        (tmp_path / place).mkdir()
    file, folder = tmp_path / "there" / "opinions.csv", tmp_path / "there" / "opinions_quick"
    file.write_text("text,label\n")
    workflow._check_source(file, folder)
    other = tmp_path / "here" / file.name
    other.write_text("another of this name")
    with pytest.raises(UsageError, match=f"belongs to {file}"):
        workflow._check_source(other, folder)
    moved, folder = file.rename(other), folder.rename(tmp_path / "here" / folder.name)
    workflow._check_source(moved, folder)
    assert (
        f"{file}, which {folder} was made of, is gone: {moved} is used." in capsys.readouterr().out
    )
    workflow._check_source(moved, folder)
    assert capsys.readouterr().out == ""


def test_the_data_that_was_moved_with_a_run_is_found(tmp_path, capsys):
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "data").mkdir(parents=True)
    run = RunDirectory(there / "run")
    settings = TrainSettings(data_dir=str(there / "data"), output_dir=str(run.path))
    hparams = registry.hparams("basic_params1")
    content = config_file.content_of(settings, hparams, {}, processes=1)
    run.claim(TaskRecord(problem="any"), hparams, config=config_file.written(content))
    run.commit()
    run.unlock()
    there.rename(here)
    moved = str(here / "run")
    assert data_dir_of_run(moved, None) == str(here / "data")
    (here / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=f"was trained on {there}/data, which no longer exists"):
        data_dir_of_run(moved, None)
    assert data_dir_of_run(moved, "given") == "given"


@pytest.mark.slow
def test_a_declaration_is_taken_as_it_is(file, tmp_path, capsys):
    content = {
        "problem": "moods",
        "kind": "text2class",
        "files": {"train": "opinions.csv", "eval": 0.2},
        "fields": {"inputs": "text", "targets": "label"},
        "vocab_type": "word",
    }
    (tmp_path / "moods.json").write_text(json.dumps(content))
    assert quick.main(["moods.json", "--minutes=0.5", "--output_dir=out"]) == 0
    out = capsys.readouterr().out
    assert "--declare" not in out and "--problem=moods" in out
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize("is_split", [False, True])
def test_a_folder_of_classes_is_read_from_its_own_place(is_split, monkeypatch, tmp_path):
    folder = tmp_path / "reviews"
    for name in ("good", "bad"):
        place = folder / "train" / name if is_split else folder / name
        place.mkdir(parents=True)
        for n in range(3):
            (place / f"{n}.txt").write_text(f"{name} {n}")
    made, asked = steps_of(folder, tmp_path), []
    monkeypatch.setattr(workflow, "generate", asked.append)
    made._generate("reviews", tmp_path / "reviews.json")
    assert asked[0].tmp_dir == str(folder if is_split else tmp_path)
    assert f"--tmp_dir={asked[0].tmp_dir}" in made.commands[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--file=..."),
        (["nowhere.csv"], "no file or folder nowhere.csv"),
        (["opinions.csv", "--output_dir=opinions.csv"], "is a file"),
        (["opinions.csv", "--minutes=0"], "minutes"),
        (["opinions.csv", "more.csv"], "unexpected argument 'more.csv'"),
        (["broken.csv"], "run t2t-quick again"),
    ],
)
def test_bad_input_is_refused(file, tmp_path, capsys, arguments, message):
    (tmp_path / "broken.csv").write_bytes(b"\x00\x01\x02" * 100)
    assert quick.main(arguments) != 0
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*_quick/data"))


def test_a_stopped_step_says_which_and_how_to_resume(tmp_path, capsys):
    made, stop = steps_of(tmp_path / "a.csv", tmp_path), StopRequest()
    made.stop = stop

    def interrupt() -> None:
        raise KeyboardInterrupt

    for step, number in {
        stop.request: signal.SIGTERM,
        interrupt: signal.SIGINT,
        lambda: sys.exit(128 + signal.SIGUSR1): signal.SIGUSR1,
    }.items():
        with pytest.raises(workflow._StepStoppedError) as stopped:
            made._call("t2t-trainer", QuickSettings(), step)
        assert stopped.value.number == number
        told = f"t2t-quick: stopped by {signal.Signals(number).name} during t2t-trainer. Run t2t-"
        assert told in capsys.readouterr().err
        stop.signal = 0


@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        ("t2t-datagen", DataError("no rows."), "a.csv was refused. Correct it, and run t2t-quick"),
        ("t2t-exporter", CheckpointError("bad."), "t2t-exporter has ended with an error. Run t2t-"),
    ],
)
def test_an_error_of_a_step_has_its_reason(tmp_path, command, error, message):
    made = steps_of(Path("a.csv"), tmp_path)

    def fail() -> None:
        raise error

    with pytest.raises(T2TError, match=rf"{error}\nt2t-quick: {message}"):
        made._call(command, QuickSettings(), fail)


def test_a_second_command_in_the_same_folder_is_refused(file, tmp_path, capsys):
    folder = tmp_path / "opinions_quick"
    folder.mkdir()
    with training_lock(folder / "quick.lock"):
        assert quick.main(["opinions.csv", "--minutes=1"]) != 0
    assert "another training runs in" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["quick.lock", "source.txt"]
