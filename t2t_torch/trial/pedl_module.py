"""`import pedl` and removed names of numpy, for trials written in 2019."""

from __future__ import annotations

import dataclasses
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
from t2t_torch.trial import pytorch_trial
from t2t_torch.trial.pytorch_trial import InvalidHP, PyTorchTrial, Reducer
from t2t_torch.trial.schedule import LRScheduler

# PEDL's data loader and the type of its batches.


TorchData: TypeAlias = dict[str, Tensor] | Sequence[Tensor] | Tensor
"""Type of inputs, labels and predictions in annotations."""


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's `DataLoader` under PEDL's name."""


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


def add_numpy_names() -> None:
    """Restores names that numpy has removed since 2019: np.int, np.float."""
    for name, value in _NUMPY_NAMES.items():
        if name not in vars(np):
            setattr(np, name, value)
            _ADDED.append(name)


def remove_numpy_names() -> None:
    """Removes the names that `add_numpy_names` added."""
    while _ADDED:
        delattr(np, _ADDED.pop())


def install_shim() -> bool:
    """Makes `pedl` importable unless PEDL is installed; returns True if this shim is used.

    An unrelated package named pedl is hidden, with a warning.
    """
    loaded = sys.modules.get("pedl")
    if loaded is not None and hasattr(loaded, "__t2t_torch__"):
        return True
    spec = importlib.util.find_spec("pedl")
    if spec is not None:
        places = [Path(place) for place in spec.submodule_search_locations or ()]
        if any((place / "frameworks").is_dir() for place in places):
            return False
        logging.warning("The package pedl at %s is no PEDL; trials do not see it.", spec.origin)
    for name in _MODULES:
        sys.modules[name] = _module(name)
    for name in _MODULES:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    return True


def _module(name: str) -> ModuleType:
    module = ModuleType(name, f"PEDL's `{name}`, as t2t_torch has it.")
    vars(module).update(_MODULES[name], __t2t_torch__=True)
    is_package = any(other.startswith(f"{name}.") for other in _MODULES)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=is_package)
    if is_package:
        module.__path__ = []
    return module
