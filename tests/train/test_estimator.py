"""Training: exact resume, accumulation, stops, reports."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from t2t_torch.errors import CheckpointError, T2TError
from t2t_torch.modalities.text import TextModality
from t2t_torch.model import Loss
from t2t_torch.models.transformer import Transformer
from t2t_torch.optim.gradient import GradientFinisher
from t2t_torch.pipeline.plan import ORDER_VERSION
from t2t_torch.signals import SignalStop, StopRequest
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.task import Evaluator, Hook

BATCHES_PER_EPOCH = 7  # of the tests' data; the first test looks
STEPS = 2 * BATCHES_PER_EPOCH + 2


def weights_of(estimator):
    """A copy of all weights and optimizer slots."""
    state = {k: v.clone() for k, v in estimator.model.state_dict().items()}
    optimizer = estimator.begin().optimizer
    for index, slots in optimizer.state_dict()["state"].items():
        state.update({f"{index}/{name}": value.clone() for name, value in slots.items()})
    return state


def assert_bit_equal(found, expected):
    """Every tensor, to the last bit."""
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


class StopAfter(StopRequest):
    """Asks to stop, as a signal would, when it has been polled so many times."""

    def __init__(self, polls):
        super().__init__()
        self._left = polls

    def __bool__(self):
        return self.signal != 0

    @property
    def signal(self):
        self._left -= 1
        return signal.SIGTERM if self._left < 0 else 0

    @signal.setter
    def signal(self, number):
        pass


def test_an_epoch_has_the_batches_that_the_tests_below_count_on(make_task):
    plan = make_task().train_batches(seed=1, start=0, rank=0, world_size=1).plan
    assert plan.batches_per_epoch == BATCHES_PER_EPOCH


@pytest.fixture(scope="module")
def uninterrupted():
    """Weights of runs that never stopped, by hparams; made when first asked for."""
    return {}


@pytest.mark.sample(2)
@pytest.mark.parametrize("hparams", ["", "optimizer_multistep_accumulate_steps=3"])
@pytest.mark.parametrize(
    "stops",
    [
        [1],
        [BATCHES_PER_EPOCH - 1],
        [BATCHES_PER_EPOCH],
        [BATCHES_PER_EPOCH + 1],
        [2, 3],
        [3, 2 * BATCHES_PER_EPOCH, STEPS - 1],
    ],
)
def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(
    make_estimator, uninterrupted, hparams, stops
):
    if hparams not in uninterrupted:
        whole = make_estimator("whole", hparams, train_steps=STEPS)
        whole.train(STEPS)
        uninterrupted[hparams] = weights_of(whole)
    for stop in [*stops, STEPS]:
        part = make_estimator("parts", hparams, train_steps=STEPS)
        part.train(stop)
        weights = weights_of(part)
        part.close()
    assert_bit_equal(weights, uninterrupted[hparams])


def test_dropout_is_at_work_in_these_tests(make_estimator):
    """Else a resume could forget the random numbers unnoticed."""
    with_dropout = make_estimator("with")
    without = make_estimator("without", "layer_prepostprocess_dropout=0.0")
    for estimator in (with_dropout, without):
        estimator.train(2)
    name = "modalities.targets.bottom.weight"
    assert not torch.equal(weights_of(with_dropout)[name], weights_of(without)[name])


@pytest.mark.slow
@pytest.mark.quick
def test_training_in_turns_with_evaluations_between_changes_nothing(make_estimator):
    whole, turns = make_estimator("whole"), make_estimator("turns")
    whole.train(6)
    for until in (2, 5, 6):
        turns.train(until)
        turns.evaluate()
    assert_bit_equal(weights_of(turns), weights_of(whole))


def test_the_position_is_batches_and_tokens_consumed(make_estimator, make_task):
    estimator = make_estimator(hparams="optimizer_multistep_accumulate_steps=2")
    estimator.train(3)
    batches = make_task().train_batches(seed=1, start=0, rank=0, world_size=1)
    tokens = sum(int((b["targets"] != 0).sum()) for b in itertools.islice(batches, 6))
    state = estimator.checkpoints.newest().trainer_state()
    assert (state.step, state.batches_consumed, state.batches_per_step) == (3, 6, 2)
    assert state.tokens == tokens


def test_accumulation_weighs_tokens_not_batches(make_estimator, make_task):
    """The gradient of three batches is that of their tokens' mean loss, each counting once."""
    estimator = make_estimator(
        hparams="layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0,optimizer=sgd,"
        "learning_rate_schedule=constant,learning_rate_constant=1,clip_grad_norm=0,weight_decay=0,"
        "optimizer_multistep_accumulate_steps=3"
    )
    model = estimator.begin().model.double()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    batches = make_task().train_batches(seed=1, start=0, rank=0, world_size=1)
    losses = [model(batch).losses["targets"] for batch in itertools.islice(batches, 3)]
    mean = sum(loss.sum for loss in losses) / sum(loss.weight for loss in losses)
    gradients = torch.autograd.grad(mean, list(model.parameters()))

    estimator.train(1)

    for (name, parameter), gradient in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.detach(), before[name] - gradient, rtol=0, atol=1e-6)


