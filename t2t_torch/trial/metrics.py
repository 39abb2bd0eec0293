"""Validation and aggregation of the results of a trial's methods."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from absl import logging
from numpy.typing import NDArray
from torch import Tensor, nn

from t2t_torch.errors import TrialError, listed
from t2t_torch.trial.nested import described
from t2t_torch.trial.pytorch_trial import Reducer
from t2t_torch.trial.user_code import required

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
    """Returns the error for a value of the wrong type; `what` is the beginning of the message."""
    hint = " Is a return missing?" if value is None else ""
    return TrialError(f"{what} {_kind(value)}; {expected} was expected.{hint}")


def check_model(model: Any, what: str = "build_model") -> nn.Module:
    """Checks and returns the result of `build_model`.

    Args:
      model: result of the method.
      what: name of the method, for error messages.

    Raises:
      TrialError: it is no `nn.Module`, or has no trainable parameters.
    """
    if not isinstance(model, nn.Module):
        raise _unexpected(f"{what} returned", model, "an nn.Module")
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
    if foreign := [list(one.shape) for key, one in trained.items() if key not in own]:
        raise TrialError(
            f"optimizer trains {len(foreign)} parameters that are not the model's, the first of "
            f"shape {foreign[0]}. Make it of model.parameters(), with the model that it is given."
        )
    named = model.named_parameters()
    if missed := [name for name, p in named if p.requires_grad and id(p) not in trained]:
        logging.warning("optimizer does not train %s.", listed(missed))
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
        raise _unexpected(what, optimizer, "a torch.optim.Optimizer")
    # Of the class: torch's schedulers replace the method of the instance by a wrapper.
    _, *parameters = inspect.signature(type(optimizer).step).parameters.values()
    if required(parameters):
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
        raise _unexpected(name, total, "a tensor of one number, or a dict with such a 'loss',")
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
        raise _unexpected(f"{what} returned", metrics, "a dict of names and values")
    if not metrics and what != "training_metrics":
        raise TrialError(f"{what} returned an empty dict; at least one metric was expected.")
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise TrialError(f"{what} returned a metric named {name!r}; a name is a string.")
        if not _is_number(value):
            raise TrialError(
                f"{what}: {name!r} is {_kind(value)}; a number, or an array, a tensor or a list of "
                "numbers (all items of one shape), was expected."
            )
    if taken := sorted(reserved.intersection(metrics)):
        raise TrialError(
            f"{what} returned {', '.join(map(repr, taken))}, which each line of metrics.jsonl says "
            f"itself. Give it another name than these: {', '.join(sorted(reserved))}."
        )
    return metrics


def join_metrics(losses: Any, metrics: dict[str, Any], what: str = "losses") -> dict[str, Any]:
    """Returns the metrics reported for a training batch: losses by name, and `training_metrics`.

    Strings among the losses are left out.

    Args:
      losses: loss tensor, or a dict with the entry "loss".
      metrics: result of `training_metrics`; empty without it.
      what: name of the method that returned the losses.

    Raises:
      TrialError: a loss is not numeric or has a reserved name; or a metric and a loss with the same
        name have different values.
    """
    by_name = losses if isinstance(losses, dict) else {"loss": losses}
    joined = {name: value for name, value in by_name.items() if not isinstance(value, str | bytes)}
    check_metrics(joined, what, reserved=OF_THE_LOOP)
    for name, value in check_metrics(metrics, "training_metrics", reserved=OF_THE_LOOP).items():
        if name in joined and not np.array_equal(
            as_array(joined[name]), as_array(value), equal_nan=True
        ):
            raise TrialError(
                f"training_metrics: {name!r} is the name of a loss, and has another value. "
                "Rename one of the two."
            )
    return {**joined, **metrics}


def check_loaders(loaders: Any) -> tuple[Any, Any]:
    """Returns the training and validation loaders that `make_data_loaders` returned.

    Raises:
      TrialError: there are not two, or one is no loader.
    """
    wrong = (Tensor, np.ndarray, str, bytes, dict, torch.utils.data.Dataset)
    several = isinstance(loaders, list | tuple)
    kinds = [_kind(one) for one in loaders] if several else [_kind(loaders)]
    if len(kinds) != 2 or any(isinstance(one, wrong) or one is None for one in loaders):
        raise TrialError(
            f"make_data_loaders returned {', '.join(kinds)}; two loaders were expected: (train, "
            "valid). A data set needs one: DataLoader(dataset, batch_size=...)."
        )
    return loaders[0], loaders[1]


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


def _kind(value: Any) -> str:
    """Describes a value with its article: `None`, `a list`, `a tensor float32 [3]`."""
    if value is None:
        return "None"
    if isinstance(value, Tensor | np.ndarray):
        return f"{'a tensor' if isinstance(value, Tensor) else 'an array'} {described(value)}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


_JOINED: Mapping[Reducer, Callable[[Any, Any], Any]] = {
    Reducer.AVG: np.add,
    Reducer.SUM: np.add,
    Reducer.MAX: np.maximum,
    Reducer.MIN: np.minimum,
}


class MetricAverages:
    """Elementwise means of metrics over the batches of all processes, or sums, maxima, minima.

    Args:
      what: name of the method that returns the metrics, for messages.
      reducers: reduction over batches, for all metrics or by name; the default is the mean.

    Attributes:
      reduced: more metrics, which need no reduction.
    """

    def __init__(
        self,
        what: str = "validation_metrics",
        reducers: Reducer | Mapping[str, Reducer] = Reducer.AVG,
    ) -> None:
        self._what = what
        self._reducers = reducers
        self.reduced: Mapping[str, Any] = {}
        self._batches = 0
        self._values: dict[str, NDArray[np.float64]] = {}  # reduced, but for the division of means

    def update(self, metrics: Any, batch: object = None) -> None:
        """Adds a batch's metrics; the batch itself is ignored.

        Raises:
          TrialError: the metrics are invalid, or their names or shapes differ from earlier batches.
        """
        checked = check_metrics(metrics, self._what)
        self._add({n: as_array(v) for n, v in checked.items()}, 1, f"for batch {self._batches}")

    def agree(self, world: World) -> None:
        """Adds the metrics of all processes, in each of them; a collective call.

        Raises:
          TrialError: the names or shapes of the metrics differ between processes.
        """
        own = [self._batches, {name: value.tolist() for name, value in self._values.items()}]
        self._batches, self._values = 0, {}
        for rank, (batches, values) in enumerate(world.gather(own)):
            if batches:
                arrays = {name: np.array(value, np.float64) for name, value in values.items()}
                self._add(arrays, batches, f"in process {rank}")

    def _add(self, values: dict[str, NDArray[np.float64]], batches: int, where: str) -> None:
        before, now = _shapes(self._values), _shapes(values)
        if self._batches and before != now:
            raise TrialError(
                f"{self._what} returned {now} {where}, but {before} before. Return the same names "
                "with the same shapes for every batch, such as means over its examples."
            )
        for name, value in values.items():
            join = _JOINED[self._reducer(name)]
            known = self._values.get(name)
            self._values[name] = value.copy() if known is None else join(known, value)
        self._batches += batches

    def _reducer(self, name: str) -> Reducer:
        if isinstance(self._reducers, Reducer):
            return self._reducers
        return self._reducers.get(name, Reducer.AVG)

    def result(self) -> dict[str, float]:
        """Returns the scalar metrics.

        Raises:
          TrialError: there was no batch.
        """
        return {name: value.item() for name, value in self._reduced().items() if value.size == 1}

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Returns the non-scalar metrics, in their original shapes.

        Raises:
          TrialError: there was no batch.
        """
        return {name: value for name, value in self._reduced().items() if value.size != 1}

    def _reduced(self) -> dict[str, NDArray[np.float64]]:
        if not self._batches and not self.reduced:
            raise TrialError(
                "The validation loader gave no batch, so there is nothing to average. "
                "make_data_loaders returns (train, valid): look at the second."
            )
        is_mean = {name: self._reducer(name) is Reducer.AVG for name in self._values}
        values = {n: v / (self._batches if is_mean[n] else 1) for n, v in self._values.items()}
        return values | {name: as_array(value) for name, value in self.reduced.items()}


