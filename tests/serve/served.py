"""A server in this process, over an artifact that was made by hand, or over a stub."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from t2t_torch.artifact.answer import Answer
from t2t_torch.artifact.signature import EXAMPLES, FILE, MODEL, Signature, Written
from t2t_torch.serve.application import Application
from t2t_torch.serve.artifact_model import artifact_model
from t2t_torch.serve.drain import Drain
from t2t_torch.serve.gate import Gate
from t2t_torch.serve.key import Keys
from t2t_torch.serve.limits import Limits
from t2t_torch.serve.metrics import Metrics
from t2t_torch.serve.model import InputField, Model, OutputTarget
from t2t_torch.serve.repository import Repository, Source

_MADE = Path(__file__).parent.parent / "artifact" / "conftest.py"
ROW = {"inputs": "go to oslo", "pos": "X X X", "note": "n", "dense": [1, 2.5]}


@functools.cache
def made() -> Any:
    """The module that makes the artifact by which `artifact/` is tested."""
    spec = importlib.util.spec_from_file_location("made_artifact", _MADE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def graph() -> bytes:
    return made().graph().SerializeToString()


def write_artifact(folder: Path, step: int = 3, intent: str = "go", **changes: Any) -> Path:
    """Writes the artifact, with one example of which it is said that its intent is `intent`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(graph())
    values = {"intent": intent, "slots": ["O", "O", "B-city"], "doubled": [2.0, 5.0]}
    example = {"input": ROW, "answer": {"values": values}}
    (folder / EXAMPLES).write_text(json.dumps(example) + "\n", encoding="utf-8")
    told: dict[str, Any] = {
        "problem": "made_by_hand",
        "model": "none",
        "step": step,
        "checkpoint": f"step {step}",
        "created": "2026-01-01T00:00:00+00:00",
        "fields": made().FIELDS,
        "targets": made().TARGETS,
        "needs_extensions": False,
        "quantized": "",
        "opset": 20,
        "made_with": {"onnxruntime": "1.20"},
        "files": {name: Written.of(folder / name) for name in (MODEL, EXAMPLES)},
    }
    (folder / FILE).write_text(Signature(**{**told, **changes}).to_json(), encoding="utf-8")
    return folder


def artifact_source(folder: Path, name: str = "made") -> Source:
    return Source(name, folder, functools.partial(artifact_model, threads=1))


def stub_source(ask: Callable[[Sequence[Any]], Sequence[Any]], name: str = "stub") -> Source:
    """A model of one text, which answers with what `ask` finds."""

    def load(name: str, version: str, path: Path) -> Model:
        target = OutputTarget("targets", "class", ("long", "short"))
        return Model(name, "1", "p", "m", "none", [InputField("inputs", "text")], [target], ask)

    return Source(name, Path(), load, is_run=True)


def length_of(samples: Sequence[Any]) -> list[Answer]:
    """Whether texts are long."""
    found = []
    for sample in samples:
        label = "long" if len(sample["inputs"]) > 5 else "short"
        scores = {label: 0.75, "short" if label == "long" else "long": 0.25}
        found.append(Answer({"targets": label}, {"targets": 0.75}, {"targets": scores}))
    return found


class Served:
    """A server without a socket."""

    def __init__(
        self, *sources: Source, keys: Sequence[str] = (), log_texts: bool = False, **limits: Any
    ) -> None:
        self.metrics = Metrics()
        bounds = Limits(**limits)
        self.repository = Repository(sources, bounds, self.metrics)
        self.repository.load()
        self.drain = Drain()
        application = Application(
            self.repository, bounds, self.metrics, self.drain, log_texts=log_texts
        )
        self.app = Gate(application.app, Keys(keys), self.metrics, self.drain)

    async def send(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Sends a request, in a loop that runs."""
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.request(method, path, **given)

    def __call__(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Sends a request."""
        return asyncio.run(self.send(method, path, **given))

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self("GET", path, **given)

    def post(self, path: str, body: Any = None, **given: Any) -> httpx.Response:
        return self("POST", path, **(given if body is None else {"json": body, **given}))
