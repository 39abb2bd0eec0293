"""An artifact that writes texts is served as one that gives labels is."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import Served, artifact_source

from t2t_torch.errors import ArtifactError, DecodeError
from t2t_torch.runtime.session import Artifact, CancellationToken
from t2t_torch.runtime.signature import EXAMPLES, FILE, FileChecksum, Signature
from t2t_torch.serve.artifact_model import artifact_model


def changed(phrases: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the artifact, whose first example tells something else."""
    shutil.copytree(phrases, folder)
    examples = [json.loads(line) for line in (folder / EXAMPLES).read_text("utf-8").splitlines()]
    change(examples[0]["answer"]["hypotheses"][0])
    (folder / EXAMPLES).write_text("".join(f"{json.dumps(one)}\n" for one in examples), "utf-8")
    told = json.loads((folder / FILE).read_text("utf-8"))
    about = FileChecksum.of(folder / EXAMPLES)
    told["files"][EXAMPLES] = {"bytes": about.bytes, "sha256": about.sha256}
    del told["sha256"]
    told["format_version"] = 2  # written before there were checksums
    (folder / FILE).write_text(json.dumps(told), "utf-8")
    Signature.read(folder).check_files(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "nonsense"}, "'targets' is .*, and was 'nonsense'"),
        ({"text": "nonsense", "score": 5.0}, "'targets' is .*, and was 'nonsense'"),
        ({"score": 5.0}, "'targets_scores' is .*, and was 5.0"),
    ],
)
def test_one_that_writes_other_texts_than_it_did_is_not_served(
    phrases: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = changed(phrases, tmp_path / "changed", lambda best: best.update(change))
    with pytest.raises(ArtifactError, match=f"its example 0 .*{message}"):
        artifact_model("phrases", "", folder, 1)


def test_another_text_of_an_equal_score_is_a_tie(phrases: Path, tmp_path: Path) -> None:
    def tie(best: dict[str, Any]) -> None:
        best.update(text="another", ids=[*best["ids"], 2], score=best["score"] * (1 + 1e-6))

    artifact_model("phrases", "", changed(phrases, tmp_path / "changed", tie), 1)


def test_texts_are_told_in_both_protocols(phrases: Path, serve: Callable[..., Served]) -> None:
    server = serve(artifact_source(phrases, "phrases"))
    texts = ["one two three", "seven", "one"]
    expected = Artifact(phrases).predict(texts)
    outputs = server.post("/predict", {"inputs": texts}).json()["outputs"]
    for told, one in zip(outputs, expected, strict=True):
        assert told["targets"]["value"] == one.text
    hypotheses = outputs[0]["targets"]["hypotheses"]
    assert [h["value"] for h in hypotheses] == [h.text for h in expected[0].hypotheses]
    tensor = {"name": "inputs", "shape": [3], "datatype": "BYTES", "data": texts}
    answer = server.post("/v2/models/phrases/infer", {"inputs": [tensor]}).json()
    found = {one["name"]: one for one in answer["outputs"]}
    assert found["targets"]["shape"] == [3, 3]
    assert found["targets"]["data"][::3] == [one.text for one in expected]
    ids = found["targets_ids"]
    assert ids["shape"][:2] == [3, 3]
    first = expected[0].hypotheses[0].ids
    assert ids["data"][: len(first)] == list(first)


def test_an_artifact_tells_attention_to_whoever_asks(
    phrases: Path, serve: Callable[..., Served]
) -> None:
    server = serve(artifact_source(phrases))
    (told,) = server.get("/models").json()["models"]
    assert told["attention"] is True
    texts = ["one two three", "seven", ""]
    answer = server.post("/predict", {"inputs": texts, "attention": True}).json()
    plain = server.post("/predict", {"inputs": texts, "attention": False}).json()
    expected = Artifact(phrases).attend(texts)
    for record, without, one in zip(answer["outputs"], plain["outputs"], expected, strict=True):
        attention = record["targets"].pop("attention")
        pairs = record["targets"].pop("alignment")
        assert record == without
        assert pairs == [list(pair) for pair in one.hypotheses[0].alignment]
        assert attention["read"] == list(one.attention.read)
        assert attention["written"] == list(one.attention.written)
        for row, right in zip(attention["weights"], one.attention.weights, strict=True):
            assert row == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("artifact_model", "input 0 has [0-9]+ attention weights .* at most 2 are returned"),
        ("application", "the predictions have [0-9]+ attention weights .* at most 2 are returned"),
    ],
)
def test_too_much_attention_is_refused(
    phrases: Path,
    serve: Callable[..., Served],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    message: str,
) -> None:
    monkeypatch.setattr(f"t2t_torch.serve.{place}.MAX_ATTENTION_WEIGHTS", 2)
    server = serve(artifact_source(phrases))
    answer = server.post("/predict", {"inputs": ["one two three", "two"], "attention": True})
    assert answer.status_code == 422
    assert re.search(message, answer.json()["error"])
    assert server.post("/predict", {"inputs": ["one two three"]}).status_code == 200


