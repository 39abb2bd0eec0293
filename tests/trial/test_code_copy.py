"""The copy of a trial's code that its run keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_run import code, made_run

from t2t_torch.train.run_directory import RunDirectory
from t2t_torch.trial import run_record
from t2t_torch.trial.definition import Definition, load_definition
from t2t_torch.trial.run_record import changed_files, copy_of, keep_code


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
    keep_code(definition, RunDirectory(run))
    folder = run / "code"
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def test_a_directory_is_copied_without_what_is_no_code(tmp_path: Path) -> None:
    trial = _written(
        tmp_path / "mine",
        {
            "model_def.py": code(),
            "parts/layers.py": "",
            "parts/big.bin": "x" * (run_record.LARGEST + 1),
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
    monkeypatch.setattr(run_record, "MOST", 10_000)
    files = {"model_def.py": code(), "a.txt": "x" * 9_000, "z.txt": "x" * 10}
    trial = _written(tmp_path / "mine", files)
    result = _copied_files(load_definition(str(trial)), tmp_path / "run")
    assert result == ["mine/model_def.py", "mine/z.txt"]


def test_it_is_written_once_when_the_run_begins(tmp_path: Path) -> None:
    run = made_run(tmp_path / "made", code())
    file = tmp_path / "made" / "small.py"
    spec, before = str(file), file.read_text()
    assert changed_files(spec, run) == []
    file.write_text(before + "\n")
    keep_code(load_definition(spec), RunDirectory(run))
    assert (run / "code" / "small.py").read_text() == before
    assert changed_files(spec, run) == ["small.py"]
    (run / "task.json").unlink()  # the start came to nothing
    keep_code(load_definition(spec), RunDirectory(run))
    assert (run / "code" / "small.py").read_text() == before + "\n"


def test_a_module_of_a_package_is_not_copied(tmp_path: Path, monkeypatch: Any) -> None:
    _written(tmp_path, {"installed_trial/__init__.py": "", "installed_trial/one.py": code()})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    definition = load_definition("installed_trial.one:SmallTrial")
    keep_code(definition, RunDirectory(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    assert copy_of(definition.spec, tmp_path / "run") is None
