"""What a run reports, and what TensorBoard finds of it."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.summary.writer import event_file_writer

from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.train.summary import Summary

REPORT = {"loss": 2.5, "grad_norm": 0.7}


@pytest.fixture(autouse=True)
def file_numbers_from_zero(monkeypatch):
    """Files of one process and second are read in the order of their names: 10 before 9."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def events(folder):
    return EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0}).Reload()


def test_a_report_is_a_line_of_json_and_a_point_in_tensorboard(tmp_path):
    summary = Summary(tmp_path, leads=True)
    summary.write("train", 3, REPORT)
    summary.write("dev", 3, {"loss": 1.5, "rouge": math.nan})
    summary.close()
    train, dev = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (train["step"], train["split"], train["loss"]) == (3, "train", 2.5)
    assert (dev["loss"], dev["rouge"]) == (1.5, None)
    for folder, loss in ((tmp_path, 2.5), (tmp_path / "eval", 1.5)):
        points = events(folder).Scalars("loss")
        assert [(point.step, point.value) for point in points] == [(3, loss)]


def test_tensorboard_has_short_names_that_overlay_and_the_file_has_the_full_ones(tmp_path):
    for problem in ("a", "b", "both"):
        (tmp_path / problem).mkdir()
    for problem in ("a", "b"):
        summary = Summary(tmp_path / problem, leads=True)
        summary.write("dev", 3, {"loss": 1.0, f"metrics-{problem}/targets/accuracy": 0.5})
        summary.close()
        assert events(tmp_path / problem / "eval").Scalars("accuracy")[0].value == 0.5
        (line,) = (tmp_path / problem / "metrics.jsonl").read_text().splitlines()
        assert json.loads(line)[f"metrics-{problem}/targets/accuracy"] == 0.5
    summary = Summary(tmp_path / "both", leads=True)
    summary.write("dev", 3, {f"metrics-{one}/targets/accuracy": 0.5 for one in "ab"})
    summary.close()
    assert events(tmp_path / "both" / "eval").Tags()["scalars"] == ["a/accuracy", "b/accuracy"]


def test_a_resumed_run_takes_back_the_reports_that_it_repeats(tmp_path):
    for start, value in ((0, 1.0), (2, 2.0)):
        summary = Summary(tmp_path, leads=True)
        summary.start(start)
        for step in range(start + 1, 5):
            summary.write("train", step, {"loss": value})
        summary.close()
    expected = [(1, 1), (2, 1), (3, 2), (4, 2)]
    points = events(tmp_path).Scalars("loss")
    assert [(point.step, point.value) for point in points] == expected
    reports = MetricsFile(tmp_path).read()
    assert [(report["step"], report["loss"]) for report in reports] == expected


def test_an_evaluation_that_is_made_again_at_the_resumed_step_is_one_point(tmp_path):
    for start, loss in ((0, 2.0), (4, 1.0)):
        summary = Summary(tmp_path, leads=True)
        summary.start(start)
        for step in (2, 4):
            if step > start:
                summary.write("train", step, {"loss": loss})
            if step >= start:
                summary.write("dev", step, {"loss": loss})
        summary.write("dev", 6, {"loss": loss})
        summary.close()
    for folder, expected in (("", [(2, 2.0), (4, 2.0)]), ("eval", [(2, 2.0), (4, 1.0), (6, 1.0)])):
        points = events(tmp_path / folder).Scalars("loss")
        assert [(point.step, point.value) for point in points] == expected


def test_an_evaluation_after_the_resumed_step_takes_nothing_of_it_back(tmp_path):
    for start, steps in ((0, (2, 4, 6)), (4, (6, 8))):
        summary = Summary(tmp_path, leads=True)
        summary.start(start)
        for step in steps:
            summary.write("dev", step, {"loss": 1.0})
        summary.close()
    points = [point.step for point in events(tmp_path / "eval").Scalars("loss")]
    assert points == [2, 4, 6, 8]


def test_processes_that_do_not_lead_write_nothing(tmp_path):
    figures = pytest.importorskip("matplotlib.figure")
    summary = Summary(tmp_path, leads=False)
    summary.start(0)
    summary.write("train", 1, REPORT)
    summary.scalars(REPORT, 1)
    summary.text("tag", "text", 1)
    summary.histogram("tag", torch.ones(2), 1)
    summary.figure("tag", figures.Figure(), 1)
    summary.hparams({"a": 1})
    summary.close()
    assert list(tmp_path.iterdir()) == []


