"""Scale, measured on one machine: bytes between processes, bytes of a process, bytes of data.

    python benchmarks/scale.py --processes=4,8 --tmp_dir=RAW        # root on Linux, for `unshare`

`torchrun` trains a small transformer with gloo in a network namespace of its own, whose loopback
device counts every byte: at one step and some steps later, so the start is left out.
scale_model.py computes the efficiency on many ranks.  RAW has the raw files of Multi30k.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import store_cost
import torch
import torch.distributed as dist
from report import print_header, print_table
from torch.distributed.distributed_c10d import _get_default_store
from torch.distributed.tensor import DTensor

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.distributed.process_group import Agreement, World, join_world
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from t2t_torch.train.estimator import Estimator

PROBLEM = "algorithmic_reverse_binary40"
WAYS = {
    "DDP": ("", "all-reduce: 2(n-1)/n", 2.0),
    "--deterministic_world=n": ("", "all-to-all, all-gather: 2(n-1)/n", 2.0),
    "shard_weights=True": ("shard_weights=True", "2 all-gathers, reduce-scatter: 3(n-1)/n", 3.0),
}
_HEADERS = 52  # bytes of a packet: IPv4 20, TCP with its time stamps 32
_FIRST, _STEPS, _CALLS, _SECONDS = 2, 5, 100, 10.0


def crossed() -> tuple[int, int]:
    """Returns the bytes and packets that the loopback device of this namespace has received."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    fields = next(line.split() for line in lines if line.strip().startswith("lo:"))
    return int(fields[1]), int(fields[2])


class Count:
    """Bytes between two moments, read while all processes wait."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before = self._read()

    def _read(self) -> tuple[int, int]:
        self._world.maximum(0)
        time.sleep(0.3)  # acknowledgements of the last messages
        found = crossed()
        self._world.maximum(0)
        return found

    def since(self, times: float) -> dict[str, float]:
        """Returns payload, bytes with headers, and packets, of one of so many times."""
        size, packets = (b - a for a, b in zip(self._before, self._read(), strict=True))
        payload = size - _HEADERS * packets
        return {"payload": payload / times, "bytes": size / times, "packets": packets / times}


def held(tensors: Iterable[torch.Tensor | None]) -> int:
    """Returns the bytes of tensors in this process: of a sharded one, those of its part."""
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors if t is not None]
    return sum(one.numel() * one.element_size() for one in local)


class Watch(Hook):
    """Counts the bytes of some steps, the tensors of a process, and the time of a step."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._count: Count | None = None
        self._clock: list[float] = []

    def before_update(self, estimator: Estimator) -> None:
        """Counts the gradients."""
        self.found["gradients"] = held(p.grad for p in estimator.model.parameters())

    def after_step(self, estimator: Estimator) -> None:
        """Counts at the first and the last step."""
        self._clock.append(time.process_time())
        world, step = estimator.world, estimator.state.step
        if step == _FIRST and world.size > 1:
            self._count = Count(world)
        elif step == _FIRST + _STEPS:
            if self._count is not None:
                self.found.update(self._count.since(_STEPS))
            assert estimator.run is not None
            states = estimator.run.optimizer.state.values()
            slots = [v for s in states for v in s.values() if torch.is_tensor(v) and v.dim()]
            self.found["weights"] = held(estimator.model.parameters())
            self.found["slots"] = held(slots)
            self.found["parameters"] = sum(p.numel() for p in estimator.model.parameters())
            self.found["seconds"] = min(b - a for a, b in itertools.pairwise(self._clock))


def train(way: str, data: Path, world: World, tokens: int) -> dict[str, Any]:
    """Trains in one of the ways; returns what is found in this process."""
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.problem_task import ProblemTask
    from t2t_torch.train.run_config import RunConfig

    problem, model = registry.problem(PROBLEM), registry.model("transformer")
    hparams = registry.hparams("transformer_small").parse(f"batch_size={tokens}")
    hparams = hparams.replace(activation_dtype="float32").parse(WAYS[way][0])
    task = ProblemTask(problem, model, hparams, data_dir=data, vocab_dir=data)
    directory = RunDirectory(data / f"run-{world.size}-{list(WAYS).index(way)}")
    if world.leads:
        directory.begin(TaskRecord(problem=PROBLEM, model="transformer"), hparams)
    world.maximum(0)
    last, watch = _FIRST + _STEPS, Watch()
    config = RunConfig(
        train_steps=last,
        local_eval_frequency=0,
        log_step_count_steps=10**6,
        deterministic_world=world.size if way.startswith("--") else 0,
    )
    with Estimator(task, directory, config, world=world, hooks=[watch]) as estimator:
        estimator.train(last)
    return watch.found


