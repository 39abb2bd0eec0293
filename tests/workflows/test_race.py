"""A race of models: its plan, its leaderboard, interruptions, and the run that it leaves."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.reports.slices import wilson_interval
from t2t_torch.run.directory import training_lock
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.signals import StopRequest
from t2t_torch.train.recommendation import recommend, recommend_several
from t2t_torch.workflows import leaderboard, race
from t2t_torch.workflows.leaderboard import Leaderboard, Standing
from t2t_torch.workflows.race import Candidate, race_folder
from t2t_torch.workflows.train_settings import TrainSettings

PORTFOLIO = (
    "text_cnn/text_cnn_tiny",
    "bilstm_attention_classifier/bilstm_attention_classifier_tiny",
)
CANDIDATES = [
    Candidate(str(n), {}, "accuracy", 1000, seconds) for n, seconds in enumerate((5, 60, 90))
]


@pytest.fixture
def data_dir(own_registry, tmp_path, monkeypatch):
    """Data of opinions; the portfolio of its kind is of tiny models."""
    draw = random.Random(1)
    rows = ["text,label"]
    for n in range(240):
        good = n % 2
        mood = draw.choice(("great", "fine") if good ^ (draw.random() < 0.1) else ("awful", "poor"))
        rows.append(
            f"the {draw.choice(('film', 'book'))} {n} was {mood},{'bad good'.split()[good]}"
        )
    (tmp_path / "moods.csv").write_text("\n".join(rows))
    monkeypatch.setattr(Text2ClassProblem, "portfolio", PORTFOLIO)
    t2t.generate(t2t.declare(tmp_path / "moods.csv"), tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.quick
@pytest.mark.parametrize("seconds", [20, 100, 1000])
def test_the_plan_fits_into_the_time(seconds):
    planned = race._capped(CANDIDATES, seconds + 3 * race._START_SECONDS, 2)
    assert race._makespan(sorted(one.seconds for one in planned), 2) <= seconds + 19
    assert planned[0].planned_steps == 1000  # a cheap one is never shortened for the others
    assert (planned[2].planned_steps < 1000) is (seconds < 100)
    assert all(one.settings["local_eval_frequency"] * 8 <= one.planned_steps for one in planned)


@pytest.mark.quick
def test_an_interval_is_wilsons_and_equal_runs_are_ranked_by_time():
    low, high = wilson_interval(0.9, 100)
    assert (round(low, 4), round(high, 4)) == (0.8256, 0.9448)  # statsmodels, method="wilson"
    assert leaderboard.noise_of_gain(1.0, 48) == pytest.approx(math.sqrt(0.02 / 2 / 48))
    name = "metrics-x/targets/accuracy"
    several = [
        Standing("slow", name, 0.9, seconds=9),
        Standing("none"),
        Standing("fast", name, 0.9),
    ]
    assert [one.name for one in leaderboard.ranked(several)] == ["fast", "slow", "none"]
    losses = [Standing("a", "loss", 2.0), Standing("b", "loss", 1.0)]
    assert leaderboard.ranked(losses)[0].name == "b"


def test_the_time_of_a_step_is_measured_without_a_trace(data_dir, tmp_path):
    chosen = recommend("moods", data_dir)
    settings = {"problem": "moods", "data_dir": str(data_dir)}
    settings |= {"model": chosen.model, "hparams_set": chosen.hparams_set}
    before = sorted(tmp_path.rglob("*"))
    each = race._seconds_of_a_step(settings, chosen.train_steps)
    assert 0 < each < 5
    assert float(f"{each:.2g}") == pytest.approx(each)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_race_leaves_the_best_run_and_a_leaderboard(data_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(race, "_MANY_ROWS", 0)
    run = tmp_path / "run"
    model = t2t.train("moods", "auto", "auto", data_dir=data_dir, output_dir=run, train_seconds=30)
    assert model(["the book was great"]) == ["good"]
    board = Leaderboard.read(race_folder(run))
    sets = {one.hparams_set for one in recommend_several("moods", data_dir)}
    assert {one.name for one in board.standings} == sets and len(sets) == 3
    values = [one.value for one in board.standings]
    assert values == sorted(values, reverse=True)
    # The rows that were held out for dev are trained on in the end.
    best = board.standings[0].name
    assert run.resolve().name == board.run.name == f"{best}.all"
    assert json.loads((run / "hparams.json").read_text())["fold"] == "all"
    assert not [one for one in MetricsFile(run).read() if one["split"] == "dev"]
    assert all(one.megabytes > 0 and one.milliseconds > 0 for one in board.standings)
    assert "dev accuracy" in capsys.readouterr().out
    # A metric that the problem does not have, as of imbalanced classes.
    f1 = leaderboard._value_on_dev(
        [race_folder(run) / best], "metrics-moods/targets/f1_macro", data_dir
    )
    assert f1 == pytest.approx(board.standings[0].value, abs=0.05)
    # The command once more trains nothing, and measures nothing on rows that were trained on.
    t2t.train(data_dir=data_dir, output_dir=run)
    assert not [one for one in MetricsFile(run).read() if one["split"] == "dev"]
    # The link was lost: it is made again, from another working directory, and nothing is trained.
    run.unlink()
    run.symlink_to("nowhere")
    monkeypatch.chdir(tmp_path / "data")
    t2t.train("moods", "auto", "auto", data_dir=".", output_dir="../run", train_seconds=30)
    again = Leaderboard.read(race_folder(run))
    assert [(s.name, s.value, s.seconds) for s in again.standings] == [
        (s.name, s.value, s.seconds) for s in board.standings
    ]
    # The run is like any other, also where the folder was moved.
    (tmp_path / "moved").mkdir()
    for one in (run, race_folder(run)):
        one.rename(tmp_path / "moved" / one.name)
    assert (tmp_path / "moved" / "run").resolve().name == f"{best}.all"
    metrics = t2t.evaluate(tmp_path / "moved" / "run.race" / best, data_dir)
    assert metrics["accuracy"] == pytest.approx(board.standings[0].value)


def test_a_portfolio_has_the_recommended_model_again_with_another_seed(data_dir, monkeypatch):
    portfolio = ("linear/linear_tiny", "again")
    monkeypatch.setattr(type(registry.problem("moods")), "portfolio", portfolio)
    made = race.Race("moods", data_dir, data_dir, minutes=1, settings={}, stop=StopRequest())
    chosen = recommend_several("moods", data_dir)
    assert [one.further_seed for one in chosen] == [0, 0, 1]
    first, _, again = (made._candidate(one, 1.0) for one in chosen)
    assert again.name == f"{first.name}.seed2"
    assert again.settings == first.settings | {"random_seed": 2}  # 1 is that of the first
    assert again.train_steps == 2 * first.train_steps
    assert race._kept(3, 2) == 2 and race._kept(2, 2) == 2 and race._kept(9, 2) == 5


@pytest.mark.quick
def test_a_plan_that_is_continued_keeps_its_minutes(tmp_path, capsys):
    slow = {"name": "a", "settings": {}, "metric": "accuracy", "train_steps": 9, "seconds": 50.0}
    (tmp_path / race.PLAN).write_text(json.dumps({"minutes": 10.0, "candidates": [slow]}))
    made = race.Race("x", tmp_path, tmp_path, minutes=1.0, settings={}, stop=StopRequest())
    (candidate,) = made._planned()
    assert not made._is_slow(candidate)  # of ten minutes; it would be of one
    assert "planned for 10 minutes" in capsys.readouterr().err


@pytest.mark.quick
def test_a_metric_that_is_not_defined_is_no_value(tmp_path):
    file = MetricsFile(tmp_path)
    for step, value in ((1, math.nan), (2, 0.3), (3, math.nan)):
        file.add("dev", step, {"metrics-x/targets/pearson": value, "loss": 1.0})
    assert leaderboard.standing_of(tmp_path, "pearson").step == 2
    board = Leaderboard(tmp_path, (Standing("a", "metrics-x/targets/pearson", None),))
    assert list(board.lines())[1].split()[:2] == ["a", "0"]


@pytest.mark.slow
def test_candidates_that_a_small_dev_split_does_not_tell_apart_have_folds(data_dir, tmp_path):
    run = tmp_path / "run"
    t2t.train("moods", "auto", "auto", data_dir=data_dir, output_dir=run, train_seconds=90)
    board = Leaderboard.read(race_folder(run)).standings
    close = [one for one in board if one.folds]
    assert len(close) > 1 and close == list(board[: len(close)])
    assert {one.rows for one in close} == {192}
    assert json.loads((race_folder(run) / race.PLAN).read_text())["folds"]
    reports = MetricsFile(race_folder(run) / f"{close[0].name}.fold1").read()
    assert [one for one in reports if one["split"] == "dev"]


def test_a_folder_that_is_no_run_and_a_second_race_are_refused(data_dir, tmp_path):
    settings = {"data_dir": data_dir, "output_dir": tmp_path / "run"}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists, and is no run"):
        t2t.train("moods", "auto", "auto", **settings)
    (tmp_path / "run" / "mine.txt").unlink()
    race_folder(tmp_path / "run").mkdir()
    lock = training_lock(race_folder(tmp_path / "run") / "race.lock")
    with lock, pytest.raises(CheckpointError, match="another training"):
        t2t.train("moods", "auto", "auto", **settings)


def test_steps_that_models_do_not_share_are_those_of_the_recommended_one(data_dir, tmp_path):
    run = tmp_path / "run"
    t2t.train("moods", "auto", "auto", data_dir=data_dir, output_dir=run, train_steps=3)
    assert not race_folder(run).exists()
    assert json.loads((run / "task.json").read_text())["model"] == "fasttext"
    auto = {"problem": "moods", "model": "auto", "hparams_set": "auto"}
    places = {"data_dir": str(data_dir), "output_dir": str(tmp_path / "new")}
    assert race.races(TrainSettings(**auto, **places), ())
    assert not race.races(TrainSettings(**auto, **places, hparams="fold=1/5"), ())


RACE = """
import sys
import t2t_torch as t2t
from t2t_torch.problem_types.classification import Text2ClassProblem
Text2ClassProblem.portfolio = {portfolio}
t2t.train("moods", "auto", "auto", data_dir="data", output_dir=sys.argv[1], train_seconds=60)
"""


@pytest.mark.slow
def test_a_killed_race_ends_with_the_same_leaderboard_and_weights(data_dir, tmp_path):
    script = tmp_path / "race.py"
    script.write_text(RACE.format(portfolio=PORTFOLIO))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script)]
    subprocess.run(
        [*command, "whole"], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    plan = json.loads((tmp_path / "whole.race" / race.PLAN).read_text())
    parts = tmp_path / "parts.race"
    parts.mkdir()
    (parts / race.PLAN).write_text(json.dumps(plan | {"limits": {}}))
    draw = random.Random(3)
    for _ in range(8):
        process = subprocess.Popen(
            [*command, "parts"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
        )
        time.sleep(draw.uniform(2, 9))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(
        [*command, "parts"], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    one, other = (Leaderboard.read(tmp_path / f"{name}.race") for name in ("whole", "parts"))
    assert [(s.name, s.value, s.step) for s in one.standings] == [
        (s.name, s.value, s.step) for s in other.standings
    ]
    assert one.members == other.members
    best = one.standings[0]
    file = f"{one.run.name}/ckpt-{best.step}/model.safetensors"
    weights = [(tmp_path / f"{name}.race" / file).read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]
    assert not math.isnan(best.value) and registry.problem("moods")
