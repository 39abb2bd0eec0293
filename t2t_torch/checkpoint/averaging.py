"""The mean of checkpoints' weights; Vaswani et al. 2017, section 6.1, decodes with one of five."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.checkpoint.snapshot import Snapshot
from t2t_torch.checkpoint.stored_tensors import StoredTensors
from t2t_torch.errors import CheckpointError


def average_checkpoints(checkpoints: Sequence[Checkpoint], out: CheckpointDirectory) -> Checkpoint:
    """Writes the mean of checkpoints as a checkpoint of another directory.

    Sums are made in float64, one tensor at a time.  What is no floating-point number is that of the
    newest.  A running mean that the run keeps besides is no part of it.

    Args:
      checkpoints: of one model, one at least.
      out: where; the average has the newest one's step, and no optimizer's state.

    Returns:
      the average; the one that is there already if it is of the same steps.

    Raises:
      CheckpointError: they are of different models, one is broken, or another one is there already.
      SaveError: it could not be written.
    """
    if not checkpoints:
        raise CheckpointError("an average needs one checkpoint at least")
    ordered = sorted(checkpoints)
    newest, steps = ordered[-1], tuple(checkpoint.step for checkpoint in ordered)
    there = Checkpoint(newest.step, out.path / f"ckpt-{newest.step}")
    if there.path.is_dir() and there.manifest().get("averaged_steps") != list(steps):
        raise CheckpointError(
            f"'{there.path}' is there already and is no average of the checkpoints "
            f"{', '.join(map(str, steps))}. Write to another directory."
        )
    for checkpoint in ordered:
        checkpoint.verify()
    weights = _mean([checkpoint.weights for checkpoint in ordered])
    state = newest.trainer_state()
    kept = newest.task_tensors()
    return out.save(Snapshot(state, weights, slots=None, task=kept, averaged_steps=steps))


def _mean(paths: Sequence[Path]) -> dict[str, Tensor]:
    opened = [StoredTensors(path) for path in paths]
    expected = opened[-1].kinds
    for one in opened:
        kinds = one.kinds
        names = kinds.keys() | expected.keys()
        odd = sorted(name for name in names if kinds.get(name) != expected.get(name))
        if odd:
            raise CheckpointError(
                f"{one.path} is not of the model of {paths[-1]}: {', '.join(odd[:10])} differ. "
                "Only checkpoints of one model can be averaged."
            )
    return {name: _mean_of(name, opened) for name in expected}


def _mean_of(name: str, opened: Sequence[StoredTensors]) -> Tensor:
    last = opened[-1].get(name)
    if not last.is_floating_point():
        return last
    total = torch.zeros(last.shape, dtype=torch.float64)
    for one in opened:
        total += one.get(name)
    return (total / len(opened)).to(last.dtype)
