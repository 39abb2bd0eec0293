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
import fcntl
import gc
import hashlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
import urllib.error
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from absl import logging

from t2t_torch import registry
from t2t_torch.data.raw_file import exclusive, network_fault
from t2t_torch.distributed.process_group import World, join_world
from t2t_torch.errors import EXIT_CODE, ConfigError, T2TError, TrialError
from t2t_torch.files import is_locked, read_json, write_text
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.random_state import isolated_generators
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.run_directory import MetricsFile, RunDirectory, TaskRecord
from t2t_torch.trial import nested, pytorch_trial
from t2t_torch.trial.config import ANSWER, ExperimentConfig
from t2t_torch.trial.context import PyTorchTrialContext
from t2t_torch.trial.context_task import ContextTask
from t2t_torch.trial.definition import (
    CONTEXT,
    DOCUMENTED,
    LOADERS,
    Definition,
    arity,
    call,
    instance_of,
    load_definition,
)
from t2t_torch.trial.epoch_orders import isolated
from t2t_torch.trial.metrics import OF_THE_LOOP, check_batch_size, check_loaders
from t2t_torch.trial.pytorch_trial import InvalidHP, TrialContext
from t2t_torch.trial.run_record import check_clipping
from t2t_torch.trial.task import TrialTask
from t2t_torch.trial.user_code import users_traceback

if TYPE_CHECKING:
    from torch import Tensor, nn

    from t2t_torch.hparam import HParams


# `download_data`, called once per machine for any number of training processes.
#
# The first process of a machine calls it under a lock shared by all jobs with the same trial and
# data on the machine, and writes the result to a file for the others: the directory or the
# traceback.  It holds a second lock at the same time, by which the others detect that it died.


_POLL_SECONDS = 0.05  # polling interval for the result
_MAX_AGE_SECONDS = 86400.0  # maximum age of files of old starts; longer than any timeout


def download_once(
    definition: Definition,
    context: TrialContext,
    *,
    timeout_s: float,
    local_rank: int,
    attempt_id: str,
) -> Path | None:
    """Returns the data directory; one process per machine calls the trial's `download_data`.

    All processes of the machine must call this.  Each new start of a job calls the trial again.

    Args:
      definition: definition of the trial.
      context: configuration and hyperparameters of the trial.
      timeout_s: timeout of the other processes in seconds.
      local_rank: rank of this process on its machine; 0 calls the trial.
      attempt_id: name of this start of the job, equal in all of its processes: `this_start`.

    Returns:
      The absolute path returned by `download_data`; None if the trial does not define it.

    Raises:
      TrialError: in all processes: it raised (with the user's traceback), it returned no existing
        directory, its process died, or it exceeded `timeout_s`.
      InvalidHP: in all processes: `download_data` raised it.
    """
    if definition.download_data is None:
        return None
    data = json.dumps(context.experiment_config.get("data"), sort_keys=True, default=str)
    key = _hash(f"{definition.path.resolve()}\n{definition.trial_class.__name__}\n{data}")
    start = _own_folder() / f"{key}-{_hash(attempt_id)}"
    if local_rank:
        return _wait(definition, start, timeout_s)
    with _living(start):
        return _download(definition, context, start, start.with_name(f"{key}.lock"))


def this_start(world: World) -> str:
    """Returns a name of this start of the job, equal in all processes; a collective call."""
    return str(world.from_leader(time.time_ns()))


@contextlib.contextmanager
def _living(start: Path) -> Iterator[None]:
    """Holds the lock of a file that marks this process as alive; the file is locked on creation.

    Args:
      start: prefix of the file's name.
    """
    locked = start.with_suffix(f".{os.getpid()}")
    with locked.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        locked.replace(start.with_suffix(".alive"))
        yield


