"""Decoding of the same inputs with several checkpoints of a run, also during its training.

During a training the leader decodes, while the other processes wait for signals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from t2t_torch.decode import files
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.journal import Shard
from t2t_torch.decode.loading import load
from t2t_torch.decode.outputs import decodes_name
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import UsageError
from t2t_torch.features import Features
from t2t_torch.features.feature import select_generated
from t2t_torch.files import check_target
from t2t_torch.metrics.text_scores import check_counts, score, scores_of
from t2t_torch.mode import Split
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.train.experiment import DeletedError
from t2t_torch.train.multi_model import parts_of
from t2t_torch.train.run_page import choose_samples, show_samples
from t2t_torch.workflows.context import decoding_of_run

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.problem import Problem
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.signals import StopRequest
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.experiment import Decode
    from t2t_torch.train.problem_task import LearningTask
    from t2t_torch.workflows.train_settings import TrainSettings


def score_names(features: Features) -> tuple[str, ...]:
    """Returns the names of the scores of outputs that have references."""
    return tuple(f"decode/{name}" for name in (*scores_of(features), "exact_match"))


@dataclasses.dataclass(frozen=True)
class Decodes:
    """The output of a checkpoint.

    Attributes:
      target: output file.
      scores: scores by the names in `score_names`; empty without references.
      signatures: settings of the scores' computation.
      inputs: input texts; empty for labels.
      outputs: one per input.
      references: one per input, or None.
    """

    target: Path
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    signatures: tuple[str, ...] = ()
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    references: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class CheckpointDecoder:
    """Decodes the same inputs with one checkpoint after another.

    Attributes:
      run_dir: the run directory.
      data_dir: directory of the generated data.
      hparams: decoding settings.
      source: input file; None decodes generated data.
      target: output file; None: in the run's folder `decodes`.
      reference: file with correct outputs for the source, if available.
      split: default split of the generated data.
      once: True for a single checkpoint; otherwise the target's name contains the step.
      device: device to compute on; None: chosen by `loading.load`.
      problem: the problem to decode, for a run of several problems.
    """

    run_dir: Path
    data_dir: Path
    hparams: DecodeHParams
    source: Path | None = None
    target: Path | None = None
    reference: Path | None = None
    split: Split = Split.EVAL
    once: bool = False
    device: torch.device | None = None
    problem: str | None = None

    def check(self) -> None:
        """Checks the files before hours of training.

        Raises:
          DataError: a file cannot be read, or source and reference differ in their number of lines.
          UsageError: the target cannot be written, or is also read.
        """
        read = [path for path in (self.source, self.reference) if path is not None]
        if self.target is not None:
            check_target(self._target("", 0), *read)
        if self.source is not None and self.reference is not None:
            lines = [len(files.read_inputs(path, self.hparams.separator)) for path in read]
            check_counts(lines[0], lines[1], f"--decode_reference={self.reference}")

    @property
    def has_references(self) -> bool:
        """True if scores can be computed."""
        return self.source is None or self.reference is not None

    def __call__(
        self,
        checkpoint: Checkpoint,
        split: Split | None = None,
        *,
        poll: Callable[[], None] = lambda: None,
    ) -> Decodes:
        """Decodes with a checkpoint.

        Args:
          checkpoint: checkpoint to load; its averaged weights are used if there are any.
          split: split of the generated data; None: as set in the attributes.
          poll: called before each batch; an exception that it raises ends decoding without output.

        Raises:
          CheckpointError: the checkpoint is corrupt, or was deleted meanwhile.
          DataError: the inputs cannot be read.
          UsageError: the target cannot be written, or the model does not generate texts.
        """
        predictor = load(
            self.run_dir,
            checkpoint.path,
            problem=self.problem,
            hparams=self.hparams,
            device=self.device,
        )
        predictor.before_batch = poll
        hparams, step, references = self.hparams, checkpoint.step, None
        if self.source is None or split is not None:
            if not isinstance(predictor, Predictor):
                learnt = ", ".join(predictor.features.targets)
                raise UsageError(
                    f"'{self.run_dir}' has learnt to give {learnt}, not texts: only a file can be "
                    "decoded, with --decode_from_file."
                )
            split = split or self.split
            base = self._target(split.value, step)
            decoded, references = files.decode_dataset(
                predictor, self.data_dir, split, base, hparams
            )
            target = decodes_name(base, predictor, hparams, Shard())
            source = target.with_suffix(".inputs")
        else:
            source, target = self.source, self._target(self.source.name, step)
            decoded = files.decode_file(predictor, source, target, hparams)
            if not isinstance(predictor, Predictor):
                return Decodes(target)
            if self.reference is not None:
                references = files.read_inputs(self.reference, hparams.separator)
        best = hparams.replace(return_beams=False, write_beam_scores=False, identity_output=False)
        outputs = files.output_lines(predictor, decoded.predictions, best)
        inputs = files.read_inputs(source, hparams.separator)[: len(outputs)]
        names = [name.partition("/")[2] for name in score_names(predictor.features)]
        scores = {} if references is None else score(outputs, references, names)
        values = {f"decode/{name}": one.value for name, one in scores.items()}
        signatures = tuple(one.signature for one in scores.values())
        return Decodes(target, values, signatures, inputs, outputs, references)

    def _target(self, name: str, step: int) -> Path:
        """Returns the output file of a step; `name` is that of its inputs."""
        if self.once and self.target is not None:
            return self.target
        target = self.target or self.run_dir / "decodes" / name
        # The default name has no suffix that has to stay last.
        end = target.suffix if self.target is not None else ""
        return target.with_name(f"{target.name.removesuffix(end)}-{step}{end}")


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
        hparams = decoding_of_run(directory.path, settings.decode_hparams)
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
            except _DecodingStoppedError:
                self._world.from_leader(_DONE)
                estimator.is_stop_requested()
                return {}
            except BaseException as error:
                self._world.from_leader(_DELETED if isinstance(error, DeletedError) else _FAILED)
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
