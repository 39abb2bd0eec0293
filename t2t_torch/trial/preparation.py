"""From a trial's code to its task, in an order that a user may rely on.

1. The shim is there, the context is entered, the generators are seeded alike in all processes.
2. The code is imported, which may ask for hyperparameters.
3. `download_data`, in one process of each machine; the others wait.
4. `make_data_loaders`, in every process.
5. The trial's class is called; later, when training begins, `build_model` and `optimizer`.
"""

from __future__ import annotations

import copy
import os
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from t2t_torch import registry
from t2t_torch.trial import context
from t2t_torch.trial.answers import check_batch_size, check_loaders
from t2t_torch.trial.calling import arity, call
from t2t_torch.trial.chosen import check_clipping
from t2t_torch.trial.definition import load_definition
from t2t_torch.trial.download import download_once, this_start
from t2t_torch.trial.task import TrialTask

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World
    from t2t_torch.hparam import HParams
    from t2t_torch.trial.definition import Definition
    from t2t_torch.trial.experiment_config import ExperimentConfig

_PRECISIONS = {"O0": "float32", "O1": "float16", "O2": "float16", "O3": "float16"}


def prepare(
    spec: str,
    config: ExperimentConfig,
    chosen: dict[str, Any],
    world: World,
    *,
    seed: int,
    timeout_s: float,
) -> TrialTask:
    """Returns the task of a trial; called in all processes.

    Args:
      spec: where the code is.
      config: of the experiment.
      chosen: the hyperparameters, nested.
      world: the processes that train together.
      seed: of the run.
      timeout_s: how long processes wait for `download_data`.

    Raises:
      TrialError: the trial is none that can be trained; says why.
      ConfigError: gradients cannot be clipped as the hyperparameters say.
    """
    check_clipping(chosen, config.optimizations.clip_grad_norm)
    entered = context.TrialContext(config.resolved(chosen), copy.deepcopy(chosen))
    context.enter(entered)
    seed_all(seed)
    definition = load_definition(spec, config.functions)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    path = download_once(
        definition, entered, timeout_s=timeout_s, local_rank=rank, attempt_id=this_start(world)
    )
    context.set_download_data_dir(path)
    world.maximum(0)  # all of them have come so far
    seed_all(seed)
    trial: Any = None
    make = definition.make_data_loaders
    if make is None:  # a method; of an instance, unless it is static
        trial = call(definition.trial_class, copy.deepcopy(chosen), what="__init__")
        make = trial.make_data_loaders
    given = (context.get_experiment_config(), context.get_hyperparameters(), path and str(path))
    loaders = check_loaders(call(make, *given, what="make_data_loaders"))
    if trial is None:
        trial = call(definition.trial_class, copy.deepcopy(chosen), what="__init__")
    _look_at_signatures(trial, definition)
    _look_at_batch_size(trial, loaders[0], chosen)
    return TrialTask(
        definition,
        trial,
        loaders,
        chosen=chosen,
        settings=settings_of(config),
        averages=config.optimizations.average_aggregated_gradients,
        metric=config.searcher.metric,
    )


def settings_of(config: ExperimentConfig) -> HParams:
    """Returns what the loop reads: nothing but what the configuration asks for."""
    wanted = config.optimizations
    return registry.hparams("basic_params1").replace(
        batch_size=1,  # losses are means: the scale of a loss in float16 is that of a mean
        clip_grad_norm=wanted.clip_grad_norm,
        weight_decay=0.0,
        optimizer_multistep_accumulate_steps=wanted.aggregation_frequency,
        activation_dtype=wanted.precision or _PRECISIONS[wanted.mixed_precision],
        ema_decay=wanted.ema_decay,
    )


def seed_all(seed: int) -> None:
    """Seeds the generators of Python, numpy and torch, alike in all processes."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _look_at_signatures(trial: Any, definition: Definition) -> None:
    """Checks that what training and evaluation call takes what it will be given.

    Raises:
      TrialError: a method takes another number of arguments.
    """
    for name in definition.methods:
        arity(getattr(trial, name), name)


def _look_at_batch_size(trial: Any, loader: Any, chosen: dict[str, Any]) -> None:
    """Checks what the trial says of its batches; the loader decides.

    Raises:
      TrialError: it is no size.
    """
    found = getattr(trial, "batch_size", None)
    if callable(found):
        found = call(found, copy.deepcopy(chosen), what="batch_size")
    if found is not None:
        check_batch_size(found, loader)
