"""Base class of trials, and PEDL's interface.

The interface as documented by PEDL:

    class MyTrial(PyTorchTrial):
        def build_model(self, hparams): ...                  # -> nn.Module
        def optimizer(self, model): ...                      # -> torch.optim.Optimizer
        def losses(self, predictions, labels): ...           # -> a loss, or a dict with "loss"
        def validation_metrics(self, predictions, labels, losses): ...    # -> dict
        def training_metrics(self, predictions, labels, losses): ...      # -> dict; may be absent
        def batch_size(self): ...                            # -> int; may be absent

The interface of later trials, with the training step in one method:

    class MyTrial(PyTorchTrial):
        def build_model(self): ...
        def optimizer(self, model): ...
        def create_lr_scheduler(self, optimizer): ...        # -> LRScheduler; may be absent
        def train_batch(self, batch, model, epoch_idx, batch_idx): ...    # -> dict with "loss"
        def evaluate_batch(self, batch, model): ...          # -> dict
        def evaluate_full_dataset(self, data_loader, model): ...          # alternative -> dict

The interface of Determined, whose trials update their weights themselves, is in `context.py`.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import zlib
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.errors import T2TError, TrialError, did_you_mean
from t2t_torch.search_space import Space


class PyTorchTrial:
    """Base class of trials.

    None of the methods above is declared here: the methods that a trial defines select the
    interface (`user_code.py`); missing ones are reported together when the trial is loaded.

    Attributes:
      transient: names of attributes, of the trial or its modules, that are neither saved in
        checkpoints nor checked for changes that a checkpoint cannot store.

    Args:
      hparams: the chosen hyperparameters; subclasses may pass their own argument, or nothing.
    """

    transient: ClassVar[tuple[str, ...]] = ()

    def __init__(self, hparams: dict[str, Any] | None = None, *_: Any, **__: Any) -> None:
        """Accepts and ignores any arguments that subclasses pass."""


@dataclasses.dataclass(frozen=True)
class TrialContext:
    """Context of a running trial: configuration, hyperparameters, data.

    User modules may read it on import, so it is entered before they are loaded.  All values are
    returned as copies: user code cannot modify the context.

    Attributes:
      experiment_config: the complete configuration, including the chosen hyperparameters.
      hparams: the chosen values, nested as in the configuration.
      download_data_dir: result of `download_data`; None if the trial does not define it.
    """

    experiment_config: dict[str, Any]
    hparams: dict[str, Any]
    download_data_dir: Path | None = None


class _Current:
    """The context of this process; a process runs one trial."""

    context: TrialContext | None = None
    run: Path | None = None


def name_run(path: Path | None) -> None:
    """Sets the run directory, from which the run and experiment numbers are derived."""
    _Current.run = path.resolve() if path else None


def get_run_directory() -> Path | None:
    """Returns the run directory; None without one."""
    return _Current.run


def get_trial_id() -> int:
    """Returns the run's number, unique per run directory; 0 without one."""
    return _number(_Current.run)


def get_experiment_id() -> int:
    """Returns the experiment's number, shared by all trials of a search."""
    run = _Current.run
    in_search = run is not None and run.parent.name == "trials"
    return _number(run.parent.parent if run and in_search else run)


def _number(path: Path | None) -> int:
    return zlib.crc32(str(path).encode()) if path else 0


def enter(context: TrialContext) -> None:
    """Sets the current context."""
    _Current.context = context


def get_hyperparameter(name: str) -> Any:
    """Returns the value of a hyperparameter; nested ones by dotted name.

    Raises:
      TrialError: there is no such hyperparameter, or no trial is running.
    """
    hparams = _entered(f"get_hyperparameter({name!r})").hparams
    value: Any = hparams
    for part in [name] if name in hparams else name.split("."):
        if not isinstance(value, dict) or part not in value:
            names = sorted(Space.flat(hparams))
            raise TrialError(
                f"The trial reads hyperparameter {name!r}, but the configuration has only "
                f"{', '.join(names) or 'none'}.{did_you_mean(name, names, limit=1)}"
            )
        value = value[part]
    return copy.deepcopy(value)


def get_hyperparameters() -> dict[str, Any]:
    """Returns all chosen values, nested as in the configuration.

    Raises:
      TrialError: no trial is running.
    """
    return copy.deepcopy(_entered("get_hyperparameters()").hparams)


def get_experiment_config() -> dict[str, Any]:
    """Returns the complete configuration.

    Raises:
      TrialError: no trial is running.
    """
    return copy.deepcopy(_entered("get_experiment_config()").experiment_config)


def get_data_config() -> dict[str, Any]:
    """Returns the `data` section of the configuration; empty if missing.

    Raises:
      TrialError: no trial is running.
    """
    return copy.deepcopy(_entered("get_data_config()").experiment_config.get("data") or {})


def get_download_data_dir() -> str:
    """Returns the result of `download_data`.

    Raises:
      TrialError: `download_data` is not defined or not yet called, or no trial is running.
    """
    path = _entered("get_download_data_dir()").download_data_dir
    if path is None:
        raise TrialError(
            "The trial calls get_download_data_dir(), but there is no such directory. Either "
            "its module has no function download_data(experiment_config, hparams) that returns "
            "one: write it. Or it is called while the module is imported: call it in "
            "make_data_loaders or later."
        )
    return str(path)


def _entered(function: str) -> TrialContext:
    """Returns the current context.

    Raises:
      TrialError: no context was entered.
    """
    if _Current.context is None:
        raise TrialError(
            f"{function} was called outside of a trial: nothing is configured here. Run the trial "
            "with t2t-trainer --trial=... --config=experiment.yaml --output_dir=..."
        )
    return _Current.context


class Reducer(enum.Enum):
    """Reductions of metrics over batches, as a trial's `evaluation_reducer` returns them."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4


def reducers_of(trial: Any) -> Reducer | dict[str, Reducer]:
    """Returns the reducers of a trial: its `evaluation_reducer`, or the mean.

    Raises:
      TrialError: it is neither a Reducer nor a dict of Reducers.
    """
    method = getattr(trial, "evaluation_reducer", None)
    reducers = Reducer.AVG if method is None else method()
    values = list(reducers.values()) if isinstance(reducers, dict) else [reducers]
    if not all(getattr(value, "name", None) in Reducer.__members__ for value in values):
        raise TrialError(
            f"evaluation_reducer returned {reducers!r}; a pedl.frameworks.pytorch.Reducer (AVG, "
            "SUM, MAX or MIN), or a dict of them by the metrics' names, was expected."
        )
    if isinstance(reducers, dict):  # also enums of an installed package
        return {name: Reducer[value.name] for name, value in reducers.items()}
    return Reducer[reducers.name]


class InvalidHP(T2TError):
    """The hyperparameters cannot be trained; a search tries another combination instead."""

    exit_code = 3
    label = "error: InvalidHP"
