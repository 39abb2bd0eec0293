"""From a run to an artifact: one graph with all that is in it, verified, or nothing."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

import t2t_torch
from t2t_torch.artifact.session import Artifact
from t2t_torch.artifact.signature import (
    EXAMPLES,
    FILE,
    MODEL,
    Field,
    Signature,
    Target,
    Written,
)
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import Loaded
from t2t_torch.errors import ExportError
from t2t_torch.export.answer_graph import add_answers, labels_of
from t2t_torch.export.graph import OPSETS, Graph
from t2t_torch.export.network import export_network
from t2t_torch.export.quality import metrics_of
from t2t_torch.export.quantization import Times, check_faster, check_quality, quantize
from t2t_torch.export.request import Request, remove_leftovers, staged_folder
from t2t_torch.export.text_graph import encode
from t2t_torch.export.verification import Row, Verified, rows_of, verify
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Feature,
    MultiLabel,
    Real,
    SoftLabel,
    Tags,
    Text,
    Turns,
    Words,
)
from t2t_torch.features.text import words_of
from t2t_torch.features.word import WordLabel, WordStarts
from t2t_torch.model import T2TModel

_EXAMPLES = 20
_ODD_EXAMPLES = 5  # of these, that are no rows of the data
_SHORTEST = 3  # ids of what the network is traced with; 1 would become part of the graph
_LARGEST = 1_900_000_000  # bytes of weights: a file of ONNX has 2 GiB at most
_PACKAGES = ("t2t_torch", "torch", "onnx", "onnxruntime")


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
      folder: the artifact.
      signature: what it says of itself.
      verified: the rows that were compared, before anything was quantized.
      metrics: of the verified rows, before and after quantizing; empty without.
      times: seconds before and after quantizing; None without.
      seconds: that it took in all.
    """

    folder: Path
    signature: Signature
    verified: Verified
    metrics: dict[str, tuple[float, float]]
    times: Times | None
    seconds: float


def export(request: Request) -> Exported:
    """Writes the artifact of a run, if it answers as the run's model does.

    Args:
      request: what, and where to.

    Raises:
      CheckpointError: there is no such run or checkpoint, or it is broken.
      DataError: there is no dev split.
      ExportError: the model cannot be exported, or the artifact does not answer as it does.
      UsageError: the request cannot be met.
    """
    start = time.perf_counter()
    remove_leftovers(request.export_dir)
    request.check()
    with staged_folder(request.export_dir, overwrite=request.overwrite) as scratch:
        whole, averaged = scratch / "whole", scratch / "run"
        averaged.mkdir()
        loaded, chosen = request.load(averaged)
        check_exportable(loaded)
        predictor = _predictor(loaded)
        rows = rows_of(predictor, request.data_dir, request.verify_rows)
        network = network_of(predictor, rows)
        graph = graph_of(predictor, network)
        onnx.save(graph.model(), whole / MODEL)
        _copy_explanations(request.run_dir, loaded, whole)
        signature = _signature(predictor, chosen, needs_extensions=graph.needs_extensions)
        _write_signature(signature, whole)
        verified = verify(predictor, Artifact(whole), rows)
        metrics: dict[str, tuple[float, float]] = {}
        times, answers = None, verified.answers
        if request.quantize:
            plain = scratch / "plain"
            shutil.copytree(whole, plain)
            onnx.save(graph_of(predictor, quantize(network)).model(), whole / MODEL)
            signature = dataclasses.replace(signature, quantized=request.quantize)
            _write_signature(signature, whole)
            metrics, times, answers = _compared(request, predictor, verified, plain, whole)
        _write_examples(verified.rows, answers, whole / EXAMPLES)
        signature = _write_signature(signature, whole)
    took = time.perf_counter() - start
    return Exported(request.export_dir, signature, verified, metrics, times, took)


