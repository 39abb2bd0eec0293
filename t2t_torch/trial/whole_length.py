"""How many optimizer steps a whole training of a trial has, where only its loaders can say.

An experiment may be so many epochs or records long.  The trial's code is asked in a process of its
own: the tuner imports no torch, and what the code leaves behind stays there.

    python -m t2t_torch.tune.whole_length < question.json
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.errors import EXIT_CODE, ConfigError, T2TError, UsageError
from t2t_torch.search_space import AnyValue, Space

_ANSWER = "whole_length: "
_MOST_TOLD = 2000  # characters of an error


def whole_length(trial: str, config: Path, space: Space, usr_dirs: Sequence[str]) -> int:
    """Returns the optimizer steps of a whole training, the same at both ends of all ranges.

    Args:
      trial: as `--trial` takes it.
      config: of the experiment.
      space: what is searched.
      usr_dirs: folders of the user's.

    Raises:
      UsageError: the trial's loaders cannot be made, or trainings differ in their steps.
    """
    found: dict[int, Mapping[str, AnyValue]] = {}
    why = ""
    for place in (0.0, 1.0) if space.searched else (0.0,):
        values = space.at(place)
        question = {
            "trial": trial,
            "config": str(config),
            "hparams": space.nested(values),
            "usr_dirs": list(usr_dirs),
        }
        done = subprocess.run(
            [sys.executable, "-m", "t2t_torch.trial.whole_length"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            check=False,
        )
        answers = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
        if done.returncode == 0 and answers:
            found.setdefault(int(answers[-1].removeprefix(_ANSWER)), values)
        else:
            why = done.stderr.strip()[-_MOST_TOLD:].removeprefix("error: ")
    if not found:
        raise UsageError(f"{config}: how long a training is, its loaders should say: {why}")
    if len(found) > 1:
        told = ", ".join(f"{steps:,} steps with {dict(one)}" for steps, one in found.items())
        raise UsageError(
            f"{config}: a whole training has {told}; trials are compared at equal steps. Give "
            "--train_steps, or the length in batches."
        )
    return next(iter(found))


def _answer(question: Mapping[str, Any]) -> int:
    # torch, and the user's code: in this process alone.
    from t2t_torch.distributed.process_group import join_world
    from t2t_torch.trial.config import ExperimentConfig
    from t2t_torch.trial.preparation import prepare

    for folder in question["usr_dirs"]:
        registry.import_usr_dir(folder)
    config = ExperimentConfig.read(Path(question["config"]))
    length = config.searcher.length
    if length is None:
        raise ConfigError(f"{question['config']} does not say how long to train.")
    spec = question["trial"]
    if config.trial_class and ":" not in Path(spec).name:
        spec += f":{config.trial_class.rpartition(':')[2]}"
    with join_world(use_gpu=False) as world:
        seed = config.reproducibility.experiment_seed
        task = prepare(spec, config, question["hparams"], world, seed=seed, timeout_s=7200)
        source = task.train_batches(seed=seed, start=0, rank=0, world_size=1).source
        scale = config.scale(
            world_size=1,
            records_per_batch=source.records_per_batch,
            batches_per_epoch=source.batches_per_epoch,
        )
        return scale.steps(length)


def main() -> int:
    """Answers the question on standard input; returns the exit code."""
    try:
        print(f"{_ANSWER}{_answer(json.loads(sys.stdin.read()))}", flush=True)
    except T2TError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
