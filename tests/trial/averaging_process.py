"""Averages metrics as one of several processes, where some have no batch; the leader writes.

averaging_process.py results.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from t2t_torch.distributed.process_group import World, join_world
from t2t_torch.errors import TrialError
from t2t_torch.trial.metrics import MetricAverages
from t2t_torch.trial.pytorch_trial import Reducer


def batch(number: int) -> dict[str, Any]:
    """The metrics of a batch, which nobody would guess from those of another."""
    drawn = np.random.default_rng(number)
    return {"error": drawn.random(), "recall": drawn.random(3), "table": drawn.random((2, 2))}


def averaged(world: World, batches: int) -> dict[str, Any]:
    """What all processes together find."""
    averages = MetricAverages()
    for number in range(world.rank, batches, world.size):
        # A dict is not ordered alike in every process.
        averages.update(dict(sorted(batch(number).items(), reverse=world.rank % 2 == 1)))
    averages.agree(world)
    arrays = {name: array.tolist() for name, array in averages.arrays().items()}
    return {**averages.result(), **arrays}


def reduced(world: World, batches: int) -> dict[str, float]:
    """What is joined by other reducers; a process may have no batch."""
    averages = MetricAverages("", {"max": Reducer.MAX, "min": Reducer.MIN, "sum": Reducer.SUM})
    for number in range(world.rank, batches, world.size):
        averages.update({"max": -number - 1.0, "min": number + 1.0, "sum": number + 1.0})
    averages.agree(world)
    return averages.result()


def fault(world: World, metrics: dict[str, Any] | None) -> str:
    """What is raised where a process has these metrics, or no batch."""
    averages = MetricAverages()
    if metrics is not None:
        averages.update(metrics)
    try:
        averages.agree(world)
        averages.result()
    except TrialError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    with join_world(use_gpu=False) as world:
        result = {
            "5 batches": averaged(world, 5),
            "1 batch": averaged(world, 1),
            "no batch": fault(world, None),
            "other names": fault(world, {"ab"[world.rank]: 1.0}),
            "reduced": [reduced(world, 5), reduced(world, 1)],
            "other shapes": fault(world, {"a": np.ones(1 + world.rank)}),
        }
        if world.leads:
            Path(sys.argv[1]).write_text(json.dumps(result), "utf-8")
