"""Experiment configuration in the YAML format of PEDL and Determined, for a single machine.

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
import subprocess
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pydantic
import yaml

from t2t_torch.errors import ConfigError, UsageError, did_you_mean
from t2t_torch.files import MAX_YAML, parse_yaml, read_text
from t2t_torch.search_space import AnyValue, Space

# Base class of the sections of an experiment configuration, with error messages.


_YAML_NAMES = {
    "tuple_type": "should be a list.",
    "dict_type": "should be a mapping of keys.",
}


class Section(pydantic.BaseModel):
    """Read-only section of an experiment configuration with a fixed set of keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    of_clusters: ClassVar[frozenset[str]] = frozenset()
    """Keys that only apply to a cluster; they are ignored here."""

    instead: ClassVar[Mapping[str, str]] = {}
    """Unsupported keys of other versions, with a message that names the replacement."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _as_read(cls, values: Any) -> Any:
        """Converts YAML values: lists to tuples, null to an empty section; drops cluster keys."""
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            return values
        lists = {
            key
            for key, field in cls.model_fields.items()
            if typing.get_origin(field.annotation) is tuple
        }
        return {
            key: tuple(value) if isinstance(value, list) and key in lists else value
            for key, value in values.items()
            if key not in cls.of_clusters and not (key in cls.instead and value is None)
        }

    @classmethod
    def section(cls, key: str) -> type[Section] | None:
        """Returns the class of the section under a key, or None if there is none."""
        field = cls.model_fields.get(key)
        kind = field.annotation if field else None
        return kind if isinstance(kind, type) and issubclass(kind, Section) else None

    @classmethod
    def complaint(cls, error: Mapping[str, Any]) -> str:
        """Returns the message for a pydantic error, in terms of the configuration file.

        Args:
          error: an entry of `ValidationError.errors()`.
        """
        where = [str(part) for part in error["loc"]]
        within: type[Section] = cls
        for part in where[:-1]:
            within = within.section(part) or within
        name = ".".join(where)
        if error["type"] == "extra_forbidden":
            return f"{name}: {within._unknown(where[-1])}"
        if error["type"] == "missing":
            return f"{name} is missing."
        expected = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
        message = _YAML_NAMES.get(error["type"], f"{expected.rstrip('.')}.")
        if error["type"] == "model_type":
            message = f"should be a section of keys: {', '.join(_keys(cls, where))}."
        if error["type"] == "value_error" and _keys(cls, where):  # of a whole section
            return f"{name}: {message}" if name else message
        value = error["input"]
        return f"{name}: {list(value) if isinstance(value, tuple) else value!r}: {message}"

    @classmethod
    def _unknown(cls, key: str) -> str:
        if key in cls.instead:
            return cls.instead[key]
        names = sorted({*cls.model_fields, *cls.of_clusters})
        hint = did_you_mean(key, names, limit=2, form="{}") or f" There are: {', '.join(names)}."
        return f"there is no such key.{hint}"


def _keys(top: type[Section], where: Iterable[str]) -> list[str]:
    within: type[Section] | None = top
    for part in where:
        within = within.section(part) if within else None
    return sorted(within.model_fields) if within else []


# Lengths of training and validation periods, in the units of the configuration.


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
class Scale:
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
        """Returns the number of optimizer steps in a period, rounded down; at least 1.

        Args:
          length: length above 0.
          key: configuration key, for the error message.

        Raises:
          ConfigError: the length is in epochs, and the loader has no length.
        """
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


# Search method, length of training and metric.


SearcherName = Literal[
    "single", "random", "grid", "adaptive", "adaptive_simple", "adaptive_asha", "asha", "tpe"
]


def counted(value: Any) -> Any:
    """Parses {batches: 100} into a `Length`; returns any other value unchanged."""
    if isinstance(value, Mapping) and len(value) == 1:
        unit, amount = next(iter(value.items()))
        if unit in UNITS and isinstance(amount, int) and not isinstance(amount, bool):
            return Length(amount, unit)
    return value


def _length(value: Any) -> Length:
    length = counted(value)
    if not isinstance(length, Length) or length.amount < 1:
        raise ValueError(
            f"expected a whole number of {', '.join(UNITS)}, such as {{batches: 1000}}"
        )
    return length


class Searcher(Section):
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
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    divisor: Annotated[float, pydantic.Field(gt=1)] = 4
    max_rungs: _Number = 5
    bracket_rungs: tuple[_Number, ...] = ()
    source_checkpoint: str | None = None

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Searcher:
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
        from t2t_torch.tune.search_plan import bracket_rungs, rung_lengths  # keeps --help fast

        if self.step_budget is None or self.length is None:
            return self.max_trials
        rungs = list(self.bracket_rungs) or bracket_rungs(self.mode, self.max_rungs)
        total = 0
        for count in rungs:
            lengths, before, steps = rung_lengths(count, self.length.amount, self.divisor), 0, 0
            for place, length in enumerate(lengths):
                steps += (length - before) * max(int(self.divisor ** (count - 1 - place)), 1)
                before = length
            first = max(int(self.divisor ** (count - 1)), 1)
            total += max(int(self.step_budget // len(rungs) / max(steps, 1) * first), 1)
        return total


# YAML with JSON's number syntax and without duplicate keys: 1e-3 is a number.
#
# PyYAML implements YAML 1.1, where 1e-3 is a string (no decimal point), 1:30 is the number 90 and
# 2019-10-31 a date.  Here numbers follow JSON; dates and times remain strings.


_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)")
_CHANGED = {f"tag:yaml.org,2002:{name}" for name in ("float", "int", "timestamp")}


class _Loader(yaml.SafeLoader):
    """Safe loader that builds mappings, lists, strings and numbers only."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the base class declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _CHANGED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns a mapping without duplicate keys.

        Raises:
          yaml.YAMLError: a key occurs twice.
        """
        seen: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value:
            name = key.tag, key.value if isinstance(key.value, str) else repr(key.value)
            if name in seen and key.tag != "tag:yaml.org,2002:merge":
                line = seen[name].start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"the key {key.value!r} stands on line {line} already",
                    key.start_mark,
                )
            seen[name] = key
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"(?:{_FLOAT.pattern})$"), list("-+0123456789.")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(f"(?:{_INT.pattern})$"), list("-+0123456789")
)


def parse_value(text: str) -> Any:
    """Parses a YAML value.

    Raises:
      yaml.YAMLError: the text is invalid YAML or contains a duplicate key.
    """
    return parse_yaml(text, _Loader)  # a SafeLoader that constructs fewer types


def read_mapping(path: Path) -> dict[str, Any]:
    """Reads a YAML file that contains a single mapping.

    Args:
      path: YAML (or JSON) file in UTF-8.

    Raises:
      ConfigError: the file cannot be read, is invalid YAML, has a duplicate key, or is no mapping.
    """
    try:
        text = read_text(path, max_bytes=MAX_YAML)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        content = parse_value(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{_where(error)}") from error
    if not isinstance(content, dict):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise ConfigError(f"{path} holds {kind}; it should have lines such as 'searcher: ...'.")
    return content


def _where(error: yaml.YAMLError) -> str:
    """Returns the position and the problem of a YAML error: ", line 3, column 5: ..."."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    if mark is None:
        return f" is no YAML: {problem}."
    return f", line {mark.line + 1}, column {mark.column + 1}: {problem}."


