"""A trained model, loaded once: a list of texts in, a list of texts out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.search import NO_SCORE, beam_search
from t2t_torch.errors import CheckpointError, DataError, DecodeError, RegistryError
from t2t_torch.features import Feature, Features, Text
from t2t_torch.model import T2TModel
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.train.checkpoint import Checkpoint, CheckpointDirectory
from t2t_torch.train.run_directory import RunDirectory, TaskRecord


@dataclass(frozen=True)
class Hypothesis:
    """One answer to an input.

    Attributes:
      text: what the ids mean.
      ids: what the model made, the end symbol left out.
      score: log-probability (nats), over the length penalty if the beam is wider than 1.
    """

    text: str
    ids: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Prediction:
    """What was found for one input.

    Attributes:
      hypotheses: at least one, best first; more than one only with `return_beams`.
    """

    hypotheses: tuple[Hypothesis, ...]

    @property
    def text(self) -> str:
        """The best hypothesis's text."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best hypothesis's score."""
        return self.hypotheses[0].score


class RunInfo(NamedTuple):
    """Where a predictor's weights came from."""

    task: TaskRecord
    step: int


class Predictor:
    """A model that answers.  `load` makes one from a run directory.

    Args:
      model: one that generates, on the device where it shall compute.
      problem: what it has learnt.
      features: the problem's, with the vocabularies that the model was trained with.
      hparams: how to decode, where a call does not say.
      run: where the weights came from; None if from nowhere.

    Raises:
      DecodeError: the model's targets are no text, or its inputs more than one.
      HParamsError: the beam is too wide for the vocabulary.
    """

    def __init__(
        self,
        model: T2TModel,
        problem: Problem,
        features: Features,
        hparams: DecodeHParams | None = None,
        run: RunInfo | None = None,
    ) -> None:
        self.model = model.eval()
        self.problem = problem
        self.features = features
        self.hparams = hparams or DecodeHParams()
        self.run = run
        self._target = _text_feature(problem, features.targets)
        self._input = _text_feature(problem, features.inputs) if features.has_inputs else None
        self.hparams.check_beam(self.vocab_size)

    @property
    def vocab_size(self) -> int:
        """The number of ids that an output is made of."""
        return self._target.vocab_size

    def __call__(self, inputs: Sequence[str]) -> list[str]:
        """Returns the best output of each input, in their order.

        For a language model an input is how the text begins, and the output how it goes on.
        """
        return [prediction.text for prediction in self.predict(inputs)]

    def predict(
        self, inputs: Sequence[str], hparams: DecodeHParams | None = None
    ) -> list[Prediction]:
        """Returns what was found for each input, in their order.

        Args:
          inputs: texts.
          hparams: how to decode; by default as the predictor was made.

        Raises:
          DataError: a text has no ids in the vocabulary.
          DecodeError: `inputs` is a string, not a list of them.
          HParamsError: the beam is too wide for the vocabulary.
        """
        if isinstance(inputs, str):
            raise DecodeError("inputs should be a list of strings, not a string: predict([text])")
        hparams = hparams or self.hparams
        found = dict(self.predict_ids(self.encode(inputs, hparams), hparams))
        return [found[index] for index in range(len(inputs))]

    def encode(self, texts: Sequence[str], hparams: DecodeHParams | None = None) -> list[list[int]]:
        """Returns the ids of inputs: `EOS` at the end, none for a language model's beginnings."""
        feature = self._input or self._target
        encoded = feature.encode_batch(texts)
        if feature.add_eos and self._input is None:
            encoded = [ids[:-1] for ids in encoded]
        return [self.cut(ids, hparams) for ids in encoded]

    def cut(self, ids: list[int], hparams: DecodeHParams | None = None) -> list[int]:
        """Returns the ids of an input, at most `max_input_size` of them, the end symbol kept."""
        most = (hparams or self.hparams).max_input_size
        if most <= 0 or len(ids) <= most:
            return ids
        ends = self._input is not None and self._input.add_eos
        return [*ids[: most - 1], EOS] if ends else ids[:most]

    def predict_ids(
        self, inputs: Sequence[Sequence[int]], hparams: DecodeHParams | None = None
    ) -> Iterator[tuple[int, Prediction]]:
        """Yields (index of the input, what was found), a batch at a time, the longest inputs first.

        So too little memory shows at once, and the estimate of the time left errs on the safe side.

        Args:
          inputs: ids, as `encode` makes them.
          hparams: how to decode; by default as the predictor was made.
        """
        hparams = hparams or self.hparams
        hparams.check_beam(self.vocab_size)
        for indices in _batches([len(ids) for ids in inputs], hparams):
            predictions = self._predict_batch([inputs[index] for index in indices], hparams)
            yield from zip(indices, predictions, strict=True)

    @torch.inference_mode()
    def _predict_batch(
        self, inputs: list[Sequence[int]], hparams: DecodeHParams
    ) -> list[Prediction]:
        device = next(self.model.parameters()).device
        ids = _padded(inputs).to(device)  # [B, S]
        lengths = torch.tensor([len(row) for row in inputs], device=device)
        has_inputs = self.features.has_inputs
        limits = torch.full_like(lengths, hparams.extra_length)
        if not (hparams.force_decode_length and has_inputs):
            limits += lengths  # a prompt counts: it is part of what is made
        name = next(iter(self.features.inputs if has_inputs else self.features.targets))
        with self._autocast(hparams, device):
            found = beam_search(
                self._step,
                self.model.encode({name: ids}),
                max_lengths=limits,
                beam_size=hparams.beam_size,
                alpha=0.0 if hparams.beam_size == 1 else hparams.alpha,
                stop_early=not hparams.return_beams,
                candidates_per_beam=1 if hparams.beam_size == 1 else 2,
                prefix=None if has_inputs else ids,
            )
        places = hparams.beam_size if hparams.return_beams else 1
        return [
            self._prediction(row, scores)
            for row, scores in zip(
                found.ids[:, :places].tolist(), found.scores[:, :places].tolist(), strict=True
            )
        ]

    def _autocast(self, hparams: DecodeHParams, device: torch.device) -> torch.autocast:
        """The context of `activation_dtype`.  Weights are cast once in it, not once a step."""
        asked = hparams.activation_dtype
        dtype = self.model.hparams.activation_dtype if asked == "as_trained" else asked
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == "bfloat16")

    def _step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The model's step, without the logits that only fill `vocab_divisor` up."""
        logits, state = self.model.step(ids, state)
        return logits[:, : self._target.vocab_size], state

    def _prediction(self, rows: list[list[int]], scores: list[float]) -> Prediction:
        hypotheses: list[Hypothesis] = []
        for row, score in zip(rows, scores, strict=True):
            if hypotheses and score <= NO_SCORE:
                break  # places that nothing filled
            ids = row[: row.index(EOS)] if EOS in row else row
            ids = ids[: _content_length(ids)]
            hypotheses.append(Hypothesis(self._target.decode(ids), tuple(ids), score))
        return Prediction(tuple(hypotheses))


