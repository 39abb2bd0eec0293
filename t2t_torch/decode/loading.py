"""From a run directory to a model that answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.artifact.signature import FILE, SAFETENSORS, Signature
from t2t_torch.checkpoint.checkpoint import MODEL, Checkpoint
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.checkpoint.weights import load_weights
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.predictor import Predictor, RunInfo
from t2t_torch.decode.tree_predictor import TreePredictor
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import (
    ArtifactError,
    CheckpointError,
    DataError,
    HParamsError,
    RegistryError,
    UsageError,
)
from t2t_torch.families.multi import MultiProblem
from t2t_torch.features import Features, TreeFeature
from t2t_torch.features.meanings import meanings
from t2t_torch.model import T2TModel
from t2t_torch.problem import Problem
from t2t_torch.train.multi_model import multi_model
from t2t_torch.train.run_directory import RunDirectory, TaskRecord
from t2t_torch.trust import import_usr_dirs

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

BEST = "best"
"""What asks for the best checkpoint, in place of a step."""


def load(
    run_dir: str | Path | Sequence[str | Path],
    checkpoint: int | str | Path | None = None,
    *,
    problem: str | None = None,
    hparams: DecodeHParams | None = None,
    device: str | torch.device | None = None,
) -> Predictor | LabelPredictor:
    """Loads what `t2t-trainer --output_dir=run_dir` has trained.

    Problem, model, hyperparameters and vocabularies come from the run directory.  A model that
    writes texts gives a `Predictor`, one that gives labels, numbers or spans a `LabelPredictor`;
    either is called with a list of inputs and returns a list of outputs.

    Args:
      run_dir: the run directory; or several, or `ckpt-<step>` folders in them, whose models answer
        as one: the mean of their probabilities, of texts of their log-probabilities
        (`ensemble.py`).
      checkpoint: a step, "best" (the one that evaluations found best), or the path of a
        `ckpt-<step>` folder, which may be relative to `run_dir`; the newest whole one by default.
        Of a run that keeps an average of its weights, the average is taken.
      problem: of a run of several problems, the one that is asked.
      hparams: how to decode.
      device: where to compute; a GPU by default, where there is one.

    Raises:
      ArtifactError: it was exported, and is damaged or holds no weights.
      CheckpointError: this is no run directory, its vocabulary is missing or damaged, or it has no
        such whole checkpoint.
      HParamsError: the beam is too wide for the vocabulary, or models of different targets or
        vocabularies are to answer as one.
      UsageError: `problem` is not what the run has learnt, or of several it is not said which.
    """
    if isinstance(run_dir, str | Path):
        loaded = load_run(run_dir, checkpoint, problem)
    else:
        loaded = as_one([load_member(path, checkpoint, problem) for path in run_dir])
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    given = loaded.model.to(device), loaded.problem, loaded.features
    if all(feature.generates for feature in loaded.features.targets.values()):
        trees = any(isinstance(f, TreeFeature) for f in loaded.features.targets.values())
        return (TreePredictor if trees else Predictor)(*given, hparams, loaded.info)
    return LabelPredictor(*given, loaded.info)


class Loaded(NamedTuple):
    """A model of a run, and what it is of; or those of several as one, and what the first is of."""

    model: Any
    problem: Problem
    features: Features
    info: RunInfo


def as_one(members: Sequence[Loaded]) -> Loaded:
    """Returns several models as one, the mean of what they find; see `ensemble.py`.

    Raises:
      HParamsError: there is none, or they are of different targets or vocabularies.
    """
    model = Ensemble([member.model for member in members])
    for other in members[1:]:
        _check_same_ids(members[0], other)
    return members[0]._replace(model=model)


def load_member(
    path: str | Path, checkpoint: int | str | Path | None = None, problem: str | None = None
) -> Loaded:
    """Loads a model of an ensemble, as `load_run` does, or of a `ckpt-<step>` folder in a run."""
    folder = Path(path).resolve()
    match = re.fullmatch(r"ckpt-(\d+)", folder.name)
    if match and folder.is_dir():
        return load_run(folder.parent, int(match[1]), problem)
    return load_run(path, checkpoint, problem)


def load_run(
    run_dir: str | Path, checkpoint: int | str | Path | None = None, problem: str | None = None
) -> Loaded:
    """Loads the model of a run, or one that was exported as weights, on the CPU; see `load`."""
    run = RunDirectory(run_dir)
    _check_is_no_checkpoint(run.path)
    if (run.path / FILE).exists():  # before any other file of it is read and misunderstood
        signature = Signature.read(run.path)
        if signature.form == SAFETENSORS:
            signature.check_files(run.path)
    task = run.task()
    _check_is_no_trial(run, task)
    learnt, model_class = registered(run, task)
    hparams = run.hparams(model_class.HParams)
    if not isinstance(learnt, MultiProblem):
        if problem not in (None, learnt.full_name):
            raise UsageError(
                f"'{run.path}' is a run of problem {learnt.full_name!r}, not of {problem!r}. Leave "
                "it out, or give another run."
            )
        features = _features(run, learnt)
        model = _model(model_class, hparams, learnt, features)
        step = load_checkpoint(model, run, checkpoint)
        return Loaded(model, learnt, features, RunInfo(task, step))
    if problem is None:
        raise UsageError(
            f"'{run.path}' is a run of several problems. Say which one is asked, --problem= (in "
            f"Python problem=) one of {', '.join(learnt.problem_names)}."
        )
    asked = learnt.component(problem)
    _features(run, learnt)
    parts = {part.full_name: (part, part.features(run.path)) for part in learnt.components}
    models = {name: _model(model_class, hparams, *part) for name, part in parts.items()}
    step = load_checkpoint(multi_model(models, hparams), run, checkpoint)
    return Loaded(models[problem], asked, parts[problem][1], RunInfo(task, step))


def _model(
    model: type[T2TModel], hparams: HParams, problem: Problem, features: Features
) -> T2TModel:
    spaces = {
        "input_space_id": problem.input_space_id,
        "target_space_id": problem.target_space_id,
    }
    return model(hparams, features, **spaces)


def _check_same_ids(first: Loaded, other: Loaded) -> None:
    """Checks that the ids of two models mean the same.

    Raises:
      HParamsError: they do not; names the feature.
    """
    ours, theirs = first.features, other.features
    for role in ("inputs", "targets"):
        here, there = getattr(ours, role), getattr(theirs, role)
        differ = [
            name
            for name in {**here, **there}
            if name not in here
            or name not in there
            or meanings(ours, name) != meanings(theirs, name)
        ]
        if differ:
            raise HParamsError(
                f"an ensemble is of runs with the same {role} and vocabularies, but {differ[0]!r} "
                f"is not the same in a run of {first.problem.full_name} and one of "
                f"{other.problem.full_name}. Train them on the same --data_dir."
            )


def _check_is_no_checkpoint(path: Path) -> None:
    folder = path.resolve()
    match = re.fullmatch(r"ckpt-(\d+)", folder.name)
    if match and folder.is_dir():
        raise CheckpointError(
            f"'{path}' is a checkpoint, not a run directory. Give the run, and the checkpoint's "
            f"step:  --output_dir={folder.parent} --checkpoint_path={match[1]}"
        )


def _check_is_no_trial(run: RunDirectory, task: TaskRecord) -> None:
    if task.trial:
        raise UsageError(
            f"'{run.path}' is a run of the trial {task.trial}, and of a problem was expected. What "
            "answers with a trial: t2t_torch.load(run) in Python; t2t-decoder and t2t-eval, with "
            "its validation loader; t2t-server --artifact, with what t2t-exporter makes of the run."
        )


def _features(run: RunDirectory, problem: Problem) -> Features:
    """The features, with the run's own vocabularies."""
    try:
        return problem.features(run.path)
    except DataError as error:
        files = problem.vocab_files
        missing = [name for name in files if not (run.path / name).exists()]
        if not files:
            raise
        # The rest of the message tells how to make a vocabulary, which is not what helps here.
        fault = str(error).partition(". ")[0]
        what = f"is not there: {', '.join(missing)}" if missing else f"is damaged: {fault}"
        raise CheckpointError(
            f"the vocabulary in the run directory '{run.path}' {what}.\n"
            "Copy it back from the data_dir this run was trained on; one made anew has other ids:"
            + "".join(f"\n  cp DATA_DIR/{name} {run.path / name}" for name in missing or files)
        ) from error


