"""Each (step, split) stands in `metrics.jsonl` once, whatever was killed when."""

from __future__ import annotations

import json
import math
import multiprocessing

import pytest

from t2t_torch.run.metrics_file import MetricsFile


def written(folder):
    """(step, split, value) of each line; every line must be whole."""
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    reports = [json.loads(line) for line in lines]
    return [(one["step"], one["split"], one["loss"]) for one in reports]


def test_a_report_of_the_same_step_and_split_gives_way_to_the_newer_one(tmp_path):
    file = MetricsFile(tmp_path)
    file.add("train", 1, {"loss": 1.0})
    file.add("dev", 1, {"loss": 2.0})
    file.add("train", 2, {"loss": 3.0})
    MetricsFile(tmp_path).add("dev", 1, {"loss": 4.0})  # a process that starts again
    file.add("train", 3, {"loss": 5.0})
    file.add("train", 3, {"loss": 6.0})
    assert written(tmp_path) == [
        (1, "train", 1), (2, "train", 3), (1, "dev", 4), (3, "train", 6),
    ]  # fmt: skip


def test_what_is_not_finite_is_null(tmp_path):
    MetricsFile(tmp_path).add("train", 1, {"loss": math.nan, "norm": math.inf})
    (report,) = MetricsFile(tmp_path).read()
    assert (report["loss"], report["norm"]) == (None, None)


def test_a_line_that_was_half_written_harms_no_other(tmp_path):
    file = MetricsFile(tmp_path)
    file.add("train", 1, {"loss": 1.0})
    with file.path.open("ab") as stream:
        stream.write(b'{"step": 2, "split": "tra')  # killed
    file.add("train", 2, {"loss": 2.0})
    assert [(one["step"], one["loss"]) for one in file.read()] == [(1, 1.0), (2, 2.0)]
    file.trim(2)
    assert written(tmp_path) == [(1, "train", 1), (2, "train", 2)]


@pytest.mark.parametrize("tail", [b"", b'{"step": 5, "spl', b'"\n', b"[1]\n", b"\xff\xfe\n"])
def test_going_on_from_a_step_drops_what_lies_beyond_it(tmp_path, tail):
    file = MetricsFile(tmp_path)
    for step in range(1, 5):
        file.add("train", step, {"loss": float(step)})
    file.add("dev", 4, {"loss": 9.0})
    with file.path.open("ab") as stream:
        stream.write(tail)
    file.trim(2)
    assert written(tmp_path) == [(1, "train", 1), (2, "train", 2)]
    file.add("train", 3, {"loss": 7.0})
    assert written(tmp_path)[-1] == (3, "train", 7)


def test_a_file_with_nothing_to_drop_is_left_alone(tmp_path):
    file = MetricsFile(tmp_path)
    file.trim(0)
    assert not file.path.exists()
    file.add("train", 1, {"loss": 1.0})
    before = file.path.stat().st_ino
    file.trim(1)
    assert file.path.stat().st_ino == before


def test_a_kill_while_it_is_trimmed_leaves_the_old_file(tmp_path, monkeypatch):
    file = MetricsFile(tmp_path)
    for step in (1, 2):
        file.add("train", step, {"loss": float(step)})

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        file.trim(1)
    assert written(tmp_path) == [(1, "train", 1), (2, "train", 2)]


def _add_many(folder, split):
    for step in range(60):
        MetricsFile(folder).add(split, step % 40, {"loss": float(step)})


def test_processes_that_share_the_file_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    splits = ("train", "dev", "test")
    workers = [context.Process(target=_add_many, args=(tmp_path, split)) for split in splits]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # The first 20 steps were told twice: the later report holds.
    expected = {(s, split, s + 40.0 if s < 20 else s) for s in range(40) for split in splits}
    assert len(written(tmp_path)) == len(expected)
    assert set(written(tmp_path)) == expected
