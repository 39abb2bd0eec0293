"""`starts.jsonl`: each time that a run was begun or gone on with, and on what machine."""

from __future__ import annotations

import json
import platform
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import t2t_torch

if TYPE_CHECKING:
    from t2t_torch.train.estimator import Estimator

NAME = "starts.jsonl"


def add_start(directory: Path, estimator: Estimator) -> None:
    """Notes that training begins now; one line is one write."""
    device = estimator.world.device
    name = platform.processor() or platform.machine()
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    start = {
        "time": round(time.time(), 3),
        "step": estimator.state.step,
        "train_steps": estimator.train_steps,
        "parameters": sum(parameter.numel() for parameter in estimator.model.parameters()),
        "counted": estimator.task.counted,
        "precision": estimator.precision.name,
        "processes": estimator.world.size,
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "t2t_torch": t2t_torch.__version__,
        "command": " ".join(sys.argv),
    }
    with (directory / NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(start) + "\n")


def starts_of(directory: Path) -> list[dict[str, Any]]:
    """Returns what has been noted, in order; a line that is not whole is left out."""
    try:
        lines = (directory / NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    starts = []
    for line in lines:
        try:
            start = json.loads(line)
        except ValueError:  # of a disk that was full
            continue
        if isinstance(start, dict) and isinstance(start.get("step"), int):
            starts.append(start)
    return starts
