"""Import of tensor2tensor's runs.

`read` reads a run directory for `importer.py`; `tensor2tensor_weights/` converts hyperparameters
and variables of each model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.data.import_tfrecords import vocabulary_contents
from t2t_torch.errors import DataError, UsageError
from t2t_torch.files import read_bytes, read_text
from t2t_torch.hparam import HParams
from t2t_torch.interop.huggingface import read_json
from t2t_torch.interop.importer import ImportedRun, class_names, declaration_of
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.tensor2tensor_weights import (
    FAMILIES,
    Array,
    convert_hparams,
    convert_weights,
    is_training_state,
)
from t2t_torch.interop.tensorflow_checkpoint import TensorFlowCheckpoint, find_checkpoint, step_of
from t2t_torch.problem import Problem

_ADAM = {"Adam": "exp_avg", "Adam_1": "exp_avg_sq"}  # slots by tensor2tensor's names
_ADAMS = ("adam", "true_adam", "multistep_adam")
_LEGACY = "Set the registered name of the model with --model, one of "


OPTIONS = frozenset(
    "checkpoint data_dir decode_hparams hparams hparams_set labels model problem".split()
)


def detect(source: Path) -> bool:
    """Returns True if a folder has TensorFlow checkpoints and tensor2tensor's flags or hparams."""
    named = any((source / name).exists() for name in ("flags_t2t.txt", "flags.txt"))
    has_index = any(source.glob("*.ckpt-*.index"))
    return has_index and (named or (source / "hparams.json").exists())


def read(source: Path, settings: ImportSettings) -> ImportedRun:
    """Returns a run of tensor2tensor.

    Model, problem and hyperparameters come from `flags*.txt` and `hparams.json`; vocabularies from
    the data directory.  A problem that is registered here is used, any other is declared: text to
    text, a language model, or text to class with `labels`.

    Args:
      source: run directory (`--output_dir` of `t2t-trainer`, or of `t2t-avg-all`).
      settings: settings of the import.

    Raises:
      CheckpointError: the checkpoint is damaged, or its variables are not those of the model.
      DataError: a vocabulary is missing.
      HParamsError: the model computes something that this library does not.
      UsageError: model or problem are unknown; the message names the option to give.
    """
    flags = _flags_of(source)
    model = settings.model or flags.get("model", "")
    if model not in FAMILIES:
        fault = f"{source} has no flags_t2t.txt, which names the model"
        if model:
            fault = f"tensor2tensor's model {model!r} cannot be imported"
        raise UsageError(f"{fault}. {_LEGACY}{', '.join(FAMILIES)}.")
    values = _hparams_of(source, flags, settings)
    checkpoint = TensorFlowCheckpoint(find_checkpoint(source, settings.checkpoint))
    names = (name for name in checkpoint.tensors if not is_training_state(name))
    variables = {name: checkpoint.read(name) for name in names}
    hparams = convert_hparams(model, values, variables)
    weights = convert_weights(model, variables)
    if not _has_inputs(variables):  # a shared table of a language model
        weights.pop("modalities.inputs.bottom.weight", None)
    slots = _slots_of(checkpoint, model, hparams, weights)
    top, bottom = "modalities.targets.top.weight", "modalities.targets.bottom.weight"
    if getattr(hparams, "shared_embedding_and_softmax_weights", False) and bottom in weights:
        weights = {**weights, top: weights[bottom]}
    problem, declaration, vocabularies = _declared(source, flags, settings, variables)
    step = int(checkpoint.read("global_step")) if "global_step" in checkpoint.tensors else 0
    return ImportedRun(
        library="tensor2tensor",
        problem=problem,
        model=model,
        hparams=hparams,
        weights=weights,
        declaration=declaration,
        vocabularies=vocabularies,
        step=step or max(0, step_of(checkpoint.prefix.name)),
        train_steps=int(flags.get("train_steps", "0") or 0),
        slots=slots,
        if_outputs_differ=_if_outputs_differ(declaration, settings),
    )


