"""A run's model as one that is served, to try a checkpoint; torch computes."""

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
from t2t_torch.errors import DecodeError
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Feature,
    Features,
    Gazetteer,
    Image,
    MultiLabel,
    Real,
    SoftLabel,
    Span,
    Tags,
    Text,
    TreeFeature,
    Turns,
    WordLabel,
    WordReal,
    Words,
)
from t2t_torch.runtime.prediction import InputError, Prediction
from t2t_torch.runtime.session import CancellationToken
from t2t_torch.serve.limits import MOST_WEIGHTS
from t2t_torch.serve.model import InputField, Model, OutputTarget, Sample
from t2t_torch.serve.repository import Ask


def run_model(
    name: str, path: Path, *, checkpoint: str | None, hparams: DecodeHParams, threads: int
) -> Model:
    """Loads the model of a run directory.

    Args:
      name: what it is asked by.
      path: the run directory.
      checkpoint: a step, "best", or a `ckpt-<step>` folder; the newest by default.
      hparams: how texts are decoded.
      threads: of torch; 0: as many as there are cores.

    Raises:
      CheckpointError, HParamsError, UsageError: as `decode.loading.load` says; or `hparams` has
        something that nothing here reads.
    """
    if threads:
        torch.set_num_threads(threads)
    hparams.check_of_server()
    predictor = load(path, checkpoint, hparams=hparams)
    run = predictor.run
    assert run is not None
    if isinstance(predictor, LabelPredictor):
        hparams.check_read((), "a model that gives labels, numbers or spans, in a server,")
        fields = [_field_of(predictor, field) for field in predictor.fields]
    elif isinstance(predictor, TreePredictor):
        fields = [InputField(field, "words") for field in predictor.fields]
    else:
        fields = [InputField(predictor.field, "text")]
    of_mappings = isinstance(predictor, LabelPredictor | TreePredictor)

    def ask(samples: Sequence[Sample], stop: CancellationToken) -> Sequence[Prediction]:
        predictor.before_batch = stop.check
        if not isinstance(predictor, LabelPredictor):
            predictor.before_step = stop.check
        if of_mappings:
            return predictor.predict(samples)
        texts = [_text(number, one[fields[0].name]) for number, one in enumerate(samples)]
        return predictor.predict(texts)

    attend, why = None, "it writes no text"
    if not isinstance(predictor, LabelPredictor):
        why = predictor.why_unaligned
        attend = None if why else _attend_of(predictor, ask, fields[0].name)
    return Model(
        name=name,
        version=str(run.step),
        problem=run.task.problem,
        learner=run.task.model,
        platform="pytorch",
        fields=fields,
        targets=[
            _target(predictor.features, target, feature)
            for target, feature in predictor.features.targets.items()
        ],
        ask=ask,
        attend=attend,
        why_no_attention=why,
    )


def _attend_of(predictor: Predictor, ask: Ask, field: str) -> Ask:
    """Returns what adds their attention to predictions, each read once more by itself.

    Args:
      predictor: that finds them.
      ask: returns what it finds.
      field: of the texts.
    """
    aligner = predictor.aligner()

    def attend(samples: Sequence[Sample], stop: CancellationToken) -> Sequence[Prediction]:
        told: list[Prediction] = []
        for number, (sample, prediction) in enumerate(
            zip(samples, ask(samples, stop), strict=True)
        ):
            stop.check()
            (ids,) = predictor.encode([_text(number, sample[field])])
            pairs = len(ids) * (len(prediction.hypotheses[0].ids) + 1)
            if pairs > MOST_WEIGHTS:
                raise DecodeError(
                    f"input {number} has {pairs:,} pairs of an id that is read and one that is "
                    f"written, and attention is told of {MOST_WEIGHTS:,}. Ask without attention, "
                    "or less at once."
                )
            told.append(aligner.attend(ids, prediction))
        return told

    return attend


def _text(number: int, value: Any) -> str:
    """Returns a text as it is; words, which a list may be, with spaces between.

    Raises:
      InputError: it is neither, or a list has something else than words.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InputError(number, f"{reprlib.repr(value)} is no text, where one was expected.")
    for word in value:
        if not isinstance(word, str):
            raise InputError(number, f"{reprlib.repr(word)} in its list is no word.")
    return " ".join(value)


def _field_of(predictor: LabelPredictor, name: str) -> InputField:
    """Returns what is asked with in a field."""
    kind = predictor.kinds[name]
    if isinstance(kind, Words) and name not in predictor.lists:
        return InputField(name, "text")  # a text of which a part is found
    of = predictor.features.sources[kind.aligned_to] if kind.aligned_to else ""
    return _field(name, kind, of)


def _field(name: str, feature: Feature, of: str = "") -> InputField:
    if isinstance(feature, Turns):
        return InputField(name, "value")
    if isinstance(feature, Words):
        return InputField(name, "words")
    if isinstance(feature, Text):
        return InputField(name, "text")
    if isinstance(feature, WordLabel):
        return InputField(name, "labels", of=of)
    if isinstance(feature, WordReal):
        return InputField(name, "word_numbers", feature.size, of=of)
    if isinstance(feature, Gazetteer):
        return InputField(name, "gazetteer", of=of)
    if isinstance(feature, Image):
        return InputField(name, "image", shape=(feature.height, feature.width, feature.channels))
    if isinstance(feature, Real):
        return InputField(name, "numbers", feature.size)
    return InputField(name, "value")


def _target(features: Features, name: str, feature: Feature) -> OutputTarget:
    if isinstance(feature, TreeFeature):
        return OutputTarget(name, "tree")
    if isinstance(feature, Text):
        return OutputTarget(name, "text")
    if isinstance(feature, Span):
        return OutputTarget(name, "span")
    if isinstance(feature, Real):
        return OutputTarget(name, "numbers", size=feature.size)
    if isinstance(feature, Choice):
        return OutputTarget(name, "choice", tuple(feature.candidates))
    if isinstance(feature, Tags):
        of = features.sources[feature.of]
        return OutputTarget(name, "tags", tuple(feature.encoder.labels), of=of)
    kinds = {ClassLabel: "class", MultiLabel: "multilabel", SoftLabel: "distribution"}
    for kind, told in kinds.items():
        if isinstance(feature, kind):
            labels: Any = feature
            return OutputTarget(name, told, tuple(labels.encoder.labels))
    return OutputTarget(name, "value")
