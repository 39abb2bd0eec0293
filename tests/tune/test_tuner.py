"""A search in processes: killed, stopped, shared, and what its trainings do."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from searching import SearchInProcesses, until

pytest.importorskip("optuna")


@pytest.fixture
def search(tmp_path):
    """A search that is not begun."""
    made = SearchInProcesses(tmp_path)
    yield made
    for process in made.processes:
        process.kill()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The same search, one training at a time, that nothing has happened to."""
    made = SearchInProcesses(tmp_path_factory.mktemp("undisturbed"))
    made.output = made.run()
    return made


@pytest.mark.slow
def test_a_search_leaves_what_it_found(undisturbed) -> None:
    output_dir = undisturbed.output_dir
    record = undisturbed.record
    assert record["over"]
    assert record["metric"] == "loss"
    assert record["default"]["number"] == 0
    assert (output_dir / "best").resolve().parent == output_dir / "trials"
    best = min(one["value"] for one in record["trials"] if one["step"] == 64)
    value = record["trials"][int((output_dir / "best").resolve().name)]["value"]
    assert value == best
    for name in ("search.html", "best.json", "search.journal"):
        assert (output_dir / name).stat().st_size, name
    assert "6 of 6 trials" in undisturbed.output
    # No trial was trained from its beginning twice: each rung was gone to once.
    assert len(set(undisturbed.starts)) == len(undisturbed.starts)


@pytest.mark.slow
def test_what_is_over_is_told_again_and_nothing_is_trained(undisturbed) -> None:
    before = undisturbed.starts
    output = undisturbed.run(f"--output_dir={undisturbed.output_dir}")
    assert "6 of 6 trials" in output
    output = undisturbed.run(f"--output_dir={undisturbed.output_dir}", "--report_only")
    assert "search.html" in output
    assert undisturbed.starts == before


def test_a_killed_tuner_goes_on_with_the_very_same_decisions(search, undisturbed) -> None:
    hold = search.instruct("hold", 3)
    process = search.start()
    training = search.held(3)
    process.kill()
    until(lambda: not _lives(training), "the training that has lost its tuner to save and end")
    hold.unlink()
    output = search.run(f"--output_dir={search.output_dir}")
    assert "trial 3 has lost its tuner" in output
    assert search.outline == undisturbed.outline


@pytest.mark.slow
def test_two_kills_with_trainings_at_once_leave_the_same_sets(search, undisturbed) -> None:
    for trial in (1, 4):
        hold = search.instruct("hold", trial)
        process = search.start(parallel=2)
        search.held(trial)
        process.kill()
        hold.unlink()
    search.run(parallel=2)
    assert [row[4] for row in search.outline] == [row[4] for row in undisturbed.outline]
    assert {one["state"] for one in search.record["trials"]} == {"completed", "stopped"}