def _flags_of(source: Path) -> dict[str, str]:
    """Returns the flags that `t2t-trainer` has written, by name."""
    flags: dict[str, str] = {}
    for name in ("flags.txt", "flags_t2t.txt"):
        try:
            lines = read_text(source / name, errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            flag, _, value = line.strip().removeprefix("--").partition("=")
            if value and value != "None":
                flags[flag] = value
    return flags


def _hparams_of(source: Path, flags: Mapping[str, str], settings: ImportSettings) -> dict[str, Any]:
    """Returns the hyperparameters by tensor2tensor's names, without those of its training loop.

    They are those of `hparams.json`; without it, as in a folder of an averaged checkpoint, those of
    the registered set, with the changes of the flags.
    """
    path, changes = source / "hparams.json", dict(_assignments(settings.hparams))
    if settings.hparams_set or not path.exists():
        of_flags = "" if settings.hparams_set else flags.get("hparams", "")
        values = _values_of_set(source, flags, settings.hparams_set)
        return values | dict(_assignments(of_flags)) | changes
    values = read_json(path)
    values = dict(values.get("values", values))
    for name in changes.keys() - values.keys():
        raise UsageError(f"--hparams={name}: {path.name} has no {name!r}.")
    return values | changes


def _values_of_set(source: Path, flags: Mapping[str, str], given: str) -> dict[str, Any]:
    """Returns the values of the set of a run.

    Args:
      source: run directory.
      flags: flags of the old run, which name its set.
      given: name of the set; "": that of the flags.
    """
    name = given or flags.get("hparams_set", "")
    if not name:
        raise UsageError(
            f"{source} has no hparams.json, and no flags that name a set. Copy hparams.json from "
            "the folder of the training, or name the set: --hparams_set=NAME."
        )
    if name not in registry.list_names("hparams"):
        raise UsageError(
            f"there is no set {name!r} here, and {source} has no hparams.json. Copy hparams.json "
            "from the folder of the training; or give --t2t_usr_dir if the set is yours; or name a "
            "set like it, and what differs:  --hparams_set=transformer_base --hparams=..."
        )
    made = registry.hparams(name)
    values = {field: getattr(made, field) for field in type(made).model_fields}
    return values | {"loss": {}}  # a name here, functions by target there


def _assignments(text: str) -> Iterator[tuple[str, Any]]:
    """Yields name and value of each item of "name=value,name=[1,2]"."""
    for item in filter(None, re.split(r",(?![^\[]*\])", text)):
        name, is_set, value = item.partition("=")
        if not is_set:
            raise UsageError(f"--hparams={item}: expected name=value,name=value.")
        try:
            yield name.strip(), json.loads(_WORDS.get(value, value))
        except ValueError:
            yield name.strip(), value


_WORDS = {"True": "true", "False": "false", "None": "null"}


def _slots_of(
    checkpoint: TensorFlowCheckpoint, model: str, hparams: HParams, weights: Mapping[str, Tensor]
) -> dict[str, dict[str, Tensor | int | float]] | None:
    """Returns Adam's moments by our names; None if the checkpoint has none, as an average."""
    if hparams.optimizer not in _ADAMS or "global_step" not in checkpoint.tensors:
        return None
    steps = torch.tensor(float(checkpoint.read("global_step")))
    if not steps:  # tensor2tensor's avg_checkpoints keeps moments and forgets their step
        return None
    slots: dict[str, dict[str, Tensor | int | float]] = {}
    for theirs, ours in _ADAM.items():
        pattern = re.compile(rf"training/(.+)/{theirs}")
        found = {
            match[1]: checkpoint.read(name)
            for name in checkpoint.tensors
            if (match := pattern.fullmatch(name))
        }
        if not found:
            return None
        for name, moment in convert_weights(model, found).items():
            slots.setdefault(name, {"step": steps.clone()})[ours] = moment
    complete = {name for name, one in slots.items() if len(one) == 1 + len(_ADAM)}
    return slots if complete >= weights.keys() else None


def _declared(
    source: Path, flags: Mapping[str, str], settings: ImportSettings, variables: Mapping[str, Array]
) -> tuple[str, dict[str, Any] | None, dict[str, bytes]]:
    """Returns the name of the problem of a run, with `_rev` and `_copy`; its declaration, None if
    it is registered; and the contents of its vocabulary files by name.
    """
    full = settings.problem or flags.get("problem", "")
    if not full:
        raise UsageError(f"{source} has no flags_t2t.txt, which names the problem: give --problem.")
    name = registry.parse_problem_name(full).base_name
    tops = (re.search(r"class_label_modality_(\d+)_\d+/dense/bias$", one) for one in variables)
    classes = next((int(top[1]) for top in tops if top), 0)  # 0 of other models
    folders = _data_folders(source, flags, settings)
    if name in registry.list_names("problem"):
        return full, None, _vocabularies(registry.problem(full), folders, classes, settings)
    vocabulary = _vocabulary(flags.get("problem", name), folders)
    content = {vocabulary.name: read_bytes(vocabulary)}
    kind, texts, more = "text2self", ["targets"], dict[str, Any]()
    if classes:
        kind, texts, more = "text2class", ["inputs"], {"labels": class_names(classes, settings)}
    elif any("/reg_top_ffn/" in one for one in variables):
        kind, texts = "text2real", ["inputs"]
    elif _has_inputs(variables):
        kind, texts = "text2text", ["inputs", "targets"]
        more["files"] = {
            split: {field: f"{name}-{split}.{field}" for field in texts}
            for split in ("train", "eval")
        }
    declaration = declaration_of(name, kind, dict.fromkeys(texts, vocabulary.name), **more)
    return full, declaration, content


def _has_inputs(variables: Mapping[str, Array]) -> bool:
    """Returns True if a model has read inputs."""
    return any(re.search(r"/encoder/|/input_emb/", one) for one in variables)


def _vocabularies(
    problem: Problem, folders: Sequence[Path], classes: int, settings: ImportSettings
) -> dict[str, bytes]:
    """Returns the vocabulary files of a registered problem by name.

    The names of classes are those of the problem, or of `labels`.
    """
    files, missing = vocabulary_contents(problem, folders)
    for file in [file for file in problem.vocab_files if file.startswith("labels.")]:
        if settings.labels:
            names = class_names(classes, settings)
            content = "".join(f"{name}\n" for name in names).encode()
            if files.setdefault(file, content) != content:
                raise UsageError(
                    f"--labels={','.join(names)}: the problem {problem.name!r} has the classes "
                    f"{','.join(files[file].decode().splitlines())}. Leave --labels out."
                )
    if lost := [file for file in missing if file not in files]:
        raise _no_vocabulary(lost[0], folders)
    return files


def _if_outputs_differ(declaration: dict[str, Any] | None, settings: ImportSettings) -> str:
    """Returns what to do if outputs differ: classes without names are decoded as numbers."""
    if settings.labels or "labels" not in (declaration or {}):
        return ""
    return (
        "The classes have no names yet and are decoded as numbers: name them with --labels=a,b,c, "
        "in the order of their numbers, or give the problem's --t2t_usr_dir. "
    )


def _data_folders(
    source: Path, flags: Mapping[str, str], settings: ImportSettings
) -> tuple[Path, ...]:
    """Returns the folders where vocabularies may be."""
    if settings.data_folder is not None:
        if not settings.data_folder.is_dir():
            raise UsageError(f"--data_dir={settings.data_dir} is not a directory.")
        return (settings.data_folder,)
    given = Path(flags.get("data_dir", "data")).expanduser()
    places = [source, given, source / given, *(one / given for one in list(source.parents)[:2])]
    return tuple(dict.fromkeys(one for one in places if one.is_dir()))


def _vocabulary(problem: str, folders: Sequence[Path]) -> Path:
    """Returns the vocabulary file of a problem that is not registered, `vocab.<problem>.*`."""
    base = registry.parse_problem_name(problem).base_name
    for folder in folders:
        own = sorted(folder.glob(f"vocab.{base}.*")) or sorted(folder.glob("vocab.*"))
        if len(own) == 1:
            return own[0]
        if own:
            names = ", ".join(path.name for path in own)
            raise DataError(
                f"{folder} has several vocabularies: {names}. Copy the one of {base!r} into a "
                "folder of its own and give it as --data_dir."
            )
    raise _no_vocabulary(f"vocab.{base}.*", folders)


def _no_vocabulary(file: str, folders: Sequence[Path]) -> DataError:
    places = ", ".join(map(str, folders)) or "no folder"
    mend = "Give the old run's data directory: --data_dir."
    if file.startswith("labels."):
        mend = "tensor2tensor keeps no such file: name the classes with --labels=a,b,c."
    return DataError(f"the vocabulary {file} is not in {places}. {mend}")
