"""Weights & Biases: `--hooks=wandb`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import UsageError, require
from t2t_torch.registry import register_hook
from t2t_torch.train.stopping import short_name
from t2t_torch.train.task import Hook, reported_hparams

if TYPE_CHECKING:
    from t2t_torch.train.estimator import Estimator


@register_hook("wandb")
class WandbHook(Hook):
    """Logs hyperparameters and all reports to Weights & Biases; resumes its run with the run.

    Read from the environment: WANDB_PROJECT (default: the problem), WANDB_ENTITY, and WANDB_MODE;
    with WANDB_MODE=offline files are written into the run directory, for `wandb sync`.

    Raises:
      UsageError: wandb is not installed, or the run cannot be started.
    """

    def __init__(self) -> None:
        self._wandb = require("wandb", "wandb", "--hooks=wandb needs wandb")
        self._run: Any = None
        self._id = ""

    def begin(self, estimator: Estimator) -> None:
        """Starts or resumes the run in the leading process."""
        if not estimator.world.leads or self._run is not None:
            return
        path = estimator.directory.path
        try:
            self._run = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT", estimator.task.name),
                name=path.name,
                dir=str(path),
                id=self._id or None,
                resume="allow",
                config=dict(reported_hparams(estimator.task)),
                settings=self._wandb.Settings(silent=True),
            )
        except self._wandb.Error as error:
            raise UsageError(
                f"--hooks=wandb cannot start its run: {error}. Run `wandb login`, or set "
                "WANDB_MODE=offline."
            ) from None
        self._id = str(self._run.id)

    def after_report(self, estimator: Estimator, split: str, values: Mapping[str, float]) -> None:
        """Logs the numbers under the split, at the step."""
        if self._run is not None:
            named = {f"{split}/{short_name(name)}": value for name, value in values.items()}
            self._run.log({**named, "step": estimator.state.step}, step=estimator.state.step)

    def end(self, estimator: Estimator) -> None:
        """Ends the run."""
        if self._run is not None:
            self._run.finish()
            self._run = None

    def state(self) -> dict[str, Any]:
        """Returns the id of the run."""
        return {"id": self._id}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes the id of the run to resume."""
        self._id = str(state.get("id", ""))
