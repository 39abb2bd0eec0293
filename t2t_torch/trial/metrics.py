"""Validation and aggregation of the results of a trial's methods."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from absl import logging
from numpy.typing import NDArray
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.trial.definition import required
from t2t_torch.trial.epoch_orders import length_of
from t2t_torch.trial.nested import described
from t2t_torch.trial.pytorch_trial import Reducer

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World


OF_A_LINE = frozenset({"step", "split", "time"})
"""Fields of every line of `metrics.jsonl`: reserved metric names."""

OF_THE_LOOP = OF_A_LINE | frozenset(
    "seconds learning_rate grad_norm tokens_per_second steps_per_second padding_fraction "
    "skipped_steps checkpoint_failures memory_mib".split()
)
"""Fields of a training line besides "loss": reserved metric names."""

_STRUCTURES = (
    "Each batch is a pair of inputs and labels, and each of the two an array or a tensor, or such "
    "in tuples, lists and dicts: (x, y), ((x1, x2), y), ({'a': x1, 'b': x2}, {'y': y})."
)


def _unexpected(what: str, value: Any, expected: str) -> TrialError:
    """Returns the error for a method that returned a value of the wrong type."""
    hint = " Is a return missing?" if value is None else ""
    return TrialError(f"{what} returned {_kind(value)}; {expected} was expected.{hint}")


def check_model(model: Any, what: str = "build_model") -> nn.Module:
    """Checks and returns the result of `build_model`.

    Args:
      model: result of the method.
      what: name of the method, for error messages.

    Raises:
      TrialError: it is no `nn.Module`, or has no trainable parameters.
    """
    if not isinstance(model, nn.Module):
        raise _unexpected(what, model, "an nn.Module")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TrialError(
            f"{what} returned a {type(model).__name__} without a parameter that can be "
            "trained. Layers in a plain list or dict are not found: put them in an nn.ModuleList "
            "or an nn.ModuleDict."
        )
    return model


def check_optimizer(optimizer: Any, model: nn.Module) -> torch.optim.Optimizer:
    """Checks and returns the result of `optimizer`; warns about parameters that it omits.

    Raises:
      TrialError: it is no optimizer, has parameters of another model, or requires a closure.
    """
    check_step(optimizer, "optimizer returned")
    assert isinstance(optimizer, torch.optim.Optimizer)
    trained = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    own = {id(parameter) for parameter in model.parameters()}
    foreign = [list(parameter.shape) for key, parameter in trained.items() if key not in own]
    if foreign:
        raise TrialError(
            f"optimizer trains {len(foreign)} parameters that are not the model's, the first of "
            f"shape {foreign[0]}. Make it of model.parameters(), with the model that it is given."
        )
    named = model.named_parameters()
    missed = [name for name, p in named if p.requires_grad and id(p) not in trained]
    if missed:
        more = f" and {len(missed) - 5} more" if len(missed) > 5 else ""
        logging.warning("optimizer does not train %s%s.", ", ".join(missed[:5]), more)
    return optimizer


def check_step(optimizer: Any, what: str) -> None:
    """Checks that a value is an optimizer whose update needs no closure.

    Args:
      optimizer: result of a method.
      what: beginning of error messages.

    Raises:
      TrialError: it is no optimizer, or requires a closure.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        hint = " Is a return missing?" if optimizer is None else ""
        raise TrialError(f"{what} {_kind(optimizer)}; a torch.optim.Optimizer was expected.{hint}")
    if _needs_closure(type(optimizer)):
        raise TrialError(
            f"{what} {_kind(optimizer)}, whose step() needs a closure that computes "
            "the loss again and again. Here a step has its gradients already: use an optimizer "
            "whose step() does without, such as SGD or Adam."
        )


