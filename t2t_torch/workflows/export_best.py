"""Exports of the best checkpoints of a run while it trains (`--export_best`).

    run/export/
      <step>/      an artifact of t2t-exporter; the newest three are kept
      latest       relative link to the newest; in an object store a file with its name
      export.log   output of the exporting processes

A process of t2t-exporter with a low priority writes an artifact, so the training computes what
it computes without.  An artifact gets its name when it is verified, and `latest` follows.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry, remote
from t2t_torch.atomic_files import STAGED_SUFFIX, write_text
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.loading import Loaded
from t2t_torch.decode.predictor import RunInfo
from t2t_torch.errors import CheckpointError, ExportError, T2TError
from t2t_torch.export.exporter import target_of
from t2t_torch.export.folder import remove_leftovers
from t2t_torch.export.settings import ExportSettings
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.run.checkpoint_directory import time_of
from t2t_torch.runtime.signature import EXPORTS, FILE, LATEST
from t2t_torch.signals import StopRequest
from t2t_torch.train.multi_model import parts_of
from t2t_torch.train.random_state import isolated_generators
from t2t_torch.train.task import Hook
from t2t_torch.tune.tuner import Training, replace_link

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.run.directory import TaskRecord
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.workflows.train_settings import TrainSettings

LOG = "export.log"

_KEPT = 3  # artifacts
_NICENESS = 10  # a tenth of what the training gets of a core, and all that it leaves
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
_POLL_SECONDS = 0.2


def check_exports(record: TaskRecord, hparams: HParams, data_dir: Path) -> None:
    """Checks, before anything is written, that checkpoints of a run can be exported.

    Args:
      record: names of the problem and the model.
      hparams: hyperparameters of the model.
      data_dir: directory with the vocabularies.

    Raises:
      ExportError: they cannot; contains the reason.
    """
    problem, model = registry.problem(record.problem), registry.model(record.model)
    without = "Leave --export_best out (of a run that began with it: --export_best=false)."
    if len(parts_of(problem)) > 1:
        raise ExportError(
            "--export_best exports runs of one problem, and this one learns several. Export each "
            f"with  t2t-exporter --problem=NAME. {without}"
        )
    for kind, name in (("problem", problem.name), ("model", model.name)):
        if registry.declared_in(name, kind) is None:
            raise ExportError(
                f"--export_best: another process exports, and the {kind} {name!r} is known to this "
                f"one alone. Declare it in a file of --t2t_usr_dir. {without}"
            )
    features = problem.features(data_dir)
    with isolated_generators():
        loaded = Loaded(model(hparams, features), problem, features, RunInfo(record, 0))
    try:
        target_of(loaded, parse_decode_hparams(record.decode_hparams, to_write=False))
    except ExportError as error:
        raise ExportError(f"--export_best: {str(error).removesuffix('.')}. {without}") from None


class BestExports(Hook):
    """Exports each checkpoint that is the best when it is evaluated, in the main process.

    One export runs at a time; of those that come meanwhile the newest waits.  The end of the
    training waits for the last one, a request to stop ends it; resuming exports what is missing.  A
    failed export is reported, and the training continues.  Only the main process has this hook.

    Args:
      settings: settings of the training.
      stop: request to stop.
    """

    in_banner = False

    def __init__(self, settings: TrainSettings, stop: StopRequest) -> None:
        self._run = Path(str(settings.output_dir))
        self._folder = self._run / EXPORTS
        self._stop = stop
        names = ("data_dir", "t2t_usr_dir", "trust_code")
        self._given = {name: getattr(settings, name) for name in names if getattr(settings, name)}
        self._waiting: int | None = None  # a step
        self._running: tuple[int, Training] | None = None
        self._failed: int | None = None  # the last step whose export has failed

    def begin(self, estimator: Estimator) -> None:
        """Exports the best checkpoint, unless that was done before the run was resumed."""
        for leftover in self._folder.glob(f".*{STAGED_SUFFIX}"):
            remove_leftovers(self._folder / leftover.name.split(".")[1])
        self.after_rating(estimator)

    def after_rating(self, estimator: Estimator) -> None:
        """Exports the best checkpoint, unless that was done."""
        ranked: list[int] = []
        with contextlib.suppress(CheckpointError):  # a damaged file, which the next rating renews
            ranked = estimator.checkpoints.ranked()
        there = {estimator.state.step, *(one.step for one in estimator.checkpoints.list())}
        best = next((step for step in ranked if step in there), None)
        running = None if self._running is None else self._running[0]
        if best is not None and self._is_exported(best):
            self._publish(estimator, best)
        elif best not in (None, running, self._failed):
            self._waiting = best
        self._advance(estimator)

    def after_step(self, estimator: Estimator) -> None:
        """Reports an export that has ended, and starts the next one."""
        self._advance(estimator)

    def end(self, estimator: Estimator) -> None:
        """Waits for the last export; ends it after a request to stop."""
        if estimator.signal:
            self._waiting = None
        elif self._waiting is not None and self._checkpoint(self._waiting).is_dir():
            self._end_running(estimator)  # it is out of date
        if self._advance(estimator) and self._running is not None and not estimator.signal:
            estimator.say(f"waiting for the export of step {self._running[0]}")
        while self._advance(estimator) and not (estimator.signal or self._stop):
            time.sleep(_POLL_SECONDS)
        if (step := self._end_running(estimator)) is not None:
            estimator.say(f"the export of step {step} was stopped; the next start repeats it")

    def _end_running(self, estimator: Estimator) -> int | None:
        """Ends the running export and removes its files; returns its step, None if none runs."""
        if self._running is None:
            return None
        step, training = self._running
        training.kill()
        self._running = None
        estimator.checkpoints.read_steps.clear()
        remove_leftovers(self._folder / str(step))
        return step

    def _checkpoint(self, step: int) -> Path:
        return self._run / f"ckpt-{step}"

    def _is_exported(self, step: int) -> bool:
        """Returns whether an artifact of this checkpoint is there, not of an earlier one."""
        try:
            written = (self._folder / str(step) / FILE).stat().st_mtime_ns
            return written >= time_of(Checkpoint(step, self._checkpoint(step)))
        except OSError:
            return False

    def _advance(self, estimator: Estimator) -> bool:
        """Reports an export that has ended, and starts the next one; returns whether one runs."""
        if self._running is not None:
            step, training = self._running
            outcome = training.outcome()
            if outcome is None:
                return True
            self._running = None
            estimator.checkpoints.read_steps.clear()
            if self._is_exported(step):
                self._publish(estimator, step)
                estimator.say(f"step {step}: exported and verified: {self._folder / str(step)}")
            else:
                self._failed, log = step, self._folder / LOG
                estimator.say(f"warning: step {step} IS NOT EXPORTED: {outcome.why}; see {log}")
        best, self._waiting = self._waiting, None
        if best is None:
            return False
        if not self._checkpoint(best).is_dir():  # it is being written, or could not be
            self._waiting = best if estimator.saving.step == best else None
            return False
        estimator.checkpoints.read_steps.add(best)
        places = {"output_dir": str(self._run), "export_dir": str(self._folder / str(best))}
        settings = ExportSettings(**places, checkpoint=str(best), overwrite=True, **self._given)
        command = [sys.executable, "-m", "t2t_torch.bin", "exporter", *settings.arguments()]
        training = Training(command, self._folder, _ENVIRONMENT, LOG, _NICENESS)
        try:
            training.start()
        except OSError as error:
            self._failed = best
            estimator.say(f"warning: step {best} IS NOT EXPORTED: {error}")
            return False
        self._running = best, training
        return True

    def _publish(self, estimator: Estimator, step: int) -> None:
        """Lets `latest` name an artifact, and removes all but the newest ones."""
        link = self._folder / LATEST
        try:
            if remote.url_of(link):  # a store has no links
                write_text(link, f"{step}\n")
            else:
                replace_link(link, self._folder / str(step))
            folders = [one for one in self._folder.iterdir() if one.name.isdecimal()]
            older = sorted(int(one.name) for one in folders if (one / FILE).is_file())[:-_KEPT]
            for old in older:
                if old != step:
                    artifact = self._folder / str(old)
                    remote.remove(artifact)
                    removed = artifact.with_name(f".{old}.{os.getpid()}{STAGED_SUFFIX}")
                    artifact.rename(removed)  # it is there as a whole or not at all
                    shutil.rmtree(removed, ignore_errors=True)
        except (OSError, T2TError) as error:
            estimator.say(f"warning: {link}, or an old artifact beside it, is as before: {error}")
