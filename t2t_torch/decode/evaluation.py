"""How well several runs do as one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from t2t_torch import registry
from t2t_torch.checkpoint.explanations import step_of
from t2t_torch.compute.precision import autocast
from t2t_torch.decode.loading import load
from t2t_torch.train.batch import to_device
from t2t_torch.train.problem_task import ProblemTask
from t2t_torch.train.run_directory import RunDirectory

if TYPE_CHECKING:
    from t2t_torch.mode import Split


@torch.inference_mode()
def evaluate_ensemble(
    runs: Sequence[str | Path],
    data_dir: Path,
    split: Split,
    checkpoint: str | None = None,
    *,
    problem: str | None = None,
    limit: int = 0,
    device: str | None = None,
    prepare: Callable[[ProblemTask], None] | None = None,
) -> dict[str, float]:
    """Returns the metrics of runs whose models answer as one, by the names that a run has.

    Batches are made as those of the first run.

    Args:
      runs: run directories.
      data_dir: of the generated data.
      split: of it.
      checkpoint: of each run; the newest by default; see `loading.load`.
      problem: of runs of several problems, the one that is evaluated.
      limit: batches; 0 for all.
      device: where to compute; None: as `loading.load` chooses.
      prepare: called with the task before it is evaluated.
    """
    predictor = load(runs, checkpoint, problem=problem, device=device)
    asked, model = predictor.problem, predictor.model
    directory = run_of(runs[0])
    names = asked.vocab_files_in(Path(data_dir), directory.path)
    directory.check_vocabularies(names, data_dir)
    kind = registry.model(directory.task().model)
    task = ProblemTask(asked, kind, model.hparams, data_dir=data_dir, vocab_dir=directory.path)
    if prepare is not None:
        prepare(task)
    evaluator = task.evaluator()
    batches = task.eval_batches(split, rank=0, world_size=1)
    where = next(model.parameters()).device
    for batch in itertools.islice(batches, limit or None):
        on_device = to_device(batch, where)
        with autocast(model.hparams.activation_dtype, where):
            output = model(on_device)
        evaluator.update(output, on_device)
    return evaluator.result()


def run_of(path: str | Path) -> RunDirectory:
    """Returns the run of an ensemble's member: a run directory, or a `ckpt-<step>` folder in it."""
    folder = Path(path).resolve()
    return RunDirectory(folder if step_of(folder) is None else folder.parent)
