"""`import pedl` and old names of numpy, for trials that were written in 2019."""

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

# The loader that trials import, and the name of what it yields.


TorchData: TypeAlias = dict[str, Tensor] | Sequence[Tensor] | Tensor
"""What trials annotate inputs, labels and predictions with."""


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's `DataLoader`, by the name under which trials know it."""


# The mean of metrics over batches, element by element.


def elementwise_mean(values: Iterable[Any]) -> NDArray[np.float64]:
    """Returns the mean of numbers or arrays, all of one shape; it has that shape.

    Raises:
      TrialError: there are none, or their shapes differ.
    """
    arrays = [np.asarray(value, np.float64) for value in values]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) != 1:
        found = ", ".join(str(list(shape)) for shape in shapes) or "nothing"
        raise TrialError(f"elementwise_mean was given {found}; values of one shape were expected.")
    mean: NDArray[np.float64] = np.mean(np.stack(arrays), axis=0)
    return mean


# The part of predictions that is wrong.


def error_rate(predictions: Tensor, labels: Tensor) -> Tensor:
    """Returns the part of examples whose likeliest class is not theirs.

    Args:
      predictions: [B, C], a number for each class, the greatest being the choice.
      labels: [B], the classes.

    Returns:
      A scalar from 0 to 1.

    Raises:
      TrialError: the shapes are others, or there are no examples.
    """
    if predictions.dim() != 2 or labels.shape != predictions.shape[:1] or not len(labels):
        raise TrialError(
            f"error_rate was given predictions of shape {list(predictions.shape)} and labels of "
            f"shape {list(labels.shape)}; [B, C] and [B] were expected, with B at least 1."
        )
    return (torch.argmax(predictions, dim=1) != labels).float().mean()


# A model whose weights are drawn anew.


def reset_parameters(model: nn.Module) -> None:
    """Draws the weights of every layer anew that can do it, the model itself included."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()


# What scripts import that started their own experiment on a cluster: `Constant`, `Experiment`.
#
# Such a script is loaded as a trial like any other, as it starts its experiment only where it is
# run itself, under `if __name__ == "__main__"`.


def Constant(value: Any, name: str | None = None) -> Any:
    """Returns a hyperparameter's value: the one that was chosen under its name, else `value`."""
    try:
        chosen = pytorch_trial.get_hyperparameters()
    except TrialError:  # the script is run by itself
        return value
    return chosen.get(name, value) if name else value


@dataclasses.dataclass
class Experiment:
    """An experiment as scripts asked a cluster for it; `create` says how it is run here.

    Attributes:
      context_directory: where the script's files are.
      trial_def: the trial.
      make_data_loaders_fn: the function that makes its loaders.
      configuration: what stands in experiment.yaml.
    """

    context_directory: str | None = None
    trial_def: type | None = None
    make_data_loaders_fn: Callable[..., Any] | None = None
    configuration: dict[str, Any] | None = None

    def create(self) -> NoReturn:
        """Refuses, with the command that runs the experiment.

        Raises:
          TrialError: always, as there is no cluster to start it on.
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
    "int": int,
    "float": float,
    "bool": bool,
    "complex": complex,
    "object": object,
    "str": str,
    "long": int,
    "unicode": str,
    "float_": np.float64,
    "complex_": np.complex128,
    "Inf": np.inf,
    "Infinity": np.inf,
    "infty": np.inf,
    "NaN": np.nan,
    "NAN": np.nan,
    "product": np.prod,
    "cumproduct": np.cumprod,
    "alltrue": np.all,
    "sometrue": np.any,
}

_ADDED: list[str] = []  # to numpy


def add_numpy_names() -> None:
    """Gives numpy the names that it had in 2019 and has no more: np.int, np.float."""
    for name, value in _NUMPY_NAMES.items():
        if name not in vars(np):
            setattr(np, name, value)
            _ADDED.append(name)


def remove_numpy_names() -> None:
    """Takes back what `add_numpy_names` added."""
    while _ADDED:
        delattr(np, _ADDED.pop())


def install_shim() -> bool:
    """Makes `pedl` importable, unless a PEDL is installed; returns whether it is this one.

    Another package that happens to be called pedl is hidden, and that is said.
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