def test_attention_that_is_too_much_is_never_made_a_list(
    phrases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(*parts: Any) -> Any:
        raise AssertionError("weights were listed")

    monkeypatch.setattr("t2t_torch.runtime.feeds.Attention", listed)
    artifact, stop = Artifact(phrases, threads=1), CancellationToken()
    with pytest.raises(DecodeError, match=r"input 1 has \d+ attention weights .* at most 0"):
        artifact.attend(["", "one two three"], stop=stop, most=0)
    assert artifact.predict(["one two three"])[0].hypotheses[0].alignment


def test_requests_with_and_without_attention_are_each_searched_for_once(
    phrases: Path, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[tuple[int, bool]] = []
    may_end, answers_of = threading.Event(), Artifact._answers

    def noted(self: Artifact, numbers: Any, rows: Any, outputs: Any, wanted: Any) -> Any:
        searched.append((len(rows), wanted.alignments))
        may_end.wait(60)
        return answers_of(self, numbers, rows, outputs, wanted)

    server = serve(artifact_source(phrases), max_batches=1)
    queue = server.repository.get("made").batcher
    monkeypatch.setattr(Artifact, "_answers", noted)
    bodies = [{"inputs": ["one two"], "attention": which} for which in (True, False) * 2]

    async def ask() -> list[Any]:
        first = asyncio.create_task(server.send("POST", "/predict", json={"inputs": ["seven"]}))
        while not searched:
            await asyncio.sleep(0)
        sent = [server.send("POST", "/predict", json=body) for body in bodies]
        answers = asyncio.gather(first, *sent)
        while len(queue) < len(bodies):
            await asyncio.sleep(0)
        may_end.set()
        return await answers

    _, *told = asyncio.run(ask())
    records = [answer.json()["outputs"][0]["targets"] for answer in told]
    assert ["attention" in record for record in records] == [True, False, True, False]
    assert searched[1:] == [(2, False), (2, True)]


def test_an_artifact_without_attention_says_how_to_export_it(
    phrases: Path, tmp_path: Path, serve: Callable[..., Served]
) -> None:
    folder = tmp_path / "plain"
    shutil.copytree(phrases, folder)
    told = json.loads((folder / FILE).read_text("utf-8"))
    del told["search"]["write_alignments"], told["sha256"]
    told["format_version"] = 2  # written before there were checksums
    (folder / FILE).write_text(json.dumps(told), "utf-8")
    with pytest.raises(ArtifactError, match="--decode_hparams=write_alignments=true"):
        Artifact(folder).attend(["one two"])
    server = serve(artifact_source(folder))
    (model,) = server.get("/models").json()["models"]
    assert model["attention"] is False
    answer = server.post("/predict", {"inputs": ["one two"], "attention": True})
    assert answer.status_code == 400
    assert "--decode_hparams=write_alignments=true" in answer.json()["error"]
    assert "t2t-server --output_dir=RUN" in answer.json()["error"]
    assert server.post("/predict", {"inputs": ["one two"], "attention": False}).status_code == 200
