"""From a run to an artifact that answers as it does, or nothing at all."""

from __future__ import annotations

import dataclasses
import errno
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import t2t_torch
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import load_run
from t2t_torch.errors import CheckpointError, DataError, ExportError, UsageError
from t2t_torch.export import exporter, quantization, targets
from t2t_torch.export.exporter import Exported, OnnxExporter
from t2t_torch.export.folder import check, joined, load_members
from t2t_torch.export.graph import Graph
from t2t_torch.export.settings import ExportSettings
from t2t_torch.export.targets import example_of
from t2t_torch.export.verification import VerificationRow
from t2t_torch.features.text import words_of
from t2t_torch.runtime.session import Artifact
from t2t_torch.runtime.signature import MODEL, Signature

_NETWORKS: dict[int, onnx.ModelProto] = {}


@pytest.fixture(autouse=True)
def each_network_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the network of a checkpoint once: it takes seconds."""
    make = targets.export_network

    def export_network(model: Any, example: Any) -> onnx.ModelProto:
        weights = float(sum(p.detach().double().sum() for p in model.parameters()))
        key = hash(weights)
        if key not in _NETWORKS:
            _NETWORKS[key] = make(model, example)
        return _NETWORKS[key]

    monkeypatch.setattr(targets, "export_network", export_network)


@pytest.fixture
def settings_of(run: Path, data: Path, tmp_path: Path) -> Callable[..., ExportSettings]:
    """Makes settings for an artifact of the run."""

    def make(**changes: Any) -> ExportSettings:
        given = {
            "output_dir": run,
            "export_dir": tmp_path / "artifact",
            "data_dir": data,
            **changes,
        }
        paths = {name: str(value) for name, value in given.items() if isinstance(value, Path)}
        return ExportSettings(**{**given, **paths})

    return make


_DONE: list[tuple[Exported, Path]] = []


@pytest.fixture
def done(
    settings_of: Callable[..., ExportSettings],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Exported:
    """The run, exported once; each test has a copy."""
    if not _DONE:
        first = OnnxExporter.export(settings_of())
        kept = tmp_path_factory.mktemp("kept") / "artifact"
        shutil.move(first.folder, kept)
        _DONE.append((first, kept))
    exported, kept = _DONE[0]
    folder = tmp_path / "artifact"
    shutil.copytree(kept, folder)
    return dataclasses.replace(exported, folder=folder)


@pytest.fixture
def earlier(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run without its last step: the mean of its last one is the network of `done` again."""
    folder = tmp_path_factory.mktemp("earlier") / "run"
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("ckpt-3"))
    return folder


def test_an_artifact_answers_as_its_run_does(done: Exported, run: Path) -> None:
    model, artifact = t2t_torch.load(run, device="cpu"), t2t_torch.load(done.folder)
    inputs = [["go", "to", "Rome"], "", "stay", "😀 go to Place3", "go " * 90, ["Town4"]]
    asked = [{"inputs": given} for given in inputs]
    expected, found = model.predict(asked), artifact.predict(asked)  # type: ignore[arg-type]
    assert artifact.fields == model.fields
    for one, other, given in zip(expected, found, inputs, strict=True):
        assert one.values == other.values
        assert len(other.values["slots"]) == len(words_of(given))
        assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)
        assert other.scores["slots"] == pytest.approx(one.scores["slots"], abs=1e-5)
        assert other.scores["intent"] == pytest.approx(one.scores["intent"], abs=1e-5)


def test_an_artifact_says_what_it_is_and_holds_what_explains_it(done: Exported, run: Path) -> None:
    signature = Signature.read(done.folder)
    assert signature == done.signature
    assert (signature.problem, signature.model, signature.step) == (
        "small_requests", "joint_bilstm", 2,
    )  # fmt: skip
    assert [(f.name, f.kind, f.tagged) for f in signature.fields] == [("inputs", "words", True)]
    assert [(t.name, t.kind, t.of) for t in signature.targets] == [
        ("intent", "class", ""), ("slots", "tags", "inputs"),
    ]  # fmt: skip
    assert signature.targets[0].labels == ("go", "stay")
    assert signature.made_with["torch"] == importlib.metadata.version("torch")
    assert {path.name for path in done.folder.iterdir()} == {*signature.files, "signature.json"}
    for name in ("hparams.json", "vocab.small_requests.inputs.symbols"):
        assert (done.folder / name).read_bytes() == (run / name).read_bytes()


def test_the_examples_are_rows_with_the_answers_that_the_artifact_gives(done: Exported) -> None:
    lines = (done.folder / "examples.jsonl").read_text("utf-8").splitlines()
    told = [json.loads(line) for line in lines]
    answers = Artifact(done.folder).predict([one["input"] for one in told])
    assert len(told) == 20
    assert {"inputs": ["stay", "here"]} in [one["input"] for one in told]
    assert {"inputs": ""} in [one["input"] for one in told]
    assert [one["answer"]["values"] for one in told] == [answer.values for answer in answers]