_Count = Annotated[int, pydantic.Field(ge=0)]
_Number = Annotated[int, pydantic.Field(ge=1)]


def _period(value: Any) -> Length | None:
    length = counted(value)
    if isinstance(length, int) and not isinstance(length, bool):
        length = Length(length, "steps")
    if not isinstance(length, Length) or length.amount < 0:
        raise ValueError(
            "expected a whole number of steps (of batches_per_step batches each), or one of "
            f"{', '.join(UNITS)}, such as {{batches: 1000}}; 0 is never"
        )
    return length if length.amount else None


def _no_script(value: Any) -> Any:
    if isinstance(value, Mapping) and "script" in value:
        raise ValueError(
            "a script was how PEDL ran plain Keras programs, and here trials of PyTorch alone run; "
            "a class is named as module:Class, such as model_def:MyTrial"
        )
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _place(value: str) -> str:
    module, _, name = value.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ValueError("expected module:name, such as model_def:MyTrial")
    return value


_Place = Annotated[str, pydantic.AfterValidator(_place)]

_Period = Annotated[Length | None, pydantic.BeforeValidator(_period)]


class Entrypoints(Section):
    """Trial class and functions as PEDL 0.11 names them, each as module:name.

    Attributes:
      trial_class: the trial class.
      data_loaders_function: function that replaces `make_data_loaders`.
      download_data_function: function that replaces `download_data`.
    """

    trial_class: _Place | None = None
    data_loaders_function: _Place | None = None
    download_data_function: _Place | None = None


class Resources(Section):
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


class Optimizations(Section):
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


class Reproducibility(Section):
    """Random seeds.

    Attributes:
      experiment_seed: seed of weights, data order, dropout and search.
    """

    experiment_seed: Annotated[int, pydantic.Field(ge=0, lt=2**63)] = 0


_RETENTION_KEYS = ("save_experiment_best", "save_trial_best", "save_trial_latest")


