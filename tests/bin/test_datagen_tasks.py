"""The command as the jobs of an array run it, and what killed ones leave."""

from __future__ import annotations

import itertools
import signal

import pytest

from t2t_torch.bin.commands import datagen

from .test_datagen import MODULE, arguments, files, finish, run_killed_at, start
from .test_datagen import clean as clean
from .test_datagen import usr_dir as usr_dir

pytestmark = pytest.mark.usefixtures("own_registry")


def task(number: int, of: int) -> list[str]:
    return [f"--task_id={number}", f"--num_tasks={of}"]


def test_each_task_tells_what_is_missing_and_the_last_what_there_is(
    tmp_path, usr_dir, clean, capsys
):
    command = arguments(tmp_path, usr_dir)
    lines = []
    for number in (3, 0, 2, 1):
        assert datagen.main([*command, *task(number, 4)]) == 0
        lines.append(capsys.readouterr().out)
    assert lines[0] == "fragile: task 3 of 4 done; missing: 0, 1, 2\n"
    assert lines[1] == "fragile: task 0 of 4 done; missing: 1, 2\n"
    assert lines[3].startswith("fragile: task 1 of 4 done; missing: none\n\nfragile in ")
    assert "t2t-trainer --problem=fragile" in lines[3]
    assert files(tmp_path / "data") == clean


@pytest.mark.slow
@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_a_task_killed_while_encoding_and_run_again_makes_the_same_bytes(
    tmp_path, usr_dir, clean, processes
):
    command = [*MODULE, *arguments(tmp_path, usr_dir), f"--num_concurrent_processes={processes}"]
    assert finish(start(*command, *task(0, 2)))[0] == 0
    code, _, _ = finish(start(*command, *task(1, 2), SIGNAL="SIGKILL", SIGNAL_AT="17000"))
    assert code == -signal.SIGKILL
    assert files(tmp_path / "data") == {}
    code, _, err = finish(start(*command, *task(1, 2)))
    assert code == 0, err
    assert files(tmp_path / "data") == clean
    assert not (tmp_path / "data" / ".fragile.tasks").exists()


@pytest.mark.slow
@pytest.mark.parametrize("stride", [6, 1])
def test_a_task_killed_at_any_step_of_writing_and_run_again_makes_the_same_bytes(
    tmp_path, usr_dir, stride
):
    for step in itertools.count(1, stride):
        command = [*arguments(tmp_path, usr_dir, f"data{step}"), "--max_cases=5", *task(0, 1)]
        code, err = run_killed_at(tmp_path, step, command)
        if code == 0:  # there are fewer steps
            break
        assert code == -signal.SIGKILL, err
        assert datagen.main([*command, "--verbosity=-1"]) == 0
        assert not (tmp_path / f"data{step}" / ".fragile.tasks").exists()
    # What one process does 15 times, and before: the vocabulary's folder and the plan (synced,
    # renamed, synced); two runs, their folders, the part's, and the part's entry (3); the report
    # that the task has ended, and that data is published (3 each).
    assert step - stride >= 15 + 4 + (2 + 2 + 1 + 3) + 2 * 3
    expected = files(tmp_path / f"data{step}")
    assert len(expected) == 5
    for killed_at in range(1, step, stride):
        assert files(tmp_path / f"data{killed_at}") == expected


@pytest.mark.slow
def test_two_tasks_of_the_same_number_at_once_do_not_harm_each_other(tmp_path, usr_dir, clean):
    command = [*MODULE, *arguments(tmp_path, usr_dir)]
    (tmp_path / "raw" / "runs").unlink()
    every = [start(*command, *task(number, 2)) for number in (0, 1, 0, 1)]
    for code, _, err in map(finish, every):
        assert code == 0, err
    assert files(tmp_path / "data") == clean
    assert sorted((tmp_path / "raw" / "runs").read_text().split()) == ["dev"] * 2 + ["train"] * 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--num_tasks=2"], "--num_tasks and --task_id go together"),
        (["--task_id=2"], "--num_tasks and --task_id go together"),
        (["--task_id=2", "--num_tasks=2"], "--task_id=2: with --num_tasks=2 the last is 1"),
        (["--task_id=-1", "--num_tasks=2"], "task_id"),
        (["--num_tasks=0"], "num_tasks"),
        (["--runner=ray", "--task_id=1"], "--task_id does not go with --runner=ray;"),
        (["--runner=ray", "--num_concurrent_processes=1"], "--num_concurrent_processes does not"),
        (["--runner=slurn"], "Did you mean 'slurm'"),
        (["--on_bad_record=mend"], "on_bad_record"),
    ],
)
def test_wrong_flags_of_tasks_are_told_with_exit_code_2(tmp_path, capsys, options, told):
    command = ["--problem=tiny_algo", f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path}"]
    assert datagen.main([*command, *options]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "nothing was begun"
