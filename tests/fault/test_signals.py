"""S1, S3, S4: wherever a signal arrives, the run is saved, its exit code says why, it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import processes
import pytest
import torch
from conftest import reports_of
from processes import SECONDS_TO_SAVE
from test_kill import weights_and_slots

from t2t_torch.bin.commands import trainer
from t2t_torch.models.transformer import Transformer
from t2t_torch.objectives.objective import Objective
from t2t_torch.problems.algorithmic import AlgorithmicProblem
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.signals import SIGNALS

STEPS = 8


class Sender:
    """Sends this process a signal at the n-th call of something, once.

    Attributes:
      sent_at: when.
      calls_after: of the same, after it was sent.
    """

    def __init__(self, monkeypatch):
        self._patch = monkeypatch
        self.sent_at = None
        self.calls_after = 0

    def at(self, owner, name, call, number, if_so=lambda *args: True):
        """Wraps a function."""
        function = getattr(owner, name)
        left = call

        def sending(*args, **kwargs):
            nonlocal left
            left -= if_so(*args)
            self.calls_after += self.sent_at is not None and if_so(*args)
            if left == 0 and self.sent_at is None:
                self.sent_at = time.monotonic()
                os.kill(os.getpid(), number)
            return function(*args, **kwargs)

        self._patch.setattr(owner, name, sending)


@pytest.fixture
def send(monkeypatch):
    """Sends a signal, where a test says."""
    return Sender(monkeypatch)


def in_training(model, *_):
    return model.training


def in_evaluation(model, *_):
    return not model.training


def of_a_checkpoint(descriptor):
    return "ckpt-" in Path(f"/dev/fd/{descriptor}").resolve().as_posix()


PLACES = {
    "a training step": (Objective, "forward", 4, in_training),
    "the first step": (Objective, "forward", 1, in_training),
    "the last step": (Objective, "forward", STEPS, in_training),
    "an evaluation": (Transformer, "forward", 2, in_evaluation),
    "a save": (os, "fsync", 3, of_a_checkpoint),
    "the end of a save": (Path, "replace", 1, lambda path, *_: "ckpt-" in path.name),
    "decoding": (Transformer, "encode", 2, in_evaluation),  # once for each of three sentences
}


@pytest.fixture(scope="module")
def expected():
    """Checkpoints of runs that never stopped, by schedule; made when first asked for."""
    return {}


def whole(flags, tmp_path, expected, **more):
    """The last checkpoint of a run that never stopped, and its reports."""
    key = repr(sorted(more.items()))
    if key not in expected:
        assert trainer.main(flags("whole", **more)) == 0
        folder = tmp_path / "whole"
        expected[key] = weights_and_slots(folder / f"ckpt-{STEPS}"), reports_of(folder)
    return expected[key]


@pytest.mark.sample(2)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_anywhere_is_followed_by_a_save_and_a_resume_that_is_bit_equal(
    flags, tmp_path, monkeypatch, expected, algorithmic, place, number
):
    more = {}
    if place == "decoding":
        more = {"schedule": "train_eval_and_decode", "decode_hparams": "beam_size=1,batch_size=1"}
        more["decode_from_file"] = algorithmic / "in.txt"
    reached, reports = whole(flags, tmp_path, expected, **more)
    with monkeypatch.context() as patch:
        owner, name, call, if_so = PLACES[place]
        send = Sender(patch)
        send.at(owner, name, call, number, if_so)
        assert trainer.main(flags(**more)) == 128 + number
        assert time.monotonic() - send.sent_at < SECONDS_TO_SAVE
        if owner is Transformer:
            assert send.calls_after == 0, "it goes on as if nothing had happened"
    state = CheckpointDirectory(tmp_path / "run").newest().trainer_state()
    told = [report["step"] for report in reports_of(tmp_path / "run") if report["split"] == "train"]
    assert state.step == max(told), "all that was trained is saved"

    assert trainer.main(flags(**more)) == 0
    assert weights_and_slots(tmp_path / "run" / f"ckpt-{STEPS}") == reached
    assert in_order(reports_of(tmp_path / "run")) == in_order(reports)


def in_order(reports):
    """Reports by step: an evaluation that a signal broke off is made before the next step."""
    return sorted(reports, key=lambda report: (report["step"], report["split"]))


def test_a_signal_while_layers_are_compiled_ends_it_after_that_shape(flags, tmp_path, monkeypatch):
    """A compiler takes half a minute for a shape; this one compiles nothing, but is as patient."""
    calls = []

    def compile_nothing(forward, **options):
        def compiled(*inputs):
            calls.append(inputs[0].shape)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return forward(*inputs)

        return compiled

    hparams = "batch_size=256,learning_rate_warmup_steps=4,compile=True,pad_batch=True"
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", compile_nothing)
        assert trainer.main(flags(hparams=hparams)) == 128 + signal.SIGTERM
        assert len(calls) >= 3
        assert len(set(calls)) == 1, "no further shape was compiled"
        assert CheckpointDirectory(tmp_path / "run").newest() is None
        assert trainer.main(flags(hparams=hparams)) == 0
    assert len(set(calls)) > 1
    assert (tmp_path / "run" / f"ckpt-{STEPS}").is_dir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_data_is_generated_ends_it_and_leaves_nothing_half(
    flags, tmp_path, monkeypatch, number
):
    generate = AlgorithmicProblem.generate_samples
    yielded = 0

    def generate_slowly(self, tmp_dir, split):
        nonlocal yielded
        for sample in generate(self, tmp_dir, split):
            yielded += 1
            if yielded == 50:
                os.kill(os.getpid(), number)
            assert yielded < 5000, "it goes on as if nothing had happened"
            yield sample

    data_dir = tmp_path / "data"
    with monkeypatch.context() as patch:
        patch.setattr(AlgorithmicProblem, "generate_samples", generate_slowly)
        code = exit_code_of(flags(generate_data="true", data_dir=data_dir, tmp_dir=tmp_path))
    assert code == 128 + number
    assert [path for path in data_dir.iterdir() if not path.name.startswith(".")] == []
    assert not (tmp_path / "run").exists()


def exit_code_of(arguments):
    """What a shell would see."""
    try:
        return trainer.main(arguments)
    except SystemExit as end:
        return end.code


def test_the_exit_code_may_be_chosen(flags, send):
    """75 is EX_TEMPFAIL: some schedulers start such a job again."""
    send.at(Transformer, "forward", 2, signal.SIGUSR1)
    assert trainer.main(flags(signal_exit_code=75)) == 75


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once_and_touches_no_checkpoint(
    data_dir, tmp_path, number
):
    told = {
        "data_dir": str(data_dir),
        "output_dir": str(tmp_path / "run"),
        "until": 1000,
        "config": {"local_eval_frequency": 2, "async_save": False},
        "faults": {"hang": [0, 6]},
    }
    child = processes.start(tmp_path / "err", processes.train, told)
    child.wait_until(lambda: "hanging" in child.said)
    os.kill(child.pid, number)
    child.wait_until(lambda: "a second signal stops at once" in child.said)
    directory = CheckpointDirectory(tmp_path / "run")
    before = newest_of(directory)
    os.kill(child.pid, number)
    assert child.wait() == -number, "the system ends it, and nothing of ours comes first"
    assert newest_of(directory) == before
    assert json.loads((directory.newest().path / "trainer.json").read_text())["step"] == 4


def newest_of(directory):
    """The files of the newest whole checkpoint, and when each was written."""
    files = sorted(directory.newest().path.iterdir())
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


def test_what_the_commands_return_is_what_a_shell_sees(flags, tmp_path):
    child = processes.start(tmp_path / "err", processes.run_trainer, flags(train_steps=100_000))
    file = tmp_path / "run" / "metrics.jsonl"
    child.wait_until(lambda: file.exists() and file.read_text().count("\n") > 2)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(SECONDS_TO_SAVE) == 128 + signal.SIGTERM
    assert "Traceback" not in child.said


EARLY = """
import ctypes, sys
from t2t_torch.bin.commands import trainer
from t2t_torch.workflows import train_record
def wait(*_):
    print("waiting", flush=True)
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)  # in C, for ever: as the store does where ranks are awaited
train_record.record = wait
named = ["--problem=dates_to_iso", "--model=transformer", "--hparams_set=transformer_tiny"]
sys.exit(trainer.main([*named, "--data_dir=.", "--output_dir=nowhere", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(("code", "number"), [(75, signal.SIGTERM), (0, signal.SIGUSR1)])
def test_a_signal_before_anything_has_begun_ends_it_at_once_with_the_same_code(
    tmp_path, code, number
):
    command = [sys.executable, "-c", EARLY, f"--signal_exit_code={code}"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(number)
        _, told = child.communicate(timeout=600)
    assert child.returncode == (code or 128 + number)
    assert "training had not started; there is nothing to save" in told
    assert list(tmp_path.iterdir()) == []


def test_after_a_signal_it_says_where_the_run_goes_on(flags, tmp_path, send, capsys):
    send.at(Objective, "forward", 4, signal.SIGTERM, in_training)
    before = [signal.getsignal(number) for number in SIGNALS]
    assert trainer.main(flags()) == 128 + signal.SIGTERM
    newest = CheckpointDirectory(tmp_path / "run").newest()
    assert f"saved {newest.path}; run the same command to resume" in capsys.readouterr().err
    assert [signal.getsignal(number) for number in SIGNALS] == before


FORKED = """
import os, signal, time
from t2t_torch.signals import EarlyExit

with EarlyExit():
    child = os.fork()
    if not child:
        {child}
        time.sleep(60)
        os._exit(0)
    {parent}
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print("ended")
"""


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("pass", "pass"),  # a worker of a loader that lives on holds the pipe
        (
            "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))",
            "time.sleep(0.3); os.kill(child, signal.SIGTERM); "
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7; "
            "child = os.fork() or time.sleep(60)",
        ),
    ],
    ids=["it ends", "a signal to the child"],
)
def test_a_forked_worker_neither_holds_the_process_up_nor_ends_it(child, parent):
    """`--test_mode` with `num_workers=2` waited forever."""
    code = FORKED.format(child=child, parent=parent)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