def _shapes(values: Mapping[str, NDArray[np.float64]]) -> str:
    return ", ".join(f"{name} {list(values[name].shape)}" for name in sorted(values))


class TrainingReport:
    """Elementwise means over batches, kept on the device to avoid synchronization at each step.

    A metric whose shape varies between batches is reported as the mean of all its elements.
    """

    def __init__(self) -> None:
        # By name: the shape; [elements + 1] float64, the sums and the number of batches.
        self._sums: dict[str, tuple[list[int], Tensor]] = {}

    def add(self, values: Mapping[str, Any]) -> None:
        """Adds a batch's losses and metrics by name."""
        for name, value in values.items():
            tensor = value if isinstance(value, Tensor) else torch.from_numpy(as_array(value))
            flat = tensor.detach().to(torch.float64).reshape(-1)
            self._add(name, list(tensor.shape), torch.cat([flat, flat.new_ones(1)]))

    def _add(self, name: str, shape: list[int], sums: Tensor) -> None:
        if name in self._sums:
            before_shape, before = self._sums[name]
            if shape != before_shape:
                shape, sums, before = [], _means_of_elements(sums), _means_of_elements(before)
            sums = before.to(sums.device) + sums
        self._sums[name] = shape, sums

    def _over_all(self, world: World) -> dict[str, tuple[list[int], Tensor]]:
        """Returns the shapes and sums over all processes, sorted by name; a collective call."""
        total = TrainingReport()
        for own in world.gather({n: [shape, s.tolist()] for n, (shape, s) in self._sums.items()}):
            for name, (shape, sums) in own.items():
                total._add(name, shape, torch.tensor(sums, dtype=torch.float64))
        return dict(sorted(total._sums.items()))

    def read(
        self, world: World, reduced: Mapping[str, Any]
    ) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the means over all processes and resets the statistics; a collective call.

        Args:
          world: the processes that train together.
          reduced: further metrics, which need no reduction.

        Returns:
          The scalar metrics, and the array metrics.
        """
        sums = self._over_all(world).items()
        means = {name: (one[:-1] / one[-1]).reshape(shape) for name, (shape, one) in sums}
        means |= {name: torch.from_numpy(as_array(value)) for name, value in reduced.items()}
        self._sums = {}
        numbers = {name: mean.item() for name, mean in means.items() if mean.numel() == 1}
        return numbers, {name: mean for name, mean in means.items() if mean.numel() != 1}

    def state(self, world: World) -> dict[str, Any]:
        """Returns the sums in JSON form; non-finite numbers become strings."""
        state: dict[str, Any] = {}
        for name, (shape, sums) in self._over_all(world).items():
            flat = [v if math.isfinite(v) else str(v) for v in sums.tolist()]
            state[name] = {"shape": shape, "sums": flat} if shape else flat
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state`, in one of several processes."""
        for name, stored in state.items():
            parts = stored if isinstance(stored, dict) else {"shape": [], "sums": stored}
            sums = torch.tensor([float(v) for v in parts["sums"]], dtype=torch.float64)
            self._sums[name] = parts["shape"], sums


def _means_of_elements(sums: Tensor) -> Tensor:
    return torch.stack([sums[:-1].mean(), sums[-1]])
