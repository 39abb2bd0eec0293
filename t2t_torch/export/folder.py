"""The files of an artifact, beside what holds its weights."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.artifact.signature import FILE, Signature, Written
from t2t_torch.decode.loading import Loaded
from t2t_torch.export.quantization import Times
from t2t_torch.export.request import Member, run_of
from t2t_torch.export.verification import Row, Verified

_EXAMPLES = 20
_ODD_EXAMPLES = 5  # of these, that are no rows of the data


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
      folder: the artifact.
      signature: what it says of itself.
      verified: the rows that were compared, before anything was quantized; None of weights, which
        are compared themselves.
      metrics: of the verified rows, before and after quantizing; empty without.
      times: seconds before and after quantizing; None without.
      seconds: that it took in all.
    """

    folder: Path
    signature: Signature
    verified: Verified | None
    metrics: dict[str, tuple[float, float]]
    times: Times | None
    seconds: float


def copy_explanations(runs: Sequence[Path], loaded: Loaded, folder: Path) -> None:
    """Copies what explains a model: its hyperparameters and vocabularies.

    Args:
      runs: of the model; of several as one, of all.
      loaded: the model.
      folder: where to.
    """
    first = run_of(runs[0])
    for name in ("hparams.json", *loaded.problem.vocab_files_in(first)):
        shutil.copyfile(first / name, folder / name)
    for number, run in enumerate(runs[1:], start=2):
        shutil.copyfile(run_of(run) / "hparams.json", folder / f"hparams-{number}.json")


def write_task(loaded: Loaded, folder: Path) -> None:
    """Writes `task.json` of a folder that is loaded as a run is; its problem is the model's own."""
    task = loaded.info.task.model_copy(update={"problem": loaded.problem.full_name})
    (folder / "task.json").write_text(task.model_dump_json(indent=2) + "\n", encoding="utf-8")


def with_members(signature: Signature, members: Sequence[Member]) -> Signature:
    """Returns what an artifact says of itself, if it is one of several models, of which ones."""
    if len(members) == 1:
        return signature
    names = dict.fromkeys(member.loaded.info.task.model for member in members)
    told = tuple(map(str, members))
    return dataclasses.replace(signature, model=" and ".join(names), members=told)


def write_signature(signature: Signature, folder: Path) -> Signature:
    """Writes what an artifact says of itself and of the files that are there; returns it."""
    names = sorted(path.name for path in folder.iterdir() if path.name != FILE)
    files = {name: Written.of(folder / name) for name in names}
    signature = dataclasses.replace(signature, files=files)
    (folder / FILE).write_text(signature.to_json(), encoding="utf-8")
    return signature


def write_examples(rows: Sequence[Row], answers: Mapping[int, Any], path: Path) -> None:
    """Writes some inputs with their answers, a line each."""
    odd = [place for place in answers if rows[place].number < 0][:_ODD_EXAMPLES]
    usual = [place for place in answers if rows[place].number >= 0][: _EXAMPLES - len(odd)]
    with path.open("w", encoding="utf-8") as file:
        for place in (*usual, *odd):
            told = {"input": rows[place].sample, "answer": dataclasses.asdict(answers[place])}
            file.write(json.dumps(told, ensure_ascii=False) + "\n")