def test_texts_are_in_tensorboard(tmp_path):
    summary = Summary(tmp_path, leads=True)
    summary.text("decodes", "ein Hund", 7)
    summary.close()
    (result,) = events(tmp_path / "eval").Tensors("decodes/text_summary")
    assert (result.step, result.tensor_proto.string_val[0]) == (7, b"ein Hund")


def test_a_histogram_counts_finite_numbers_only(tmp_path):
    summary = Summary(tmp_path, leads=True)
    summary.histogram("w", torch.tensor([[1.0, 2.0], [math.nan, math.inf]]), 7)
    summary.histogram("bad", torch.full((3,), math.nan), 7)
    summary.close()
    (result,) = events(tmp_path).Histograms("w")
    value = result.histogram_value
    assert (result.step, value.num, value.sum, value.min, value.max) == (7, 2, 3, 1, 2)
    assert events(tmp_path).Tags()["histograms"] == ["w"]


def test_a_figure_is_in_tensorboard_by_step_and_the_newest_in_a_file(tmp_path):
    figures = pytest.importorskip("matplotlib.figure")
    summary = Summary(tmp_path, leads=True)
    for step, color in ((1, "red"), (2, "blue")):
        figure = figures.Figure(figsize=(1, 0.5), facecolor=color)
        summary.figure("attention/layer", figure, step)
    summary.close()
    result = events(tmp_path / "eval").Images("attention/layer")
    assert [(one.step, one.width, one.height) for one in result] == [(1, 100, 50), (2, 100, 50)]
    from matplotlib.image import imread

    pixels = imread(tmp_path / "figures" / "attention" / "layer.png")
    np.testing.assert_allclose(pixels[0, 0, :3], [0, 0, 1])
    assert [path.name for path in (tmp_path / "figures" / "attention").iterdir()] == ["layer.png"]


def test_hparams_are_on_tensorboards_page_without_a_run_of_their_own(tmp_path):
    summary = Summary(tmp_path, leads=True)
    summary.hparams({"size": 64, "rate": 0.5, "on": True, "name": "adam", "many": (1, 2)})
    summary.close()
    assert [path.is_dir() for path in tmp_path.iterdir()] == [False]
    tag = "_hparams_/session_start_info"
    metadata = events(tmp_path).SummaryMetadata(tag)
    assert isinstance(metadata, summary_pb2.SummaryMetadata)
    content = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)
    result = content.session_start_info.hparams
    assert result["size"].number_value == 64
    assert result["rate"].number_value == 0.5
    assert result["on"].string_value == "True"
    assert result["name"].string_value == "adam"
    assert result["many"].string_value == "(1, 2)"


def test_a_disk_that_fails_is_told_of_once_and_ends_nothing(tmp_path, capsys, monkeypatch):
    summary = Summary(tmp_path, leads=True)

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "add", fail)
        patch.setattr("torch.utils.tensorboard.SummaryWriter.flush", fail)
        summary.write("train", 1, REPORT)
        summary.write("train", 2, REPORT)
    printed = capsys.readouterr().err
    assert printed.count("warning: ") == 1
    assert "No space left on device" in printed
    summary.write("train", 3, REPORT)
    summary.close()
    assert [report["step"] for report in MetricsFile(tmp_path).read()] == [3]
    assert 3 in [point.step for point in events(tmp_path).Scalars("loss")]


def test_event_files_that_cannot_be_begun_end_nothing(tmp_path, capsys, monkeypatch):
    def full(self, folder, step):
        raise OSError(28, "No space left on device")

    summary = Summary(tmp_path, leads=True)
    monkeypatch.setattr(Summary, "_writer", full)
    summary.write("train", 1, {"loss": 2.0})
    summary.text("a", "b", 1)
    assert capsys.readouterr().err.count("cannot be written: [Errno 28]") == 1
    assert '"loss": 2.0' in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_a_full_disk_is_one_warning_and_no_traceback(tmp_path):
    code = f"""
import pathlib, resource, signal
from t2t_torch.train.summary import Summary
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
summary = Summary(pathlib.Path({str(tmp_path)!r}), leads=True)
summary.write("train", 1, {{"loss": 1.0}})
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
for step in range(2, 40):
    summary.write("train", step, {{"loss": 1.0}})
summary.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("warning: ") and "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