def test_a_broken_checkpoint_is_set_aside_and_training_goes_on_from_the_one_before(make_estimator):
    whole = make_estimator("whole", train_steps=5)
    whole.train(5)
    run = make_estimator("run", local_eval_frequency=2)
    run.train(4)
    run.close()
    (run.directory.path / "ckpt-4" / "optimizer.safetensors").write_bytes(b"half")
    again = make_estimator("run")
    again.train(5)
    assert (run.directory.path / "ckpt-4.corrupt").is_dir()
    assert_bit_equal(weights_of(again), weights_of(whole))


def test_if_all_are_broken_training_refuses_and_writes_nothing(make_estimator):
    run = make_estimator(local_eval_frequency=1)
    run.train(2)
    run.close()
    for checkpoint in run.checkpoints.list():
        (checkpoint.path / "model.safetensors").write_bytes(b"")
    for _ in range(2):
        again = make_estimator()
        with pytest.raises(CheckpointError, match="every checkpoint"):
            again.train(3)
        again.close()
        assert again.checkpoints.list() == []


def test_the_last_k_checkpoints_are_kept(make_estimator):
    run = make_estimator(local_eval_frequency=1, keep_checkpoint_max=2)
    run.train(5)
    assert [checkpoint.step for checkpoint in run.checkpoints.list()] == [4, 5]


def test_checkpoints_come_by_the_clock_too(make_estimator, monkeypatch):
    now = itertools.count(0, 10)  # every look is ten seconds later: one at each step and save
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr("t2t_torch.train.saving.time", clock)
    run = make_estimator(save_checkpoints_secs=25)
    run.train(6)
    assert [checkpoint.step for checkpoint in run.checkpoints.list()] == [2, 5, 6]


@pytest.mark.parametrize(
    ("fingerprint", "told"),
    [
        (f"{ORDER_VERSION}-0000", f"came in another order: its plan is {ORDER_VERSION}-0000"),
        ("0000", f"is of another version of t2t_torch.*order 1; here it is {ORDER_VERSION}"),
    ],
)
def test_another_order_of_the_data_is_refused(make_estimator, fingerprint, told):
    first = make_estimator("other")
    first.begin()
    first.state.plan_fingerprint = fingerprint
    first.train(1)
    first.close()
    with pytest.raises(CheckpointError, match=told):
        make_estimator("other").train(2)


def test_a_step_of_another_size_is_refused_with_the_setting_that_mends_it(make_estimator):
    first = make_estimator(hparams="optimizer_multistep_accumulate_steps=2")
    first.train(1)
    first.close()
    with pytest.raises(CheckpointError, match="optimizer_multistep_accumulate_steps=2"):
        make_estimator().train(2)


def test_another_seed_is_refused_and_none_takes_that_of_the_run(make_estimator):
    first = make_estimator(random_seed=5)
    first.train(1)
    first.close()
    second = make_estimator(random_seed=6)
    with pytest.raises(CheckpointError, match="--random_seed=5, not 6"):
        second.train(2)
    second.close()
    third = make_estimator()
    third.train(2)
    assert third.state.seed == 5