@pytest.mark.slow
def test_a_killed_training_goes_on_from_its_checkpoint(search, undisturbed) -> None:
    hold = search.instruct("hold", 2)
    process = search.start()
    os.kill(search.held(2), signal.SIGKILL)
    hold.unlink()
    output = process.end()
    assert "trial 2 failed and resumes from its checkpoint: signal SIGKILL" in output
    assert search.outline == undisturbed.outline
    assert search.record["trials"][2]["restarts"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_signal_lets_the_trainings_save(search, undisturbed, number: int, code: int) -> None:
    hold = search.instruct("hold", 1)
    process = search.start()
    training = search.held(1)
    process.signal(number)
    output = process.end(code)
    assert "the same command resumes" in output
    assert not _lives(training)
    checkpoint = search.output_dir / "trials" / "1" / "ckpt"
    assert int(checkpoint.read_text()) > 0
    hold.unlink()
    assert "lost" not in search.run(f"--output_dir={search.output_dir}")
    assert search.outline == undisturbed.outline


@pytest.mark.slow
def test_two_tuners_share_a_search(search, undisturbed) -> None:
    hold = search.instruct("hold", 0)
    first = search.start()
    search.held(0)
    second = search.start(f"--output_dir={search.output_dir}")
    until(lambda: any(trial > 0 for trial, _ in search.starts), "the second tuner")
    hold.unlink()
    first.end()
    second.end()
    assert sorted(row[4] for row in search.outline) == sorted(row[4] for row in undisturbed.outline)
    assert len(set(search.starts)) == len(search.starts)  # nothing was trained twice


@pytest.mark.slow
def test_a_database_is_shared_likewise(search, undisturbed) -> None:
    pytest.importorskip("sqlalchemy")
    storage = f"--storage=sqlite:///{search.control}/search.db"
    first = search.start(*search.flags(), storage)
    until(lambda: (search.output_dir / "tuner.json").exists(), "the first tuner to begin")
    second = search.start(f"--output_dir={search.output_dir}", storage)
    first.end()
    second.end()
    assert sorted(row[4] for row in search.outline) == sorted(row[4] for row in undisturbed.outline)
    assert len(set(search.starts)) == len(search.starts)
    assert not (search.output_dir / "search.journal").exists()


def test_what_raises_ranks_last_what_is_invalid_is_replaced_what_is_nan_is_stopped(search) -> None:
    search.instruct("raise", 2)
    search.instruct("refuse", 3)
    search.instruct("invalid", 4)
    search.instruct("nan", 5)
    output = search.run(max_trials=7)
    trials = search.record["trials"]
    assert len(trials) == 8
    assert [trials[number]["state"] for number in (2, 3, 4, 5)] == ["failed"] * 3 + ["stopped"]
    assert "raise of trial 2" in trials[2]["error"]
    # In vain twice at the same place: the third time would be, too.
    assert [trial for trial, _ in search.starts].count(2) == 2
    assert [trial for trial, _ in search.starts].count(3) == 1
    assert trials[5]["value"] is None
    assert "invalid hyperparameters, another takes its place" in output
    assert "7 of 7 trials" in output


@pytest.mark.slow
def test_an_error_of_all_trials_ends_the_search_and_is_mended(search, undisturbed) -> None:
    refuse = search.instruct("refuse", 0)
    output = search.run(code=2)
    assert "error: the unchanged set does not train: refuse of trial 0" in output
    refuse.unlink()
    search.run()
    assert search.outline == undisturbed.outline


@pytest.mark.slow
def test_an_error_of_the_first_trials_ends_a_search_without_the_unchanged_set(search) -> None:
    for trial in range(4):
        search.instruct("refuse", trial)
    output = search.run(code=2, default_first="false")
    assert "the first 3 trials all failed, the last one so: refuse of trial 2" in output
    assert len(search.starts) == 3


@pytest.mark.slow
def test_divergence_is_a_trials_own_fault(search) -> None:
    for trial in range(3):
        search.instruct("diverge", trial)
    output = search.run(searcher="random", max_trials=4)
    assert [one["state"] for one in search.record["trials"]] == ["failed"] * 3 + ["completed"]
    assert "exit code 4: error: diverge of trial 0" in output
    assert len(search.starts) == 4  # from the same checkpoint it would diverge again


@pytest.mark.slow
def test_a_search_that_has_found_nothing_ends_with_an_error(search) -> None:
    for trial in range(2):
        search.instruct("raise", trial)
    search.instruct("nan", 2)
    output = search.run(code=2, searcher="random", max_trials=3)
    assert "error: no trial has come to its end with a value of loss; 1 of 3 ended so: " in output
    assert "raise of trial 0" in output
    assert (search.output_dir / "search.html").exists()


@pytest.mark.slow
def test_the_runs_of_a_search_whose_ledger_is_gone_are_not_taken_over(search) -> None:
    search.run(searcher="random", max_trials=1)
    (search.output_dir / "search.journal").unlink()
    output = search.run(searcher="random", max_trials=1)
    assert "runs of another search are now in" in output
    assert search.starts == [(0, 64), (0, 64)]
    assert (search.output_dir / "trials.before-1" / "0" / "ckpt").read_text() == "64"
    assert (search.output_dir / "trials" / "0" / "ckpt").read_text() == "64"


@pytest.mark.slow
def test_an_unknown_metric_is_told_and_can_be_mended(search, undisturbed) -> None:
    output = search.run(code=2, metric="bleu", metric_minimize="false")
    assert "error: --metric=bleu: evaluations have no such metric" in output
    assert "accuracy, loss" in output
    search.run(metric="loss")
    assert search.outline == undisturbed.outline
    assert (search.output_dir / "trials.before-1").is_dir()


def test_another_search_is_not_mixed_with_the_one_that_is_there(undisturbed) -> None:
    ranges = undisturbed.control / "ranges.yaml"
    ranges.write_text("attention_dropout: {type: double, minval: 0, maxval: 0.5}\n")
    flags = undisturbed.flags(hparams_range=None, ranges=ranges, max_trials=9)
    changed = undisturbed.run(*flags, code=2)
    assert "error: another search is kept here" in changed
    assert "max_trials: 6 there, 9 requested" in changed
    assert "space of learning_rate_constant" in changed


@pytest.mark.slow
def test_threads_are_divided(search, monkeypatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    search.run(searcher="random", max_trials=1, parallel=2)
    threads = int((search.control / "log").read_text().split()[3])
    assert threads == max(len(os.sched_getaffinity(0)) // 2, 1)


def test_optuna_reads_what_was_found(undisturbed) -> None:
    import optuna

    from t2t_torch.tune.study import open_storage

    study = optuna.load_study(study_name="search", storage=open_storage(undisturbed.output_dir, ""))
    assert len(study.trials) == 6
    assert study.best_trial.user_attrs["number"] == int(
        (undisturbed.output_dir / "best").resolve().name
    )
    assert json.loads(json.dumps(study.best_params))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # An orphan that has ended waits for its new parent.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