def total_of(losses: Any, what: str = "losses") -> Tensor:
    """Returns the training loss: the result of a method, or its entry "loss".

    Args:
      losses: result of the method.
      what: name of the method, for error messages.

    Raises:
      TrialError: it is no tensor with one element, has no entry "loss", or has no gradient although
        gradients are enabled.
    """
    total, name = losses, f"{what} returned"
    if isinstance(losses, dict):
        if "loss" not in losses:
            keys = ", ".join(map(repr, losses)) or "nothing"
            raise TrialError(
                f"{what} returned a dict with {keys}, but without 'loss'. The value of 'loss' is "
                "what is trained on: add it."
            )
        total, name = losses["loss"], f"{what}: 'loss' is"
    if not isinstance(total, Tensor):
        raise TrialError(
            f"{name} {_kind(total)}; a tensor of one number, or a dict with such a 'loss', was "
            "expected."
        )
    if total.numel() != 1:
        raise TrialError(
            f"{name} a tensor of shape {list(total.shape)}; one number was expected. Reduce it by "
            ".mean() or .sum()."
        )
    if torch.is_grad_enabled() and not total.requires_grad:
        raise TrialError(
            f"{name} a tensor that no gradient leads back from. Compute it from the predictions, "
            "without .detach(), .item() or torch.no_grad()."
        )
    return total


def check_training_metrics(metrics: Any) -> dict[str, Any]:
    """Checks and returns the result of `training_metrics`; it may be empty.

    Raises:
      TrialError: see `check_metrics`; or a name is a reserved field of the training report.
    """
    if isinstance(metrics, dict) and not metrics:
        return metrics
    return check_metrics(metrics, "training_metrics", reserved=OF_THE_LOOP)


def check_metrics(
    metrics: Any, what: str, *, reserved: frozenset[str] = OF_A_LINE
) -> dict[str, Any]:
    """Checks and returns the result of a metrics method.

    Args:
      metrics: result of the method.
      what: name of the method, for error messages.
      reserved: names that metrics must not have.

    Raises:
      TrialError: it is no dict, is empty, has a reserved name, or has a value that is not a number
        or an array or tensor of numbers.
    """
    if not isinstance(metrics, dict):
        raise _unexpected(what, metrics, "a dict of names and values")
    if not metrics:
        raise TrialError(f"{what} returned an empty dict; at least one metric was expected.")
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise TrialError(f"{what} returned a metric named {name!r}; a name is a string.")
        if not _is_number(value):
            raise TrialError(
                f"{what}: {name!r} is {_kind(value)}; a number, or an array, a tensor or a list of "
                "numbers (all items of one shape), was expected."
            )
    taken = sorted(reserved.intersection(metrics))
    if taken:
        raise TrialError(
            f"{what} returned {', '.join(map(repr, taken))}, which each line of metrics.jsonl says "
            f"itself. Give it another name than these: {', '.join(sorted(reserved))}."
        )
    return metrics


def join_metrics(losses: Any, metrics: dict[str, Any], what: str = "losses") -> dict[str, Any]:
    """Returns the metrics reported for a training batch: losses by name, and `training_metrics`.

    Strings among the losses are dropped with one warning.

    Args:
      losses: loss tensor, or a dict with the entry "loss".
      metrics: validated metrics of the batch; empty without `training_metrics`.
      what: name of the method that returned the losses.

    Raises:
      TrialError: a loss is not numeric or has a reserved name; or a metric and a loss with the same
        name have different values.
    """
    by_name = losses if isinstance(losses, dict) else {"loss": losses}
    texts = [name for name, value in by_name.items() if isinstance(value, str | bytes)]
    if texts:
        logging.log_first_n(
            logging.WARNING,
            "%s: %s: a text, which has no mean; it is left out of what is reported.",
            1,
            what,
            ", ".join(map(repr, texts)),
        )
    joined = {name: value for name, value in by_name.items() if name not in texts}
    check_metrics(joined, what, reserved=OF_THE_LOOP)
    for name, value in metrics.items():
        if name in joined and not _equal(joined[name], value):
            raise TrialError(
                f"training_metrics: {name!r} is the name of a loss, and has another value. "
                "Rename one of the two."
            )
        joined[name] = value
    return joined


def check_loaders(loaders: Any) -> tuple[Any, Any]:
    """Returns the training and validation loaders that `make_data_loaders` returned.

    Raises:
      TrialError: there are not two, one is no loader, or the training loader is empty.
    """
    if not isinstance(loaders, list | tuple) or len(loaders) != 2:
        count = f" of {len(loaders)}" if isinstance(loaders, list | tuple) else ""
        raise TrialError(
            f"make_data_loaders returned {_kind(loaders)}{count}; two loaders were expected: "
            "(train, valid)."
        )
    for place, loader in zip(("first", "second"), loaders, strict=True):
        _check_loader(loader, place)
    train, valid = loaders
    if length_of(train) == 0:
        raise TrialError(
            "make_data_loaders: the first loader, of training, is empty. Its dataset has "
            f"{length_of(getattr(train, 'dataset', None))} examples; with drop_last=True fewer "
            "than batch_size make no batch."
        )
    return train, valid


