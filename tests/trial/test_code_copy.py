"""The copy of a trial's code that its run keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_run import code, made_run

from t2t_torch.run import checksums
from t2t_torch.run import code as run_code
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.trial.experiment import changed_code, copies_of, copy_of
from t2t_torch.trial.user_code import Definition, load_definition


@pytest.fixture(autouse=True)
def forgets(enter: Any) -> Iterator[None]:
    """No trial is left."""
    enter()
    yield


def _written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _copied_files(definition: Definition, run: Path) -> list[str]:
    _keep(definition, run)
    folder = run / "code"
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def _keep(definition: Definition, run: Path) -> list[str]:
    directory, task = RunDirectory(run), TaskRecord(trial="small")
    directory.claim_files(task, {})
    changes = run_code.keep_code(directory, task, copies_of(definition, run))
    directory.commit()
    directory.unlock()
    return changes


def test_a_directory_is_copied_without_what_is_no_code(tmp_path: Path) -> None:
    trial = _written(
        tmp_path / "mine",
        {
            "model_def.py": code(),
            "parts/layers.py": "",
            "parts/big.bin": "x" * (run_code.LARGEST + 1),
            ".hidden/a.py": "",
            ".env": "",
            "__pycache__/a.pyc": "",
            "old_run/task.json": "{}",
            "old_run/notes.txt": "",
            "run/notes.txt": "",
        },
    )
    (trial / "gone").symlink_to(trial / "nowhere")
    (trial / "run" / "code").mkdir()
    result = _copied_files(load_definition(str(trial)), trial / "run")
    assert result == ["mine/model_def.py", "mine/parts/layers.py"]


def test_pedlignore_says_what_is_no_part_of_it(tmp_path: Path) -> None:
    rules = """
# made by hand
*.csv
!kept.csv
/notes.txt
data/
**/deep/*.py[co]
a[!b]c
[z-a]
"""
    trial = _written(
        tmp_path / "mine",
        {
            "model_def.py": code(),
            ".pedlignore": rules,
            "x.csv": "",
            "sub/y.csv": "",
            "sub/kept.csv": "",
            "notes.txt": "",
            "sub/notes.txt": "",
            "data/table.py": "",
            "sub/data/table.py": "",
            "sub/deep/a.pyc": "",
            "sub/deep/a.py": "",
            "abc": "",
            "axc": "",
        },
    )
    result = _copied_files(load_definition(str(trial)), tmp_path / "run")
    expected = ["abc", "model_def.py", "sub/deep/a.py", "sub/kept.csv", "sub/notes.txt"]
    assert result == [f"mine/{name}" for name in expected]


def test_a_file_is_copied_with_what_it_imports_from_beside_it(tmp_path: Path) -> None:
    _written(
        tmp_path / "mine",
        {
            "trial.py": "import beside\nfrom inner import part\n" + code(),
            "beside.py": "",
            "inner/__init__.py": "",
            "inner/part.py": "",
            "other.py": "",
        },
    )
    definition = load_definition(f"{tmp_path}/mine/trial.py:SmallTrial")
    result = _copied_files(definition, tmp_path / "run")
    assert result == ["beside.py", "inner/__init__.py", "inner/part.py", "trial.py"]
    again = load_definition(str(copy_of(definition.spec, tmp_path / "run")))
    assert again.path == tmp_path / "run" / "code" / "trial.py"
    assert again.trial_class.__name__ == "SmallTrial"


def test_code_comes_before_tables_when_there_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_code, "MOST", 10_000)
    files = {"model_def.py": code(), "a.txt": "x" * 9_000, "z.txt": "x" * 10}
    trial = _written(tmp_path / "mine", files)
    result = _copied_files(load_definition(str(trial)), tmp_path / "run")
    assert result == ["mine/model_def.py", "mine/z.txt"]
    monkeypatch.setattr(run_code, "MOST_FILES", 1)
    result = _copied_files(load_definition(str(trial)), tmp_path / "again")
    assert result == ["mine/model_def.py"]


def test_it_is_written_whenever_training_begins_and_a_change_is_told(tmp_path: Path) -> None:
    run = made_run(tmp_path / "made", code() + "import math\n")
    file = tmp_path / "made" / "small.py"
    spec, before = str(file), file.read_text()
    assert changed_code(spec, run) == []
    file.write_text(before + "\n")
    assert changed_code(spec, run) == ["small.py"]
    assert _keep(load_definition(spec), run) == ["code/small.py: changed"]
    assert (run / "code" / "small.py").read_text() == before + "\n"
    checksums.check_files(run, ["code/"])
    assert _keep(load_definition(spec), run) == []


def test_only_files_that_changed_are_written_again(tmp_path: Path) -> None:
    trial = _written(tmp_path / "mine", {"model_def.py": code(), "same.txt": "1", "new.txt": "1"})
    copies = tmp_path / "run" / "code" / "mine"
    before = []
    for text in ("1", "2"):
        (trial / "new.txt").write_text(text)
        _keep(load_definition(str(trial)), tmp_path / "run")
        before.append([(copies / name).stat().st_ino for name in ("same.txt", "new.txt")])
    assert before[0][0] == before[1][0]
    assert (copies / "new.txt").read_text() == "2"
    checksums.check_files(tmp_path / "run", ["code/"])


def test_of_code_that_is_gone_nothing_is_left(tmp_path: Path) -> None:
    trial = _written(tmp_path / "mine", {"model_def.py": code(), "old.py": ""})
    assert _copied_files(load_definition(str(trial)), tmp_path / "run")[1:] == ["mine/old.py"]
    (trial / "old.py").unlink()
    assert _copied_files(load_definition(str(trial)), tmp_path / "run") == ["mine/model_def.py"]
    checksums.check_files(tmp_path / "run", ["code/"])


def test_a_module_of_a_package_is_not_copied(tmp_path: Path, monkeypatch: Any) -> None:
    _written(tmp_path, {"installed_trial/__init__.py": "", "installed_trial/one.py": code()})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    definition = load_definition("installed_trial.one:SmallTrial")
    _keep(definition, tmp_path / "run")
    assert not (tmp_path / "run" / "code").exists()
    assert copy_of(definition.spec, tmp_path / "run") is None