def load(
    run_dir: str | Path,
    checkpoint: int | str | Path | None = None,
    *,
    hparams: DecodeHParams | None = None,
    device: str | torch.device | None = None,
) -> Predictor:
    """Loads what `t2t-trainer --output_dir=run_dir` has trained.

    Problem, model, hyperparameters and vocabularies come from the run directory.

    Args:
      run_dir: the run directory.
      checkpoint: a step, or the path of a `ckpt-<step>` folder, which may be relative to `run_dir`;
        the newest whole one by default.
      hparams: how to decode.
      device: where to compute; a GPU by default, where there is one.

    Raises:
      CheckpointError: this is no run directory, its vocabulary is missing or damaged, or it has no
        such whole checkpoint.
      DecodeError: the model does not make text.
      HParamsError: the beam is too wide for the vocabulary.
    """
    run = RunDirectory(run_dir)
    _check_is_no_checkpoint(run.path)
    task = run.task()
    problem, model_class = _registered(run, task)
    features = _features(run, problem)
    model = model_class(
        run.hparams(model_class.HParams),
        features,
        input_space_id=problem.input_space_id,
        target_space_id=problem.target_space_id,
    )
    chosen = _load_weights(model, run, checkpoint)
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Predictor(model.to(device), problem, features, hparams, RunInfo(task, chosen.step))


def _check_is_no_checkpoint(path: Path) -> None:
    folder = path.resolve()
    match = re.fullmatch(r"ckpt-(\d+)", folder.name)
    if match and folder.is_dir():
        raise CheckpointError(
            f"'{path}' is a checkpoint, not a run directory. Give the run, and the checkpoint's "
            f"step:  --output_dir={folder.parent} --checkpoint_path={match[1]}"
        )


