"""What is kept of a step whose loss or gradient is not finite again and again.

    crash/step-<n>-rank<r>/
      crash.json               step, batches, rows of the data, where numbers went bad
      batch-<number>.safetensors   the batch as the model was given it

The weights are those of the newest checkpoint, as such steps move nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from torch import Tensor, nn

from t2t_torch.errors import NotFiniteError
from t2t_torch.train.task import total_loss

if TYPE_CHECKING:
    from t2t_torch.train.estimator import TrainState
    from t2t_torch.train.task import Batch


# Random numbers that depend on the place in the run, not on how the run got there.
#
# Nothing is drawn from a stream that would have to be stored: before each micro-batch the
# generators are seeded from (seed, number of the global batch).  So dropout is the same after a
# resume, and for any number of processes.


INITIALIZATION = -1  # the "batch" whose seed initializes the weights


def seed_batch(seed: int, batch: int, device: torch.device, *, piece: int = 0) -> None:
    """Seeds the generators of the CPU and of the device.

    Args:
      seed: of the run.
      batch: number of the global batch, or `INITIALIZATION`.
      device: where the model computes.
      piece: of a batch that is computed in several, from 0.
    """
    place = f"{seed}/{batch}/{piece}" if piece else f"{seed}/{batch}"
    digest = hashlib.blake2b(place.encode(), digest_size=8).digest()
    # The sign bit is left out: torch takes seeds below 2^63 on every device.
    derived = int.from_bytes(digest, "little") >> 1
    # Not torch.manual_seed: on a machine without a GPU in use it formats a stack trace every time.
    torch.default_generator.manual_seed(derived)
    if device.type == "cuda":
        torch.cuda.manual_seed(derived)


_FAULTS = {
    "weights_not_finite": "bad of the weights is",
    "outputs_not_finite": "not finite is the output of",
    "gradients_not_finite": "not finite is the gradient of",
}
"""What `crash.json` lists -> how the message tells the first of it."""


def dump(
    directory: Path,
    run: TrainState,
    seed: int,
    step: int,
    batches: Sequence[tuple[int, Batch]],
    rank: int,
    skipped: int,
) -> NotFiniteError:
    """Computes a step again in this process alone, and writes down where it goes wrong.

    Args:
      directory: the run directory.
      run: the model and what goes with it.
      seed: of the run.
      step: steps that were done before it.
      batches: (number of the global batch, batch) of this process.
      rank: of this process.
      skipped: steps in a row that were not finite, this one with them.

    Returns:
      the error that ends the run: it names the folder that was written.
    """
    folder = directory / "crash" / f"step-{step + 1}-rank{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number, batch in batches:
        named = run.task.batches.tensors(batch).items()
        tensors = {name: tensor.cpu().contiguous() for name, tensor in named}
        safetensors.torch.save_file(tensors, folder / f"batch-{number}.safetensors")
        found.append({"batch": number, **_rows(run, number), **_faults(run, seed, number, batch)})
    told = {"step": step + 1, "rank": rank, "seed": seed, "batches": found}
    (folder / "crash.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    numbers = ", ".join(str(number) for number, _ in batches)
    return NotFiniteError(
        f"the loss or its gradient is not finite at step {step + 1}, as in the {skipped - 1} steps "
        f"before (--max_consecutive_nonfinite). {_first_fault(found)}None of them moved the "
        f"weights; the checkpoints are whole. Batch {numbers} and where numbers went bad are in "
        f"{folder}. Try a smaller learning rate, a longer learning_rate_warmup_steps, "
        "clip_grad_norm=1.0, or activation_dtype=float32. If that does not help the weights may "
        "have been nonsense before: go back further, that is delete the newest checkpoints."
    )


def _first_fault(found: Sequence[Mapping[str, Any]]) -> str:
    """Says where numbers went bad first, as far as it is known."""
    for batch in found:
        for key, told in _FAULTS.items():
            if batch.get(key):
                return f"First {told} {batch[key][0]}. "
    return ""


def _rows(run: TrainState, number: int) -> dict[str, Any]:
    rows_of = getattr(run.source, "rows_of", None)  # a user's task need not know
    return {} if rows_of is None else dict(zip(("data_set", "rows"), rows_of(number), strict=True))


def _faults(run: TrainState, seed: int, number: int, batch: Batch) -> dict[str, Any]:
    if run.is_sharded:  # a pass needs all processes
        return {}
    run.model.zero_grad()
    seed_batch(seed, number, run.device)
    with _watched(run.model) as bad_outputs:
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
        "outputs_not_finite": bad_outputs,  # of modules, in the order in which they were computed
        "gradients_not_finite": bad_gradients,
        "weights_not_finite": [name for name, p in parameters if not _finite(p)],
    }


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[str]]:
    """Yields the names of the modules whose output is not finite, as they are computed."""
    bad: list[str] = []

    def look(name: str) -> Any:
        def after(module: nn.Module, inputs: object, output: object) -> None:
            del module, inputs
            if isinstance(output, Tensor) and not _finite(output):
                bad.append(name)

        return after

    handles = [
        module.register_forward_hook(look(name)) for name, module in model.named_modules() if name
    ]
    try:
        yield bad
    finally:
        for handle in handles:
            handle.remove()


def _finite(tensor: Tensor) -> bool:
    # A mask of attention is minus infinity where nothing may be looked at: that is meant.
    return not tensor.is_floating_point() or bool(
        (~(tensor.isnan() | torch.isposinf(tensor))).all()
    )
