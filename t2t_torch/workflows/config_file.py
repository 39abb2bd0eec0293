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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import t2t_torch
from t2t_torch import errors, files, reporter
from t2t_torch.remote import is_url, resolve, url_of
from t2t_torch.settings import Setting, Settings

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


NAME = "config.json"
"""What a run calls its own."""

OBJECTS = frozenset({"hparams", "decode_hparams"})
"""Settings that may be objects in the file."""

COMMANDS = ("datagen", "trainer", "eval", "decoder", "exporter", "server", "tuner")
"""Names of objects with the flags of one command."""

SHARED = frozenset(
    """
    problem model hparams_set hparams data_dir tmp_dir output_dir eval_metrics random_seed
    verify_data t2t_usr_dir trust_code registry_help verbosity
    """.split()
)
"""Settings that a command leaves out if it does not have them, as they may be another's."""

_LARGEST = 2**31 - 1
_LARGEST_SEED = 2**63 - 1
_MADE_WITH = ("version", "processes")
_DATA_FROM_RUN = "data_dir_from_run"  # as seen from the run directory, for a folder that has both
_ABOUT = (*_MADE_WITH, _DATA_FROM_RUN)
_NOT_IN_FILE = ("config", "config_schema")
_NOT_KEPT = frozenset(
    """
    autotune_max_trials autotune_maximize autotune_objective autotune_parallel_trials config
    dry_run eval_split generate_data help_hparams hp hparams hparams_range output_dir
    pause_at_step print_config resume_data test_mode teacher tmp_dir trust_code verify_data
    """.split()
)


class ConfigFile:
    """Checked contents of a file of settings and hyperparameters.

    Attributes:
      path: path of the file, for messages.
      values: values of the settings.
      hparams: hyperparameters, if they are an object.
      declaration: declaration of the problem, if it is an object.

    Args:
      path: path of the file.
      content: contents of the file.
      kind: class of the settings.
      command: name of the command, whose own object in the file counts.

    Raises:
      UsageError: a key is not a setting, or a value has the wrong type; all are reported.
    """

    def __init__(
        self, path: Path, content: Mapping[str, Any], kind: type[Settings], command: str = ""
    ) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.hparams: dict[str, Any] = {}
        self.declaration: dict[str, Any] | None = None
        declared = {name.rstrip("_"): (name, field) for name, field in kind.declared().items()}
        fields = {name: one for name, one in declared.items() if name not in _NOT_IN_FILE}
        faults = []
        for name, value in _of_command(content, command).items():
            if name in _ABOUT:
                continue
            if name not in fields:
                if name not in content or name not in SHARED:
                    faults.append(_unknown(name, fields))
            elif name == "hparams" and isinstance(value, dict):
                self.hparams = value
            elif name == "problem" and isinstance(value, dict):
                self.declaration = _located(value, path.absolute().parent)
                self.values["problem"] = str(value.get("problem", ""))
            else:
                own, field = fields[name]
                plain = plain_value(name, field, value)
                if fault := _fault(name, field, plain):
                    faults.append(f"{name}: {json.dumps(value)} {fault}.")
                elif plain is not None:
                    self.values[own] = plain
        if faults:
            raise errors.UsageError("\n".join(f"{path}: {fault}" for fault in faults))
        self._about = {name: content[name] for name in _MADE_WITH if name in content}

    @classmethod
    def read(cls, path: Path, kind: type[Settings], command: str = "") -> ConfigFile:
        """Reads a file.

        Raises:
          UsageError: as the class; or the file does not exist, or is not a JSON object.
        """
        return cls(path, _content(path), kind, command)

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
            # true does not equal 1.
            if name not in fields
            or (own := getattr(hparams, name)) != value
            or isinstance(own, bool) != isinstance(value, bool)
        }
        unread = [name for name in changes if hparams.leaves_out(name, changes[name])]
        hparams.note_unread(unread, self.path.name)
        changes = {name: value for name, value in changes.items() if name not in unread}
        try:
            return hparams.replace(**changes).signed(self.path.name) if changes else hparams
        except errors.HParamsError as error:
            raise errors.UsageError(f"{self.path}: hparams: {error}") from None

    def warn(self, processes: int) -> None:
        """Warns if the file is of another version or number of processes."""
        here = {"version": t2t_torch.__version__, "processes": processes}
        for name, value in self._about.items():
            if value != here[name]:
                reporter.message(
                    f"warning: {self.path} is of {name} {value}, here it is {here[name]}: the "
                    "result may be another one"
                )


