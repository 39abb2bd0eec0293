"""What nobody waits for is not computed to its end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from served import Served, StubModel, artifact_source, write_counter
from test_server import Process, until

from t2t_torch.features import InputSpec
from t2t_torch.runtime.session import Artifact, CancellationToken, Stopped
from t2t_torch.serve.limits import ServerLimits
from t2t_torch.serve.model import ServedModel
from t2t_torch.serve.repository import Batcher, ModelSource

FOR_A_MINUTE = {"wanted": [2e8]}
SHORT = {"wanted": [3]}


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    return write_counter(tmp_path / "counter")


def test_a_graph_is_stopped_in_its_loop_and_that_is_no_fault_of_an_input(counter: Path) -> None:
    artifact, stop = Artifact(counter, threads=1), CancellationToken()
    timer = threading.Timer(0.05, stop.set)
    timer.start()
    with pytest.raises(Stopped):
        artifact.predict([FOR_A_MINUTE, SHORT], stop=stop)
    timer.join()
    assert artifact([SHORT]) == [[3.0]]


def test_what_is_stopped_before_it_begins_computes_nothing(counter: Path) -> None:
    stop = CancellationToken()
    stop.set()
    with pytest.raises(Stopped):
        Artifact(counter, threads=1).predict([FOR_A_MINUTE], stop=stop)


def test_a_request_whose_time_is_over_does_not_keep_the_model(
    counter: Path, serve: Callable[..., Served]
) -> None:
    server = serve(artifact_source(counter), max_seconds=0.5, max_batches=1)
    late = server.post("/predict", {"inputs": [FOR_A_MINUTE]})
    assert (late.status_code, "0.5 seconds" in late.text) == (503, True)
    told = server.post("/predict", {"inputs": [SHORT]}).json()
    assert told["outputs"][0]["counted_to"]["value"] == [3.0]


def test_an_artifact_answers_while_it_computes_another_batch(
    counter: Path, serve: Callable[..., Served]
) -> None:
    server = serve(artifact_source(counter))

    async def run() -> Any:
        long = asyncio.create_task(server.send("POST", "/predict", json={"inputs": [FOR_A_MINUTE]}))
        while "t2t_queue_seconds_count" not in server.metrics.text().decode():
            await asyncio.sleep(0)
        short = await server.send("POST", "/predict", json={"inputs": [SHORT]})
        assert not long.done()
        await asyncio.to_thread(server.repository.close, 0.0)
        await long
        return short

    assert asyncio.run(run()).json()["outputs"][0]["counted_to"]["value"] == [3.0]


def test_a_process_ends_though_its_model_computes(counter: Path) -> None:
    for arguments, code in ((["--max_seconds=0.2"], 0), (["--drain_seconds=0.1"], 1)):
        server = Process(f"--artifact={counter}", *arguments)
        answers: list[Any] = []

        def ask(server: Process = server, answers: list[Any] = answers) -> None:
            try:
                answers.append(server.ask("POST", "/predict", {"inputs": [FOR_A_MINUTE]})[0])
            except (OSError, json.JSONDecodeError) as error:
                answers.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        if code:
            until(lambda server=server: "t2t_queue_seconds_count" in metrics(server))
        else:
            thread.join(60)
        server.end()
        assert server.code() == code, server.lines
        thread.join(60)
        assert answers == [503]


def metrics(server: Process) -> str:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
        return str(answer.read(), "utf-8")


class Endless:
    """A model that computes until it is told to stop; it notes how often it was."""

    def __init__(self, obeys: bool = True) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.stopped = threading.Event()
        self.obeys = obeys

    def __call__(self, samples: Sequence[Any], stop: CancellationToken) -> list[Any]:
        self.begun.release()
        while not self.may_end.wait(0.005):
            if stop.is_set:
                self.stopped.set()
                if self.obeys:
                    stop.check()
        return [sample["inputs"] for sample in samples]


def test_a_batch_is_stopped_when_nobody_waits_for_any_of_it() -> None:
    model = Endless()
    batcher = Batcher(model, ServerLimits(batch_delay_ms=0.0))

    async def run() -> None:
        alone = batcher.submit([{"inputs": "first"}])
        await asyncio.to_thread(model.begun.acquire, timeout=10)
        gone, stays = (batcher.submit([{"inputs": text}]) for text in ("a", "b"))
        alone.drop()
        assert await asyncio.to_thread(model.stopped.wait, 10)
        await asyncio.to_thread(model.begun.acquire, timeout=10)
        model.stopped.clear()
        gone.drop()
        assert not await asyncio.to_thread(model.stopped.wait, 0.05)
        model.may_end.set()
        assert await stays.answers == ["b"]

    asyncio.run(run())
    batcher.close()


def test_of_two_batches_at_once_that_is_stopped_for_which_nobody_waits() -> None:
    model = Endless()
    batcher = Batcher(model, ServerLimits(batch_delay_ms=0.0), threads=2)

    async def run() -> None:
        jobs = []
        for text in ("stays", "gone"):
            jobs.append(batcher.submit([{"inputs": text}]))
            assert await asyncio.to_thread(model.begun.acquire, timeout=10)
        jobs[1].drop()
        assert await asyncio.to_thread(model.stopped.wait, 10)
        assert not jobs[0].answers.done()
        model.may_end.set()
        assert await jobs[0].answers == ["stays"]

    asyncio.run(run())
    batcher.close()


@pytest.mark.parametrize("obeys", [True, False])
def test_a_batcher_that_has_to_end_stops_its_model_and_leaves_it_if_it_does_not(
    obeys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2t_torch.serve.repository.STOPPING", 10.0 if obeys else 0.05)
    model = Endless(obeys)
    batcher = Batcher(model, ServerLimits(batch_delay_ms=0.0))

    async def run() -> None:
        asked = batcher.submit([{"inputs": "first"}])
        await asyncio.to_thread(model.begun.acquire, timeout=10)
        waits = batcher.submit([{"inputs": "a"}])
        await asyncio.to_thread(batcher.close, 0.0)
        assert model.stopped.wait(10)
        model.may_end.set()
        if obeys:
            with pytest.raises(Stopped):
                await asked.answers
        else:
            assert await asked.answers == ["first"]
        assert not waits.answers.done()

    asyncio.run(run())


def test_all_models_are_stopped_before_any_is_waited_for(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed one after another, each would have its own two seconds to stop."""
    monkeypatch.setattr("t2t_torch.serve.repository.STOPPING", 3600.0)
    models = {str(number): Endless() for number in range(4)}
    all_stopped = threading.Barrier(len(models))
    ended = []

    def load(name: str, version: str, path: Path) -> ServedModel:
        def ask(samples: Sequence[Any], stop: CancellationToken) -> Sequence[Any]:
            try:
                return models[name](samples, stop)
            finally:
                all_stopped.wait(10)  # breaks if another model was not stopped
                ended.append(name)

        return StubModel(name, "1", "p", "m", "none", [InputSpec("inputs", "text")], [], ask)

    server = serve(*(ModelSource(name, Path(), load, is_run=True) for name in models))

    async def run() -> None:
        jobs = []
        for name, model in models.items():
            jobs.append(server.repository.get(name).batcher.submit([{"inputs": "a"}]))
            await asyncio.to_thread(model.begun.acquire, timeout=10)
        await asyncio.to_thread(server.repository.close, 0.0)
        found = await asyncio.gather(*(job.answers for job in jobs), return_exceptions=True)
        assert [type(one) for one in found] == [Stopped] * len(models)

    asyncio.run(run())
    assert sorted(ended) == list(models)


def test_who_is_asked_while_the_server_ends_is_told_to_come_again(
    counter: Path, serve: Callable[..., Served]
) -> None:
    server = serve(artifact_source(counter))

    async def run() -> Any:
        asked = asyncio.create_task(
            server.send("POST", "/predict", json={"inputs": [FOR_A_MINUTE]})
        )
        while "t2t_queue_seconds_count" not in server.metrics.text().decode():
            await asyncio.sleep(0)
        await asyncio.to_thread(server.repository.close, 0.0)
        return await asked

    answer = asyncio.run(run())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "the server ends" in answer.json()["error"]
