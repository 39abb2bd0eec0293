"""Memory of training: error messages, measurement, and dry run reports."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import re
import resource
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from t2t_torch.distributed.precision import Precision
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.loss import total_loss
from t2t_torch.reports.section import aligned
from t2t_torch.run.checkpoint import TrainerState
from t2t_torch.train.random_state import INITIALIZATION, seeded
from t2t_torch.train.run_config import DEFAULT_SEED, steps_of_run
from t2t_torch.train.summary import size_of_step
from t2t_torch.train.task import reported_hparams

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.features import Feature
    from t2t_torch.mode import Split
    from t2t_torch.pipeline.training_split import TrainingSplit
    from t2t_torch.train.problem_task import LearningTask
    from t2t_torch.train.run_config import RunConfig
    from t2t_torch.train.task import Batch, Task


_OVERFLOWS = ("Storage size calculation overflowed", "Overflow when unpacking long")
_NO_SIZE = re.compile("batch|length|rows|seed|steps|swa_|passes")
"""Matches the names of integer settings that do not change the size of a model."""


def new_model(task: Task, device: torch.device) -> nn.Module:
    """Builds a task's model on a device.

    Raises:
      HParamsError: it needs more memory than available.
    """
    with memory_for(task):
        return task.model().to(device)


@contextlib.contextmanager
def memory_for(task: Task) -> Iterator[None]:
    """Replaces the out-of-memory errors of Python and torch in its block.

    Args:
      task: task whose model is built or measured inside the block.

    Raises:
      HParamsError: too little memory is available; the message names the largest setting.
    """
    try:
        yield
    except (RuntimeError, TypeError, MemoryError) as error:
        message = str(error).rpartition("DefaultCPUAllocator: ")[2].partition("\n")[0]
        if not (
            isinstance(error, MemoryError)  # often without a message
            or is_out_of_memory(error)
            or any(overflow in message for overflow in _OVERFLOWS)
        ):
            raise
        raise HParamsError(
            f"the model of {task.name} needs more memory than this machine has"
            f"{f' ({message})' if message else ''}. Reduce {_largest_setting(task)}; then "
            "--dry_run prints how much memory a run needs."
        ) from error


def _largest_setting(task: Task) -> str:
    """Returns the setting that is probably too large, and a smaller value, for messages."""
    sizes = {
        name: value
        for name, value in reported_hparams(task).items()
        if type(value) is int and value > 1 and not _NO_SIZE.search(name)
    }
    if not sizes:
        return "the sizes of its layers"
    fields = type(task.hparams).model_fields

    def growth(name: str) -> float:
        return sizes[name] / ((fields[name].default if name in fields else 0) or 1)

    name = max(sizes, key=growth)
    return f"{name}={sizes[name]}, for example to {name}={sizes[name] // 10 or 1}"


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True if memory ran out, on the device or in the CPU process."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


_MEBIBYTE = 2**20


def peak_memory(device: torch.device) -> float:
    """Returns the peak memory of this process in MiB: on its GPU, or without a GPU in total."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _MEBIBYTE
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kibibytes, but bytes on macOS: getrusage(2).
    return most / _MEBIBYTE if sys.platform == "darwin" else most / 1024


_MOST_WORK = 2e10  # multiplications in the forward pass of a dry run, at most: a few seconds


