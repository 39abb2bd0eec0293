"""Decoding the same with one checkpoint of a run after another: a file, or generated data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from t2t_torch.checkpoint.checkpoint import Checkpoint
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
from t2t_torch.runtime.prediction import Prediction


def score_names(features: Features) -> tuple[str, ...]:
    """Returns the names of what is told of outputs for which there are references."""
    return tuple(f"decode/{name}" for name in (*scores_of(features), "exact_match"))


@dataclasses.dataclass(frozen=True)
class Decodes:
    """What a checkpoint has made.

    Attributes:
      target: the file of outputs.
      scores: by the names `score_names` gives; none without references.
      signatures: what the scores were counted with.
      inputs: texts; none of labels.
      outputs: as many.
      references: as many, or None.
    """

    target: Path
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    signatures: tuple[str, ...] = ()
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    references: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class CheckpointDecoder:
    """Decodes the same with one checkpoint after another.

    Attributes:
      run_dir: the run directory.
      data_dir: of the generated data.
      hparams: how to decode.
      source: a file of inputs; None decodes generated data.
      target: where to write to; None: the run's folder `decodes`.
      reference: right outputs for the source, if there are some.
      split: of the generated data, where a call does not say.
      once: whether a single checkpoint is decoded: else the step is put into the target's name.
      device: where to compute; None: as `loading.load` chooses.
      problem: of a run of several problems, the one that is decoded.
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
        """Checks what would else be found after hours of training.

        Raises:
          DataError: a file cannot be read, or source and reference have not as many lines.
          UsageError: the target cannot be written, or is a file that is read.
        """
        read = [path for path in (self.source, self.reference) if path is not None]
        if self.target is not None:
            check_target(self._of_step(self.target, 0), *read)
        if self.source is not None and self.reference is not None:
            lines = [len(files.read_inputs(path, self.hparams.separator)) for path in read]
            check_counts(lines[0], lines[1], f"--decode_reference={self.reference}")

    @property
    def has_references(self) -> bool:
        """Whether there will be scores."""
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
          checkpoint: whose weights, averaged ones where there are any.
          split: of the generated data; None decodes what the attributes name.
          poll: called before each batch; what it raises ends the decoding, and no file is written.

        Raises:
          CheckpointError: it is broken, or was deleted meanwhile.
          DataError: the inputs cannot be read.
          UsageError: the target cannot be written, or the model gives no texts.
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
        outputs = [one_line(found, best) for found in predictions]
        inputs = inputs[: len(outputs)]
        if references is None:
            return Decodes(target, inputs=inputs, outputs=outputs)
        names = [name.partition("/")[2] for name in score_names(predictor.features)]
        found = score(outputs, references, names)
        return Decodes(
            target,
            {f"decode/{name}": one.value for name, one in found.items()},
            tuple(one.signature for one in found.values()),
            inputs,
            outputs,
            references,
        )

    def _target(self, name: str) -> Path:
        return self.target or self.run_dir / "decodes" / name

    def _of_step(self, target: Path, step: int) -> Path:
        if self.once and self.target is not None:
            return target
        # The default's name has no suffix of its own that would have to stay the last.
        end = target.suffix if self.target is not None else ""
        return target.with_name(f"{target.name.removesuffix(end)}-{step}{end}")
