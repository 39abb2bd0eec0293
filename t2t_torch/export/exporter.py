"""From a run to an artifact: one graph with all that is in it, verified, or nothing."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from t2t_torch.checkpoint.checkpoint import MODEL as CHECKPOINT_MODEL
from t2t_torch.checkpoint.tensors import model_tensors
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded, load_run
from t2t_torch.errors import ExportError
from t2t_torch.export.quantization import Times, check_faster, check_quality
from t2t_torch.export.request import (
    Exported,
    Request,
    copy_explanations,
    joined,
    remove_leftovers,
    staged_folder,
    with_members,
    write_examples,
    write_signature,
    write_task,
)
from t2t_torch.export.targets import (
    ExportTarget,
    LabelExportTarget,
    TextExportTarget,
    about,
    check_writes,
    target_kind,
)
from t2t_torch.export.verification import Verified
from t2t_torch.runtime.session import Artifact
from t2t_torch.runtime.signature import EXAMPLES, MODEL, SAFETENSORS

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


def subject_of(loaded: Loaded, hparams: DecodeHParams) -> ExportTarget:
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
        return TextExportTarget(loaded, hparams)
    hparams.check_read((), "a graph that gives labels or numbers searches for nothing and")
    return LabelExportTarget(loaded)


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
    request: Request, subject: ExportTarget, verified: Verified, plain: Path, whole: Path
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


# A folder with a model's weights as safetensors, which is loaded as a run is.


_READ_ME = """# {model} of {problem}

`t2t-exporter --format=safetensors` wrote this folder, of {checkpoint}: {tensors} tensors with
{numbers:,} numbers. t2t_torch loads it as it loads a run:

```python
import t2t_torch

model = t2t_torch.load("{folder}")
```

and any program has the weights:

```python
from safetensors.torch import load_file

weights = load_file("model.safetensors")
```

`hparams.json` says what they are the weights of, `task.json` which model and problem.
"""


def export_weights(request: Request) -> Exported:
    """Writes the weights of a run, if what is loaded from there is the same to the bit.

    Args:
      request: what, and where to; no data is read.

    Raises:
      CheckpointError: there is no such run or checkpoint, or it is broken.
      ExportError: what was written is not what is read.
      UsageError: the request cannot be met.
    """
    start = time.perf_counter()
    remove_leftovers(request.export_dir)
    request.check()
    with staged_folder(request.export_dir, overwrite=request.overwrite) as scratch:
        whole, averaged = scratch / "whole", scratch / "run"
        averaged.mkdir()
        loaded, chosen = joined(request.load_members(averaged))
        tensors = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in model_tensors(loaded.model).items()
        }
        save_file(tensors, whole / CHECKPOINT_MODEL, metadata={"format": "pt"})
        copy_explanations(request.runs, loaded, whole)
        write_task(loaded, whole)
        signature = about(loaded, chosen, form=SAFETENSORS)
        read_me = _READ_ME.format(
            model=signature.model,
            problem=signature.problem,
            checkpoint=chosen,
            folder=request.export_dir.name,
            tensors=len(tensors),
            numbers=sum(tensor.numel() for tensor in tensors.values()),
        )
        (whole / "README.md").write_text(read_me, "utf-8")
        signature = write_signature(signature, whole)
        _check_same(tensors, load_file(whole / CHECKPOINT_MODEL), "the file")
        _check_same(loaded.model.state_dict(), _reloaded(whole), "a model that is loaded from it")
    took = time.perf_counter() - start
    return Exported(request.export_dir, signature, None, {}, None, took)


def _reloaded(folder: Path) -> Mapping[str, Tensor]:
    loaded: Loaded = load_run(folder)
    found: Mapping[str, Tensor] = loaded.model.state_dict()
    return found


def _check_same(written: Mapping[str, Tensor], read: Mapping[str, Tensor], where: str) -> None:
    """Raises ExportError if tensors differ in a bit."""
    differ = [
        name
        for name in sorted({*written, *read})
        if name not in written or name not in read or not _is_same(written[name], read[name])
    ]
    if differ:
        raise ExportError(
            f"{where} has other weights than the run: {', '.join(differ[:5])}. Nothing was "
            "written. This is a fault of the export: please report it with the run."
        )


def _is_same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = [tensor.cpu().contiguous().flatten().view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*bits)
