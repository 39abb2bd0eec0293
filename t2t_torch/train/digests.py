"""Digests of training steps: the record that `t2t-replay` compares with, and checks in the run.

A line of `digests.jsonl` has the digests of a step:

  step, processes   optimizer steps done; training processes
  batch             hashes of the batches of all processes, sorted
  loss              mean loss
  gradients         `digest` of each parameter's gradient, before clipping; of each shard its own
  weights           `digest` of each parameter after the update
  pieces            most pieces of a batch since the last line; 1 unless memory ran out

A run with digests also checks itself, and ends with a `CorruptionError`:

  at every update and save   weights, optimizer state and averages are as the last update left them
  at each step with a line   the batch is as its source makes it again; the gradients are equal when
                             computed twice; all processes have the same gradients and weights
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from t2t_torch.errors import CorruptionError, UsageError, listed
from t2t_torch.run.metrics_file import is_torn, read_records
from t2t_torch.train.saving import saves_at
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.train.estimator import Estimator, NumberedBatches, TrainState
    from t2t_torch.train.run_config import RunConfig

NAME = "digests.jsonl"
Record = dict[str, Any]
"""A line of the file."""

_PIECES = 2  # memory ran out: dropout of the pieces is another


def digest(tensor: Tensor) -> Tensor:
    """Returns the sum of a tensor's 64-bit words modulo 2^64, [] int64; of a shard its own.

    It is exact on every device and for any number of threads; a flip of one bit changes it.
    """
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor.coalesce()
        return digest(tensor.indices()) + digest(tensor.values())
    raw = tensor.contiguous().view(-1)
    is_whole = raw.nbytes % 8 == 0 and raw.storage_offset() * raw.itemsize % 8 == 0
    return raw.view(torch.int64 if is_whole else _WORDS[raw.itemsize]).sum(dtype=torch.int64)


_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def read_digests(directory: Path) -> dict[int, Record]:
    """Returns the logged digests of a run by step; the last line of a step counts."""
    records = read_records(directory / NAME, max_bytes=None)
    return {record["step"]: record for record in records}


def difference(expected: Record, found: Record, names: Iterable[str]) -> str:
    """Returns the first part of a step that differs, with the parameters; "" if all are equal.

    Args:
      expected: the logged digests.
      found: digests of the same step, computed again.
      names: names of the parameters.
    """
    for part in ("pieces", "batch", "loss", "gradients", "weights"):
        before, after = expected.get(part, found[part]), found[part]
        if before != after and isinstance(before, list):
            return f"the {part} first: {_named(_differing(before, after), list(names))}"
        if before != after:
            return f"the {part} first ({before} in the run, {after} now)"
    return ""


def is_comparable(record: Record, config: RunConfig, processes: int) -> bool:
    """Returns whether a number of processes computes a logged step as those of the run did."""
    return config.deterministic_world > 0 or record["processes"] == processes


def _differing(first: list[int], second: list[int]) -> list[int]:
    """Returns the places of the tensors whose digests differ."""
    pairs = itertools.zip_longest(first, second)
    return [place for place, (one, other) in enumerate(pairs) if one != other]


def _named(places: Iterable[int], names: list[str]) -> str:
    """Returns the names of some tensors, those of several processes' shards once."""
    chosen = dict.fromkeys(names[place % len(names)] for place in places)
    return f"{listed(chosen)} ({len(chosen)} of {len(names)} tensors)"


