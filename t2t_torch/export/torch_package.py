"""A folder with a model's network as a program of torch.export, and what is needed to ask it."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.artifact.signature import EXAMPLES, TORCH, Signature
from t2t_torch.compute.precision import in_float32
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import Loaded, registered
from t2t_torch.decode.predictor import RunInfo
from t2t_torch.errors import ArtifactError, ExportError, UsageError
from t2t_torch.export.answer_graph import labels_of
from t2t_torch.export.folder import (
    Exported,
    copy_explanations,
    with_members,
    write_examples,
    write_signature,
    write_task,
)
from t2t_torch.export.network import axes_of, quiet
from t2t_torch.export.program import program_of
from t2t_torch.export.request import Request, joined, remove_leftovers, staged_folder
from t2t_torch.export.signature import about
from t2t_torch.export.tracing import example_of
from t2t_torch.export.untrusted_program import check_program
from t2t_torch.export.verification import rows_of, verify
from t2t_torch.features import Features
from t2t_torch.hparam import HParams
from t2t_torch.modality import Guesses
from t2t_torch.train.run_directory import RunDirectory

PROGRAM = "model.pt2"
TENSORS = "tensors.json"

_READ_ME = """# {model} of {problem}

`t2t-exporter --format=torch` wrote this folder, of {checkpoint}. `model.pt2` is the network, a
program of torch.export; torch alone runs it:

```python
import json
import torch

about = json.load(open("tensors.json"))
network = torch.export.load("model.pt2").module()
batch = {{
    name: torch.zeros(
        [2 if isinstance(size, str) else size for size in its["shape"]],
        dtype=getattr(torch, its["dtype"]),
    )
    for name, its in about["inputs"].items()
}}
print({{name: value.tolist() for name, value in network(batch).items()}})
```

asks it two rows of padding. `tensors.json` names what goes in and what comes out: of each target t
`t.numbers`, the best guess, and, where there are some, `t.probability`, `t.scores` and `t.mask`,
where words are; numbers of labels count from 0. Texts become numbers by t2t_torch:

```python
import t2t_torch

model = t2t_torch.load("{folder}")
```
"""


def export(request: Request) -> Exported:
    """Writes the network of a run as a program, if it answers as the run's model does.

    Args:
      request: what, and where to.

    Raises:
      CheckpointError: there is no such run or checkpoint, or it is broken.
      DataError: there is no dev split.
      ExportError: the model cannot be exported, or what was exported does not answer as it does.
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
        check_exportable(loaded)
        given = in_float32(loaded.model), loaded.problem, loaded.features, loaded.info
        predictor = LabelPredictor(*given)
        rows = rows_of(predictor, request.data_dir, request.verify_rows)
        example = example_of(predictor, rows)
        program = program_of(predictor.model, example)
        with quiet():
            torch.export.save(program, whole / PROGRAM)
        told = _tensors(loaded.features, example)
        (whole / TENSORS).write_text(json.dumps(told, ensure_ascii=False, indent=2) + "\n", "utf-8")
        copy_explanations(request.runs, loaded, whole)
        write_task(loaded, whole)
        signature = with_members(about(loaded, chosen, form=TORCH), members)
        read_me = _READ_ME.format(
            model=signature.model,
            problem=signature.problem,
            checkpoint=chosen,
            folder=request.export_dir.name,
        )
        (whole / "README.md").write_text(read_me, "utf-8")
        write_signature(signature, whole)
        verified = verify(predictor, load_package(whole), rows)
        write_examples(verified.rows, verified.answers, whole / EXAMPLES)
        signature = write_signature(signature, whole)
    took = time.perf_counter() - start
    return Exported(request.export_dir, signature, verified, {}, None, took)


def check_exportable(loaded: Loaded) -> None:
    """Raises ExportError if a model writes: its search is no program."""
    written = [name for name, target in loaded.features.targets.items() if target.generates]
    if written:
        raise ExportError(
            f"the model {loaded.info.task.model!r} writes {written[0]!r}, one token after another "
            "with a memory that grows: no program of torch.export holds that. Export the weights "
            "alone, --format=safetensors, or a graph with the search in it, --format=onnx."
        )


def load_package(folder: str | Path, *, device: str | torch.device | None = None) -> LabelPredictor:
    """Loads what `export` has written.

    Texts are encoded by the problem; the network is the program, and no model is built.

    Args:
      folder: the package.
      device: "cpu" or None: where the program was made.

    Raises:
      ArtifactError: this is no package, or it is damaged.
      UsageError: another device.
    """
    folder = Path(folder)
    if device is not None and torch.device(device).type != "cpu":
        raise UsageError(
            f"device={str(device)!r}: '{folder}' is a program for the CPU. Leave it out, or load "
            "the run."
        )
    signature = Signature.read(folder)
    if signature.form != TORCH:
        raise ArtifactError(f"'{folder}' was exported as {signature.form}, not as {TORCH}.")
    signature.check_files(folder)
    run = RunDirectory(folder)
    task = run.task()
    problem, model_class = registered(run, task)
    features = problem.features(folder)
    check_program(folder / PROGRAM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(folder / PROGRAM).module()
    except Exception as error:  # of torch's own, which have no base of theirs
        made = signature.made_with.get("torch", "?")
        raise ArtifactError(
            f"torch {torch.__version__} cannot read {folder / PROGRAM}: {error}  It was made with "
            f"torch {made}; install that one."
        ) from error
    model: Any = _Packaged(program, run.hparams(model_class.HParams), features)
    return LabelPredictor(in_float32(model), problem, features, RunInfo(task, signature.step))


class _Packaged(nn.Module):
    """A program in the place of a model, as `LabelPredictor` asks it.

    Args:
      program: of a network.
      hparams: of the model.
      features: what it reads and finds.
    """

    def __init__(self, program: nn.Module, hparams: HParams, features: Features) -> None:
        super().__init__()
        self.program = program
        self.hparams = hparams
        self._targets = tuple(features.targets)
        self.modalities = dict.fromkeys(self._targets, _Found())

    def train(self, mode: bool = True) -> _Packaged:
        """Changes nothing: a program does not train."""
        return self

    def logits(self, batch: dict[str, Tensor]) -> dict[str, Guesses]:
        """Returns the guesses for each target."""
        found: Mapping[str, Tensor] = self.program(batch)
        return {
            name: Guesses(
                found[f"{name}.numbers"],
                found.get(f"{name}.probability"),
                found.get(f"{name}.scores"),
            )
            for name in self._targets
        }


class _Found:
    """What stands for a modality, where the program has guessed already."""

    def guess(self, logits: Guesses) -> Guesses:
        """Returns it."""
        return logits


def _tensors(features: Features, example: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns what the program takes and gives, to be read by whoever has torch alone."""
    axes = axes_of(features, example)
    names = ("rows", "places")
    inputs = {}
    for name, value in example.items():
        shape = [names[axis] if axis in axes[name] else n for axis, n in enumerate(value.shape)]
        feature = features.all[name]
        inputs[name] = {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": shape,
            "of": features.sources[name],
            "kind": type(feature).__name__,
        }
    targets = {
        name: {"kind": type(feature).__name__, "labels": labels_of(feature)}
        for name, feature in features.targets.items()
    }
    return {"inputs": inputs, "targets": targets}
