"""Digests of steps: bits flipped on purpose, and steps that must come again."""

from __future__ import annotations

import itertools
import json
import shutil

import pytest
import torch

from t2t_torch.errors import CorruptionError
from t2t_torch.train.digests import NAME, DigestLog, digest, read_digests
from t2t_torch.train.estimator import train_step
from t2t_torch.train.task import Hook


def flip(tensor: torch.Tensor, bit: int = 12) -> None:
    """Flips a bit of the first number of a tensor, in place."""
    words = tensor.detach().view(-1)[:1].view(torch.int32)
    words[0] ^= 1 << bit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_every_flipped_bit_changes_a_digest(dtype, size):
    tensor = torch.arange(size).to(dtype)
    before = digest(tensor)
    bytes_ = tensor.view(torch.uint8)
    for place in range(len(bytes_)):
        for bit in range(8):
            bytes_[place] ^= 1 << bit
            assert digest(tensor) != before
            bytes_[place] ^= 1 << bit
    assert digest(tensor) == before
    both = torch.stack([tensor, tensor], 1)
    assert digest(both[:, 0]) == before


class Fault(Hook):
    """Flips a bit once, at an event of a step."""

    def __init__(self, kind: str, event: str, step: int) -> None:
        self.kind, self.event, self.step = kind, event, step

    def begin(self, estimator):
        run = estimator.run
        first, self.tensors = next(iter(run.model.parameters())), {}
        self.tensors["weight"] = lambda: first
        self.tensors["optimizer"] = lambda: run.optimizer.state[first]["exp_avg"]
        self.tensors["average"] = lambda: next(iter(run.average.tensors().values()))
        if self.kind == "gradient":
            first.register_post_accumulate_grad_hook(lambda one: self._at(estimator, one.grad))
        if self.kind == "batch":
            move = run.task.batches.to_device

            def moved(batch, device):
                batch = move(batch, device)
                targets = batch["targets"].view(-1)
                self._at(estimator, targets[(targets == 1).nonzero()[0, 0] :])  # an id in use
                return batch

            run.task.batches.to_device = moved

    def _at(self, estimator, tensor):
        if estimator.state.step + 1 == self.step:
            self.step = -1
            flip(tensor, 0)

    def before_update(self, estimator):
        if self.event == "in the pass" and self.kind in self.tensors:
            self._at(estimator, self.tensors[self.kind]())

    def after_step(self, estimator):
        if self.event == "after the update" and estimator.state.step == self.step:
            flip(self.tensors[self.kind]())


FAULTS = [  # kind, event, step, (message, step in it); digests every 4 steps, a save every 8
    ("weight", "in the pass", 3, ("where nothing writes", 3)),
    ("weight", "after the update", 3, ("where nothing writes", 4)),
    ("weight", "after the update", 8, ("where nothing writes", 9)),
    ("optimizer", "after the update", 3, ("where nothing writes", 4)),
    ("average", "after the update", 3, ("where nothing writes", 4)),
    ("gradient", "in the pass", 4, ("computed three times, two of them are equal", 4)),
    ("gradient", "in the pass", 3, None),
    ("batch", "in the pass", 4, ("is not the one that its rows", 4)),
    ("batch", "in the pass", 3, None),
]


@pytest.mark.parametrize(("kind", "event", "step", "found"), FAULTS)
def test_a_flipped_bit_is_found_before_the_next_checkpoint(
    make_estimator, kind, event, step, found
):
    hooks = [DigestLog(), Fault(kind, event, step)]
    run = make_estimator(
        "run", "ema_decay=0.9", hooks=hooks, digest_every=4, save_checkpoints_steps=8
    )
    if found is None:  # such a fault is found by a replay alone
        run.train(8)
        assert hooks[1].step == -1
        return
    with pytest.raises(CorruptionError, match=found[0]) as caught:
        run.train(12)
    assert f"step {found[1]}" in str(caught.value)
    assert "(1 of " in str(caught.value) or kind == "batch"
    run.saving.close()
    assert run.checkpoints.list() == []


def lines_of(run) -> list[str]:
    return (run.directory.path / NAME).read_text().splitlines()


@pytest.mark.parametrize("hparams", ["", "activation_dtype=bfloat16,ema_decay=0.9"])
def test_a_run_with_digests_is_bit_equal_and_logs_each_step_once(make_estimator, hparams):
    plain = make_estimator("plain", hparams)
    plain.train(9)
    for stop in (5, 9):
        run = make_estimator("run", hparams, hooks=[DigestLog()], digest_every=2, train_steps=9)
        run.train(stop)
        run.close()
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(tensor, run.model.state_dict()[name])
    assert list(read_digests(run.directory.path)) == [2, 4, 6, 8, 9]
    assert len(lines_of(run)) == 5


def test_steps_that_come_again_after_a_kill_are_compared(make_estimator, capsys):
    settings = {"digest_every": 2, "save_checkpoints_steps": 4}
    run = make_estimator(hooks=[DigestLog()], **settings)
    run.train(4)
    run.close()
    first = make_estimator(hooks=[DigestLog()], **settings)
    first.begin()
    for _ in range(4):  # leaves the lines of steps 6 and 8 without a checkpoint
        train_step(first.run, first.state, first.world, first.run.next_batches())
        first.hooks[0].after_step(first)
    first.close()
    before = lines_of(first)
    assert len(before) == 4
    again = make_estimator(hooks=[DigestLog()], **settings)
    again.train(8)
    again.close()
    assert lines_of(again) == before
    assert "before the interruption" not in capsys.readouterr().err
    record = json.loads(before[2])
    record["gradients"][0] += 1
    file = again.directory.path / NAME
    file.write_text("\n".join([*before[:2], json.dumps(record), '{"step": 7, "torn']))
    for folder in again.directory.path.glob("ckpt-8"):
        shutil.rmtree(folder)
    third = make_estimator(hooks=[DigestLog()], **settings)
    third.train(8)
    third.close()
    said = capsys.readouterr().err
    assert "warning: step 6 is not as it was before the interruption: the gradients first" in said
    assert lines_of(third)[-2:] == before[2:]


def test_a_checkpoint_of_other_weights_than_logged_is_refused(make_estimator):
    run = make_estimator(hooks=[DigestLog()], digest_every=4)
    run.train(4)
    run.close()
    file = run.directory.path / NAME
    record = json.loads(file.read_text())
    record["weights"][0] += 1
    file.write_text(json.dumps(record) + "\n")
    with pytest.raises(CorruptionError, match="does not have the weights that the run logged"):
        make_estimator(hooks=[DigestLog()], digest_every=4).begin()


def test_kernels_that_differ_each_time_are_said(make_estimator):
    noise = itertools.count(1.0)

    class Unsteady(Fault):
        def _at(self, estimator, tensor):
            tensor += next(noise)

    run = make_estimator(hooks=[DigestLog(), Unsteady("gradient", "", 1)], digest_every=2)
    with pytest.raises(CorruptionError, match="all three differ"):
        run.train(3)


def test_buffers_are_as_after_one_pass(make_estimator):
    passes = {}
    for every in (0, 1):
        run = make_estimator(f"{every}", hooks=[DigestLog()] if every else [], digest_every=every)
        model = run.begin().model
        model.register_buffer("passes", torch.zeros([]))
        layer = model.modalities["targets"].bottom
        layer.register_forward_hook(lambda *_, to=model: to.passes.add_(1) and None)
        run.train(3)
        passes[every] = int(model.passes)
    assert passes[1] == passes[0] > 0
