"""What saving costs training: turns of steps with one save at their beginning, and without.

A save copies the state, which holds up the loop, and writes it in a thread, which slows the steps
beside it.  Both are in the difference of two turns that take turns; its share of the time of
--every steps is printed.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from multi30k import argument_parser, hparams, make_data, task
from report import print_header, print_table, spread


def main() -> None:
    """Prints the table."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--steps", type=int, default=20, help="in a turn; longer than a save")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each kind")
    parser.add_argument("--every", type=int, default=500, help="steps between two saves")
    arguments = parser.parse_args()
    make_data(arguments.data_dir, arguments.tmp_dir)
    print_header(arguments.seed)

    from t2t_torch.distributed.precision import resolve
    from t2t_torch.distributed.process_group import ONE_PROCESS
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.memory import keep_freed_memory
    from t2t_torch.train.run_config import RunConfig

    keep_freed_memory()
    chosen = task(arguments.data_dir, resolve(hparams(activation_dtype="auto"), ONE_PROCESS))
    config = RunConfig(
        train_steps=10**6,
        random_seed=arguments.seed,
        keep_checkpoint_max=2,
        log_step_count_steps=10**6,
        local_eval_frequency=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder, "run"))
        directory.begin(
            TaskRecord(problem=chosen.name, model="transformer", hparams_set=""), chosen.hparams
        )
        with Estimator(chosen, directory, config) as estimator:
            _measure(estimator, arguments.steps, arguments.rounds, arguments.every)


def _measure(estimator: Any, steps: int, rounds: int, every: int) -> None:
    from t2t_torch.train.estimator import train_step

    run, state = estimator.begin(), estimator.state
    run.model.train()
    batches = [run.next_batches() for _ in range(steps)]
    plain: list[float] = []
    saving: list[float] = []
    held_up: list[float] = []
    for number in range(2 * rounds + 2):
        saves = number % 2 == 1
        started = time.perf_counter()
        if saves:
            estimator.save()
            if number > 1:
                held_up.append(time.perf_counter() - started)
        for batch in batches:
            train_step(run, state, estimator.world, batch)
        taken = time.perf_counter() - started
        estimator.saving.finish()  # a save that is not done yet is the next turn's in no case
        if number > 1:
            (saving if saves else plain).append(taken)
    step = statistics.median(plain) / steps
    shares = [(a - b) / (every * step) for a, b in zip(saving, plain, strict=True)]
    rows = [
        ["a step, ms", *spread([1e3 * turn / steps for turn in plain], 1)],
        ["a save holds up the loop for, ms", *spread([1e3 * each for each in held_up], 1)],
        [
            "a save costs in all, ms",
            *spread([1e3 * (a - b) for a, b in zip(saving, plain, strict=True)], 1),
        ],
        [f"share of {every} steps, %", *spread([100 * share for share in shares], 3)],
    ]
    print_table(["what", "median", "min", "max"], rows)


if __name__ == "__main__":
    main()
