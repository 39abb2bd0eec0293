"""`examples/engines/train.sbatch` under a local slurmd: two tasks, a signal, a requeue."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from . import slurm
from .conftest import ENVIRONMENT, ROOT

pytestmark = [pytest.mark.engines, pytest.mark.slow]

STEPS = 30


def test_a_job_that_is_signalled_is_requeued_and_ends_with_the_same_bits(tmp_path, dates):
    if reason := slurm.missing():
        pytest.skip(reason)
    flags = ["--problem=dates_to_iso", "--model=transformer", "--hparams_set=transformer_tiny"]
    flags += [f"--data_dir={dates}", f"--train_steps={STEPS}", "--local_eval_frequency=10"]
    flags += ["--schedule=train", "--worker_gpu=0"]
    path = f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"
    script = ROOT / "examples" / "engines" / "train.sbatch"
    submit = ["sbatch", "--parsable", "--ntasks-per-node=2", f"--output={tmp_path}/%j.log", script]
    runs = {name: tmp_path / name for name in ("whole", "signalled")}
    until = time.monotonic() + 400
    with slurm.running(tmp_path) as environment:
        environment = {**ENVIRONMENT, **environment, "PATH": path}

        def told(*command: str | Path) -> str:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            return done.stdout.strip()

        for name, run in runs.items():
            job, is_signalled = told(*submit, *flags, f"--output_dir={run}"), False
            is_earlier = False
            log = tmp_path / f"{job}.log"
            state = ""  # also between the end of a job and its requeue
            while state or not (run / f"ckpt-{STEPS}").is_dir():
                state = told("squeue", "-h", "-o", "%T", "-j", job)
                if name == "signalled" and not is_signalled and (run / "ckpt-10").is_dir():
                    told("scancel", "--batch", "--signal=USR1", job)
                    is_signalled = True
                if is_signalled and state == "PENDING" and not is_earlier:
                    # It waits for two minutes, otherwise; in the same second Slurm would refuse it.
                    told("scontrol", "update", f"JobId={job}", "StartTime=now+3")
                    is_earlier = True
                assert time.monotonic() < until, f"{state}: {log.read_text()}"
                time.sleep(0.25)
    starts = [(run / "starts.jsonl").read_text().count("\n") for run in runs.values()]
    assert starts == [1, 2], log.read_text()
    assert "run the same command to resume" in log.read_text(), "it has saved when it was signalled"
    one, two = ((run / f"ckpt-{STEPS}" / "model.safetensors").read_bytes() for run in runs.values())
    assert one == two