def test_another_seed_is_another_run(make_estimator):
    runs = [make_estimator(str(seed), random_seed=seed) for seed in (1, 2)]
    for run in runs:
        run.train(1)
    name = "modalities.targets.bottom.weight"
    assert not torch.equal(weights_of(runs[0])[name], weights_of(runs[1])[name])


def test_a_stop_saves_and_the_run_goes_on_bit_equal(make_estimator):
    whole = make_estimator("whole")
    whole.train(6)
    stopped = make_estimator("run", stop=StopAfter(4))
    stopped.train(6)
    assert (stopped.state.step, stopped.signal) == (4, signal.SIGTERM)
    stopped.close()
    again = make_estimator("run")
    again.train(6)
    assert_bit_equal(weights_of(again), weights_of(whole))


def test_a_stop_before_the_first_step_leaves_no_checkpoint(make_estimator):
    stopped = make_estimator(stop=StopAfter(0))
    stopped.train(6)
    assert stopped.checkpoints.list() == []


def test_a_stop_in_an_evaluation_reports_nothing(make_estimator):
    run = make_estimator(stop=StopAfter(0))
    assert run.evaluate() == {}
    assert run.signal == signal.SIGTERM
    assert not (run.directory.path / "metrics.jsonl").exists()


def test_a_signal_asks_once_and_the_second_one_is_the_systems(capfd):
    before = signal.getsignal(signal.SIGUSR1)
    with SignalStop() as stop:
        assert not stop
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop
        assert stop.signal == signal.SIGUSR1
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR1) == before
    assert "SIGUSR1: stopping" in capfd.readouterr().err


def bad_at(steps, monkeypatch):
    """Makes the losses of these passes, counted from 1, not a number."""
    calls = itertools.count(1)
    loss = TextModality.training_loss

    def broken(self, outputs):
        result = loss(self, outputs)
        return Loss(result.sum * float("nan"), result.weight) if next(calls) in steps else result

    monkeypatch.setattr(TextModality, "training_loss", broken)


@pytest.mark.sample(1)
@pytest.mark.parametrize("optimizer", ["adam", "adam_w", "sgd"])
def test_a_step_that_is_not_finite_moves_nothing_and_is_counted(
    make_estimator, monkeypatch, optimizer
):
    bad_at({3}, monkeypatch)
    run = make_estimator(hparams=f"optimizer={optimizer}", log_step_count_steps=1)
    run.train(2)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    run.train(3)
    assert_bit_equal(run.model.state_dict(), before)
    run.train(4)
    assert (run.state.step, run.state.skipped) == (4, 1)
    lines = (run.directory.path / "metrics.jsonl").read_text().splitlines()
    reports = [json.loads(line) for line in lines]
    assert [report["skipped_steps"] for report in reports] == [0, 0, 1, 1]
    assert reports[2]["loss"] is None


@pytest.mark.slow
def test_a_run_with_skipped_steps_resumes_bit_equal(make_estimator, monkeypatch):
    with monkeypatch.context() as patch:
        bad_at({2, 5}, patch)
        whole = make_estimator("whole")
        whole.train(7)
    with monkeypatch.context() as patch:
        bad_at({2, 5}, patch)
        first = make_estimator("run")
        first.train(4)
        first.close()
        second = make_estimator("run")
        second.train(7)
    assert_bit_equal(weights_of(second), weights_of(whole))
    assert second.state.skipped == whole.state.skipped == 2


@pytest.mark.slow
def test_a_report_is_of_the_same_steps_whether_the_run_stopped_or_not(make_estimator):
    text = {}
    for name, stops in (("whole", [8]), ("stopped", [3, 6, 8])):
        for stop in stops:
            run = make_estimator(name, log_step_count_steps=4)
            run.train(stop)
            run.close()
        lines = (run.directory.path / "metrics.jsonl").read_text().splitlines()
        text[name] = [
            {k: v for k, v in json.loads(line).items() if "sec" not in k and k != "time"}
            for line in lines
        ]
        for line in text[name]:
            del line["memory_mib"]
    assert [line["step"] for line in text["whole"]] == [4, 8]
    assert text["stopped"] == text["whole"]


