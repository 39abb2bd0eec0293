"""Taggers read raw text: a run, its artifact and a server give the same words and offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, artifact_source

import t2t_torch as t2t
from t2t_torch.data.manifest import Manifest
from t2t_torch.declaration.problem import problem_of
from t2t_torch.decode.outputs import answer_record
from t2t_torch.runtime.prediction import words_record
from t2t_torch.runtime.session import Artifact
from t2t_torch.runtime.signature import FILE, Signature
from t2t_torch.text.tokenizer import tokenize, word_expression
from t2t_torch.train.problem_data import check_cutters

ROWS = [
    {
        "words": ["I", "saw", name, place, "in", "Oslo", "."],
        "tags": ["O", "O", *tags, "O", tag, "O"],
    }
    for name, place, tags in (("New", "York", ["B-city", "I-city"]), ("Mr", "Fox", ["O", "O"]))
    for tag in ("B-city",)
] * 12
TEXTS = [
    "I saw New  York.",
    "(New-York)\tin\nOslo!",
    "e\u0301te\u0301 👩\u200d👩\u200d👧 Oslo",
    "",
    "?!",
    " \t\n",
    "Oslo, " * 30,
]
WORDS = ["I", "saw", "Oslo."]
FILES = {"train": "train.jsonl", "eval": 0.2}


def declaration(**keys: Any) -> dict[str, Any]:
    return {
        "problem": "cities",
        "kind": "text2tags",
        "files": {"train": ROWS, "eval": 0.2},
        "fields": {"inputs": "words", "targets": "tags"},
        "features": {"characters": 6, "shape": True},
        **keys,
    }


def trained(folder: Path, **keys: Any) -> Path:
    hparams = {"learning_rate_warmup_steps": 0, "max_length": 64, "singleton_dropout": 0.0}
    content, data = declaration(**keys), folder / "data"
    model = "bilstm_tagger", "bilstm_tagger_tiny"
    run = folder / "run"
    t2t.train(content, *model, data_dir=data, output_dir=run, train_steps=120, hparams=hparams)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield trained(tmp_path_factory.mktemp("cities"), settings={"tokenizer": "words"})


@pytest.fixture(scope="module")
def artifact(run: Path) -> Path:
    t2t.export(run, run.parent / "artifact")
    return run.parent / "artifact"


def records(predictor: Any, texts: list[Any]) -> list[dict[str, Any]]:
    """The records of t2t-decoder."""
    found = []
    for one in texts:
        (answer,) = predictor.predict([one])
        found.append(
            answer_record(predictor.features, predictor.columns.sample_of(one), answer)["targets"]
        )
    return found


@pytest.mark.slow
def test_run_artifact_and_server_answer_alike(
    run: Path, artifact: Path, serve: Callable[..., Served]
) -> None:
    inputs = [*TEXTS, {"inputs": WORDS}]
    expected = records(t2t.load(run), inputs)
    alone = Artifact(artifact)
    together = alone.predict(inputs)
    assert [one.value for one in together] == [one["value"] for one in expected]
    assert [alone.predict([one])[0].value for one in inputs] == [one["value"] for one in expected]
    server = serve(artifact_source(artifact))
    answers = server.post("/predict", {"inputs": inputs}).json()["outputs"]
    for answer, record in zip(answers, expected, strict=True):
        answer["targets"]["probabilities"] = record["probabilities"] = []
        assert answer["targets"] == record


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_are_slices_of_the_text(text: str) -> None:
    tokenizer = word_expression("words")
    count = len(tokenize(text, tokenizer))
    tags = ["O", "B-city", "I-city", *["O"] * count][:count]
    record = words_record(tags, text, ["O", "B-city", "I-city"], tokenizer)
    assert [text[start:end] for start, end in record["offsets"]] == record["words"]
    assert all(text[one["start"] : one["end"]] == one["text"] for one in record["spans"])
    assert len(record["offsets"]) == count and len(record["spans"]) == (count > 1)


def test_a_span_has_the_spaces_of_the_text() -> None:
    tags = ["O", "O", "B-city", "I-city", "O"]
    record = words_record(tags, TEXTS[0], ["O", "B-city", "I-city"], word_expression("words"))
    assert record["words"] == ["I", "saw", "New", "York", "."]
    assert record["offsets"] == [[0, 1], [2, 5], [6, 9], [11, 15], [15, 16]]
    span = {"kind": "city", "first": 2, "last": 3, "text": "New  York", "start": 6, "end": 15}
    assert record["spans"] == [span]


@pytest.mark.slow
def test_lists_of_words_have_no_offsets(run: Path) -> None:
    (record,) = records(t2t.load(run), [{"inputs": WORDS}])
    assert record["words"] == WORDS
    assert "offsets" not in record and all("start" not in span for span in record["spans"])


@pytest.mark.slow
def test_a_graph_of_another_tokenizer_is_refused(artifact: Path, tmp_path: Path) -> None:
    """Words of a graph and of Python must be the same."""
    other = Artifact(artifact)
    (field,) = other.signature.fields
    object.__setattr__(field, "tokenizer", r"\S+")
    with pytest.raises(t2t.DataError, match="has other words in the graph"):
        other.predict(["Oslo."])


@pytest.mark.slow
def test_the_signature_has_the_tokenizer(artifact: Path) -> None:
    (field,) = Signature.read(artifact).fields
    assert field.kind == "words" and field.tokenizer
    assert json.loads((artifact / FILE).read_text())["format_version"] == 4


@pytest.mark.slow
def test_an_expression_that_a_graph_cannot_hold_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path, problem="cities_ahead", settings={"tokenizer": r"\w+(?=,)|\w+"})
    assert t2t.load(run).predict(["a, b"])
    with pytest.raises(t2t.T2TError, match=r"cannot stand in a graph: no lookaround"):
        t2t.export(run, tmp_path / "artifact")


@pytest.mark.slow
def test_without_a_tokenizer_texts_are_split_at_spaces(tmp_path: Path) -> None:
    run = trained(tmp_path, problem="cities_spaces")
    (record,) = records(t2t.load(run), ["I saw New York."])
    assert record["words"] == ["I", "saw", "New", "York."]
    assert "offsets" not in record
    t2t.export(run, tmp_path / "artifact")
    written = json.loads((tmp_path / "artifact" / FILE).read_text())
    assert "tokenizer" not in written["fields"][0]
    assert "tokenizer" not in Manifest.load(tmp_path / "data", "cities_spaces").settings


@pytest.mark.slow
def test_data_of_another_tokenizer_is_refused(run: Path) -> None:
    manifest = Manifest.load(run.parent / "data", "cities")
    assert manifest.settings["tokenizer"] == "words"
    other = problem_of(declaration(settings={"tokenizer": "clitics"}, files=FILES), run / "x.json")
    with pytest.raises(t2t.DataError, match="tokenizer: there 'words', requested 'clitics'"):
        check_cutters(other, manifest, run.parent / "data")