def _clear(lock: Path) -> None:
    """Removes files of old starts."""
    oldest = time.time() - _MAX_AGE_SECONDS
    for path in lock.parent.glob(f"{lock.stem}-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _download(definition: Definition, context: TrialContext, start: Path, lock: Path) -> Path:
    """Calls the trial and writes the result for the other processes."""

    def write(kind: str, text: str) -> None:
        write_text(start.with_suffix(".json"), json.dumps([kind, text]))

    try:
        with exclusive(lock, f"downloading the data of {definition.spec}"):
            _clear(lock)
            path = _called(definition, context)
    except (InvalidHP, TrialError) as error:
        write("InvalidHP" if isinstance(error, InvalidHP) else "TrialError", str(error))
        raise
    except BaseException as error:  # includes exits of the process: the others must not wait
        fault = f"download_data of {definition.spec} failed"
        if isinstance(error, (urllib.error.URLError, ConnectionError, TimeoutError)):
            fault += (
                f" to download: {network_fault(error)}. Try again, or get the files by other means "
                "and put them where it looks for them"
            )
        message = f"{fault}:\n{users_traceback(error)}"
        write("TrialError", message)
        if isinstance(error, Exception):
            raise TrialError(message) from error
        raise
    write("path", str(path))
    return path


def _called(definition: Definition, context: TrialContext) -> Path:
    """Returns the directory returned by `download_data`.

    Raises:
      TrialError: the result is no directory.
    """
    given = copy.deepcopy([context.experiment_config, context.hparams])
    function = definition.download_data
    assert function is not None
    result: Any = call(function, *given, what="download_data")
    if not isinstance(result, str):
        forgot = " Is a return missing?" if result is None else ""
        raise TrialError(
            f"download_data of {definition.spec} returned {result!r}; a directory, as a string, "
            f"was expected.{forgot}"
        )
    path = Path(result).absolute()
    if not path.is_dir():
        raise TrialError(
            f"download_data of {definition.spec} returned {result!r}, but {path} is no directory. "
            "Return the directory that the data were put in."
        )
    return path


def _wait(definition: Definition, start: Path, timeout_s: float) -> Path:
    """Waits for the result of the first process."""
    deadline = time.monotonic() + timeout_s
    alive, result = start.with_suffix(".alive"), start.with_suffix(".json")
    logging.info("Waiting for download_data, which another process of this machine calls.")
    while True:
        died = alive.exists() and not is_locked(alive)
        if result.exists():  # written just before the process ended
            kind, text = read_json(result)
            if kind == "path":
                return Path(text)
            raise InvalidHP(text) if kind == "InvalidHP" else TrialError(text)
        if died:
            raise TrialError(
                f"The process that called download_data of {definition.spec} died. Its own "
                "output says why; start again."
            )
        if time.monotonic() > deadline:
            raise TrialError(
                f"download_data of {definition.spec} took more than {timeout_s:g} seconds. Wait "
                "longer with --download_timeout=SECONDS, or fetch the data beforehand."
            )
        time.sleep(_POLL_SECONDS)


def _own_folder() -> Path:
    """Returns a directory of the current user on this machine.

    Raises:
      TrialError: the directory belongs to another user.
    """
    folder = Path(tempfile.gettempdir()) / f"t2t_torch-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise TrialError(f"{folder} belongs to somebody else. Set TMPDIR to a directory of yours.")
    return folder


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    definition = load_definition(spec, config.functions)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    path = download_once(
        definition, entered, timeout_s=timeout_s, local_rank=rank, attempt_id=this_start(world)
    )
    pytorch_trial.set_download_data_dir(path)
    world.maximum(0)  # barrier
    seed_all(seed)
    context = _context_of(config, world)
    trial: Any = None
    make = definition.make_data_loaders
    if make is None:  # methods; they need an instance
        trial = instance_of(definition, chosen, context)
        make = getattr(trial, "make_data_loaders", None) or _building(trial)
    given = (
        pytorch_trial.get_experiment_config(),
        pytorch_trial.get_hyperparameters(),
        path and str(path),
    )
    loaders = check_loaders(call(make, *given, what="make_data_loaders"))
    if trial is None:
        trial = instance_of(definition, chosen, context)
    _check_methods(trial, definition, loaders[0], chosen)
    settings: Any = {
        "chosen": chosen,
        "settings": settings_of(config),
        "averages": config.optimizations.average_aggregated_gradients,
        "metric": config.searcher.metric,
    }
    if definition.generation == CONTEXT:
        return ContextTask(definition, trial, loaders, context=context, **settings)
    return TrialTask(definition, trial, loaders, **settings)


def _context_of(config: ExperimentConfig, world: World) -> PyTorchTrialContext:
    options = config.optimizations
    return PyTorchTrialContext(
        world,
        aggregation_frequency=options.aggregation_frequency,
        averages=options.average_aggregated_gradients,
        clip_grad_norm=options.clip_grad_norm,
    )


def _building(trial: Any) -> Callable[[], tuple[Any, ...]]:
    return lambda: tuple(getattr(trial, name)() for name in LOADERS)


def _check_methods(trial: Any, definition: Definition, loader: Any, chosen: dict[str, Any]) -> None:
    """Checks the signatures of a trial's methods, and its batch size.

    Raises:
      TrialError: a method has an unsupported number of arguments, or the batch size is invalid.
    """
    for name in definition.methods:
        arity(getattr(trial, name), name)
    batch_size = getattr(trial, "batch_size", None)
    if callable(batch_size):
        batch_size = call(batch_size, copy.deepcopy(chosen), what="batch_size")
    if batch_size is not None:
        check_batch_size(batch_size, loader)


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


# Smoke check of a trial's evaluation before training, to detect errors early.
#
# One batch is evaluated and its metrics are reduced as in an evaluation.  Nothing is written, and
# the state of the run is restored.


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
    assert isinstance(task, TrialTask)
    model = estimator.model.eval()
    before = task.state.save(world)
    with (
        _preserved(model),
        task.state.attributes_preserved(),
        isolated_generators(),
        isolated(0),
        warnings.catch_warnings(),
    ):
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


@contextlib.contextmanager
def _preserved(model: nn.Module) -> Iterator[None]:
    """Restores parameters and buffers on exit; the copies are kept in CPU memory."""

    def tensors() -> list[Tensor]:
        return [*model.parameters(), *model.buffers()]

    copies = [tensor.detach().to("cpu", copy=True) for tensor in tensors()]
    try:
        yield
    finally:
        for tensor, copy in zip(tensors(), copies, strict=True):
            tensor.detach().copy_(copy)


# Test mode of a trial (`--test_mode`): one batch through all stages.


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
    if task.definition.generation == DOCUMENTED:
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


# Computes the number of steps of a training, for `config.whole_length`:
#
#     python -m t2t_torch.trial.preparation < question.json


def _answer(question: Mapping[str, Any]) -> int:
    """Returns the number of optimizer steps of a full training; see `config.whole_length`."""
    for folder in question["usr_dirs"]:
        registry.import_usr_dir(folder)
    config = ExperimentConfig.read(Path(question["config"]))
    length = config.searcher.length
    if length is None:
        raise ConfigError(f"{question['config']} does not say how long to train.")
    spec = question["trial"]
    if config.trial_class and ":" not in Path(spec).name:
        spec += f":{config.trial_class.rpartition(':')[2]}"
    with join_world(use_gpu=False) as world:
        seed = config.reproducibility.experiment_seed
        task = prepare(spec, config, question["hparams"], world, seed=seed, timeout_s=7200)
        source = task.train_batches(seed=seed, start=0, rank=0, world_size=1)
        scale = config.scale(
            world_size=1,
            records_per_batch=source.records_per_batch,
            batches_per_epoch=source.batches_per_epoch,
        )
        return scale.steps(length)


def main() -> int:
    """Answers the request on standard input; returns the exit code."""
    try:
        print(f"{ANSWER}{_answer(json.loads(sys.stdin.read()))}", flush=True)
    except T2TError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