def test_what_a_gpu_tells_a_step_late_is_written_down_of_its_own_step(make_estimator, monkeypatch):
    bad_at({3}, monkeypatch)
    counts = [0]

    def late(self):
        counts.append(int(self._in_a_row))
        return counts[-2]

    monkeypatch.setattr("t2t_torch.train.task.TrainMeter.skipped_in_a_row", late)
    monkeypatch.setattr("t2t_torch.train.task.TrainMeter.is_late", True)
    run = make_estimator(max_consecutive_nonfinite=1)
    with pytest.raises(T2TError, match="not finite at step 3"):
        run.train(10)
    assert run.state.step == 4
    text = json.loads((run.directory.path / "crash/step-3-rank0/crash.json").read_text())
    assert (text["step"], text["batches"][0]["batch"]) == (3, 2)


class OfParts(torch.optim.Optimizer):
    """Two fused optimizers behind one, as a user may write it: it knows nothing of found_inf."""

    def __init__(self, params):
        params = list(params)
        self.parts = [torch.optim.Adam(p, lr=0.1, fused=True) for p in (params[:2], params[2:])]
        super().__init__(params, {"lr": 0.1})
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure=None):
        for part in self.parts:
            part.step()


def test_an_optimizer_that_knows_nothing_of_infinities_is_not_asked_to_step(
    make_estimator, monkeypatch
):
    bad_at({1}, monkeypatch)
    run = make_estimator()
    monkeypatch.setattr(run.task, "optimizer", lambda model: OfParts(model.parameters()))
    run.train(1)
    assert all(p.isfinite().all() for p in run.model.parameters())


