"""N1-N3, N6: numbers that are not finite, and memory that runs out."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import processes
import pytest
import torch
from conftest import outcome_of, reports_of

from t2t_torch.errors import T2TError
from t2t_torch.modalities.text import TextModality
from t2t_torch.model import Loss
from t2t_torch.objectives.objective import Objective
from t2t_torch.run.checkpoint_directory import CheckpointDirectory

NO_DROPOUT = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0"


def weights_of(estimator):
    return {name: value.clone() for name, value in estimator.model.state_dict().items()}


def unequal(found, expected):
    """The names of tensors that differ."""
    return [name for name in expected if not torch.equal(found[name], expected[name])]


@pytest.fixture
def break_at(monkeypatch):
    """Makes the losses of some training passes, counted from 1, infinite or not a number."""

    def make(passes, value=math.nan):
        calls = itertools.count(1)
        loss = TextModality.training_loss

        def broken(self, *args, **kwargs):
            found = loss(self, *args, **kwargs)
            return Loss(found.sum * value, found.weight) if next(calls) in passes else found

        monkeypatch.setattr(TextModality, "training_loss", broken)

    return make


@pytest.mark.sample(2)
@pytest.mark.parametrize("optimizer", ["adam", "adam_w", "sgd", "adafactor", "momentum"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_not_finite_moves_nothing_and_training_goes_on(
    make_estimator, break_at, optimizer, value
):
    break_at({3}, value)
    run = make_estimator(hparams=f"optimizer={optimizer}")
    run.train(2)
    before = weights_of(run)
    run.train(3)
    assert unequal(run.model.state_dict(), before) == []
    run.train(5)
    assert len(unequal(run.model.state_dict(), before)) > 10
    run.save()
    assert (run.state.step, run.state.skipped, run.state.batches_consumed) == (5, 1, 5)
    assert all(math.isfinite(report["loss"]) for report in reports_of(run.directory.path)[3:])


def test_a_run_that_skipped_steps_resumes_bit_equal(make_estimator, monkeypatch, break_at):
    def outcome(name, stops):
        consumed = []
        for stop in stops:
            run = make_estimator(name)
            with monkeypatch.context():
                run.train(stop)
            consumed += run.task.consumed
            found = outcome_of(run, consumed)
        return found

    break_at({2, 5, 8 + 2, 8 + 5})  # of the first run's passes and of the second's
    whole = outcome("whole", [8])
    assert whole.state["skipped"] == 2
    outcome("parts", [2, 3, 5, 8]).assert_equals(whole)


@pytest.mark.sample(1)
@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_not_finite_in_one_process_is_skipped_in_all(spec, tmp_path, rank):
    told = spec("run", 8, size=2, faults={"nan": [rank, [3, 6]]})
    for child in processes.start_world(tmp_path / "err", 2, processes.train, told):
        code = child.wait()
        assert code == 0, child.said
    noted = [json.loads(Path(f"{told['notes']}.{rank}").read_text()) for rank in range(2)]
    assert noted[0]["weights"] == noted[1]["weights"]
    assert [note["state"]["step"] for note in noted] == [8, 8]
    state = json.loads((tmp_path / "run" / "ckpt-8" / "trainer.json").read_text())
    assert state["skipped"] == 2
    assert all(math.isfinite(value) for value in flat(noted[0]["weights"]))


def flat(nested):
    """The numbers of nested lists and dicts."""
    if isinstance(nested, float):
        return [nested]
    inner = nested.values() if isinstance(nested, dict) else nested
    return [number for each in inner for number in flat(each)]


@pytest.mark.slow
def test_too_many_in_a_row_in_one_process_end_all_with_a_dump_that_names_the_batch(spec, tmp_path):
    config = {"max_consecutive_nonfinite": 3, "local_eval_frequency": 2}
    told = spec("run", 20, size=2, faults={"nan": [1, [5, 6, 7]]}, config=config)
    children = processes.start_world(tmp_path / "err", 2, processes.train, told)
    assert [child.wait() for child in children] != [0, 0]
    assert all(child.wait() != 0 for child in children)
    (crash,) = (tmp_path / "run" / "crash").glob("*rank1")
    dumped = json.loads((crash / "crash.json").read_text())
    assert dumped["step"] == 7
    (batch,) = dumped["batches"]
    assert batch["batch"] == 13  # the seventh of the second process, counted from 0
    assert batch["rows"]
    assert (crash / "batch-13.safetensors").is_file()
    assert any("not finite" in child.said for child in children)


def test_fewer_in_a_row_do_not_end_the_run(make_estimator, break_at):
    break_at({2, 3, 5, 6})
    run = make_estimator(max_consecutive_nonfinite=3)
    run.train(7)
    run.save()
    assert run.state.skipped == 4


@pytest.mark.slow
def test_as_many_end_it_and_leave_the_checkpoint_before(make_estimator, break_at):
    break_at({4, 5, 6})
    run = make_estimator(max_consecutive_nonfinite=3, local_eval_frequency=2)
    with pytest.raises(T2TError, match="not finite at step 6, as in the 2 steps before"):
        run.train(20)
    run.saving.finish()
    newest = run.checkpoints.newest()
    before = weights_of(run)
    newest.load_model(run.model)
    assert unequal(run.model.state_dict(), before) == []
    assert newest.trainer_state().skipped <= 3


def test_in_float16_a_gradient_that_overflows_halves_the_scale_and_moves_nothing(
    make_estimator, break_at
):
    break_at({3}, math.inf)
    run = make_estimator(hparams="activation_dtype=float16")
    run.train(2)
    before, scale = weights_of(run), run.begin().precision.state()[0]
    run.train(3)
    assert unequal(run.model.state_dict(), before) == []
    assert run.begin().precision.state()[0] == scale / 2
    run.train(5)
    assert unequal(run.model.state_dict(), before) != []


@pytest.mark.slow
def test_in_bfloat16_it_is_skipped_and_nothing_is_scaled(make_estimator, break_at):
    break_at({3}, math.inf)
    run = make_estimator(hparams="activation_dtype=bfloat16")
    run.train(2)
    before = weights_of(run)
    run.train(3)
    assert unequal(run.model.state_dict(), before) == []
    assert run.begin().precision.scale is None


def test_the_scale_of_float16_is_resumed(make_estimator, break_at):
    break_at({1, 2, 6 + 1, 6 + 2}, math.inf)
    outcomes = []
    for name, stops in (("whole", [6]), ("parts", [1, 3, 6])):
        consumed = []
        for stop in stops:
            run = make_estimator(name, "activation_dtype=float16")
            run.train(stop)
            consumed += run.task.consumed
            outcome = outcome_of(run, consumed)
        outcomes.append(outcome)
    outcomes[1].assert_equals(outcomes[0])


def run_out(monkeypatch, at, largest):
    """Makes memory run out at some batches of more rows than fit; returns the rows it tried."""
    forward, tried, seen = Objective.forward, [], []

    def hungry(self, batch, *others):
        rows = len(batch["inputs"])
        if self.training:
            if not seen or seen[-1] != id(batch):
                seen.append(id(batch))
            tried.append(rows)
            if len(hungry.steps) + 1 in at and rows > largest:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return forward(self, batch, *others)

    hungry.steps = []
    monkeypatch.setattr(Objective, "forward", hungry)
    return hungry.steps, tried


def test_a_batch_that_does_not_fit_in_memory_is_split_and_the_step_is_the_same(
    make_estimator, monkeypatch, capsys
):
    whole = make_estimator("whole", NO_DROPOUT)
    whole.train(4)
    with monkeypatch.context() as patch:
        steps, tried = run_out(patch, at={3}, largest=4)
        run = make_estimator("run", NO_DROPOUT)
        for step in range(4):
            run.train(step + 1)
            steps.append(step)
    assert max(tried) > 4, "nothing had to be split"
    said = capsys.readouterr().err
    assert "memory" in said
    assert "batch 2: " in said, "the batch and its shape are told"
    expected = whole.model.state_dict()
    for name, value in run.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-6)
    losses = [[r["loss"] for r in reports_of(e.directory.path)] for e in (whole, run)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert run.task.consumed == whole.task.consumed


@pytest.mark.slow
def test_a_row_that_does_not_fit_alone_is_skipped(make_estimator, monkeypatch):
    with monkeypatch.context() as patch:
        steps, _ = run_out(patch, at={2}, largest=0)
        run = make_estimator(hparams=NO_DROPOUT)
        for step in range(3):
            run.train(step + 1)
            steps.append(step)
    run.save()
    assert (run.state.step, run.state.skipped) == (3, 1)


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("rank", [0, 1])
def test_memory_that_runs_out_in_one_of_two_processes_changes_nothing(spec, tmp_path, rank):
    """A model with a buffer: what a process sends in its passes must not depend on their number."""
    told = {}
    for name, passes in (("whole", []), ("run", [1, 4, 5])):
        told[name] = spec(name, 5, size=2, faults={"memory": [rank, passes]})
        told[name]["hparams"] += f",{NO_DROPOUT},scheduled_sampling_prob=1.0"
        children = processes.start_world(tmp_path / name, 2, processes.train, told[name])
        for child in children:
            code = child.wait()
            assert code == 0, child.said
    assert "in 2 pieces" in children[rank].said
    assert "in 4 pieces" in children[rank].said
    weights = [
        json.loads(Path(f"{told[name]['notes']}.{of}").read_text())["weights"]
        for name in told
        for of in (0, 1)
    ]
    assert weights[2] == weights[3]
    assert flat(weights[2]) == pytest.approx(flat(weights[0]), abs=1e-5)


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "faults",
    [{"memory_backward": [1, 6]}, {"memory": [1, list(range(6, 20))]}],
    ids=["in the backward pass", "for one row"],
)
def test_where_the_other_process_waits_for_gradients_both_end_with_a_whole_checkpoint(
    spec, tmp_path, faults
):
    config = {"local_eval_frequency": 2, "async_save": False}
    told = spec("run", 20, size=2, config=config, faults=faults)
    leader, other = processes.start_world(tmp_path / "err", 2, processes.train, told)
    assert (other.wait() != 0, leader.wait() != 0) == (True, True)
    assert "activation_checkpointing=True in this one" in other.said
    assert CheckpointDirectory(tmp_path / "run").newest().step == 5  # the last whole one


def test_a_metric_that_is_not_a_number_is_never_the_best_and_ends_nothing(
    make_estimator, monkeypatch
):
    from t2t_torch.train.experiment import Experiment

    run = make_estimator(
        train_steps=6,
        local_eval_frequency=2,
        eval_early_stopping_steps=100,
        keep_checkpoint_best=1,
        keep_checkpoint_max=1,
    )
    evaluate = run.evaluate
    monkeypatch.setattr(run, "evaluate", lambda *args: with_nan(run, evaluate(*args)))
    Experiment(run).run("continuous_train_and_eval")
    assert run.state.step == 6
    best = run.checkpoints.best()
    assert best is not None
    assert best.step != 4
    assert run.state.best_value is not None
    assert math.isfinite(run.state.best_value)


def with_nan(run, metrics):
    """What an evaluation finds, spoilt at step 4."""
    return dict.fromkeys(metrics, math.nan) if run.state.step == 4 else metrics


def test_the_error_names_what_went_bad_first_and_how_to_go_further_back(make_estimator):
    run = make_estimator(max_consecutive_nonfinite=1)
    run.train(1)
    name, parameter = next(iter(run.model.named_parameters()))
    with torch.no_grad():
        parameter.fill_(torch.nan)
    with pytest.raises(T2TError) as raised:
        run.train(2)
    assert f"First bad of the weights is {name}." in str(raised.value)
    assert "delete the newest checkpoints" in str(raised.value)
