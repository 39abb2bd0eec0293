"""Runs that are served, to try a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from served import Served

from t2t_torch import registry
from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, Tags, Text, Words
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.runtime.session import CancellationToken, Stopped
from t2t_torch.serve.model import ServedModel
from t2t_torch.serve.repository import ModelSource
from t2t_torch.serve.run_model import run_model
from t2t_torch.text.encoder import ClassLabelEncoder, TokenEncoder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of dates_to_iso that has learnt nothing, of steps 3 and 7."""
    path = tmp_path / "run"
    directory = RunDirectory(path)
    hparams = registry.hparams("transformer_test")
    task = TaskRecord(problem="dates_to_iso", model="transformer", hparams_set="")
    directory.begin(task, hparams)
    for step in (3, 7):
        features = registry.problem("dates_to_iso").features(path)
        model = registry.model("transformer")(hparams, features)
        adam = torch.optim.Adam(model.parameters())
        CheckpointDirectory(path).save(Snapshot.take(model, adam, TrainerState(step=step)))
    directory.unlock()
    return path


def source(run: Path, checkpoint: str | None = None, **hparams: Any) -> ModelSource:
    decoding = DecodeHParams().replace(extra_length=3, **hparams)

    def load(name: str, version: str, path: Path) -> ServedModel:
        return run_model(name, path, checkpoint=checkpoint, hparams=decoding, threads=1)

    return ModelSource("dates", run, load, is_run=True)


def test_a_run_that_writes_texts_answers(run: Path, serve: Callable[..., Served]) -> None:
    server = serve(source(run, beam_size=2, return_beams=True))
    told = server.post("/predict", {"inputs": ["May 3rd", {"inputs": "4 June"}]}).json()
    assert (told["model"], told["version"]) == ("dates", "7")
    for record in told["outputs"]:
        assert len(record["targets"]["hypotheses"]) == 2
        assert record["targets"]["value"] == record["targets"]["hypotheses"][0]["value"]
    about = server.get("/v2/models/dates").json()
    assert about["platform"] == "pytorch"
    assert about["inputs"] == [{"name": "inputs", "datatype": "BYTES", "shape": [-1]}]


def test_a_checkpoint_can_be_chosen(run: Path, serve: Callable[..., Served]) -> None:
    server = serve(source(run, "3"))
    assert server.post("/predict", {"inputs": [""]}).json()["version"] == "3"


@pytest.mark.parametrize("settings", ["delimiter=;", "log_results=true", "shards=2"])
def test_what_answers_of_a_server_do_not_read_is_refused(run: Path, settings: str) -> None:
    hparams = parse_decode_hparams(settings)
    with pytest.raises(HParamsError, match="t2t-server does not read " + settings.split("=")[0]):
        run_model("dates", run, checkpoint=None, hparams=hparams, threads=1)


def test_attention_is_told_of_whoever_asks_for_it_whatever_else_is_in_the_batch(
    run: Path, serve: Callable[..., Served]
) -> None:
    server = serve(source(run, beam_size=2, return_beams=True))
    texts = ["May 3rd, 2020", "the fourth of June 1999"]
    told = server.post("/predict", {"inputs": texts, "attention": True}).json()["outputs"]
    plain = server.post("/predict", {"inputs": texts}).json()["outputs"]
    for text, record, without in zip(texts, told, plain, strict=True):
        attention = record["targets"].pop("attention")
        pairs = record["targets"].pop("alignment")
        assert record == without
        assert attention["read"] == text.split()
        assert attention["written"] == record["targets"]["value"].split()
        weights = attention["weights"]
        assert [len(row) for row in weights] == [len(attention["read"])] * len(weights)
        assert all(0 < sum(row) <= 1.0001 for row in weights)
        assert pairs == [[row.index(max(row)), place] for place, row in enumerate(weights)]
        alone = server.post("/predict", {"inputs": [text], "attention": True}).json()
        (record,) = alone["outputs"]
        for row, expected in zip(record["targets"]["attention"]["weights"], weights, strict=True):
            assert row == pytest.approx(expected, abs=1e-5)


def test_too_much_attention_is_refused_and_the_answer_without_is_not(
    run: Path, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2t_torch.serve.run_model.MAX_ATTENTION_WEIGHTS", 5)
    server = serve(source(run))
    answer = server.post("/predict", {"inputs": ["May 3rd, 2020"], "attention": True})
    assert answer.status_code == 422
    assert "Leave out `attention`" in answer.json()["error"]
    assert server.post("/predict", {"inputs": ["May 3rd, 2020"]}).status_code == 200


def test_a_run_stops_between_steps_when_nobody_waits(run: Path) -> None:
    model, stop = source(run).load("dates", "", run), CancellationToken()
    samples = [{"inputs": "May 3rd"}]
    assert model.predict(samples, stop)
    steps: list[int] = []

    class Told(CancellationToken):
        def check(self) -> None:
            steps.append(1)
            if len(steps) == 3:  # the batch, and two of its steps
                self.set()
            super().check()

    with pytest.raises(Stopped):
        model.predict(samples, Told())
    assert len(steps) == 3
    assert model.predict(samples, CancellationToken())  # what was stopped leaves nothing behind


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", [5, None, {}, [1, 2], [["a"]], ["a", {}], True])
def test_what_is_no_text_is_refused(run: Path, serve: Callable[..., Served], text: Any) -> None:
    server = serve(source(run))
    answer = server.post("/predict", {"inputs": ["May 3rd", {"inputs": text}]})
    assert answer.status_code == 422, answer.text
    assert "input 1" in answer.json()["error"]
    assert server.post("/predict", {"inputs": [["May", "3rd"]]}).status_code == 200


def test_labels_are_told_as_an_artifact_tells_them() -> None:
    labels = ClassLabelEncoder(["a", "b"])
    words = Words(TokenEncoder(["x", "y"]))
    features = Features(
        inputs={"inputs": words, "note": Text(words.encoder), "dense": Real(size=2)},
        targets={
            "kind": ClassLabel(labels),
            "all": MultiLabel(labels),
            "tags": Tags(labels, of="inputs"),
        },
    )
    fields = [one.input_spec(name, features) for name, one in features.inputs.items()]
    assert [(one.kind, one.size) for one in fields] == [("words", 0), ("text", 0), ("numbers", 2)]
    targets = [one.output_spec(name, features) for name, one in features.targets.items()]
    assert [(one.kind, one.labels, one.of) for one in targets] == [
        ("class", ("a", "b"), ""),
        ("multilabel", ("a", "b"), ""),
        ("tags", ("a", "b"), "inputs"),
    ]
