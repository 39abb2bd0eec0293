"""`t2t-server --watch`: the artifact that `latest` names is served, also when it changes."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import served
from onnx import numpy_helper
from served import ROW, Served, write_artifact

from t2t_torch.errors import UsageError
from t2t_torch.runtime.signature import EXAMPLES, FILE, MODEL, FileChecksum, Signature
from t2t_torch.serve.repository import ModelSource
from t2t_torch.tune.tuner import replace_link
from t2t_torch.workflows.serve import ServeSettings, _sources
from t2t_torch.workflows.serve import serve as serve_models


def write_multiplier(folder: Path, step: int, **changes: Any) -> Path:
    """Writes an artifact whose output `doubled` is `step` times the field `dense`."""
    model = served.made().graph()
    (two,) = [one for one in model.graph.initializer if one.name == "two"]
    two.CopyFrom(numpy_helper.from_array(np.array(step, np.float32), "two"))
    write_artifact(folder, step)
    (folder / MODEL).write_bytes(model.SerializeToString())
    examples = (folder / EXAMPLES).read_text()
    (folder / EXAMPLES).write_text(examples.replace("[2.0, 5.0]", f"[{step}, {2.5 * step}]"))
    files = {name: FileChecksum.of(folder / name) for name in (MODEL, EXAMPLES)}
    signature = dataclasses.replace(Signature.read(folder), files=files, **changes)
    (folder / FILE).write_text(signature.to_json(), encoding="utf-8")
    return folder


def publish(export: Path, step: int, **changes: Any) -> Path:
    artifact = write_multiplier(export / str(step), step, **changes)
    replace_link(export / "latest", artifact)
    return artifact


def watched(folder: Path) -> ModelSource:
    (source,) = _sources(ServeSettings(watch=(str(folder),)))
    return source


def version_of(server: Served) -> str:
    answer = server.post("/predict", {"inputs": [ROW]})
    return answer.json()["version"]


def events(lines: Any, event: str) -> list[dict[str, Any]]:
    return [line for line in lines() if line["event"] == event]


@pytest.mark.parametrize("place", ["run", "run/export", "run/export/latest"])
def test_a_run_or_its_exports_are_served_by_the_name_of_the_run(
    tmp_path: Path, serve: Callable[..., Served], place: str
) -> None:
    publish(tmp_path / "run" / "export", 3)
    server = serve(watched(tmp_path / place))
    assert server.get("/v2/models/run").json()["versions"] == ["3"]
    publish(tmp_path / "run" / "export", 9)
    server.repository.refresh()
    assert server.get("/v2/models/run").json()["versions"] == ["9"]
    (tmp_path / "run/export/latest").unlink()
    (tmp_path / "run/export/latest").write_text("3\n")  # as in an object store
    server.repository.refresh()
    assert version_of(server) == "3"


def test_no_request_is_lost_over_three_swaps_and_none_mixes_two_models(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    export = tmp_path / "export"
    publish(export, 1)
    server = serve(watched(export))
    answers: list[httpx.Response] = []

    async def ask(client: httpx.AsyncClient) -> None:
        while len(answers) < 200 or answers[-1].json()["version"] != "4":
            inputs = [{**ROW, "dense": [len(answers) + one, 1]} for one in range(3)]
            answer = await client.post("/predict", json={"inputs": inputs})
            answer.extensions["sent"] = inputs
            answers.append(answer)

    async def stream() -> None:
        transport = httpx.ASGITransport(server.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            asking = [asyncio.create_task(ask(client)) for _ in range(8)]
            for step in (2, 3, 4):
                await asyncio.sleep(0.1)
                publish(export, step)
                await asyncio.to_thread(server.repository.refresh)
            await asyncio.gather(*asking)

    asyncio.run(stream())
    assert {answer.status_code for answer in answers} == {200}
    for answer in answers:
        step = int(answer.json()["version"])
        values = [one["doubled"]["value"] for one in answer.json()["outputs"]]
        sent = answer.extensions["sent"]
        assert values == [[step * number for number in one["dense"]] for one in sent]
    assert {answer.json()["version"] for answer in answers} == {"1", "2", "3", "4"}


def test_the_replaced_model_is_freed(tmp_path: Path, serve: Callable[..., Served]) -> None:
    publish(tmp_path / "export", 1)
    server = serve(watched(tmp_path / "export"))
    assert version_of(server) == "1"
    old = weakref.ref(server.repository.get(None).model)
    publish(tmp_path / "export", 2)
    server.repository.refresh()
    assert version_of(server) == "2"
    gc.collect()
    assert old() is None


@pytest.mark.parametrize("fault", ["bytes", "answers", "half", "outside", "field", "target"])
def test_a_broken_or_other_artifact_is_refused_and_the_old_one_answers(
    tmp_path: Path, serve: Callable[..., Served], lines: Any, fault: str
) -> None:
    export = tmp_path / "export"
    signature = Signature.read(publish(export, 1))
    server = serve(watched(export))
    if fault == "field":
        *fields, last = signature.fields
        publish(export, 2, fields=[*fields, dataclasses.replace(last, dtype="float64")])
    elif fault == "target":
        publish(export, 2, targets=signature.targets[1:])
    elif fault == "outside":
        (export / "latest").unlink()
        (export / "latest").write_text("../other")
    else:
        artifact = publish(export, 2)
        if fault == "bytes":
            (artifact / MODEL).write_bytes((artifact / MODEL).read_bytes()[:-1] + b"x")
        elif fault == "answers":
            write_artifact(artifact, 2, intent="stay")
        elif fault == "half":
            (artifact / EXAMPLES).unlink()
    for _ in range(2):
        server.repository.refresh()
    assert version_of(server) == "1"
    expected = {
        "bytes": "another content",
        "answers": "example 0",
        "half": "examples.jsonl",
        "outside": "it is outside of",
        "field": f"has another input {signature.fields[-1].name!r} than",
        "target": f"has another output {signature.targets[0].name!r} than",
    }
    assert expected[fault] in events(lines, "not loaded")[0]["why"]
    publish(export, 3)
    server.repository.refresh()
    assert version_of(server) == "3"


def test_an_output_more_is_taken_over(tmp_path: Path, serve: Callable[..., Served]) -> None:
    targets = served.made().TARGETS
    publish(tmp_path / "export", 1, targets=targets[:-1])
    server = serve(watched(tmp_path / "export"))
    publish(tmp_path / "export", 2, targets=targets)
    server.repository.refresh()
    assert version_of(server) == "2"


def test_the_server_waits_for_the_first_export(
    tmp_path: Path, serve: Callable[..., Served], lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    latest = ModelSource._latest

    def look(source: ModelSource) -> Path:
        looks.append(source.path)
        if len(looks) == 2:
            publish(source.path, 5)
        return latest(source)

    monkeypatch.setattr(ModelSource, "_latest", look)
    assert version_of(serve(watched(tmp_path / "export"))) == "5"
    assert len(events(lines, "waiting")) == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"watch": ("run",), "reload_seconds": 0.0}, "0 is never"),
        ({"watch": ("s3://bucket/run",)}, "no store"),
        ({"watch": ("run",), "output_dir": "run"}, "expected either"),
        ({"watch": ("a/run", "b/run/export")}, "two models are called 'run'"),
    ],
)
def test_what_cannot_be_watched_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        serve_models(ServeSettings(**settings))
