"""An experiment's configuration: the YAML of PEDL and Determined, as far as one machine reads it.

    description: mnist
    data: {url: https://...}                      # the user's own: any keys
    hyperparameters: {learning_rate: 0.1, ...}    # values, or ranges to search (search_space.py)
    searcher: {name: single, metric: error, smaller_is_better: true, max_steps: 5}
    min_validation_period: {epochs: 1}
    optimizations: {aggregation_frequency: 2}

Keys that only a cluster can follow are accepted and listed in `ExperimentConfig.ignored`; unknown
ones are refused.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
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

from t2t_torch.errors import ConfigError, UsageError
from t2t_torch.search_space import AnyValue, Space

# What the sections of an experiment's configuration have in common: they say what is wrong.


_YAML_NAMES = {
    "tuple_type": "should be a list.",
    "dict_type": "should be a mapping of keys.",
}


class Section(pydantic.BaseModel):
    """A read-only mapping of known keys, as the YAML has it."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    of_clusters: ClassVar[frozenset[str]] = frozenset()
    """Keys that mean something to a cluster and nothing here."""

    instead: ClassVar[Mapping[str, str]] = {}
    """Keys of other versions that are refused, and what to write in their place."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _as_read(cls, values: Any) -> Any:
        """Takes what YAML has: lists for tuples, nothing for a section; leaves out cluster keys."""
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            return values
        kept = {}
        for key, value in values.items():
            if key in cls.of_clusters or (key in cls.instead and value is None):
                continue
            kept[key] = tuple(value) if isinstance(value, list) and cls._is_list(key) else value
        return kept

    @classmethod
    def _is_list(cls, key: str) -> bool:
        field = cls.model_fields.get(key)
        return field is not None and typing.get_origin(field.annotation) is tuple

    @classmethod
    def section(cls, key: str) -> type[Section] | None:
        """Returns the class of the section under a key, or None if there is none."""
        field = cls.model_fields.get(key)
        kind = field.annotation if field else None
        return kind if isinstance(kind, type) and issubclass(kind, Section) else None

    @classmethod
    def complaint(cls, error: Mapping[str, Any]) -> str:
        """Returns the message for one of pydantic's errors, in terms of the file.

        Args:
          error: of those that `ValidationError.errors()` returns.
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
        told = f"{expected.rstrip('.')}."
        if error["type"] == "model_type":
            told = f"should be a section of keys: {', '.join(_keys(cls, where))}."
        if error["type"] == "value_error" and _keys(cls, where):  # of a whole section
            return f"{name}: {told}" if name else told
        if error["type"] in _YAML_NAMES:
            told = _YAML_NAMES[error["type"]]
        value = error["input"]
        return f"{name}: {list(value) if isinstance(value, tuple) else value!r}: {told}"

    @classmethod
    def _unknown(cls, key: str) -> str:
        if key in cls.instead:
            return cls.instead[key]
        known = sorted({*cls.model_fields, *cls.of_clusters})
        return f"there is no such key.{nearest(key, known)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a sentence with the names that are most like another, or with all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=2)
    return f" Did you mean {' or '.join(near)}?" if near else f" There are: {', '.join(names)}."


def _keys(top: type[Section], where: Iterable[str]) -> list[str]:
    within: type[Section] | None = top
    for part in where:
        within = within.section(part) if within else None
    return sorted(within.model_fields) if within else []


# How long to train and how often to validate, in the units of an experiment's configuration.


Unit = Literal["steps", "batches", "records", "epochs"]
UNITS: tuple[Unit, ...] = ("batches", "records", "epochs")
"""What `max_length` and periods may be counted in; PEDL's older keys count steps of batches."""


@dataclasses.dataclass(frozen=True)
class Length:
    """A length of training.

    Attributes:
      amount: how many.
      unit: of what.  "steps" are PEDL's, of `batches_per_step` batches each; not of the optimizer.
    """

    amount: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.amount:,} {self.unit}"


