"""An S3 server in this process, a proxy that injects faults, and machines: cache folders."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_proxy import FaultProxy

pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[int]:
    """The port of an S3 server."""
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def proxy(s3_server: int) -> Iterator[FaultProxy]:
    """A proxy before the S3 server."""
    made = FaultProxy(s3_server)
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def s3(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty bucket, behind the proxy; the settings are those of a user's shell."""
    import fsspec

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_address[1]}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / "a"))
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    bucket = f"bucket-{uuid.uuid4().hex}"
    store.mkdir(bucket)
    type(store).clear_instance_cache()
    yield f"s3://{bucket}"
    type(store).clear_instance_cache()


@pytest.fixture
def on_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Goes on as another machine: with the cache folder of this name."""
    from t2t_torch.remote import mirror

    def go(name: str) -> None:
        monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / name))
        mirror._pulled.clear()

    return go