class StepDigests:
    """Digests of the steps of a training in one process, and checks for flipped bits.

    Attributes:
      record: digests of the last step, if it was due.
      names: names of the parameters.

    Args:
      run: the training state, before its first step.
      world: the training processes.
      is_due: whether the digests of a step are wanted.
      checks: True to check the run; False to compute the digests alone.
    """

    def __init__(
        self, run: TrainState, world: World, is_due: Callable[[int], bool], *, checks: bool = True
    ) -> None:
        self.record: Record | None = None
        self._parameters = dict(run.model.named_parameters())
        self.names = list(self._parameters)
        self._run, self._world, self._is_due, self._checks = run, world, is_due, checks
        self._step = 0  # number of the last update
        self._pieces = 0  # most pieces of a batch since the last record
        self._expected = self._sums(tensor for _, tensor in self._stored())
        self._changed_at = torch.zeros_like(self._expected)

    @property
    def weights(self) -> list[int]:
        """The digests of the parameters."""
        return self._sums(self._parameters.values()).tolist()

    def passes(self, step: int, batches: NumberedBatches, compute: Callable[[], Tensor]) -> Tensor:
        """Computes the gradients of a step; if it is due twice, and checks that they are equal.

        Args:
          step: number of the step.
          batches: its micro-batches.
          compute: computes the gradients, and returns the totals, [4].

        Raises:
          CorruptionError: the batch or the gradients differ when they are made again.
        """
        self.record = None
        if not self._is_due(step):
            totals = compute()
            self._pieces = max(self._pieces, self._run.pieces)
            return totals
        self.record = {"step": step, "processes": self._world.size}
        self.record["batch"] = " ".join(self._hash(step, *one) for one in batches)
        buffers = [(buffer, buffer.clone()) for buffer in self._run.model.buffers()]
        found: list[list[int]] = []
        while True:
            totals = compute()
            found.append(self._sums(one.grad for one in self._parameters.values()).tolist())
            word = _PIECES if self._run.pieces > 1 else int(found[-1] != found[0])
            word = self._world.maximum(word)
            if not self._checks or word == _PIECES or len(found) == 3 or len(found) > 1 > word:
                break
            self._run.optimizer.zero_grad()
            for buffer, before in buffers:
                buffer.copy_(before)
        if len(found) == 3 and word != _PIECES:
            of_three = "two of them are equal" if found[2] in found[:2] else "all three differ"
            raise _error(
                f"the gradients of step {step}, computed three times, {of_three}: "
                f"{_named(_differing(*found[:2]), self.names)}. A bit flipped, a processor "
                "computes wrongly, or the model's computation cannot be repeated"
            )
        self.record["gradients"] = found[-1]
        self.record["pieces"], self._pieces = max(self._pieces, self._run.pieces), 0
        return totals

    def _hash(self, step: int, number: int, batch: Any) -> str:
        """Returns the hash of a batch; checks that its source makes the same again."""
        make: Any = getattr(self._run.source, "batch", None)  # optional in a user's task
        hashes = []
        for one in (batch, make(number)) if self._checks and make is not None else (batch,):
            result = hashlib.blake2b(digest_size=8)
            for name, tensor in sorted(self._run.task.batches.tensors(one).items()):
                values = tensor.detach().cpu().contiguous()
                result.update(f"{name} {values.dtype} {list(values.shape)}".encode())
                result.update(values.view(-1).view(torch.uint8).numpy().data)
            hashes.append(result.hexdigest())
        if hashes[0] != hashes[-1]:
            raise _error(
                f"batch {number} of step {step} is not the one that its rows of the data make a "
                "second time. A bit of it flipped, or the data changed under the run"
            )
        return hashes[0]

    def check(self, *, waits: bool = True) -> None:
        """Checks that all is as the last update left it: before the next update, before a save.

        If it waits, it returns when all processes have checked: what one of them finds is saved by
        none.

        Args:
          waits: False to report a difference on a GPU at a later check, without synchronization.

        Raises:
          CorruptionError: weights, optimizer state or averages have changed.
        """
        if not self._checks:
            return
        sums = self._sums(tensor for _, tensor in self._stored())
        self._changed_at += ((sums != self._expected) & (self._changed_at == 0)) * (self._step + 1)
        if not (waits or self.record is not None or self._run.device.type == "cpu"):
            return
        names, steps = [name for name, _ in self._stored()], self._changed_at.tolist()
        if any(steps):
            step, places = min(filter(None, steps)), [at for at, one in enumerate(steps) if one]
            raise _error(
                f"memory changed after the update of step {step - 1}, before that of step {step}, "
                f"where nothing writes to it: {_named(places, names)}. A "
                "bit flipped, or other code, such as a hook, wrote to it"
            )
        if waits:
            self._world.maximum(0)

    def after_update(self, step: int, totals: Tensor) -> None:
        """Takes the digests of the updated state; completes the record of a step that is due.

        Args:
          step: number of the step.
          totals: totals of the step over all processes, [4].

        Raises:
          CorruptionError: processes have different gradients or weights.
        """
        self._step = step
        if self._checks:
            self._expected = self._sums(tensor for _, tensor in self._stored())
            if len(self._expected) != len(self._changed_at):  # the optimizer's first update
                self._changed_at = torch.zeros_like(self._expected)
        if self.record is None:
            return
        loss, weight = totals[:2].tolist()
        self.record |= {"loss": repr(loss / weight if weight else 0.0), "weights": self.weights}
        records, is_sharded = self._world.gather(self.record), self._run.is_sharded
        self.record["batch"] = " ".join(sorted(" ".join(r["batch"] for r in records).split()))
        self.record["pieces"] = max(one["pieces"] for one in records)
        for part in ("gradients", "weights"):
            parts = [one[part] for one in records]
            self.record[part] = list(itertools.chain(*parts)) if is_sharded else parts[0]
            most = max(parts, key=parts.count)
            odd = [rank for rank, one in enumerate(parts) if one != most]
            if odd and self._checks and not is_sharded:
                places = {place for one in parts for place in _differing(most, one)}
                raise _error(
                    f"the {part} of step {step} differ between the {len(parts)} processes, rank "
                    f"{listed(odd)} from the others: {_named(sorted(places), self.names)}. A bit "
                    "flipped, or a machine computes wrongly"
                )

    def _stored(self) -> Iterator[tuple[str, Tensor]]:
        """Yields all that only an update changes: weights, optimizer state, averages."""
        yield from self._parameters.items()
        for name, parameter in self._parameters.items():
            for slot, value in self._run.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.device == parameter.device:
                    yield f"{name}/{slot}", value
        if self._run.average is not None:
            for name, value in self._run.average.tensors().items():
                yield f"average of {name}", value

    @torch.no_grad()
    def _sums(self, tensors: Iterable[Tensor | None]) -> Tensor:
        """Returns the digests of tensors, [tensors] int64; 0 for None."""
        nothing = torch.zeros([], dtype=torch.int64, device=self._run.device)
        return torch.stack([nothing if one is None else digest(one) for one in tensors])


