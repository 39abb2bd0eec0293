"""optuna, which only searches need: the extra `[tune]`."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from t2t_torch.errors import UsageError, install_extra


@functools.cache
def optuna_module() -> Any:
    """Returns optuna, quiet but for warnings.

    Raises:
      UsageError: it is not installed.
    """
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise UsageError(
            f"a search needs optuna, which cannot be imported ({error}):  {install_extra('tune')}"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
