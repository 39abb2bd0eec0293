"""Loads trained models from run directories, for inference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from t2t_torch import ensemble, errors, registry
from t2t_torch.data.vocabulary_builder import vocab_files_in
from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.predictor import Predictor, RunInfo
from t2t_torch.decode.speech_predictor import SpeechPredictor
from t2t_torch.decode.tree_predictor import TreePredictor
from t2t_torch.features import Features, TreeFeature
from t2t_torch.features.text import meanings, scale_of
from t2t_torch.model import T2TModel
from t2t_torch.problem import Problem
from t2t_torch.run import code, storage, tensors
from t2t_torch.run.adapter import load_adapter
from t2t_torch.run.checkpoint import MODEL, Checkpoint
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.runtime.signature import ADAPTER, FILE, SAFETENSORS, Signature
from t2t_torch.train.multi_model import model_choices, parts_of, whole_model
from t2t_torch.train.random_state import isolated_generators

BEST = "best"
LATEST = "latest"
"""The values that select the best and the newest checkpoint instead of a step."""

NO_CHECKPOINT = (
    "'{}' has no checkpoint yet. t2t-trainer writes the first after --local_eval_frequency steps. "
    "(An adapter alone, as --format=adapter writes it, has none: t2t-decoder reads it.)"
)
_NO_BEST = (
    "'{}' has no best checkpoint, because none was evaluated. Evaluate them with t2t-trainer "
    "--schedule=continuous_eval, or give a step."
)


def load(
    run_dir: str | Path | Sequence[str | Path],
    checkpoint: int | str | Path | None = None,
    *,
    problem: str | None = None,
    hparams: DecodeHParams | None = None,
    device: str | torch.device | None = None,
) -> Predictor | LabelPredictor:
    """Loads a model that `t2t-trainer --output_dir=run_dir` has trained.

    Problem, model, hyperparameters and vocabularies come from the run directory.  A text model is
    returned as a `Predictor`, a model of labels, numbers or spans as a `LabelPredictor`.  Call
    either with a list of inputs; it returns a list of outputs.

    Args:
      run_dir: a run directory.  Several run directories, or `ckpt-<step>` folders in them, are an
        ensemble: the mean of their probabilities, for texts of their log-probabilities
        (`ensemble.py`).
      checkpoint: a step, "best" (the best one by evaluation), or the path of a `ckpt-<step>`
        folder, which may be relative to `run_dir`.  Default: the best of the evaluated ones, or
        the newest if none was evaluated.  If the run keeps averaged weights, those are loaded.
      problem: the problem to load from a run of several problems.
      hparams: decoding settings; default: those of the run.
      device: default: a GPU if there is one, else the CPU.

    Raises:
      ArtifactError: `run_dir` is an exported model that is damaged or has no weights.
      CheckpointError: `run_dir` is no run directory, its vocabulary is missing or damaged, or the
        checkpoint does not exist or is incomplete.
      HParamsError: the beam is too wide for the vocabulary, or the members of an ensemble differ in
        targets or vocabularies.
      UsageError: the run was not trained on `problem`, or it has several and `problem` is None.
    """
    if isinstance(run_dir, str | Path):
        loaded = load_run(run_dir, checkpoint, problem)
    else:
        each = {path: load_member(path, checkpoint, problem) for path in dict.fromkeys(run_dir)}
        loaded = as_one([each[path] for path in run_dir])
    if hparams is None:
        hparams = parse_decode_hparams("", defaults=loaded.info.task.decode_hparams)
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    arguments = loaded.model.to(device), loaded.problem, loaded.features
    features = loaded.features
    if features.is_generative:
        trees = any(isinstance(f, TreeFeature) for f in features.targets.values())
        specs = [feature.input_spec(name, features) for name, feature in features.inputs.items()]
        sounds = any(spec.kind == "audio" for spec in specs)
        kind = TreePredictor if trees else SpeechPredictor if sounds else Predictor
        return kind(*arguments, hparams, loaded.info)
    return LabelPredictor(*arguments, loaded.info)


class Loaded(NamedTuple):
    """A model with its problem, features and run; for an ensemble those of the first member."""

    model: Any
    problem: Problem
    features: Features
    info: RunInfo


def as_one(members: Sequence[Loaded]) -> Loaded:
    """Returns an ensemble of models; see `ensemble.py`.

    Raises:
      HParamsError: `members` is empty, or their targets or vocabularies differ.
    """
    model = ensemble.Ensemble([member.model for member in members])
    for other in members[1:]:
        _check_same_ids(members[0], other)
    return members[0]._replace(model=model)


def load_member(
    path: str | Path, checkpoint: int | str | Path | None = None, problem: str | None = None
) -> Loaded:
    """Loads a member of an ensemble: from a run as `load_run` does, or from `ckpt-<step>`."""
    folder = Path(path).resolve()
    step = storage.step_of(folder)
    if step is None:
        return load_run(path, checkpoint, problem)
    return load_run(folder.parent, step, problem)


def load_run(
    run_dir: str | Path, checkpoint: int | str | Path | None = None, problem: str | None = None
) -> Loaded:
    """Loads the model of a run, or a model exported as weights, on the CPU; see `load`."""
    run = RunDirectory(run_dir)
    folder = run.path.resolve()
    if (number := storage.step_of(folder)) is not None:
        raise errors.CheckpointError(
            f"'{run.path}' is a checkpoint, not a run directory. Give the run directory and the "
            f"step of the checkpoint:  --output_dir={folder.parent} --checkpoint_path={number}"
        )
    if (run.path / FILE).exists():  # before any other file of it is read and misunderstood
        signature = Signature.read(run.path)
        if signature.form in (ADAPTER, SAFETENSORS):
            signature.check_files(run.path)
    task = run.task()
    if not task.problem:
        raise errors.UsageError(
            f"'{run.path}' is a run of the {task.kind_name} {task.trial}; one of a problem was "
            "expected. Others are loaded by t2t_torch.load, t2t-decoder and t2t-eval, and served "
            "by t2t-exporter and then t2t-server --artifact."
        )
    learnt, model_class = registered(run, task)
    hparams = run.hparams(model_class.HParams)
    parts = {part.full_name: part for part in parts_of(learnt)}
    name = _requested_name(run, list(parts), problem)
    _features(run, learnt)
    features = {name: part.features(run.path) for name, part in parts.items()}
    chosen = model_choices(list(parts), model_class, hparams)
    with isolated_generators():  # weights are initialized, then overwritten
        models = {name: kind(own, features[name]) for name, (kind, own) in chosen.items()}
    step = load_checkpoint(whole_model(learnt, models, hparams), run, checkpoint)
    return Loaded(models[name], parts[name], features[name], RunInfo(task, step))


def _requested_name(run: RunDirectory, names: Sequence[str], requested: str | None) -> str:
    """Returns the name of the problem to load, of those that a run has learnt."""
    if requested is None and len(names) == 1:
        return names[0]
    if requested is None:
        raise errors.UsageError(
            f"'{run.path}' is a run of several problems. Choose one with --problem= (in Python "
            f"problem=): {', '.join(names)}."
        )
    if requested not in names:
        raise errors.UsageError(
            f"'{run.path}' is a run of {', '.join(names)}, not of {requested!r}. Leave out "
            f"--problem={requested}, or give another run."
        )
    return requested


def _check_same_ids(first: Loaded, other: Loaded) -> None:
    """Checks that the ids and numbers of two models have the same meaning.

    Raises:
      HParamsError: they do not; names the feature.
    """
    ours, theirs = first.features, other.features
    for role in ("inputs", "targets"):
        own, others = getattr(ours, role), getattr(theirs, role)
        differ = [
            name
            for name in {**own, **others}
            if name not in own
            or name not in others
            or meanings(ours, name) != meanings(theirs, name)
            or own[name].labels != others[name].labels
        ]
        if differ:
            name = differ[0]
            scales = [scale_of(group[name]) if name in group else "" for group in (own, others)]
            scale = f" ({'; '.join(scales)})" if any(scales) else ""
            raise errors.HParamsError(
                f"an ensemble needs runs with the same {role} and vocabularies, but {name!r} "
                f"differs between a run of {first.problem.full_name} and one of "
                f"{other.problem.full_name}{scale}. Train all of them on the same --data_dir."
            )


def _features(run: RunDirectory, problem: Problem) -> Features:
    """Returns the features, read from the run's own vocabularies."""
    try:
        return problem.features(run.path)
    except errors.DataError as error:
        files = vocab_files_in(problem, run.path)
        missing = [name for name in files if not (run.path / name).exists()]
        if not files:
            raise
        # The rest of the message says how to make a vocabulary, which does not help here.
        fault = str(error).partition(". ")[0]
        what = f"is missing: {', '.join(missing)}" if missing else f"is damaged: {fault}"
        raise errors.CheckpointError(
            f"the vocabulary in the run directory '{run.path}' {what}.\n"
            "Copy it from the data_dir this run was trained on (a new vocabulary has other ids):"
            + "".join(f"\n  cp DATA_DIR/{name} {run.path / name}" for name in missing or files)
        ) from error


