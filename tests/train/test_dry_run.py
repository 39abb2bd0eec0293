"""What a dry run tells."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from t2t_torch.distributed.process_group import ONE_PROCESS, World
from t2t_torch.errors import HParamsError
from t2t_torch.loss import total_loss
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


def test_memory_is_that_of_weights_and_adam(told, make_task):
    text = told()
    weights = sum(p.numel() for p in make_task().model().parameters()) * 4 / 2**20
    assert numbers(line_of(text, "weights"))[0] == pytest.approx(weights, abs=0.05)
    assert numbers(line_of(text, "optimizer state"))[0] == pytest.approx(2 * weights, abs=0.05)


class Squaring(nn.Module):
    """Keeps its square for the backward pass, and the weight times its input."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, batch):
        total = (batch["inputs"] * self.weight).square().sum()
        return Output({}, {"targets": Loss(total, torch.ones(()))})


def test_the_rest_of_a_step_is_what_is_held_at_most(make_task):
    batch = {"inputs": torch.ones(6, 5)}
    model = Squaring()
    result = Footprint.measure(make_task("optimizer=sgd"), model, model, batch)
    assert result.weights == 4
    # The product, and in the backward pass three of its size; single numbers beside them.
    assert result.step == pytest.approx(4 * 6 * 5 * 4, abs=16)
    assert result.rows == result.measured_rows == 6


def peak_of_allocator(step):
    """The bytes that torch's allocator holds at most beyond what it held before."""
    with torch.profiler.profile(profile_memory=True) as profiler:
        step()
    now = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


@pytest.mark.parametrize("rows", [8, 64])
@pytest.mark.parametrize("optimizer", ["adam", "adafactor"])
def test_memory_is_within_a_tenth_of_the_allocator_s(make_task, monkeypatch, optimizer, rows):
    """Scaled from 8 and 4 rows, too; the batch is wide enough that rows are what counts."""
    task = make_task(f"optimizer={optimizer},hidden_size=64,filter_size=128")
    source = task.train_batches(seed=0, start=0, rank=0, world_size=1)
    batch = {name: values[:1].expand(rows, -1) for name, values in next(iter(source)).items()}
    model = task.model()
    numel = sum(parameter.numel() for parameter in model.parameters())
    width = max(values.size(1) for values in batch.values())
    monkeypatch.setattr("t2t_torch.train.memory._MOST_WORK", 8.5 * width * numel)
    result = Footprint.measure(task, model, objective := task.objective(model), batch)
    assert result.measured_rows == 8
    optimizer = task.optimizer(model)

    def step():
        optimizer.zero_grad()
        total_loss(objective.train()(batch)).sum.backward()
        optimizer.step()

    step()
    assert result.step == pytest.approx(peak_of_allocator(step), rel=0.1)


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