class ExperimentConfig(Section):
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
    labels: tuple[str, ...] = ()
    data: dict[Any, Any] = pydantic.Field(default_factory=dict)
    entrypoint: Annotated[str | None, pydantic.BeforeValidator(_no_script)] = None
    entrypoints: Entrypoints = Entrypoints()
    hyperparameters: dict[Any, Any] = pydantic.Field(default_factory=dict)
    searcher: Searcher = Searcher()
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
    _ignored: tuple[str, ...] = pydantic.PrivateAttr(default=())

    @pydantic.model_validator(mode="before")
    @classmethod
    def _own_sections(cls, values: Any) -> Any:
        """Treats an empty `data` or `hyperparameters` section as an empty mapping."""
        if not isinstance(values, Mapping):
            return values
        own = ("data", "hyperparameters", "description")
        return {key: value for key, value in values.items() if value is not None or key not in own}

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
        try:
            config = cls.model_validate(values)
        except pydantic.ValidationError as error:
            lines = [cls.complaint(each) for each in error.errors()]
            message = lines[0] if len(lines) == 1 else "\n  ".join(["", *lines])
            raise ConfigError(f"{source}: {message}") from None
        config._written = copy.deepcopy(dict(written))
        config._ignored = tuple(_ignored_keys(cls, config._written))
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
        return self._ignored

    def scale(
        self,
        *,
        world_size: int,
        records_per_batch: float,
        batches_per_epoch: int | None,
    ) -> Scale:
        """Returns the conversion from lengths of this configuration to optimizer steps.

        Args:
          world_size: number of processes.
          records_per_batch: records per batch of the training loader.
          batches_per_epoch: length of the training loader; None if unknown.  `records_per_epoch`
            takes precedence.
        """
        if self.records_per_epoch is not None:
            batches_per_epoch = max(1, round(self.records_per_epoch / records_per_batch))
        return Scale(
            batches_per_step=self.batches_per_step,
            aggregation_frequency=self.optimizations.aggregation_frequency,
            world_size=world_size,
            records_per_batch=records_per_batch,
            batches_per_epoch=batches_per_epoch,
        )

    def resolved(self, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the complete configuration for user code: written values and defaults.

        Cluster keys are included as written.  Each call returns a new copy.

        Args:
          hparams: the chosen values, nested; stored under "hyperparameters".
        """
        whole = _joined(_defaults(type(self)), self._written)
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
    section: type[Section], written: Mapping[str, Any], prefix: str = ""
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


def _defaults(section: type[Section]) -> dict[str, Any]:
    """Returns the defaults of a section as they are declared, without those that are None."""
    defaults: dict[str, Any] = {}
    for key, field in section.model_fields.items():
        nested = section.section(key)
        default = field.get_default(call_default_factory=True, validated_data={})
        if nested is not None:
            defaults[key] = _defaults(nested)
        elif default is not None:
            defaults[key] = list(default) if isinstance(default, tuple) else copy.deepcopy(default)
    return defaults


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


# Number of optimizer steps of a full trial, computed from the trial's loaders.


ANSWER = "whole_length: "
"""Prefix of the output line in which the subprocess reports the number of steps."""

_MAX_ERROR_LENGTH = 2000  # maximum length of an error message, in characters


def whole_length(trial: str, config: Path, space: Space, usr_dirs: Sequence[str]) -> int:
    """Returns the number of optimizer steps of a full trial, which must not depend on the ranges.

    The trial's loaders are created in a subprocess (`preparation`): the tuner does not import
    torch, and side effects of user code stay in the subprocess.

    Args:
      trial: location of the trial, as `--trial` takes it.
      config: experiment configuration file.
      space: search space.
      usr_dirs: user directories to import.

    Raises:
      UsageError: the trial's loaders cannot be created, or the number of steps varies over the
        ranges.
    """
    lengths: dict[int, Mapping[str, AnyValue]] = {}
    reason = ""
    for place in (0.0, 1.0) if space.searched else (0.0,):
        values = space.at(place)
        question = {
            "trial": trial,
            "config": str(config),
            "hparams": space.nested(values),
            "usr_dirs": list(usr_dirs),
        }
        done = subprocess.run(
            [sys.executable, "-m", "t2t_torch.trial.preparation"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            check=False,
        )
        answers = [line for line in done.stdout.splitlines() if line.startswith(ANSWER)]
        if done.returncode == 0 and answers:
            lengths.setdefault(int(answers[-1].removeprefix(ANSWER)), values)
        else:
            reason = done.stderr.strip()[-_MAX_ERROR_LENGTH:].removeprefix("error: ")
    if not lengths:
        raise UsageError(f"{config}: how long a training is, its loaders should say: {reason}")
    if len(lengths) > 1:
        listed = ", ".join(f"{steps:,} steps with {dict(one)}" for steps, one in lengths.items())
        raise UsageError(
            f"{config}: a whole training has {listed}; trials are compared at equal steps. Give "
            "--train_steps, or the length in batches."
        )
    return next(iter(lengths))
