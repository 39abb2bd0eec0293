"""Preparation of a trial: download, task, smoke check of the evaluation, test mode.

1. The shim is there, the context is entered, the generators are seeded alike in all processes.
2. The code is imported, which may ask for hyperparameters.
3. `download_data`, in one process of each machine; the others wait.
4. `make_data_loaders`, in every process.
5. The trial's class is called; later, when training begins, `build_model` and `optimizer`.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import gc
import hashlib
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from absl import logging

from t2t_torch import registry
from t2t_torch.data.raw_file import exclusive
from t2t_torch.distributed.process_group import World, join_world
from t2t_torch.errors import EXIT_CODE, ConfigError, T2TError, TrialError
from t2t_torch.files import is_locked, write_text
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.run_directory import MetricsFile, RunDirectory, TaskRecord
from t2t_torch.trial import nested, pytorch_trial
from t2t_torch.trial.config import ANSWER, ExperimentConfig
from t2t_torch.trial.definition import TRAIN_BATCH, Definition, arity, call, load_definition
from t2t_torch.trial.epoch_orders import isolated
from t2t_torch.trial.metrics import OF_THE_LOOP, check_batch_size, check_loaders
from t2t_torch.trial.pytorch_trial import InvalidHP, TrialContext
from t2t_torch.trial.run_record import check_clipping
from t2t_torch.trial.source import users_traceback
from t2t_torch.trial.task import TrialTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from t2t_torch.hparam import HParams
    from t2t_torch.train.task import Task


# `download_data`, called once on a machine, however many processes train on it.
#
# The first process of a machine calls it under a lock that all jobs of the same trial and data on
# the machine share, and writes the result to a file that the others wait for: the directory, or the
# traceback.  It holds a second lock meanwhile, so that the others see if it died.


_LOOK_SECONDS = 0.05  # between two looks for the result
_KEPT_SECONDS = 86400.0  # files of starts that are over; the longest wait for one is shorter


def download_once(
    definition: Definition,
    context: TrialContext,
    *,
    timeout_s: float,
    local_rank: int,
    attempt_id: str,
) -> Path | None:
    """Returns the directory of the data, for which one process of this machine calls the trial.

    All processes of the machine must call this.  A job that is started anew calls the trial anew.

    Args:
      definition: the trial.
      context: its configuration and hyperparameters.
      timeout_s: how long the other processes wait.
      local_rank: of this process on this machine; 0 calls the trial.
      attempt_id: the same in all processes of this start, and in those of no other: `this_start`.

    Returns:
      What `download_data` returned, absolute; None of a trial without it.

    Raises:
      TrialError: in all processes: it raised (with the user's traceback), it returned no existing
        directory, its process died, or it took longer than `timeout_s`.
      InvalidHP: in all processes: it raised that.
    """
    if definition.download_data is None:
        return None
    data = json.dumps(context.experiment_config.get("data"), sort_keys=True, default=str)
    subject = _hash(f"{definition.path.resolve()}\n{definition.trial_class.__name__}\n{data}")
    start = _own_folder() / f"{subject}-{_hash(attempt_id)}"
    if local_rank:
        return _wait(definition, start, timeout_s)
    with _living(start):
        return _download(definition, context, start, start.with_name(f"{subject}.lock"))


def this_start(world: World) -> str:
    """Returns a name of this start of the job, the same in all its processes; all must ask."""
    return str(world.from_leader(time.time_ns()))


@contextlib.contextmanager
def _living(start: Path) -> Iterator[None]:
    """Holds the lock of a file that says that this process lives; it is locked before it is there.

    Args:
      start: of the file's name.
    """
    locked = start.with_suffix(f".{os.getpid()}")
    with locked.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        locked.replace(start.with_suffix(".alive"))
        yield


def _clear(lock: Path) -> None:
    """Removes what starts that are long over have left."""
    oldest = time.time() - _KEPT_SECONDS
    for path in lock.parent.glob(f"{lock.stem}-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _download(definition: Definition, context: TrialContext, start: Path, lock: Path) -> Path:
    """Calls the trial, and writes the result for the other processes."""

    def write(kind: str, text: str) -> None:
        write_text(start.with_suffix(".json"), json.dumps([kind, text]))

    try:
        with exclusive(lock, f"downloading the data of {definition.spec}"):
            _clear(lock)
            path = _called(definition, context)
    except (InvalidHP, TrialError) as error:
        write("InvalidHP" if isinstance(error, InvalidHP) else "TrialError", str(error))
        raise
    except BaseException as error:  # also what ends the process: nobody shall wait for it
        message = f"download_data of {definition.spec} failed:\n{users_traceback(error)}"
        write("TrialError", message)
        if isinstance(error, Exception):
            raise TrialError(message) from error
        raise
    write("path", str(path))
    return path


def _called(definition: Definition, context: TrialContext) -> Path:
    """Returns the directory that `download_data` names.

    Raises:
      TrialError: it names none.
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
    """Waits for the result of the first process's call."""
    deadline = time.monotonic() + timeout_s
    alive, result = start.with_suffix(".alive"), start.with_suffix(".json")
    logging.info("Waiting for download_data, which another process of this machine calls.")
    while True:
        died = alive.exists() and not is_locked(alive)
        if result.exists():  # it may have been written and the process ended between the two
            kind, text = json.loads(result.read_text("utf-8"))
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
        time.sleep(_LOOK_SECONDS)


def _own_folder() -> Path:
    """Returns a directory of this user's, on this machine.

    Raises:
      TrialError: its name is taken by somebody else.
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
    entered = pytorch_trial.TrialContext(config.resolved(chosen), copy.deepcopy(chosen))
    pytorch_trial.enter(entered)
    seed_all(seed)
    definition = load_definition(spec, config.functions)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    path = download_once(
        definition, entered, timeout_s=timeout_s, local_rank=rank, attempt_id=this_start(world)
    )
    pytorch_trial.set_download_data_dir(path)
    world.maximum(0)  # all of them have come so far
    seed_all(seed)
    trial: Any = None
    make = definition.make_data_loaders
    if make is None:  # a method; of an instance, unless it is static
        trial = call(definition.trial_class, copy.deepcopy(chosen), what="__init__")
        make = trial.make_data_loaders
    given = (
        pytorch_trial.get_experiment_config(),
        pytorch_trial.get_hyperparameters(),
        path and str(path),
    )
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


# The first evaluation of a trial, tried before training: its errors come then, and not at the end.
#
# One batch is evaluated and its metrics are joined as those of an evaluation are; nothing is
# written, and the run is afterwards as if it had not been.


@torch.no_grad()
def rehearse(estimator: Estimator) -> None:
    """Evaluates the first batch of each process; all processes must call it, once training began.

    Weights, buffers, generators, the optimizer's settings, a scheduler and the trial's own
    attributes are put back.

    Args:
      estimator: of a `TrialTask`, whose `begin` was called.

    Raises:
      TrialError: the evaluation would fail: no metrics, or not the one that says what is best.
    """
    estimator.begin()
    task, world = estimator.task, estimator.world
    assert isinstance(task, TrialTask)
    model = estimator.model.eval()
    before = task.state.save(world)
    devices = [world.device] if world.device.type == "cuda" else []
    generators = torch.random.fork_rng(devices)
    with (
        _kept(model),
        task.state.attributes_kept(),
        generators,
        isolated(0),
        warnings.catch_warnings(),
    ):
        evaluator = task.evaluator()
        warnings.filterwarnings("ignore", r"Detected call of `lr_scheduler\.step")  # it is undone
        for batch in _first(task, estimator):
            on_device = task.batches.to_device(batch, world.device)
            with estimator.precision.autocast():
                output = evaluator.output(model, on_device)
            evaluator.update(output, on_device)
        evaluator.synchronize(world)
        evaluator.result()
    if task.state.save(world) != before:
        task.state.restore(before, task.state.tensors(), world)
    estimator.say("validation was tried with one batch before training, as it comes at the end")


def _first(task: Task, estimator: Estimator) -> Iterator[Any]:
    world = estimator.world
    batches = task.eval_batches(estimator.config.eval_split, rank=world.rank, world_size=world.size)
    for batch in batches:
        yield batch
        return


@contextlib.contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Gives parameters and buffers back as they were; the copies are in the CPU's memory."""

    def tensors() -> list[Tensor]:
        return [*model.parameters(), *model.buffers()]

    copies = [tensor.detach().to("cpu", copy=True) for tensor in tensors()]
    try:
        yield
    finally:
        for tensor, copy in zip(tensors(), copies, strict=True):
            tensor.detach().copy_(copy)


# One batch of a trial through everything, before hours are spent on it: `--test_mode`.


def tested(task: TrialTask, *, seed: int, device: torch.device) -> Iterator[str]:
    """Trains a step, evaluates a batch, saves and reads back; yields what a user should see.

    Nothing is left behind.

    Args:
      task: of the trial.
      seed: of the run.
      device: where the model computes.

    Raises:
      TrialError: something of the trial is not as it should be; or what was saved is read back as
        something else.
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
        gc.collect()  # workers of its loader would hold the lock of the directory
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
    (batch,) = _first_of(estimator.begin().source)
    yield from _told("batch of training", batch.content)
    yield from _predicted(task, estimator, batch)
    estimator.train(1)
    estimator.saving.finish()
    yield from _told("after one step", _numbers(MetricsFile(estimator.directory.path)))
    yield from _told("validation", estimator.evaluate())


def _numbers(file: MetricsFile) -> dict[str, float]:
    """Returns what the step has reported of the trial's own."""
    (report,) = file.read()
    return {name: report[name] for name in report if name not in OF_THE_LOOP}


def _first_of(source: Any) -> Iterator[Any]:
    yield next(iter(source))


def _predicted(task: TrialTask, estimator: Estimator, batch: Any) -> Iterator[str]:
    """Yields lines on the predictions for a batch; a trial with `train_batch` has none."""
    if task.definition.generation == TRAIN_BATCH:
        return
    inputs, _ = task.batches.to_device(batch, estimator.world.device).content
    with torch.no_grad():
        predictions = estimator.model.eval()(inputs)
    yield from _told("predictions", predictions)


def _told(title: str, value: Any) -> Iterator[str]:
    yield title
    if isinstance(value, dict) and all(isinstance(one, float) for one in value.values()):
        yield from (f"  {name}: {number:.6g}" for name, number in value.items())
    else:
        yield from (f"  {line}" for line in nested.shapes(value))


# The length of a training, for `config.whole_length`:
#
#     python -m t2t_torch.trial.preparation < question.json


def _answer(question: Mapping[str, Any]) -> int:
    """Returns the optimizer steps of a whole training; see `config.whole_length`."""
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
        source = task.train_batches(seed=seed, start=0, rank=0, world_size=1).source
        scale = config.scale(
            world_size=1,
            records_per_batch=source.records_per_batch,
            batches_per_epoch=source.batches_per_epoch,
        )
        return scale.steps(length)


def main() -> int:
    """Answers the question on standard input; returns the exit code."""
    try:
        print(f"{ANSWER}{_answer(json.loads(sys.stdin.read()))}", flush=True)
    except T2TError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
