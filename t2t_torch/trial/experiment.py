"""Experiment of a trial: its configuration, and its record in a run (`experiment.json`).

The configuration has the YAML format of PEDL and Determined, for a single machine.

    description: mnist
    data: {url: https://...}                      # free-form: any keys
    hyperparameters: {learning_rate: 0.1, ...}    # values, or ranges to search (search_space.py)
    searcher: {name: single, metric: error, smaller_is_better: true, max_steps: 5}
    min_validation_period: {epochs: 1}
    optimizations: {aggregation_frequency: 2}

Keys that only apply to a cluster are accepted and listed in `ExperimentConfig.ignored`; unknown
keys are errors.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pydantic
import yaml
from absl import logging

from t2t_torch.errors import CheckpointError, ConfigError, TrialError, did_you_mean
from t2t_torch.run.checksums import CODE, check_files, how_to_restore, read_checked
from t2t_torch.run.checksums import FILE as SUMS
from t2t_torch.run.code import LARGEST, changed_files, check_links, code_in, contents_of
from t2t_torch.search_space import Constant, Space
from t2t_torch.trial.user_code import file_beside, imported_files, split_spec
from t2t_torch.trust import check_code, check_module, file_of
from t2t_torch.tune.search_plan import Mode, SearcherName, bracket_rungs, rung_lengths
from t2t_torch.yaml_file import parse_value, read_mapping

if TYPE_CHECKING:
    from t2t_torch.trial.user_code import Definition

_YAML_NAMES = {"tuple_type": "should be a list.", "dict_type": "should be a mapping of keys."}


class ConfigSection(pydantic.BaseModel):
    """Read-only section of an experiment configuration with a fixed set of keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    of_clusters: ClassVar[frozenset[str]] = frozenset()
    """Keys that only apply to a cluster; they are ignored here."""

    instead: ClassVar[Mapping[str, str]] = {}
    """Unsupported keys of other versions, with a message that names the replacement."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _as_read(cls, values: Any) -> Any:
        """Converts null to an empty section; drops cluster keys."""
        if values is not None and not isinstance(values, Mapping):
            return values
        return {
            key: value
            for key, value in (values or {}).items()
            if key not in cls.of_clusters and not (key in cls.instead and value is None)
        }

    @classmethod
    def section(cls, key: str) -> type[ConfigSection] | None:
        """Returns the class of the section under a key, or None if there is none."""
        field = cls.model_fields.get(key)
        kind = field.annotation if field else None
        return kind if isinstance(kind, type) and issubclass(kind, ConfigSection) else None

    @classmethod
    def complaint(cls, error: Mapping[str, Any]) -> str:
        """Returns the message for a pydantic error, in terms of the configuration file.

        Args:
          error: an entry of `ValidationError.errors()`.
        """
        where = [str(part) for part in error["loc"]]
        within: type[ConfigSection] = cls
        for part in where[:-1]:
            within = within.section(part) or within
        whole = within.section(where[-1]) if where else cls  # None if it is no section
        name, kind = ".".join(where), error["type"]
        if kind == "extra_forbidden":
            names = sorted({*within.model_fields, *within.of_clusters})
            listed = f" There are: {', '.join(names)}."
            hint = did_you_mean(where[-1], names, limit=2, form="{}") or listed
            return f"{name}: {within.instead.get(where[-1], f'there is no such key.{hint}')}"
        expected = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
        message = _YAML_NAMES.get(kind, f"{expected.rstrip('.')}.")
        if whole and kind == "model_type":
            message = f"should be a section of keys: {', '.join(sorted(whole.model_fields))}."
        elif whole:
            return f"{name}: {message}" if name else message
        value = error["input"]
        return f"{name}: {list(value) if isinstance(value, tuple) else value!r}: {message}"


Unit = Literal["steps", "batches", "records", "epochs"]
UNITS: tuple[Unit, ...] = ("batches", "records", "epochs")
"""Units of `max_length` and of periods; PEDL's older keys count steps of several batches."""


@dataclasses.dataclass(frozen=True)
class Length:
    """Length of training.

    Attributes:
      amount: number of units.
      unit: unit of `amount`.  "steps" are PEDL's steps of `batches_per_step` batches, not optimizer
        steps.
    """

    amount: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.amount:,} {self.unit}"