def load_checkpoint(model: nn.Module, run: RunDirectory, wanted: int | str | Path | None) -> int:
    """Loads a checkpoint into a model.

    Args:
      model: a model of the run.
      run: the run directory, or a model exported as weights.
      wanted: as for `find_checkpoint`; None is the best of the evaluated checkpoints, or the newest
        complete one if none was evaluated.

    Returns:
      The step of the checkpoint.

    Raises:
      ArtifactError: the exported model is damaged or has no weights.
      CheckpointError: the checkpoint does not exist, is damaged, or was deleted by a trainer; the
        weights that an adapter was trained from are missing, or others.
    """

    def read(checkpoint: Checkpoint) -> None:
        # Wherever the checkpoint is from: its ids must be those of this run's vocabularies.
        checkpoint.check_vocabularies(run.path)
        checkpoint.load_model(model, averaged=True)

    if (run.path / FILE).exists():
        return _load_exported(model, run, wanted)
    directory = CheckpointDirectory(run.path)
    if wanted is None or wanted == LATEST:
        known = directory.read_best(read) if wanted is None else directory.read_newest(read)
        if known is None:
            raise errors.CheckpointError(NO_CHECKPOINT.format(run.path))
        return known.step
    chosen = find_checkpoint(run, wanted)
    directory = CheckpointDirectory(chosen.path.parent)
    if directory.deleted_during(read, chosen):
        raise errors.CheckpointError(
            f"'{chosen.path}' was deleted while it was read. Decode another of "
            f"{[one.step for one in directory.list()]} (--checkpoint_path)."
        )
    return chosen.step


