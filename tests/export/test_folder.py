"""Where an artifact is written, nothing of anyone else is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from t2t_torch.errors import ExportError
from t2t_torch.export.folder import remove_leftovers, staged_folder


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_comes_while_a_model_is_exported_stays(tmp_path: Path, overwrite: bool) -> None:
    there = tmp_path / "artifact"
    with (
        pytest.raises(ExportError, match="while the model was exported, something was written"),
        staged_folder(there, overwrite=overwrite) as scratch,
    ):
        (scratch / "whole" / "model.onnx").touch()
        there.mkdir()
        (there / "thesis.txt").write_text("years of work")
    assert (there / "thesis.txt").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_what_comes_at_the_last_moment_stays_too(tmp_path: Path, monkeypatch) -> None:
    there = tmp_path / "artifact"
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        there.mkdir()
        (there / "thesis.txt").write_text("years of work")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with (
        pytest.raises(ExportError, match=r"written to .*artifact: it stays as it is"),
        staged_folder(there, overwrite=False) as scratch,
    ):
        (scratch / "whole" / "model.onnx").touch()
    assert (there / "thesis.txt").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_what_a_killed_export_of_the_same_process_number_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".artifact.{os.getpid()}.incomplete"
    (left / "replaced").mkdir(parents=True)
    remove_leftovers(tmp_path / "artifact")
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_a_full_disk_is_told_with_the_folder_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(ExportError, match=rf"a file of {tmp_path}/made cannot be written: No space"),
        staged_folder(tmp_path / "made", overwrite=False),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())
