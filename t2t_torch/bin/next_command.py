"""The command that t2t-datagen suggests next, and how long it may take."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.errors import RegistryError

if TYPE_CHECKING:
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem

_EPOCHS = 20
_FEWEST_STEPS, _MOST_STEPS = 300, 50_000
_FEWEST_STEPS_OF_TEXTS = 2000
_WARM_UPS = 3  # A warm-up of more than one of so many parts of the steps is shortened.
_STEP_SECONDS = 0.005  # of a step, beside its matrix products
_SHARE_OF_PEAK = 0.4  # of the speed of a large matrix product that training reaches
_PRODUCTS = 6  # floating point operations for each weight and token: forward, and twice backward


def next_command(name: str, data_dir: Path, usr_dirs: Sequence[str]) -> str:
    """Returns the command of t2t-trainer, and an estimate of its time on this machine's CPUs.

    Args:
      name: of the problem, whose data has been generated.
      data_dir: where its data is; of a mixture, that of its problems.
      usr_dirs: of the problem.
    """
    problem = registry.problem(name)
    words = problem.suggested_flags.split()
    flags = dict(word.split("=", 1) for word in words)
    command = ["t2t-trainer", f"--problem={name}", *words, f"--data_dir={data_dir}"]
    command += ["--output_dir=run", *(f"--t2t_usr_dir={directory}" for directory in usr_dirs)]
    try:
        hparams: HParams = registry.hparams(flags["--hparams_set"])
    except (KeyError, RegistryError):  # a set of the user's own, which need not be there yet
        return f"  {shlex.join(command)}"
    manifests = _manifests(problem, data_dir)
    rows = sum(one.splits["train"].rows for one in manifests)
    length = max(1.0, _positions(manifests) / max(1, rows))
    by_tokens = problem.batch_size_means_tokens
    rows_of_batch = max(1.0, hparams.batch_size / length if by_tokens else hparams.batch_size)
    steps = int(flags.get("--train_steps", 0))
    if not steps:
        steps = _steps(rows / rows_of_batch, writes_texts=_writes_texts(problem, data_dir))
        added = [f"--train_steps={steps}"]
        if "--hparams" not in flags and _WARM_UPS * hparams.learning_rate_warmup_steps > steps:
            added.append(f"--hparams={_shorter_warm_up(steps // _WARM_UPS, hparams)}")
        command[2 + len(words) : 2 + len(words)] = added
    rows_of_step = min(rows, rows_of_batch)  # no batch goes over the end of the data
    operations = _operations(manifests, hparams) * rows_of_step * length
    seconds = steps * (_STEP_SECONDS + operations / _speed())
    epochs = steps * rows_of_step / max(1, rows)
    return (
        f"  {shlex.join(command)}\n"
        f"({steps:,} steps, {epochs:,.0f} times the data: roughly {_told(seconds)} on the CPUs of "
        "this machine. The trainer reports the time left.)"
    )


def _manifests(problem: Problem, data_dir: Path) -> list[Manifest]:
    from t2t_torch.data.manifest import Manifest

    parts = problem.components if problem.mixing_schedule is not None else [problem]
    return [Manifest.load(data_dir, part.dataset_name) for part in parts]


def _positions(manifests: Sequence[Manifest]) -> int:
    """The positions of all training rows, of the longest feature of words or ids."""
    return sum(
        max((entry.tokens[n] for n, f in one.features.items() if f.vocab_size), default=entry.rows)
        for one in manifests
        for entry in (one.splits["train"],)
    )


def _writes_texts(problem: Problem, data_dir: Path) -> bool:
    parts = problem.components if problem.mixing_schedule is not None else [problem]
    targets = (feature for part in parts for feature in part.features(data_dir).targets.values())
    return any(target.generates for target in targets)


def _steps(batches: float, *, writes_texts: bool) -> int:
    """Steps of some epochs, within bounds, rounded up to two digits."""
    least = _FEWEST_STEPS_OF_TEXTS if writes_texts else _FEWEST_STEPS
    steps = min(max(_EPOCHS * batches, least), _MOST_STEPS)
    unit = 10 ** max(0, math.floor(math.log10(steps)) - 1)
    return math.ceil(steps / unit) * unit


def _shorter_warm_up(steps: int, hparams: HParams) -> str:
    """Hyperparameters of a warm-up of so many steps to the same learning rate."""
    changed = f"learning_rate_warmup_steps={steps}"
    if "rsqrt_decay" not in hparams.learning_rate_schedule:
        return changed
    factor = math.sqrt(steps / hparams.learning_rate_warmup_steps)
    return f"{changed},learning_rate_constant={hparams.learning_rate_constant * factor:.2g}"


def _operations(manifests: Sequence[Manifest], hparams: HParams) -> float:
    """Floating point operations of a training step for each position, by the set's sizes."""
    hidden, layers = hparams.hidden_size, max(1, hparams.num_hidden_layers)
    inner = getattr(hparams, "filter_size", None) or 2 * hidden
    sides = 2 if any("inputs" in one.features for one in manifests) else 1
    weights = layers * sides * (4 * hidden * hidden + 2 * hidden * inner)
    texts = [
        entry.vocab_size or 0
        for one in manifests
        for entry in one.features.values()
        if entry.role == "targets"
    ]
    return float(_PRODUCTS * (weights + hidden * max(texts, default=0)))


def _speed() -> float:
    """Floating point operations a second that training may reach, by a product of matrices."""
    import numpy as np

    matrix, seconds = np.ones((768, 768), np.float32), []
    for _ in range(6):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    return _SHARE_OF_PEAK * 2 * len(matrix) ** 3 / max(1e-9, min(seconds))


def _told(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return "2 minutes or less"
