"""Settings that several workflows share; what workflows do first: users' code, checks of a run."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from t2t_torch import errors, files, registry
from t2t_torch.mode import Split
from t2t_torch.reporter import SILENT, current, reporting
from t2t_torch.settings import MissingSettingsError, Settings, hp, hp_path
from t2t_torch.trust import CacheSettings, CodeSettings
from t2t_torch.workflows import config_file

if TYPE_CHECKING:
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.params import Params
    from t2t_torch.problem import Problem
    from t2t_torch.run.directory import TaskRecord

_S = TypeVar("_S", bound=Settings)

PROBLEM = hp(None, "Problem to learn; ..._rev swaps inputs and targets.  Names: --registry_help.")
MODEL = hp(None, "Model to train; auto: the recommended one.  Names: --registry_help.")
HPARAMS_SET = hp(
    None, "Named set of hyperparameters; auto: the recommended one.  Names: --registry_help."
)
HPARAMS = hp("", 'Changes to the set: "hidden_size=512,label_smoothing=0".')
DATA_DIR = hp_path("Directory of the generated data.")
TMP_DIR = hp_path("Directory of raw files; missing files are downloaded.")
CONFIG = hp_path("JSON file of flags; flags given on the command line win.")
EVAL_METRICS = hp((), "Metrics besides the problem's, each for the targets it fits: a,b,c.")
CHECKED = hp(None, "Checked against the run if given; not needed.")
CHECKPOINT_PATH = hp_path(
    "Checkpoint: a ckpt-<step> folder, a step, 'best' or 'latest'; default: the best "
    "evaluated one, or the latest if none was evaluated."
)
VERIFY_DATA = hp(
    "changed",
    "Shards of --data_dir that are compared with their checksums.  changed: if their size or "
    "times changed since the last check; full: all of them; finds disk errors.",
)

VerifyData = Literal["changed", "full"]


class TrainedSettings(CodeSettings, CacheSettings):
    """Settings of workflows that evaluate and decode with trained runs."""

    model: str | None = CHECKED
    hparams_set: str | None = CHECKED
    output_dir: str | None = hp_path(
        "Run directory of t2t-trainer; several, separated by commas, form an ensemble that "
        "averages probabilities, or log-probabilities for texts."
    )
    verify_data: VerifyData = VERIFY_DATA
    checkpoint_path: str | None = CHECKPOINT_PATH
    eval_use_test_set: bool = hp(False, "Reads the test split instead of the dev split.")

    @property
    def split(self) -> Split:
        """The split of the data that is read."""
        return Split.TEST if self.eval_use_test_set else Split.EVAL

    @property
    def runs(self) -> list[str]:
        """The run directory, or those of an ensemble."""
        return [str(Path(run).expanduser()) for run in str(self.output_dir).split(",")]


RUN_FLAGS = ("problem", "model", "hparams_set")
"""Names of the settings of what a run trains."""


def settings_of(kind: type[_S], command: str, values: Mapping[str, Any]) -> _S:
    """Returns settings of the values given in Python; None counts as not given.

    Args:
      kind: class of the settings.
      command: command of the same settings, for messages.
      values: values by name.  A path may be a `Path`, and one of `config_file.OBJECTS` a mapping.

    Raises:
      UsageError: there is no such setting, or a value does not fit; all are reported.
    """
    fields = {name.rstrip("_"): (name, field) for name, field in kind.declared().items()}
    given, faults = {}, []
    for name, value in values.items():
        if name not in fields:
            faults.append(f"unknown setting {name!r}.{unknown_hint(name, fields, values)}")
        elif value is not None:
            own, field = fields[name]
            is_item = field.is_list and not isinstance(value, list | tuple)
            plain = config_file.plain_value(name, field, [value] if is_item else value)
            if fault := field.fault(plain) or config_file.size_fault(name, plain):
                faults.append(f"{name}={plain!r}: {fault}. ({name}: {field.meaning})")
            given[own] = plain
    if faults:
        raise errors.UsageError(f"{command}: " + "\n".join(faults))
    return kind(**given)


@contextlib.contextmanager
def called(kind: type[_S], command: str, values: Mapping[str, Any]) -> Iterator[_S]:
    """Context of a workflow that is called with values of Python; yields its settings.

    Args:
      kind: class of the settings.
      command: command with these settings.
      values: values by name, and `verbosity`; those of the file `config` are added.

    Raises:
      T2TError: of the workflow, with settings as keyword arguments; or a value does not fit.
    """
    given = {name: value for name, value in values.items() if value is not None}
    verbosity = given.pop("verbosity", 0)
    if not isinstance(verbosity, int):
        raise errors.UsageError(
            f"verbosity={verbosity!r}: expected an integer; -1 reports nothing."
        )
    booleans = [name for name, field in kind.declared().items() if field.kind is bool]
    with errors.in_python(booleans), reporting(SILENT if verbosity < 0 else current()):
        given, declaration = config_file.with_file(given, kind, command)
        if "config" not in kind.declared():
            given.pop("config", None)
        settings = settings_of(kind, command, given)
        write_declaration(declaration, settings)
        yield settings


def write_declaration(declaration: Mapping[str, Any] | None, settings: Any) -> None:
    """Writes the declaration of a `config` file into the data directory, if both are there."""
    if not declaration or "data_dir" not in settings.declared():
        return
    from t2t_torch.declaration import problem

    if not settings.data_dir:
        raise errors.UsageError(
            "the declaration in --config is written into --data_dir: give both."
        )
    overwrite = getattr(settings, "overwrite", False)
    problem.write_declaration(declaration, Path(settings.data_dir), overwrite=overwrite)


def unknown_hint(name: str, known: Iterable[str], given: Mapping[str, Any]) -> str:
    """Returns a sentence that suggests what an unknown setting may be; "" if nothing is similar.

    Args:
      name: the unknown name.
      known: names of the settings.
      given: values of settings by name.
    """
    for flag, kind in (("hparams", "hyperparameter"), ("decode_hparams", "setting of decoding")):
        if flag not in known:
            continue
        field = _field_of(flag, name, given.get("hparams_set", ""))
        if field.startswith("--"):
            return f" Did you mean {field}={given.get(name) or 'VALUE'}?"
        if field:
            meant = f"{name!r} is" if field == name else f"Did you mean {field!r}? It is"
            return f" {meant} a {kind}: --{flag}={field}={given.get(name) or 'VALUE'}"
    return errors.did_you_mean(name, known, cutoff=0.7, form="--{}")


def _field_of(flag: str, name: str, hparams_set: Any) -> str:
    """Returns the field of --hparams or --decode_hparams, or the flag, that a name stands for."""
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.hparam import HParams

    kind: type[Params] = DecodeHParams if flag == "decode_hparams" else HParams
    if flag == "hparams" and hparams_set:
        with contextlib.suppress(errors.T2TError):
            kind = type(registry.hparams(hparams_set))
    meant = name if name in kind.model_fields else kind.aliases.get(name, "")
    return meant if meant in kind.model_fields or meant.startswith("--") else ""


def file_to_write(settings: Settings, name: str, *, stdout: bool = False) -> Path | None:
    """Returns the file that a setting names, checked before any work; None if it is not set.

    Args:
      settings: the settings.
      name: name of the flag.
      stdout: True if `-` means the standard output; it is returned unchecked.

    Raises:
      UsageError: it is a folder, its folder does not exist, or it cannot be written.
    """
    value = getattr(settings, name, None) or getattr(settings, f"{name}_", None)
    if not value:
        return None
    file = Path(value)
    if stdout and value == "-":
        return file
    if not file.resolve().parent.is_dir():
        raise errors.UsageError(
            f"--{name}={file}: there is no folder {file.parent}. Make it:  "
            f"mkdir -p {shlex.quote(str(file.parent))}"
        )
    files.check_target(file, flag=f"--{name}")
    return file


def data_dir_of_run(output_dir: str, data_dir: str | None) -> str:
    """Returns the data directory: the given one, or the folder that a run was trained on.

    Args:
      output_dir: run directory; of several, separated by commas, the first counts.
      data_dir: the given data directory.

    Raises:
      CheckpointError: there is no run.
      UsageError: the run does not record the folder, or it no longer exists.
    """
    if data_dir:
        return data_dir
    from t2t_torch.run.directory import RunDirectory

    directory = RunDirectory(output_dir.split(",")[0])
    directory.task()  # reports a missing run
    known = config_file.recorded_data_dir(directory.path)
    if known and not Path(known).is_dir():
        raise errors.UsageError(
            f"--data_dir is needed: '{directory.path}' was trained on {known}, which no longer "
            "exists. Give its present location, or generate it again with t2t-datagen."
        )
    if not known:
        raise MissingSettingsError(f"missing flags:\n  --data_dir=...  {DATA_DIR.meaning}")
    return known


def decoding_of_run(run: str | Path, changes: str) -> DecodeHParams:
    """Returns the decoding hparams of a run, changed by "beam_size=4,alpha=0.6".

    Raises:
      HParamsError: a decoding setting is unknown or out of bounds.
    """
    from t2t_torch.decode.hparam import parse_decode_hparams
    from t2t_torch.run.directory import RunDirectory

    return parse_decode_hparams(changes, defaults=RunDirectory(run).decode_hparams)


def verify_data(verify: VerifyData, data_dir: Path, problem: Problem, *splits: Split) -> None:
    """Compares all of a problem's data with its checksums, if `verify` is "full".

    Args:
      verify: value of the setting `verify_data`.
      data_dir: directory of the generated data.
      problem: the problem; of a mixture all components are verified.
      splits: the splits to verify; default: all.

    Raises:
      DataError: files differ; names all of them.
    """
    if verify != "full":
        return
    from t2t_torch.data.manifest import Manifest

    for name in dict.fromkeys(component.dataset_name for component in problem.components):
        Manifest.load(data_dir, name).verify(data_dir, splits or None, thorough=True)


def check_is_of_run(
    settings: Settings, task: TaskRecord, run: str | Path, names: Sequence[str] = RUN_FLAGS
) -> None:
    """Checks `problem`, `model` and `hparams_set` against a run.

    Args:
      settings: the settings.
      task: the record of the run.
      run: the run directory, for errors.
      names: the settings to check.

    Raises:
      UsageError: a setting differs from the run.
    """
    for name in names:
        requested, here = getattr(settings, name), getattr(task, name)
        if requested in (None, "", here):
            continue
        raise errors.UsageError(
            f"--{name}={requested}, but '{run}' is a run of {name} {here!r}. Leave "
            f"--{name} out, or give the --output_dir of another run."
        )
