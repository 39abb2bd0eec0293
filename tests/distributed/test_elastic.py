"""Nodes that are lost, come late or are slow: network namespaces as hosts, torchrun on each.

Every process notes the batches of its steps.  So a test knows which world sizes trained which
steps, replays them by hand, and compares the weights to the last bit.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import processes
import pytest
import torch
from safetensors.torch import load_file

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.run.checkpoint_directory import CheckpointDirectory

pytestmark = pytest.mark.slow

BATCHES = 4  # of a step
SECONDS = 100.0
PROBLEM = "algorithmic_reverse_binary40_test"
HOOK = """
import json, os, time
from pathlib import Path
from t2t_torch.registry import register_hook
from t2t_torch.train.task import Hook

@register_hook
class Noting(Hook):
    def begin(self, estimator):
        self.start = estimator.state.step

    def after_step(self, estimator):
        numbers = [number for number, _ in estimator.run.recent[-1][1]]
        state, size = estimator.state, estimator.world.size
        line = json.dumps([self.start, state.step, size, numbers, time.time()])
        file = os.environ.get("NOTES")
        if file:
            with open(f"{file}-{os.getpid()}", "a") as notes:
                notes.write(line + "\\n")
            time.sleep(0.3)
"""

STORE = """
import threading
from torch.distributed import TCPStore
store = TCPStore("0.0.0.0", 29400, is_master=True, wait_for_workers=False)
threading.Event().wait()
"""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Host:
    """A network namespace with an address, and the processes that run in it."""

    def __init__(self, network: str, number: int, folder: Path) -> None:
        self.name, self.address = f"node{number}", f"10.77.0.{number}"
        self._space, self._folder = f"{network}-{number}", folder
        self._started: list[subprocess.Popen[bytes]] = []
        _ip("netns", "add", self._space)
        _ip("link", "add", "eth0", "netns", self._space, "type", "veth")
        inside = ("netns", "exec", self._space, "ip")
        out = f"p{number}"
        _ip(*inside, "link", "del", "eth0")
        _ip(*inside, "link", "add", "eth0", "type", "veth", "peer", out, "netns", network)
        _ip(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip(*inside, "link", "set", device, "up")
        _ip("netns", "exec", network, "ip", "link", "set", out, "master", "br0", "up")

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Starts a command; its output is added to `said`."""
        names = self._folder / "hosts"
        setting_up = f'hostname {self.name} && mount --bind {names} /etc/hosts && exec "$@"'
        own = ["unshare", "--uts", "--mount", "sh", "-c", setting_up]
        line = ["ip", "netns", "exec", self._space, *own]
        environment = {
            **os.environ,
            "NOTES": str(self._folder / "notes" / self.name),
            "GLOO_SOCKET_IFNAME": "eth0",
            # Otherwise a node that joins later waits for a key that no agent writes (torch 2.13).
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with (self._folder / self.name).open("ab") as file:
            process = subprocess.Popen(
                [*line, "sh", *command], stdout=file, stderr=file, env=environment
            )
        self._started.append(process)
        return process

    def send(self, number: int) -> None:
        """Sends a signal to all its processes."""
        found = subprocess.run(["ip", "netns", "pids", self._space], capture_output=True, text=True)
        for pid in found.stdout.split():
            try:
                os.kill(int(pid), number)
            except ProcessLookupError:
                continue
        if number == signal.SIGKILL:
            for process in self._started:
                process.wait(SECONDS)

    @property
    def said(self) -> str:
        """What its processes have written."""
        file = self._folder / self.name
        return file.read_text() if file.exists() else ""

    @property
    def runs(self) -> bool:
        """Whether a command of it still runs."""
        return any(process.poll() is None for process in self._started)

    def close(self) -> None:
        """Ends all."""
        self.send(signal.SIGKILL)
        _ip("netns", "del", self._space)


@pytest.fixture
def hosts(tmp_path):
    """Three hosts at one switch."""
    if os.getuid() or not all(map(shutil.which, ("ip", "unshare"))):
        pytest.skip("needs root, ip and unshare")
    network = f"t2t{os.getpid()}"
    try:
        _ip("netns", "add", network)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr}")
    made = []
    try:
        for words in (["add", "br0", "type", "bridge"], ["set", "br0", "up"]):
            _ip("netns", "exec", network, "ip", "link", *words)
        (tmp_path / "notes").mkdir()
        made.extend(Host(network, number, tmp_path) for number in (1, 2, 3))
        names = [f"{host.address} {host.name}" for host in made]
        (tmp_path / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        yield made
    finally:
        for host in made:
            host.close()
        _ip("netns", "del", network)


@pytest.fixture
def flags(tmp_path_factory, tmp_path):
    """The flags of `t2t-trainer` for a run of a name."""
    data = tmp_path_factory.mktemp("data")
    generate_data(registry.problem(PROBLEM), data, data, num_processes=1, max_cases=160)
    own = tmp_path_factory.mktemp("own")
    (own / "noting.py").write_text(HOOK)

    def make(name: str, steps: int, **more: object) -> list[str]:
        values = {
            "problem": PROBLEM,
            "model": "transformer",
            "hparams_set": "transformer_test",
            "hparams": "batch_size=256,learning_rate_warmup_steps=4",
            "data_dir": data,
            "output_dir": tmp_path / name,
            "train_steps": steps,
            "schedule": "train",
            "save_checkpoints_steps": 10,
            "log_step_count_steps": 1,
            "worker_gpu": 0,
            "hooks": "noting",
            "t2t_usr_dir": own,
            **more,
        }
        return [f"--{name}={value}" for name, value in values.items()]

    return make


class Training:
    """One command on several hosts."""

    def __init__(self, folder: Path, arguments: list[str], store: str, conf: str = "") -> None:
        self._folder = folder
        conf = f"last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3{conf}"
        self._command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1:3", "--max-restarts=9"),
            *("--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={store}:29400"),
            *("--rdzv-id=run", f"--rdzv-conf={conf}"),
        ]
        self._arguments = ["-m", "t2t_torch.bin.trainer", *arguments]

    def start(self, *hosts: Host) -> list[subprocess.Popen[bytes]]:
        """Starts the command on hosts; returns their agents."""
        return [
            host.run(*self._command, f"--local-addr={host.address}", *self._arguments)
            for host in hosts
        ]

    def notes(self) -> list[tuple[int, int, int, list[int], float]]:
        """Each step of each process: (start, step, processes, batches, time)."""
        files = (self._folder / "notes").iterdir()
        lines = [
            line for file in files for line in file.read_text().splitlines() if line[-1] == "]"
        ]
        return [tuple(json.loads(line)) for line in lines]

    def wait_until(self, condition: Callable[[], object], *hosts: Host) -> None:
        """Waits until something is so."""
        end = time.monotonic() + SECONDS
        while not condition():
            if time.monotonic() > end or not any(host.runs for host in hosts):
                raise AssertionError("\n".join(f"{host.name}:\n{host.said}" for host in hosts))
            time.sleep(0.05)

    def trained(self, steps: int, size: int) -> bool:
        """Whether a group of a size has trained so many steps since its start."""
        return any(step - start >= steps and n == size for start, step, n, *_ in self.notes())

    def seconds_without_a_step(self) -> list[float]:
        """From the last step of the processes of a start to the first of the next start."""
        times: dict[int, list[float]] = {}
        for start, _, _, _, at in self.notes():
            times.setdefault(start, []).append(at)
        starts = [times[start] for start in sorted(times)]
        return [round(min(b) - max(a), 1) for a, b in itertools.pairwise(starts)]

    def schedule(self, steps: int) -> list[tuple[int, int]]:
        """Checks that each batch was trained once; returns (processes, up to step) in turn."""
        notes, found = self.notes(), []
        for step in range(1, steps + 1):
            start = max(start for start, at, *_ in notes if at == step)
            last = [(n, b) for s, at, n, b, _ in notes if (s, at) == (start, step)]
            batches = sorted(number for _, numbers in last for number in numbers)
            assert batches == list(range((step - 1) * BATCHES, step * BATCHES))
            (size,) = {n for n, _ in last}
            if found and found[-1][0] == size:
                found.pop()
            found.append((size, step))
        logging.info("seconds without a step: %s", self.seconds_without_a_step())
        return found


