"""Opening hashes what has changed since it was last hashed, and nothing else."""

from __future__ import annotations

import json
import os
import stat

import pytest

from t2t_torch.data import manifest
from t2t_torch.data import manifest as manifest_module
from t2t_torch.data.generate import generate_data
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

from .counting import counting

LONG_AGO = 1_000_000_000


@pytest.fixture
def data(tmp_path):
    """A data set whose files were written long ago."""
    generate_data(counting(), tmp_path / "data", tmp_path / "raw", progress=False)
    for path in (tmp_path / "data").glob("*.arrow"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return tmp_path / "data"


@pytest.fixture
def hashed(monkeypatch):
    """The names of the shards that are hashed."""
    names: list[str] = []
    sha256_of = manifest_module.sha256_of

    def noted(path):
        if path.suffix == ".arrow":
            names.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr(manifest_module, "sha256_of", noted)
    return names


def open_train(folder):
    return Shards.open(folder, "counting", Split.TRAIN)


def test_what_was_verified_is_not_hashed_again(data, hashed):
    open_train(data)
    assert len(hashed) == 3
    open_train(data)
    assert len(hashed) == 3
    Shards.open(data, "counting", Split.EVAL)
    assert len(hashed) == 4, "the other split is"


def test_what_datagen_wrote_a_while_ago_is_not_hashed(tmp_path, monkeypatch, hashed):
    monkeypatch.setattr(manifest, "_TICK_NANOSECONDS", 0)
    generate_data(counting(), tmp_path / "data", tmp_path / "raw", progress=False)
    open_train(tmp_path / "data")
    assert hashed == []


def test_what_was_written_a_moment_ago_is_hashed_once_more(tmp_path, monkeypatch, hashed):
    hour = 3600 * 10**9  # so long no disk takes to write them
    monkeypatch.setattr(manifest, "_TICK_NANOSECONDS", hour)
    generate_data(counting(), tmp_path / "data", tmp_path / "raw", progress=False)
    open_train(tmp_path / "data")
    assert len(hashed) == 3, "it may have been changed again in the same tick of the clock"


@pytest.mark.parametrize("how", ["time", "size", "inode", "time put back"])
def test_what_changed_is_hashed_again_and_found(data, hashed, how):
    open_train(data)
    hashed.clear()
    path = data / "counting-train-00001-of-00003.arrow"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    if how == "size":
        path.write_bytes(content + b"x")
    elif how.startswith("time"):
        path.write_bytes(content)
    else:
        (data / "other").write_bytes(content)
        (data / "other").replace(path)
    if how != "time":
        os.utime(path, (LONG_AGO, LONG_AGO))
    with pytest.raises(DataError, match=f"{path.name}: expected"):
        open_train(data)
    assert hashed == ([path.name] if how != "size" else [])


def test_a_thorough_verification_trusts_nothing(data, hashed):
    opened = open_train(data)
    path = data / "counting-train-00001-of-00003.arrow"
    with path.open("r+b") as file:  # as a failing disk does
        file.seek(path.stat().st_size // 2)
        file.write(b"?")
    os.utime(path, (LONG_AGO, LONG_AGO))
    notes = data / ".counting.verified.json"  # a disk leaves also the time of change
    noted = json.loads(notes.read_text())
    noted[path.name][-1] = path.stat().st_ctime_ns
    notes.write_text(json.dumps(noted))
    open_train(data)
    with pytest.raises(DataError, match=f"{path.name}: expected sha256"):
        opened.manifest.verify(data, thorough=True)


def test_shards_that_are_gone_are_forgotten(data, tmp_path):
    fewer = counting(shards={Split.TRAIN: 1, Split.EVAL: 1})
    generate_data(fewer, data, tmp_path / "raw", overwrite=True, progress=False)
    notes = json.loads((data / ".counting.verified.json").read_text())
    assert sorted(notes) == sorted(path.name for path in data.glob("*.arrow"))


def test_datagen_run_again_hashes_everything(data, tmp_path, hashed):
    open_train(data)
    hashed.clear()
    generate_data(counting(), data, tmp_path / "raw", progress=False)
    assert len(hashed) == 4


@pytest.mark.parametrize("content", ["", "[]", '{"counting-train-00000-of-00003.arrow": 1}'])
def test_notes_that_cannot_be_read_are_made_anew(data, hashed, content):
    (data / ".counting.verified.json").write_text(content)
    open_train(data)
    assert len(hashed) == 3
    open_train(data)
    assert len(hashed) == 3


def test_a_folder_that_cannot_be_written_to_is_opened_all_the_same(data, hashed, monkeypatch):
    def refuse(path, text):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(manifest, "write_text", refuse)  # root may write anywhere
    (data / ".counting.verified.json").unlink()
    data.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert open_train(data).num_rows == 100
        assert open_train(data).num_rows == 100
    finally:
        data.chmod(stat.S_IRWXU)
    assert len(hashed) == 6