@dataclasses.dataclass(frozen=True)
class Scale:
    """Composition of an optimizer step.

    An optimizer step takes `aggregation_frequency` batches in every process.  Records and epochs
    are of all processes together.  Batches and PEDL's steps are counted in one process: they say
    how often the model is changed, however many processes share the work.

    Attributes:
      batches_per_step: batches in one of PEDL's steps.
      aggregation_frequency: batches of which the gradients are put together, in each process.
      world_size: processes.
      records_per_batch: items in a batch of the training loader.
      batches_per_epoch: batches that the training loader has; None if it does not tell.
    """

    batches_per_step: int = 100
    aggregation_frequency: int = 1
    world_size: int = 1
    records_per_batch: float = 1.0
    batches_per_epoch: int | None = None

    def steps(self, length: Length, key: str = "searcher.max_length") -> int:
        """Returns the optimizer steps of a length, rounded up: at least 1.

        Args:
          length: above 0.
          key: where it stands, for the error.

        Raises:
          ConfigError: the length is in epochs, and the loader has no length.
        """
        return max(1, math.ceil(self._exact(length, key) - 1e-9))

    def period(self, length: Length, key: str) -> int:
        """Returns the optimizer steps of a period, rounded down: at most so much, at least 1.

        Args:
          length: above 0.
          key: where it stands, for the error.

        Raises:
          ConfigError: the length is in epochs, and the loader has no length.
        """
        return max(1, math.floor(self._exact(length, key) + 1e-9))

    def _exact(self, length: Length, key: str) -> float:
        # Of every process in an optimizer step; and of all of them.
        in_one, in_all = self.aggregation_frequency, self.aggregation_frequency * self.world_size
        if length.unit == "steps":
            return length.amount * self.batches_per_step / in_one
        if length.unit == "batches":
            return length.amount / in_one
        if length.unit == "records":
            return length.amount / (in_all * self.records_per_batch)
        if self.batches_per_epoch is None:
            raise ConfigError(
                f"{key} is {length}, but the training loader has no length, so it is not known how "
                f"long an epoch is. Give {key} in batches or records, set records_per_epoch, or "
                "give the loader a __len__."
            )
        return length.amount * self.batches_per_epoch / in_all


# How an experiment's hyperparameters are chosen, how long is trained, and what is best.


SearcherName = Literal[
    "single", "random", "grid", "adaptive", "adaptive_simple", "adaptive_asha", "asha", "tpe"
]


def counted(value: Any) -> Any:
    """Reads {batches: 100}; leaves what it cannot read."""
    if isinstance(value, Mapping) and len(value) == 1:
        unit, amount = next(iter(value.items()))
        if unit in UNITS and isinstance(amount, int) and not isinstance(amount, bool):
            return Length(amount, unit)
    return value


def _length(value: Any) -> Length:
    found = counted(value)
    if not isinstance(found, Length) or found.amount < 1:
        raise ValueError(
            f"expected a whole number of {', '.join(UNITS)}, such as {{batches: 1000}}"
        )
    return found


class Searcher(Section):
    """Search method, length of training and metric.

    Attributes:
      name: the kind of search; `single` trains once.
      metric: a validation metric, a number; None: nothing is chosen by a metric.
      smaller_is_better: whether a smaller value of it is better.
      max_steps: length of the longest training, in steps of `batches_per_step` batches.
      max_length: the same in batches, records or epochs.
      max_time: the same in `time_metric`.
      time_metric: batches, records or epochs.
      target_trial_steps: as `max_steps`, by the name it has in `adaptive`.
      max_trials: trainings that are begun; `single` begins one.
      step_budget: of adaptive searches, in place of `max_trials`: steps of all trainings together.
      max_concurrent_trials: trainings at a time, at most.
      mode: of adaptive searches: how early bad trainings are stopped.
      divisor: of adaptive searches: one training of so many goes on to the next rung.
      max_rungs: of adaptive searches: the most rungs.
      bracket_rungs: of adaptive searches: rungs of each bracket; empty: by `mode`.
      source_checkpoint: a checkpoint or run directory of which weights are taken to begin with.
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
        """The number of trainings to begin: `max_trials`, or as many as `step_budget` pays for.

        Determined 0.12 shares the budget among the brackets; in each, a training that begins costs
        its part of the steps of all rungs (master/pkg/searcher/asha.go).
        """
        from t2t_torch.tune.search_plan import bracket_rungs, rung_lengths  # --help does without it

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


# YAML as those who write configurations mean it: 1e-3 is a number, a key stands there once.
#
# PyYAML reads YAML 1.1, by which 1e-3 is a text (it has no point), 1:30 is the number 90 and
# 2019-10-31 a date.  Here numbers are as in JSON, and dates and times stay texts.


_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)")
_CHANGED = {f"tag:yaml.org,2002:{name}" for name in ("float", "int", "timestamp")}


class _Loader(yaml.SafeLoader):
    """Builds mappings, lists, texts and numbers, and no objects."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the base class declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _CHANGED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns a mapping.

        Raises:
          yaml.YAMLError: a key stands there twice.
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


