"""No file from outside starts a program, takes much memory or time, or ends the process."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.append(str(Path(__file__).parents[1] / "serve"))

from served import _written
from test_hostile_load import HEALTH
from test_server import Process

from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.features.audio import wav_of
from t2t_torch.features.picture import encoded

MAKERS = hostile.all_makers()
CLIENTS = 32
MOST_HEALTH_SECONDS = 0.5


@pytest.fixture(scope="module")
def watch() -> Iterator[hostile.Watch]:
    one = hostile.Watch()
    yield one
    one.close()


def cases() -> list[Any]:
    return [
        pytest.param(key, marks=() if maker.is_quick else pytest.mark.slow)
        for key, maker in MAKERS.items()
    ]


@pytest.mark.parametrize("key", cases())
def test_a_hostile_file_is_refused_at_little_cost(
    key: str, watch: hostile.Watch, tmp_path: Path
) -> None:
    outcome = watch.read(MAKERS[key], tmp_path)
    assert outcome.faults(MAKERS[key]) == []


def test_there_are_300_hostile_files_and_each_can_be_read_under_watch() -> None:
    assert len(MAKERS) >= 300
    assert {maker.kind for maker in MAKERS.values()} <= hostile.READERS.keys()


def write_means(folder: Path) -> Path:
    """Writes an artifact of a picture and a sound, whose mean pixel it predicts."""
    node = helper.make_node
    nodes = [
        node("Cast", ["photo"], ["pixels"], to=TensorProto.FLOAT),
        node("ReduceMean", ["pixels", "axes"], ["mean"], keepdims=0),
        node("Reshape", ["mean", "column"], ["bright"]),
        node("Cast", ["sound"], ["samples"], to=TensorProto.FLOAT),
        node("ReduceMean", ["samples", "last"], ["level"], keepdims=1),
        node("Mul", ["level", "nothing"], ["zeros"]),
        node("Add", ["bright", "zeros"], ["answer"]),
    ]
    constants = {
        "axes": np.array([1, 2, 3]),
        "last": np.array([1]),
        "column": np.array([-1, 1]),
        "nothing": np.zeros(1, np.float32),
    }
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "means",
        [
            value("photo", TensorProto.UINT8, ["B", 8, 8, 3]),
            value("sound", TensorProto.INT16, ["B", "N"]),
        ],
        [value("answer", TensorProto.FLOAT, ["B", 1])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    fields = (
        InputSpec("photo", "image", "uint8", shape=(8, 8, 3)),
        InputSpec("sound", "audio", "int16", size=16000, shape=(-1,)),
    )
    targets = (OutputSpec("answer", "numbers", size=1),)
    return _written(folder, model.SerializeToString(), [], fields, targets)


def text_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


GOOD = {
    "photo": text_of(encoded(np.full((8, 8, 3), 7, np.uint8))),
    "sound": text_of(wav_of(np.zeros(1600, np.int16), 16000)),
}


def hold(server: Process, contents: list[tuple[str, str]]) -> tuple[Counter[int], float, list[Any]]:
    """Returns the statuses of hostile requests, the longest time of a health check, and wrong
    answers to good requests.
    """
    wrong: list[Any] = []

    def ask(number: int) -> int:
        if number % 4 == 0:
            answer = server.ask("POST", "/predict", {"inputs": [GOOD]})
            if answer[0] != 503 and answer[1]["outputs"][0]["answer"]["value"] != [7.0]:
                wrong.append(answer)
        name, content = contents[number]
        copies = 1 + number % 3 * 30 if len(content) < 10_000 else 1
        return server.ask("POST", "/predict", {"inputs": [{**GOOD, name: content}] * copies})[0]

    probe = subprocess.Popen(
        [sys.executable, "-c", HEALTH, str(server.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with ThreadPoolExecutor(CLIENTS) as clients:
        statuses = Counter(clients.map(ask, range(len(contents))))
    longest, _ = probe.communicate(b"end\n", timeout=120)
    return statuses, float(longest), wrong


@pytest.mark.slow
def test_a_server_outlives_hostile_files_and_stays_healthy(tmp_path: Path) -> None:
    contents = []
    for maker in MAKERS.values():
        if maker.kind in ("picture", "sound"):
            content = maker.make(tmp_path).read_bytes()
            if len(content) < 700_000:
                name = "photo" if maker.kind == "picture" else "sound"
                contents.append((name, text_of(content)))
    random.Random(0).shuffle(contents)
    server = Process(f"--artifact={write_means(tmp_path / 'means')}")
    try:
        status = Path(f"/proc/{server.process.pid}/status")
        statuses, longest, wrong = hold(server, contents)
        assert wrong == []
        assert statuses.keys() <= {200, 422, 503}
        assert statuses[422] > len(contents) / 3
        assert longest < MOST_HEALTH_SECONDS
        assert server.ask("POST", "/predict", {"inputs": [GOOD]})[0] == 200
        peak = int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
        assert peak < 1000  # two files at once, the server, and onnxruntime
        for line in server.lines:  # nothing but JSON
            json.loads(line)
    finally:
        server.end()
        server.code()