def check_exportable(loaded: Loaded) -> None:
    """Raises ExportError if a model is of a kind that has no artifact; says why."""
    features, name = loaded.features, type(loaded.model).name
    written = [t for t, feature in features.targets.items() if feature.generates]
    if written:
        why = "which is written one token after another, and no search is in a graph yet"
        if not features.has_inputs:
            why = "and without an input there is nothing to ask"
        if name == "rnng":
            why = "a tree, whose network has another form after each action, where a graph has one"
        raise ExportError(
            f"the model {name!r} gives {written[0]!r} of {loaded.problem.full_name!r}, {why}. What "
            "labels, tags or gives numbers can be exported; this one answers with  t2t-decoder"
        )
    unread = [t for t, feature in features.targets.items() if _target_kind(feature) is None]
    if unread:
        kind = type(features.targets[unread[0]]).__name__
        raise ExportError(
            f"the target {unread[0]!r} of {loaded.problem.full_name!r} is a {kind}, which is found "
            "outside the network, in the text as it was written: a graph has no answer for it. "
            "This model answers with  t2t-decoder"
        )
    size = sum(p.numel() * 4 for p in {id(p): p for p in loaded.model.parameters()}.values())
    if size > _LARGEST:
        raise ExportError(
            f"the model has weights of {size:,} bytes, and a file of ONNX holds 2 GiB at most. "
            "Train a smaller one; the vocabulary's vectors are often the largest part."
        )


def _predictor(loaded: Loaded) -> LabelPredictor:
    """Returns what the artifact is compared with: it computes in float32."""
    model: Any = loaded.model.float().eval()
    model.hparams = model.hparams.replace(activation_dtype="float32")
    return LabelPredictor(model, loaded.problem, loaded.features, loaded.info)


