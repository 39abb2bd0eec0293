"""How long a training of ten million rows waits for its first batch, the import of torch aside.

The data is that of datagen_large.py; it is generated if it is not there, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from datagen_large import FOLDER, PROBLEM, command, environment
from report import print_header, print_table, spread

# Runs in a fresh process: what the trainer does up to its first batch, without the model.
SCRIPT = """
import json, sys, time

started, folder, name, data_dir, batch_size = sys.argv[1:]
before = time.time()
import torch
torch_seconds = time.time() - before

from pathlib import Path
from t2t_torch import registry
from t2t_torch.train.problem_task import ProblemTask

registry.import_usr_dir(folder)
imported = time.time()
hparams = registry.hparams("transformer_base").replace(batch_size=int(batch_size))
model = registry.model("transformer")
data_dir = Path(data_dir)
task = ProblemTask(
    registry.problem(name), model, hparams, data_dir=data_dir, vocab_dir=data_dir
)
batches = task.train_batches(seed=0, start=0, rank=0, world_size=1)
batch = next(iter(batches))
ended = time.time()
peak = next(
    int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:")
)
print(json.dumps({
    "seconds": ended - float(started) - torch_seconds,
    "imports": imported - float(started) - torch_seconds,
    "data": ended - imported,
    "torch": torch_seconds,
    "gigabytes": peak * 1024 / 1e9,
}))
"""


def _first_batch(data_dir: Path, batch_size: int) -> dict[str, float]:
    arguments = [str(time.time()), str(FOLDER), PROBLEM, str(data_dir), str(batch_size)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--data_dir", type=Path, help="by default a temporary folder that is kept")
    parser.add_argument("--batch_size", type=int, default=4096, help="tokens")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    kept = Path(tempfile.gettempdir()) / "t2t_benchmarks" / f"large-{arguments.rows}"
    data_dir = arguments.data_dir or kept
    os.environ.update(environment(arguments.rows))
    subprocess.run(command(data_dir), stdout=subprocess.DEVNULL, check=True)
    print_header()
    first = _first_batch(data_dir, arguments.batch_size)
    found = [_first_batch(data_dir, arguments.batch_size) for _ in range(arguments.rounds)]
    rows = [
        [told, f"{first[key]:.2f}", *spread([each[key] for each in found])]
        for key, told in (
            ("seconds", "seconds from start to first batch, torch's import aside"),
            ("imports", "of these, other imports"),
            ("data", "of these, opening, planning, collating"),
            ("torch", "seconds that torch's import took"),
            ("gigabytes", "GB of memory at most"),
        )
    ]
    print_table(["first batch", "first run", "median of others", "min", "max"], rows)


if __name__ == "__main__":
    main()