def tensors_of(folder: Path, step: int) -> dict[str, torch.Tensor]:
    """All that the newest checkpoint stores, which is of a step."""
    newest = CheckpointDirectory(folder).newest()
    assert newest.step == step
    stored = {file.name: load_file(file) for file in newest.path.glob("*.safetensors")}
    return {f"{file}/{name}": value for file, of in stored.items() for name, value in of.items()}


def replay(tmp_path: Path, flags: Callable[..., list[str]], schedule, steps: int, **more) -> None:
    """Trains with the same world sizes, stopped and resumed by hand; compares the weights."""
    for size, until in schedule:
        arguments = flags("replayed", steps, **more)
        if until < steps:
            arguments.append(f"--pause_at_step={until}")
        started = processes.start_world(tmp_path / "err", size, processes.run_trainer, arguments)
        for child in started:
            code = child.wait()
            assert code == 0, child.said
    found, expected = tensors_of(tmp_path / "run", steps), tensors_of(tmp_path / "replayed", steps)
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


KEEP = {
    "hparams": "batch_size=256,learning_rate_warmup_steps=4,optimizer_multistep_accumulate_steps=2",
    "keep_global_batch": True,
    "exchange_timeout": 5,
}


def test_a_node_is_killed_and_one_joins_later(hosts, flags, tmp_path):
    """Two, then one from the very step, then two again; nothing is lost."""
    steps = 40
    training = Training(tmp_path, flags("run", steps, **KEEP), hosts[0].address)
    first, _ = training.start(*hosts[:2])
    training.wait_until(lambda: training.trained(5, 2), *hosts)
    hosts[1].send(signal.SIGKILL)
    training.wait_until(lambda: training.trained(5, 1), *hosts)
    training.start(hosts[2])
    training.wait_until(lambda: first.poll() is not None, *hosts)
    assert first.returncode == 0, hosts[0].said
    assert "rank 1 on host node2 did not answer" in hosts[0].said
    schedule = training.schedule(steps)
    assert [size for size, _ in schedule] == [2, 1, 2]
    assert f"a process was lost: step {schedule[0][1]} is saved" in hosts[0].said
    replay(tmp_path, flags, schedule, steps, **KEEP)