@dataclasses.dataclass(frozen=True)
class LengthScale:
    """Composition of an optimizer step.

    An optimizer step consumes `aggregation_frequency` batches per process.  Records and epochs are
    counted over all processes.  Batches and PEDL's steps are counted per process: they measure the
    number of model updates, independent of the number of processes.

    Attributes:
      batches_per_step: batches per PEDL step.
      aggregation_frequency: batches per process whose gradients are accumulated in a step.
      world_size: number of processes.
      records_per_batch: records per batch of the training loader.
      batches_per_epoch: length of the training loader in batches; None if unknown.
    """

    batches_per_step: int = 100
    aggregation_frequency: int = 1
    world_size: int = 1
    records_per_batch: float = 1.0
    batches_per_epoch: int | None = None

    def steps(self, length: Length, key: str = "searcher.max_length") -> int:
        """Returns the number of optimizer steps in a length, rounded up; at least 1.

        Args:
          length: length above 0.
          key: configuration key, for the error message.

        Raises:
          ConfigError: the length is in epochs, and the loader has no length.
        """
        return max(1, math.ceil(self._exact(length, key) - 1e-9))

    def period(self, length: Length, key: str) -> int:
        """Returns the number of optimizer steps in a period, rounded down; see `steps`."""
        return max(1, math.floor(self._exact(length, key) + 1e-9))

    def _exact(self, length: Length, key: str) -> float:
        # Batches per optimizer step: of one process, and of all processes.
        in_one, in_all = self.aggregation_frequency, self.aggregation_frequency * self.world_size
        if length.unit in ("steps", "batches"):
            size = self.batches_per_step if length.unit == "steps" else 1
            return length.amount * size / in_one
        if length.unit == "records":
            return length.amount / (in_all * self.records_per_batch)
        if self.batches_per_epoch is None:
            raise ConfigError(
                f"{key} is {length}, but the training loader has no length, so it is not known how "
                f"long an epoch is. Give {key} in batches or records, set records_per_epoch, or "
                "give the loader a __len__."
            )
        return length.amount * self.batches_per_epoch / in_all


def _length(value: Any) -> Length:
    """Parses {batches: 1000}."""
    unit, amount = next(iter(value.items())) if isinstance(value, Mapping) and value else ("", 0)
    if unit not in UNITS or len(value) > 1 or type(amount) is not int or amount < 1:
        raise ValueError(
            f"expected a whole number of {', '.join(UNITS)}, such as {{batches: 1000}}"
        )
    return Length(amount, unit)


def _period(value: Any) -> Length | None:
    """Parses {batches: 1000}, or a number of steps; 0 is never."""
    if value in (0, *({unit: 0} for unit in UNITS)) and value is not False:
        return None
    if type(value) is int and value > 0:
        return Length(value, "steps")
    try:
        return _length(value)
    except ValueError as error:
        raise ValueError(f"{error}, or of steps of batches_per_step batches; 0 is never") from None


