"""A process that exchanged messages ends with none of gloo's threads left, which could abort it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from together import run_commands_together

from t2t_torch.distributed import process_group
from t2t_torch.errors import UsageError

_SCRIPT = """
import atexit
import sys
from pathlib import Path

def threads():
    return [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]

def say(*words):
    print("said:", *words, file=sys.stderr, flush=True)

# Registered first, so run last: after all of the package has let go.
atexit.register(lambda: say(sum("gloo" in name for name in threads()), "left"))

import torch
from torch import nn
from t2t_torch import registry
from t2t_torch.distributed.process_group import join_world
from t2t_torch.distributed.network import network

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        return self.layers[1](self.layers[0](x))

def main():
    with join_world(use_gpu=False) as world:
        assert world.on_own_channel().gather(world.rank) == [0, 1]
        say(int(world.sum(torch.ones(1))), world.maximum(world.rank), world.from_leader(7))
        net = network(Net(), registry.hparams("transformer_test").parse(sys.argv[1]), world)
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        assert sum("gloo" in name for name in threads())
        if sys.argv[2] == "ends with an error":
            raise ValueError("spam")

main()
"""


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("hparams", "end"),
    [
        ("shard_weights=True", "ends well"),
        ("", "ends with an error"),
        pytest.param("", "ends well", marks=pytest.mark.slow),
        pytest.param("shard_weights=True", "ends with an error", marks=pytest.mark.slow),
    ],
)
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_threads_of_gloo_end_before_python_does(tmp_path: Path, hparams: str, end: str) -> None:
    script = tmp_path / "two.py"
    script.write_text(_SCRIPT, "utf-8")
    command = [sys.executable, str(script), hparams, end]
    codes, told = run_commands_together(command, 2)
    assert codes == [int(end != "ends well")] * 2, told
    said = [line for line in told.splitlines() if line.startswith("said:")]
    assert said == ["said: 2 1 7", "said: 0 left"] * 2


@pytest.fixture
def four_threads(monkeypatch):
    """Torch has four threads and counts them alone; the environment sets none."""
    count = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: count[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda value: count.__setitem__(0, value))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return count


def test_threads_are_those_of_the_flag_or_of_the_last_start(four_threads, monkeypatch):
    for requested, recorded, expected in [
        ("auto", 0, 4),
        ("3", 0, 3),
        ("auto", 2, 2),  # a resumed run computes the same bits
        ("auto", 8, 4),
        ("3", 2, 3),
    ]:
        with process_group.chosen_threads(requested, recorded):
            assert four_threads == [expected]
        assert four_threads == [4]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    with process_group.chosen_threads("auto", 2):
        assert four_threads == [4]
    for wrong in ("0", "-1", "many", ""):
        expected = pytest.raises(UsageError, match="expected auto, or a number")
        with expected, process_group.chosen_threads(wrong):
            pass
