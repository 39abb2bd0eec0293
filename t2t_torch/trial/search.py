"""Search over the hyperparameters of a `PyTorchTrial`, by its experiment configuration."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.errors import UsageError
from t2t_torch.executor import map_ranks
from t2t_torch.reporter import message
from t2t_torch.search_space import AnyValue, Space
from t2t_torch.trial.experiment import (
    ExperimentConfig,
    check_functions,
    check_trial,
    module_file_of,
)
from t2t_torch.trial.user_code import split_spec
from t2t_torch.workflows.search_settings import (
    RequestedSearch,
    SearchSettings,
    absolute,
    plan_of,
    trainer_arguments,
)

_MODULE_FILE = "module_file"
"""Entry of a search's record: the file of a trial that is a module, for which it is trusted."""


@dataclass(frozen=True)
class TrialSearchTarget:
    """A PyTorchTrial and its experiment configuration.

    Attributes:
      trial: location of the trial, as `--trial` takes it.
      config: experiment configuration file.
      name: display name: that of the trial's class.
      usr_dirs: user directories to import.
      more: additional flags of the trainer, the same for all trials.
    """

    trial: str
    config: Path
    name: str
    usr_dirs: tuple[str, ...]
    more: tuple[str, ...]

    def check_data(self) -> None:
        """Does nothing: a trial's code reads its own data."""

    def arguments(self, hparams: Mapping[str, AnyValue]) -> list[str]:
        """Returns the flags; each value has its own flag, with its dotted name and JSON value."""
        return [
            f"--trial={self.trial}",
            f"--config={self.config}",
            *(f"--hp={name}={json.dumps(value)}" for name, value in hparams.items()),
            *(f"--t2t_usr_dir={folder}" for folder in self.usr_dirs),
            *self.more,
        ]

    def identity(self) -> dict[str, Any]:
        """Returns all values except locations."""
        return {"name": self.name, "trial": Path(self.trial).name, "trainer": list(self.more)}


def requested_search(settings: SearchSettings, known_steps: Mapping[str, int]) -> RequestedSearch:
    """Returns the search over the hyperparameters of a trial; see `RunKind.requested_search`."""
    trial, path = str(settings.trial), Path(str(settings.config)).absolute()
    config = ExperimentConfig.read(path)
    searcher = config.searcher
    space = Space.of_mapping(config.hyperparameters)
    metric, less = settings.metric or searcher.metric, settings.metric_minimize
    if not metric:
        raise UsageError(
            f"{path} names no metric to rank trials by. Write searcher: {{metric: ...}}, or give "
            "--metric."
        )
    steps_of: dict[str, int] = {}
    steps = settings.train_steps
    if steps is None:
        length = config.searcher.length
        if length is None:
            raise UsageError(
                f"{path} does not say how long to train. Write searcher: {{max_length: {{batches: "
                "1000}}, or give --train_steps."
            )
        if length.unit not in ("records", "epochs"):
            steps = config.scale().steps(length)
        elif (written := str(length)) in known_steps:
            steps, steps_of = known_steps[written], dict(known_steps)
        else:
            message(f"computing the number of steps in {written} from the loaders")
            steps = whole_length(trial, path, space)
            steps_of = {written: steps}
    same = ("divisor", "max_rungs", "mode", "bracket_rungs")
    known = {
        **{name: getattr(searcher, name) for name in same},
        "metric": metric,
        "lower_is_better": searcher.smaller_is_better if less is None else less,
        "length": steps,
        "searcher": searcher.name,
        "max_trials": searcher.trials,
        "max_concurrent": searcher.max_concurrent_trials,
        "seed": config.reproducibility.experiment_seed,
    }
    # The tuner begins again itself what breaks, and counts it.
    more = ["--max_restarts=0", *trainer_arguments(settings, "eval_steps", "local_eval_frequency")]
    if settings.metric:
        more.append(f"--eval_early_stopping_metric={metric}")
    if less is not None:
        more.append(f"--eval_early_stopping_metric_minimize={str(less).lower()}")
    location, class_name = split_spec(trial)
    subject = TrialSearchTarget(
        trial=absolute(trial),
        config=path,
        name=class_name or Path(location).stem,
        usr_dirs=tuple(registry.usr_dirs()),
        more=(*more, *trainer_arguments(settings, "worker_gpu", "eval_metrics")),
    )
    plan = plan_of(settings, space, known, None)
    return RequestedSearch(plan, space, subject, config.max_restarts, steps_of)


def recorded_of_search(settings: SearchSettings) -> dict[str, Any]:
    """Returns the entries of a search's record; see `RunKind.recorded_of_search`."""
    return {_MODULE_FILE: module_file_of(str(settings.trial))}


def check_search(settings: SearchSettings, output_dir: Path, known: Mapping[str, Any]) -> None:
    """Checks that the code of a recalled search may be executed; see `RunKind.check_search`."""
    trial = str(settings.trial)
    if "trial" not in settings.given:
        check_trial(trial, output_dir, known.get(_MODULE_FILE, ""))
    if settings.config and not settings.given >= {"trial", "config"}:
        check_functions(trial, output_dir, ExperimentConfig.read(Path(settings.config)).functions)


_MAX_ERROR_LENGTH = 2000  # maximum length of an error message, in characters


def whole_length(trial: str, config: Path, space: Space) -> int:
    """Returns the number of optimizer steps of a full trial, which must not depend on the ranges.

    The trial's loaders are created in processes of their own (`preparation`): the tuner does not
    import torch, and side effects of user code stay there.

    Args:
      trial: location of the trial, as `--trial` takes it.
      config: experiment configuration file.
      space: search space.

    Raises:
      UsageError: the trial's loaders cannot be created, or the number of steps varies over the
        ranges.
    """
    ends = [space.at(place) for place in ((0.0, 1.0) if space.searched else (0.0,))]
    question = {"trial": trial, "config": str(config), "hparams": [*map(space.nested, ends)]}
    function = "t2t_torch.trial.preparation:whole_length"
    with tempfile.TemporaryDirectory() as folder, registry.executor("local")({}) as executor:
        answers = map_ranks(executor, function, question, len(ends), Path(folder))
    pairs = zip(answers, ends, strict=True)
    lengths = {steps: values for steps, values in pairs if isinstance(steps, int)}
    if not lengths:
        reason = answers[-1][-_MAX_ERROR_LENGTH:]
        raise UsageError(f"{config}: how long a training is, its loaders should say: {reason}")
    if len(lengths) > 1:
        listed = ", ".join(f"{steps:,} steps with {dict(one)}" for steps, one in lengths.items())
        raise UsageError(
            f"{config}: a whole training has {listed}; trials are compared at equal steps. Give "
            "--train_steps, or the length in batches."
        )
    return next(iter(lengths))
