"""Runs killed at random moments, uploads among them, on a disk, S3 and Azure, by 1, 2, 4 processes.

`T2T_KILLS=34` sets the number of kills for each store, `T2T_SEED=8` other moments.  Azurite is
found on the PATH, or in `T2T_AZURITE`; without it Azure is skipped.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_proxy import FaultProxy

import t2t_torch as t2t
from t2t_torch import remote
from t2t_torch.remote import mirror
from t2t_torch.run.checkpoint_directory import CheckpointDirectory

PROBLEM = "algorithmic_reverse_binary40_test"
SEGMENTS = {1: 10, 2: 20, 4: 30}
"""Number of processes -> step at which they end; four batches are a step of any number."""
KILLS = int(os.environ.get("T2T_KILLS", "6"))
SEED = int(os.environ.get("T2T_SEED", "7"))
LATENCY = 0.1
"""Longest time that a request waits before it reaches a store, in seconds."""
AZURITE = os.environ.get("T2T_AZURITE") or shutil.which("azurite-blob")
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_MARK = "T2T_KILLED_BY"

pytestmark = pytest.mark.slow


def command(processes: int, data_dir: str, run: str) -> list[str]:
    """Returns the command that trains to the end of a segment."""
    start = [sys.executable, "-m"]
    if processes > 1:
        start += ["torch.distributed.run", f"--nproc-per-node={processes}", "--master-port=0", "-m"]
        start[-2:-1] = ["--standalone"]
    hparams = f"batch_size=128,optimizer_multistep_accumulate_steps={4 // processes}"
    return [
        *start,
        "t2t_torch.bin.trainer",
        *(f"--problem={PROBLEM}", "--model=transformer", "--hparams_set=transformer_test"),
        *(f"--data_dir={data_dir}", f"--output_dir={run}", f"--hparams={hparams}"),
        *("--train_steps=30", f"--pause_at_step={SEGMENTS[processes]}", "--schedule=train"),
        *("--save_checkpoints_steps=2", "--keep_checkpoint_max=3", "--worker_gpu=0", "--threads=1"),
    ]


def start(processes: int, data_dir: str, run: str) -> subprocess.Popen[bytes]:
    """Starts a segment, whose processes are marked in their environment."""
    return subprocess.Popen(
        command(processes, data_dir, run),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, _MARK: str(os.getpid())},
    )


def kill_all() -> None:
    """Kills the processes of a segment, as the loss of a machine does; torchrun's have sessions."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={os.getpid()}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def finish(processes: int, data_dir: str, run: str) -> None:
    """Trains to the end of a segment."""
    process = start(processes, data_dir, run)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said.decode()[-3000:]


def check_checkpoints(run: str) -> None:
    """Checks that each checkpoint that a reader sees is complete."""
    folder = remote.resolve(run)
    for checkpoint in CheckpointDirectory(folder).list():
        checkpoint.verify()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards."""
    folder = tmp_path_factory.mktemp("data")
    t2t.generate(PROBLEM, folder, folder, max_cases=300, verbosity=-1)
    return folder


@pytest.fixture(scope="module")
def undisturbed(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights after the three segments, without any kill."""
    run = tmp_path_factory.mktemp("run")
    for processes in SEGMENTS:
        finish(processes, str(data_dir), str(run))
    return (run / "ckpt-30" / "model.safetensors").read_bytes()


@pytest.fixture
def disk(tmp_path: Path) -> tuple[str, None]:
    """A folder, without a proxy."""
    return str(tmp_path / "disk"), None


@pytest.fixture
def amazon(s3: str, proxy: FaultProxy) -> tuple[str, FaultProxy]:
    """The URL of an empty bucket, and the proxy before it."""
    return s3, proxy


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, FaultProxy]]:
    """The URL of an empty container of an Azure server, and the proxy before it."""
    if AZURITE is None:
        pytest.skip("needs Azurite: npm install azurite, and its azurite-blob on the PATH")
    import fsspec

    port = random.randrange(20_000, 30_000)
    where = f"--blobPort {port} --location {tmp_path / 'azurite'} --silent --skipApiVersionCheck"
    server = subprocess.Popen([AZURITE, *where.split()], stdout=-3, stderr=-3)
    account = f"AccountName=devstoreaccount1;AccountKey={_KEY}"
    proxy = FaultProxy(port)
    address = f"BlobEndpoint=http://127.0.0.1:{proxy.server_address[1]}/devstoreaccount1"
    string = f"DefaultEndpointsProtocol=http;{account};{address};"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", string)
    monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / "a"))
    store = fsspec.filesystem("abfs", skip_instance_cache=True)
    for _ in range(100):
        with contextlib.suppress(Exception):
            store.mkdir("container")
            break
        time.sleep(0.2)
    yield "abfs://container", proxy
    proxy.shutdown()
    proxy.server_close()
    server.kill()
    server.wait()
    type(store).clear_instance_cache()


@pytest.mark.parametrize("kind", ["disk", "amazon", "azure"])
def test_a_run_that_is_killed_ends_with_the_weights_of_one_that_is_not(
    kind: str,
    request: pytest.FixtureRequest,
    data_dir: Path,
    undisturbed: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, proxy = request.getfixturevalue(kind)
    if proxy is not None:
        proxy.latency = LATENCY
    rng, kills = random.Random(SEED), 0
    data, run = f"{base}/data", f"{base}/run"
    shutil.copytree(data_dir, remote.resolve(data), dirs_exist_ok=True)
    remote.push(remote.resolve(data))
    for processes in SEGMENTS:
        for _ in range(-(-KILLS // len(SEGMENTS))):
            monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / rng.choice("abc")))
            process = start(processes, data, run)
            if proxy is not None and rng.random() < 0.5:
                kill_at_request(proxy, rng.randrange(1, 60))
            limit = time.monotonic() + rng.uniform(2.0, 12.0)
            while time.monotonic() < limit and process.poll() is None:
                time.sleep(0.02)
            kills += process.poll() is None or process.returncode < 0
            kill_all()
            process.communicate()
            if proxy is not None:
                proxy.fault = lambda method, path: ""
            monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / f"reader{kills}"))
            mirror._pulled.clear()
            check_checkpoints(run)
            shutil.rmtree(tmp_path / f"reader{kills}", ignore_errors=True)
        monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / rng.choice("abc")))
        finish(processes, data, run)
    monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / "last"))
    mirror._pulled.clear()
    folder = remote.resolve(run)
    remote.fetch(folder / "ckpt-30")
    assert (folder / "ckpt-30" / "model.safetensors").read_bytes() == undisturbed
    print(f"{kind}: {kills} kills")


def kill_at_request(proxy: FaultProxy, number: int) -> None:
    """Kills the processes of a segment at a request that writes to the store."""
    left = [number]

    def fault(method: str, path: str) -> str:
        if method not in ("PUT", "DELETE"):
            return ""
        left[0] -= 1
        if left[0] == 0:
            kill_all()
        return "half" if left[0] == 0 else ""

    proxy.fault = fault
