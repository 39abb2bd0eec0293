"""Training under a process group that the caller made: of Ray Train, or of threads of a program."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from together import run_commands_together

from .conftest import ROOT, run

pytestmark = [pytest.mark.engines, pytest.mark.slow]

# Kills the second worker in the middle of a step, once.
KILL_ONCE = '''
import os
import signal
from pathlib import Path

import t2t_torch as t2t


@t2t.registry.register_hook
class KillOnce(t2t.Hook):
    """Kills this process at step 25, if there is a file."""

    def before_update(self, estimator):
        mark = Path(__file__).with_name("kill")
        if estimator.state.step == 25 and estimator.world.rank == 1 and mark.exists():
            mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
'''

TWICE = """
import signal
import sys
import threading

import torch.distributed as dist

import t2t_torch as t2t

def train(name):
    t2t.train(
        "dates_to_iso", "transformer", "transformer_tiny", data_dir=sys.argv[1],
        output_dir=f"{sys.argv[2]}/{name}", train_steps=4, schedule="train", worker_gpu=0,
        verbosity=-1,
    )

def main():
    for name in ("one", "two"):
        train(name)
    done.append(dist.is_initialized())

dist.init_process_group("gloo")
done, before = [], [signal.getsignal(number) for number in signal.valid_signals()]
thread = threading.Thread(target=main)
thread.start()
thread.join()
assert done == [True], "the caller's group is left as it is"
assert before == [signal.getsignal(number) for number in signal.valid_signals()]
dist.destroy_process_group()
"""


def weights(output_dir: Path, step: int) -> bytes:
    (file,) = (output_dir / f"ckpt-{step}").glob("model*.safetensors")
    return file.read_bytes()


def test_a_worker_of_ray_train_that_is_killed_changes_no_bit(tmp_path, dates):
    if not all(map(importlib.util.find_spec, ("ray", "pandas", "tensorboardX"))):
        pytest.skip("Ray is not installed: pip install 'ray[train]'")
    hooks = tmp_path / "my_hooks"
    hooks.mkdir()
    (hooks / "kill_once.py").write_text(KILL_ONCE)
    settings = {"problem": "dates_to_iso", "model": "transformer", "worker_gpu": 0}
    settings |= {"hparams_set": "transformer_tiny", "data_dir": str(dates), "train_steps": 30}
    settings |= {"local_eval_frequency": 10, "hooks": ["kill_once"], "t2t_usr_dir": [str(hooks)]}
    for name in ("undisturbed", "killed"):
        config, output_dir = tmp_path / f"{name}.json", tmp_path / name
        config.write_text(json.dumps({**settings, "output_dir": str(output_dir)}))
        told = run([ROOT / "examples" / "ray_train.py", config, "2"])
        metrics = json.loads(next(line for line in told.splitlines() if line.startswith('{"step')))
        assert metrics["step"] == 30
        assert metrics["loss"] > 0
        reported = (tmp_path / f"{name}.ray" / "ray").glob("checkpoint_*/model*.safetensors")
        assert weights(output_dir, 30) in [file.read_bytes() for file in reported]
        (hooks / "kill").touch()
        starts = (output_dir / "starts.jsonl").read_text().splitlines()
        assert len(starts) == (1 if name == "undisturbed" else 2), starts
    assert not [line for line in told.splitlines() if "KillOnce" in line and "Error" in line]
    assert weights(tmp_path / "killed", 30) == weights(tmp_path / "undisturbed", 30)


def test_two_runs_in_a_thread_under_a_group_of_the_caller(tmp_path, dates):
    script = tmp_path / "twice.py"
    script.write_text(TWICE)
    codes, told = run_commands_together([sys.executable, str(script), str(dates), str(tmp_path)], 2)
    assert codes == [0, 0], told
    assert weights(tmp_path / "one", 4) == weights(tmp_path / "two", 4)
