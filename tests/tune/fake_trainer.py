"""A trainer without a model: `metrics.jsonl` is a formula of hyperparameters and step.

It knows the flags that a tuner gives, locks the run directory, counts its steps in a file as a
checkpoint, and stops politely at SIGTERM.  `FAKE` in the environment names a folder:
`hold-<trial>` there makes the training of a trial wait at its middle until the file is gone,
`raise-<trial>` makes it raise, `diverge-<trial>` makes it diverge, `invalid-<trial>` makes its
hyperparameters invalid, `refuse-<trial>` makes it end as after a user's error; `nan-<trial>`
makes its values NaN.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    flags = [argument.lstrip("-").partition("=") for argument in sys.argv[1:]]
    values = {name: value for name, _, value in flags}
    hp = dict(value.split("=", 1) for name, _, value in flags if name == "hp")
    directory = Path(values["output_dir"])
    trial, pause = directory.name, int(values["pause_at_step"])
    control = Path(os.environ["FAKE"])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    lock = (directory / "train.lock").open("a")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (control / "log").open("a") as log:
        log.write(f"{trial} {pause} {os.getpid()} {os.environ.get('OMP_NUM_THREADS')}\n")
    kinds = {"raise": 1, "refuse": 2, "invalid": 3, "diverge": 4}
    for word, code in kinds.items():
        if (control / f"{word}-{trial}").exists():
            print(f"error: {word} of trial {trial}", file=sys.stderr)
            return code
    checkpoint = directory / "ckpt"
    step = int(checkpoint.read_text()) if checkpoint.exists() else 0
    rate = float(hp.get("learning_rate_constant", "2"))
    while step < pause:
        while (control / f"hold-{trial}").exists() and step >= pause // 2:
            (control / f"held-{trial}").write_text(str(os.getpid()))
            if stopped:
                return 143
            time.sleep(0.02)
        if stopped:
            return 143
        step += 1
        checkpoint.with_suffix(".new").write_text(str(step))
        checkpoint.with_suffix(".new").replace(checkpoint)
    loss = abs(rate - 1.0) + 10.0 / step
    if (control / f"nan-{trial}").exists():
        loss = None
    name = "metrics-fake/targets/" if not (control / "plain").exists() else ""
    with (directory / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "split": "train", "time": 1.0, "loss": 1.0}) + "\n")
        values = {f"{name}loss": loss, f"{name}accuracy": None if loss is None else 1 - loss}
        file.write(json.dumps({"step": step, "split": "eval", "time": 1.0, **values}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
