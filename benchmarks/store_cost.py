"""Bytes of an example in shards, and requests and time of a shard from a local S3 server (moto)."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from report import print_table

_SHARDS, _MEGABYTES = 10, 20


def _counted() -> list[str]:
    """Returns a list to which the server of this process adds each request."""
    requests: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            requests.append(record.getMessage())

    log = logging.getLogger("werkzeug")
    log.handlers, log.propagate = [Handler()], False
    log.setLevel(logging.INFO)
    return requests


def print_costs(folder: Path, raw: Path | None) -> None:
    """Prints a table.

    Args:
      folder: an empty folder to work in.
      raw: raw files of Multi30k; None: its examples are left out.
    """
    import fsspec
    from moto.server import ThreadedMotoServer

    from t2t_torch import remote
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.mode import Split

    rows = []
    if raw is not None:
        import multi30k

        data = folder / "multi30k"
        multi30k.make_data(data, raw)
        split = Manifest.load(data, multi30k.PROBLEM).splits[Split.TRAIN.value]
        size, count = sum(shard.bytes for shard in split.shards), split.rows
        rows.append([f"bytes of an example, {count:,} of Multi30k", f"{size / count:.1f}"])
    requests = _counted()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    names = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": "us-east-1"}
    os.environ.update({f"AWS_{name}": value for name, value in names.items()})
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    os.environ["T2T_CACHE_DIR"] = str(folder / "cache")
    store, places = fsspec.filesystem("s3"), [f"bucket/{i}.arrow" for i in range(_SHARDS)]
    store.mkdir("bucket")
    for place in places:
        store.pipe_file(place, os.urandom(_MEGABYTES * 10**6))
    requests.clear()
    seconds = []
    started = time.process_time()
    for place in places:
        begin = time.perf_counter()
        remote.fetch(Path(remote.local(f"s3://{place}")))
        seconds.append(time.perf_counter() - begin)
    processor = time.process_time() - started
    server.stop()
    kinds = [request.partition('"')[2].partition(" ")[0] for request in requests]
    each = ", ".join(f"{kinds.count(k) / _SHARDS:g} {k}" for k in sorted(set(kinds)))
    rows += [
        [f"requests of a shard of {_MEGABYTES} MB", f"{len(requests) / _SHARDS:g}: {each}"],
        ["MB/s, one shard after another, the fastest", f"{_MEGABYTES / min(seconds):.0f}"],
        [
            "CPU seconds of a GB, the server's included",
            f"{1e3 * processor / _SHARDS / _MEGABYTES:.2f}",
        ],
    ]
    print_table(["data", "measured"], rows)