def check_batch_pair(batch: Any) -> tuple[Any, Any]:
    """Returns the inputs and the labels of a batch.

    Raises:
      TrialError: the batch is not a pair.
    """
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    count = f" of {len(batch)}" if isinstance(batch, list | tuple | dict) else ""
    raise TrialError(f"The loader yields {_kind(batch)}{count}. {_STRUCTURES}")


def check_batch_size(batch_size: Any, loader: Any) -> None:
    """Checks `batch_size`; warns if the training loader has another one, which takes precedence.

    Args:
      batch_size: result of the method, or value of the attribute.
      loader: training loader.

    Raises:
      TrialError: it is not a whole number of at least 1.
    """
    number = batch_size
    if isinstance(number, Tensor | np.ndarray) and number.ndim == 0:
        number = number.item()
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise TrialError(
            f"batch_size is {batch_size!r}; a whole number of examples, at least 1, was expected."
        )
    actual = getattr(loader, "batch_size", None)
    if isinstance(actual, int) and actual != number:
        logging.warning(
            "batch_size is %d, but the training loader makes batches of %d, which are used.",
            number,
            actual,
        )


def _needs_closure(kind: type[torch.optim.Optimizer]) -> bool:
    """Returns True if `step` cannot be called without arguments.

    The class is inspected: torch's schedulers replace the method of the instance by a wrapper whose
    signature includes `self`.
    """
    try:
        _, *parameters = inspect.signature(kind.step).parameters.values()
    except (TypeError, ValueError):  # implemented in C, or without `self`
        return False
    return bool(required(parameters))


def _check_loader(loader: Any, place: str) -> None:
    wrong = (Tensor, np.ndarray, str, bytes, dict, torch.utils.data.Dataset)
    is_loader = isinstance(loader, collections.abc.Iterable) and not isinstance(loader, wrong)
    if not is_loader:
        wrap = " Wrap it: DataLoader(dataset, batch_size=...)." if length_of(loader) else ""
        raise TrialError(
            f"make_data_loaders: the {place} is {_kind(loader)}; a DataLoader was expected.{wrap}"
        )


def as_array(value: Any) -> NDArray[np.float64]:
    """Returns a metric as an array: a number, array, tensor, or list of these with equal shapes.

    Raises:
      ValueError: list items have different shapes.
    """
    if isinstance(value, Tensor):
        return value.detach().to("cpu", torch.float64).numpy()
    if isinstance(value, list | tuple):
        return np.stack([as_array(item) for item in value])
    return np.asarray(value, np.float64)


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_complex()
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biuf"
    if isinstance(value, list | tuple) and value and all(map(_is_number, value)):
        try:
            return bool(as_array(value).size)
        except ValueError:
            return False
    return isinstance(value, int | float)


def _equal(left: Any, right: Any) -> bool:
    if not _is_number(left):
        return False
    return np.array_equal(as_array(left), as_array(right), equal_nan=True)