def test_a_slow_node_is_named_and_the_rest_goes_on(hosts, flags, tmp_path):
    """A delay of 20 ms is only slow; a host that stands still is left out, and comes back."""
    steps = 40
    if shutil.which("tc"):
        hosts[1].run("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "20ms").wait()
    training = Training(tmp_path, flags("run", steps, **KEEP), hosts[0].address)
    first, _ = training.start(*hosts[:2])
    training.wait_until(lambda: training.trained(5, 2), *hosts)
    hosts[1].send(signal.SIGSTOP)
    training.wait_until(lambda: training.trained(5, 1), *hosts)
    assert "rank 1 on host node2 did not answer" in hosts[0].said
    hosts[1].send(signal.SIGCONT)
    training.wait_until(lambda: first.poll() is not None, *hosts)
    assert first.returncode == 0, hosts[0].said
    schedule = training.schedule(steps)
    assert [size for size, _ in schedule][:2] == [2, 1]
    replay(tmp_path, flags, schedule, steps, **KEEP)


def test_the_leader_is_lost_and_the_store_is_on_a_host_of_its_own(hosts, flags, tmp_path):
    """The steps since the last checkpoint are trained again, by the other node alone."""
    steps = 30
    hosts[2].run(sys.executable, "-c", STORE)
    training = Training(tmp_path, flags("run", steps, **KEEP), hosts[2].address, ",is_host=0")
    _, second = training.start(*hosts[:2])
    training.wait_until(lambda: training.trained(13, 2), *hosts[:2])
    hosts[0].send(signal.SIGKILL)
    training.wait_until(lambda: second.poll() is not None, *hosts[:2])
    assert second.returncode == 0, hosts[1].said
    assert "rank 0, or the host of --rdzv-endpoint, is lost" in hosts[1].said
    assert "resuming from step 10" in hosts[1].said
    schedule = training.schedule(steps)
    assert schedule == [(2, 10), (1, steps)]
    replay(tmp_path, flags, schedule, steps, **KEEP)


def test_the_leader_and_the_store_are_lost_and_the_command_is_started_again(hosts, flags, tmp_path):
    """Then torchrun ends, too; with --deterministic_world the weights are those of one process."""
    steps, order = 24, {"deterministic_world": BATCHES, "exchange_timeout": 5}
    training = Training(tmp_path, flags("run", steps, **order), hosts[0].address)
    _, second = training.start(*hosts[:2])
    training.wait_until(lambda: training.trained(13, 2), *hosts[:2])
    hosts[0].send(signal.SIGKILL)
    training.wait_until(lambda: second.poll() is not None, hosts[1])
    assert second.returncode, hosts[1].said
    agents = training.start(*hosts[:2])
    training.wait_until(lambda: all(agent.poll() is not None for agent in agents), *hosts[:2])
    assert [agent.returncode for agent in agents] == [0, 0], hosts[0].said
    assert training.schedule(steps) == [(2, steps)]
    replay(tmp_path, flags, [(1, steps)], steps, **order)