def read_text(text: str) -> Any:
    """Reads what a text says.

    Raises:
      yaml.YAMLError: it is no YAML, or has a key twice.
    """
    # Safe: the loader is yaml's safe one, with fewer kinds of values.
    return yaml.load(text, Loader=_Loader)


def read_mapping(path: Path) -> dict[str, Any]:
    """Reads a file that holds one mapping.

    Args:
      path: of a YAML (or JSON) file in UTF-8.

    Raises:
      ConfigError: it cannot be read, is no YAML, has a key twice, or holds no mapping.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        found = read_text(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}{_where(error)}") from error
    if not isinstance(found, dict):
        held = "nothing" if found is None else f"a {type(found).__name__}"
        raise ConfigError(f"{path} holds {held}; it should have lines such as 'searcher: ...'.")
    return found


def _where(error: yaml.YAMLError) -> str:
    """Returns the position and the problem of an error: ", line 3, column 5: ..."."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    if mark is None:
        return f" is no YAML: {problem}."
    return f", line {mark.line + 1}, column {mark.column + 1}: {problem}."


_Count = Annotated[int, pydantic.Field(ge=0)]
_Number = Annotated[int, pydantic.Field(ge=1)]


def _period(value: Any) -> Length | None:
    found = counted(value)
    if isinstance(found, int) and not isinstance(found, bool):
        found = Length(found, "steps")
    if not isinstance(found, Length) or found.amount < 0:
        raise ValueError(
            "expected a whole number of steps (of batches_per_step batches each), or one of "
            f"{', '.join(UNITS)}, such as {{batches: 1000}}; 0 is never"
        )
    return found if found.amount else None


def _no_script(value: Any) -> Any:
    if isinstance(value, Mapping) and "script" in value:
        raise ValueError(
            "a script was how PEDL ran plain Keras programs, and here trials of PyTorch alone run; "
            "a class is named as module:Class, such as model_def:MyTrial"
        )
    return value


def _place(value: str) -> str:
    module, _, name = value.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ValueError("expected module:name, such as model_def:MyTrial")
    return value


_Place = Annotated[str, pydantic.AfterValidator(_place)]

_Period = Annotated[Length | None, pydantic.BeforeValidator(_period)]


class Entrypoints(Section):
    """PEDL 0.11's way to name a trial's class and functions, each as module:name.

    Attributes:
      trial_class: the class.
      data_loaders_function: in place of `make_data_loaders`.
      download_data_function: in place of `download_data`.
    """

    trial_class: _Place | None = None
    data_loaders_function: _Place | None = None
    download_data_function: _Place | None = None


