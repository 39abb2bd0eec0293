"""The teacher of a run: a trained model, from its own run directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.census.labels import labels_of
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.modalities.text import padded_size
from t2t_torch.train.run_directory import RunDirectory

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import Checkpoint
    from t2t_torch.features import Feature, Features
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.problem import Problem


def load_teacher(
    path: str, problem: Problem, features: Features, vocab_dir: Path, hparams: HParams
) -> T2TModel | Ensemble:
    """Loads the teacher that `distill_from` names, or several as one.

    Args:
      path: of its run directory: the best checkpoint is taken, or the newest where none is known to
        be the best; or of a `ckpt-<step>` folder in it.  "[one,other]" are several, whose mean
        teaches.
      problem: what the student learns.
      features: the student's.
      vocab_dir: where the student's vocabularies are.
      hparams: the student's.

    Returns:
      The teacher on the CPU, with the running mean of its weights if its run keeps one.

    Raises:
      CheckpointError: there is no run, or no whole checkpoint.
      HParamsError: its ids mean other things than the student's.
    """
    paths = path.removeprefix("[").removesuffix("]").split(",")
    given = problem, features, vocab_dir, hparams
    teachers = [_load_one(one.strip(), *given) for one in paths]
    return teachers[0] if len(teachers) == 1 else Ensemble(teachers)


def _load_one(
    path: str, problem: Problem, features: Features, vocab_dir: Path, hparams: HParams
) -> T2TModel:
    folder = Path(path)
    match = re.fullmatch(r"ckpt-(\d+)", folder.resolve().name)
    run = RunDirectory(folder.resolve().parent if match else folder)
    task = run.task()
    for own in task.usr_dirs:
        if Path(own).is_dir():
            registry.import_usr_dir(own)
    its_problem, model_class = registry.problem(task.problem), registry.model(task.model)
    its_hparams = run.hparams(model_class.HParams)
    its_features = its_problem.features(run.path)
    faults = [
        *_other_features(features, its_features, hparams, its_hparams),
        *_other_vocabularies(problem, vocab_dir, its_problem, run.path),
    ]
    if faults:
        raise HParamsError(
            f"distill_from={path} cannot teach {problem.full_name}: {'; '.join(faults)}. A teacher "
            "is of the same inputs, targets and vocabularies: train one on this problem's data."
        )
    teacher = model_class(
        its_hparams,
        its_features,
        input_space_id=its_problem.input_space_id,
        target_space_id=its_problem.target_space_id,
    )
    _load(teacher, run.path, int(match[1]) if match else None)
    return teacher


def _load(teacher: T2TModel, run: Path, step: int | None) -> None:
    directory = CheckpointDirectory(run)

    def read(checkpoint: Checkpoint) -> None:
        checkpoint.load_model(teacher, averaged=True)

    if step is not None:
        read(directory.at(step))
        return
    best = directory.best()
    if best is not None and not directory.is_gone_while(read, best):
        return
    if directory.read_newest(read) is None:
        raise CheckpointError(
            f"distill_from={run}: the teacher has no checkpoint yet. Train it first."
        )


def _other_features(
    ours: Features, theirs: Features, hparams: HParams, its_hparams: HParams
) -> list[str]:
    """Says what the teacher's inputs and targets differ in."""
    faults = []
    for role in ("inputs", "targets"):
        here, there = getattr(ours, role), getattr(theirs, role)
        if list(here) != list(there):
            faults.append(
                f"its {role} are {', '.join(there) or 'none'}, not {', '.join(here) or 'none'}"
            )
            continue
        for name, feature in here.items():
            found, expected = _told(there[name], its_hparams), _told(feature, hparams)
            if found != expected:
                faults.append(f"its {name} is {found}, not {expected}")
            elif labels_of(there[name]) != labels_of(feature):
                faults.append(f"its {name} has other labels, or in another order")
    return faults


def _told(feature: Feature, hparams: HParams) -> str:
    size = padded_size(feature, hparams) if feature.vocab_size else 0
    return f"{type(feature).__name__}{f' of {size} ids' if size else ''}"


def _other_vocabularies(
    problem: Problem, vocab_dir: Path, its_problem: Problem, its_dir: Path
) -> list[str]:
    """Says which vocabularies the teacher does not have, whatever their files are called."""
    theirs = {(its_dir / file).read_bytes() for file in its_problem.vocab_files}
    return [
        f"it was not trained with the vocabulary {file}"
        for file in problem.vocab_files
        if (vocab_dir / file).read_bytes() not in theirs
    ]