_ENDS = ("train_steps", "train_epochs")
"""Settings of which a given one replaces the other in a file."""


def with_file(
    given: Mapping[str, Any], kind: type[Settings], command: str
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns values with those of their `config` file, which given ones replace.

    YAML, or the file of a trial, describes an experiment and is not read.

    Args:
      given: values by name, without a trailing `_`.
      kind: class of the settings.
      command: name of the command.

    Returns:
      The values, and the declaration of a problem in the file.

    Raises:
      UsageError: the file cannot be read, a key is not a setting, or a value has the wrong type.
    """
    file = given.get("config")
    if not file or given.get("trial") or str(file).endswith((".yaml", ".yml")):
        return dict(given), None
    read = ConfigFile.read(resolve(file), kind, command)
    known = {name.rstrip("_"): value for name, value in read.values.items()}
    for one, other in (_ENDS, _ENDS[::-1]):
        if given.get(one):  # where the run ends is said in one way or the other
            known.pop(other, None)
    if read.hparams and "hp_" not in kind.declared():  # a training applies the object itself
        known["hparams"] = pairs(read.hparams)
    declaration = None if given.get("problem") else read.declaration
    return {**known, **given}, declaration


def _of_command(content: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Returns the keys for a command, with those of its own object."""
    sections = {
        name: value
        for name, value in content.items()
        if name in COMMANDS and isinstance(value, dict)
    }
    own = sections.get(command.removeprefix("t2t-"), {})
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
    settings: Settings, hparams: HParams, known: Mapping[str, Any], *, processes: int
) -> dict[str, Any]:
    """Returns the JSON that reproduces a run, without `output_dir`.

    Args:
      settings: the settings; with the field `output_dir`.
      hparams: resolved hyperparameters.
      known: values that replace those of settings; None leaves a setting out.
      processes: number of training processes.
    """
    content: dict[str, Any] = {"version": t2t_torch.__version__, "processes": processes}
    for own, field in settings.declared().items():
        name = own.rstrip("_")
        value = known.get(name, getattr(settings, own))
        if name in _NOT_KEPT or value in (None, "", [], ()):
            continue
        if field.path and field.is_list:
            value = [url_of(one) or one for one in value]
        elif field.path:
            value = url_of(value) or str(Path(value).absolute())
        content[name] = value
    output_dir: str | None = getattr(settings, "output_dir", None)
    if content.get("data_dir") and output_dir and not is_url(content["data_dir"]):
        content[_DATA_FROM_RUN] = os.path.relpath(content["data_dir"], output_dir)
    content["hparams"] = hparams.model_dump(mode="json")
    return content


def written(content: Mapping[str, Any]) -> str:
    """Returns the text of the file."""
    return json.dumps(content, indent=2) + "\n"


def remembered(directory: Path, names: Iterable[str], kind: type[Settings]) -> dict[str, Any]:
    """Returns the recorded values of some settings of a run; older versions record fewer.

    Raises:
      CheckpointError: the file is not a JSON object, or a value has the wrong type.
    """
    recorded = _recorded(directory)
    try:
        some = {name: recorded[name] for name in names if name in recorded}
        return ConfigFile(directory / NAME, some, kind).values
    except errors.UsageError as error:
        raise _damaged(directory, error) from error


