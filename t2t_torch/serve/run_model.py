"""Served models from run directories, to try a checkpoint; computed by torch."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import load
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.tree_predictor import TreePredictor
from t2t_torch.distributed.precision import warn_if_slow
from t2t_torch.features import InputSpec
from t2t_torch.model import T2TModel
from t2t_torch.reporter import SilentReporter, reporting
from t2t_torch.runtime.feeds import check_size
from t2t_torch.runtime.prediction import InputError, Prediction
from t2t_torch.runtime.session import CancellationToken
from t2t_torch.serve.limits import MAX_ATTENTION_WEIGHTS
from t2t_torch.serve.model import Sample, ServedModel
from t2t_torch.serve.server import log_event


def run_model(
    name: str,
    path: Path,
    *,
    checkpoint: str | None,
    hparams: DecodeHParams,
    threads: int,
    problem: str | None = None,
) -> ServedModel:
    """Loads the model of a run directory.

    Args:
      name: name in requests.
      path: the run directory.
      checkpoint: as in `load`.
      hparams: how texts are decoded.
      threads: number of torch threads; 0 uses all cores.
      problem: the problem, of a run of several.

    Raises:
      CheckpointError, HParamsError, UsageError: see `decode.loading.load`; or `hparams` has options
        that the server does not support.
    """
    if threads:
        torch.set_num_threads(threads)
    hparams.check_of_server()
    predictor = load(path, checkpoint, problem=problem, hparams=hparams)
    device = next(predictor.model.parameters()).device
    with reporting(_LogReporter(name)):
        warn_if_slow(predictor.model.hparams, device, hparams.activation_dtype)
    if isinstance(predictor, LabelPredictor):
        if problem is None:  # of several problems, others may read them
            hparams.check_read((), "a model that gives labels, numbers or spans, in a server,")
        return _RunModel(name, predictor, [predictor.specs[one] for one in predictor.fields])
    return _TextRunModel(name, predictor)


class _LogReporter(SilentReporter):
    """Reports warnings as events of the server's log.

    Args:
      name: name of the model.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def message(self, line: str) -> None:
        """Logs a warning."""
        log_event(line.removeprefix("warning: "), 30, model=self._name)


class _RunModel(ServedModel):
    """The model of a run, computed by torch.

    Args:
      name: name in requests.
      predictor: the model.
      fields: fields of an input.
    """

    def __init__(
        self, name: str, predictor: LabelPredictor | Predictor, fields: Sequence[InputSpec]
    ) -> None:
        run, features = predictor.run, predictor.features
        assert run is not None
        targets = [one.output_spec(key, features) for key, one in features.targets.items()]
        problem, model = predictor.problem, predictor.model
        architecture = model.name if isinstance(model, T2TModel) else run.task.model
        metadata = name, str(run.step), problem.full_name, architecture, "pytorch"
        super().__init__(*metadata, fields, targets)
        self.column_names, self.column_forms = problem.column_names, problem.column_forms
        self._predictor: Any = predictor

    def predict(self, samples: Sequence[Sample], token: CancellationToken) -> Sequence[Prediction]:
        """See `ServedModel.predict`."""
        self._predictor.before_batch = token.check
        predictions: Sequence[Prediction] = self._predictor.predict(samples)
        return predictions


class _TextRunModel(_RunModel):
    """The model of a run that generates texts or trees."""

    def __init__(self, name: str, predictor: Predictor) -> None:
        if isinstance(predictor, TreePredictor):
            fields = [InputSpec(field, "words") for field in predictor.fields]
        else:
            fields = [predictor.spec]
        super().__init__(name, predictor, fields)
        self._of_mappings = isinstance(predictor, TreePredictor) or fields[0].kind == "audio"
        self.why_no_attention = predictor.why_unaligned
        self._aligner = None if self.why_no_attention else predictor.aligner()

    def predict(self, samples: Sequence[Sample], token: CancellationToken) -> Sequence[Prediction]:
        """See `ServedModel.predict`; can also be cancelled between two steps of a search."""
        self._predictor.before_step = token.check
        inputs: Any = samples if self._of_mappings else self._texts(samples)
        return super().predict(inputs, token)

    def attend(self, samples: Sequence[Sample], token: CancellationToken) -> Sequence[Prediction]:
        """See `ServedModel.attend`; runs the model again for each text."""
        assert self._aligner is not None
        attended: list[Prediction] = []
        predictions: Any = self.predict(samples, token)
        texts = self._texts(samples)
        for number, (text, prediction) in enumerate(zip(texts, predictions, strict=True)):
            token.check()
            (ids,) = self._predictor.encode([text])
            pairs = len(ids) * (len(prediction.hypotheses[0].ids) + 1)
            check_size(number, pairs, MAX_ATTENTION_WEIGHTS)
            attended.append(self._aligner.attend(ids, prediction))
        return attended

    def _texts(self, samples: Sequence[Sample]) -> list[str]:
        name = self.fields[0].name
        return [_text(number, sample[name]) for number, sample in enumerate(samples)]


def _text(number: int, value: Any) -> str:
    """Returns a text unchanged, or a list of words joined with spaces.

    Raises:
      InputError: the value is neither, or the list has elements that are not words.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InputError(number, f"{reprlib.repr(value)} is no text, where one was expected.")
    for word in value:
        if not isinstance(word, str):
            raise InputError(number, f"{reprlib.repr(word)} in its list is no word.")
    return " ".join(value)
