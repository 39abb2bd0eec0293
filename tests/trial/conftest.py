"""What tests of trials need: the trials that users wrote, and a process without one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.trial import context, source
from t2t_torch.trial.context import TrialContext

TRIALS = Path(__file__).parent / "trials"


@pytest.fixture
def trials() -> Path:
    """The directory of trials as users wrote them."""
    return TRIALS


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TrialContext]]:
    """Enters a context of given hyperparameters and data; after the test no trial is left."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(context._Current, "context", None)

    def entered(
        hparams: dict[str, Any] | None = None, data: dict[str, Any] | None = None
    ) -> TrialContext:
        config = {"data": data or {}, "hyperparameters": hparams or {}}
        made = TrialContext(experiment_config=config, hparams=hparams or {})
        context.enter(made)
        return made

    yield entered
    source._Loaded.forget()
