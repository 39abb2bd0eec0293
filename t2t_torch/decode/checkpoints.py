"""Decoding of the same inputs with several checkpoints of a run: a file, or generated data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from t2t_torch.decode import files
from t2t_torch.decode.files import label_file
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import load
from t2t_torch.decode.outputs import decodes_name, one_line
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import UsageError
from t2t_torch.features import Features
from t2t_torch.files import check_target
from t2t_torch.metrics.text_scores import check_counts, score, scores_of
from t2t_torch.mode import Split
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.runtime.prediction import Prediction


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
            check_target(self._of_step(self.target, 0), *read)
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
        if not isinstance(predictor, Predictor) and (self.source is None or split is not None):
            raise UsageError(
                f"'{self.run_dir}' has learnt to give {', '.join(predictor.features.targets)}, not "
                "texts: only a file can be decoded, with --decode_from_file."
            )
        if self.source is None or split is not None:
            assert isinstance(predictor, Predictor)
            return self._decode_split(predictor, split or self.split, checkpoint.step)
        target = self._of_step(self._target(self.source.name), checkpoint.step)
        if not isinstance(predictor, Predictor):
            label_file(predictor, self.source, str(target), self.hparams)
            return Decodes(target)
        decoded = files.decode_file(predictor, self.source, target, self.hparams)
        inputs = files.read_inputs(self.source, self.hparams.separator)
        references = None
        if self.reference is not None:
            references = files.read_inputs(self.reference, self.hparams.separator)
        return self._scored(predictor, target, inputs, decoded.predictions, references)

    def _decode_split(self, predictor: Predictor, split: Split, step: int) -> Decodes:
        base = self._of_step(self._target(split.value), step)
        decoded, references = files.decode_dataset(
            predictor, self.data_dir, split, base, self.hparams
        )
        target = decodes_name(base, predictor, self.hparams)
        inputs = files.read_inputs(target.with_suffix(".inputs"), self.hparams.separator)
        return self._scored(predictor, target, inputs, decoded.predictions, references)

    def _scored(
        self,
        predictor: Predictor,
        target: Path,
        inputs: Sequence[str],
        predictions: Sequence[Prediction],
        references: Sequence[str] | None,
    ) -> Decodes:
        best = self.hparams.replace(
            return_beams=False, write_beam_scores=False, identity_output=False
        )
        outputs = [one_line(prediction, best) for prediction in predictions]
        inputs = inputs[: len(outputs)]
        if references is None:
            return Decodes(target, inputs=inputs, outputs=outputs)
        names = [name.partition("/")[2] for name in score_names(predictor.features)]
        prediction = score(outputs, references, names)
        return Decodes(
            target,
            {f"decode/{name}": one.value for name, one in prediction.items()},
            tuple(one.signature for one in prediction.values()),
            inputs,
            outputs,
            references,
        )

    def _target(self, name: str) -> Path:
        return self.target or self.run_dir / "decodes" / name

    def _of_step(self, target: Path, step: int) -> Path:
        if self.once and self.target is not None:
            return target
        # The default name has no suffix that has to stay last.
        end = target.suffix if self.target is not None else ""
        return target.with_name(f"{target.name.removesuffix(end)}-{step}{end}")
