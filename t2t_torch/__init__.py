"""Sequence modelling on PyTorch, from raw text to a served model.

    model = t2t_torch.load("run")               # what t2t-trainer --output_dir=run has trained,
                                                # or t2t-exporter --export_dir=run has written
    model(["A dog runs.", "Two men talk."])     # -> two strings

Names are imported on first use: `import t2t_torch` alone is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_torch import registry
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
    from t2t_torch.loading import load
    from t2t_torch.runtime.session import Artifact
    from t2t_torch.trial.pytorch_trial import PyTorchTrial


__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "ArtifactError",
    "CheckpointError",
    "DataError",
    "DecodeError",
    "ExportError",
    "HParamsError",
    "LabelPredictor",
    "Predictor",
    "PyTorchTrial",
    "RegistryError",
    "T2TError",
    "TrialError",
    "UsageError",
    "__version__",
    "load",
    "registry",
]

_ELSEWHERE = {
    "Artifact": "t2t_torch.runtime.session",
    "LabelPredictor": "t2t_torch.decode.label_predictor",
    "Predictor": "t2t_torch.decode.predictor",
    "PyTorchTrial": "t2t_torch.trial.pytorch_trial",
    "load": "t2t_torch.loading",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 't2t_torch' has no attribute {name!r}")
    if name == "registry":
        return importlib.import_module("t2t_torch.registry")
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "t2t_torch.errors")), name)


def __dir__() -> list[str]:
    return __all__
