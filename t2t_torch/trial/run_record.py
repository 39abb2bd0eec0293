"""Record of a trial's run (`experiment.json`), its copy of the code, its hyperparameters."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import yaml
from absl import logging

from t2t_torch.errors import CheckpointError, ConfigError, TrialError, did_you_mean
from t2t_torch.run.checksums import CODE, check_files, how_to_restore, read_checked
from t2t_torch.run.checksums import FILE as SUMS
from t2t_torch.run.code import LARGEST, changed_files, check_links, code_in, contents_of
from t2t_torch.search_space import Constant, Space
from t2t_torch.trial.config import ExperimentConfig
from t2t_torch.trial.user_code import file_beside, imported_files, split_spec
from t2t_torch.trust import check_code, check_module, file_of
from t2t_torch.yaml_file import parse_value

if TYPE_CHECKING:
    from t2t_torch.trial.definition import Definition


NAME = "experiment.json"
"""File name in the run directory and in each checkpoint."""

_MAY_CHANGE = ExperimentConfig.of_clusters | frozenset(
    "name description labels searcher min_validation_period min_checkpoint_period entrypoint "
    "entrypoints checkpoint_policy save_trial_best save_trial_latest save_experiment_best "
    "max_restarts perform_initial_validation resources batches_per_step records_per_epoch "
    "data".split()
)
"""Configuration keys that affect neither the weights nor the order of the data; includes `data`,
the location: data of another size or order is rejected when it is opened."""

_SOURCE = "searcher.source_checkpoint"


class RunRecord(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Record of a trial's run.

    Attributes:
      trial: absolute location of its code, in the form of `--trial`.
      config: configuration as written.
      hparams: chosen hyperparameters, nested.
      version: version of t2t_torch.
      module_file: file of a trial that is a module, for which it is trusted; empty for a path.
    """

    trial: str
    config: dict[str, Any]
    hparams: dict[str, Any]
    version: str = ""
    module_file: str = ""

    @classmethod
    def read(cls, directory: Path) -> RunRecord:
        """Reads the record of a run.

        Raises:
          CheckpointError: it is missing or corrupt.
        """
        path = directory / NAME
        try:
            return cls.model_validate_json(read_checked(directory, NAME))
        except (OSError, ValueError) as error:
            is_gone = isinstance(error, FileNotFoundError)
            fault = "is missing" if is_gone else f"is damaged: {error}"
            raise CheckpointError(f"{path} {fault}. {how_to_restore(directory, NAME)}") from error

    @property
    def text(self) -> str:
        """Content of the file."""
        return self.model_dump_json(indent=2) + "\n"

    def changes(self, other: RunRecord) -> list[str]:
        """Returns the changes from this record to another, as "name: old -> new".

        The trial's code may have moved.

        Raises:
          CheckpointError: a change is incompatible with the checkpoints; lists all changes.
        """
        before, now = _flat(self), _flat(other)
        changed = [k for k in {**before, **now} if before.get(k) != now.get(k)]
        lines = [f"{k}: {_shown(before.get(k))} -> {_shown(now.get(k))}" for k in sorted(changed)]
        refused = [line for line in lines if re.split("[.:]", line)[0] not in _MAY_CHANGE]
        if now.get(_SOURCE) is not None:  # affects only the initial weights
            refused += [line for line in lines if line.startswith(f"{_SOURCE}:")]
        if refused:
            raise CheckpointError(
                f"this output_dir was started with another configuration: {'; '.join(refused)}. "
                "Resume with its own configuration (give neither --config nor --hparams), or train "
                "in another --output_dir."
            )
        moved = [f"trial: {self.trial} -> {other.trial}"] if self.trial != other.trial else []
        return [*moved, *lines]


def _flat(record: RunRecord) -> dict[str, Any]:
    """Returns all settings that affect training, by dotted name, including defaults."""
    config = ExperimentConfig.from_dict(record.config).resolved(record.hparams)
    return {k: json.loads(json.dumps(v, default=str)) for k, v in Space.flat(config).items()}


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


