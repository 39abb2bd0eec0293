"""What --digest_every costs: turns of steps with digests and without, in the same process.

Both trainings have the same weights and batches.  A turn has as many steps as from one line of
digests to the next, so it has one step that is computed twice.
Times are of the processor: other work does not count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from report import print_header, print_table, spread

PROBLEM = "algorithmic_reverse_binary40"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--every", type=int, default=50, help="steps from one line to the next")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each kind")
    parser.add_argument("--hparams", default="batch_size=2048", help="changes to the set")
    parser.add_argument("--hparams_set", default="transformer_small")
    arguments = parser.parse_args()
    print_header()

    from t2t_torch import registry
    from t2t_torch.data.generate import generate_data
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.train.digests import DigestLog
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.memory import keep_freed_memory
    from t2t_torch.train.problem_task import ProblemTask
    from t2t_torch.train.run_config import RunConfig

    keep_freed_memory()
    problem, model = registry.problem(PROBLEM), registry.model("transformer")
    hparams = registry.hparams(arguments.hparams_set).parse(arguments.hparams)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        generate_data(problem, place, place, num_processes=1, max_cases=2000, progress=False)
        runs = {}
        for name, every in {"without": 0, "with": arguments.every}.items():
            task = ProblemTask(problem, model, hparams, data_dir=place, vocab_dir=place)
            directory = RunDirectory(place / name)
            directory.begin(TaskRecord(problem=PROBLEM, model="transformer"), hparams)
            config = RunConfig(train_steps=10**6, local_eval_frequency=0, digest_every=every)
            hooks = [DigestLog()] if every else []
            runs[name] = Estimator(task, directory, config, hooks=hooks)
        _measure(runs, arguments.rounds, arguments.every)
        for estimator in runs.values():
            estimator.close()


def _measure(runs: dict[str, Any], rounds: int, every: int) -> None:
    from t2t_torch.train.estimator import train_step

    steps: dict[str, list[list[float]]] = {name: [] for name in runs}
    checks = _timed(runs["with"].begin().digests, ("check", "after_update"))
    for number in range(rounds + 1):
        for name, estimator in list(runs.items())[:: 1 if number % 2 else -1]:
            run, taken = estimator.begin(), []
            run.model.train()
            for _ in range(every):
                batches = run.next_batches()
                started = time.process_time()
                train_step(run, estimator.state, estimator.world, batches)
                taken.append(time.process_time() - started)
            if number:
                steps[name].append(taken)
    plain = [step for turn in steps["without"] for step in turn]
    base, twice = statistics.median(plain), [turn[-1] for turn in steps["with"]]
    of_step = [sum(checks[at : at + 2]) for at in range(2 * every, len(checks), 2)]
    others = [taken for number, taken in enumerate(of_step, 1) if number % every]
    second = [step / base - 1 for step in twice]
    turns = [sum(a) / sum(b) - 1 for a, b in zip(steps["with"], steps["without"], strict=True)]
    total = statistics.median(others) / base + statistics.median(second) / every
    sizes = [one.numel() for one in runs["with"].model.parameters()]
    rows = [
        ["parameters, tensors", f"{sum(sizes):,}", f"{len(sizes)}", ""],
        ["a step without digests, ms", *spread([1e3 * step for step in plain], 1)],
        ["checks of a step, ms", *spread([1e3 * taken for taken in others], 2)],
        ["checks of a step, %", *spread([100 * taken / base for taken in others], 2)],
        ["second computation, % of a step", *spread([100 * share for share in second], 0)],
        [f"both, % of {every} steps", f"{100 * total:.2f}", "", ""],
        [f"turns of {every} steps, %", *spread([100 * turn for turn in turns], 2)],
    ]
    print_table(["", "median", "least", "most"], rows)


def _timed(digests: Any, names: tuple[str, ...]) -> list[float]:
    """Returns the list into which calls of some methods write their seconds."""
    taken: list[float] = []

    def wrap(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            started = time.process_time()
            result = function(*arguments, **named)
            taken.append(time.process_time() - started)
            return result

        return call

    for name in names:
        setattr(digests, name, wrap(getattr(digests, name)))
    return taken


if __name__ == "__main__":
    main()
