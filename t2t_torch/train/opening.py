"""What is said when training begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.pipeline.plan import PlanReport
    from t2t_torch.train.learner import Learner
    from t2t_torch.train.task import Task


def opening_lines(
    task: Task, train_steps: int, state: TrainerState, data: PlanReport, run: Learner
) -> Iterator[str]:
    """Yields what a user should know before waiting for hours."""
    processes = f"{run.processes} processes on {run.device.type}"
    if run.processes == 1:
        processes = _device_name(run.device)
    yield f"{task.name} learnt by {type(run.model).__name__}, {run.precision.name}, on {processes}"
    packed = f" in {data.packed_rows:,} rows" if data.packed_rows else ""
    epoch = "" if data.mixed_tokens else f"{data.batches:,} batches an epoch, "
    yield (
        f"data: {data.kept:,} of {data.examples:,} examples{packed} ({data.too_long:,} too long, "
        f"{data.too_short:,} too short), {epoch}padding {data.padding_fraction:.1%}"
    )
    unit = "tokens" if task.paddings else "examples"
    yield f"step: {state.batches_per_step} batches, {size_of_step(data, state, unit)}"
    sizes = [(p.numel(), p.requires_grad) for p in run.model.parameters()]
    frozen = sum(size for size, trained in sizes if not trained)
    told = f", {frozen:,} of them frozen" if frozen else ""
    yield f"model: {sum(size for size, _ in sizes):,} parameters{told}"
    # The rate of update s, counted from 1, is that after s - 1 updates; the warm-up ends
    # at the peak.
    warm = min(task.hparams.learning_rate_warmup_steps + 1, train_steps)
    rates = {step: run.learning_rate(step - 1) for step in sorted({1, warm, train_steps})}
    yield "learning rate: " + ", ".join(
        f"{rate:.3g} at step {step}" for step, rate in rates.items()
    )
    if state.step:
        yield f"resuming from step {state.step}, batch {state.batches_consumed:,} of the data"


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} threads of a CPU"


def size_of_step(data: PlanReport, state: TrainerState, unit: str) -> str:
    """Returns what a step is of; problems that are mixed have no epoch in common."""
    per_step = f"about {data.tokens_per_batch * state.batches_per_step:,.0f} {unit}"
    if data.mixed_tokens:
        return f"{per_step} by the shares at step 0"
    return f"{per_step}; an epoch is {data.batches / state.batches_per_step:,.1f} steps"