def copies_of(definition: Definition, run_dir: Path) -> dict[str, bytes]:
    """Returns the contents of a trial's files to copy, by path below the run's `code/`.

    Of a directory, all files are copied that `run.code.code_in` takes; of a file, it and its
    imports from the same directory.  A trial given as a module of an installed package is not
    copied.
    """
    if not is_path(definition.spec):
        return {}
    source = definition.path.resolve()
    if source.is_dir():
        return contents_of(source, code_in(source, run_dir))
    files = sorted({source, *imported_files()})
    return contents_of(source, [f for f in files if f.is_file() and f.stat().st_size <= LARGEST])


def is_path(spec: str) -> bool:
    """Returns True if a spec names a directory or file instead of a module."""
    return Path(split_spec(spec)[0]).exists()


def check_trial(spec: str, run_dir: Path, module_file: str = "") -> None:
    """Checks that the code of a trial that a run or a search names may be executed.

    Args:
      spec: location of the trial.
      run_dir: directory of the run or the search.
      module_file: see `RunRecord`.

    Raises:
      UsageError: it comes with the run, which is not trusted; see `trust`.
    """
    place = split_spec(spec)[0]
    if is_path(spec):
        check_code(run_dir, place)
    elif "/" not in place:
        check_module(run_dir, place, module_file)


def check_functions(spec: str, run_dir: Path, functions: Mapping[str, str]) -> None:
    """Checks that functions named by the configuration of a run or a search may be executed.

    Args:
      spec: location of the trial, checked or given by the user; functions in it are not checked.
      run_dir: directory of the run or the search.
      functions: locations of functions, by name; see `ExperimentConfig.functions`.

    Raises:
      UsageError: one comes with the run, which is not trusted; see `trust`.
    """
    for location in functions.values():
        module = location.partition(":")[0]
        if not is_path(spec) or file_beside(Path(split_spec(spec)[0]).resolve(), module) is None:
            check_module(run_dir, module)


def module_file_of(spec: str) -> str:
    """Returns the file of a trial that is given as a module; empty for a path."""
    return "" if is_path(spec) else file_of(split_spec(spec)[0])


def copy_of(spec: str, run_dir: Path) -> str | None:
    """Returns the spec of a run's copy of a trial; None if there is no copy.

    Args:
      spec: spec of the trial when the run started.
      run_dir: run directory.
    """
    location, class_name = split_spec(spec)
    name = Path(location).name
    copied = run_dir.resolve() / CODE / name
    if not name or not copied.exists():
        return None
    return f"{copied}:{class_name}" if class_name else str(copied)


def changed_code(spec: str, run_dir: Path) -> list[str]:
    """Returns the files of a trial that differ from the run's copy."""
    copy = copy_of(spec, run_dir)
    if copy is None or not is_path(spec):
        return []
    before, now = Path(split_spec(copy)[0]), Path(split_spec(spec)[0])
    if before.is_file():
        before, now = before.parent, now.parent
    return changed_files(before, now)


def place_of_code(spec: str, run_dir: Path, module_file: str = "") -> str:
    """Returns the spec from which to load a run's trial: its original location or the run's copy.

    Takes the arguments of `check_trial`.

    Raises:
      CheckpointError: the copy was modified, or is a link.
      TrialError: the code is in neither location.
      UsageError: the code comes with the run, which is not trusted.
    """
    if is_path(spec) or "/" not in spec:  # a module
        check_trial(spec, run_dir, module_file)
        return spec
    copied = copy_of(spec, run_dir)
    if copied is None:
        raise TrialError(
            f"the code of this run is gone: it was at {spec}, and {run_dir / CODE} has "
            f"no copy of it. Put it back, or write where it is now into {run_dir / NAME} "
            f'("trial") and accept that file:  (cd {run_dir} && sha256sum {NAME} >> {SUMS})'
        )
    check_code(run_dir, split_spec(copied)[0])
    check_links(run_dir)
    check_files(run_dir, [f"{CODE}/"])
    logging.info("%s is gone: the run's own copy of it is taken, %s.", spec, copied)
    return copied


