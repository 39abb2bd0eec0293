"""R1-R4, R6, R7: a run that was stopped ends as one that was not, to the last bit."""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections import Counter

import numbered
import pytest
from numbered import EXAMPLES

from t2t_torch.errors import CheckpointError
from t2t_torch.pipeline.collate import Collator

PER_EPOCH = 10  # batches; the first test looks
STEPS = 3 * PER_EPOCH + 1
STOPS = {
    "first step": [1],
    "middle of an epoch": [PER_EPOCH // 2],
    "before the last batch of an epoch": [PER_EPOCH - 1],
    "end of an epoch": [PER_EPOCH],
    "first of the second epoch": [PER_EPOCH + 1],
}


@pytest.fixture(scope="module")
def uninterrupted():
    """Outcomes of runs that never stopped, by their options; made when first asked for."""
    return {}


@pytest.fixture
def whole(train_in_parts, uninterrupted):
    """Returns the outcome of a run that never stopped."""

    def outcome(steps=STEPS, **options):
        key = repr((steps, sorted(options.items())))
        if key not in uninterrupted:
            uninterrupted[key] = train_in_parts(f"whole{len(uninterrupted)}", [steps], **options)
        return uninterrupted[key]

    return outcome


def test_an_epoch_has_the_batches_that_the_tests_below_count_on(data_dir):
    task = numbered.make_task(data_dir)
    source = task.train_batches(seed=1, start=0, rank=0, world_size=1)
    assert source.plan.batches_per_epoch == PER_EPOCH
    assert source.report.kept == EXAMPLES


@pytest.mark.sample(2)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stops", STOPS.values(), ids=STOPS)
def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(
    train_in_parts, whole, stops, workers
):
    parts = train_in_parts("parts", [*stops, STEPS], workers=workers)
    parts.assert_equals(whole())


@pytest.mark.slow
@pytest.mark.parametrize("stop", range(1, STEPS))
def test_a_run_may_be_stopped_at_any_step(train_in_parts, whole, stop):
    train_in_parts("parts", [stop, STEPS], workers=stop % 3).assert_equals(whole())


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("stops", "hparams"),
    [
        ([2, 5], "optimizer_multistep_accumulate_steps=2"),
        ([3], "ema_decay=0.9"),
        ([3], "optimizer=sgd"),
        ([2], "activation_dtype=bfloat16"),
        ([3], "adversarial_steps=2"),
        ([3], "r3f_weight=1,optimizer_multistep_accumulate_steps=2"),
    ],
)
def test_so_is_one_with_other_settings(train_in_parts, whole, stops, hparams):
    parts = train_in_parts("parts", [*stops, 8], hparams=hparams)
    parts.assert_equals(whole(8, hparams=hparams))


@pytest.mark.slow
def test_two_resumes_in_one_epoch(train_in_parts, whole):
    train_in_parts("parts", [2, 5, STEPS]).assert_equals(whole())


@pytest.mark.slow
def test_a_resume_of_a_resume_over_the_end_of_an_epoch(train_in_parts, whole):
    stops = [PER_EPOCH - 2, PER_EPOCH + 3, 2 * PER_EPOCH, STEPS]
    train_in_parts("parts", stops).assert_equals(whole())


@pytest.mark.slow
def test_after_a_resume_each_further_epoch_holds_each_example_once(train_in_parts):
    stop = PER_EPOCH + 4
    outcome = train_in_parts("parts", [stop, 4 * PER_EPOCH])
    for epoch in range(4):
        batches = outcome.consumed[epoch * PER_EPOCH : (epoch + 1) * PER_EPOCH]
        counts = Counter(itertools.chain.from_iterable(batches))
        assert set(counts.values()) == {1}
        assert len(counts) == EXAMPLES


@pytest.mark.slow
def test_another_number_of_loader_workers_after_each_resume_changes_nothing(train_in_parts, whole):
    parts = train_in_parts("parts", [4, PER_EPOCH + 2, STEPS], workers=[0, 2, 1])
    parts.assert_equals(whole())


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_batches_come_in_order_whichever_worker_is_done_first(data_dir, monkeypatch, workers):
    draw = random.Random(workers)
    collate = Collator.__call__

    def slowly(self, rows, *others):
        time.sleep(draw.random() * 0.003)
        return collate(self, rows, *others)

    expected = numbered.make_task(data_dir, workers=0)
    list(itertools.islice(batches_of(expected), 2 * PER_EPOCH))
    monkeypatch.setattr(Collator, "__call__", slowly)
    found = numbered.make_task(data_dir, workers=workers)
    list(itertools.islice(batches_of(found), 2 * PER_EPOCH))
    assert found.consumed == expected.consumed


def batches_of(task):
    """The batches of one process, from the first."""
    return iter(task.train_batches(seed=1, start=0, rank=0, world_size=1))


def test_dropout_is_at_work_in_these_tests(train_in_parts, whole):
    """Else a resume could forget the random numbers unnoticed."""
    without = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0"
    losses = [
        [report["loss"] for report in outcome.reports]
        for outcome in (whole(8), train_in_parts("without", [8], hparams=without))
    ]
    assert losses[0] != losses[1]


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "trainer.json"])
def test_a_newest_checkpoint_that_is_cut_short_is_passed_over(
    train_in_parts, whole, tmp_path, file
):
    train_in_parts("parts", [4, 7])
    broken = tmp_path / "parts" / "ckpt-7" / file
    broken.write_bytes(broken.read_bytes()[:-9])
    again = train_in_parts("parts", [STEPS])
    assert (tmp_path / "parts" / "ckpt-7.corrupt").is_dir()
    expected = whole()
    assert numbered.digest(again.consumed) == numbered.digest(expected.consumed[4:])
    dataclasses.replace(again, consumed=expected.consumed).assert_equals(expected)


def test_if_all_are_cut_short_nothing_is_trained_and_nothing_overwritten(
    make_estimator, train_in_parts, tmp_path
):
    train_in_parts("parts", [4, 7])
    for step in (4, 7):
        (tmp_path / "parts" / f"ckpt-{step}" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="every checkpoint"):
        make_estimator("parts").train(8)
    assert not list((tmp_path / "parts").glob("ckpt-8*"))
