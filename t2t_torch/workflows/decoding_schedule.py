"""Decoding during a training: in the leader, while the other processes wait for signals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.decode.checkpoints import CheckpointDecoder, Decodes, score_names
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.errors import UsageError
from t2t_torch.features.feature import select_generated
from t2t_torch.train.experiment import DeletedError
from t2t_torch.train.multi_model import parts_of
from t2t_torch.train.run_page import choose_samples, show_samples

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.mode import Split
    from t2t_torch.problem import Problem
    from t2t_torch.run.checkpoint import Checkpoint
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.signals import StopRequest
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.experiment import Decode
    from t2t_torch.train.problem_task import LearningTask
    from t2t_torch.workflows.train_settings import TrainSettings


_DONE, _GOES_ON, _FAILED, _DELETED = range(4)


class DecodingSchedule:
    """Decodes checkpoints, and reports the scores.

    Attributes:
      scores: names of the scores, available after `check`.

    Args:
      settings: settings of the training.
      directory: the run directory.
      problem: problem of the run.
      world: the processes.
      stop: stop request, checked before each batch.

    Raises:
      DataError: an input file cannot be read.
      HParamsError: `--decode_hparams` is invalid.
      UsageError: `--decode_to_file` cannot be written; or the run has several problems, and
        `--decode_problem` is not one of them.
    """

    def __init__(
        self,
        settings: TrainSettings,
        directory: RunDirectory,
        problem: Problem,
        world: World,
        stop: StopRequest,
    ) -> None:
        self._schedule = settings.schedule
        self._world = world
        self._problem = _decoded_problem(settings, problem)
        self._stop = stop
        source, target, reference = (
            Path(value) if (value := getattr(settings, name)) else None
            for name in ("decode_from_file", "decode_to_file", "decode_reference")
        )
        defaults = directory.decode_hparams
        hparams = parse_decode_hparams(settings.decode_hparams, defaults=defaults)
        hparams.check_of_checkpoints("t2t-trainer")
        of_data = settings.schedule.endswith("_data")
        if source is not None and not of_data:
            hparams.check_of_files("--decode_from_file")
        self._decoder = CheckpointDecoder(
            directory.path,
            Path(str(settings.data_dir)),
            hparams,
            source=None if of_data else source,
            target=target,
            reference=reference,
            split=settings.eval_split,
            once=settings.schedule == "decode",
            device=world.device,
            problem=self._problem,
        )
        self.scores: tuple[str, ...] = ()
        if world.leads:
            self._decoder.check()

    def check(self, trained: LearningTask) -> None:
        """Checks before training that there are inputs to decode; sets `scores`.

        Raises:
          HParamsError: the model predicts labels, and decoding hparams for text are set.
          UsageError: the model predicts labels, and there is no file of inputs; or the data has no
            inputs.
        """
        task = trained.tasks[self._problem or trained.name]
        if self._decoder.has_references:
            self.scores = score_names(task.features)
        targets = task.features.targets
        gives_texts = len(select_generated(targets)) == len(targets)
        if self._decoder.source is not None:
            if not gives_texts:
                self._decoder.hparams.check_of_labels()
            return
        if not gives_texts:
            raise UsageError(
                f"problem '{task.name}' has {', '.join(targets)} as targets, not texts: its "
                "data cannot be decoded. Give a file of inputs, --decode_from_file, or another "
                f"schedule than {self._schedule}."
            )
        if not task.features.has_inputs:
            raise UsageError(
                f"problem '{task.name}' is a language model: its data has no inputs to decode. "
                "Give beginnings, one per line, with --decode_from_file."
            )

    def of(self, estimator: Estimator) -> Decode:
        """Returns the decoding function of an `Experiment`."""

        def decode(checkpoint: Checkpoint, split: Split | None) -> Mapping[str, float]:
            if not self._world.leads:
                self._listen(checkpoint)
                estimator.is_stop_requested()
                return {}
            try:
                made = self._decode(estimator, checkpoint, split)
            except DeletedError:
                self._world.from_leader(_DELETED)
                raise
            except _DecodingStoppedError:
                self._world.from_leader(_DONE)
                estimator.is_stop_requested()
                return {}
            except BaseException:
                self._world.from_leader(_FAILED)
                raise
            self._world.from_leader(_DONE)
            self._report(estimator, checkpoint.step, made)
            estimator.is_stop_requested()
            return made.scores

        return decode

    def _decode(self, estimator: Estimator, checkpoint: Checkpoint, split: Split | None) -> Decodes:
        made: list[Decodes] = []
        if estimator.checkpoints.deleted_during(
            lambda one: made.append(self._decoder(one, split, poll=self._poll)), checkpoint
        ):
            raise _deleted(checkpoint)
        return made[0]

    def _poll(self) -> None:
        """Checks for a signal in all processes."""
        self._world.from_leader(_GOES_ON)
        if self._world.maximum(self._stop.signal):
            raise _DecodingStoppedError

    def _listen(self, checkpoint: Checkpoint) -> None:
        """Waits for the leader while it decodes.

        Raises:
          DeletedError: as in the leader.
        """
        while True:
            word = self._world.from_leader(_DONE)
            if word == _FAILED:
                raise SystemExit(1)  # the leader says why
            if word == _DELETED:
                raise _deleted(checkpoint)
            if word == _DONE:
                return
            self._world.maximum(self._stop.signal)

    def _report(self, estimator: Estimator, step: int, made: Decodes) -> None:
        estimator.say(f"step {step}  decoded to {made.target}")
        for name, signature in zip(made.scores, made.signatures, strict=True):
            estimator.say(f"  {name.partition('/')[2]} {made.scores[name]:.4f}  {signature}")
        if made.scores:
            estimator.summary.write("decode", step, made.scores)
        if made.outputs:
            samples = choose_samples(made.inputs, made.outputs, made.references)
            show_samples(estimator.summary, self._decoder.run_dir, samples, step)


def _decoded_problem(settings: TrainSettings, problem: Problem) -> str | None:
    """Returns the problem to decode of a run of several; None for a run of one problem.

    Raises:
      UsageError: `--decode_problem` is missing, or not a problem of the run.
    """
    requested, names = settings.decode_problem, [one.full_name for one in parts_of(problem)]
    if not requested and len(names) > 1:
        raise UsageError(
            f"--schedule={settings.schedule} decodes one problem, and '{problem.full_name}' is "
            f"of several. Say which: --decode_problem= one of {', '.join(names)}."
        )
    if requested and requested not in names:
        raise UsageError(
            f"--decode_problem={requested}: the run learns {', '.join(names)}. Name one of these."
        )
    return requested


def _deleted(checkpoint: Checkpoint) -> DeletedError:
    return DeletedError(f"'{checkpoint.path}' was deleted while it was decoded.")


class _DecodingStoppedError(Exception):
    """A signal arrived during decoding."""
