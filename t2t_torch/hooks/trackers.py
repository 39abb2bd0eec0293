"""Services that log runs: MLflow, `--hooks=mlflow`, and Weights & Biases, `--hooks=wandb`."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import UsageError, require
from t2t_torch.registry import register_hook
from t2t_torch.reporter import message
from t2t_torch.train.stopping import short_name
from t2t_torch.train.task import Hook, reported_hparams

if TYPE_CHECKING:
    from t2t_torch.train.estimator import Estimator


_LONGEST = 500  # characters of a parameter, MLflow's limit


class _Tracker(Hook):
    """Base class: a service that logs a run, whose id is resumed with the run."""

    _id = ""

    def state(self) -> dict[str, Any]:
        """Returns the id of the run."""
        return {"id": self._id}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes the id of the run to resume."""
        self._id = str(state.get("id", ""))


@register_hook("mlflow")
class MlflowHook(_Tracker):
    """Logs hyperparameters and all reports to MLflow; resumes its run with the run.

    If the server fails during the training, a warning is printed and the training continues without
    MLflow.

    Read from the environment: MLFLOW_TRACKING_URI (default: `mlruns` in the working directory) and
    MLFLOW_EXPERIMENT_NAME (default: the problem).

    Raises:
      UsageError: mlflow is not installed, or the run cannot be started.
    """

    def __init__(self) -> None:
        self._mlflow = require("mlflow", "mlflow", "--hooks=mlflow needs mlflow")
        self._client: Any = None

    def begin(self, estimator: Estimator) -> None:
        """Starts or resumes the run in the leading process."""
        if not estimator.world.leads or self._client is not None:
            return
        client = self._mlflow.MlflowClient()
        try:
            if not self._id:
                self._id = _created_run(client, estimator)
        except self._mlflow.MlflowException as error:
            raise UsageError(
                f"--hooks=mlflow cannot start its run: {error}. Check MLFLOW_TRACKING_URI="
                f"{os.environ.get('MLFLOW_TRACKING_URI', '')}"
            ) from None
        self._client = client

    def after_report(self, estimator: Estimator, split: str, values: Mapping[str, float]) -> None:
        """Logs the finite numbers under the split, at the step."""
        if self._client is None:
            return
        entities, step = self._mlflow.entities, estimator.state.step
        now = int(time.time() * 1000)
        metrics = [
            entities.Metric(f"{split}/{short_name(name)}", float(value), now, step)
            for name, value in values.items()
            if math.isfinite(value)
        ]
        try:
            self._client.log_batch(self._id, metrics=metrics)
        except self._mlflow.MlflowException as error:
            self._client = None
            message(f"warning: --hooks=mlflow cannot log step {step}, and ends: {error}")

    def end(self, estimator: Estimator) -> None:
        """Marks the run as finished, or as killed if it was interrupted."""
        if self._client is not None:
            status = "FINISHED" if estimator.has_ended else "KILLED"
            with contextlib.suppress(self._mlflow.MlflowException):
                self._client.set_terminated(self._id, status)


def _created_run(client: Any, estimator: Estimator) -> str:
    """Creates the run, and its experiment if there is none; returns the run's id."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", estimator.task.name)
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    created = client.create_run(experiment, run_name=estimator.directory.path.name)
    for key, value in reported_hparams(estimator.task).items():
        client.log_param(created.info.run_id, key, str(value)[:_LONGEST])
    return str(created.info.run_id)


@register_hook("wandb")
class WandbHook(_Tracker):
    """Logs hyperparameters and all reports to Weights & Biases; resumes its run with the run.

    Read from the environment: WANDB_PROJECT (default: the problem), WANDB_ENTITY, and WANDB_MODE;
    with WANDB_MODE=offline files are written into the run directory, for `wandb sync`.

    Raises:
      UsageError: wandb is not installed, or the run cannot be started.
    """

    def __init__(self) -> None:
        self._wandb = require("wandb", "wandb", "--hooks=wandb needs wandb")
        self._run: Any = None

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