def recorded_data_dir(directory: Path) -> str | None:
    """Returns the data directory that a run records; where it is now, if moved with the run.

    Raises:
      CheckpointError: the file is not a JSON object.
    """
    recorded = _recorded(directory)
    known, seen = recorded.get("data_dir"), recorded.get(_DATA_FROM_RUN)
    for name, value in (("data_dir", known), (_DATA_FROM_RUN, seen)):
        if not isinstance(value, str | None):
            fault = errors.UsageError(f"{directory / NAME}: {name}: {value!r} should be a string.")
            raise _damaged(directory, fault)
    if known and is_url(known):
        return str(resolve(known))
    if known and seen and not Path(known).is_dir() and (directory / seen).is_dir():
        return str((directory / seen).resolve())
    return known


def _recorded(directory: Path) -> dict[str, Any]:
    from t2t_torch.run.checksums import read_checked

    path = directory / NAME
    if not path.exists():
        return {}
    with contextlib.suppress(OSError):  # `_content` says what is wrong
        read_checked(directory, NAME)
    try:
        return _content(path)
    except errors.UsageError as error:
        raise _damaged(directory, error) from error


def _damaged(directory: Path, error: errors.UsageError) -> errors.CheckpointError:
    from t2t_torch.run.checksums import how_to_restore

    return errors.CheckpointError(
        f"{error}\n{how_to_restore(directory, NAME)}\nOr delete it and give the "
        "flags again that are not the defaults: it remembers how the run is evaluated and "
        "saved."
    )


def _content(path: Path) -> dict[str, Any]:
    try:
        content = files.read_json(path, object_pairs_hook=files.unique_keys)
    except files.RepeatedKeyError as error:
        raise errors.UsageError(f"{path} says {error.args[0]} twice.") from None
    except FileNotFoundError:
        raise errors.UsageError(f"--config={path}: there is no such file.") from None
    except OSError as error:
        raise errors.UsageError(
            f"{path} cannot be read: {error.strerror}. A JSON file was expected, such as the "
            f"{NAME} of a run."
        ) from None
    except ValueError as error:
        raise errors.UsageError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise errors.UsageError(
            f'{path} should be a JSON object of flags, like {{"problem": "...", "hparams": '
            f'{{"batch_size": 1024}}}}, not {type(content).__name__}.'
        )
    return content


def _unknown(name: str, known: Iterable[str]) -> str:
    from t2t_torch.hparam import HParams

    if "hparams" in known and name in HParams.model_fields:
        return f'{name!r} is a hyperparameter: write it as "hparams": {{"{name}": ...}}.'
    return f"unknown flag {name!r}.{errors.did_you_mean(name, known)} All flags: --help"


def plain_value(name: str, field: Setting, value: Any) -> Any:
    """Returns a value of JSON or Python as that of a field."""
    if isinstance(value, Path):
        value = str(value)
    if name in OBJECTS and isinstance(value, Mapping):
        return pairs(value)
    if field.is_list and isinstance(value, list | tuple):
        return tuple(str(one) if isinstance(one, Path) else one for one in value)
    if field.path and isinstance(value, str):
        return os.path.expanduser(value)  # noqa: PTH111 -- Path would eat "./" and a last "/"
    return value


def size_fault(name: str, value: Any) -> str:
    """Returns the error message for an integer that is too large; "" for other values."""
    largest = _LARGEST_SEED if name == "random_seed" else _LARGEST
    is_large = isinstance(value, int) and abs(value) > largest
    return f"expected at most {largest:,}" if is_large else ""


def _fault(name: str, field: Setting, value: Any) -> str:
    """Returns the error message for a value; "" if it is valid, or null and so is the default."""
    if value is None and field.default is None:
        return ""
    fault = field.fault(value) or size_fault(name, value)
    if fault and name in OBJECTS:
        return 'should be an object, {"name": value}, or a string, "name=value,..."'
    return fault


def pairs(values: Mapping[str, Any]) -> str:
    """Formats an object as the value of a setting of `OBJECTS`: name=value,..."""
    from t2t_torch.params import value_text

    return ",".join(f"{name}={value_text(value)}" for name, value in values.items())