class Remembering(torch.optim.SGD):
    """Keeps what is neither a tensor nor a number."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["times"] = [1]


def test_an_optimizer_that_cannot_be_saved_is_told_of_at_its_first_step(make_estimator):
    run = make_estimator()
    run.task.optimizer = lambda model: Remembering(model.parameters(), lr=0.1)
    with pytest.raises(CheckpointError, match="keeps 'times' as list"):
        run.train(5)
    assert run.state.step == 0


def test_the_clock_asks_for_a_save_once(make_estimator):
    run = make_estimator(save_checkpoints_secs=1)
    run.train(1)
    run.saving._at -= 5.0
    assert run.saving.is_due()
    assert not run.saving.is_due()  # it was asked for, and comes a step later with several ranks
    run.train(2)
    run.saving._at -= 5.0
    assert run.saving.is_due()


def test_too_many_bad_steps_in_a_row_end_the_run_and_are_written_down(make_estimator, monkeypatch):
    bad_at(set(range(3, 100)), monkeypatch)
    run = make_estimator(local_eval_frequency=2, max_consecutive_nonfinite=3)
    with pytest.raises(T2TError, match="not finite at step 5"):
        run.train(10)
    folder = run.directory.path / "crash" / "step-5-rank0"
    text = json.loads((folder / "crash.json").read_text())
    (batch,) = text["batches"]
    assert (text["step"], batch["batch"], batch["loss"]) == (5, 4, "nan")
    assert batch["rows"] == run.run.source.rows_of(4)[1]
    assert "target_space" in batch["gradients_not_finite"]
    assert batch["weights_not_finite"] == []
    retained = safetensors.torch.load_file(folder / "batch-4.safetensors")
    assert len(retained["targets"]) == len(batch["rows"])


def test_bad_steps_in_a_row_are_counted_over_a_resume(make_estimator, monkeypatch):
    bad_at(set(range(3, 100)), monkeypatch)
    first = make_estimator(max_consecutive_nonfinite=3)
    first.train(4)
    first.close()
    again = make_estimator(max_consecutive_nonfinite=3)
    with pytest.raises(T2TError, match="not finite at step 5"):
        again.train(10)


def test_a_good_step_between_bad_ones_begins_the_count_anew(make_estimator, monkeypatch):
    bad_at({1, 2, 4, 5}, monkeypatch)
    run = make_estimator(max_consecutive_nonfinite=3)
    run.train(6)
    assert run.state.skipped == 4


def out_of_memory_above(rows, monkeypatch):
    """Memory runs out for a batch of more rows."""
    gc.freeze()  # the step collects garbage: among all modules that takes a second
    body = Transformer.body

    def limited(self, features):
        if self.training and len(features["targets"].mask) > rows:
            raise torch.OutOfMemoryError("out of memory")
        return body(self, features)

    monkeypatch.setattr(Transformer, "body", limited)


NO_DROPOUT = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0"


@pytest.mark.sample(1)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_batch_that_does_not_fit_is_split_with_the_same_gradient(
    make_estimator, monkeypatch, capsys, accumulate
):
    hparams = f"{NO_DROPOUT},optimizer_multistep_accumulate_steps={accumulate},optimizer=sgd"
    whole = make_estimator("whole", hparams=hparams)
    whole.train(2)
    out_of_memory_above(3, monkeypatch)
    split = make_estimator("split", hparams=hparams)
    split.train(2)
    assert "computed again in 2 pieces" in capsys.readouterr().err
    result, expected = split.model.state_dict(), whole.model.state_dict()
    for name in expected:
        torch.testing.assert_close(result[name], expected[name], rtol=1e-5, atol=1e-6)
    assert (split.state.skipped, split.state.tokens) == (0, whole.state.tokens)


def test_a_step_that_does_not_fit_in_any_piece_is_skipped(make_estimator, monkeypatch, capsys):
    out_of_memory_above(0, monkeypatch)
    run = make_estimator(max_consecutive_nonfinite=5)
    run.train(2)
    assert run.state.skipped == 2
    assert "too large: the step is skipped" in capsys.readouterr().err


def test_another_error_is_not_taken_for_a_lack_of_memory(make_estimator, monkeypatch):
    def broken(self, features):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(Transformer, "body", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        make_estimator().train(1)


@pytest.mark.parametrize(("policy", "position"), [("restart", 0), ("approx", 5)])
def test_other_data_goes_on_where_it_is_told_to(make_estimator, capsys, policy, position):
    first = make_estimator()
    first.train(BATCHES_PER_EPOCH // 2)
    assert first.state.epoch_batches == BATCHES_PER_EPOCH
    first.close()
    smaller = make_estimator(hparams="batch_size=128,max_length=256", resume_data=policy)
    smaller.begin()
    assert smaller.state.batches_consumed == position
    assert f"--resume_data={policy}: on from batch {position}" in capsys.readouterr().err
    smaller.train(5)
    assert smaller.state.step == 5


def test_epochs_are_steps_and_seconds_end_a_run(make_estimator):
    run = make_estimator("epochs", train_epochs=2)
    run.begin()
    assert run.train_steps == 2 * BATCHES_PER_EPOCH
    timed = make_estimator("seconds", train_seconds=1)
    timed.begin().meter.start_clock()
    timed.state.seconds = 5.0
    timed.train(50)
    assert timed.is_done
    assert timed.state.step == 0


class Recorder(Hook):
    """Notes what it is told."""

    def __init__(self):
        self.told = []
        self.count = 0

    def begin(self, estimator):
        self.told.append("begin")

    def before_update(self, estimator):
        assert any(p.grad is not None for p in estimator.model.parameters())
        self.told.append("before")

    def after_step(self, estimator):
        self.count += 1
        self.told.append(estimator.state.step)

    def after_evaluation(self, estimator, split, metrics):
        self.told.append(split.value)

    def end(self, estimator):
        self.told.append("end")

    def state(self):
        return {"count": self.count}

    def restore(self, state):
        self.count = state.get("count", 0)


def test_hooks_are_told_of_the_joints_of_a_run_and_remember_over_a_resume(make_estimator):
    hook = Recorder()
    first = make_estimator(hooks=[hook])
    first.train(2)
    first.evaluate()
    first.close()
    assert hook.told == ["begin", "before", 1, "before", 2, "dev", "end"]
    again = Recorder()
    second = make_estimator(hooks=[again])
    second.train(3)
    assert again.count == 3


def test_reports_hold_what_a_user_watches(make_estimator):
    run = make_estimator(log_step_count_steps=2)
    run.train(4)
    run.evaluate()
    run.close()
    lines = (run.directory.path / "metrics.jsonl").read_text().splitlines()
    train, _, dev = (json.loads(line) for line in lines)
    assert (train["step"], train["split"]) == (2, "train")
    assert {"loss", "learning_rate", "grad_norm", "tokens_per_second", "padding_fraction"} <= set(
        train
    )
    assert 0.0 <= train["padding_fraction"] < 0.5
    assert train["learning_rate"] > 0
    assert (dev["step"], dev["split"]) == (4, "dev")
    name = "metrics-algorithmic_reverse_binary40_test/targets"
    assert {
        f"{name}/accuracy",
        f"{name}/accuracy_per_sequence",
        f"{name}/neg_log_perplexity",
    } <= set(dev)
    assert list(run.directory.path.glob("events.*"))
    assert list((run.directory.path / "eval").glob("events.*"))


def test_the_reported_loss_is_the_mean_over_the_tokens_since_the_last_report(make_estimator):
    each = make_estimator("each", log_step_count_steps=1)
    both = make_estimator("both", log_step_count_steps=2)
    for run in (each, both):
        run.train(2)
    losses = {}
    for run in (each, both):
        lines = (run.directory.path / "metrics.jsonl").read_text().splitlines()
        losses[run] = [json.loads(line)["loss"] for line in lines]
    source = each.task.train_batches(seed=1, start=0, rank=0, world_size=1)
    tokens = [int((batch["targets"] != 0).sum()) for batch in itertools.islice(source, 2)]
    total = sum(loss * count for loss, count in zip(losses[each], tokens, strict=True))
    assert losses[both] == [pytest.approx(total / sum(tokens))]


def test_the_opening_says_what_is_trained_and_from_where(make_estimator, capsys):
    first = make_estimator(train_steps=8)
    first.train(3)
    first.close()
    make_estimator(train_steps=8).train(4)
    content = capsys.readouterr().err
    assert "160 of 160 examples (0 too long, 0 too short)" in content
    assert "parameters" in content
    assert "0 at step 1" in content
    assert content.count("resuming from step 3") == 1


def test_bfloat16_trains_and_its_weights_stay_float32(make_estimator):
    run = make_estimator(hparams="activation_dtype=bfloat16")
    run.train(3)
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert run.evaluate()["loss"] < 3


def test_evaluation_looks_at_so_many_batches_or_all(make_estimator):
    class Counting(Evaluator):
        def __init__(self, task):
            super().__init__(task.evaluator().metrics)
            self.seen = 0

        def update(self, output, batch):
            self.seen += 1
            super().update(output, batch)

    for eval_steps, expected in ((1, 1), (0, 6)):
        run = make_estimator(f"run{eval_steps}", eval_steps=eval_steps)
        counting = Counting(run.task)
        run.task.evaluator = lambda counting=counting: counting
        run.evaluate()
        assert counting.seen == expected


def test_clipping_and_scaling_are_those_of_torch():
    torch.manual_seed(0)
    parameters = [(str(n), torch.nn.Parameter(torch.randn(n, 2))) for n in (1, 2, 3)]
    for _, parameter in parameters:
        parameter.grad = torch.randn_like(parameter) * 10
    expected = [(p.grad / 4).clone() for _, p in parameters]
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in expected]))
    finish = GradientFinisher(parameters, clip_grad_norm=0.5, weight_decay=0.0)
    result = finish(torch.tensor(8.0), processes=2)
    torch.testing.assert_close(result, norm)
    for (_, parameter), gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient * 0.5 / norm)


def test_weight_decay_is_the_penaltys_gradient_and_spares_biases():
    names = ["kernel", "norm.scale", "norm.bias"]
    parameters = [(name, torch.nn.Parameter(torch.full((3,), 2.0))) for name in names]
    for _, parameter in parameters:
        parameter.grad = torch.full((3,), 6.0)
    GradientFinisher(parameters, clip_grad_norm=0.0, weight_decay=0.5)(torch.tensor(3.0))
    assert [p.grad[0].item() for _, p in parameters] == pytest.approx([3.0, 3.0, 2.0])


def test_a_run_reports_early_and_then_at_its_own_pace(make_estimator):
    run = make_estimator()
    run.train(12)
    lines = (run.directory.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 10]
    usual, often = RunConfig(), RunConfig(log_step_count_steps=30)
    assert [step for step in range(1, 201) if usual.reports_at(step)] == [1, 10, 50, 100, 200]
    assert [step for step in range(1, 61) if often.reports_at(step)] == [30, 60]