def network_of(predictor: LabelPredictor, rows: Sequence[Row]) -> onnx.ModelProto:
    """Returns the network by itself: numbers in, numbers out.

    Args:
      predictor: whose.
      rows: some of the data, by which it is traced.
    """
    assert isinstance(predictor.model, T2TModel)
    samples = sorted((row.sample for row in rows if row.number >= 0), key=_size)
    first, second = samples[len(samples) // 3], samples[len(samples) // 2]
    for field, kind in predictor.kinds.items():
        if isinstance(kind, Text) and _width(predictor, [first, second], field) < _SHORTEST:
            first = {**first, **_lengthened(predictor, [first, *samples], field)}
    return export_network(predictor.model, predictor.batch_of([first, second]))


def _width(predictor: LabelPredictor, samples: Sequence[Mapping[str, Any]], field: str) -> int:
    """Returns the length of the batch's shortest axis that is made of a field of texts."""
    features = predictor.features
    widths = (
        ids.shape[1]
        for name, ids in predictor.batch_of(samples).items()
        if features.sources[name] == field and features.all[name].is_sequence
    )
    return min(widths, default=_SHORTEST)


def _lengthened(
    predictor: LabelPredictor, samples: Sequence[Mapping[str, Any]], field: str
) -> dict[str, Any]:
    """Returns a text of one of the samples, said as often as tracing needs, and its labels.

    Tracing takes a length of 1 for one that never varies.

    Raises:
      ExportError: none of the samples has such a text.
    """
    written = next((sample for sample in samples if words_of(sample[field])), None)
    if written is None:
        raise ExportError(
            f"the network cannot be traced: {field!r} is empty in all {len(samples) - 1} rows of "
            "the dev split that were read. Give the dev split a row with such a text, or a "
            "greater --verify_rows."
        )
    sources, found = predictor.features.sources, {field: written[field]}
    for name, kind in predictor.kinds.items():
        if kind.aligned_to is not None and sources[kind.aligned_to] == field:
            found[name] = written[name]
    several = found
    for times in range(2, _SHORTEST + 1):
        if _width(predictor, [{**written, **several}], field) < _SHORTEST:
            several = {name: _repeated(value, times) for name, value in found.items()}
    return several


def _repeated(value: Any, times: int) -> Any:
    return " ".join([value] * times) if isinstance(value, str) else [*value] * times


def graph_of(predictor: LabelPredictor, network: onnx.ModelProto) -> Graph:
    """Returns the whole graph: fields in, answers out.

    Args:
      predictor: whose.
      network: as `network_of` returns it, or quantized.
    """
    graph = Graph(predictor.problem.full_name)
    given = encode(graph, predictor.problem, predictor.features, predictor.limits)
    found = graph.inline(network, given)
    add_answers(graph, predictor.features, found)
    return graph


def _size(sample: Any) -> int:
    return sum(len(value) for value in sample.values() if isinstance(value, str | list))


def _copy_explanations(run_dir: Path, loaded: Loaded, folder: Path) -> None:
    for name in ("hparams.json", *loaded.problem.vocab_files):
        shutil.copyfile(run_dir / name, folder / name)


def _signature(predictor: LabelPredictor, chosen: str, *, needs_extensions: bool) -> Signature:
    assert predictor.run is not None
    versions = {name: _version(name) for name in _PACKAGES}
    if needs_extensions:
        versions["onnxruntime_extensions"] = _version("onnxruntime_extensions")
    return Signature(
        problem=predictor.problem.full_name,
        model=predictor.run.task.model,
        step=predictor.run.step,
        checkpoint=chosen,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        fields=tuple(_field(predictor, name, kind) for name, kind in predictor.kinds.items()),
        targets=tuple(_target(predictor, name) for name in predictor.features.targets),
        needs_extensions=needs_extensions,
        quantized="",
        opset=OPSETS[""],
        made_with=versions,
        files={},
    )


def _version(package: str) -> str:
    if package == "t2t_torch":
        return t2t_torch.__version__
    return importlib.metadata.version(package)


def _field(predictor: LabelPredictor, name: str, kind: Feature) -> Field:
    features = predictor.features
    if isinstance(kind, Real):
        return Field(name, "numbers", "float32", size=kind.size)
    if isinstance(kind, WordLabel):
        return Field(name, "labels", of=features.sources[kind.of])
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
    return Field(
        name, "words" if isinstance(kind, Words) else "text", longest=longest, tagged=tagged
    )


def _target_kind(feature: Feature) -> Any:
    kinds = {
        ClassLabel: "class",
        MultiLabel: "multilabel",
        Tags: "tags",
        Real: "numbers",
        SoftLabel: "distribution",
        Choice: "choice",
    }
    return next((kind for type_, kind in kinds.items() if isinstance(feature, type_)), None)


def _target(predictor: LabelPredictor, name: str) -> Target:
    feature: Any = predictor.features.targets[name]
    kind = _target_kind(feature)
    if isinstance(feature, Real):
        return Target(name, kind, size=feature.size)
    of = predictor.features.sources[feature.of] if isinstance(feature, Tags) else ""
    return Target(name, kind, tuple(labels_of(feature)), of=of)


def _write_signature(signature: Signature, folder: Path) -> Signature:
    """Writes what an artifact says of itself and of the files that are there; returns it."""
    names = sorted(path.name for path in folder.iterdir() if path.name != FILE)
    files = {name: Written.of(folder / name) for name in names}
    signature = dataclasses.replace(signature, files=files)
    (folder / FILE).write_text(signature.to_json(), encoding="utf-8")
    return signature


def _compared(
    request: Request, predictor: LabelPredictor, verified: Verified, plain: Path, whole: Path
) -> tuple[dict[str, tuple[float, float]], Times, dict[int, Any]]:
    """Returns metrics and times before and after quantizing, and the answers after.

    Raises:
      ExportError: it is worse, or not faster.
    """
    rows, places = verified.rows, list(verified.answers)
    before, after = (Artifact(folder, threads=1) for folder in (plain, whole))
    answers = dict(zip(places, after.predict([rows[p].sample for p in places]), strict=True))
    known = [place for place in places if rows[place].number >= 0]
    numbers = [rows[place].number for place in known]
    found = [
        metrics_of(predictor, request.data_dir, numbers, [its[place] for place in known])
        for its in (verified.answers, answers)
    ]
    check_quality(*found)
    times = check_faster(before, after, [rows[place].sample for place in known])
    return {name: (found[0][name], found[1][name]) for name in found[0]}, times, answers


def _write_examples(rows: Sequence[Row], answers: Any, path: Path) -> None:
    """Writes some inputs with their answers, a line each."""
    odd = [place for place in answers if rows[place].number < 0][:_ODD_EXAMPLES]
    usual = [place for place in answers if rows[place].number >= 0][: _EXAMPLES - len(odd)]
    with path.open("w", encoding="utf-8") as file:
        for place in (*usual, *odd):
            told = {"input": rows[place].sample, "answer": dataclasses.asdict(answers[place])}
            file.write(json.dumps(told, ensure_ascii=False) + "\n")