def _features(run: RunDirectory, problem: Problem) -> Features:
    """The features, with the run's own vocabularies."""
    try:
        return problem.features(run.path)
    except DataError as error:
        files = problem.vocab_files
        missing = [name for name in files if not (run.path / name).exists()]
        if not files:
            raise
        # The rest of the message tells how to make a vocabulary, which is not what helps here.
        fault = str(error).partition(". ")[0]
        what = f"is not there: {', '.join(missing)}" if missing else f"is damaged: {fault}"
        raise CheckpointError(
            f"the vocabulary in the run directory '{run.path}' {what}.\n"
            "Copy it back from the data_dir this run was trained on; one made anew has other ids:"
            + "".join(f"\n  cp DATA_DIR/{name} {run.path / name}" for name in missing or files)
        ) from error


def _load_weights(
    model: T2TModel, run: RunDirectory, wanted: int | str | Path | None
) -> Checkpoint:
    """Loads the checkpoint that is asked for; if none is, the newest that a trainer leaves there.

    Raises:
      CheckpointError: there is none, or it is broken, or a trainer deletes it meanwhile.
    """
    if wanted is None:
        newest = CheckpointDirectory(run.path).read_newest(lambda one: one.load_model(model))
        if newest is None:
            raise CheckpointError(
                f"'{run.path}' has no checkpoint yet. t2t-trainer writes the first after "
                "--local_eval_frequency steps."
            )
        return newest
    chosen = _checkpoint(run, wanted)
    directory = CheckpointDirectory(chosen.path.parent)
    if directory.is_gone_while(lambda one: one.load_model(model), chosen):
        raise CheckpointError(
            f"'{chosen.path}' was deleted while it was read. Decode another of "
            f"{[one.step for one in directory.list()]} (--checkpoint_path)."
        )
    return chosen


def _checkpoint(run: RunDirectory, wanted: int | str | Path) -> Checkpoint:
    """Finds the checkpoint of a step, or of a folder's path, and verifies it."""
    path = Path(str(wanted))
    if str(wanted).isdecimal():
        return CheckpointDirectory(run.path).at(int(path.name))
    if not path.exists() and (run.path / path).exists():
        path = run.path / path
    path = path.resolve()
    match = re.fullmatch(r"ckpt-(\d+)", path.name)
    if match is None:
        raise CheckpointError(
            f"'{path}' is no checkpoint: expected a step or a folder ckpt-<step>."
        )
    return CheckpointDirectory(path.parent).at(int(match[1]))


def _registered(run: RunDirectory, task: TaskRecord) -> tuple[Problem, type[T2TModel]]:
    """Finds problem and model, in the user's folders too if the run had some."""
    gone = []
    for folder in task.usr_dirs:
        if Path(folder).is_dir():
            registry.import_usr_dir(folder)
        else:
            gone.append(folder)
    try:
        return registry.problem(task.problem), registry.model(task.model)
    except RegistryError as error:
        if not gone:
            raise
        raise CheckpointError(
            f"'{run.path}' was trained with --t2t_usr_dir={gone[0]}, which is not there any more: "
            f"{error} Say where it is now with --t2t_usr_dir (in Python registry.import_usr_dir)."
        ) from error


def _text_feature(problem: Problem, features: Mapping[str, Feature]) -> Text:
    """The one text among inputs or targets."""
    found = list(features.values())
    if len(found) != 1 or not isinstance(found[0], Text):
        kinds = ", ".join(f"{name} ({type(kind).__name__})" for name, kind in features.items())
        raise DecodeError(
            f"problem {problem.full_name!r} has {kinds}: expected one Text to read and one to "
            "write. Call the model itself (Predictor.model) for its logits."
        )
    return found[0]


def _batches(lengths: Sequence[int], hparams: DecodeHParams) -> Iterator[list[int]]:
    """Yields indices of inputs of like lengths, the longest first."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        widest = max(1, lengths[order[start]])
        size = hparams.batch_size or max(1, hparams.batch_tokens // widest)
        yield order[start : start + size]
        start += size


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """[B, S] int64, PAD at the ends."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


def _content_length(ids: list[int]) -> int:
    """How many ids there are before the padding at the end."""
    length = len(ids)
    while length and ids[length - 1] == PAD:
        length -= 1
    return length
