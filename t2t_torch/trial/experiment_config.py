"""An experiment's configuration: the YAML of PEDL and Determined, as far as one machine reads it.

    description: mnist
    data: {url: https://...}                      # the user's own: any keys
    hyperparameters: {learning_rate: 0.1, ...}    # values, or ranges to search (tune/space.py)
    searcher: {name: single, metric: error, smaller_is_better: true, max_steps: 5}
    min_validation_period: {epochs: 1}
    optimizations: {aggregation_frequency: 2}

Keys that only a cluster can follow are accepted and listed in `ExperimentConfig.ignored`; unknown
ones are refused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from t2t_torch.errors import ConfigError
from t2t_torch.trial.config_section import Section
from t2t_torch.trial.lengths import UNITS, Length, Scale
from t2t_torch.trial.searcher_config import Searcher, counted
from t2t_torch.trial.strict_yaml import read_mapping

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
    """What a training runs on.

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
    """How a step of the optimizer is computed.

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
    """What random numbers depend on.

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
      hyperparameters: values and ranges, nested at will; `tune/space.py` reads them.
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
