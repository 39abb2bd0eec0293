"""The JSON file of `--config`: any flag of a command, and hyperparameters as an object.

    {"problem": "translate_multi30k_ende", "model": "transformer", "train_steps": 10000,
     "hparams_set": "transformer_small", "hparams": {"hidden_size": 512}}

The problem may be a declaration, with paths relative to the file's folder; it is written into
`--data_dir`.  All commands can share one file: the flags of a single command are in an object with
its name, and a command leaves shared flags that it does not have out:

    {"problem": {"problem": "reviews", "kind": "text2class", "files": {"train": "reviews.csv"}},
     "model": "text_cnn", "hparams_set": "text_cnn_base", "data_dir": "data", "output_dir": "run",
     "trainer": {"train_epochs": 10}, "exporter": {"export_dir": "artifact"}}

Flags of the command line win.  Every run of `t2t-trainer` writes the file that reproduces it,
`config.json`, which also has the keys `version`, `processes` and `data_dir_from_run`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

import t2t_torch
from t2t_torch.errors import CheckpointError, HParamsError, UsageError, did_you_mean
from t2t_torch.files import RepeatedKeyError, read_json, unique_keys

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


NAME = "config.json"
"""What a run calls its own."""

OBJECTS = frozenset({"hparams", "decode_hparams"})
"""Flags that may be objects in the file."""

COMMANDS = ("datagen", "trainer", "eval", "decoder", "exporter", "server", "tuner")
"""Names of objects with the flags of one command."""

_MADE_WITH = ("version", "processes")
DATA_FROM_RUN = "data_dir_from_run"
"""Key of the data directory as seen from the run directory, for a folder that has both."""

_ABOUT = (*_MADE_WITH, DATA_FROM_RUN)
_NOT_KEPT = frozenset(
    """
    autotune_max_trials autotune_maximize autotune_objective autotune_parallel_trials config
    config_schema dry_run generate_data help_hparams hp hparams hparams_range output_dir
    pause_at_step print_config registry_help resume_data test_mode teacher tmp_dir trust_code
    verbosity verify_data
    """.split()
)
_ENDS = ("train_steps", "train_epochs")


def expanded(values: flags.FlagValues, arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with those of the `--config` file first; given arguments win.

    A YAML file, or the file of a `--trial`, describes an experiment and is not expanded.

    Raises:
      UsageError: the file cannot be read, a key is not a flag, or a value has the wrong type.
    """
    known = list(arguments)
    file = _value_of("config", known)
    if not file or _value_of("trial", known) or file.endswith((".yaml", ".yml")):
        return known
    read = RunJson.read(Path(file).expanduser(), values)
    # A list is added to, not replaced, by absl: what is given replaces it as other flags do.
    given = {word.lstrip("-").partition("=")[0] for word in known if word.startswith("-")}
    for one, other in (_ENDS, _ENDS[::-1]):
        if _value_of(one, known) not in ("", "0"):
            given.add(other)  # where the run ends is said in one way or the other
    words = dict(read.words)
    if read.declaration is not None and "problem" not in given:
        values.__dict__["declaration"] = read.declaration
    if "hp" not in values and read.hparams:  # `t2t-trainer` applies the object itself
        words["hparams"] = [f"--hparams={pairs(read.hparams)}"]
    return [*(word for name, ws in words.items() if name not in given for word in ws), *known]


def _value_of(name: str, arguments: Sequence[str]) -> str:
    """Returns the value of the last `--name=value` or `--name value`; "" if there is none."""
    value = ""
    for index, word in enumerate(arguments):
        bare = word.lstrip("-") if word.startswith("-") else ""
        if bare.startswith(f"{name}="):
            value = bare.partition("=")[2]
        elif bare == name and index + 1 < len(arguments):
            value = arguments[index + 1]
    return value


