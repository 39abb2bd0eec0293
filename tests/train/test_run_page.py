"""The page of a run: made of its files, whole at any time, whatever the files hold."""

from __future__ import annotations

import json
import math
import re
import shutil
import threading
import time
from html.parser import HTMLParser

import pytest

from t2t_torch.hparam import HParams
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.train.experiment import Experiment, chosen_hooks
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.run_page import DecodeSample, RunReport, run_page, show_samples, starts_of
from t2t_torch.train.summary import Summary

EVIL = "<script>alert(1)</script>\x1b"
TRAIN = {"loss": 2.0, "grad_norm": 1.0, "tokens_per_second": 100.0, "learning_rate": 0.1}


class Reader(HTMLParser):
    """Notes elements and visible text by section; complains of what is left open."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.section = [], [], ""
        self.text = {}

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag in ("section", "header"):
            self.section = dict(attrs).get("id", tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text[self.section] = self.text.get(self.section, "") + data + " "


def read(page):
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return reader


@pytest.fixture
def folder(tmp_path):
    """A run of which nothing is there yet but what it is."""
    record = TaskRecord(problem="a_problem", model="a_model", hparams_set="basic_params1")
    RunDirectory(tmp_path).begin(record, HParams())
    return tmp_path


def test_a_run_that_has_reported_nothing_has_a_page(folder):
    result = read(run_page(folder))
    assert "a_model on a_problem" in result.text["header"]
    assert "No report yet." in result.text["curves"]
    assert "Checkpoints kept, by step: none." in result.text["evaluations"]


def test_each_metric_has_a_chart_and_each_evaluation_its_best(folder):
    metrics = MetricsFile(folder)
    for step in (10, 20, 30):
        metrics.add("train", step, {**TRAIN, "loss": 5.0 - step / 10})
    for step, loss, accuracy in ((10, 3.0, 0.5), (20, 2.0, 0.75), (30, 2.5, 0.7)):
        accuracy_name = "metrics-a_problem/targets/accuracy"
        metrics.add("dev", step, {"loss": loss, accuracy_name: accuracy, "of_nobody": 1.0})
    result = read(run_page(folder))
    assert result.tags.count("svg") == len({*TRAIN, "accuracy", "of_nobody"})
    table = " ".join(result.text["evaluations"].split())
    assert "dev loss 2.5 30 2 20" in table, "the least loss is the best"
    assert "dev accuracy 0.7 30 0.75 20" in table, "the greatest accuracy"
    assert "dev of_nobody 1 30 Checkpoints" in table, "of another nobody knows"
    assert "The loss of dev was 2 at step 20 and is 2.5 now." in result.text["header"] + str(
        result.text
    )


def test_a_loss_that_is_not_finite_is_in_the_table_and_above_it(folder):
    metrics, rare = MetricsFile(folder), "metrics-a_problem/targets/f1_per_label/rare"
    for step, loss in ((10, 3.0), (20, math.nan)):
        metrics.add("dev", step, {"loss": loss, "always": math.inf, rare: math.nan})
    text = " ".join(str(read(run_page(folder)).text["evaluations"]).split())
    assert "dev loss nan 20 3 10" in text and "dev always nan 20" in text and "rare" not in text
    assert "The loss of dev is not finite at step 20." in run_page(folder)


def test_steps_that_were_skipped_and_checkpoints_that_failed_are_told(folder):
    metrics = MetricsFile(folder)
    metrics.add("train", 10, {**TRAIN, "skipped_steps": 0.0, "checkpoint_failures": 0.0})
    result = read(run_page(folder))
    assert "moved nothing" not in str(result.text)
    assert result.tags.count("svg") == len(TRAIN)
    metrics.add("train", 20, {**TRAIN, "skipped_steps": 3.0, "checkpoint_failures": 1.0})
    result = read(run_page(folder))
    assert "3 steps moved nothing" in str(result.text)
    assert "1 checkpoint could not be written" in str(result.text)
    assert result.tags.count("svg") == len(TRAIN) + 2


def test_hparams_that_differ_from_the_set_are_told_with_their_meaning(folder):
    text = json.loads((folder / "hparams.json").read_text())
    text["hidden_size"] = 99
    (folder / "hparams.json").write_text(json.dumps(text))
    expected = " ".join(read(run_page(folder)).text["hparams"].split())
    assert "hidden_size 99 64 H, the width of every layer's output." in expected
    assert "num_hidden_layers" not in expected


def test_a_set_of_a_folder_that_is_gone_is_no_error(folder):
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**task, "hparams_set": "of_my_own"}))
    assert "of_my_own" in read(run_page(folder)).text["hparams"]


def test_nothing_that_a_run_holds_becomes_markup(folder):
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**task, "problem": EVIL, "model": EVIL}))
    metrics = MetricsFile(folder)
    metrics.add(EVIL, 1, {EVIL: 1.0, "loss": 1.0})
    summary = Summary(folder, leads=True)
    show_samples(summary, folder, [DecodeSample(EVIL, EVIL, EVIL)], 1)
    summary.close()
    page = run_page(folder)
    result = read(page)
    assert "script" not in result.tags
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", page)
    assert result.text["decodes"].count("<script>alert(1)</script>") == 3


def test_figures_stand_in_the_page_itself(folder):
    figures = pytest.importorskip("matplotlib.figure")
    summary = Summary(folder, leads=True)
    summary.figure("attention/one", figures.Figure(figsize=(1, 1)), 1)
    summary.close()
    page = run_page(folder)
    assert 'src="data:image/png;base64,' in page
    assert "http" not in re.sub('http-equiv="|http://www.w3.org', "", page)


@pytest.mark.slow
def test_a_long_run_has_a_small_page(folder):
    rows = [{"step": step, "split": "train", "time": 0, **TRAIN} for step in range(20_000)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(lines)
    assert len(run_page(folder)) < 60_000


def run(make_estimator, task, **config):
    settings = {"train_steps": 4, "local_eval_frequency": 2, "log_step_count_steps": 1}
    estimator = make_estimator(task=task, **{**settings, **config})
    estimator.hooks = [RunReport()]
    Experiment(estimator).run("continuous_train_and_eval")
    estimator.close()
    return estimator.directory.path


def test_a_run_writes_its_page_and_notes_each_start(make_estimator, make_task):
    folder = run(make_estimator, make_task())
    run(make_estimator, make_task(), train_steps=6)
    assert [start["step"] for start in starts_of(folder)] == [0, 4]
    result = read((folder / "report.html").read_text("utf-8"))
    header = " ".join(result.text["header"].split())
    assert "6 steps of 6" in header
    assert "1 restarts" in header
    assert "Dotted lines" in result.text["curves"]
    assert "Best checkpoint: ckpt-" in result.text["evaluations"]
    assert "float32" in result.text["starts"]
    assert "batch_size 256 4096" in " ".join(result.text["hparams"].split())


@pytest.mark.parametrize("unit", ["tokens", "examples"])
def test_a_page_counts_in_what_the_loss_is_a_mean_over(make_estimator, make_task, unit):
    task = make_task()
    task.counted = unit
    result = read((run(make_estimator, task) / "report.html").read_text("utf-8"))
    assert f"{unit} per second" in " ".join(result.text["header"].split())
    assert f"{unit} per second" in result.text["curves"]
    assert result.text["curves"].count(" per second") == 2  # and the steps


def test_the_page_is_there_while_the_run_goes_on(make_estimator, make_task, monkeypatch):
    estimator = make_estimator(task=make_task(), train_steps=3)
    page = estimator.directory.path / "report.html"
    clock = [0.0]
    monkeypatch.setattr("t2t_torch.train.run_page.time.monotonic", lambda: clock[0])
    estimator.hooks = [RunReport()]
    estimator.begin()
    assert page.exists(), "from the start"
    page.unlink()
    clock[0] = 59.0
    estimator.train(1)
    assert not page.exists(), "it costs nothing at most steps"
    clock[0] = 61.0
    estimator.train(2)
    assert page.exists(), "each minute"


def test_a_page_verifies_no_checkpoint(make_estimator, make_task, monkeypatch):
    folder = run(make_estimator, make_task())

    def refuse(checkpoint):
        raise AssertionError(f"{checkpoint.path} is read")

    monkeypatch.setattr(Checkpoint, "verify", refuse)
    content = json.loads((folder / "best.json").read_text())
    best = min(content["values"], key=lambda step: content["values"][step])
    result = read(run_page(folder))
    assert f"Best checkpoint: ckpt-{best}." in result.text["evaluations"]
    shutil.rmtree(folder / f"ckpt-{best}")
    (other,) = set(content["values"]) - {best}
    assert f"Best checkpoint: ckpt-{other}." in read(run_page(folder)).text["evaluations"]


def test_a_page_says_that_it_is_not_known_which_checkpoint_is_best(folder):
    (folder / "best.json").write_text("{")
    assert "best.json, which says which checkpoint is best, is damaged" in str(
        read(run_page(folder)).text["evaluations"]
    )


@pytest.mark.slow
def test_pages_are_written_beside_a_thread_that_saves_and_deletes(
    make_estimator, make_task, capsys, monkeypatch
):
    """Verifying takes as long here as it does of a larger model: a page that did would fail."""
    estimator = make_estimator(task=make_task(), keep_checkpoint_max=1)
    estimator.train(1)
    checkpoints, hook = estimator.checkpoints, RunReport()
    snapshot = estimator.run.snapshot(estimator.state)
    verify = Checkpoint.verify

    def verify_slowly(checkpoint):
        time.sleep(0.05)
        verify(checkpoint)

    monkeypatch.setattr(Checkpoint, "verify", verify_slowly)
    ended = threading.Event()

    def save():
        try:
            for step in range(2, 30):
                snapshot.state.step = step
                checkpoints.rate(step, 1.0 / step, lower_is_better=True)
                checkpoints.save(snapshot)
        finally:
            ended.set()

    thread = threading.Thread(target=save)
    thread.start()
    pages = 0
    while not ended.is_set() or not pages:
        hook.end(estimator)
        pages += 1
    thread.join()
    assert [one.step for one in checkpoints.list()] == [29]
    assert "cannot be written" not in capsys.readouterr().err


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("task.json", "{"),
        ("task.json", "{}"),
        ("hparams.json", "[]"),
        ("starts.jsonl", '{"step": 3}\n'),
        ("metrics.jsonl", '{"step": 1, "split": "dev", "loss": "low"}\n'),
        ("metrics.jsonl", '{"step": 1, "split": "dev", "loss": [1]}\n'),
    ],
)
def test_a_damaged_file_of_a_run_is_warned_of_once_and_training_goes_on(
    make_estimator, make_task, capsys, file, content
):
    estimator = make_estimator(task=make_task(), train_steps=3)
    hook = RunReport()
    estimator.hooks = [hook]
    estimator.begin()
    (estimator.directory.path / file).write_text(content)
    for _ in range(3):
        hook.end(estimator)
    estimator.train(3)
    assert estimator.state.step == 3
    assert capsys.readouterr().err.count("report.html cannot be written") == 1


def test_a_page_that_cannot_be_written_does_not_end_a_run(
    make_estimator, make_task, monkeypatch, capsys
):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("t2t_torch.train.run_page.run_page", fail)
    monkeypatch.setattr("t2t_torch.train.run_page.add_start", fail)
    folder = run(make_estimator, make_task())
    assert "report.html cannot be written" in capsys.readouterr().err
    assert MetricsFile(folder).read()[-1]["step"] == 4
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("config", "hparams", "expected"),
    [
        ({}, {}, []),
        ({"profile": True}, {}, ["Profile"]),
        ({"hooks": ("profile",), "profile": True}, {}, ["Profile"]),
        ({}, {"summarize_vars": True}, ["Histograms"]),
        (
            {"hooks": ("histograms", "profile")},
            {"summarize_grads": True},
            ["Histograms", "Profile"],
        ),
    ],
)
def test_flags_and_hparams_choose_each_hook_once_and_the_page_last(config, hparams, expected):
    hooks = chosen_hooks(RunConfig(**config), HParams(**hparams))
    assert [type(hook).__name__ for hook in hooks] == [*expected, "Predictions", "RunReport"]
