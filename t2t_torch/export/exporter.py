"""From a run to an artifact: one graph with all that is in it, verified, or nothing."""

from __future__ import annotations

import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any

import onnx

from t2t_torch.artifact.session import Artifact
from t2t_torch.artifact.signature import EXAMPLES, MODEL
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded
from t2t_torch.errors import ExportError
from t2t_torch.export.folder import (
    Exported,
    copy_explanations,
    with_members,
    write_examples,
    write_signature,
)
from t2t_torch.export.label_subject import LabelSubject
from t2t_torch.export.quantization import Times, check_faster, check_quality
from t2t_torch.export.request import Request, joined, remove_leftovers, staged_folder
from t2t_torch.export.signature import target_kind
from t2t_torch.export.subject import Subject
from t2t_torch.export.text_subject import TextSubject, check_writes
from t2t_torch.export.verification import Verified

_LARGEST = 1_900_000_000  # bytes of weights: a file of ONNX has 2 GiB at most


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
        members = request.load_members(averaged)
        loaded, chosen = joined(members)
        subject = subject_of(loaded, request.decode_hparams)
        rows = subject.rows(request.data_dir, request.verify_rows)
        network = subject.network(rows)
        graph = subject.graph(network)
        onnx.save(graph.model(), whole / MODEL)
        copy_explanations(request.runs, loaded, whole)
        signature = subject.signature(chosen, needs_extensions=graph.needs_extensions)
        signature = with_members(signature, members)
        write_signature(signature, whole)
        verified = subject.verify(Artifact(whole), rows)
        metrics: dict[str, tuple[float, float]] = {}
        times, answers = None, verified.answers
        if request.quantize:
            plain = scratch / "plain"
            shutil.copytree(whole, plain)
            onnx.save(subject.graph(subject.quantized(network)).model(), whole / MODEL)
            signature = dataclasses.replace(signature, quantized=request.quantize)
            write_signature(signature, whole)
            metrics, times, answers = _compared(request, subject, verified, plain, whole)
        write_examples(verified.rows, answers, whole / EXAMPLES)
        signature = write_signature(signature, whole)
    took = time.perf_counter() - start
    return Exported(request.export_dir, signature, verified, metrics, times, took)


def subject_of(loaded: Loaded, hparams: DecodeHParams) -> Subject:
    """Returns what is exported of a model.

    Args:
      loaded: the model.
      hparams: how to decode, of what writes texts.

    Raises:
      ExportError: the model is of a kind that has no artifact; says why.
      HParamsError: `hparams` has set what a graph does not read.
    """
    check_exportable(loaded)
    if any(feature.generates for feature in loaded.features.targets.values()):
        return TextSubject(loaded, hparams)
    hparams.check_read((), "a graph that gives labels or numbers searches for nothing and")
    return LabelSubject(loaded)


def check_exportable(loaded: Loaded) -> None:
    """Raises ExportError if a model is of a kind that has no artifact; says why."""
    features = loaded.features
    if any(feature.generates for feature in features.targets.values()):
        check_writes(loaded)
        _check_size(loaded)
        return
    unread = [t for t, feature in features.targets.items() if target_kind(feature) is None]
    if unread:
        kind = type(features.targets[unread[0]]).__name__
        raise ExportError(
            f"the target {unread[0]!r} of {loaded.problem.full_name!r} is a {kind}, for which a "
            "graph has no answer. This model answers with  t2t-decoder"
        )
    _check_size(loaded)


def _check_size(loaded: Loaded) -> None:
    size = sum(p.numel() * 4 for p in {id(p): p for p in loaded.model.parameters()}.values())
    if size > _LARGEST:
        raise ExportError(
            f"the model has weights of {size:,} bytes, and a file of ONNX holds 2 GiB at most. "
            "Train a smaller one; the vocabulary's vectors are often the largest part."
        )


def _compared(
    request: Request, subject: Subject, verified: Verified, plain: Path, whole: Path
) -> tuple[dict[str, tuple[float, float]], Times, dict[int, Any]]:
    """Returns metrics and times before and after quantizing, and the answers after.

    Raises:
      ExportError: it is worse, or not faster.
    """
    rows, places = verified.rows, list(verified.answers)
    before, after = (Artifact(folder, threads=1) for folder in (plain, whole))
    answers = dict(zip(places, after.predict([rows[p].sample for p in places]), strict=True))
    known = [place for place in places if rows[place].number >= 0]
    found = [
        subject.metrics(request.data_dir, {rows[place].number: its[place] for place in known})
        for its in (verified.answers, answers)
    ]
    check_quality(*found)
    times = check_faster(before, after, [rows[place].sample for place in known])
    return {name: (found[0][name], found[1][name]) for name in found[0]}, times, answers