class Resources(Section):
    """Processes of a training.

    Attributes:
      slots_per_trial: processes of one training, one for each GPU.
      optimized_parallel: whether a training has several processes; torchrun starts them.
      distributed: the same, by another name.
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
      aggregation_frequency: batches of each process in an optimizer step.
      average_aggregated_gradients: whether their gradients are averaged; else they are added.
      mixed_precision: O0 computes in float32; O1, O2 and O3, apex's names, in float16.
      precision: what to compute in, said as here: it is stronger.  None: by `mixed_precision`.
      clip_grad_norm: gradients are scaled down to this global L2 norm; 0: never.
      ema_decay: of a running mean of the weights, which is evaluated in their place; 0: none.
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
    """Seeds.

    Attributes:
      experiment_seed: of weights, order, dropout and search.
    """

    experiment_seed: Annotated[int, pydantic.Field(ge=0, lt=2**63)] = 0


_KEPT_IN_STORAGE = ("save_experiment_best", "save_trial_best", "save_trial_latest")


class ExperimentConfig(Section):
    """An experiment's configuration, checked; `read` or `from_dict` makes one.

    Attributes:
      name: of the experiment.
      description: what it is.
      labels: words to find it by.
      data: the user's own, any keys.
      entrypoint: the trial's class, "model_def:MyTrial", where its directory has several.
      entrypoints: the trial's class and functions, each by its place.
      hyperparameters: values and ranges, nested at will; `search_space.py` reads them.
      searcher: how they are chosen, and how long is trained.
      batches_per_step: batches in a step, the unit of `max_steps` and of periods without a unit.
      records_per_epoch: items in an epoch, if it is not to be what the training loader has.
      min_validation_period: the longest time from one validation to the next; None: at the end.
      min_checkpoint_period: the longest time from one checkpoint to the next; None: at the end.
      checkpoint_policy: of checkpoints after a validation: if it is the best, always, or never.
      save_trial_best: best checkpoints of each training that are kept.
      save_trial_latest: newest checkpoints of each training that are kept.
      save_experiment_best: best checkpoints of the whole search that are kept besides.
      perform_initial_validation: whether to validate before the first step.
      max_restarts: how often a training that fails begins again from its newest checkpoint.
      resources: processes.
      optimizations: aggregation and precision.
      reproducibility: the seed.
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
        """Takes an empty `data` or `hyperparameters` for none."""
        if not isinstance(values, Mapping):
            return values
        own = ("data", "hyperparameters", "description")
        return {key: value for key, value in values.items() if value is not None or key not in own}

    @classmethod
    def read(cls, path: Path) -> ExperimentConfig:
        """Reads a YAML file.

        Raises:
          ConfigError: it cannot be read, has a key twice, a key that is unknown, or a value that is
            none; all of them are told at once.
        """
        return cls.from_dict(read_mapping(path), source=str(path))

    @classmethod
    def from_dict(
        cls, written: Mapping[str, Any], *, source: str = "the configuration"
    ) -> ExperimentConfig:
        """Checks a configuration that has been read.

        Args:
          written: as the YAML has it.
          source: where it is from, for errors.

        Raises:
          ConfigError: as `read`.
        """
        values = _with_storage(written, source)
        try:
            made = cls.model_validate(values)
        except pydantic.ValidationError as error:
            lines = [cls.complaint(each) for each in error.errors()]
            told = lines[0] if len(lines) == 1 else "\n  ".join(["", *lines])
            raise ConfigError(f"{source}: {told}") from None
        made._written = copy.deepcopy(dict(written))
        made._ignored = tuple(_left_out(cls, made._written))
        return made

    @property
    def written(self) -> dict[str, Any]:
        """The configuration as it was written; a new copy each time."""
        return copy.deepcopy(self._written)

    @property
    def trial_class(self) -> str | None:
        """The place of the trial's class, module:Class; None: it is not said."""
        return self.entrypoint or self.entrypoints.trial_class

    @property
    def functions(self) -> dict[str, str]:
        """The places of the functions that stand for those of these names."""
        named = {
            "make_data_loaders": self.entrypoints.data_loaders_function,
            "download_data": self.entrypoints.download_data_function,
        }
        return {name: place for name, place in named.items() if place is not None}

    @property
    def ignored(self) -> tuple[str, ...]:
        """The dotted names of the given keys that only a cluster could follow."""
        return self._ignored

    def scale(
        self,
        *,
        world_size: int,
        records_per_batch: float,
        batches_per_epoch: int | None,
    ) -> Scale:
        """Returns what lengths of this configuration are in optimizer steps.

        Args:
          world_size: processes.
          records_per_batch: items in a batch of the training loader.
          batches_per_epoch: of the training loader; None if it does not tell.  `records_per_epoch`
            is stronger.
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
        """Returns the whole configuration for the user's code: what is written, and defaults.

        Keys of clusters are in it as they are written.  It is a new copy each time.

        Args:
          hparams: the chosen values, nested; they stand under "hyperparameters".
        """
        whole = _joined(_defaults(type(self)), self._written)
        whole.update({key: getattr(self, key) for key in _KEPT_IN_STORAGE})
        return {**whole, "hyperparameters": copy.deepcopy(dict(hparams))}


def _with_storage(written: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns a configuration with how many checkpoints are kept at the top.

    Determined has them under `checkpoint_storage`, of which the rest is a cluster's.
    """
    values = dict(written)
    storage = written.get("checkpoint_storage")
    if not isinstance(storage, Mapping):
        return values
    for key in set(_KEPT_IN_STORAGE) & set(storage):
        if key in written and written[key] != storage[key]:
            raise ConfigError(
                f"{source}: {key} is {written[key]!r} at the top and {storage[key]!r} in "
                "checkpoint_storage: keep one of them."
            )
        values[key] = storage[key]
    return values