def test_the_rows_are_those_of_the_dev_split_and_odd_ones(done: Exported) -> None:
    rows = done.verified.rows
    numbers = [row.number for row in rows if row.number >= 0]
    assert numbers == list(range(60))  # all there are: fewer than 200
    odd = {row.name: row.sample["inputs"] for row in rows if row.number < 0}
    assert odd["an empty text"] == "" and odd["an emoji"] == "😀"
    assert len(odd["300 words"].split()) == 300
    assert 0 < done.verified.difference < 1e-4 or done.verified.difference == 0


@pytest.mark.parametrize(
    ("checkpoint", "step", "told"),
    [
        ("latest", 3, "step 3"),
        ("best", 2, "step 2"),
        ("1", 1, "step 1"),
        ("average:2", 3, "mean of steps 2, 3"),
    ],
)
def test_a_checkpoint_is_chosen(
    settings_of: Callable[..., ExportSettings], run: Path, tmp_path: Path, checkpoint, step, told
) -> None:
    loaded, chosen = joined(load_members(settings_of(checkpoint=checkpoint), tmp_path))
    assert (loaded.info.step, chosen) == (step, told)
    steps = [int(one) for one in told.split("steps")[-1].replace("step", "").split(",")]
    weights = [dict(load_run(run, one).model.named_parameters()) for one in steps]
    for name, found in loaded.model.named_parameters():
        mean = torch.stack([one[name].double() for one in weights]).mean(0)
        torch.testing.assert_close(found.double(), mean, atol=1e-6, rtol=0)


def test_a_checkpoint_that_is_not_there_is_refused(
    settings_of: Callable[..., ExportSettings], tmp_path: Path
) -> None:
    for checkpoint, message in (
        ("7", "no checkpoint of step 7"),
        ("average:4", r"too few whole checkpoints for an average of 4: \[1, 2, 3\]"),
        ("newest", "is not a checkpoint. Expected a step"),
    ):
        with pytest.raises(CheckpointError, match=message):
            OnnxExporter.export(settings_of(checkpoint=checkpoint))
    with pytest.raises(UsageError, match="as in average:8"):
        OnnxExporter.export(settings_of(checkpoint="average:0"))
    assert not list(tmp_path.iterdir())


def test_a_graph_that_answers_otherwise_is_not_written_and_the_row_is_told(
    settings_of: Callable[..., ExportSettings], tmp_path: Path, monkeypatch
) -> None:
    right = targets.add_answers

    def wrong(graph: Graph, features: Any, found: Any, windows: Any) -> None:
        constant = graph.constant
        intents = ["go", "stay"]

        def exchanged(value: Any) -> str:
            return constant(intents[::-1] if value == intents else value)

        monkeypatch.setattr(graph, "constant", exchanged)
        right(graph, features, found, windows)

    monkeypatch.setattr(targets, "add_answers", wrong)
    with pytest.raises(ExportError) as error:
        OnnxExporter.export(settings_of())
    told = str(error.value)
    assert "run alone: row 0 of the dev split" in told
    assert "'intent': 'go'" in told and "'intent': 'stay'" in told and "Nothing was written" in told
    assert not list(tmp_path.iterdir())


def test_scores_that_differ_are_told_too(
    settings_of: Callable[..., ExportSettings], monkeypatch
) -> None:
    monkeypatch.setattr("t2t_torch.export.verification.TOLERANCE", -1.0)
    with pytest.raises(ExportError, match="run alone: row 0"):
        OnnxExporter.export(settings_of())


@pytest.mark.parametrize(
    ("texts", "width"),
    [
        ([["stay"]], 3),
        ([[], ["stay"], []], 3),
        ([["go", "on"], ["go", "on"]], 3),
        ([[], []], 3),
        ([["go", "to", "Rome", "now"]] * 3, 4),
    ],
)
def test_the_network_is_traced_with_three_words_or_more(
    run: Path, texts: list[list[str]], width: int
) -> None:
    loaded = load_run(run)
    predictor = LabelPredictor(loaded.model, loaded.problem, loaded.features)
    rows = [VerificationRow(f"row {i}", {"inputs": words}, i) for i, words in enumerate(texts)]
    example = example_of(predictor, rows)
    assert {ids.shape[:2] for ids in example.values()} == {(2, width)}


def test_an_artifact_with_other_files_in_it_is_not_replaced(
    settings_of: Callable[..., ExportSettings], done: Exported
) -> None:
    settings = settings_of(overwrite=True)
    check(settings)
    thesis = done.folder / "thesis.txt"
    thesis.write_text("years of work")
    with pytest.raises(UsageError, match=r"files that are not of it: thesis\.txt\. Nothing in it"):
        OnnxExporter.export(settings)
    assert thesis.read_text() == "years of work"
    thesis.unlink()
    (done.folder / "signature.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be replaced, as it is not known which files"):
        check(settings)


