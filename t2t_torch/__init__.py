"""Sequence modelling on PyTorch, from raw text to a served model.

    import t2t_torch as t2t

    model = t2t.load("run")                     # a run of t2t-trainer, or an artifact
    model(["A dog runs.", "Two men talk."])     # -> two strings

`api.py` has the functions that generate data, train, evaluate, export and serve.  Names are
imported on first use: `import t2t_torch` alone is fast.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_torch import registry as registry
    from t2t_torch.api import Server as Server
    from t2t_torch.api import declare as declare
    from t2t_torch.api import evaluate as evaluate
    from t2t_torch.api import export as export
    from t2t_torch.api import generate as generate
    from t2t_torch.api import hparams as hparams
    from t2t_torch.api import import_run as import_run
    from t2t_torch.api import model as model
    from t2t_torch.api import problem as problem
    from t2t_torch.api import serve as serve
    from t2t_torch.api import train as train
    from t2t_torch.decode.label_predictor import LabelPredictor as LabelPredictor
    from t2t_torch.decode.predictor import Predictor as Predictor
    from t2t_torch.errors import ArtifactError as ArtifactError
    from t2t_torch.errors import CheckpointError as CheckpointError
    from t2t_torch.errors import DataError as DataError
    from t2t_torch.errors import DecodeError as DecodeError
    from t2t_torch.errors import ExportError as ExportError
    from t2t_torch.errors import HParamsError as HParamsError
    from t2t_torch.errors import RegistryError as RegistryError
    from t2t_torch.errors import T2TError as T2TError
    from t2t_torch.errors import TrialError as TrialError
    from t2t_torch.errors import UsageError as UsageError
    from t2t_torch.hparam import HParams as HParams
    from t2t_torch.model import T2TModel as T2TModel
    from t2t_torch.pipeline.loader import Dataset as Dataset
    from t2t_torch.problem import Problem as Problem
    from t2t_torch.runtime.session import Artifact as Artifact
    from t2t_torch.train.task import Hook as Hook
    from t2t_torch.trial.pytorch_trial import PyTorchTrial as PyTorchTrial
    from t2t_torch.workflows.run import Run as Run
    from t2t_torch.workflows.run import load as load


__version__ = "0.2.0"

_FUNCTIONS = "declare evaluate export generate hparams import_run model problem serve train".split()
_ERRORS = "Artifact Checkpoint Data Decode Export HParams Registry T2T Trial Usage".split()
_ELSEWHERE = {
    **dict.fromkeys([f"{name}Error" for name in _ERRORS], "t2t_torch.errors"),
    **dict.fromkeys(["Server", *_FUNCTIONS], "t2t_torch.api"),
    "Artifact": "t2t_torch.runtime.session",
    "Dataset": "t2t_torch.pipeline.loader",
    "HParams": "t2t_torch.hparam",
    "Hook": "t2t_torch.train.task",
    "LabelPredictor": "t2t_torch.decode.label_predictor",
    "Predictor": "t2t_torch.decode.predictor",
    "Problem": "t2t_torch.problem",
    "PyTorchTrial": "t2t_torch.trial.pytorch_trial",
    "T2TModel": "t2t_torch.model",
    **dict.fromkeys(["Run", "load"], "t2t_torch.workflows.run"),
}
"""Name -> the module that defines it."""

__all__ = ["__version__", "registry", *sorted(_ELSEWHERE)]  # noqa: PLE0604 -- all are strings


class _PicklableModule(types.ModuleType):
    """A module that pickles by its name, as cloudpickle's support of modules is for no subclass.

    Ray and Spark pickle the functions of a script, with the modules that they use.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


class _Callable(_PicklableModule):
    """A module with the name of a function: both `t2t.problem(...)` and its import work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.__name__.rpartition(".")[2]
        return getattr(importlib.import_module("t2t_torch.api"), function)(*args, **kwargs)


class _Package(_PicklableModule):
    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FUNCTIONS and isinstance(value, types.ModuleType):  # set by its import
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 't2t_torch' has no attribute {name!r}")
    if name == "registry":
        return importlib.import_module("t2t_torch.registry")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
