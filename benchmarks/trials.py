"""A trial under `t2t-trainer --trial`, beside a loop written by hand over the same trial.

Both train `examples/mnist_trial` with batches of 64: ours with what a run has (order, seeds, checks
of finite numbers, reports, a checkpoint at the end), theirs with nothing but the loader, the losses
and the optimizer.  Speed is examples in a second.  MNIST's files are where --path says.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from pairing import Side, Stopwatch, Turn, Work, alternate, print_comparison
from report import print_header

TRIAL = Path(__file__).resolve().parent.parent / "examples" / "mnist_trial"
SEED = 1
HPARAMS: dict[str, Any] = {
    "batch_size": 64,
    "learning_rate": 0.05,
    "dropout": 0.2,
    "filters": {"first": 16, "second": 16},
}


def _task(path: str) -> Any:
    from t2t_torch.distributed.process_group import ONE_PROCESS
    from t2t_torch.trial.experiment import ExperimentConfig
    from t2t_torch.trial.preparation import prepare

    written = {"data": {"path": path, "url": ""}, "hyperparameters": HPARAMS}
    config = ExperimentConfig.from_dict(written)
    return prepare(str(TRIAL), config, HPARAMS, ONE_PROCESS, seed=SEED, timeout_s=60.0)


def ours(settings: tuple[str, int]) -> Turn:
    """Prepares our side: each turn goes on with the run."""
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.memory import keep_freed_memory
    from t2t_torch.train.run_config import RunConfig

    path, steps = settings
    keep_freed_memory()
    directory = RunDirectory(Path(tempfile.mkdtemp()) / "run")
    config = RunConfig(train_steps=1 << 30, local_eval_frequency=0, random_seed=SEED)
    task = _task(path)
    directory.claim_files(TaskRecord(trial=task.name), {})
    estimator = Estimator(task, directory, config)

    def turn(number: int) -> Work:
        del number
        with contextlib.redirect_stderr(io.StringIO()):
            estimator.begin()
            watch = Stopwatch()
            estimator.train(estimator.state.step + steps)
            taken = watch.read()
        return Work(steps * HPARAMS["batch_size"], *taken)

    return turn


def by_hand(settings: tuple[str, int]) -> Turn:
    """Prepares the other side: torch's DataLoader and the trial's own functions."""
    path, steps = settings
    task = _task(path)
    loader, _ = task.loaders
    trial = task.trial
    model = trial.build_model(HPARAMS)
    optimizer = trial.optimizer(model)
    batches = iter(loader)

    def turn(number: int) -> Work:
        nonlocal batches
        del number
        model.train()
        watch = Stopwatch()
        for _ in range(steps):
            try:
                inputs, labels = next(batches)
            except StopIteration:
                batches = iter(loader)
                inputs, labels = next(batches)
            predictions = model(inputs)
            loss = trial.losses(predictions, labels)
            trial.training_metrics(predictions, labels, loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return Work(steps * HPARAMS["batch_size"], *watch.read())

    return turn


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--path", default="tmp/mnist", help="of MNIST's files")
    parser.add_argument("--steps", type=int, default=300, help="of a turn")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    print_header(SEED)
    settings = (str(Path(arguments.path).absolute()), arguments.steps)
    sides = [Side("t2t-trainer --trial", ours, settings), Side("by hand", by_hand, settings)]
    print_comparison(alternate(sides, arguments.rounds), sides[0].name, "examples")


if __name__ == "__main__":
    main()
