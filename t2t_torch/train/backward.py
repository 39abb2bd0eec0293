"""The forward and backward passes of a step; a batch that does not fit in memory is split."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from t2t_torch.compute.network import exchanges_gradients
from t2t_torch.errors import T2TError
from t2t_torch.train.randomness import seed_batch

if TYPE_CHECKING:
    from t2t_torch.train.batch import Batch
    from t2t_torch.train.learner import Learner

_MOST_PIECES = 64  # of a batch


class Backward:
    """Adds the gradients of a step's micro-batches to those of the parameters.

    Losses are sums, so a batch may be computed in pieces: the gradients add up to the same (with
    dropout, to that of another draw).  That is done, for that step alone, when memory runs out.

    Args:
      run: the model and what goes with it.
      seed: of the run.
    """

    def __init__(self, run: Learner, seed: int) -> None:
        self._run = run
        self._task = run.task
        self._seed = seed
        self._talks_to_others = False  # whether the pass under way sums gradients over processes

    def __call__(self, batches: Sequence[tuple[int, Batch]]) -> Tensor:
        """Computes the gradients of a step.

        Args:
          batches: (number of the global batch, batch) of this process's micro-batches.

        Returns:
          `totals_of` the step in this process, [4]; not a number if memory runs out even for a
          batch of one row: then the step is skipped, as if its loss were not finite.

        Raises:
          T2TError: memory ran out where the other processes could not be kept in step.
        """
        pieces = 1
        while True:
            try:
                return self._passes(batches, pieces)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if self._run.processes > 1 and self._talks_to_others:
                    raise _others_wait(error) from error
                told = str(error).splitlines()[0]
            # Outside the handler: the traceback holds on to the tensors of the pass.
            self._clear()
            rows = max(self._task.rows_of(batch) for _, batch in batches)
            if pieces >= min(rows, _MOST_PIECES):
                self._warn(batches, f"{told}. {_too_large(pieces)}: the step is skipped")
                return self._nothing(batches)
            pieces *= 2
            self._warn(batches, f"{told}. The step is computed again in {pieces} pieces a batch")

    def _passes(self, batches: Sequence[tuple[int, Batch]], pieces: int) -> Tensor:
        run, device = self._run, self._run.device
        totals = torch.zeros(4, dtype=torch.float64, device=device)
        exchanges = exchanges_gradients(run.network)
        parts = [
            (number, index, part)
            for number, batch in batches
            for index, part in enumerate(self._task.split(batch, pieces))
        ]
        for i, (number, index, batch) in enumerate(parts):
            seed_batch(self._seed, number, device, piece=index)
            with run.accumulating(more=i + 1 < len(parts)):
                self._talks_to_others = run.is_sharded
                with run.precision.autocast():
                    loss = self._task.loss(run.network, batch)
                self._talks_to_others |= exchanges and i + 1 == len(parts)
                scaled = loss.sum if run.precision.scale is None else loss.sum * run.precision.scale
                scaled.backward()  # type: ignore[no-untyped-call]
            totals += self._task.totals(loss, batch)
        return totals

    def _clear(self) -> None:
        self._run.optimizer.zero_grad()
        gc.collect()
        if self._run.device.type == "cuda":
            torch.cuda.empty_cache()

    def _nothing(self, batches: Sequence[tuple[int, Batch]]) -> Tensor:
        """Returns totals that are not numbers; the other processes' sums still find a partner."""
        if self._run.processes > 1 and exchanges_gradients(self._run.network):
            _, batch = batches[0]
            try:
                smallest = self._task.split(batch, self._task.rows_of(batch))[0]
                with self._run.precision.autocast():
                    loss = self._task.loss(self._run.network, smallest)
                (loss.sum * 0.0).backward()  # type: ignore[no-untyped-call]
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                raise _others_wait(error) from error
        return torch.full([4], torch.nan, dtype=torch.float64, device=self._run.device)

    def _warn(self, batches: Sequence[tuple[int, Batch]], what: str) -> None:
        shapes = ", ".join(
            f"batch {number}: "
            + " ".join(f"{name} {list(t.shape)}" for name, t in self._task.tensors(batch).items())
            for number, batch in batches
        )
        print(f"WARNING: {what} ({shapes})", file=sys.stderr, flush=True)


def _others_wait(error: BaseException) -> T2TError:
    """Of a pass whose gradients are summed some are sent already: it cannot be made again."""
    return T2TError(
        f"memory ran out while other processes wait for this one's gradients: {error}. The "
        "checkpoints before are whole. Go on with a smaller --hparams=batch_size and a larger "
        "optimizer_multistep_accumulate_steps, in another --output_dir with "
        "--warm_start_from, or with activation_checkpointing=True in this one."
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: the device's, or what the system gives a CPU's process."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def _too_large(pieces: int) -> str:
    return f"Even {pieces} pieces are too large" if pieces > 1 else "It cannot be divided"
