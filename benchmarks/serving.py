"""What a server answers a second: one client alone, and 64 at once beside three that misbehave.

    python benchmarks/serving.py --artifact=artifact --seconds=60

A server is started on this machine, so clients take their share of its cores.  By turns one client
asks one text after another, and 64 do, while one sends what is no JSON, one what is too long, and
one hangs up without waiting.  Every answer is compared with that to the same text asked alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import print_header

from t2t_torch.runtime.signature import EXAMPLES

CLOSE = 1e-4  # of probabilities; a batch adds in another order


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", required=True, help="what t2t-exporter has written")
    parser.add_argument("--inputs", help="a text a line; else the artifact's examples")
    parser.add_argument("--seconds", type=float, default=60, help="of each part")
    parser.add_argument("--turns", type=int, default=12, help="that the parts take")
    parser.add_argument("--clients", type=int, default=64, help="at once")
    parser.add_argument("--server", default="", help="more flags of t2t-server")
    arguments = parser.parse_args()
    texts = _texts(arguments)
    server = [sys.executable, "-m", "t2t_torch.bin", "server", f"--artifact={arguments.artifact}"]
    with subprocess.Popen(
        [*server, "--port=0", *arguments.server.split()], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        port = _port(process.stderr)
        log = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            asyncio.run(_measure(port, texts, arguments, process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            print("server ended with", process.wait(60))
            log.wait(10)


def _texts(arguments: argparse.Namespace) -> list[Any]:
    if arguments.inputs:
        return [line for line in Path(arguments.inputs).read_text("utf-8").splitlines() if line]
    lines = Path(arguments.artifact, EXAMPLES).read_text("utf-8").splitlines()
    return [json.loads(line)["input"] for line in lines]


def _port(log: Any) -> int:
    for line in log:
        told = json.loads(line)
        if told["event"] == "listening":
            return int(told["url"].rstrip("/").rpartition(":")[2])
    raise SystemExit("the server does not start")


async def _measure(port: int, texts: list[Any], arguments: argparse.Namespace, server: int) -> None:
    print_header()
    print(f"{len(texts)} texts; load {os.getloadavg()[0]:.1f}", flush=True)
    alone: dict[int, Any] = {}
    async with _Client(port) as client:
        for number, text in enumerate(texts):
            alone[number] = (await client.ask(text))[1]
    wrong: list[int] = []

    def check(number: int, answer: Any) -> None:
        if not _same(answer, alone[number]):
            wrong.append(number)

    single, many = _Load(server), _Load(server)
    for _ in range(arguments.turns):  # so what else the machine does meets both alike
        seconds = arguments.seconds / arguments.turns
        await single.run(port, texts, 1, seconds, check)
        hostile = [asyncio.create_task(each(port)) for each in (_malformed, _oversized, _gone)]
        await many.run(port, texts, arguments.clients, seconds, check)
        for task in hostile:
            task.cancel()
        told = await asyncio.gather(*hostile, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in told), told
    single.tell("one client")
    many.tell(f"{arguments.clients} clients")
    print(f"ratio {many.rate / single.rate:.2f}; other answers than alone: {len(wrong)}")
    print(f"load {os.getloadavg()[0]:.1f}")


class _Client:
    """A connection that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> _Client:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    async def send(self, body: bytes) -> None:
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        self._writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await self._writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        length = int(head[at : head.index(b"\r\n", at)])
        return int(head[9:12]), await self._reader.readexactly(length)

    async def ask(self, text: Any) -> tuple[int, Any]:
        await self.send(json.dumps({"inputs": [text]}).encode())
        status, body = await self.answer()
        return status, json.loads(body)


class _Load:
    """Requests that were put, and what they took."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._took: list[float] = []
        self._spent = self._computed = 0.0
        self._failed: list[int] = []

    @property
    def rate(self) -> float:
        return len(self._took) / self._spent

    def tell(self, name: str) -> None:
        took = sorted(self._took)
        parts = (f"p{part} {took[int(part / 100 * len(took))] * 1e3:.2f}" for part in (50, 90, 99))
        each = self._computed / len(took) * 1e3
        print(
            f"{name}: {self.rate:.1f} a second, {', '.join(parts)} ms, server's processor "
            f"{each:.2f} ms each, {len(took)} requests, {len(self._failed)} failed"
        )

    async def run(
        self,
        port: int,
        texts: list[Any],
        clients: int,
        seconds: float,
        check: Callable[[int, Any], None],
    ) -> None:
        start, computed = time.monotonic(), _computed(self._server)
        end = start + seconds

        async def ask(number: int) -> None:
            async with _Client(port) as client:
                while time.monotonic() < end:
                    begun = time.perf_counter()
                    status, answer = await client.ask(texts[number % len(texts)])
                    self._took.append(time.perf_counter() - begun)
                    if status == 200:
                        check(number % len(texts), answer)
                    else:
                        self._failed.append(status)
                    number += clients

        await asyncio.gather(*(ask(number) for number in range(clients)))
        self._spent += time.monotonic() - start
        self._computed += _computed(self._server) - computed


def _computed(process: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _malformed(port: int) -> None:
    async with _Client(port) as client:
        while True:
            await client.send(b'{"inputs": ["flights')
            status, _ = await client.answer()
            assert status == 400, status
            await asyncio.sleep(0.05)


async def _oversized(port: int) -> None:
    body = json.dumps({"inputs": ["x" * (2 << 20)]}).encode()
    while True:
        try:
            async with _Client(port) as client:
                await client.send(body)
                status, _ = await client.answer()
                assert status == 413, status
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the server has hung up before all was sent
        await asyncio.sleep(0.2)


async def _gone(port: int) -> None:
    while True:
        async with _Client(port) as client:
            await client.send(b'{"inputs": ["flights from boston to denver"]}')
        await asyncio.sleep(0.05)


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        # Labels that are as good as impossible may change places behind the best five.
        return all(_same(found[key], one) for key, one in expected.items() if key in found)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(expected, float):
        return abs(found - expected) <= CLOSE
    return bool(found == expected)


if __name__ == "__main__":
    main()
