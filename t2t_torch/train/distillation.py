"""Teachers for distillation: trained models from their run directories."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from t2t_torch import ensemble, errors, files, registry
from t2t_torch.data.vocabulary_builder import vocab_files_in
from t2t_torch.features.text import meanings, scale_of
from t2t_torch.modalities.text import padded_size
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.code import open_code
from t2t_torch.run.directory import RunDirectory
from t2t_torch.train.multi_model import model_choices, parts_of, whole_model

if TYPE_CHECKING:
    from torch import nn

    from t2t_torch.features import Feature, Features
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.problem import Problem
    from t2t_torch.run.checkpoint import Checkpoint


def load_teachers(
    path: str, problems: Mapping[str, tuple[Problem, Features]], vocab_dir: Path, hparams: HParams
) -> dict[str, T2TModel | ensemble.Ensemble]:
    """Loads the teachers of `distill_from`: each run teaches its problem; a run of several problems
    teaches each of them.

    A student of one problem may learn from a run of another one with the same inputs and targets.

    Args:
      path: a run directory, of which the best checkpoint is loaded, or the newest if none is known
        as best; or a `ckpt-<step>` folder.  "[one,other]" lists several; runs of the same problem
        form an ensemble.
      problems: the student's problems by full name, with their features.
      vocab_dir: directory of the student's vocabularies.
      hparams: hyperparameters of the student.

    Returns:
      The teacher of each problem that has one, on the CPU, with averaged weights if its run keeps
      an average.

    Raises:
      CheckpointError: there is no run, or no complete checkpoint.
      HParamsError: a run has none of the problems, or its ids have other meanings.
    """
    teachers_of: dict[str, list[T2TModel]] = {}
    for one in path.removeprefix("[").removesuffix("]").split(","):
        run = _TeacherRun.of(one.strip())
        taught = {name: name for name in problems if name in run.problems}
        if len(problems) == len(run.problems) == 1:
            taught = dict(zip(problems, run.problems, strict=True))
        if not taught:
            raise errors.HParamsError(
                f"distill_from={run.path} is a run of {', '.join(run.problems)} and cannot teach "
                f"{' or '.join(problems)}. Name a run of what is to be learnt."
            )
        for name, source in taught.items():
            run.check(source, *problems[name], vocab_dir, hparams)
        models = run.models()
        for name, source in taught.items():
            teachers_of.setdefault(name, []).append(models[source])
    return {
        name: teachers[0] if len(teachers) == 1 else ensemble.Ensemble(teachers)
        for name, teachers in teachers_of.items()
    }


class _TeacherRun(NamedTuple):
    """The run of a teacher, and its problems by full name."""

    path: str
    directory: RunDirectory
    step: int | None
    model_class: type[T2TModel]
    hparams: HParams
    learnt: Problem
    problems: Mapping[str, Problem]

    @classmethod
    def of(cls, path: str) -> _TeacherRun:
        folder = Path(path)
        match = re.fullmatch(r"ckpt-(\d+)", folder.resolve().name)
        run = RunDirectory(folder.resolve().parent if match else folder)
        task = run.task()
        open_code(run.path, task)
        problem, model_class = registry.problem(task.problem), registry.model(task.model)
        return cls(
            path,
            run,
            int(match[1]) if match else None,
            model_class,
            run.hparams(model_class.HParams),
            problem,
            {part.full_name: part for part in parts_of(problem)},
        )

    def check(
        self, name: str, problem: Problem, features: Features, vocab_dir: Path, hparams: HParams
    ) -> None:
        """Checks that the teacher and the student have compatible versions of a problem."""
        own, folder = self.problems[name], self.directory.path
        faults = _other_features(features, own.features(folder), hparams, self.hparams)
        theirs = {files.read_bytes(folder / file) for file in vocab_files_in(own, folder)}
        faults += [
            f"it was not trained with the vocabulary {file}"
            for file in vocab_files_in(problem, vocab_dir)
            if files.read_bytes(vocab_dir / file) not in theirs  # a vocabulary may have two names
        ]
        if faults:
            raise errors.HParamsError(
                f"distill_from={self.path} cannot teach {problem.full_name}: {'; '.join(faults)}. "
                "A teacher is of the same inputs, targets and vocabularies: train one on this "
                "problem's data."
            )

    def models(self) -> dict[str, T2TModel]:
        """Returns the run's trained models, by problem."""
        chosen = model_choices(list(self.problems), self.model_class, self.hparams)
        made = {
            name: chosen[name].model(chosen[name].hparams, problem.features(self.directory.path))
            for name, problem in self.problems.items()
        }
        _load(whole_model(self.learnt, made, self.hparams), self.directory.path, self.step)
        return made


def _load(teacher: nn.Module, run: Path, step: int | None) -> None:
    directory = CheckpointDirectory(run)

    def read(checkpoint: Checkpoint) -> None:
        checkpoint.load_model(teacher, averaged=True)

    if step is not None:
        read(directory.at(step))
        return
    if directory.read_best(read) is None:
        raise errors.CheckpointError(
            f"distill_from={run}: the teacher has no checkpoint yet. Train it first."
        )


def _other_features(
    ours: Features, theirs: Features, hparams: HParams, its_hparams: HParams
) -> list[str]:
    """Returns descriptions of the differences between the teacher's and the student's features."""
    faults = []
    for role in ("inputs", "targets"):
        here, there = getattr(ours, role), getattr(theirs, role)
        if list(here) != list(there):
            faults.append(
                f"its {role} are {', '.join(there) or 'none'}, not {', '.join(here) or 'none'}"
            )
            continue
        for name, feature in here.items():
            actual, expected = _describe(there[name], its_hparams), _describe(feature, hparams)
            if actual != expected:
                faults.append(f"its {name} is {actual}, not {expected}")
            elif there[name].labels != feature.labels:
                faults.append(f"its {name} has other labels, or in another order")
            elif meanings(theirs, name) != meanings(ours, name):
                faults.append(f"the ids or numbers of its {name} have another meaning")
    return faults


def _describe(feature: Feature, hparams: HParams) -> str:
    size = padded_size(feature, hparams) if feature.vocab_size else 0
    scale = scale_of(feature)
    return (
        type(feature).__name__
        + (f" of {size} ids" if size else "")
        + (f" ({scale})" if scale else "")
    )
