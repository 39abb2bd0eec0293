"""Pictures and sounds in requests: decoded off the event loop, within limits of a request."""

from __future__ import annotations

import asyncio
import base64
import functools
import io
import os
import re
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Served, StubModel, length_of, stub_source

from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.features.audio import wav_of
from t2t_torch.features.picture import encoded
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.runtime.session import CancellationToken, Stopped
from t2t_torch.serve import model as serve_model
from t2t_torch.serve import server as log
from t2t_torch.serve.limits import ServerLimits
from t2t_torch.serve.model import ServedModel, extent_of, open_files
from t2t_torch.serve.repository import ModelSource


def seen(samples: Sequence[Any], token: CancellationToken) -> list[Prediction]:
    """Predicts the shapes of the inputs."""
    shapes = [str([np.shape(one["photo"]), np.shape(one["sound"])]) for one in samples]
    return [Prediction({"label": shape}, {"label": 0.5}) for shape in shapes]


def media_model(name: str = "media", *_: Any, ask: Callable[..., Any] = seen) -> ServedModel:
    fields = [
        InputSpec("photo", "image", "uint8", shape=(8, 8, 3)),
        InputSpec("sound", "audio", "int16", size=16000, shape=(-1,)),
    ]
    return StubModel(name, "1", "p", "m", "none", fields, [OutputSpec("label", "label")], ask)


MEDIA = ModelSource("media", Path(), media_model, is_run=True)
TEXTS = stub_source(length_of, "texts")


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


PHOTO = base64_of(encoded(np.full((16, 20, 3), 7, np.uint8)))
SOUND = base64_of(wav_of(np.zeros(1600, np.int16), 8000))
GOOD = {"photo": PHOTO, "sound": SOUND}


def gif(width: int, height: int) -> str:
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    image = b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\x00\x3b"
    return base64_of(head + image)