def test_an_artifact_of_another_problem_is_not_replaced_unless_that_is_allowed(
    settings_of: Callable[..., ExportSettings], done: Exported
) -> None:
    file = done.folder / "signature.json"
    signature = Signature.read(done.folder)
    file.write_text(dataclasses.replace(signature, problem="another").to_json())
    with pytest.raises(UsageError, match=r"is an artifact of another, .*--allow_other_problem"):
        OnnxExporter.export(settings_of(overwrite=True))
    OnnxExporter.export(settings_of(overwrite=True, allow_other_problem=True))
    assert Artifact(done.folder).signature.problem == signature.problem


def test_what_is_there_is_not_overwritten_unless_it_is_an_artifact(
    settings_of: Callable[..., ExportSettings], done: Exported, earlier: Path, tmp_path: Path
) -> None:
    mean = settings_of(output_dir=earlier, checkpoint="average:1")
    before = (done.folder / "signature.json").read_bytes()
    with pytest.raises(UsageError, match=r"is an artifact already\. Replace it with --overwrite"):
        OnnxExporter.export(mean)
    assert (done.folder / "signature.json").read_bytes() == before
    OnnxExporter.export(mean.replace(overwrite=True))
    assert Artifact(done.folder).signature.checkpoint == "mean of steps 2"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="nothing in it is touched"):
        OnnxExporter.export(settings_of(export_dir=mine, overwrite=True))
    with pytest.raises(UsageError, match="no folder"):
        OnnxExporter.export(settings_of(export_dir=mine / "thesis.txt", overwrite=True))
    with pytest.raises(UsageError, match=r"thesis\.txt is no folder"):
        OnnxExporter.export(settings_of(export_dir=mine / "thesis.txt" / "b"))
    assert {path.name for path in tmp_path.iterdir()} == {"artifact", "mine"}
    assert (mine / "thesis.txt").read_text() == "years of work"


def test_folders_that_are_not_there_are_made(
    settings_of: Callable[..., ExportSettings], tmp_path: Path
) -> None:
    OnnxExporter.export(settings_of(export_dir=tmp_path / "own" / "artifacts" / "first"))
    assert (tmp_path / "own" / "artifacts" / "first" / "signature.json").exists()
    assert [path.name for path in (tmp_path / "own" / "artifacts").iterdir()] == ["first"]


def test_an_empty_folder_is_filled(
    settings_of: Callable[..., ExportSettings], tmp_path: Path
) -> None:
    (tmp_path / "artifact").mkdir()
    assert OnnxExporter.export(settings_of()).signature.step == 2