def _kind(value: Any) -> str:
    """Describes a value with its article: `None`, `a list`, `a tensor float32 [3]`."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor {described(value)}"
    if isinstance(value, np.ndarray):
        return f"an array {described(value)}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


# Evaluation metrics: elementwise means over batches.


_EXTREME = {Reducer.MAX: torch.maximum, Reducer.MIN: torch.minimum}

Layout = list[tuple[str, list[int]]]
"""Name and shape of every metric, sorted by name."""


class MetricAverages:
    """Sums of metrics of any shape and the number of batches; additive over processes.

    Attributes:
      sums: [1 + elements] float64: the number of batches, then the flattened sums of all metrics.
        Updated in place; has the same length in all processes after `agree`.

    Args:
      what: name of the method that returns the metrics, for messages.
      reducers: reduction over batches, for all metrics or by name; the default is the mean.
    """

    def __init__(
        self,
        what: str = "validation_metrics",
        reducers: Reducer | Mapping[str, Reducer] = Reducer.AVG,
    ) -> None:
        self.sums = torch.zeros(1, dtype=torch.float64)
        self._what = what
        self._reducers = reducers
        self._layout: Layout | None = None
        self._batches = 0  # in this process

    def update(self, metrics: Any, batch: object = None) -> None:
        """Adds a batch's metrics; the batch itself is ignored.

        Raises:
          TrialError: the metrics are invalid, or their names or shapes differ from earlier batches.
        """
        values = {
            name: as_array(value) for name, value in check_metrics(metrics, self._what).items()
        }
        layout = [(name, list(values[name].shape)) for name in sorted(values)]
        if self._layout is None:
            self._lay_out(layout)
        elif layout != self._layout:
            raise TrialError(self._difference(layout))
        flat = [np.ones(1), *(values[name].reshape(-1) for name in sorted(values))]
        self._add(torch.from_numpy(np.concatenate(flat)))
        self._batches += 1

    def _add(self, batch: Tensor) -> None:
        """Combines a batch's values with those of earlier batches."""
        before = self.sums.clone()
        self.sums += batch
        for part, kind in self._extremes() if self._batches else ():
            self.sums[part] = _EXTREME[kind](before[part], batch[part])

    def _extremes(self) -> list[tuple[slice, Reducer]]:
        """Returns the slices of `sums` whose metrics are reduced by maximum or minimum."""
        parts, begin = [], 1
        for name, shape in self._layout or ():
            end = begin + math.prod(shape)
            if self._kind(name) in _EXTREME:
                parts.append((slice(begin, end), self._kind(name)))
            begin = end
        return parts

    def _kind(self, name: str) -> Reducer:
        if isinstance(self._reducers, Reducer):
            return self._reducers
        return self._reducers.get(name, Reducer.AVG)

    def agree(self, world: World) -> None:
        """Synchronizes names and shapes of the metrics; all processes call it once at the end.

        A process without batches takes them from the others.

        Raises:
          TrialError: the names or shapes of the metrics differ between processes.
        """
        if world.size == 1:
            return
        own = {"layout": self._layout, "sums": self.sums.tolist() if self._extremes() else None}
        gathered = world.gather(own if self._batches else None)
        reports = {rank: one for rank, one in enumerate(gathered) if one is not None}
        layouts = {
            rank: [(n, shape) for n, shape in one["layout"]] for rank, one in reports.items()
        }
        first = min(layouts, default=0)
        for rank, layout in layouts.items():
            if layout != layouts[first]:
                raise TrialError(
                    f"{self._what} returned {_shown(layouts[first])} in process {first}, but "
                    f"{_shown(layout)} in process {rank}. Return the same names with the same "
                    "shapes for every batch."
                )
        if layouts and self._layout is None:
            self._lay_out(layouts[first])
        # The first process holds the global extremes and the others zeros, which makes sums
        # correct.
        for part, kind in self._extremes():
            sums = (torch.tensor(one["sums"], dtype=torch.float64) for one in reports.values())
            extreme = functools.reduce(_EXTREME[kind], (one[part] for one in sums))
            self.sums[part] = extreme if world.leads else 0.0

    def result(self) -> dict[str, float]:
        """Returns the mean of each scalar metric.

        Raises:
          TrialError: there was no batch.
        """
        return {name: mean.item() for name, mean in self._means().items() if mean.size == 1}

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Returns the means of the non-scalar metrics, in their original shapes.

        Raises:
          TrialError: there was no batch.
        """
        return {name: mean for name, mean in self._means().items() if mean.size != 1}

    def _means(self) -> dict[str, NDArray[np.float64]]:
        count = self.sums[0].item()
        if self._layout is None or not count:
            raise TrialError(
                "The validation loader gave no batch, so there is nothing to average. "
                "make_data_loaders returns (train, valid): look at the second."
            )
        sizes = [math.prod(shape) for _, shape in self._layout]
        parts = torch.split(self.sums[1:], sizes)
        return {
            name: part.numpy().reshape(shape) / (count if self._kind(name) is Reducer.AVG else 1)
            for (name, shape), part in zip(self._layout, parts, strict=True)
        }

    def _lay_out(self, layout: Layout) -> None:
        self._layout = layout
        elements = sum(math.prod(shape) for _, shape in layout)
        self.sums = torch.zeros(1 + elements, dtype=torch.float64)

    def _difference(self, layout: Layout) -> str:
        """Returns the error message for metrics that differ from earlier batches."""
        before, now = dict(self._layout or ()), dict(layout)
        if before.keys() != now.keys():
            return (
                f"{self._what} returned {', '.join(now)} for batch {self._batches}, but "
                f"{', '.join(before)} for those before it. Return the same names for every batch."
            )
        name = next(name for name in now if now[name] != before[name])
        return (
            f"{self._what}: {name!r} has shape {now[name]} in batch {self._batches}, but "
            f"{before[name]} in those before it. A mean over batches needs one shape: reduce it "
            "over the examples of the batch."
        )


def _shown(layout: Layout) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in layout)


# Training metrics: means of losses and metrics since the last report.


class TrainingReport:
    """Elementwise means over batches, kept on the device to avoid synchronization at each step.

    A metric whose shape varies between batches is reported as the mean of all its elements.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}  # [elements + 1] float64: sums, then the batch count
        self._shapes: dict[str, list[int]] = {}

    def add(self, values: Mapping[str, Any]) -> None:
        """Adds a batch's losses and metrics by name."""
        for name, value in values.items():
            tensor = value if isinstance(value, Tensor) else torch.from_numpy(as_array(value))
            shape, flat = list(tensor.shape), tensor.detach().to(torch.float64).reshape(-1)
            if shape != self._shapes.setdefault(name, shape):
                self._flatten(name)
                flat = flat.mean(0, keepdim=True)
            one = torch.cat([flat, flat.new_ones(1)])
            before = self._sums.get(name)
            self._sums[name] = one if before is None else before.to(one.device) + one

    def _flatten(self, name: str) -> None:
        """Reduces a metric to a scalar from now on."""
        if self._shapes[name]:
            logging.log_first_n(
                logging.WARNING,
                "%s has other shapes in other batches of training: the mean of its numbers is "
                "reported.",
                1,
                name,
            )
        self._shapes[name] = []
        if name in self._sums:
            sums = self._sums[name]
            self._sums[name] = torch.stack([sums[:-1].mean(), sums[-1]])

    def sums(self, world: World) -> dict[str, Tensor]:
        """Returns the sums and batch counts by name over all processes; a collective call.

        A process without values for a name contributes zeros.
        """
        gathered = world.gather(self._shapes)
        names = sorted({name for shapes in gathered for name in shapes})
        for name in names:
            shapes = [shapes[name] for shapes in gathered if name in shapes]
            self._shapes.setdefault(name, shapes[0])
            if any(shape != shapes[0] for shape in shapes):
                self._flatten(name)
        if not names:
            return {}
        sizes = [math.prod(self._shapes[name]) + 1 for name in names]
        parts = [
            self._sums.get(name, torch.zeros(size, dtype=torch.float64)).to(world.device)
            for name, size in zip(names, sizes, strict=True)
        ]
        total = world.sum(torch.cat(parts))
        return dict(zip(names, torch.split(total.cpu(), sizes), strict=True))

    def read(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the means over all processes and resets the statistics; a collective call.

        Returns:
          The scalar metrics, and the array metrics.
        """
        sums = self.sums(world)
        means = {n: total[:-1] / total[-1] for n, total in sums.items() if total[-1]}
        numbers = {name: mean.item() for name, mean in means.items() if len(mean) == 1}
        arrays = {
            name: mean.reshape(self._shapes[name]) for name, mean in means.items() if len(mean) != 1
        }
        self._sums, self._shapes = {}, {}
        return numbers, arrays

    def state(self, world: World) -> dict[str, Any]:
        """Returns `sums` in JSON form; non-finite numbers become strings."""
        state: dict[str, Any] = {}
        for name, sums in self.sums(world).items():
            flat = [v if math.isfinite(v) else str(v) for v in sums.tolist()]
            shape = self._shapes[name]
            state[name] = {"shape": shape, "sums": flat} if shape else flat
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state`, in one of several processes."""
        for name, stored in state.items():
            flat = stored["sums"] if isinstance(stored, dict) else stored
            self._shapes[name] = stored["shape"] if isinstance(stored, dict) else []
            self._sums[name] = torch.tensor([float(v) for v in flat], dtype=torch.float64)
