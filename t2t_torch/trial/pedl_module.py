"""`import pedl`, `import determined`, and names that numpy and torch have removed, for trials."""

from __future__ import annotations

import dataclasses
import functools
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from absl import logging
from numpy.typing import NDArray
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.trial import context as of_determined
from t2t_torch.trial import nested, pytorch_trial
from t2t_torch.trial.pytorch_trial import InvalidHP, PyTorchTrial, Reducer
from t2t_torch.trial.schedule import LRScheduler

# PEDL's data loader and the type of its batches.


TorchData: TypeAlias = dict[str, Tensor] | Sequence[Tensor] | Tensor
"""Type of inputs, labels and predictions in annotations."""


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's `DataLoader` under PEDL's and Determined's name."""

    def get_data_loader(self, *_: Any, **__: Any) -> DataLoader:
        """Returns the loader itself: the loop repeats, skips and shares its batches."""
        return self


def data_length(data: TorchData) -> int:
    """Returns the number of records in a nested batch."""
    return nested.rows_of(data)


# `determined.pytorch.samplers`: parts of chains; each works on indices and on batches of them.


class _Chained(torch.utils.data.Sampler[Any]):
    """Sampler on another one, whose length it has."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)


class RepeatSampler(_Chained):
    """Repeats a sampler without end; its length is that of one pass."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class DistributedSampler(_Chained):
    """Every `num_workers`-th item of a sampler, from the item `rank` on."""

    def __init__(self, sampler: Any, num_workers: int, rank: int) -> None:
        super().__init__(sampler)
        if not 0 <= rank < num_workers:
            raise ValueError(f"rank={rank}, num_workers={num_workers}: rank is less, from 0 on.")
        self.num_workers, self.rank = num_workers, rank

    def __len__(self) -> int:
        return len(range(self.rank, len(self.sampler), self.num_workers))

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.sampler, self.rank, None, self.num_workers)


class SkipSampler(_Chained):
    """The items of a sampler after the first `skip`; its length is that of the whole sampler."""

    def __init__(self, sampler: Any, skip: int) -> None:
        super().__init__(sampler)
        self.skip = skip

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.sampler, self.skip, None)


class ReproducibleShuffleSampler(_Chained):
    """The items of a sampler in an order that a seed determines, another one in each pass."""

    def __init__(self, sampler: Any, seed: int) -> None:
        super().__init__(sampler)
        self._rng = np.random.RandomState(seed)

    def __iter__(self) -> Iterator[Any]:
        items = list(self.sampler)
        self._rng.shuffle(items)
        return iter(items)


# Elementwise mean of metrics over batches.


def elementwise_mean(values: Iterable[Any]) -> NDArray[np.float64]:
    """Returns the mean of numbers or arrays of equal shape, in that shape.

    Raises:
      TrialError: there are no values, or their shapes differ.
    """
    arrays = [np.asarray(value, np.float64) for value in values]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) != 1:
        listed = ", ".join(str(list(shape)) for shape in shapes) or "nothing"
        raise TrialError(f"elementwise_mean was given {listed}; values of one shape were expected.")
    mean: NDArray[np.float64] = np.mean(np.stack(arrays), axis=0)
    return mean


# Error rate of predictions.


def error_rate(predictions: Tensor, labels: Tensor) -> Tensor:
    """Returns the fraction of examples whose most likely class is not their label.

    Args:
      predictions: [B, C], scores of the classes.
      labels: [B], indices of the true classes.

    Returns:
      A scalar from 0 to 1.

    Raises:
      TrialError: the shapes are invalid, or there are no examples.
    """
    if predictions.dim() != 2 or labels.shape != predictions.shape[:1] or not len(labels):
        raise TrialError(
            f"error_rate was given predictions of shape {list(predictions.shape)} and labels of "
            f"shape {list(labels.shape)}; [B, C] and [B] were expected, with B at least 1."
        )
    return (torch.argmax(predictions, dim=1) != labels).float().mean()


# Reinitialization of a model's weights.


