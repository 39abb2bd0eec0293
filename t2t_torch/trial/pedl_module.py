"""`import pedl`, `import determined`, and names that numpy and torch have removed, for trials."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.machinery
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
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


def elementwise_mean(values: Iterable[Any]) -> NDArray[np.float64]:
    """Returns the mean of numbers or arrays of equal shape, in that shape.

    Raises:
      ValueError: there are no values, or their shapes differ.
    """
    arrays = [np.asarray(value, np.float64) for value in values]
    mean: NDArray[np.float64] = np.mean(np.stack(arrays), axis=0)
    return mean


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


def reset_parameters(model: nn.Module) -> None:
    """Reinitializes every layer that has `reset_parameters`, including the model itself."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()


def Constant(value: Any, name: str | None = None) -> Any:
    """Returns the chosen hyperparameter with this name, or `value` if there is none."""
    try:
        chosen = pytorch_trial.get_hyperparameters()
    except TrialError:  # the script runs by itself
        return value
    return chosen.get(name, value) if name else value


@dataclasses.dataclass
class ScriptExperiment:
    """Experiment of a script for a cluster; `create` names the command that runs it here.

    Such a script is loaded like any other trial, because it starts its experiment only under `if
    __name__ == "__main__"`.

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
            spec += f":{self.trial_def.__name__}"
        raise TrialError(
            "pedl.Experiment(...).create() starts nothing here: there is no cluster. Write the "
            "configuration to experiment.yaml (JSON is YAML): "
            f"{json.dumps(self.configuration or {}, default=str)}\nThen run  t2t-trainer "
            f"--trial={spec} --config=experiment.yaml --output_dir=run\nCode under `if __name__ == "
            "'__main__'` does not run then: move what the trial reads there to the top of the file."
        )


def _named(*objects: Any) -> dict[str, Any]:
    return {one.__name__: one for one in objects}


_MODULES: dict[str, dict[str, Any]] = {
    "pedl": {
        "Experiment": ScriptExperiment,
        **_named(Constant, InvalidHP, Reducer, pytorch_trial.get_download_data_dir),
        **_named(pytorch_trial.get_data_config, pytorch_trial.get_experiment_config),
        **_named(pytorch_trial.get_hyperparameter, pytorch_trial.get_hyperparameters),
        **_named(pytorch_trial.get_experiment_id, pytorch_trial.get_trial_id),
    },
    "pedl.frameworks": {},
    "pedl.frameworks.util": _named(elementwise_mean),
    "pedl.frameworks.pytorch": _named(LRScheduler, PyTorchTrial, Reducer, reset_parameters),
    "pedl.frameworks.pytorch.data": {"DataLoader": DataLoader, "TorchData": TorchData},
    "pedl.frameworks.pytorch.util": _named(error_rate),
    "determined": {
        "InvalidHP": InvalidHP,
        "TrialContext": of_determined.PyTorchTrialContext,
        "__version__": "0.38.1",  # the newest interface that is implemented
        "get_cluster_info": lambda: None,
    },
    "determined.errors": _named(InvalidHP),
    "determined.tensorboard": {},
    "determined.tensorboard.metric_writers": {},
    "determined.tensorboard.metric_writers.pytorch": _named(of_determined.TorchWriter),
    "determined.pytorch": {
        "LRScheduler": of_determined.ContextScheduler,
        "PyTorchExperimentalContext": of_determined.ExperimentalContext,
        "TorchData": TorchData,
        **_named(of_determined.ClipGradsL2Norm, of_determined.ClipGradsL2Value),
        **_named(of_determined.MetricReducer, of_determined.PyTorchCallback),
        **_named(of_determined.PyTorchTrialContext, PyTorchTrial, Reducer, DataLoader),
        **_named(data_length, reset_parameters, nested.to_device),
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

_ADDED = contextlib.ExitStack()  # undoes changes of numpy and torch


def add_removed_names() -> None:
    """Restores what libraries have removed: np.int, `verbose` of torch's schedulers."""
    for name, value in _NUMPY_NAMES.items():
        if name not in vars(np):
            setattr(np, name, value)
            _ADDED.callback(delattr, np, name)
    for kind in vars(torch.optim.lr_scheduler).values():
        own = vars(kind).get("__init__") if isinstance(kind, type) else None
        if own is None or not issubclass(kind, torch.optim.lr_scheduler.LRScheduler):
            continue
        if "verbose" not in inspect.signature(own).parameters:
            kind.__init__ = _without_verbose(own)
            _ADDED.callback(setattr, kind, "__init__", own)


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
    _ADDED.close()


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
    if (loaded := sys.modules.get(package)) is not None and hasattr(loaded, "__t2t_torch__"):
        return True
    if (spec := importlib.util.find_spec(package)) is not None:
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
