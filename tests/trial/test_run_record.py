"""What a run of a trial is a run of, and what may change when it goes on."""

from __future__ import annotations

import pytest

from t2t_torch.errors import CheckpointError
from t2t_torch.trial.experiment import NAME, RunRecord

CONFIG = {
    "description": "a trial",
    "data": {"path": "here"},
    "hyperparameters": {"learning_rate": 0.1, "net": {"layers": [2, 1]}},
    "searcher": {"name": "single", "metric": "error", "max_steps": 3},
    "optimizations": {"aggregation_frequency": 2},
}


def record(hparams=None, trial="/code/mine.py", **changes):
    values = {"learning_rate": 0.1, "net": {"layers": [2, 1]}} if hparams is None else hparams
    return RunRecord(trial=trial, config={**CONFIG, **changes}, hparams=values)


def test_what_is_written_is_read(tmp_path):
    (tmp_path / NAME).write_text(record().text)
    assert RunRecord.read(tmp_path) == record()


def test_one_that_is_missing_says_where_it_can_be_restored_from(tmp_path):
    with pytest.raises(CheckpointError, match=r"is missing\. No checkpoint has a copy"):
        RunRecord.read(tmp_path)
    for name in ("ckpt-8", "ckpt-9", "ckpt-10.corrupt"):
        (tmp_path / name).mkdir()
    (tmp_path / "ckpt-8" / NAME).write_text(record().text)
    with pytest.raises(CheckpointError, match=r"is missing.*cp .*ckpt-8/experiment.json"):
        RunRecord.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"trial": "x"}', '{"trial": 3, "config": {}}'])
def test_one_that_is_damaged_is_told_of(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(CheckpointError, match="is damaged"):
        RunRecord.read(tmp_path)


def test_nothing_changes_of_what_is_the_same():
    assert record().changes(record()) == []


def test_a_default_that_is_written_out_is_no_change():
    written = record(min_validation_period=0, resources={"slots_per_trial": 1})
    assert [line for line in record().changes(written) if "slots" in line] == []


MAY = {
    "searcher": {**CONFIG["searcher"], "max_steps": 5},
    "description": "another",
    "data": {"path": "there"},
    "min_validation_period": {"batches": 7},
    "batches_per_step": 10,
    "max_restarts": 0,
    "bind_mounts": [{"host_path": "/a", "container_path": "/b"}],
    "environment": {"image": "x"},
}


@pytest.mark.parametrize("name", MAY)
def test_what_no_weight_depends_on_may_change_and_is_told(name):
    (change, *_) = record().changes(record(**{name: MAY[name]}))
    assert change.startswith(name)
    assert " -> " in change


def test_the_length_of_the_search_is_told_with_both_values():
    now = record(searcher={**CONFIG["searcher"], "max_steps": 5})
    assert record().changes(now) == ["searcher.max_steps: 3 -> 5"]


def test_a_trial_that_was_moved_is_told():
    moved = record(trial="/elsewhere/mine.py")
    assert record().changes(moved) == ["trial: /code/mine.py -> /elsewhere/mine.py"]


@pytest.mark.parametrize(
    "now",
    [
        record({"learning_rate": 0.2, "net": {"layers": [2, 1]}}),
        record({"learning_rate": 0.1, "net": {"layers": [2, 2]}}),
        record({"learning_rate": 0.1}),
        record(searcher={**CONFIG["searcher"], "source_checkpoint": "of/another/run"}),
        record(optimizations={"aggregation_frequency": 4}),
        record(optimizations={**CONFIG["optimizations"], "average_aggregated_gradients": False}),
        record(reproducibility={"experiment_seed": 3}),
    ],
)
def test_what_weights_depend_on_is_refused(now):
    with pytest.raises(CheckpointError, match="was started with another configuration"):
        record().changes(now)


def test_all_that_is_refused_is_listed():
    seed = {"experiment_seed": 3}
    now = record({"learning_rate": 0.2, "net": {"layers": [3]}}, reproducibility=seed)
    with pytest.raises(CheckpointError) as caught:
        record().changes(now)
    for line in (
        "reproducibility.experiment_seed: 0 -> 3",
        "hyperparameters.learning_rate: 0.1 -> 0.2",
        "hyperparameters.net.layers: [2, 1] -> [3]",
    ):
        assert line in str(caught.value)