def _left_out(section: type[Section], written: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Returns the dotted names of the keys that only a cluster could follow, as they come."""
    names = []
    for key, value in written.items():
        within = section.section(key)
        if key in section.of_clusters:
            read = set(_KEPT_IN_STORAGE) if key == "checkpoint_storage" else set()
            if not isinstance(value, Mapping) or not set(value) <= read:
                names.append(f"{prefix}{key}")
        elif within is not None and isinstance(value, Mapping):
            names += _left_out(within, value, f"{prefix}{key}.")
    return names


def _defaults(section: type[Section]) -> dict[str, Any]:
    """Returns the defaults of a section as YAML has them, those that are None left out."""
    found: dict[str, Any] = {}
    for key, field in section.model_fields.items():
        within = section.section(key)
        default = field.get_default(call_default_factory=True)
        if within is not None:
            found[key] = _defaults(within)
        elif default is not None:
            found[key] = list(default) if isinstance(default, tuple) else copy.deepcopy(default)
    return found


def _joined(defaults: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns defaults with what is written in their place; sections are joined key by key."""
    joined = dict(defaults)
    for key, value in written.items():
        default = joined.get(key)
        if isinstance(default, dict) and isinstance(value, Mapping):
            joined[key] = _joined(default, value)
        elif value is not None or default is None:
            joined[key] = copy.deepcopy(value)
    return joined


# How many optimizer steps a whole training has, where only the trial's loaders can say.


ANSWER = "whole_length: "
"""The beginning of the line in which the process that reads the loaders tells the steps."""

_MOST_TOLD = 2000  # characters of an error


def whole_length(trial: str, config: Path, space: Space, usr_dirs: Sequence[str]) -> int:
    """Returns the optimizer steps of a whole training, the same at both ends of all ranges.

    The trial's code makes its loaders in a process of its own (`preparation`): the tuner imports no
    torch, and what the code leaves behind stays there.

    Args:
      trial: as `--trial` takes it.
      config: of the experiment.
      space: what is searched.
      usr_dirs: folders of the user's.

    Raises:
      UsageError: the trial's loaders cannot be made, or trainings differ in their steps.
    """
    found: dict[int, Mapping[str, AnyValue]] = {}
    why = ""
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
            found.setdefault(int(answers[-1].removeprefix(ANSWER)), values)
        else:
            why = done.stderr.strip()[-_MOST_TOLD:].removeprefix("error: ")
    if not found:
        raise UsageError(f"{config}: how long a training is, its loaders should say: {why}")
    if len(found) > 1:
        told = ", ".join(f"{steps:,} steps with {dict(one)}" for steps, one in found.items())
        raise UsageError(
            f"{config}: a whole training has {told}; trials are compared at equal steps. Give "
            "--train_steps, or the length in batches."
        )
    return next(iter(found))
