"""The language model whose states are a part of a model's inputs: from its own run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from t2t_torch import registry
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.features import Text
from t2t_torch.modalities.contextual import FrozenLanguageModel
from t2t_torch.text_problem import TextProblem
from t2t_torch.train.run_directory import RunDirectory, TaskRecord
from t2t_torch.trust import import_usr_dirs

if TYPE_CHECKING:
    from torch import nn

    from t2t_torch.checkpoint.checkpoint import Checkpoint
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem

    HParamsT = TypeVar("HParamsT", bound=HParams)


def with_architecture(hparams: HParamsT, before: HParams | None = None) -> HParamsT:
    """Returns hparams that tell what the model of `contextual_embeddings` is.

    They are kept with a run, which can then be decoded without the other's directory.

    Args:
      hparams: asked for.
      before: of the run that is gone on with, which knows it.

    Raises:
      CheckpointError: there is no run.
      HParamsError: it is of no language model.
    """
    path = hparams.contextual_embeddings
    if not path or hparams.contextual_architecture:
        return hparams
    if before is not None and before.contextual_architecture:
        known = before.contextual_architecture
    else:
        run = RunDirectory(path)
        task, problem = _opened(run)
        features = problem.features(run.path)
        if features.inputs or [type(text) for text in features.targets.values()] != [Text]:
            raise HParamsError(
                f"contextual_embeddings={path} is a run of {task.problem}, which is no language "
                "model: it has inputs, or learns no text. Give the run of one."
            )
        written = json.loads(run.hparams(registry.model(task.model).HParams).to_json())
        known = json.dumps({"model": task.model, "hparams": written})
    return hparams.replace(contextual_architecture=known).signed(f"the run {path}")


def load_contextual(model: nn.Module, problem: Problem, vocab_dir: Path) -> list[str]:
    """Gives a new model the weights of the language model that `contextual_embeddings` names.

    Args:
      model: any.
      problem: what it learns.
      vocab_dir: where its vocabularies are.

    Returns:
      what to tell of it; nothing if the hparams name none.

    Raises:
      CheckpointError: there is no run, or no whole checkpoint of that architecture.
      HParamsError: its vocabulary is another one.
    """
    parts = [part for part in model.modules() if isinstance(part, FrozenLanguageModel)]
    if not parts:
        return []
    (context,) = parts  # of all inputs
    path = str(getattr(model, "hparams").contextual_embeddings)  # noqa: B009  of T2TModel
    run = RunDirectory(path)
    task, other = _opened(run)
    if _vocabulary(problem, vocab_dir) != _vocabulary(other, run.path):
        raise HParamsError(
            f"contextual_embeddings={path}: {task.problem} has another vocabulary than "
            f"{problem.full_name}, so its ids mean other words. Let one use the other's: its class "
            "attribute use_vocab_from_other_problem (in a declaration: the key of that name), then "
            "t2t-datagen, and train the language model on that."
        )
    chosen = _load(context.model, run.path)
    return [f"contextual vectors: {task.model} of {path}, step {chosen}, {context.size} wide"]


def _opened(run: RunDirectory) -> tuple[TaskRecord, Problem]:
    task = run.task()
    import_usr_dirs(run.path, task.usr_dirs)
    return task, registry.problem(task.problem)


def _vocabulary(problem: Problem, directory: Path) -> bytes | None:
    """Returns the file of a problem's vocabulary; None of bytes, which have none."""
    if not isinstance(problem, TextProblem):
        raise HParamsError(
            f"contextual_embeddings: {problem.full_name} is no problem of texts with a vocabulary."
        )
    name = problem.vocab_filename
    return None if name is None else (directory / name).read_bytes()


def _load(model: nn.Module, run: Path) -> int:
    """Loads the best checkpoint, or the newest where none is known to be; returns its step."""
    directory = CheckpointDirectory(run)

    def read(checkpoint: Checkpoint) -> None:
        checkpoint.load_model(model, averaged=True)

    best = directory.best()
    if best is not None and not directory.is_gone_while(read, best):
        return best.step
    newest = directory.read_newest(read)
    if newest is None:
        raise CheckpointError(
            f"contextual_embeddings={run}: the run has no checkpoint yet. Train it first."
        )
    return newest.step
