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
    from t2t_torch import registry
    from t2t_torch.api import (
        Server,
        declare,
        evaluate,
        export,
        generate,
        hparams,
        import_run,
        model,
        problem,
        serve,
        train,
    )
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.errors import (
        ArtifactError,
        CheckpointError,
        DataError,
        DecodeError,
        ExportError,
        HParamsError,
        RegistryError,
        T2TError,
        TrialError,
        UsageError,
    )
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.pipeline.loader import Dataset
    from t2t_torch.problem import Problem
    from t2t_torch.runtime.session import Artifact
    from t2t_torch.train.task import Hook
    from t2t_torch.trial.pytorch_trial import PyTorchTrial
    from t2t_torch.workflows.run import Run, load


__version__ = "0.2.0"

__all__ = [
    "Artifact",
    "ArtifactError",
    "CheckpointError",
    "DataError",
    "Dataset",
    "DecodeError",
    "ExportError",
    "HParams",
    "HParamsError",
    "Hook",
    "LabelPredictor",
    "Predictor",
    "Problem",
    "PyTorchTrial",
    "RegistryError",
    "Run",
    "Server",
    "T2TError",
    "T2TModel",
    "TrialError",
    "UsageError",
    "__version__",
    "declare",
    "evaluate",
    "export",
    "generate",
    "hparams",
    "import_run",
    "load",
    "model",
    "problem",
    "registry",
    "serve",
    "train",
]

_FUNCTIONS = "declare evaluate export generate hparams import_run model problem serve train".split()
_ELSEWHERE = {
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


class _Callable(types.ModuleType):
    """A module with the name of a function: both `t2t.problem(...)` and its import work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.__name__.rpartition(".")[2]
        return getattr(importlib.import_module("t2t_torch.api"), function)(*args, **kwargs)


class _Package(types.ModuleType):
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
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "t2t_torch.errors")), name)


def __dir__() -> list[str]:
    return __all__
