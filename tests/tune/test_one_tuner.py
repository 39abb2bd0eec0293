"""One tuner in this process: what it sees of others, what it waits for, what it says."""

from __future__ import annotations

import fcntl
import json
import time

import pytest

pytest.importorskip("optuna")

from searching import PATIENCE_SECONDS

from t2t_torch.search_space import Double, Space
from t2t_torch.tune.search_plan import SearchPlan
from t2t_torch.tune.shared_search import SharedSearch
from t2t_torch.tune.study import Heartbeat, TrialHistory, open_storage
from t2t_torch.tune.tuner import Tuner

SLEEPS = ("sh", "-c", "exec sleep 600", "training")
ENDS = ("sh", "-c", "exit 0", "training")


class Anything:
    """What is trained is of no matter here."""

    name = "anything"

    def arguments(self, hparams):
        return []

    def identity(self):
        return {}


class Stop:
    """A request that is made when something has happened."""

    def __init__(self, is_enough) -> None:
        self._is_enough = is_enough
        self._until = time.monotonic() + PATIENCE_SECONDS

    def __bool__(self) -> bool:
        assert time.monotonic() < self._until
        return self._is_enough()


@pytest.fixture
def tuned(tmp_path):
    """Runs a tuner of a search until something is so; returns the search and what it has told."""

    def run(command, is_enough, max_trials=1, show=lambda changed: None):
        plan = SearchPlan("random", "loss", True, length=10, max_trials=max_trials)
        search = SharedSearch(TrialHistory(open_storage(tmp_path, ""), "s"))
        search.begin(plan, Space({"x": Double(0.0, 1.0)}), {})
        lines = []
        with Heartbeat(tmp_path, search.history, beats=False) as heartbeat:
            Tuner(
                search,
                Anything(),
                heartbeat,
                tmp_path,
                command=command,
                stop=Stop(lambda: is_enough(search, lines)),
                print_line=lines.append,
                show=show,
            ).run()
        return search, lines

    return run


def test_a_tuner_whose_slots_are_full_sees_what_others_do(tuned, tmp_path) -> None:
    other = SharedSearch(TrialHistory(open_storage(tmp_path, ""), "s"))
    heartbeat = Heartbeat(tmp_path, other.history, beats=False)

    def show(changed: bool) -> None:
        other.sync()
        if len(other.searcher.trials) == 1:
            assert other.take(heartbeat).trial == 1

    search, _ = tuned(
        SLEEPS, lambda search, lines: len(search.searcher.trials) == 2, max_trials=2, show=show
    )
    assert search.searcher.trials[1].tuner == heartbeat.tuner


def test_what_a_training_waits_for_is_told_once(tuned, tmp_path) -> None:
    directory = tmp_path / "trials" / "0"
    directory.mkdir(parents=True)
    shown = []
    with (directory / "train.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, lines = tuned(SLEEPS, lambda search, lines: len(shown) > 3, show=shown.append)
    lines = [line for line in lines if "waits" in line]
    assert lines == [f"trial 0 waits for the process that trains in {directory} to end"]


def test_a_training_that_ends_before_its_last_evaluation_is_told_of(tuned, tmp_path) -> None:
    directory = tmp_path / "trials" / "0"
    directory.mkdir(parents=True)
    reports = [
        {"step": 5, "split": "eval", "time": 1.0, "loss": 1.0},
        {"step": 10, "split": "train", "time": 1.0, "loss": 1.0},
    ]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in reports))
    search, _ = tuned(ENDS, lambda search, lines: False)
    (trial,) = search.searcher.trials
    assert trial.status == "failed"
    assert trial.why == "its last evaluation is of step 5, and step 10 was requested"
