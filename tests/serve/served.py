"""A server in this process, over an artifact that was made by hand, or over a stub."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.runtime.prediction import Attention, Hypothesis, Prediction
from t2t_torch.runtime.session import CancellationToken
from t2t_torch.runtime.signature import EXAMPLES, FILE, MODEL, FileChecksum, Signature
from t2t_torch.serve.application import Application
from t2t_torch.serve.artifact_model import artifact_model
from t2t_torch.serve.limits import ServerLimits
from t2t_torch.serve.middleware import Keys, RequestMiddleware, ServerMetrics
from t2t_torch.serve.model import ServedModel
from t2t_torch.serve.repository import ModelSource, Repository
from t2t_torch.serve.server import GracefulShutdown

_TESTS = Path(__file__).parent.parent
ROW = {"inputs": "go to oslo", "pos": "X X X", "note": "n", "dense": [1, 2.5]}


@functools.cache
def made() -> Any:
    """The module that makes the artifact by which `runtime/` is tested."""
    return module_at("made_artifact", _TESTS / "runtime" / "conftest.py")


def module_at(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def graph() -> bytes:
    return made().graph().SerializeToString()


def write_artifact(folder: Path, step: int = 3, intent: str = "go", **changes: Any) -> Path:
    """Writes the artifact, with one example of which it is said that its intent is `intent`."""
    values = {"intent": intent, "slots": ["O", "O", "B-city"], "doubled": [2.0, 5.0]}
    example = {"input": ROW, "answer": {"values": values}}
    return _written(folder, graph(), [example], made().FIELDS, made().TARGETS, step=step, **changes)


def _written(
    folder: Path,
    model: bytes,
    examples: Sequence[Any],
    fields: Sequence[InputSpec],
    targets: Sequence[OutputSpec],
    **changes: Any,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(model)
    (folder / EXAMPLES).write_text("".join(f"{json.dumps(one)}\n" for one in examples), "utf-8")
    told: dict[str, Any] = {
        "problem": "made_by_hand",
        "model": "none",
        "step": 3,
        "checkpoint": "chosen by hand",
        "created": "2026-01-01T00:00:00+00:00",
        "fields": fields,
        "targets": targets,
        "needs_extensions": False,
        "quantized": "",
        "opset": 20,
        "made_with": {"onnxruntime": "1.20"},
        "files": {name: FileChecksum.of(folder / name) for name in (MODEL, EXAMPLES)},
    }
    (folder / FILE).write_text(Signature(**{**told, **changes}).to_json(), encoding="utf-8")
    return folder


def write_phrases(folder: Path, shared_folder: Path) -> Path:
    """Writes an artifact that writes texts: a small model that has learnt nothing."""
    from t2t_torch import registry
    from t2t_torch.bin.commands import exporter
    from t2t_torch.data.generate import generate_data

    module = module_at("phrases_subject", _TESTS / "export" / "test_text_subject.py")
    (folder / "phrases_shelf").mkdir(parents=True)
    (folder / "phrases_shelf" / "phrases.py").write_text(module._PROBLEM)
    module._forget_phrases()  # what reads a run opens its folder of problems again
    registry.import_usr_dir(folder / "phrases_shelf")
    try:
        problem = registry.problem("small_phrases")
        generate_data(problem, folder / "data", folder, num_processes=1, progress=False)
        module._write_run(folder / "run", folder, "small_phrases", module.ATTENDING)
        asked = [f"--output_dir={folder / 'run'}", f"--data_dir={folder / 'data'}"]
        asked += [f"--export_dir={folder / 'artifact'}"]
        hparams = f"--decode_hparams={module.SEARCH}"
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
            module.export_each_search_once(patch, shared_folder)
            assert exporter.main([*asked, hparams]) == 0
    finally:
        module._forget_phrases()
    return folder / "artifact"


def write_counter(folder: Path) -> Path:
    """Writes an artifact that counts, in a loop of its graph, to the number it is given."""
    node, number = helper.make_node, TensorProto.FLOAT
    step = helper.make_graph(
        [node("Identity", ["go_on"], ["goes_on"]), node("Add", ["count", "one"], ["counted"])],
        "step",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("count", number, [1]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("counted", number, [1]),
        ],
        [numpy_helper.from_array(np.ones(1, np.float32), "one")],
    )
    nodes = [
        node("ReduceMax", ["wanted"], ["most"], keepdims=0),
        node("Cast", ["most"], ["rounds"], to=TensorProto.INT64),
        node("Loop", ["rounds", "", "zero"], ["last"], body=step),
        node("Mul", ["wanted", "nothing"], ["zeros"]),
        node("Add", ["zeros", "last"], ["counted_to"]),
    ]
    constants = {"zero": np.zeros(1, np.float32), "nothing": np.zeros(1, np.float32)}
    graph = helper.make_graph(
        nodes,
        "counter",
        [helper.make_tensor_value_info("wanted", number, ["B", 1])],
        [helper.make_tensor_value_info("counted_to", number, ["B", 1])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    fields = (InputSpec("wanted", "numbers", "float32", size=1),)
    return _written(
        folder,
        model.SerializeToString(),
        [],
        fields,
        (OutputSpec("counted_to", "numbers", size=1),),
    )


class StubModel(ServedModel):
    """A model that answers with functions."""

    def __init__(
        self,
        *given: Any,
        examples: Sequence[Any] = (),
        column_names: Mapping[str, str] = MappingProxyType({}),
        attend: Callable[..., Any] | None = None,
    ) -> None:
        *parts, ask = given
        super().__init__(*parts, examples=examples, column_names=column_names)
        self._ask, self._attend = ask, attend
        if attend is not None:
            self.why_no_attention = ""

    def predict(self, samples: Sequence[Any], token: CancellationToken) -> Any:
        return self._ask(samples, token)

    def attend(self, samples: Sequence[Any], token: CancellationToken) -> Any:
        assert self._attend is not None
        return self._attend(samples, token)


def artifact_source(folder: Path, name: str = "made") -> ModelSource:
    return ModelSource(name, folder, functools.partial(artifact_model, threads=1))


def stub_source(
    ask: Callable[[Sequence[Any]], Sequence[Any]],
    name: str = "stub",
    examples: Sequence[Any] = (),
    column_names: Mapping[str, str] = MappingProxyType({}),
) -> ModelSource:
    """A model of one text, which answers with what `ask` finds."""

    def load(name: str, version: str, path: Path) -> ServedModel:
        target = OutputSpec("targets", "class", ("long", "short"))
        fields = [InputSpec("inputs", "text")]

        def found(samples: Sequence[Any], stop: CancellationToken) -> Sequence[Any]:
            return ask(samples)

        parts = (name, "1", "p", "m", "none", fields, [target])
        return StubModel(*parts, found, examples=examples, column_names=column_names)

    return ModelSource(name, Path(), load, is_run=True)


def translator_source(name: str = "translator") -> ModelSource:
    """A model that turns the words of a text round, and tells with which weights it looked."""

    def load(name: str, version: str, path: Path) -> ServedModel:
        def found(samples: Sequence[Any], stop: CancellationToken) -> list[Prediction]:
            texts = (" ".join(sample["inputs"].split()[::-1]) for sample in samples)
            return [Prediction.of_texts("targets", (Hypothesis(text, (), -1.5),)) for text in texts]

        def attend(samples: Sequence[Any], stop: CancellationToken) -> list[Prediction]:
            told = []
            for sample, one in zip(samples, found(samples, stop), strict=True):
                read, written = sample["inputs"].split(), one.text.split()
                last = len(read) - 1
                rows = tuple(
                    tuple(0.75 if place + at == last else 0.125 for at in range(len(read)))
                    for place in range(len(written))
                )
                pairs = tuple((last - place, place) for place in range(len(written)))
                best = dataclasses.replace(one.hypotheses[0], alignment=pairs)
                told.append(
                    Prediction.of_texts(
                        "targets", (best,), Attention(tuple(read), tuple(written), rows)
                    )
                )
            return told

        fields, targets = [InputSpec("inputs", "text")], [OutputSpec("targets", "text")]
        return StubModel(name, "1", "p", "m", "none", fields, targets, found, attend=attend)

    return ModelSource(name, Path(), load, is_run=True)


LISTED = {
    "inputs": "go to oslo",
    "lists": [{}, {}, {"city": 0.9, "name": 0.25}],
    "vectors": [[0.0, 1.0], [0.5, 0.0], [0.0, 0.0]],
    "picture": [[[0, 1, 2], [3, 4, 255]]],
}
"""What `listed_source` is asked."""


def listed_source(asked: list[Any], name: str = "listed") -> ModelSource:
    """A model of words, what they have, and a picture, which keeps what it was `asked`."""

    def load(name: str, version: str, path: Path) -> ServedModel:
        fields = [
            InputSpec("lists", "gazetteer", of="inputs"),
            InputSpec("inputs", "words"),
            InputSpec("vectors", "word_numbers", size=2, of="inputs"),
            InputSpec("picture", "image", shape=(1, 2, 3)),
        ]

        def found(samples: Sequence[Any], stop: CancellationToken) -> list[Prediction]:
            asked.extend(samples)
            return [Prediction({"part": sample["inputs"][:2]}, {"part": 0.5}) for sample in samples]

        targets = [OutputSpec("part", "span", of="inputs")]
        return StubModel(name, "1", "p", "m", "none", fields, targets, found, examples=[LISTED])

    return ModelSource(name, Path(), load, is_run=True)


def files_source(name: str = "files") -> ModelSource:
    """A model of a sound of 8,000 Hz and a picture, which describes what it gets."""

    def load(name: str, version: str, path: Path) -> ServedModel:
        fields = [
            InputSpec("sound", "audio", size=8000),
            InputSpec("photo", "image", shape=(8, 8, 3)),
        ]

        def found(samples: Sequence[Any], stop: CancellationToken) -> Sequence[Any]:
            described = []
            for sample in samples:
                values = sample["sound"]
                photo = hashlib.sha256(sample["photo"].tobytes()).hexdigest()
                loudest = int(np.abs(values.astype(int)).max())
                text = f"{len(values)} samples up to {loudest}; photo {photo}"
                described.append(Prediction({"label": text}, {"label": 0.5}))
            return described

        targets = [OutputSpec("label", "label")]
        return StubModel(name, "1", "p", "m", "none", fields, targets, found)

    return ModelSource(name, Path(), load, is_run=True)


def length_of(samples: Sequence[Any]) -> list[Prediction]:
    """Whether texts are long."""
    found = []
    for sample in samples:
        label = "long" if len(sample["inputs"]) > 5 else "short"
        scores = {label: 0.75, "short" if label == "long" else "long": 0.25}
        found.append(Prediction({"targets": label}, {"targets": 0.75}, {"targets": scores}))
    return found


class Served:
    """A server without a socket."""

    def __init__(
        self,
        *sources: ModelSource,
        keys: Sequence[str] = (),
        log_texts: bool = False,
        allow_other_problem: bool = False,
        **limits: Any,
    ) -> None:
        self.metrics = ServerMetrics()
        bounds = ServerLimits(**limits)
        self.repository = Repository(
            sources, bounds, self.metrics, allow_other_problem=allow_other_problem
        )
        self.repository.load()
        self.shutdown = GracefulShutdown()
        application = Application(
            self.repository, bounds, self.metrics, self.shutdown, log_texts=log_texts
        )
        self.app = RequestMiddleware(application.app, Keys(keys), self.metrics, self.shutdown)

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