def decisions(world: World) -> dict[str, dict[str, float]]:
    """Counts the small messages: of each step, of each checkpoint, and those of a second."""
    count = Count(world)
    time.sleep(_SECONDS)
    found = {"signs of life, each second": count.since(_SECONDS)}
    agree, whole = Agreement(world, 5), torch.zeros(1 << 16)
    part = torch.zeros(len(whole) // world.size)
    calls = {
        "Agreement of a step": lambda: agree(0, 0, 0, 0, 0),
        "totals of a step": lambda: world.sum(torch.zeros(4, dtype=torch.float64)),
        "reduce-scatter of 256 KiB": lambda: dist.reduce_scatter_tensor(part, whole),
    }
    for name, call in calls.items():
        count = Count(world)
        for _ in range(_CALLS):
            call()
        agree.finish()
        found[name] = count.since(_CALLS)
    return found


def store_requests(world: World) -> float:
    """Returns the requests that the store of torchrun has answered in a second, to all at once."""
    store, started = _get_default_store(), time.perf_counter()
    for _ in range(30 * _CALLS):
        store.check(["t2t/alive/0"])
    return world.size * 30 * _CALLS / (time.perf_counter() - started)


def work(data: Path, tokens: int) -> None:
    """Runs in each process of torchrun; the leader writes what all have found."""
    with join_world(use_gpu=False) as world:
        ways = list(WAYS)[: None if world.size > 1 else 1]
        found = {way: world.gather(train(way, data, world, tokens)) for way in ways}
        result: dict[str, Any] = {"ways": found}
        if world.size > 1:
            result.update(small=decisions(world), store=store_requests(world))
        if world.leads:
            result["sockets"] = sum(file.is_socket() for file in Path("/proc/self/fd").iterdir())
            (data / f"found-{world.size}.json").write_text(json.dumps(result))


def alone(size: int, data: Path, tokens: int) -> dict[str, Any]:
    """Runs the processes in a network namespace of their own; returns what they have found."""
    command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    command += [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}"]
    command += ["--master-addr=127.0.0.1", "--master-port=29500", str(Path(__file__).resolve())]
    command += [f"--work={data}", f"--tokens={tokens}"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120 + 60 * size
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads((data / f"found-{size}.json").read_text()))


def print_counts(found: dict[int, dict[str, Any]]) -> None:
    """Prints the bytes of a step, of small messages, and the tensors of each process."""
    rows, memory, small = [], [], []
    for size, one in found.items():
        for way, processes in one["ways"].items():
            sent, total = processes[0], 4 * processes[0]["parameters"]
            least = WAYS[way][2] * (size - 1) * total  # of all processes
            row = [f"{way}, n = {size}", f"{sent['payload'] / size:,.0f}", f"{least / size:,.0f}"]
            row += [f"{sent['payload'] / least:.4f}", f"{100 * sent['bytes'] / least - 100:.1f}"]
            rows.append([*row, WAYS[way][1]])
            parts = [max(p[k] for p in processes) for k in ("weights", "gradients", "slots")]
            expected = 4 * total / (size if way.startswith("shard") else 1)
            row = [f"{way}, n = {size}", *(f"{part:,}" for part in parts), f"{sum(parts):,}"]
            memory.append([*row, f"{expected:,.0f}", f"{sum(parts) / expected:.4f}"])
        for name, count in one["small"].items():
            figures = [count["payload"] / size, count["bytes"] / size, count["packets"] / size]
            small.append([f"{name}, n = {size}", *(f"{value:,.0f}" for value in figures)])
    head = ["step of", "sent by a process", "formula", "ratio", "with headers, + %", ""]
    print_table(head, rows)
    for size, one in found.items():
        print(f"n = {size}: {one['sockets']} sockets of rank 0, {one['store']:,.0f} requests/s\n")
    print_table(["message", "sent by a process", "with headers", "packets"], small)
    head = ["bytes of a process", "weights", "gradients", "Adam", "sum", "16 a weight", "ratio"]
    print_table(head, memory)


def main() -> None:
    """Prints the measured tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", default="4,8", help="numbers of processes")
    parser.add_argument("--tokens", type=int, default=1024, help="of a batch")
    parser.add_argument("--tmp_dir", type=Path, help="raw files of Multi30k")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.work:
        work(flags.work, flags.tokens)
        return
    print_header(0)
    sizes = [int(size) for size in flags.processes.split(",")]
    with tempfile.TemporaryDirectory() as place:
        folder, task = Path(place), registry.problem(PROBLEM)
        generate_data(task, folder, folder, num_processes=1, max_cases=5000, progress=False)
        one = alone(1, folder, flags.tokens)["ways"]["DDP"][0]
        said = f"{one['parameters']:,} weights, {flags.tokens} tokens; a step of one process:"
        print(f"{said} {one['seconds']:.3f} CPU s\n")
        print_counts({size: alone(size, folder, flags.tokens) for size in sizes})
        store_cost.print_costs(folder, flags.tmp_dir)


if __name__ == "__main__":
    main()