class _LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the bytes of the tensors that its block has made and still holds, after each call.

    What a kernel of torch needs inside, and what the allocator keeps, is not seen.

    Args:
      known: tensors that do not count.

    Attributes:
      records: bytes after each call that made a tensor.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.records = [0]
        self._now = 0
        self._known = weakref.WeakSet(tensor.untyped_storage() for tensor in known)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            storage = tensor.untyped_storage() if isinstance(tensor, Tensor) else None
            if storage is not None and storage not in self._known:
                self._known.add(storage)
                self._count(storage.nbytes())
                self.records.append(self._now)
                weakref.finalize(storage, self._count, -storage.nbytes())
        return made

    def _count(self, size: int) -> None:
        self._now += size


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Memory of training in bytes, measured on the CPU.

    Attributes:
      weights: parameters and buffers.
      optimizer: state of the optimizer after a step.
      step: gradients, activations and work space of a step with the batch, at most at once.
      rows: rows of the batch.
      measured_rows: rows used in the measured step.
    """

    weights: int
    optimizer: int
    step: int
    rows: int
    measured_rows: int

    @property
    def total(self) -> int:
        """The total."""
        return self.weights + self.optimizer + self.step

    @classmethod
    def measure(cls, task: Task, model: nn.Module, objective: nn.Module, batch: Batch) -> Footprint:
        """Measures the second of two steps.  The model is modified.

        Args:
          task: task that creates the optimizer.
          model: model on the CPU.
          objective: objective of the model.
          batch: the largest batch.
        """
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        rows = len(next(iter(batch.values())))
        work = sum(p.numel() for p in parameters) * max(values.numel() for values in batch.values())
        measured_rows = min(rows, max(2, int(rows * _MOST_WORK / max(work, 1))))
        optimizer = task.optimizer(model)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        slots = [value for slots in optimizer.state.values() for value in slots.values()]
        state = [value for value in slots if isinstance(value, Tensor)]
        own = [*model.parameters(), *model.buffers()]

        def records(count: int) -> list[int]:
            optimizer.zero_grad()
            part = {name: values[:count] for name, values in batch.items()}
            memory = _LiveMemory([*own, *state, *part.values()])
            with memory:
                with Precision.of(task.hparams, torch.device("cpu")).autocast():
                    loss = total_loss(objective.train()(part))
                torch.autograd.backward(loss.sum)
                optimizer.step()
            return memory.records

        live = records(measured_rows)
        if measured_rows < rows:  # a line through two steps, for each of their calls
            fewer, less = measured_rows // 2, records(measured_rows // 2)
            scale = (rows - measured_rows) / (measured_rows - fewer)
            if len(less) != len(live):  # the calls depend on the rows
                less, scale = [0] * len(live), rows / measured_rows - 1
            live = [int(b + scale * (b - a)) for a, b in zip(less, live, strict=True)]
        return cls(
            weights=sum(one.nbytes for one in own),
            optimizer=sum(value.nbytes for value in state),
            step=max(live),
            rows=rows,
            measured_rows=measured_rows,
        )


_SHOWN_ROWS = 3
_SHOWN_NUMBERS = 24


def dry_run_lines(
    task: LearningTask,
    world: World,
    seed: int | None = None,
    *,
    eval_split: Split | None = None,
    config: RunConfig | None = None,
) -> Iterator[str]:
    """Yields the lines of the report.

    The report says what training would do; no file is written.

    Args:
      task: the task to train.
      world: the training processes.
      seed: seed of the run; None is the default one.
      eval_split: split for evaluations; None for none.
      config: settings of the run, to check the learning rate at its steps; None skips this check.

    Raises:
      DataError: there is no data, or all examples are dropped.
      HParamsError: training would reject the hyperparameters.
    """
    if eval_split is not None:
        evaluated = len(task.eval_batches(eval_split, rank=0, world_size=1))
    seed = DEFAULT_SEED if seed is None else seed
    source = task.train_batches(seed=seed, start=0, rank=0, world_size=world.size)
    accumulate = task.hparams.optimizer_multistep_accumulate_steps or 1
    batches = (config and config.deterministic_world) or accumulate * world.size
    each = f"{world.size} processes x {batches / world.size:g} each"
    if config is not None:
        epoch = 0 if source.report.mixed_tokens else source.report.batches
        state = TrainerState(epoch_batches=epoch, batches_per_step=batches)
        task.schedule(steps_of_run(config, state))
    yield from _examples(task, next(iter(source)))
    names = [problem.full_name for problem in task.problem.components]
    for name, component in zip(names, source.components, strict=True):
        yield ""
        yield from _data(name, component)
    yield ""
    unit = "tokens without padding" if task.batches.paddings else "examples"
    size = size_of_step(source.report, batches, unit)
    yield f"A step is {batches:,} batches ({each}), {size}"
    if eval_split is not None:
        yield f"An evaluation is {evaluated:,} batches, the split {eval_split.value}"
    yield ""
    with seeded(seed, INITIALIZATION, world.device):
        model = new_model(task, torch.device("cpu"))
        lines = list(task.initialize(model))
    yield from lines
    objective = task.objective(model)
    yield from _parameters(model)
    yield ""
    largest = max(
        (component.collate(component.plan.largest_batch) for component in source.components),
        key=lambda batch: sum(values.numel() for values in batch.values()),
    )
    with memory_for(task):
        footprint = Footprint.measure(task, model, objective, largest)
    yield from _memory(footprint, largest, task)


def _examples(task: LearningTask, batch: Batch) -> Iterator[str]:
    """Yields the shapes of a batch, and its first rows as values and as numbers."""
    yield "First batch"
    for name, values in batch.items():
        yield f"  {name:<24} {str(values.dtype).removeprefix('torch.'):<8} {list(values.shape)}"
    for row in range(min(_SHOWN_ROWS, len(next(iter(batch.values()))))):
        yield f"Row {row}"
        for name, feature in _there(task, batch).items():
            for numbers in _parts(name, feature, batch, row):
                shown = ", ".join(f"{number:.6g}" for number in numbers[:_SHOWN_NUMBERS])
                more = f", ... ({len(numbers)})" if len(numbers) > _SHOWN_NUMBERS else ""
                yield f"  {name:<12} {_value(feature, numbers)}"
                yield f"  {'':<12} [{shown}{more}]"


def _there(task: LearningTask, batch: Batch) -> dict[str, Feature]:
    """Returns the features of a batch; for several problems, those of the batch's problem."""
    return {name: feature for name, feature in task.features.all.items() if name in batch}


