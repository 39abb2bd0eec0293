"""Preparation of a trial: download, task, smoke check of the evaluation, test mode.

1. The `pedl` shim and the context are set up; all processes seed their generators alike.
2. The code is imported; it may read hyperparameters.
3. `download_data` runs in one process per machine; the others wait.
4. `make_data_loaders` runs in every process.
5. The trial class is instantiated; `build_model` and `optimizer` run when training starts.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import gc
import hashlib
import itertools
import json
import os
import random
import tempfile
import urllib.error
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from t2t_torch import registry
from t2t_torch.data.raw_file import exclusive, network_fault
from t2t_torch.distributed.process_group import World, join_world
from t2t_torch.errors import ConfigError, T2TError, TrialError
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.random_state import isolated_generators
from t2t_torch.train.run_config import RunConfig
from t2t_torch.trial import nested, pytorch_trial, user_code
from t2t_torch.trial.context import PyTorchTrialContext
from t2t_torch.trial.epoch_orders import isolated
from t2t_torch.trial.experiment import ExperimentConfig
from t2t_torch.trial.metrics import OF_THE_LOOP, check_batch_size, check_loaders
from t2t_torch.trial.pytorch_trial import InvalidHP, TrialContext
from t2t_torch.trial.task import ContextTask, TrialTask, check_clipping

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


def download(
    definition: user_code.Definition, context: TrialContext, world: World, *, timeout_s: float
) -> Path | None:
    """Returns the data directory; one process per machine calls `download_data`; a collective call.

    The first process of each machine calls it, one job of the machine after the other; the others
    wait for its result.

    Args:
      definition: definition of the trial.
      context: configuration and hyperparameters of the trial.
      world: processes that train together.
      timeout_s: timeout of the other processes in seconds.

    Returns:
      The absolute path returned by `download_data`; None if the trial does not define it.

    Raises:
      TrialError: in all processes: it raised (with the user's traceback), it returned no existing
        directory, its process died, or it exceeded `timeout_s`.
      InvalidHP: in all processes: `download_data` raised it.
    """
    if definition.download_data is None:
        return None
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    error: BaseException | None = None
    kind = text = ""
    if not rank:
        try:
            kind, text = "path", str(_call_download(definition, context))
        except BaseException as raised:  # also exits of the process: the others must not wait
            error, kind, text = raised, type(raised).__name__, str(raised)
    try:
        if world.size > 1:
            group, done = world.decisions(), torch.zeros(1)
            work = torch.distributed.all_reduce(done, group=group, async_op=True)
            work.wait(datetime.timedelta(seconds=timeout_s))
        kind, text = world.gather([kind, text])[world.rank - rank]
    except RuntimeError:
        raise TrialError(
            f"The process that called download_data of {definition.spec} died, or took more than "
            f"{timeout_s:g} seconds. Its own output says why it died. Wait longer with "
            "--download_timeout=SECONDS, or fetch the data beforehand."
        ) from None
    if error is not None:
        raise error
    if kind != "path":
        raise InvalidHP(text) if kind == "InvalidHP" else TrialError(text or kind)
    return Path(text)


def _call_download(definition: user_code.Definition, context: TrialContext) -> Path:
    """Returns the absolute path that `download_data` returned.

    Raises:
      InvalidHP: it raised this.
      TrialError: it raised another error, or returned no directory.
    """
    given = copy.deepcopy([context.experiment_config, context.hparams])
    data = json.dumps(context.experiment_config.get("data"), sort_keys=True, default=str)
    job = f"{definition.path.resolve()}\n{definition.trial_class.__name__}\n{data}"
    folder = Path(tempfile.gettempdir(), f"t2t_torch-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise TrialError(f"{folder} belongs to somebody else. Set TMPDIR to a directory of yours.")
    lock = folder / f"{hashlib.sha256(job.encode()).hexdigest()[:16]}.lock"
    assert definition.download_data is not None
    try:
        with exclusive(lock, f"downloading the data of {definition.spec}"):
            result: Any = user_code.call(definition.download_data, *given, what="download_data")
    except (InvalidHP, TrialError):
        raise
    except Exception as error:
        fault = f"download_data of {definition.spec} failed"
        if isinstance(error, (urllib.error.URLError, ConnectionError, TimeoutError)):
            fault += (
                f" to download: {network_fault(error)}. Try again, or get the files by other means "
                "and put them where it looks for them"
            )
        raise TrialError(f"{fault}:\n{user_code.users_traceback(error)}") from error
    if not isinstance(result, str) or not Path(result).is_dir():
        hint = " Is a return missing?" if result is None else ""
        raise TrialError(
            f"download_data of {definition.spec} returned {result!r}; an existing directory, as a "
            f"string, was expected.{hint}"
        )
    return Path(result).absolute()


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
    """Returns the task of a trial; a collective call.

    Args:
      spec: location of the code.
      config: experiment configuration.
      chosen: chosen hyperparameters, nested.
      world: processes that train together.
      seed: seed of the run.
      timeout_s: timeout for `download_data` in seconds.

    Raises:
      TrialError: the trial is invalid.
      ConfigError: the hyperparameters for gradient clipping are invalid.
    """
    check_clipping(chosen, config.optimizations.clip_grad_norm)
    entered = pytorch_trial.TrialContext(config.resolved(chosen), copy.deepcopy(chosen))
    pytorch_trial.enter(entered)
    seed_all(seed)
    definition = user_code.load_definition(spec, config.functions)
    path = download(definition, entered, world, timeout_s=timeout_s)
    pytorch_trial.enter(dataclasses.replace(entered, download_data_dir=path))
    seed_all(seed)
    options = config.optimizations
    context = PyTorchTrialContext(
        world,
        aggregation_frequency=options.aggregation_frequency,
        averages=options.average_aggregated_gradients,
        clip_grad_norm=options.clip_grad_norm,
    )
    sections = (entered.experiment_config, chosen)
    loaders = _loaders_of(definition, sections, path)
    trial = user_code.instance_of(definition, chosen, context)
    loaders = loaders or _loaders_of(trial, sections, path)
    loaders = loaders or check_loaders([getattr(trial, name)() for name in user_code.LOADERS])
    _check_methods(trial, definition, loaders[0], chosen)
    kind = ContextTask if definition.generation == user_code.CONTEXT else TrialTask
    if kind is TrialTask:  # what the trial wraps itself is its own: attributes like others
        context = PyTorchTrialContext(world)
    given = definition, trial, loaders, context, chosen, settings_of(config)
    return kind(*given, options.average_aggregated_gradients, config.searcher.metric)


def _check_methods(
    trial: Any, definition: user_code.Definition, loader: Any, chosen: dict[str, Any]
) -> None:
    """Checks the signatures of a trial's methods, and its batch size."""
    for name in definition.methods:
        user_code.arity(getattr(trial, name), name)
    batch_size = getattr(trial, "batch_size", None)
    if callable(batch_size):
        batch_size = user_code.call(batch_size, copy.deepcopy(chosen), what="batch_size")
    if batch_size is not None:
        check_batch_size(batch_size, loader)


def _loaders_of(owner: Any, given: tuple[Any, ...], path: Path | None) -> Any:
    """Returns the result of `make_data_loaders` of a definition or a trial; None without it."""
    make = getattr(owner, "make_data_loaders", None)
    if make is None:
        return None
    made = user_code.call(make, *copy.deepcopy(given), path and str(path), what="make_data_loaders")
    return check_loaders(made)


def settings_of(config: ExperimentConfig) -> HParams:
    """Returns the settings of the training loop, from the configuration alone."""
    options = config.optimizations
    return registry.hparams("basic_params1").replace(
        batch_size=1,  # losses are means: the float16 loss scale is that of a mean
        clip_grad_norm=options.clip_grad_norm,
        weight_decay=0.0,
        optimizer_multistep_accumulate_steps=options.aggregation_frequency,
        activation_dtype=options.precision or _PRECISIONS[options.mixed_precision],
        ema_decay=options.ema_decay,
    )


def seed_all(seed: int) -> None:
    """Seeds the generators of Python, numpy and torch, equally in all processes."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@torch.no_grad()
def smoke_check(estimator: Estimator) -> None:
    """Evaluates the first batch of each process; a collective call after training has started.

    Weights, buffers, generators, the optimizer's settings, a scheduler and the trial's attributes
    are restored.

    Args:
      estimator: estimator of a `TrialTask` after `begin`.

    Raises:
      TrialError: the evaluation would fail: no metrics, or without the metric that selects the
        best.
    """
    estimator.begin()
    task, world = estimator.task, estimator.world
    assert isinstance(task, TrialTask) and task.state.attributes is not None
    model = estimator.model.eval()
    before = task.state.save(world)
    with (
        contextlib.ExitStack() as undone,
        isolated_generators(),
        isolated(0),
        warnings.catch_warnings(),
    ):
        tensors = [one.detach() for one in (*model.parameters(), *model.buffers())]
        for tensor in tensors:  # the copies are in CPU memory
            undone.callback(tensor.copy_, tensor.to("cpu", copy=True))
        undone.callback(task.state.attributes.remember())
        evaluator = task.evaluator()
        warnings.filterwarnings("ignore", r"Detected call of `lr_scheduler\.step")  # is reverted
        batches = task.eval_batches(
            estimator.config.eval_split, rank=world.rank, world_size=world.size
        )
        for batch in itertools.islice(batches, 1):
            on_device = task.batches.to_device(batch, world.device)
            with estimator.precision.autocast():
                output = evaluator.output(model, on_device)
            evaluator.update(output, on_device)
        evaluator.synchronize(world)
        evaluator.result()
    if task.state.save(world) != before:
        task.state.restore(before, task.state.tensors(), world)
    estimator.say("validation was tried with one batch before training, as it comes at the end")


def tested(task: TrialTask, *, seed: int, device: torch.device) -> Iterator[str]:
    """Trains a step, evaluates a batch, saves and restores; yields lines of output.

    All files are temporary.

    Args:
      task: task of the trial.
      seed: seed of the run.
      device: device of the model.

    Raises:
      TrialError: the trial is invalid, or the restored model differs from the saved one.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run")
        config = RunConfig(train_steps=1, local_eval_frequency=0, eval_steps=1, random_seed=seed)
        directory.claim_files(TaskRecord(trial=task.name, train_steps=1), {})
        world = World(0, 1, device)
        with Estimator(task, directory, config, world=world) as estimator:
            yield from _stepped(task, estimator)
            saved = {k: v.clone() for k, v in estimator.model.state_dict().items()}
        del estimator
        gc.collect()  # ends workers of its loader, which would hold the lock of the directory
        with Estimator(task, directory, config, world=world) as again:
            again.begin()
            for name, tensor in again.model.state_dict().items():
                if not torch.equal(tensor, saved[name]):
                    raise TrialError(
                        f"{name} is another one when it is read back from a checkpoint: the model "
                        "changes it when it is loaded."
                    )
    yield "checkpoint: written, read back, equal"
    yield "--test_mode: all of it runs"


def _stepped(task: TrialTask, estimator: Estimator) -> Iterator[str]:
    """Trains a step and evaluates a batch."""
    batch: Any = next(iter(estimator.begin().source))
    yield from _described("batch of training", batch.content)
    if task.definition.generation == user_code.DOCUMENTED:
        inputs, _ = task.batches.to_device(batch, estimator.world.device).content
        with torch.no_grad():
            predictions = estimator.model.eval()(inputs)
        yield from _described("predictions", predictions)
    estimator.train(1)
    estimator.saving.finish()
    (report,) = MetricsFile(estimator.directory.path).read()
    own = {name: value for name, value in report.items() if name not in OF_THE_LOOP}
    yield from _described("after one step", own)
    yield from _described("validation", estimator.evaluate())


def _described(title: str, value: Any) -> Iterator[str]:
    """Yields a title, and the lines of metrics or of the shapes of a nested value."""
    yield title
    if isinstance(value, dict) and all(isinstance(one, float) for one in value.values()):
        yield from (f"  {name}: {number:.6g}" for name, number in value.items())
    else:
        yield from (f"  {line}" for line in nested.shapes(value))


def whole_length(question: Mapping[str, Any], rank: int, count: int) -> int | str:
    """Returns the number of optimizer steps of a full training, or why it is not known.

    Args:
      question: see `search.whole_length`, whose processes call this.
      rank: place of the hyperparameters in the question.
      count: number of processes.
    """
    try:
        config = ExperimentConfig.read(Path(question["config"]))
        length = config.searcher.length
        if length is None:
            raise ConfigError(f"{question['config']} does not say how long to train.")
        spec = question["trial"]
        if config.trial_class and ":" not in Path(spec).name:
            spec += f":{config.trial_class.rpartition(':')[2]}"
        with join_world(use_gpu=False) as world:
            seed, chosen = config.reproducibility.experiment_seed, question["hparams"][rank]
            task = prepare(spec, config, chosen, world, seed=seed, timeout_s=7200)
            source = task.train_batches(seed=seed, start=0, rank=0, world_size=1)
            return config.scale(source).steps(length)
    except T2TError as error:
        return str(error)
    except Exception as error:
        return user_code.users_traceback(error)