class RunJson:
    """Checked contents of a file of flags and hyperparameters.

    Attributes:
      words: command-line arguments of each flag.
      hparams: hyperparameters, if they are an object.
      declaration: declaration of the problem, if it is an object.

    Args:
      path: path of the file, for messages.
      content: contents of the file.
      values: the flags of the command.

    Raises:
      UsageError: a key is not a flag, or a value has the wrong type; all are reported.
    """

    def __init__(self, path: Path, content: Mapping[str, Any], values: flags.FlagValues) -> None:
        self.path = path
        self.words: dict[str, list[str]] = {}
        self.hparams: dict[str, Any] = {}
        self.declaration: dict[str, Any] | None = None
        faults = []
        for name, value in _of_command(content, values).items():
            if name == "hparams" and name in values and isinstance(value, dict):
                self.hparams = value
            elif name == "problem" and name in values and isinstance(value, dict):
                self.declaration = _located(value, path.absolute().parent)
                self.words[name] = [f"--problem={value.get('problem', '')}"]
            elif name in _ABOUT:
                continue
            elif name in ("config", "config_schema"):
                faults.append(_unknown(name, values))
            elif name not in values:
                if name not in content or name not in values.__dict__["shared"]:
                    faults.append(_unknown(name, values))
            else:
                words = _words(values[name], name, value)
                if words is None:
                    faults.append(f"{name}: {json.dumps(value)} should be {_kind(values[name])}.")
                else:
                    self.words[name] = words
        if faults:
            raise UsageError("\n".join(f"{path}: {fault}" for fault in faults))
        self._about = {name: content[name] for name in _MADE_WITH if name in content}

    @classmethod
    def read(cls, path: Path, values: flags.FlagValues) -> RunJson:
        """Reads a file.

        Raises:
          UsageError: as the class; or the file does not exist, or is not a JSON object.
        """
        return cls(path, _content(path), values)

    def applied(self, hparams: HParams) -> HParams:
        """Returns hparams changed by the file; only changed fields get it as their source.

        Raises:
          UsageError: a name is unknown, or a value has the wrong type.
        """
        changes = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.hparams.items()
            if name != "provenance"
        }
        fields = type(hparams).model_fields
        changes = {
            name: value
            for name, value in changes.items()
            if name not in fields or not _same(getattr(hparams, name), value)
        }
        unread = [name for name in changes if hparams.leaves_out(name, changes[name])]
        hparams.note_unread(unread, self.path.name)
        changes = {name: value for name, value in changes.items() if name not in unread}
        try:
            return hparams.replace(**changes).signed(self.path.name) if changes else hparams
        except HParamsError as error:
            raise UsageError(f"{self.path}: hparams: {error}") from None

    def warn(self, processes: int) -> None:
        """Warns on stderr if the file is of another version or number of processes."""
        here = {"version": t2t_torch.__version__, "processes": processes}
        for name, value in self._about.items():
            if value != here[name]:
                print(
                    f"warning: {self.path} is of {name} {value}, here it is {here[name]}: the "
                    "result may be another one",
                    file=sys.stderr,
                )


def _of_command(content: Mapping[str, Any], values: flags.FlagValues) -> dict[str, Any]:
    """Returns the keys for a command, with those of its own object."""
    sections = {
        name: value
        for name, value in content.items()
        if name in COMMANDS and isinstance(value, dict)
    }
    own = sections.get(values.__dict__["command"].removeprefix("t2t-"), {})
    return {**{key: value for key, value in content.items() if key not in sections}, **own}