def _error(fault: str) -> CorruptionError:
    return CorruptionError(
        f"{fault}. Nothing of it was saved. Run the same command on another machine: it resumes "
        "from the newest checkpoint. t2t-replay computes again what the run logged before."
    )


class DigestLog(Hook):
    """Digests of a run: `digests.jsonl`, and the checks of `StepDigests`.

    A step that was logged before an interruption is logged again if it differs, and reported.
    """

    in_banner = False
    _later: dict[int, Record]  # steps that come again

    def begin(self, estimator: Estimator) -> None:
        """See `Hook`.

        Raises:
          CorruptionError: the weights are not those that the run logged at this step.
          UsageError: the task updates the weights itself.
        """
        run, config, path = estimator.run, estimator.config, estimator.directory.path
        assert run is not None
        if not estimator.task.automatic_optimization:
            raise UsageError("--digest_every: this task computes and updates in one. Leave it out.")

        def is_due(step: int) -> bool:
            is_last = step in (config.pause_at_step, estimator.end)
            return step % config.digest_every == 0 or is_last or saves_at(config, step)

        run.digests = StepDigests(run, estimator.world, is_due)
        logged, step = read_digests(path), estimator.state.step
        is_same = not estimator.directory.changes and config.resume_data == "exact"
        self._later = {
            n: one
            for n, one in logged.items()
            if n > step and is_same and is_comparable(one, config, estimator.world.size)
        }
        parts = estimator.world.gather(run.digests.weights)
        weights = list(itertools.chain(*parts)) if run.is_sharded else parts[0]
        before = logged.get(step, {}).get("weights", weights)
        places = _differing(before, weights)
        if places and len(before) == len(weights):  # else the shards are others
            raise CorruptionError(
                f"the checkpoint of step {step} does not have the weights that the run logged: "
                f"{_named(places, run.digests.names)}. A bit flipped before it was written: delete "
                f"{path / f'ckpt-{step}'}, and the run resumes from the one before. If steps were "
                f"trained without --digest_every since, delete {path / NAME} instead."
            )

    def after_step(self, estimator: Estimator) -> None:
        """See `Hook`."""
        digests = estimator.run.digests if estimator.run is not None else None
        if digests is None or digests.record is None or not estimator.world.leads:
            return
        step, path = estimator.state.step, estimator.directory.path
        before = self._later.pop(step, None)
        differs = difference(before, digests.record, digests.names) if before else ""
        if before and not differs:
            return
        with estimator.summary.surviving(NAME), (path / NAME).open("a+b") as file:
            line = json.dumps(digests.record).encode() + b"\n"
            file.write(b"\n" + line if is_torn(file) else line)
        if differs:
            estimator.say(
                f"warning: step {step} is not as it was before the interruption: {differs}. This "
                "machine or the earlier one computed wrongly, unless they differ in processor, "
                f"threads, torch or settings:  t2t-replay --output_dir={path} --step={step}"
            )