class SearcherConfig(ConfigSection):
    """Search method, length of training and metric.

    Attributes:
      name: search method; `single` trains once.
      metric: name of a scalar validation metric; None disables selection by metric.
      smaller_is_better: whether lower metric values are better.
      max_steps: length of the longest trial, in steps of `batches_per_step` batches.
      max_length: length of the longest trial, in batches, records or epochs.
      max_time: length of the longest trial, in units of `time_metric`.
      time_metric: unit of `max_time`: batches, records or epochs.
      target_trial_steps: alias of `max_steps`, used by `adaptive`.
      max_trials: number of trials to start; `single` starts one.
      step_budget: total steps of all trials, instead of `max_trials`; adaptive searches only.
      max_concurrent_trials: maximum number of trials that run at once.
      mode: aggressiveness of early stopping; adaptive searches only.
      divisor: reduction factor: one in `divisor` trials continues to the next rung; adaptive
        searches only.
      max_rungs: maximum number of rungs; adaptive searches only.
      bracket_rungs: number of rungs of each bracket; empty: derived from `mode`; adaptive searches
        only.
      source_checkpoint: checkpoint or run directory that provides the initial weights.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "num_rungs": "write max_rungs.",
        "source_trial_id": "there are no such numbers here. Write source_checkpoint: and a path.",
        "source_checkpoint_uuid": "write source_checkpoint: and a path.",
    }

    name: SearcherName = "single"
    metric: Annotated[str, pydantic.Field(min_length=1)] | None = None
    smaller_is_better: bool = True
    max_steps: _Number | None = None
    max_length: Annotated[Length | None, pydantic.BeforeValidator(_length)] = None
    max_time: _Number | None = None
    time_metric: Literal["batches", "records", "epochs"] | None = None
    target_trial_steps: _Number | None = None
    max_trials: _Number | None = None
    step_budget: _Number | None = None
    max_concurrent_trials: _Number = 16
    mode: Mode = "standard"
    divisor: Annotated[float, pydantic.Field(gt=1)] = 4
    max_rungs: _Number = 5
    bracket_rungs: Annotated[tuple[_Number, ...], pydantic.Field(strict=False)] = ()
    source_checkpoint: str | None = None

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> SearcherConfig:
        ways = ("max_steps", "max_length", "max_time", "target_trial_steps")
        given = [way for way in ways if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} both say how long to train: keep one of them")
        if (self.max_time is None) != (self.time_metric is None):
            raise ValueError(
                "max_time needs time_metric (batches, records or epochs), and time_metric max_time"
            )
        if self.step_budget is not None and self.max_trials is not None:
            raise ValueError("step_budget and max_trials both say how much to train: keep one")
        if self.step_budget is not None and (self.length is None or self.length.unit != "steps"):
            raise ValueError("step_budget needs target_trial_steps, the steps of one training")
        if self.name != "single" and self.metric is None:
            raise ValueError(
                f"a search ({self.name}) needs metric, the validation metric that says what is best"
            )
        return self

    @property
    def length(self) -> Length | None:
        """Length of the longest training; None if the configuration does not give it."""
        steps = self.max_steps or self.target_trial_steps
        if steps is not None:
            return Length(steps, "steps")
        if self.max_time is not None and self.time_metric is not None:
            return Length(self.max_time, self.time_metric)
        return self.max_length

    @property
    def trials(self) -> int | None:
        """The number of trials to start: `max_trials`, or the number that `step_budget` allows.

        Determined 0.12 splits the budget evenly among the brackets; in each bracket a new trial
        costs its share of the steps of all rungs (master/pkg/searcher/asha.go).
        """
        if self.step_budget is None or self.length is None:
            return self.max_trials
        rungs = list(self.bracket_rungs) or bracket_rungs(self.mode, self.max_rungs)
        total = 0
        for count in rungs:
            trials = [max(int(self.divisor**above), 1) for above in reversed(range(count))]
            lengths = [0, *rung_lengths(count, self.length.amount, self.divisor)]
            pairs = zip(itertools.pairwise(lengths), trials, strict=True)
            steps = sum((length - before) * at_rung for (before, length), at_rung in pairs)
            total += max(int(self.step_budget // len(rungs) / max(steps, 1) * trials[0]), 1)
        return total


def _words(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _place(value: str) -> str:
    module, _, name = value.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ValueError("expected module:name, such as model_def:MyTrial")
    return value


_Place = Annotated[str, pydantic.AfterValidator(_place)]
_Count = Annotated[int, pydantic.Field(ge=0)]
_Number = Annotated[int, pydantic.Field(ge=1)]
_Period = Annotated[Length | None, pydantic.BeforeValidator(_period)]


class Entrypoints(ConfigSection):
    """Trial class and functions as PEDL 0.11 names them, each as module:name.

    Attributes:
      trial_class: the trial class.
      data_loaders_function: function that replaces `make_data_loaders`.
      download_data_function: function that replaces `download_data`.
    """

    trial_class: _Place | None = None
    data_loaders_function: _Place | None = None
    download_data_function: _Place | None = None


class Resources(ConfigSection):
    """Processes of a training run.

    Attributes:
      slots_per_trial: number of processes per trial, one per GPU.
      optimized_parallel: whether a trial uses several processes, started by torchrun.
      distributed: alias of `optimized_parallel`.
    """

    of_clusters = frozenset(
        "pool resource_pool agent_label shm_size weight priority max_slots devices native_parallel "
        "is_single_node".split()
    )

    slots_per_trial: _Number = 1
    optimized_parallel: bool = False
    distributed: bool = False


class Optimizations(ConfigSection):
    """Settings of an optimizer step.

    Attributes:
      aggregation_frequency: batches per process in an optimizer step.
      average_aggregated_gradients: whether the accumulated gradients are averaged instead of
        summed.
      mixed_precision: apex level: O0 computes in float32; O1, O2 and O3 compute in float16.
      precision: compute precision in this library's terms; overrides `mixed_precision` unless None.
      clip_grad_norm: maximum global L2 norm of the gradients; 0 disables clipping.
      ema_decay: decay of the moving average of the weights used for evaluation; 0 disables it.
    """

    of_clusters = frozenset(
        "average_training_metrics gradient_compression gradient_updates_span_period "
        "grad_updates_size_file tensor_fusion_threshold tensor_fusion_cycle_time "
        "auto_tune_tensor_fusion".split()
    )

    aggregation_frequency: _Number = 1
    average_aggregated_gradients: bool = True
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = "O0"
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    clip_grad_norm: Annotated[float, pydantic.Field(ge=0)] = 0.0
    ema_decay: Annotated[float, pydantic.Field(ge=0, lt=1)] = 0.0


class Reproducibility(ConfigSection):
    """Random seeds.

    Attributes:
      experiment_seed: seed of weights, data order, dropout and search.
    """

    experiment_seed: Annotated[int, pydantic.Field(ge=0, lt=2**63)] = 0


_RETENTION_KEYS = ("save_experiment_best", "save_trial_best", "save_trial_latest")


class ExperimentConfig(ConfigSection):
    """Validated experiment configuration, created by `read` or `from_dict`.

    Attributes:
      name: name of the experiment.
      description: description of the experiment.
      labels: search labels.
      data: free-form mapping for user code.
      entrypoint: trial class, "model_def:MyTrial", required if the directory has several.
      entrypoints: locations of the trial class and its functions.
      hyperparameters: values and ranges, arbitrarily nested; parsed by `search_space.py`.
      searcher: search method and length of training.
      batches_per_step: batches per step, the unit of `max_steps` and of periods without a unit.
      records_per_epoch: records per epoch; overrides the length of the training loader.
      min_validation_period: maximum interval between validations; None: only at the end.
      min_checkpoint_period: maximum interval between checkpoints; None: only at the end.
      checkpoint_policy: whether to save after a validation: if it is the best, always, or never.
      save_trial_best: number of best checkpoints kept per trial.
      save_trial_latest: number of latest checkpoints kept per trial.
      save_experiment_best: number of additional best checkpoints kept for the whole search.
      perform_initial_validation: whether to validate before the first step.
      max_restarts: maximum number of times a failed trial restarts from its latest checkpoint.
      resources: number of processes.
      optimizations: gradient accumulation and precision.
      reproducibility: random seed.
    """

    of_clusters = frozenset(
        "bind_mounts environment checkpoint_storage tensorboard_storage data_layer debug internal "
        "integrations log_policies log_pattern_policies log_retention_days retention_policy "
        "pbs slurm preemption_timeout profiling project workspace registry_auth scheduling_unit "
        "security shared_fs template unmanaged max_slots".split()
    )

    name: str = ""
    description: str = ""
    labels: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = ()
    data: dict[Any, Any] = pydantic.Field(default_factory=dict)
    entrypoint: Annotated[str | None, pydantic.BeforeValidator(_words)] = None
    entrypoints: Entrypoints = Entrypoints()
    hyperparameters: dict[Any, Any] = pydantic.Field(default_factory=dict)
    searcher: SearcherConfig = SearcherConfig()
    batches_per_step: _Number = 100
    records_per_epoch: _Number | None = None
    min_validation_period: _Period = None
    min_checkpoint_period: _Period = None
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    save_trial_best: _Count = 1
    save_trial_latest: _Count = 1
    save_experiment_best: _Count = 0
    perform_initial_validation: bool = False
    max_restarts: _Count = 5
    resources: Resources = Resources()
    optimizations: Optimizations = Optimizations()
    reproducibility: Reproducibility = Reproducibility()

    _written: dict[str, Any] = pydantic.PrivateAttr(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> ExperimentConfig:
        """Reads a YAML file.

        Raises:
          ConfigError: the file cannot be read, has duplicate or unknown keys, or has invalid
            values; the message lists all problems.
        """
        return cls.from_dict(read_mapping(path), source=str(path))

    @classmethod
    def from_dict(
        cls, written: Mapping[str, Any], *, source: str = "the configuration"
    ) -> ExperimentConfig:
        """Validates a parsed configuration.

        Args:
          written: parsed YAML.
          source: origin of the configuration, for error messages.

        Raises:
          ConfigError: see `read`.
        """
        values = _with_storage(written, source)
        for key in ("data", "hyperparameters", "description"):
            if values.get(key, ...) is None:  # an empty section
                del values[key]
        try:
            config = cls.model_validate(values)
        except pydantic.ValidationError as error:
            lines = [cls.complaint(each) for each in error.errors()]
            message = lines[0] if len(lines) == 1 else "\n  ".join(["", *lines])
            raise ConfigError(f"{source}: {message}") from None
        config._written = copy.deepcopy(dict(written))
        return config

    @property
    def written(self) -> dict[str, Any]:
        """The configuration as written, as a new copy."""
        return copy.deepcopy(self._written)

    @property
    def trial_class(self) -> str | None:
        """The location of the trial class, module:Class; None if not specified.

        Of a command, such as `python3 -m determined.launch.torch_distributed --trial model_def:Net`
        or `python3 train.py`, it is the argument after --trial.
        """
        words = (self.entrypoint or "").split()
        if len(words) < 2:
            return self.entrypoint or self.entrypoints.trial_class
        return next((after for flag, after in itertools.pairwise(words) if flag == "--trial"), None)

    @property
    def functions(self) -> dict[str, str]:
        """The locations of replacement functions, by the name of the function they replace."""
        named = {
            "make_data_loaders": self.entrypoints.data_loaders_function,
            "download_data": self.entrypoints.download_data_function,
        }
        return {name: place for name, place in named.items() if place is not None}

    @property
    def ignored(self) -> tuple[str, ...]:
        """The dotted names of the given keys that only apply to a cluster."""
        return tuple(_ignored_keys(type(self), self._written))

    def scale(self, source: Any = None, *, world_size: int = 1) -> LengthScale:
        """Returns the conversion from lengths of this configuration to optimizer steps.

        Args:
          source: batches of the training loader; their epoch's length is overridden by
            `records_per_epoch`.  None: unknown.
          world_size: number of processes.
        """
        records = 1.0 if source is None else source.records_per_batch
        batches = None if source is None else source.batches_per_epoch
        if self.records_per_epoch is not None:
            batches = max(1, round(self.records_per_epoch / records))
        frequency = self.optimizations.aggregation_frequency
        return LengthScale(self.batches_per_step, frequency, world_size, records, batches)

    def resolved(self, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the complete configuration for user code: written values and defaults.

        Cluster keys are included as written.  Each call returns a new copy.

        Args:
          hparams: the chosen values, nested; stored under "hyperparameters".
        """
        whole = _joined(type(self)().model_dump(exclude_none=True, warnings=False), self._written)
        whole.update({key: getattr(self, key) for key in _RETENTION_KEYS})
        return {**whole, "hyperparameters": copy.deepcopy(dict(hparams))}