def _located(declaration: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Returns a declaration with the paths of its files, and of its problems, from a folder."""
    from t2t_torch.declaration.problem import located

    found = dict(declaration)
    if "files" in found:
        found["files"] = located(found["files"], folder)
    if isinstance(found.get("problems"), list):
        found["problems"] = [
            _located(one, folder) if isinstance(one, Mapping) else one for one in found["problems"]
        ]
    return found


def content_of(
    values: flags.FlagValues, hparams: HParams, known: Mapping[str, Any], *, processes: int
) -> dict[str, Any]:
    """Returns the JSON that reproduces a run, without `--output_dir`.

    Args:
      values: the flags.
      hparams: resolved hyperparameters.
      known: values that replace those of flags; None leaves a flag out.
      processes: number of training processes.
    """
    content: dict[str, Any] = {"version": t2t_torch.__version__, "processes": processes}
    for name in values:
        value = known.get(name, values[name].value)
        if name in _NOT_KEPT or value in (None, "", []):
            continue
        is_path = values[name].parser.flag_type() == "path"
        content[name] = str(Path(value).absolute()) if is_path else value
    if content.get("data_dir") and values["output_dir"].value:
        content[DATA_FROM_RUN] = os.path.relpath(content["data_dir"], values["output_dir"].value)
    content["hparams"] = hparams.model_dump(mode="json")
    return content


def written(content: Mapping[str, Any]) -> str:
    """Returns the text of the file."""
    return json.dumps(content, indent=2) + "\n"


def remembered(directory: Path, names: Iterable[str], values: flags.FlagValues) -> dict[str, Any]:
    """Returns the recorded values of some flags of a run; older versions record fewer.

    Raises:
      CheckpointError: the file is not a JSON object, or a value has the wrong type.
    """
    path = directory / NAME
    if not path.exists():
        return {}
    try:
        from t2t_torch.train import run_directory

        with contextlib.suppress(OSError):  # `_content` says what is wrong
            run_directory.read_checked(directory, NAME)
        content = _content(path)
        recorded = {name: content[name] for name in names if name in content}
        RunJson(path, recorded, values)  # checks them
    except UsageError as error:
        raise CheckpointError(
            f"{error}\n{run_directory.how_to_restore(directory, NAME)}\nOr delete it and give the "
            "flags again that are not the defaults: it remembers how the run is evaluated and "
            "saved."
        ) from error
    return recorded


def argument(values: flags.FlagValues, name: str, value: Any) -> str:
    """Returns the command-line argument for a JSON value of a flag."""
    return " ".join(_words(values[name], name, value) or ())


def _content(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path, object_pairs_hook=unique_keys)
    except RepeatedKeyError as error:
        raise UsageError(f"{path} says {error.args[0]} twice.") from None
    except FileNotFoundError:
        raise UsageError(f"--config={path}: there is no such file.") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}. A JSON file was expected, such as the "
            f"{NAME} of a run."
        ) from None
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(
            f'{path} should be a JSON object of flags, like {{"problem": "...", "hparams": '
            f'{{"batch_size": 1024}}}}, not {type(content).__name__}.'
        )
    return content


def _unknown(name: str, values: flags.FlagValues) -> str:
    from t2t_torch.hparam import HParams

    if "hparams" in values and name in HParams.model_fields:
        return f'{name!r} is a hyperparameter: write it as "hparams": {{"{name}": ...}}.'
    return f"unknown flag {name!r}.{did_you_mean(name, values)} All flags: --help"


def _kind(flag: flags.Flag[Any]) -> str:
    """Returns the JSON type of a flag, for messages."""
    if flag.name in OBJECTS:
        return 'an object, {"name": value}, or a string, "name=value,..."'
    if _is_repeated(flag) or isinstance(flag.parser, flags.ListParser):
        return "a list of strings"
    if flag.boolean:
        return "true or false"
    kinds = {"int": "an integer", "float": "a number"}
    return kinds.get(flag.parser.flag_type(), "a string")


def pairs(values: Mapping[str, Any]) -> str:
    """Formats an object as the value of a flag of `OBJECTS`: name=value,..."""
    from t2t_torch.params import value_text

    return ",".join(f"{name}={value_text(value)}" for name, value in values.items())


def _is_repeated(flag: flags.Flag[Any]) -> bool:
    return isinstance(flag, flags.MultiFlag)


def _words(flag: flags.Flag[Any], name: str, value: Any) -> list[str] | None:
    """Returns the arguments for a JSON value; None if it has the wrong type."""
    if value is None:
        return [] if flag.default is None else None
    kind = _kind(flag)
    if name in OBJECTS and isinstance(value, dict):
        return [f"--{name}={pairs(value)}"]
    if kind == "a list of strings":
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return None
        items = value if _is_repeated(flag) else [",".join(value)]
        return [f"--{name}={item}" for item in items]
    if isinstance(value, bool):
        return [f"--{name}={str(value).lower()}"] if flag.boolean else None
    kinds: dict[str, Any] = {"an integer": int, "a number": (int, float), "true or false": bool}
    return [f"--{name}={value}"] if isinstance(value, kinds.get(kind, str)) else None


def _same(ours: Any, value: Any) -> bool:
    """Returns True if a value equals that of a field; true does not equal 1."""
    return bool(ours == value) and isinstance(ours, bool) == isinstance(value, bool)
