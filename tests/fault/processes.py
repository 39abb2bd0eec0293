"""Trainers as processes of their own, which can be killed.

They are forked from a server that has imported torch already: a start takes milliseconds and not
seconds.  Those that torchrun shall start run this file as a program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import forked
import mutations
import numbered
import pytest
import torch
from one_variable import OneVariable, WithStatistics
from together import MeetingPlace
from torch.distributed.tensor import DTensor

from t2t_torch.bin.commands import decoder, exporter, trainer
from t2t_torch.decode import journal
from t2t_torch.decode.journal import Journal
from t2t_torch.distributed import peers, process_group
from t2t_torch.distributed.process_group import join_world
from t2t_torch.errors import CheckpointError
from t2t_torch.run.checkpoint_directory import SaveError
from t2t_torch.signals import SignalStop
from t2t_torch.train.digests import DigestLog
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.experiment import Experiment
from t2t_torch.train.run_config import RunConfig
from t2t_torch.workflows.decode_checkpoints import CheckpointDecoder

SECONDS = 600  # until a process that hangs is killed, and the test fails
SECONDS_TO_SAVE = 10.0  # of what schedulers leave a process between SIGTERM and SIGKILL
LONGEST_EXCHANGE = 4.0  # where a test makes it short; two processes are never so far apart


@dataclasses.dataclass
class Child:
    """A process, the file that it writes its errors to, and where it meets others."""

    process: BaseProcess
    errors: Path
    meeting: MeetingPlace | None = None

    @property
    def pid(self) -> int:
        """Its number."""
        return int(self.process.pid or 0)

    def wait(self, seconds: float = SECONDS) -> int:
        """Returns the exit code; minus the signal's number if one has ended it."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"it hangs:\n{self.said}")
        return int(self.process.exitcode)

    def kill(self) -> None:
        """Ends it as kill -9 does."""
        self.process.kill()
        self.process.join()

    @property
    def said(self) -> str:
        """What it has written to stderr."""
        return self.errors.read_text() if self.errors.exists() else ""

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Waits until something is so; the process must still be there then."""
        end = time.monotonic() + SECONDS
        while not condition():
            assert self.process.is_alive(), f"it ended ({self.process.exitcode}):\n{self.said}"
            assert time.monotonic() < end, f"it never came:\n{self.said}"
            time.sleep(0.002)


def start(errors: Path, function: Callable[..., int], *arguments: Any, **environment: str) -> Child:
    """Starts a process that calls a function of this file and exits with what it returns."""
    call = (str(errors), environment, function.__name__, arguments)
    # Those that are left when the tests end are ended; one that runs tests has children itself.
    daemon = function is not run_pytest
    process = forked.CONTEXT.Process(target=_begin, args=call, daemon=daemon)
    process.start()
    return Child(process, errors)


def start_world(
    folder: Path, size: int, function: Callable[..., int], *arguments: Any
) -> list[Child]:
    """Starts processes that train together, as torchrun would."""
    folder.mkdir(exist_ok=True)
    meeting, children = MeetingPlace(size), []
    for rank in range(size):
        child = start(folder / f"{rank}.err", function, *arguments, **meeting.environment(rank))
        children.append(dataclasses.replace(child, meeting=meeting))
    return children


def _begin(errors: str, environment: Mapping[str, str], name: str, arguments: Any) -> None:
    forked.write_to(errors)
    os.environ.update(environment)
    if name != run_pytest.__name__:  # there the tests' own fixture does it
        mutations.introduce(pytest.MonkeyPatch())
    torch.set_num_threads(1)
    sys.exit(globals()[name](*arguments))


def run_pytest(tests: Sequence[str]) -> int:
    """Runs some tests of this folder; returns what pytest does."""
    folder = Path(__file__).parent
    # Plain asserts: what a failure would say is not read, and takes longer than the test.
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "--tb=line"]
    return int(pytest.main([*quiet, *(str(folder / test) for test in tests)]))


def run_trainer(arguments: Sequence[str]) -> int:
    """`t2t-trainer`."""
    return trainer.main(list(arguments))


def run_exporter(arguments: Sequence[str]) -> int:
    """`t2t-exporter`."""
    return exporter.main(list(arguments))


def train(spec: Mapping[str, Any]) -> int:
    """Trains on the numbered data and notes, in each process, what it consumes.

    Args:
      spec: data_dir, output_dir, until; notes: the file to note in, without the rank; hparams;
        config: of `RunConfig`; faults: as in `_with_faults`; exchange_timeout: of `join_world`.
    """
    output_dir, timeout = Path(spec["output_dir"]), spec.get("exchange_timeout", 0.0)
    if timeout:
        peers._SECONDS, peers._WATCHED = 0.1, 0.5
    with join_world(use_gpu=False, exchange_timeout=timeout) as world, SignalStop() as stop:
        task = numbered.make_task(Path(spec["data_dir"]), spec.get("hparams", ""))
        with world.leader_first() as leads:
            directory = numbered.RunDirectory(output_dir)
            if leads:
                directory.begin(numbered.RECORD, task.hparams)
        settings = {"local_eval_frequency": 0, "log_step_count_steps": 1, "eval_steps": 1}
        settings |= {"train_steps": spec["until"], **spec.get("config", {})}
        config = RunConfig(**settings)
        hooks = [DigestLog()] if config.digest_every else []
        with (
            Estimator(task, directory, config, hooks=hooks, world=world, stop=stop) as estimator,
            _with_faults(estimator, spec.get("faults", {})),
        ):
            start = estimator.begin() and estimator.state.batches_consumed
            try:
                Experiment(estimator).run(spec.get("schedule", "train"))
            finally:
                if "notes" in spec:
                    _note(Path(f"{spec['notes']}.{world.rank}"), start, estimator)
            if estimator.signal:
                return 128 + estimator.signal
    return 0


def train_one_variable(spec: Mapping[str, Any]) -> int:
    """Trains the model of one weight; notes the weight after each step.

    Args:
      spec: batches, rate, hparams, steps; output_dir; notes: the file to note in, without the rank.
    """
    with join_world(use_gpu=False) as world:
        task = OneVariable(spec["batches"], spec["rate"], spec["hparams"])
        directory = numbered.RunDirectory(Path(spec["output_dir"]))
        with world.leader_first() as leads:
            if leads:
                directory.begin(numbered.RECORD, task.hparams)
        config = RunConfig(
            train_steps=spec["steps"], local_eval_frequency=0, log_step_count_steps=1
        )
        weights = []
        with Estimator(task, directory, config, world=world) as estimator:
            for step in range(spec["steps"]):
                estimator.train(step + 1)
                weights.append(float(estimator.model.weight))
        Path(f"{spec['notes']}.{world.rank}").write_text(json.dumps(weights))
    return 0


def train_with_statistics(spec: Mapping[str, Any]) -> int:
    """Trains a model that keeps statistics of its inputs; notes them before each pass."""
    with join_world(use_gpu=False) as world:
        task = WithStatistics(spec["batches"], 0.01)
        directory = numbered.RunDirectory(Path(spec["output_dir"]))
        with world.leader_first() as leads:
            if leads:
                directory.begin(numbered.RECORD, task.hparams)
        config = RunConfig(train_steps=spec["steps"], local_eval_frequency=0)
        seen: list[float] = []
        with Estimator(task, directory, config, world=world) as estimator:
            mean = estimator.model.get_buffer("statistics.running_mean")
            objective = estimator.begin().objective
            objective.register_forward_pre_hook(lambda *args: seen.append(float(mean)))
            Experiment(estimator).run("train")
        Path(f"{spec['notes']}.{world.rank}").write_text(json.dumps(seen))
    return 0


def decode_what_is_deleted(arguments: Sequence[str]) -> int:
    """`t2t-trainer`, where the first checkpoint that the leader decodes is deleted meanwhile."""
    decode = CheckpointDecoder.__call__

    def delete(self: CheckpointDecoder, checkpoint: Any, *args: Any, **options: Any) -> Any:
        gone = checkpoint.path.with_name("ckpt-2")
        if gone.is_dir():
            shutil.rmtree(gone)
            raise CheckpointError(f"{gone} is not there")
        return decode(self, checkpoint, *args, **options)

    CheckpointDecoder.__call__ = delete  # type: ignore[method-assign]
    return trainer.main(list(arguments))


def decode_and_end(arguments: Sequence[str], at: str, number: int, signal_number: int) -> int:
    """`t2t-decoder`, which sends itself a signal at an instant.

    Args:
      arguments: its flags.
      at: "line", half of a line of the journal is written; "batch", a line is; "files", the outputs
        are complete under another name; "end", under their own, and the journal is still there.
      number: of such an instant, from 1; 0 sends none.
      signal_number: of the signal.
    """
    passed = 0

    def now() -> None:
        nonlocal passed
        passed += 1
        if passed == number:
            os.kill(os.getpid(), signal_number)
            signal.pause()

    def adding(self: Journal, rows: Any) -> None:
        if at == "line" and self._file is not None:
            line = journal._line({"found": rows})
            if passed + 1 == number:
                self._file.write(line[: len(line) // 2])
            now()
        add(self, rows)
        if at == "batch":
            now()

    def replacing(self: Path, target: Path) -> Path:
        if at == "files":
            now()
        replaced = replace(self, target)
        if at == "end":
            now()
        return replaced

    add, replace = Journal.add, Path.replace
    Journal.add, Path.replace = adding, replacing  # type: ignore[method-assign, assignment]
    return decoder.main(list(arguments))


def wait_for_each_other() -> int:
    """The leader works alone for longer than a sum may take; then one takes part in no sum."""
    process_group._LONGEST_EXCHANGE = datetime.timedelta(seconds=LONGEST_EXCHANGE)
    with join_world(use_gpu=False) as world:
        with world.leader_first() as leads:
            if leads:
                time.sleep(LONGEST_EXCHANGE + 0.5)
        world.sum(torch.ones(1))
        if world.rank == 1:
            time.sleep(SECONDS)
        try:
            world.sum(torch.ones(1))
        except RuntimeError:
            return 3
    return 0


def _note(file: Path, start: int, estimator: Estimator) -> None:
    weights = {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).tolist()
        for name, value in estimator.model.state_dict().items()
    }
    noted = {
        "start": start,
        "consumed": estimator.task.consumed,  # type: ignore[attr-defined]
        "weights": weights,
        "state": estimator.state.model_dump(),
    }
    file.write_text(json.dumps(noted))


def consumed_by(notes: Path, size: int) -> list[list[int]]:
    """Returns what processes have consumed together, in the order of the global batches."""
    each = [json.loads(Path(f"{notes}.{rank}").read_text())["consumed"] for rank in range(size)]
    return [batch for group in zip(*each, strict=True) for batch in group]


@contextlib.contextmanager
def _with_faults(estimator: Estimator, faults: Mapping[str, Any]) -> Iterator[None]:
    """Makes things go wrong.

    Args:
      estimator: whose network is tampered with.
      faults: die: [rank, forward pass] ends a process, where the folder has no file "died" yet;
        error: [rank, forward pass] raises one; flip: so flips a bit of a weight;
        nan: [rank, [passes]] makes losses of one process not finite; hang: a pass that lasts for
        ever; memory: [rank, [passes]] lets memory run out in one process;
        memory_backward: so in the backward pass; disk: no checkpoint can be written.
    """
    rank = estimator.world.rank
    passes = 0
    marker = estimator.directory.path / "died"

    def before(module: torch.nn.Module, inputs: Any) -> None:
        nonlocal passes
        passes += module.training
        if faults.get("die") == [rank, passes] and not marker.exists():
            marker.touch()
            os._exit(9)
        if faults.get("error") == [rank, passes]:
            raise ValueError("spam")
        if faults.get("flip") == [rank, passes]:
            next(module.parameters()).data.view(torch.int32).view(-1)[0] ^= 1 << 20
        if faults.get("hang") == [rank, passes]:
            print("hanging", file=sys.stderr, flush=True)
            time.sleep(SECONDS)
        at_rank, at_passes = faults.get("memory", (-1, ()))
        if module.training and rank == at_rank and passes in at_passes:
            run_out()

    def after(module: torch.nn.Module, inputs: Any, output: Any) -> Any:
        at_rank, at_passes = faults.get("nan", (-1, ()))
        if module.training and rank == at_rank and passes in at_passes:
            for loss in output.losses.values():
                loss.sum.mul_(float("nan"))
        if module.training and faults.get("memory_backward") == [rank, passes]:
            for loss in output.losses.values():
                loss.sum.register_hook(run_out)
        return output

    def run_out(*args: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    def full(*args: Any) -> None:
        raise SaveError("no space is left")

    if "disk" in faults:
        estimator.checkpoints.save = full  # type: ignore[assignment, method-assign]
    hooks = [
        estimator.begin().objective.register_forward_pre_hook(before),
        estimator.begin().objective.register_forward_hook(after),
    ]
    yield
    for hook in hooks:
        hook.remove()


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(train(json.loads(sys.argv[1])))
