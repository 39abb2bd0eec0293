"""Models by name and version, and what changes on disk while they are served."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import (
    ROW,
    Served,
    artifact_source,
    length_of,
    stub_source,
    write_artifact,
    write_counter,
)

from t2t_torch.errors import ArtifactError, UsageError
from t2t_torch.runtime.signature import MODEL, Signature
from t2t_torch.serve import repository as repository_module
from t2t_torch.serve.limits import ServerLimits
from t2t_torch.serve.middleware import ServerMetrics
from t2t_torch.serve.model import ServedModel
from t2t_torch.serve.repository import ModelSource, Repository


def version_of(server: Served, place: str = "/predict") -> str:
    answer = server.post(place, {"inputs": [ROW]})
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


def replace(folder: Path, other: Path) -> None:
    """Puts another artifact into the place of one, as t2t-exporter --overwrite does."""
    folder.rename(folder.with_name("old"))
    other.rename(folder)
    shutil.rmtree(folder.with_name("old"))


def test_folders_called_by_numbers_are_versions_and_the_highest_answers(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    for version in ("2", "10", "draft"):
        write_artifact(tmp_path / "many" / version)
    server = serve(artifact_source(tmp_path / "many"))
    assert server.get("/v2/models/made").json()["versions"] == ["2", "10"]
    assert version_of(server) == "10"
    assert version_of(server, "/models/made/versions/2/predict") == "2"


def test_an_artifact_that_is_replaced_answers_from_the_next_look_on(
    tmp_path: Path, serve: Callable[..., Served], lines
) -> None:
    folder = write_artifact(tmp_path / "made")
    server = serve(artifact_source(folder))
    server.repository.refresh()
    replace(folder, write_artifact(tmp_path / "new", step=8))
    assert version_of(server) == "3"
    server.repository.refresh()
    assert version_of(server) == "8"
    assert server.get("/v2/models/made").json()["versions"] == ["8"]
    assert [line["event"] for line in lines() if line["event"] != "request"] == [
        "loaded",
        "loaded",
        "unloaded",
    ]
    metrics = server.get("/metrics").text
    assert 't2t_loads_total{model="made",result="loaded"} 1.0' in metrics
    assert 'version="3"} ' not in metrics.split("t2t_loaded_timestamp_seconds gauge")[1]


@pytest.mark.parametrize("fault", ["graph", "signature", "answers", "pipe", "zeros", "outside"])
def test_a_broken_one_is_told_and_the_old_stays(
    tmp_path: Path, serve: Callable[..., Served], lines, fault: str
) -> None:
    folder = write_artifact(tmp_path / "made")
    server = serve(artifact_source(folder))
    broken = write_artifact(tmp_path / "new", step=8, intent="stay" if fault == "answers" else "go")
    if fault == "graph":
        (broken / MODEL).write_bytes(b"nothing")
    elif fault == "signature":
        (broken / "signature.json").write_text("{")
    elif fault == "pipe":
        (broken / "signature.json").unlink()
        os.mkfifo(broken / "signature.json")
    elif fault == "zeros":
        (broken / MODEL).unlink()
        (broken / MODEL).symlink_to("/dev/zero")
    elif fault == "outside":
        signature = Signature.read(broken)
        files = {**signature.files, "../other": next(iter(signature.files.values()))}
        signature = dataclasses.replace(signature, files=files)
        (broken / "signature.json").write_text(signature.to_json(), "utf-8")
    replace(folder, broken)
    for _ in range(2):  # a second look does not load it again
        server.repository.refresh()
    assert version_of(server) == "3"
    (told,) = [line for line in lines() if line["event"] == "not loaded"]
    expected = {
        "graph": "not as it was exported",
        "signature": "damaged",
        "answers": "example 0",
        "pipe": "a named pipe",
        "zeros": "a device",
        "outside": "it is outside of",
    }
    assert expected[fault] in told["why"]
    assert 't2t_loads_total{model="made",result="failed"} 1.0' in server.get("/metrics").text
    replace(folder, write_artifact(tmp_path / "mended", step=9))
    server.repository.refresh()
    assert version_of(server) == "9"


@pytest.mark.parametrize("is_allowed", [False, True])
@pytest.mark.parametrize("is_new_version", [False, True])
def test_an_artifact_of_another_problem_takes_a_name_over_only_if_that_is_allowed(
    tmp_path: Path, serve: Callable[..., Served], lines, is_allowed: bool, is_new_version: bool
) -> None:
    folder = tmp_path / "made"
    place = write_artifact(folder / "1") if is_new_version else write_artifact(folder)
    server = serve(artifact_source(folder), allow_other_problem=is_allowed)
    before = version_of(server)
    other = write_artifact(tmp_path / "new", step=8, problem="another")
    if is_new_version:
        other.rename(folder / "8")
    else:
        replace(place, other)
    server.repository.refresh()
    assert version_of(server) == ("8" if is_allowed else before)
    told = [line["why"] for line in lines() if line["event"] == "not loaded"]
    assert [("is of problem another" in why, "--allow_other_problem" in why) for why in told] == (
        [] if is_allowed else [(True, True)]
    )


def test_at_the_start_the_newest_version_has_the_problem_that_is_served(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    folder = tmp_path / "made"
    write_artifact(folder / "9", problem="another")
    newest = write_artifact(folder / "10")
    assert version_of(serve(artifact_source(folder))) == newest.name


def test_versions_come_and_go(tmp_path: Path, serve: Callable[..., Served]) -> None:
    folder = tmp_path / "many"
    write_artifact(folder / "1")
    server = serve(artifact_source(folder))
    write_artifact(folder / "2")
    server.repository.refresh()
    assert server.get("/v2/models/made").json()["versions"] == ["1", "2"]
    shutil.rmtree(folder / "2")
    server.repository.refresh()
    assert version_of(server) == "1"
    shutil.rmtree(folder)  # as while a disk is away
    server.repository.refresh()
    assert version_of(server) == "1"


def test_what_waits_for_the_old_is_answered_by_it(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    begun, may = threading.Event(), threading.Event()
    steps = iter(range(1, 9))

    def load(name: str, version: str, path: Path) -> ServedModel:
        model = stub_source(held).load(name, "", path)
        model.version = str(next(steps))
        return model

    def held(samples):
        begun.set()
        assert may.wait(10)
        return length_of(samples)

    folder = write_artifact(tmp_path / "made")
    server = serve(ModelSource("stub", folder, load))

    async def run() -> list[str]:
        first = asyncio.create_task(server.send("POST", "/predict", json={"inputs": ["a"]}))
        await asyncio.to_thread(begun.wait, 10)
        second = asyncio.create_task(server.send("POST", "/predict", json={"inputs": ["b"]}))
        while not server.repository.queue_length("stub"):
            await asyncio.sleep(0)
        write_artifact(folder, step=4)
        looking = asyncio.create_task(asyncio.to_thread(server.repository.refresh))
        while list(server.repository.versions("stub")) != ["2"]:
            await asyncio.sleep(0)
        third = asyncio.create_task(server.send("POST", "/predict", json={"inputs": ["c"]}))
        may.set()
        await looking
        return [(await one).json()["version"] for one in (first, second, third)]

    assert asyncio.run(run()) == ["1", "1", "2"]


def test_of_several_versions_a_broken_one_does_not_keep_the_server_from_starting(
    tmp_path: Path, serve: Callable[..., Served], lines
) -> None:
    write_artifact(tmp_path / "many" / "1")
    (write_artifact(tmp_path / "many" / "2") / MODEL).unlink()
    server = serve(artifact_source(tmp_path / "many"))
    assert version_of(server) == "1"
    assert [line["event"] for line in lines() if line["level"] == "error"] == ["not loaded"]


def test_without_any_version_it_does_not_start(tmp_path: Path) -> None:
    (write_artifact(tmp_path / "broken") / MODEL).unlink()
    (tmp_path / "empty").mkdir()
    for name, kind in {"broken": ArtifactError, "empty": UsageError, "none": UsageError}.items():
        repository = Repository([artifact_source(tmp_path / name)], ServerLimits(), ServerMetrics())
        with pytest.raises(kind, match=name):
            repository.load()


def test_a_folder_that_goes_while_it_is_looked_at_is_seen_at_the_next_look(
    tmp_path: Path, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, lines
) -> None:
    folder = write_artifact(tmp_path / "made")
    server = serve(artifact_source(folder))
    write_artifact(folder, step=8)
    whole = repository_module._fingerprint

    def gone(path: Path) -> Any:
        path.rename(tmp_path / "away")
        try:
            return whole(path)
        finally:
            (tmp_path / "away").rename(path)

    monkeypatch.setattr(repository_module, "_fingerprint", gone)
    server.repository.refresh()
    assert version_of(server) == "3"
    assert "not loaded" not in [line["event"] for line in lines()]  # it is no fault
    monkeypatch.setattr(repository_module, "_fingerprint", whole)
    server.repository.refresh()
    assert version_of(server) == "8"


def test_a_source_that_cannot_be_looked_at_is_told_and_others_are_looked_at(
    tmp_path: Path, serve: Callable[..., Served], lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (write_artifact(tmp_path / name) for name in ("one", "two"))
    server = serve(artifact_source(first, "one"), artifact_source(second, "two"))
    places = ModelSource.places

    def denied(source: ModelSource) -> Any:
        if source.name == "one":
            raise PermissionError("not yours")
        return places(source)

    monkeypatch.setattr(ModelSource, "places", denied)
    write_artifact(second, step=8)
    server.repository.watch(0.01)
    seen = threading.Event()
    for _ in range(1000):
        if list(server.repository.versions("two")) == ["8"]:
            break
        seen.wait(0.01)
    assert "not yours" in next(one for one in lines() if one["event"] == "not loaded")["why"]
    assert [one for one in threading.enumerate() if one.name == "repository"]


class Swapped:
    """A model that is replaced between the moment it is found and that in which it is asked."""

    def __init__(self, server: Served, monkeypatch: pytest.MonkeyPatch, *swaps: Any) -> None:
        self._swaps = iter([lambda: None, *swaps])  # at first it is looked whether there is one
        self._get, self._server = server.repository.get, server
        monkeypatch.setattr(server.repository, "get", self)

    def __call__(self, name: str | None, version: str | None = None) -> Any:
        served = self._get(name, version)
        next(self._swaps, lambda: None)()
        return served


def test_a_version_that_was_named_is_not_answered_by_another(
    tmp_path: Path, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1", "2"):
        write_artifact(tmp_path / "many" / version)
    server = serve(artifact_source(tmp_path / "many"))

    def swap() -> None:
        shutil.rmtree(tmp_path / "many" / "1")
        server.repository.refresh()

    Swapped(server, monkeypatch, swap)
    answer = server.post("/models/made/versions/1/predict", {"inputs": [ROW]})
    assert (answer.status_code, "no version '1'; there are: 2" in answer.text) == (404, True)


def test_who_names_no_version_is_answered_by_the_new_one_as_it_reads_and_writes(
    tmp_path: Path, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, lines
) -> None:
    made = write_artifact(tmp_path / "many" / "1")
    server = serve(artifact_source(tmp_path / "many"))

    def swap() -> None:
        write_counter(tmp_path / "many" / "2")
        shutil.rmtree(made)
        server.repository.refresh()

    Swapped(server, monkeypatch, swap)
    told = server.post("/predict", {"inputs": [{**ROW, "wanted": [3]}]}).json()
    assert (told["version"], told["outputs"]) == ("2", [{"counted_to": {"value": [3.0]}}])
    assert [one["version"] for one in lines() if one["event"] == "request"] == ["2"]


def test_a_model_that_is_always_replaced_is_unavailable(server: Served) -> None:
    server.repository.get("made").batcher.close()
    answer = server.post("/predict", {"inputs": [ROW]})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "replaced again and again" in answer.json()["error"]


def test_changes_are_looked_for_in_a_thread(tmp_path: Path, serve: Callable[..., Served]) -> None:
    folder = write_artifact(tmp_path / "made")
    server = serve(artifact_source(folder))
    server.repository.watch(0.01)
    write_artifact(folder, step=8)
    seen = threading.Event()
    while list(server.repository.versions("made")) != ["8"]:
        seen.wait(0.01)
    server.repository.close()
    assert not [one for one in threading.enumerate() if one.name == "repository"]


def test_a_model_whose_folder_is_removed_still_answers_and_that_is_logged_once(
    tmp_path: Path, serve: Callable[..., Served], lines: Callable[[], list[dict[str, Any]]]
) -> None:
    folder = write_artifact(tmp_path / "made")
    server = serve(artifact_source(folder))
    folder.rename(tmp_path / "away")
    for _ in range(3):
        server.repository.refresh()
    assert server.post("/predict", {"inputs": [ROW]}).status_code == 200
    told = [line for line in lines() if line["event"] == "not loaded"]
    assert len(told) == 1 and "its folder is gone" in told[0]["why"]
    (tmp_path / "away").rename(folder)
    server.repository.refresh()
    folder.rename(tmp_path / "away")
    server.repository.refresh()
    assert len([line for line in lines() if line["event"] == "not loaded"]) == 2
