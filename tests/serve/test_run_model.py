"""Runs that are served, to try a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from served import Served

from t2t_torch import registry
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.checkpoint.snapshot import Snapshot
from t2t_torch.checkpoint.trainer_state import TrainerState
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, Tags, Text, Words
from t2t_torch.serve.model import Model
from t2t_torch.serve.repository import Source
from t2t_torch.serve.run_model import _field, _target, run_model
from t2t_torch.text.label import ClassLabelEncoder
from t2t_torch.text.token import TokenEncoder
from t2t_torch.train.run_directory import RunDirectory, TaskRecord


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


def source(run: Path, checkpoint: str | None = None, **hparams: Any) -> Source:
    decoding = DecodeHParams().replace(extra_length=3, **hparams)

    def load(name: str, version: str, path: Path) -> Model:
        return run_model(name, path, checkpoint=checkpoint, hparams=decoding, threads=1)

    return Source("dates", run, load, is_run=True)


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
    fields = [_field(name, feature) for name, feature in features.inputs.items()]
    assert [(one.kind, one.size) for one in fields] == [("words", 0), ("text", 0), ("numbers", 2)]
    targets = [_target(features, name, feature) for name, feature in features.targets.items()]
    assert [(one.kind, one.labels, one.of) for one in targets] == [
        ("class", ("a", "b"), ""),
        ("multilabel", ("a", "b"), ""),
        ("tags", ("a", "b"), "inputs"),
    ]
