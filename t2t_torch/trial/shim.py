"""`import pedl` and old names of numpy, for trials that were written in 2019."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from absl import logging

from t2t_torch.trial import context, native
from t2t_torch.trial.data_loader import DataLoader, TorchData
from t2t_torch.trial.elementwise_mean import elementwise_mean
from t2t_torch.trial.error_rate import error_rate
from t2t_torch.trial.invalid_hp import InvalidHP
from t2t_torch.trial.lr_scheduler import LRScheduler
from t2t_torch.trial.pytorch_trial import PyTorchTrial
from t2t_torch.trial.reducer import Reducer
from t2t_torch.trial.reset_parameters import reset_parameters

_MODULES: dict[str, dict[str, Any]] = {
    "pedl": {
        "Constant": native.Constant,
        "Experiment": native.Experiment,
        "InvalidHP": InvalidHP,
        "Reducer": Reducer,
        "get_data_config": context.get_data_config,
        "get_download_data_dir": context.get_download_data_dir,
        "get_experiment_config": context.get_experiment_config,
        "get_experiment_id": context.get_experiment_id,
        "get_hyperparameter": context.get_hyperparameter,
        "get_hyperparameters": context.get_hyperparameters,
        "get_trial_id": context.get_trial_id,
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
