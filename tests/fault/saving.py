"""A program that saves a checkpoint again and again, killed before another system call each time.

    python saving.py FOLDER

In FOLDER/<n> a checkpoint of step 1 stands, rated the best; a fork saves one of step 2, keeps one
beside the best, and is killed before its n-th system call.  Ends with the first that is not killed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from t2t_torch.run import storage
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory


class Mean:
    """A running mean of weights."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Its numbers."""
        return {"weight": torch.full((2, 2), 0.5)}


def snapshot(step: int) -> Snapshot:
    """Makes a snapshot whose weights tell its step."""
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, step)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    average: Any = Mean()
    return Snapshot.take(model, optimizer, TrainerState(step=step), average)


def save(folder: Path) -> None:
    """Saves steps 2 and 3, with an evaluation between."""
    directory = CheckpointDirectory(folder, keep=1)
    directory.save(snapshot(2))
    directory.rate(2, 0.5, lower_is_better=True)
    directory.save(snapshot(3))


def main(folder: Path) -> int:
    """Kills and kills; prints the exit codes."""
    torch.set_num_threads(1)
    begun = folder / "0"
    begun.mkdir()
    (begun / "vocab.a").write_text("a b c")
    directory = CheckpointDirectory(begun)
    directory.save(snapshot(1))
    directory.rate(1, 1.0, lower_is_better=True)
    for number in itertools.count(1):
        base = folder / str(number)
        shutil.copytree(begun, base)
        child = os.fork()
        if not child:
            os.environ[storage.VARIABLE] = f"save:{number}"
            save(base)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return 0
        if code != storage.KILLED:
            return 1
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