def test_a_full_disk_leaves_what_was_there(
    settings_of: Callable[..., ExportSettings],
    done: Exported,
    earlier: Path,
    tmp_path: Path,
    monkeypatch,
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(exporter, "write_examples", full)
    with pytest.raises(ExportError, match="No space left"):
        mean = settings_of(output_dir=earlier, checkpoint="average:1", overwrite=True)
        OnnxExporter.export(mean)
    assert Artifact(done.folder).signature.checkpoint == "step 2"
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_what_a_killed_export_left_is_removed_by_the_next(
    settings_of: Callable[..., ExportSettings], done: Exported, tmp_path: Path
) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead = tmp_path / f".artifact.{child.pid}.incomplete"
    (dead / "whole").mkdir(parents=True)
    # Killed between two renames: the artifact that was to be replaced is only here.
    done.folder.rename(dead / "replaced")
    alive = tmp_path / f".artifact.{os.getppid()}.incomplete"
    alive.mkdir()
    with pytest.raises(UsageError, match="--overwrite"):
        OnnxExporter.export(settings_of())
    assert Artifact(done.folder).signature.step == 2
    OnnxExporter.export(settings_of(overwrite=True))
    assert {path.name for path in tmp_path.iterdir()} == {"artifact", alive.name}


def test_what_cannot_be_exported_says_why(
    settings_of: Callable[..., ExportSettings], tmp_path: Path, data: Path
) -> None:
    with pytest.raises(CheckpointError, match="is not a run directory"):
        OnnxExporter.export(settings_of(output_dir=tmp_path))
    with pytest.raises(DataError, match="small_requests"):
        OnnxExporter.export(settings_of(data_dir=tmp_path))
    with pytest.raises(UsageError, match="is a run of small_requests, not of 'other'"):
        OnnxExporter.export(settings_of(problem="other"))
    with pytest.raises(UsageError, match="has int8"):
        OnnxExporter.export(settings_of(quantize="int4"))
    with pytest.raises(UsageError, match="expected 200 or more"):
        OnnxExporter.export(settings_of(verify_rows=10))
    assert not list(tmp_path.iterdir())


def test_a_field_that_no_graph_is_given_is_refused_before_anything_is_read(
    settings_of: Callable[..., ExportSettings], run: Path, tmp_path: Path, monkeypatch
) -> None:
    problem = type(load_run(run).problem)
    monkeypatch.setattr(problem, "inputs_of", lambda self, sample: [sample])
    with pytest.raises(ExportError, match="makes inputs of a sample in Python"):
        OnnxExporter.export(settings_of(data_dir=tmp_path))  # where there is no data


def test_int8_answers_about_as_well_or_is_not_written(
    settings_of: Callable[..., ExportSettings], tmp_path: Path, monkeypatch
) -> None:
    times = iter([2.0, 1.0] * quantization._ROUNDS)
    monkeypatch.setattr(quantization, "_seconds", lambda *_: next(times))
    monkeypatch.setattr(quantization, "POINTS", 1.0)  # nothing was learnt: any row may change
    done = OnnxExporter.export(settings_of(quantize="int8"))
    graph = onnx.load(done.folder / "model.onnx").graph
    kinds = {node.op_type for node in graph.node}
    assert kinds & {"DynamicQuantizeLSTM", "MatMulInteger", "MatMulIntegerToFloat"}
    assert done.signature.quantized == "int8"
    assert "metrics-small_requests/slots/span_f1" in done.verified.metrics
    assert done.verified.times == (2.0, 1.0)
    assert len(Artifact(done.folder)([{"inputs": "go to Rome"}])[0]["slots"]) == 3

    times = iter([1.0, 2.0] * quantization._ROUNDS)
    with pytest.raises(ExportError, match=r"is not faster: .* Nothing was written"):
        OnnxExporter.export(settings_of(quantize="int8", export_dir=tmp_path / "slow"))
    worse = iter([{"m/targets/accuracy": 0.9}, {"m/targets/accuracy": 0.8}])
    monkeypatch.setattr(targets, "metrics_of", lambda *_: next(worse))
    monkeypatch.setattr(quantization, "POINTS", 0.005)
    with pytest.raises(ExportError, match=r"accuracy: 0\.9000 -> 0\.8000"):
        OnnxExporter.export(settings_of(quantize="int8", export_dir=tmp_path / "bad"))
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_metrics_may_lose_half_a_point_and_errors_their_share() -> None:
    check = quantization.check_quality
    check({"p/t/accuracy": 0.9, "p/t/rmse": 2.0}, {"p/t/accuracy": 0.896, "p/t/rmse": 2.009})
    check({"p/t/accuracy": 0.9, "p/t/rmse": 2.0}, {"p/t/accuracy": 1.0, "p/t/rmse": 0.1})
    with pytest.raises(ExportError, match="accuracy") as error:
        check({"p/t/accuracy": 0.9, "p/t/rmse": 2.0}, {"p/t/accuracy": 0.89, "p/t/rmse": 2.02})
    assert "rmse: 2.0000 -> 2.0200" in str(error.value)


def test_two_exports_of_a_run_are_equal_but_for_the_date(
    settings_of: Callable[..., ExportSettings], done: Exported, tmp_path: Path
) -> None:
    def called_from_elsewhere() -> Exported:  # torch's stack traces differ by caller
        return OnnxExporter.export(settings_of(export_dir=tmp_path / "again"))

    again = called_from_elsewhere().folder
    assert {path.name for path in again.iterdir()} == {path.name for path in done.folder.iterdir()}
    for path in sorted(again.iterdir()):
        one, other = path.read_bytes(), (done.folder / path.name).read_bytes()
        if path.name == "signature.json":
            one, other = (
                dataclasses.replace(Signature.read(folder), created="").to_json().encode()
                for folder in (again, done.folder)
            )
        assert one == other, path.name
    assert str(Path(__file__).parents[2]).encode() not in (again / MODEL).read_bytes()


def test_an_artifact_can_be_moved(done: Exported, tmp_path: Path) -> None:
    moved = shutil.move(done.folder, tmp_path / "elsewhere")
    assert Artifact(moved)([{"inputs": "stay"}])[0]["slots"]


def test_the_page_on_export_asks_an_artifact_as_it_is(
    done: Exported, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(done.folder.parent)
    page = (Path(__file__).resolve().parents[2] / "docs" / "how_to" / "export.md").read_text(
        "utf-8"
    )
    ours, alone, *_ = re.findall(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)
    exec(ours, {})
    assert "t2t_torch" not in alone
    exec(alone, {})
    told = capsys.readouterr().out.splitlines()
    assert told[-1].startswith(("go 0.", "stay 0.")) and told[-1].count("('") == 5