def _load_exported(model: nn.Module, run: RunDirectory, wanted: int | str | Path | None) -> int:
    """Loads a model exported as weights; returns its step."""
    signature = Signature.read(run.path)
    if signature.form not in (ADAPTER, SAFETENSORS):
        raise errors.ArtifactError(
            f"'{run.path}' is a model exported as {signature.form}, not a run directory. Load it "
            "with t2t_torch.load, or give the run directory."
        )
    if wanted is not None:
        raise errors.UsageError(
            f"'{run.path}' is an exported model of step {signature.step} and has no checkpoint "
            f"{wanted}. Leave out the checkpoint, or give the run directory."
        )
    signature.check_files(run.path)
    if signature.form == ADAPTER:
        load_adapter(model, run.path)
    else:
        tensors.load_weights(model, run.path / MODEL)
    return signature.step


def find_checkpoint(run: RunDirectory, wanted: int | str | Path) -> Checkpoint:
    """Finds and verifies a checkpoint.

    Args:
      run: the run directory that a step, "best" or "latest" refers to.
      wanted: a step, "best", "latest", or the path of a `ckpt-<step>` folder, which may be relative
        to the run directory.

    Raises:
      CheckpointError: the checkpoint does not exist or is damaged.
    """
    path, directory = Path(str(wanted)), CheckpointDirectory(run.path)
    if str(wanted) in (BEST, LATEST):
        is_best = str(wanted) == BEST
        if found := directory.best() if is_best else directory.newest():
            return found
        raise errors.CheckpointError((_NO_BEST if is_best else NO_CHECKPOINT).format(run.path))
    if str(wanted).isdecimal():
        return directory.at(int(path.name))
    if not path.exists() and (len(path.parts) == 1 or (run.path / path).exists()):
        path = run.path / path
    path = path.resolve()
    match = re.fullmatch(r"ckpt-(\d+)", path.name)
    if match is None:
        raise errors.CheckpointError(
            f"'{path}' is not a checkpoint. Expected a step, '{BEST}', '{LATEST}' or a "
            "ckpt-<step> folder."
        )
    return CheckpointDirectory(path.parent).at(int(match[1]))


def registered(run: RunDirectory, task: TaskRecord) -> tuple[Problem, type[T2TModel]]:
    """Returns the problem and the model of a run, also from its code and declarations.

    Raises:
      CheckpointError: a folder that defined the problem or the model is missing.
      RegistryError: the problem or the model is not registered.
      UsageError: a folder comes with the run, and the run is not trusted.
    """
    code.open_code(run.path, task)
    try:
        return registry.problem(task.problem), registry.model(task.model)
    except errors.RegistryError as error:
        missing = [folder for folder in task.usr_dirs if not Path(folder).is_dir()]
        if not missing:
            raise
        raise errors.CheckpointError(
            f"'{run.path}' was trained with --t2t_usr_dir={missing[0]}, which is missing: {error} "
            "Give its new path with --t2t_usr_dir (in Python registry.import_usr_dir)."
        ) from error