def reset_parameters(model: nn.Module) -> None:
    """Reinitializes every layer that has `reset_parameters`, including the model itself."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()


# Names imported by scripts that started their own experiment: `Constant`, `Experiment`.
#
# Such a script is loaded like any other trial, because it starts its experiment only under `if
# __name__ == "__main__"`.


def Constant(value: Any, name: str | None = None) -> Any:
    """Returns the chosen hyperparameter with this name, or `value` if there is none."""
    try:
        chosen = pytorch_trial.get_hyperparameters()
    except TrialError:  # the script runs by itself
        return value
    return chosen.get(name, value) if name else value


@dataclasses.dataclass
class Experiment:
    """Experiment of a script for a cluster; `create` names the command that runs it here.

    Attributes:
      context_directory: directory of the script.
      trial_def: trial class.
      make_data_loaders_fn: function that creates the loaders.
      configuration: content of experiment.yaml.
    """

    context_directory: str | None = None
    trial_def: type | None = None
    make_data_loaders_fn: Callable[..., Any] | None = None
    configuration: dict[str, Any] | None = None

    def create(self) -> NoReturn:
        """Raises an error with the command that runs the experiment.

        Raises:
          TrialError: always, as there is no cluster.
        """
        spec = self.context_directory or "."
        if self.trial_def is not None:
            try:
                source = inspect.getfile(self.trial_def)
            except (TypeError, OSError):
                source = spec
            spec = f"{Path(source)}:{self.trial_def.__name__}"
        written = json.dumps(self.configuration or {}, default=str)
        raise TrialError(
            "pedl.Experiment(...).create() starts nothing here: there is no cluster. Write the "
            f"configuration to experiment.yaml (JSON is YAML): {written}\nThen run  t2t-trainer "
            f"--trial={spec} --config=experiment.yaml --output_dir=run\nWhat stands under `if "
            "__name__ == '__main__'` does not run then: move what the trial reads from there to "
            "the top of the file."
        )


_MODULES: dict[str, dict[str, Any]] = {
    "pedl": {
        "Constant": Constant,
        "Experiment": Experiment,
        "InvalidHP": InvalidHP,
        "Reducer": Reducer,
        "get_data_config": pytorch_trial.get_data_config,
        "get_download_data_dir": pytorch_trial.get_download_data_dir,
        "get_experiment_config": pytorch_trial.get_experiment_config,
        "get_experiment_id": pytorch_trial.get_experiment_id,
        "get_hyperparameter": pytorch_trial.get_hyperparameter,
        "get_hyperparameters": pytorch_trial.get_hyperparameters,
        "get_trial_id": pytorch_trial.get_trial_id,
    },
    "pedl.frameworks": {},
    "pedl.frameworks.util": {"elementwise_mean": elementwise_mean},
    "pedl.frameworks.pytorch": {
        "LRScheduler": LRScheduler,
        "PyTorchTrial": PyTorchTrial,
        "Reducer": Reducer,
        "reset_parameters": reset_parameters,
    },
    "pedl.frameworks.pytorch.data": {"DataLoader": DataLoader, "TorchData": TorchData},
    "pedl.frameworks.pytorch.util": {"error_rate": error_rate},
    "determined": {
        "InvalidHP": InvalidHP,
        "TrialContext": of_determined.PyTorchTrialContext,
        "__version__": "0.38.1",  # the newest interface that is implemented
        "get_cluster_info": lambda: None,
    },
    "determined.errors": {"InvalidHP": InvalidHP},
    "determined.tensorboard": {},
    "determined.tensorboard.metric_writers": {},
    "determined.tensorboard.metric_writers.pytorch": {"TorchWriter": of_determined.TorchWriter},
    "determined.pytorch": {
        "ClipGradsL2Norm": of_determined.ClipGradsL2Norm,
        "ClipGradsL2Value": of_determined.ClipGradsL2Value,
        "DataLoader": DataLoader,
        "LRScheduler": of_determined.LRScheduler,
        "MetricReducer": of_determined.MetricReducer,
        "PyTorchCallback": of_determined.PyTorchCallback,
        "PyTorchExperimentalContext": of_determined.ExperimentalContext,
        "PyTorchTrial": PyTorchTrial,
        "PyTorchTrialContext": of_determined.PyTorchTrialContext,
        "Reducer": Reducer,
        "TorchData": TorchData,
        "data_length": data_length,
        "reset_parameters": reset_parameters,
        "to_device": nested.to_device,
    },
    "determined.pytorch.samplers": {
        **dict.fromkeys(("RepeatSampler", "RepeatBatchSampler"), RepeatSampler),
        **dict.fromkeys(("DistributedSampler", "DistributedBatchSampler"), DistributedSampler),
        **dict.fromkeys(("SkipSampler", "SkipBatchSampler"), SkipSampler),
        "ReproducibleShuffleSampler": ReproducibleShuffleSampler,
        "ReproducibleShuffleBatchSampler": ReproducibleShuffleSampler,
    },
}


_NUMPY_NAMES: dict[str, object] = {
    **{kind.__name__: kind for kind in (int, float, bool, complex, object, str)},
    "long": int,
    "unicode": str,
    "float_": np.float64,
    "complex_": np.complex128,
    **dict.fromkeys(("Inf", "Infinity", "infty"), np.inf),
    **dict.fromkeys(("NaN", "NAN"), np.nan),
    "product": np.prod,
    "cumproduct": np.cumprod,
    "alltrue": np.all,
    "sometrue": np.any,
}

_ADDED: list[str] = []  # names added to numpy
_WRAPPED: dict[type, Callable[..., None]] = {}  # schedulers of torch and their own `__init__`


def add_removed_names() -> None:
    """Restores what libraries have removed: np.int, `verbose` of torch's schedulers."""
    for name, value in _NUMPY_NAMES.items():
        if name not in vars(np):
            setattr(np, name, value)
            _ADDED.append(name)
    for kind in vars(torch.optim.lr_scheduler).values():
        own = vars(kind).get("__init__") if isinstance(kind, type) else None
        if own is None or not issubclass(kind, torch.optim.lr_scheduler.LRScheduler):
            continue
        if "verbose" not in inspect.signature(own).parameters:
            _WRAPPED[kind] = own
            kind.__init__ = _without_verbose(own)