CLIP_NORM, CLIP_VALUE = "clip_grad_l2_norm", "clip_grad_val"
"""PEDL's hyperparameters for gradient clipping: by global norm, or by value."""


def chosen_values(
    hyperparameters: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns one value for each hyperparameter, nested as in the configuration.

    Args:
      hyperparameters: values and ranges.
      changes: dotted name -> value, from the command line.
      before: nested values of the run's start, used for ranges.

    Raises:
      ConfigError: a range has no value, or a name is unknown.
      HParamsError: the configuration's hyperparameters are invalid.
    """
    space = Space.of_mapping(hyperparameters)
    given, previous = dict(changes or {}), by_name(hyperparameters, before or {})
    for name in given:
        if name not in space.kinds:
            known = list(space.kinds)
            hint = did_you_mean(name, known) or f" It has: {', '.join(known) or 'none'}."
            raise ConfigError(f"--hparams: the configuration has no hyperparameter {name!r}.{hint}")
    values, ranges = {}, []
    for name, kind in space.kinds.items():
        if name in given:
            values[name] = given[name]
        elif isinstance(kind, Constant):
            values[name] = copy.deepcopy(kind.value)
        elif name in previous:
            values[name] = previous[name]
        else:
            ranges.append(name)
    if ranges:
        example = ",".join(f"{name}=..." for name in ranges)
        raise ConfigError(
            f"hyperparameters.{', hyperparameters.'.join(ranges)}: a range, and one training needs "
            f"one value. Search with t2t-tuner --trial=... --config=..., or give values: "
            f"--hparams={example}"
        )
    return space.nested(values)


def check_clipping(chosen: Mapping[str, Any], clip_grad_norm: float) -> None:
    """Checks the hyperparameters that the training loop reads.

    Args:
      chosen: chosen values, nested.
      clip_grad_norm: value in `optimizations`; 0 disables clipping.

    Raises:
      ConfigError: a value is not a positive number, or several clipping methods are chosen.
    """
    given = {f"hyperparameters.{name}": chosen.get(name) for name in (CLIP_NORM, CLIP_VALUE)}
    ways = {name: value for name, value in given.items() if value is not None}
    for name, value in ways.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(
                f"{name}: {value!r}: a positive number was expected; gradients are clipped by it. "
                "Leave it out, or set it to null, to clip none."
            )
    if clip_grad_norm:
        ways["optimizations.clip_grad_norm"] = clip_grad_norm
    if len(ways) > 1:
        raise ConfigError(f"{' and '.join(ways)} both clip gradients: keep one of them.")


def by_name(hyperparameters: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested values by the dotted names of the configuration.

    Args:
      hyperparameters: values and ranges.
      values: values of some hyperparameters, nested.
    """
    named = {}
    for name in Space.of_mapping(hyperparameters).kinds:
        value: Any = values
        try:
            for key in name.split("."):
                value = value[key]
        except (KeyError, TypeError):
            continue
        named[name] = copy.deepcopy(value)
    return named


def parse_changes(text: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """Parses "learning_rate=0.1,net.layers=[32,16]": dotted names, values in YAML.

    A comma separates two items if a name and "=" follow it.

    Args:
      text: value of `--hparams`.
      more: value of each `--hp`, "name=value".

    Raises:
      ConfigError: an item is not name=value, or a name occurs twice.
    """
    changes: dict[str, Any] = {}
    items = re.split(r",(?=[^,=\[\]{}'\"]+=)", text.strip().rstrip(",")) if text else []
    for item in [*items, *more]:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name or ("," in value and value[0] not in "[{'\""):
            raise ConfigError(f"--hparams: {item.strip()!r} should be name=value.")
        if name in changes:
            raise ConfigError(f"--hparams sets {name!r} twice.")
        changes[name] = read_value(name, value)
    return changes


def read_value(name: str, text: str) -> Any:
    """Parses a value as in the configuration: 1e-3 is a number, 2019-10-31 a string.

    Raises:
      ConfigError: the value is invalid YAML.
    """
    try:
        return parse_value(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--hparams: {name}={text!r} cannot be read: {error}") from None