def _parts(name: str, feature: Feature, batch: Batch, row: int) -> Iterator[list[float]]:
    """Yields the numbers of a row without padding; for a packed row, of its first examples."""
    values = batch[name][row]
    if (segments := batch.get(f"{name}_segmentation")) is not None:
        for number in range(1, min(_SHOWN_ROWS, int(segments[row].max())) + 1):
            yield values[segments[row] == number].flatten().tolist()
        return
    if None in feature.shape:
        # Up to the last position that is not padding; at least one.
        there = (values != feature.padding).reshape(len(values), -1).any(1).nonzero()
        values = values[: int(there[-1]) + 1 if len(there) else 1]
    yield values.flatten().tolist()


def _value(feature: Feature, numbers: list[float]) -> str:
    """Returns the value that numbers encode; an image is described by its shape."""
    if len(feature.shape) == 3:
        return f"{type(feature).__name__} {list(feature.shape)}"
    try:
        return repr(feature.decode(numbers))
    except DataError as error:  # a dry run reports ids without a meaning
        return f"({error})"


def _data(name: str, component: TrainingSplit) -> Iterator[str]:
    """Yields the examples that a plan keeps, and its buckets."""
    report = component.report
    packed = f", in {report.packed_rows:,} rows" if report.packed_rows else ""
    yield (
        f"{name}: {report.kept:,} of {report.examples:,} examples{packed}; left out "
        f"{report.too_long:,} too long, {report.too_short:,} too short"
    )
    rows = [
        [f"< {b.boundary}", f"{b.batch_size}", f"{b.rows:,}", f"{b.batches:,}",
         f"{b.padding:.1%}"]
        for b in component.plan.buckets
    ]  # fmt: skip
    total = sum(bucket.rows for bucket in component.plan.buckets)
    rows.append(["all", "", f"{total:,}", f"{report.batches:,}", f"{report.padding_fraction:.1%}"])
    yield from aligned([["length", "batch size", "rows", "batches", "padding"], *rows])


def _parameters(model: nn.Module) -> Iterator[str]:
    """Yields the parameters of each part of a model; shared parameters count in the first part."""
    rows = []
    counted: set[int] = set()
    for name, part in model.named_children():
        new = {id(p): p.numel() for p in part.parameters() if id(p) not in counted}
        counted |= new.keys()
        if new:
            rows.append([name, f"{sum(new.values()):,}"])
    if rest := {id(p): p.numel() for p in model.parameters() if id(p) not in counted}:
        rows.append(["(its own)", f"{sum(rest.values()):,}"])
    rows.append(["all", f"{sum(p.numel() for p in model.parameters()):,}"])
    yield from aligned([["module", "parameters"], *rows])


def _memory(memory: Footprint, largest: Batch, task: LearningTask) -> Iterator[str]:
    """Yields the memory in bytes, and how it was measured."""
    part = f"from {memory.measured_rows} and {memory.measured_rows // 2} rows"
    how = "measured" if memory.rows == memory.measured_rows else f"measured, scaled {part}"
    rows = [
        ["weights", f"{memory.weights / _MEBIBYTE:,.1f}", "exact"],
        ["optimizer state", f"{memory.optimizer / _MEBIBYTE:,.1f}", "exact, after one step"],
        ["the rest of a step", f"{memory.step / _MEBIBYTE:,.1f}", f"{how}: at most at once"],
        ["all", f"{memory.total / _MEBIBYTE:,.1f}", ""],
    ]
    yield from aligned([["memory of a process", "MiB", "how it was found"], *rows], (0, 2))
    shapes = ", ".join(f"{name} {list(largest[name].shape)}" for name in _there(task, largest))
    yield (
        "The rest is gradients, activations and work space of a step with the largest batch "
        f"({shapes}), on a CPU. Torch itself and what the allocator holds come on top; a GPU's "
        "attention keeps less."
    )


# glibc, <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE = 2**30  # bytes: larger than the tensors of a step


def keep_freed_memory() -> bool:
    """Makes this process keep up to a gigabyte of freed memory instead of returning it each time.

    By default glibc returns large tensors to the kernel, and the next step pays for every page
    again.  The cost depends on the machine and on the size of the tensors: a training step of
    `transformer_multi30k` on two idle cores takes 0.42 s with and 0.44 s without this setting; a
    step that computes all logits 0.56 s and 0.90 s (docs/reference/benchmarks.md).
    Without glibc nothing changes.

    Returns:
      True if the C library accepted both settings.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all([mallopt(_M_MMAP_THRESHOLD, _LARGE), mallopt(_M_TRIM_THRESHOLD, _LARGE)])
