"""Leases of runs in an S3 server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from t2t_torch import remote
from t2t_torch.errors import CheckpointError
from t2t_torch.remote import lease, place
from t2t_torch.remote.store import Store


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.2)


def lock_of(s3: str) -> Path:
    """Returns the lock file of a run."""
    return Path(place.local(f"{s3}/run")) / "train.lock"


def test_a_lease_is_held_by_one_and_released(s3: str) -> None:
    with remote.locked(lock_of(s3)):
        assert list(Store(f"{s3}/run").list()) == ["train.lease-000001"]
        assert json.loads(Store(f"{s3}/run").read("train.lease-000001"))["pid"] == os.getpid()
        with pytest.raises(CheckpointError, match=rf"another training runs in {s3}/run"):
            lease._acquire(Store(f"{s3}/run"), "train", waits=True)
    assert json.loads(Store(f"{s3}/run").read("train.lease-000001"))["released"]
    with remote.locked(lock_of(s3)):
        assert list(Store(f"{s3}/run").list()) == ["train.lease-000002"]  # no number twice


def test_a_holder_that_died_here_is_not_waited_for_and_one_elsewhere_is(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    holder = {**lease._origin(), "pid": int(dead.stdout)}
    Store(f"{s3}/run").write("train.lease-000004", json.dumps(holder).encode())
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    with remote.locked(lock_of(s3)):
        assert list(Store(f"{s3}/run").list()) == ["train.lease-000005"]
    monkeypatch.undo()


def test_a_holder_elsewhere_that_gives_no_sign_is_waited_for(s3: str) -> None:
    holder = {**lease._origin(), "pid": 1, "host": f"not-{socket.gethostname()}"}
    Store(f"{s3}/run").write("train.lease-000001", json.dumps(holder).encode())
    with remote.locked(lock_of(s3)):
        assert list(Store(f"{s3}/run").list()) == ["train.lease-000002"]


@pytest.fixture
def forgiven() -> Iterator[None]:
    """Forgets the leases that this process has lost."""
    yield
    lease._lost.clear()


@pytest.mark.usefixtures("forgiven")
def test_who_has_lost_the_lease_writes_nothing_more(s3: str) -> None:
    lock = lock_of(s3)
    lost = pytest.raises(lease.LeaseLostError, match="another training runs")
    with lost, remote.opened([lock.parent]), remote.locked(lock):
        Store(f"{s3}/run").write("train.lease-000002", b"{}")
        (lock.parent / "ckpt-1").mkdir(parents=True)
        (lock.parent / "ckpt-1" / "MANIFEST.json").write_text("{}")
        with pytest.raises(lease.LeaseLostError):
            remote.push(lock.parent)
        Store(f"{s3}/run").remove("train.lease-000002")  # the other one has ended
    for folder in (lock.parent, lock.parent.parent):
        with pytest.raises(lease.LeaseLostError):
            remote.push(folder)
    assert not [name for name in Store(f"{s3}/run").list() if "lease" not in name]


def test_a_run_is_written_by_its_holder_or_if_there_is_none(
    s3: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = lock_of(s3).parent
    run.mkdir(parents=True)
    (run / "task.json").write_text("{}")
    holder = {**lease._origin(), "pid": 1, "host": "elsewhere"}
    Store(f"{s3}/run").write("train.lease-000001", json.dumps(holder).encode())
    remote.push(run)
    assert "is not written: another training runs" in "".join(capsys.readouterr())
    assert list(Store(f"{s3}/run").list()) == ["train.lease-000001"]
    Store(f"{s3}/run").write("train.lease-000001", b'{"released": true}')
    remote.push(run)
    assert "task.json" in Store(f"{s3}/run").list()


def test_a_store_without_conditional_writes_is_named(
    s3: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Store, "create", lambda self, name, content: not self.write(name, content))
    with remote.locked(lock_of(s3)):
        assert "has no conditional writes" in "".join(capsys.readouterr())
