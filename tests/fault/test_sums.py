"""N4, N5, N7: a step is the same step however its batches are computed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numbered
import processes
import pytest
import torch
from conftest import reports_of
from one_variable import by_hand

from t2t_torch.modality import Loss
from t2t_torch.optim.gradient import GradientFinisher

# Batches of unequal size: a mean of means would be another number.
BATCHES = [
    ([1.0, 2.0, -1.0], [2.0, 3.0, 0.5]),
    ([0.5], [4.0]),
    ([3.0, -2.0], [1.0, 1.0]),
    ([1.5, 0.25, 2.0, -0.75], [0.0, 1.0, -1.0, 2.0]),
]
RATE = 0.0625
STEPS = 6
NO_DROPOUT = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0"


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("size", [1, 2])
def test_one_weight_is_learnt_as_by_hand(tmp_path, size, accumulate, clip):
    told = {
        "batches": BATCHES,
        "rate": RATE,
        "steps": STEPS,
        "hparams": f"optimizer_multistep_accumulate_steps={accumulate},clip_grad_norm={clip}",
        "output_dir": str(tmp_path / "run"),
        "notes": str(tmp_path / "weights"),
    }
    children = processes.start_world(tmp_path / "err", size, processes.train_one_variable, told)
    for child in children:
        code = child.wait()
        assert code == 0, child.said
    losses, weights = by_hand(BATCHES, RATE, STEPS, each=size * accumulate, clip=clip)
    for rank in range(size):
        found = json.loads(Path(f"{told['notes']}.{rank}").read_text())
        assert found == pytest.approx(weights, rel=1e-6)  # the sum's divisor is single precision
    reported = [report["loss"] for report in reports_of(tmp_path / "run")]
    assert reported == pytest.approx(losses, rel=1e-6)


def test_clipping_is_at_work_in_these_tests():
    assert by_hand(BATCHES, RATE, STEPS, each=1) != by_hand(BATCHES, RATE, STEPS, each=1, clip=0.5)


def gradients_of(model, loss_of, batches, splits):
    """The finished gradients of some batches, each cut into so many parts."""
    model.zero_grad()
    weight = torch.zeros([], dtype=torch.float64)
    for batch, split in zip(batches, splits, strict=True):
        names = list(batch)
        for part in zip(*(batch[name].chunk(split) for name in names), strict=True):
            loss = loss_of(model, dict(zip(names, part, strict=True)))
            loss.sum.backward()
            weight += loss.weight
    finish = GradientFinisher(model.named_parameters(), clip_grad_norm=0.0, weight_decay=0.0)
    finish(weight)
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


class Words(torch.nn.Module):
    """Guesses each target from the input beside it, in double precision throughout."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(16, 8, dtype=torch.float64)
        self.guess = torch.nn.Linear(8, 16, dtype=torch.float64)


def loss_of_words(model, batch):
    """Cross entropy over what is no padding."""
    width = min(batch["inputs"].size(1), batch["targets"].size(1))
    logits = model.guess(model.table(batch["inputs"][:, :width]))
    targets = batch["targets"][:, :width]
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum"
    )
    return Loss(total, (targets != 0).sum())


@pytest.mark.parametrize(("double", "atol"), [(True, 1e-12), (False, 1e-6)])
def test_micro_batches_of_unequal_tokens_add_up_to_the_gradient_of_all(data_dir, double, atol):
    task = numbered.make_task(data_dir, NO_DROPOUT)
    source = task.train_batches(seed=1, start=0, rank=0, world_size=1)
    batches = list(itertools.islice(source, 3))
    assert len({int((batch["targets"] != 0).sum()) for batch in batches}) == 3
    torch.manual_seed(0)
    model, loss_of = Words(), loss_of_words
    if not double:
        model, loss_of = task.model(), lambda model, batch: model(batch).losses["targets"]
    whole = gradients_of(model, loss_of, batches, [1, 1, 1])
    parts = gradients_of(model, loss_of, batches, [4, 2, 3])
    alone = gradients_of(model, loss_of, batches[:1], [1])
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=0, atol=atol)
    assert any(not torch.allclose(alone[name], whole[name], atol=1e-3) for name in whole)