def load_checkpoint(model: nn.Module, run: RunDirectory, wanted: int | str | Path | None) -> int:
    """Loads the checkpoint that is asked for; if none is, the newest that a trainer leaves there.

    Args:
      model: of the run.
      run: where the checkpoint is.
      wanted: as `find_checkpoint` takes it.

    Returns:
      Its step.

    Raises:
      ArtifactError: what was exported is damaged, or holds no weights.
      CheckpointError: there is none, or it is broken, or a trainer deletes it meanwhile.
    """

    def read(checkpoint: Checkpoint) -> None:
        # Wherever the checkpoint is from: its ids must be those of this run's vocabularies.
        checkpoint.check_vocabularies(run.path)
        checkpoint.load_model(model, averaged=True)

    if (run.path / FILE).exists():
        return _load_exported(model, run, wanted)
    if wanted is None:
        newest = CheckpointDirectory(run.path).read_newest(read)
        if newest is None:
            raise CheckpointError(
                f"'{run.path}' has no checkpoint yet. t2t-trainer writes the first after "
                "--local_eval_frequency steps."
            )
        return newest.step
    chosen = find_checkpoint(run, wanted)
    directory = CheckpointDirectory(chosen.path.parent)
    if directory.is_gone_while(read, chosen):
        raise CheckpointError(
            f"'{chosen.path}' was deleted while it was read. Decode another of "
            f"{[one.step for one in directory.list()]} (--checkpoint_path)."
        )
    return chosen.step


