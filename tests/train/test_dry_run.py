"""What a dry run tells."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from t2t_torch.distributed.process_group import ONE_PROCESS, World
from t2t_torch.errors import HParamsError
from t2t_torch.model import Loss, Output
from t2t_torch.train.memory import Footprint, dry_run_lines
from t2t_torch.train.run_config import DEFAULT_SEED, RunConfig


@pytest.fixture
def told(make_task):
    """Makes the report of a task."""

    def make(hparams="", world=ONE_PROCESS):
        return "\n".join(dry_run_lines(make_task(hparams), world))

    return make


def numbers(line):
    return [float(word.replace(",", "")) for word in re.findall(r"[\d,]*\d(?:\.\d+)?", line)]


def line_of(text, start):
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return line


def test_the_first_rows_are_those_of_the_first_batch(told, make_task):
    task = make_task()
    source = task.train_batches(seed=DEFAULT_SEED, start=0, rank=0, world_size=1)
    batch = next(iter(source))["inputs"]
    decode = task.features.all["inputs"].decode
    text = told()
    assert re.search(rf"inputs +int64 +\[{len(batch)}, {batch.size(1)}\]", text)
    for row in batch[:3].tolist():
        ids = [number for number in row if number]
        assert f"  inputs       {decode(ids)!r}\n" in text
        assert f"[{', '.join(map(str, ids))}]" in text or len(ids) > 24


def test_buckets_steps_and_what_is_left_out_are_those_of_the_plan(told, make_task):
    hparams = "max_length=10,min_length=3,optimizer_multistep_accumulate_steps=2"
    text = told(hparams, World(0, 3, torch.device("cpu")))
    report = make_task(hparams).train_batches(seed=1, start=0, rank=0, world_size=1).report
    line = line_of(text, "algorithmic_reverse")
    assert report.too_long and report.too_short
    assert f"{report.kept} of {report.examples} examples" in line
    assert f"left out {report.too_long} too long, {report.too_short} too short" in line
    buckets = [numbers(row) for row in text.splitlines() if row.startswith("< ")]
    assert sum(int(row[2]) for row in buckets) == report.kept
    assert sum(int(row[3]) for row in buckets) == report.batches
    tokens = report.tokens / report.batches * 6
    assert f"A step is 6 batches (3 processes x 2 each), about {tokens:,.0f} tokens" in text
    assert f"an epoch is {report.batches / 6:,.1f} steps" in text


def test_parameters_are_counted_once_in_the_module_that_has_them(told, make_task):
    text = told()
    table = text[text.index("module ") : text.index("memory of")].strip().splitlines()[1:]
    counts = {row.split()[0]: int(numbers(row)[-1]) for row in table}
    total = sum(p.numel() for p in make_task().model().parameters())
    assert counts.pop("all") == total == sum(counts.values())


def test_memory_is_that_of_weights_gradients_and_adam(told, make_task):
    text = told()
    weights = sum(p.numel() for p in make_task().model().parameters()) * 4 / 2**20
    assert numbers(line_of(text, "weights"))[0] == pytest.approx(weights, abs=0.05)
    assert numbers(line_of(text, "gradients"))[0] == pytest.approx(weights, abs=0.05)
    assert numbers(line_of(text, "optimizer state"))[0] == pytest.approx(2 * weights, abs=0.05)


class Doubling(nn.Module):
    """Keeps its input for the backward pass, and nothing else that is not a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, batch):
        total = (batch["inputs"].float() * self.weight).sum()
        return Output({}, {"targets": Loss(total, torch.ones(()))})


def test_activations_are_what_is_kept_for_the_backward_pass(make_task):
    batch = {"inputs": torch.ones(6, 5, dtype=torch.int64)}
    model = Doubling()
    result = Footprint.measure(make_task("optimizer=sgd"), model, model, batch)
    assert result.activations == 6 * 5 * 4  # the floats that the weight is multiplied with
    assert (result.weights, result.gradients) == (4, 4)
    assert result.rows == result.measured_rows == 6


def test_a_large_batch_is_measured_in_part_and_scaled(make_task, monkeypatch):
    monkeypatch.setattr("t2t_torch.train.memory._MOST_WORK", 10.0)  # of the 30
    batch = {"inputs": torch.ones(6, 5, dtype=torch.int64)}
    model = Doubling()
    result = Footprint.measure(make_task("optimizer=sgd"), model, model, batch)
    assert result.measured_rows == 2
    assert result.activations == 6 * 5 * 4


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ("class_weights=balanced", "no target has classes"),
        ("learning_rate_schedule=single_cycle_cos_decay", "Set --hparams=learning_rate_warmup"),
    ],
)
def test_what_training_would_refuse_is_refused(make_task, hparams, message):
    config = RunConfig(train_steps=3)
    with pytest.raises(HParamsError, match=message):
        list(dry_run_lines(make_task(hparams), ONE_PROCESS, config=config))


def test_steps_of_epochs_are_found(make_task):
    task = make_task("learning_rate_schedule=single_cycle_cos_decay,learning_rate_warmup_steps=500")
    with pytest.raises(HParamsError, match=r"last step of the run, \d+, which must be greater"):
        list(dry_run_lines(task, ONE_PROCESS, config=RunConfig(train_epochs=1)))


def test_packed_examples_are_shown_one_by_one(told):
    text = told("pack_dataset=true,max_length=64")
    assert "inputs_segmentation" in text
    assert re.search(r"examples, in \d+ rows", text)
    rows = text[: text.index("Row 1")]
    assert rows.count("  inputs       '") == 3
