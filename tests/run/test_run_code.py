"""The copies of code and declarations that a run holds, and when they are used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from absl import logging

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, RegistryError, UsageError
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.run import code as run_code
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.trial.experiment import place_of_code
from t2t_torch.trust import trusting

pytestmark = pytest.mark.usefixtures("own_registry")

PROBLEM = """
from t2t_torch.problems.algorithmic import AlgorithmicReverseBinary40
from t2t_torch.registry import register_problem

@register_problem("{name}")
class Mine(AlgorithmicReverseBinary40):
    mark = {mark}
"""


@pytest.fixture(autouse=True)
def nothing_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry._STATE, "copies", {})
    monkeypatch.setattr(registry._STATE, "carried", {})


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *given: lines.append(text % given))
    return lines


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(folder: str, name: str = "", mark: int = 1, **files: str) -> Path:
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        if name:
            (place / "own.py").write_text(PROBLEM.format(name=name, mark=mark))
        for file, text in files.items():
            (place / file.replace("_DOT_", ".")).write_text(text)
        return place

    return written


def run_of(path: Path, problem: str, *folders: Path) -> RunDirectory:
    """Writes a run, as a trainer does when it begins."""
    run = RunDirectory(path)
    task = TaskRecord(problem=problem, model="transformer", usr_dirs=tuple(map(str, folders)))
    run.claim(task, basic_params1())
    run_code.keep_code(run, task)
    run.commit()
    run.unlock()
    return run


def forget() -> None:
    """Empties the registry, as in a new process."""
    state = registry._STATE
    state.roots[:] = [root for root in state.roots if root.is_relative_to(registry.PACKAGE)]
    state.forget_index()
    state.objects["problem"] = {
        name: one
        for name, one in state.objects["problem"].items()
        if Path(one[1].path).is_relative_to(registry.PACKAGE)
    }


def problem_of(run: RunDirectory) -> Any:
    task = run.task()
    run_code.open_code(run.path, task)
    return registry.problem(task.problem)


def test_a_copy_is_taken_if_the_folder_is_gone_and_the_run_is_trusted(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write("copied_a", "copied_problem_a", notes_DOT_txt="x")
    run = run_of(tmp_path / "run", "copied_problem_a", folder)
    assert sorted(path.name for path in (run.path / "code" / "copied_a").iterdir()) == [
        "notes.txt",
        "own.py",
    ]
    folder.rename(tmp_path / "copied_elsewhere")
    with pytest.raises(UsageError, match="--trust_code"):
        problem_of(run)
    with trusting(True):
        assert problem_of(run).mark == 1


def test_an_altered_copy_is_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    folder = write("copied_b", "copied_problem_b")
    run = run_of(tmp_path / "run", "copied_problem_b", folder)
    folder.rename(tmp_path / "gone")
    (run.path / "code" / "copied_b" / "own.py").write_text("# altered")
    with trusting(True), pytest.raises(CheckpointError, match="was altered"):
        problem_of(run)


@pytest.mark.parametrize("linked", ["code", "code/linked", "code/linked/own.py", "code/a.txt"])
def test_a_copy_that_is_a_link_is_neither_imported_nor_copied(
    write: Callable[..., Path], tmp_path: Path, linked: str
) -> None:
    write("code/linked", "linked_problem")
    write("code", a_DOT_txt="secret")
    run = RunDirectory(write("run/code/linked").parents[1])
    place = run.path / linked
    if place.is_dir():
        shutil.rmtree(place)
    place.symlink_to(tmp_path / linked)
    task = TaskRecord(problem="linked_problem", model="transformer", usr_dirs=("/gone/linked",))
    (run.path / "task.json").write_text(task.model_dump_json())
    for opens in (problem_of, lambda one: run_code.copy_code(one.path, tmp_path / "export")):
        with trusting(True), pytest.raises(CheckpointError, match="is a link"):
            opens(run)
    with trusting(True), pytest.raises(CheckpointError, match="is a link"):
        place_of_code("/gone/linked", run.path)
    assert not (tmp_path / "export").exists()


def test_trust_in_a_run_is_none_in_another_that_declares_the_same_name(
    write: Callable[..., Path],
) -> None:
    write("run_1/code/one", "shared_problem", mark=1)
    write("run_2/code/two", "shared_problem", mark=2)
    runs = []
    for number, name in ((1, "one"), (2, "two")):
        run = RunDirectory(write(f"run_{number}"))
        task = TaskRecord(problem="shared_problem", model="m", usr_dirs=(f"/gone/{name}",))
        (run.path / "task.json").write_text(task.model_dump_json())
        runs.append(run)
    with pytest.raises(UsageError, match="run_1"):
        problem_of(runs[0])
    with trusting(True), pytest.raises(RegistryError):
        registry.problem("unknown_problem")
    with trusting(True):
        assert problem_of(runs[1]).mark == 2


def test_a_folder_that_the_user_names_is_used_before_the_copy(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write("copied_c", "copied_problem_c", mark=1)
    run = run_of(tmp_path / "run", "copied_problem_c", folder)
    folder.rename(tmp_path / "gone")
    registry.import_usr_dir(write("named_c", "copied_problem_c", mark=2))
    assert problem_of(run).mark == 2  # without trust
    known = run.task().usr_dirs
    assert run_code.recorded_usr_dirs(run.path, known) == (str(tmp_path / "named_c"),)


def test_a_folder_that_changed_since_is_used_with_a_warning(
    write: Callable[..., Path], tmp_path: Path, warnings: list[str]
) -> None:
    folder = write("copied_d", "copied_problem_d", mark=1)
    run = run_of(tmp_path / "run", "copied_problem_d", folder)
    assert problem_of(run).mark == 1
    assert not warnings
    write("copied_d", "copied_problem_d", mark=2)
    problem_of(run)
    assert f"own.py of {folder} changed since the run began" in warnings[0]


def test_declarations_are_the_runs_own_and_need_no_trust(
    write: Callable[..., Path], tmp_path: Path, warnings: list[str]
) -> None:
    declared = {"problem": "copied_e", "kind": "text2class", "files": {"train": "a", "eval": "b"}}
    declared |= {"fields": {"inputs": "text", "targets": "kind"}, "description": "first"}
    folder = write("copied_e", copied_e_DOT_json=json.dumps(declared))
    registry.import_usr_dir(folder)
    run = run_of(tmp_path / "run", "copied_e", folder)
    assert not (run.path / "code").exists()
    forget()
    changed = json.dumps({**declared, "description": "second"})
    (folder / "copied_e.json").write_text(changed)
    assert type(problem_of(run)).__doc__ == "first"
    assert not warnings
    registry.import_usr_dir(folder)
    assert type(problem_of(run)).__doc__ == "second"
    assert "differs from that of the run" in warnings[0]


def test_large_files_runs_and_environments_are_no_code(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logging, "log", lambda level, text, *given: lines.append(text % given))
    folder = write("copied_f", "copied_problem_f", data_DOT_bin="x" * (run_code.LARGEST + 1))
    for mark in ("task.json", "pyvenv.cfg", "signature.json"):
        write(
            f"copied_f/{mark.partition('.')[0]}", **{mark.replace(".", "_DOT_"): "", "a_DOT_py": ""}
        )
    run = run_of(tmp_path / "run", "copied_problem_f", folder)
    copies = [path.name for path in (run.path / "code").rglob("*") if path.is_file()]
    assert copies == ["own.py"]
    assert lines == ["The run keeps no copy of files over 1000000 bytes: data.bin."]
