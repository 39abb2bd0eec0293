"""Slurm on this machine: a node of two CPUs, in a folder, without systemd and accounting."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from t2t_torch.executor import parent_follower

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "sinfo")

CONF = """
ClusterName=t2t
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=100000,bf_interval=1,batch_sched_delay=0
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Returns why Slurm cannot run here; "" if it can."""
    if absent := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"{', '.join(absent)} not installed: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "slurmd starts jobs as root alone"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Starts munged, slurmctld and slurmd; yields the environment of Slurm's commands."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    ports = []
    for _ in range(2):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(host=host, ports=ports, folder=folder))
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    munge = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munge.pid"}
    munge |= {"log-file": folder / "munge.log", "seed-file": folder / "munge.seed"}
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    commands = [
        [
            "munged",
            "--foreground",
            "--force",
            *(f"--{name}={path}" for name, path in munge.items()),
        ],
        ["slurmctld", "-D", "-c"],
        ["slurmd", "-D", "-N", host],
    ]
    with contextlib.ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((folder / f"{command[0]}.out").open("wb"))
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, preexec_fn=parent_follower()
            )
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
            time.sleep(0.5)
        for _ in range(120):
            told = subprocess.run(
                ["sinfo", "-h", "-o", "%T"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if told.stdout.strip() == "idle":
                break
            time.sleep(0.5)
        else:
            logs = "\n".join(path.read_text(errors="replace") for path in folder.glob("*.out"))
            raise AssertionError(f"{told.stdout}{told.stderr}\n{logs}")
        try:
            yield environment
        finally:
            subprocess.run(["scancel", "--user=root"], env=environment, check=False)
