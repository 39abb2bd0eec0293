"""Keeps the page of a run (`report.html`) up to date while it trains."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.data.staging import staged
from t2t_torch.errors import T2TError
from t2t_torch.summary.run_page import run_page
from t2t_torch.summary.starts import add_start
from t2t_torch.train.hook import Hook

if TYPE_CHECKING:
    from t2t_torch.mode import Split
    from t2t_torch.train.estimator import Estimator

NAME = "report.html"
_SECONDS = 60.0  # at least, between pages that no evaluation asks for
_FAULTS = (OSError, ValueError, TypeError, LookupError, T2TError)
"""What a full disk raises, and files that another version wrote or a crash has damaged."""


class RunReport(Hook):
    """Writes `report.html` at the start, after each evaluation, each minute and at the end.

    It also notes each start in `starts.jsonl`, and puts the run on TensorBoard's page of hparams.
    A page that cannot be written, as the disk is full or a file of the run is damaged, does not end
    a run: it is warned of, once for each cause.
    """

    def __init__(self) -> None:
        self._written_at = 0.0
        self._told: set[str] = set()

    def begin(self, estimator: Estimator) -> None:
        """Notes the start."""
        if not estimator.world.leads:
            return
        try:
            add_start(estimator.directory.path, estimator)
        except _FAULTS as error:
            self._warn(estimator.directory.path, error)
        estimator.summary.hparams(estimator.task.told_hparams())
        self._write(estimator)

    def after_step(self, estimator: Estimator) -> None:
        """Writes the page if the last one is old."""
        if estimator.world.leads and time.monotonic() - self._written_at >= _SECONDS:
            self._write(estimator)

    def after_evaluation(
        self, estimator: Estimator, split: Split, metrics: Mapping[str, float]
    ) -> None:
        """Writes the page."""
        self._write(estimator)

    def end(self, estimator: Estimator) -> None:
        """Writes the page."""
        self._write(estimator)

    def _write(self, estimator: Estimator) -> None:
        """Writes the page, whole or not at all."""
        directory = estimator.directory.path
        # What only evaluates may do so in a folder where nothing was trained yet.
        if estimator.world.leads and estimator.directory.exists:
            try:
                page = run_page(directory)
                with staged(directory / NAME) as temporary:
                    temporary.write_text(page, encoding="utf-8")
            except _FAULTS as error:
                self._warn(directory, error)
        self._written_at = time.monotonic()

    def _warn(self, directory: Path, error: Exception) -> None:
        told = f"{type(error).__name__}: {error}"
        if told not in self._told:
            print(f"WARNING: {directory / NAME} cannot be written: {told}", file=sys.stderr)
        self._told.add(told)