def black(width: int, height: int) -> str:
    """Returns a PNG."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))]
    parts += [(b"IDAT", zlib.compress(bytes((width + 1) * height))), (b"IEND", b"")]
    return base64_of(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in parts
        )
    )


def flac(frames: int) -> str:
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, np.zeros(frames, np.int16), 16000, format="FLAC")
    return base64_of(file.getvalue())


def test_a_model_gets_pixels_and_samples(serve: Callable[..., Served]) -> None:
    server = serve(MEDIA)
    answer = server.post("/predict", {"inputs": [GOOD, {**GOOD, "sound": [0.5, 0.1]}]}).json()
    labels = [one["label"]["value"] for one in answer["outputs"]]
    assert labels == ["[(8, 8, 3), (3200,)]", "[(8, 8, 3), (2,)]"]


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ([{**GOOD, "photo": gif(7000, 7000)}] * 2, "input 0 .*7,000 x 7,000 pixels; at most 25"),
        ([{**GOOD, "photo": black(3000, 3000)}] * 4, "input 3 .*: the pictures of this req"),
        ([{**GOOD, "sound": "UklGRg=="}], "input 0 .*: the sound is no sound file"),
        (
            [GOOD, {**GOOD, "sound": base64_of(wav_of(np.zeros(1600, np.int16), 1))}],
            "input 1 .*: the sound has a rate of 1 Hz",
        ),
        ([{**GOOD, "sound": lambda: flac(961_000)}], "961,000 samples .*at most 960,000 .* 60 s"),
        ([{**GOOD, "sound": lambda: flac(950_000)}] * 9, "input 8 .*: the sounds of this req"),
    ],
)
def test_files_over_the_limits_are_refused(
    serve: Callable[..., Served], inputs: list[Any], why: str
) -> None:
    inputs = [{k: v() if callable(v) else v for k, v in one.items()} for one in inputs]
    answer = serve(MEDIA).post("/predict", {"inputs": inputs})
    assert answer.status_code == 422
    assert re.search(why, answer.json()["error"])


def test_larger_bodies_allow_longer_sounds() -> None:
    limits = ServerLimits(max_body_bytes=8 << 20)
    assert ServerLimits().sound_seconds(16000) == 60
    assert limits.sound_seconds(16000) == 8 * 2**20 / 32000
    samples = open_files(media_model(), [{**GOOD, "sound": flac(961_000)}], limits, _token())
    assert samples[0]["sound"].shape == (961_000,)


def _token() -> CancellationToken:
    return CancellationToken()


class Held:
    """Decodes once it may."""

    def __init__(self) -> None:
        self.begun, self.may = threading.Event(), threading.Event()
        self.stopped = threading.Event()

    def __call__(self, model: Any, samples: Any, limits: Any, token: CancellationToken) -> Any:
        self.begun.set()
        assert self.may.wait(10)
        try:
            return open_files(model, samples, limits, token)
        except Stopped:
            self.stopped.set()
            raise


def test_a_request_is_answered_in_time_while_its_files_are_decoded_and_so_are_others(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    monkeypatch.setattr("t2t_torch.serve.application.open_files", held)
    server = serve(MEDIA, TEXTS, max_seconds=0.3)

    async def run() -> Any:
        late = asyncio.create_task(
            server.send("POST", "/models/media/predict", json={"inputs": [GOOD]})
        )
        await asyncio.to_thread(held.begun.wait, 10)
        begin = time.monotonic()
        other = await server.send("POST", "/models/texts/predict", json={"inputs": ["a text"]})
        health = await server.send("GET", "/v2/health/live")
        return await late, other.status_code, health.status_code, time.monotonic() - begin

    late, other, health, _ = asyncio.run(run())
    assert (other, health) == (200, 200)
    assert late.status_code == 503 and "not answered within 0.3 seconds" in late.text
    held.may.set()
    assert held.stopped.wait(10)  # what nobody waits for is not decoded


def test_too_many_requests_with_files_are_sent_away(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    monkeypatch.setattr("t2t_torch.serve.application.open_files", held)
    server = serve(MEDIA, max_queue=1)

    async def run() -> Any:
        first = asyncio.create_task(server.send("POST", "/predict", json={"inputs": [GOOD]}))
        await asyncio.to_thread(held.begun.wait, 10)
        second = await server.send("POST", "/predict", json={"inputs": [GOOD]})
        held.may.set()
        return await first, second

    first, second = asyncio.run(run())
    assert (first.status_code, second.status_code) == (200, 503)
    assert "1 requests wait for their files" in second.text


def test_decoded_files_that_wait_for_their_answers_have_a_limit_together(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2t_torch.serve.application.MAX_FILE_BYTES", 1)
    may = threading.Event()

    def predict(samples: Sequence[Any], token: CancellationToken) -> list[Prediction]:
        assert may.wait(10)
        return seen(samples, token)

    slow = functools.partial(media_model, ask=predict)
    server = serve(ModelSource("media", Path(), slow, is_run=True))

    async def run() -> list[int]:
        both = [
            asyncio.create_task(server.send("POST", "/predict", json={"inputs": [GOOD]}))
            for _ in range(2)
        ]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        may.set()
        return sorted(one.status_code for one in await asyncio.gather(*both))

    assert asyncio.run(run()) == [200, 503]
    assert asyncio.run(server.send("POST", "/predict", json={"inputs": [GOOD]})).status_code == 200


def test_files_count_as_words_by_their_size() -> None:
    opened = serve_model.open_files(media_model(), [GOOD], ServerLimits(), _token())[0]
    assert extent_of(opened).tokens == 3200 // 640 + 1
    assert extent_of({"photo": np.zeros((800, 80, 3), np.uint8)}).tokens == 1001


def test_lines_on_stderr_become_events(capfd: pytest.CaptureFixture[str]) -> None:
    with log.json_log():
        os.write(2, b"[src/libmpg123/parse.c] error: Giving up\nsecond")
        os.write(2, b" line\n")
    lines = [log.json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["event"], line["text"]) for line in lines] == [
        ("stderr", "[src/libmpg123/parse.c] error: Giving up"),
        ("stderr", "second line"),
    ]
    os.write(2, b"as before")
    assert capfd.readouterr().err == "as before"
    log.LOG.handlers[:] = []
    log.LOG.propagate = True
