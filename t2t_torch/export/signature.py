"""What an artifact says of itself, as a predictor tells it."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
from typing import Any

import t2t_torch
from t2t_torch.artifact.signature import ONNX, Field, Signature, Target
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import Loaded
from t2t_torch.decode.predictor import RunInfo
from t2t_torch.errors import ExportError
from t2t_torch.export.answer_graph import labels_of
from t2t_torch.export.graph import OPSETS
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Feature,
    Gazetteer,
    Image,
    MultiLabel,
    Real,
    SoftLabel,
    Span,
    Tags,
    Text,
    Turns,
    WordReal,
)
from t2t_torch.features.word import WordLabel, WordStarts

_PACKAGES = ("t2t_torch", "torch", "onnx", "onnxruntime")


def signature_of(predictor: LabelPredictor, chosen: str, *, needs_extensions: bool) -> Signature:
    """Returns what an artifact says of itself, without its files.

    Args:
      predictor: of which it is made.
      chosen: how the checkpoint was chosen.
      needs_extensions: whether its graph has operators of onnxruntime-extensions.

    Raises:
      ExportError: a field is of a kind that a graph cannot be given.
    """
    loaded = Loaded(predictor.model, predictor.problem, predictor.features, _run(predictor))
    found = about(loaded, chosen)
    if needs_extensions:
        found = with_extensions(found)
    return dataclasses.replace(
        found,
        fields=signature_fields(predictor),
        targets=tuple(_target(predictor, name) for name in predictor.features.targets),
        opset=OPSETS[""],
    )


def about(loaded: Loaded, chosen: str, *, form: str = ONNX) -> Signature:
    """Returns what an artifact says of the model that it is made of.

    Args:
      loaded: the model.
      chosen: how its checkpoint was chosen.
      form: what holds the weights.
    """
    packages = _PACKAGES if form == ONNX else _PACKAGES[:2]
    return Signature(
        problem=loaded.problem.full_name,
        model=loaded.info.task.model,
        step=loaded.info.step,
        checkpoint=chosen,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        fields=(),
        targets=(),
        needs_extensions=False,
        quantized="",
        opset=0,
        made_with={name: _version(name) for name in packages},
        files={},
        form=form,
    )


def with_extensions(signature: Signature) -> Signature:
    """Returns what an artifact says of itself whose graph needs onnxruntime-extensions."""
    name = "onnxruntime_extensions"
    versions = {**signature.made_with, name: _version(name)}
    return dataclasses.replace(signature, needs_extensions=True, made_with=versions)


def _run(predictor: LabelPredictor) -> RunInfo:
    assert predictor.run is not None
    return predictor.run


def _version(package: str) -> str:
    if package == "t2t_torch":
        return t2t_torch.__version__
    return importlib.metadata.version(package)


def signature_fields(predictor: LabelPredictor) -> tuple[Field, ...]:
    """Returns what an artifact says of its inputs; raises ExportError as `signature_of` does."""
    return tuple(_field(predictor, name, kind) for name, kind in predictor.kinds.items())


def _field(predictor: LabelPredictor, name: str, kind: Feature) -> Field:
    features = predictor.features
    if isinstance(kind, Real):
        return Field(name, "numbers", "float32", size=kind.size)
    if isinstance(kind, WordLabel):
        return Field(name, "labels", of=features.sources[kind.of])
    if isinstance(kind, WordReal):
        of = features.sources[kind.of]
        return Field(name, "word_numbers", "float32", size=kind.size, of=of)
    if isinstance(kind, Gazetteer):
        return Field(name, "gazetteer", of=features.sources[kind.of])
    if isinstance(kind, Image):
        return Field(name, "image", "uint8", shape=(kind.height, kind.width, kind.channels))
    if not isinstance(kind, Text) or isinstance(kind, Turns):
        raise ExportError(
            f"the field {name!r} is a {type(kind).__name__}, which a graph cannot be given yet. "
            "Train on a problem without it, or answer with  t2t-decoder"
        )
    own = next(n for n, feature in features.all.items() if feature is kind)
    tagged = any(feature.aligned_to == own for feature in features.targets.values())
    longest = predictor.limits.by_feature.get(own, 0)
    if any(isinstance(note, WordStarts) and note.of == own for note in features.notes.values()):
        tagged = False  # a word has several ids, and the graph itself says if they are too many
    if name not in predictor.lists:
        # Of a text that is cut into windows each of these is cut, not the text.
        spans = [feature for feature in features.targets.values() if isinstance(feature, Span)]
        longest = 0 if own in [span.of for span in spans] else longest
        return Field(name, "text", longest=longest, tagged=tagged)
    return Field(name, "words", longest=longest, tagged=tagged)


def target_kind(feature: Feature) -> Any:
    """Returns of which kind a target is in an artifact; None if of none."""
    kinds = {
        ClassLabel: "class",
        MultiLabel: "multilabel",
        Tags: "tags",
        Real: "numbers",
        SoftLabel: "distribution",
        Choice: "choice",
        Span: "span",
    }
    return next((kind for type_, kind in kinds.items() if isinstance(feature, type_)), None)


def _target(predictor: LabelPredictor, name: str) -> Target:
    feature: Any = predictor.features.targets[name]
    kind = target_kind(feature)
    if isinstance(feature, Real):
        return Target(name, kind, size=feature.size)
    of = predictor.features.sources[feature.of] if isinstance(feature, Tags | Span) else ""
    return Target(name, kind, tuple(labels_of(feature)), of=of)
