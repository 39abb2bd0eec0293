"""Model card of an artifact: its README.md, with metadata as the Hugging Face Hub reads it.

It is made from the record of the run; what that does not have is not in the card.  Mitchell et al.,
"Model Cards for Model Reporting", 2019, arXiv:1810.03993.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from t2t_torch.data.manifest import Manifest
from t2t_torch.decode.loading import Loaded
from t2t_torch.errors import T2TError
from t2t_torch.files import read_json
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.runtime.signature import Signature

_TASKS = {
    ("text", "class"): "text-classification",
    ("words", "class"): "text-classification",
    ("image", "class"): "image-classification",
    ("audio", "text"): "automatic-speech-recognition",
    ("words", "tags"): "token-classification",
    ("text", "span"): "question-answering",
}
"""Kinds of the first input and the first target -> the task, as the Hub calls it."""

_PAIR = re.compile(r"translate_(?:\w+_)?([a-z]{2})([a-z]{2})(?:_|$)")
_USE = """# {signature.model} of {signature.problem}

`t2t-exporter` wrote this folder, of {signature.checkpoint}. onnxruntime runs it, without PyTorch:
`t2t_torch.load(FOLDER)(inputs)` returns the predictions for a list of inputs, and
`t2t-server --artifact=FOLDER` serves them. `examples.jsonl` has inputs with their predictions.
"""
_LIMITS = """## Limits

The artifact was compared with the model before it was written; that does not say how good the model
is. The run does not record intended uses, biases of the data or a license: add them before you
publish the model.
"""


def model_card(signature: Signature, run: Path, use: str, loaded: Loaded | None) -> str:
    """Returns the card.

    Args:
      signature: the signature, without the files.
      run: run directory of the model; of an ensemble, of its first member.
      use: heading of the page, and how the model is called; "": that of an ONNX graph.
      loaded: the model; None for that of a trial.
    """
    specs = [] if loaded is None else _specs(loaded)
    kinds = {role: kind for role, _, kind in reversed(specs)}  # of the first of each
    pair = _PAIR.match(signature.problem)
    task = _TASKS.get((kinds.get("input", ""), kinds.get("output", "")))
    task = "translation" if pair else task
    dataset: dict[str, Any] = {"type": signature.problem, "name": signature.problem}
    evaluations, name = _evaluations(run, signature), f"{signature.model}-{signature.problem}"
    results = [
        {
            "task": {"type": task or "other"},
            "dataset": dataset | {"split": split},
            "metrics": [{"type": metric.partition(" ")[0], "name": metric, "value": value}],
        }
        for split, metric, value, _ in evaluations
    ]
    metadata: dict[str, Any] = {
        "library_name": "t2t_torch",
        "language": sorted(pair.groups()) if pair else None,
        "pipeline_tag": task,
        "tags": ["t2t_torch", signature.form, signature.model],
        "model-index": [{"name": name, "results": results}] if results else None,
    }
    changed: list[tuple[str, str, str]] = []
    with contextlib.suppress(OSError, ValueError, KeyError):  # a trial does not know it
        values = read_json(run / "hparams.json")
        chosen = {n: source for n, source in values["provenance"].items() if source != "default"}
        changed = [(n, f"`{json.dumps(values[n])}`", source) for n, source in chosen.items()]
    front = yaml.safe_dump({k: v for k, v in metadata.items() if v}, sort_keys=False)
    parts = [
        f"---\n{front}---\n\n{use or _USE.format(signature=signature)}",
        _table("Model", ("", "name", "kind"), specs),
        _table("Data", ("split", "rows"), _data(run, loaded)),
        _table("Evaluation", ("split", "metric", "value", "date"), evaluations),
        _table("Hyperparameters", ("name", "value", "from"), changed),
        _table("Versions", ("library", "version"), signature.made_with.items()),
        _LIMITS,
    ]
    return "\n".join(filter(None, parts))


def _specs(loaded: Loaded) -> list[tuple[str, str, str]]:
    """Returns (role, name, kind) of the inputs and outputs, and the number of parameters."""
    known, parameters = loaded.features, sum(one.numel() for one in loaded.model.parameters())
    inputs = [(name, one.input_spec(name, known)) for name, one in known.inputs.items()]
    outputs = [(name, one.output_spec(name, known)) for name, one in known.targets.items()]
    specs: list[tuple[str, str, str]] = [("input", name, one.kind) for name, one in inputs]
    specs += [("output", name, one.kind) for name, one in outputs]
    return [*specs, ("parameters", "", f"{parameters:,}")]


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a section with a table; "" without rows."""
    lines = [" | ".join(str(cell).replace("|", "&#124;") for cell in row) for row in rows]
    table = "\n".join(
        f"| {line} |" for line in [" | ".join(head), "|".join(["---"] * len(head)), *lines]
    )
    return f"## {title}\n\n{table}\n" if lines else ""


def _data(run: Path, loaded: Loaded | None) -> list[tuple[str, str]]:
    """Returns the splits of the run's data with their rows, if it is where it was."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, T2TError):
        if loaded is not None:
            data_dir = Path(read_json(run / "config.json")["data_dir"])
            splits = Manifest.load(data_dir, loaded.problem.dataset_name).splits
            return [(name, f"{split.rows:,}") for name, split in splits.items()]
    return []


def _evaluations(run: Path, signature: Signature) -> list[tuple[str, str, float, str]]:
    """Returns (split, metric, value, date) of the checkpoint; nothing of a mean of several."""
    rows = []
    for report in MetricsFile(run).read() if signature.checkpoint.startswith("step") else ():
        if report["step"] == signature.step and report["split"] in ("dev", "test"):
            day = datetime.datetime.fromtimestamp(report["time"], datetime.UTC).date().isoformat()
            for name, value in report.items():
                *parts, metric = name.split("/")
                if isinstance(value, float) and name != "time" and "_per_label" not in name:
                    metric += f" of {parts[1]}" if len(parts) > 1 else ""
                    rows.append((report["split"], metric, round(value, 6), day))
    return rows