def _load_exported(model: nn.Module, run: RunDirectory, wanted: int | str | Path | None) -> int:
    """Loads what was exported as weights; returns the step."""
    signature = Signature.read(run.path)
    if signature.form != SAFETENSORS:
        raise ArtifactError(
            f"'{run.path}' was exported as {signature.form} and is no run directory. Load it with "
            "t2t_torch.load, or give the run."
        )
    if wanted is not None:
        raise UsageError(
            f"'{run.path}' is one model, of step {signature.step}, and has no checkpoint {wanted}. "
            "Leave it out, or give the run."
        )
    signature.check_files(run.path)
    load_weights(model, run.path / MODEL)
    return signature.step


def find_checkpoint(run: RunDirectory, wanted: int | str | Path) -> Checkpoint:
    """Finds the checkpoint of a step, or of a folder's path, or the best one; verifies it.

    Args:
      run: which checkpoints a step or "best" is one of.
      wanted: a step, "best", or the path of a `ckpt-<step>` folder, which may be relative to the
        run directory.

    Raises:
      CheckpointError: there is none, or it is broken.
    """
    path = Path(str(wanted))
    if str(wanted) == BEST:
        best = CheckpointDirectory(run.path).best()
        if best is None:
            raise CheckpointError(
                f"'{run.path}' has no best checkpoint: none of those that are there was evaluated. "
                "t2t-trainer evaluates them in --schedule=continuous_train_and_eval and "
                "continuous_eval; or give a step."
            )
        return best
    if str(wanted).isdecimal():
        return CheckpointDirectory(run.path).at(int(path.name))
    if not path.exists() and (len(path.parts) == 1 or (run.path / path).exists()):
        path = run.path / path
    path = path.resolve()
    match = re.fullmatch(r"ckpt-(\d+)", path.name)
    if match is None:
        raise CheckpointError(
            f"'{path}' is no checkpoint: expected a step, '{BEST}' or a folder ckpt-<step>."
        )
    return CheckpointDirectory(path.parent).at(int(match[1]))


def registered(run: RunDirectory, task: TaskRecord) -> tuple[Problem, type[T2TModel]]:
    """Finds problem and model, in the user's folders too if the run had some.

    Raises:
      CheckpointError: such a folder is gone, and with it the problem or the model.
      RegistryError: there is no such problem or model.
      UsageError: such a folder comes with the run, which is not trusted.
    """
    gone = import_usr_dirs(run.path, task.usr_dirs)
    try:
        return registry.problem(task.problem), registry.model(task.model)
    except RegistryError as error:
        if not gone:
            raise
        raise CheckpointError(
            f"'{run.path}' was trained with --t2t_usr_dir={gone[0]}, which is not there any more: "
            f"{error} Say where it is now with --t2t_usr_dir (in Python registry.import_usr_dir)."
        ) from error
