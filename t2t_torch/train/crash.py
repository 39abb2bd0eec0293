"""Crash dump of a step after too many consecutive steps with a loss or gradient that is not finite.

  crash/step-<n>-rank<r>/
    crash.json               step, batches, rows of the data, first values that are not finite
    batch-<number>.safetensors   the batch as the model received it

The weights are those of the newest checkpoint, because such steps are skipped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from torch import Tensor, nn

from t2t_torch.errors import NotFiniteError
from t2t_torch.loss import total_loss
from t2t_torch.train.random_state import seeded

if TYPE_CHECKING:
    from t2t_torch.train.estimator import TrainState
    from t2t_torch.train.task import Batch


_FAULTS = {
    "weights_not_finite": "bad of the weights is",
    "outputs_not_finite": "not finite is the output of",
    "gradients_not_finite": "not finite is the gradient of",
}
"""Key in `crash.json` -> words for its first entry in the message."""


def dump(
    directory: Path,
    run: TrainState,
    seed: int,
    step: int,
    batches: Sequence[tuple[int, Batch]],
    rank: int,
    skipped: int,
) -> NotFiniteError:
    """Repeats a step in this process alone, and records the first values that are not finite.

    Args:
      directory: the run directory.
      run: the training state.
      seed: seed of the run.
      step: number of steps completed before it.
      batches: (number of the global batch, batch) of this process.
      rank: rank of this process.
      skipped: consecutive steps that were not finite, including this one.

    Returns:
      The error that ends the run; it names the written folder.
    """
    folder = directory / "crash" / f"step-{step + 1}-rank{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for number, batch in batches:
        named = run.task.batches.tensors(batch).items()
        tensors = {name: tensor.cpu().contiguous() for name, tensor in named}
        rows = {}
        if hasattr(run.source, "rows_of"):  # optional in a user's task
            rows = dict(zip(("data_set", "rows"), run.source.rows_of(number), strict=True))
        safetensors.torch.save_file(tensors, folder / f"batch-{number}.safetensors")
        results.append({"batch": number, **rows, **_faults(run, seed, number, batch)})
    report = {"step": step + 1, "rank": rank, "seed": seed, "batches": results}
    (folder / "crash.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    faults = [
        f"First {words} {one[key][0]}. "
        for one in results
        for key, words in _FAULTS.items()
        if one.get(key)
    ]
    numbers = ", ".join(str(number) for number, _ in batches)
    return NotFiniteError(
        f"the loss or its gradient is not finite at step {step + 1}, as in the {skipped - 1} steps "
        f"before (--max_consecutive_nonfinite). {(faults or [''])[0]}None of them moved the "
        f"weights; the checkpoints are whole. Batch {numbers} and where numbers went bad are in "
        f"{folder}. Try a smaller learning rate, a longer learning_rate_warmup_steps, "
        "clip_grad_norm=1.0, or activation_dtype=float32. If that does not help the weights may "
        "have been nonsense before: go back further, that is delete the newest checkpoints."
    )


def _faults(run: TrainState, seed: int, number: int, batch: Batch) -> dict[str, Any]:
    if run.is_sharded:  # a pass needs all processes
        return {}
    run.model.zero_grad()
    with seeded(seed, number, run.device), _watched(run.model) as bad_outputs:
        with run.precision.autocast():
            loss = total_loss(run.objective(batch))
        loss.sum.backward()  # type: ignore[no-untyped-call]
    parameters = list(run.model.named_parameters())
    bad_gradients = [n for n, p in parameters if p.grad is not None and not _finite(p.grad)]
    run.model.zero_grad()
    value = float(loss.sum.detach())
    return {
        "loss": value if math.isfinite(value) else str(value),
        "weight": float(loss.weight),
        "outputs_not_finite": bad_outputs,  # modules in the order of computation
        "gradients_not_finite": bad_gradients,
        "weights_not_finite": [name for name, p in parameters if not _finite(p)],
    }


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[str]]:
    """Yields the names of modules whose outputs are not finite, in the order of computation."""
    bad: list[str] = []

    def look(name: str) -> Any:
        def after(module: nn.Module, inputs: object, output: object) -> None:
            del module, inputs
            if isinstance(output, Tensor) and not _finite(output):
                bad.append(name)

        return after

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.enter_context(module.register_forward_hook(look(name)))
        yield bad


def _finite(tensor: Tensor) -> bool:
    # An attention mask is minus infinity at excluded positions: this is intended.
    return not tensor.is_floating_point() or bool(
        (~(tensor.isnan() | torch.isposinf(tensor))).all()
    )