def _with_storage(written: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns a configuration with the checkpoint limits at the top level.

    Determined nests them in `checkpoint_storage`, whose other keys only apply to a cluster.
    """
    values = dict(written)
    storage = written.get("checkpoint_storage")
    if not isinstance(storage, Mapping):
        return values
    for key in set(_RETENTION_KEYS) & set(storage):
        if key in written and written[key] != storage[key]:
            raise ConfigError(
                f"{source}: {key} is {written[key]!r} at the top and {storage[key]!r} in "
                "checkpoint_storage: keep one of them."
            )
        values[key] = storage[key]
    return values


def _ignored_keys(
    section: type[ConfigSection], written: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """Returns the dotted names of the cluster-only keys, in order."""
    names = []
    for key, value in written.items():
        within = section.section(key)
        if key in section.of_clusters:
            read = set(_RETENTION_KEYS) if key == "checkpoint_storage" else set()
            if not isinstance(value, Mapping) or not set(value) <= read:
                names.append(f"{prefix}{key}")
        elif within is not None and isinstance(value, Mapping):
            names += _ignored_keys(within, value, f"{prefix}{key}.")
    return names


def _joined(defaults: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults overridden by the written values; sections are merged key by key."""
    joined = dict(defaults)
    for key, value in written.items():
        default = joined.get(key)
        if isinstance(default, dict) and isinstance(value, Mapping):
            joined[key] = _joined(default, value)
        elif value is not None or default is None:
            joined[key] = copy.deepcopy(value)
    return joined


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


def by_name(hyperparameters: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested values by the dotted names of the configuration.

    Args:
      hyperparameters: values and ranges.
      values: values of some hyperparameters, nested.
    """
    given = Space.flat(values)
    names = Space.of_mapping(hyperparameters).kinds
    return {name: copy.deepcopy(given[name]) for name in names if name in given}


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
