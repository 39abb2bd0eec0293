"""Which checkpoint of a trial's run a model's weights are of."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from torch import nn

from t2t_torch.checkpoint.averaging import average_checkpoints
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.decode.loading import load_checkpoint
from t2t_torch.errors import UsageError
from t2t_torch.export.request import LATEST, newest_whole
from t2t_torch.train.run_directory import RunDirectory


class Chosen(NamedTuple):
    """A checkpoint, or the mean of several.

    Attributes:
      step: of the newest.
      told: how it was chosen: "step 500", "mean of steps 400, 500".
    """

    step: int
    told: str


def load_chosen(model: nn.Module, run: RunDirectory, wanted: int | str | Path | None) -> Chosen:
    """Loads the weights that are asked for.

    Args:
      model: as the trial builds it.
      run: of the trial.
      wanted: a step, "best", "latest", which None means, too, "average:8", or the path of a
        `ckpt-<step>` folder.

    Raises:
      CheckpointError: there is none such, it is broken, or of another model.
      UsageError: "average:" is not followed by a number.
    """
    kind, _, count = str(wanted).partition(":")
    if kind != "average":
        step = load_checkpoint(model, run, None if wanted == LATEST else wanted)
        return Chosen(step, f"step {step}")
    if not re.fullmatch("[1-9][0-9]*", count):
        raise UsageError(f"{wanted}: expected how many checkpoints, as in average:8.")
    found = newest_whole(run.path, int(count))
    with tempfile.TemporaryDirectory() as scratch:
        mean = average_checkpoints(found, CheckpointDirectory(scratch))
        mean.load_model(model)
    steps = sorted(one.step for one in found)
    return Chosen(steps[-1], f"mean of steps {', '.join(map(str, steps))}")