def _without_verbose(make: Callable[..., None]) -> Callable[..., None]:
    """Returns the `__init__` of a scheduler that leaves `verbose` out: the trainer prints rates.

    By position it was the last argument, one more than there are now.
    """
    most = len(inspect.signature(make).parameters) - 1

    @functools.wraps(make)
    def init(self: Any, *args: Any, verbose: Any = None, **kwargs: Any) -> None:
        make(self, *args[: most if len(args) == most + 1 else None], **kwargs)

    return init


def remove_removed_names() -> None:
    """Undoes `add_removed_names`."""
    while _ADDED:
        delattr(np, _ADDED.pop())
    while _WRAPPED:
        kind, own = _WRAPPED.popitem()
        kind.__init__ = own  # type: ignore[misc]


_PARTS = {"pedl": "frameworks", "determined": "pytorch"}
"""Package -> subpackage by which an installed one is recognized."""


def install_shim() -> bool:
    """Makes `pedl` and `determined` importable; an installed one takes precedence.

    An unrelated package of such a name is hidden, with a warning.

    Returns:
      True if this module provides both.
    """
    return sum(_install(package) for package in _PARTS) == len(_PARTS)


def _install(package: str) -> bool:
    loaded = sys.modules.get(package)
    if loaded is not None and hasattr(loaded, "__t2t_torch__"):
        return True
    spec = importlib.util.find_spec(package)
    if spec is not None:
        places = [Path(place) for place in spec.submodule_search_locations or ()]
        if any((place / _PARTS[package]).is_dir() for place in places):
            return False
        logging.warning(
            "The package %s at %s is no trial library; trials do not see it.", package, spec.origin
        )
    own = [name for name in _MODULES if name.partition(".")[0] == package]
    for name in own:
        sys.modules[name] = _module(name)
    for name in own:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    return True


def _module(name: str) -> ModuleType:
    module = ModuleType(name, f"The package's `{name}`, as t2t_torch has it.")
    vars(module).update(_MODULES[name], __t2t_torch__=True)
    is_package = any(other.startswith(f"{name}.") for other in _MODULES)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=is_package)
    if is_package:
        module.__path__ = []
    if name.startswith("determined"):
        vars(module)["__getattr__"] = functools.partial(_unknown, name)
    return module


def _unknown(module: str, name: str) -> NoReturn:
    """Raises an error for a name of Determined that is not supported.

    Raises:
      AttributeError: the name is private.
      TrialError: the name is not supported.
    """
    if name.startswith("_"):
        raise AttributeError(name)
    names = ", ".join(key for key in _MODULES[module] if not key.startswith("_"))
    raise TrialError(
        f"The trial uses {module}.{name}, which is not supported. Of {module} there are: {names}. "
        "See docs/how_to/from_determined.md."
    )
