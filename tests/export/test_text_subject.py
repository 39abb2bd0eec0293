"""From a run that writes texts to an artifact: text in, text out, the search inside."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import exporter as command
from t2t_torch.bin.commands import latency
from t2t_torch.data.generate import generate_data
from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.decode.loading import load_run
from t2t_torch.errors import ExportError, HParamsError
from t2t_torch.export import quantization, targets, verification
from t2t_torch.export.exporter import target_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.search import Search, SearchNetworks
from t2t_torch.export.text_graph import InputGraph
from t2t_torch.export.verification import TextComparison, VerificationRow, verify_rows
from t2t_torch.pipeline.reader import LengthLimits
from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory, TaskRecord
from t2t_torch.runtime.prediction import Hypothesis, Prediction
from t2t_torch.runtime.session import Artifact
from t2t_torch.runtime.signature import Signature
from t2t_torch.testing import small

ATTENDING = "lstm_seq2seq_attention"
SEARCH = "beam_size=3,extra_length=6,return_beams=true,write_alignments=true"

_PROBLEM = '''"""Phrases."""

from t2t_torch.mode import Split
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import WordCutter
from t2t_torch.text_problem import Text2SelfProblem, Text2TextProblem, VocabType


class Small:
    shards = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    words = "one two three four five six seven".split()

    def phrases(self):
        for number in range(40):
            yield " ".join(self.words[(number * k) % 7] for k in range(1, number % 6 + 1))


@register_problem("small_phrases")
class SmallPhrases(Small, Text2TextProblem):
    """Phrases of numbers, turned round."""

    vocab_type = VocabType.WORD
    approx_vocab_size = 30
    oov_token = "<unk>"

    def generate_samples(self, tmp_dir, split):
        """Yields the phrases."""
        for phrase in self.phrases():
            yield {"inputs": phrase, "targets": " ".join(phrase.split()[::-1])}


@register_problem("small_story")
class SmallStory(Small, Text2SelfProblem):
    """Phrases, one letter after another; a prompt is cut into words."""

    vocab_type = VocabType.SYMBOL
    cutters = {"targets": WordCutter()}

    def generate_samples(self, tmp_dir, split):
        """Yields the phrases."""
        for phrase in self.phrases():
            yield {"targets": phrase}
'''


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `data`, and the runs of two models that have learnt nothing."""
    folder = tmp_path_factory.mktemp("phrases")
    shelf = folder / "phrases_shelf"
    shelf.mkdir()
    (shelf / "phrases.py").write_text(_PROBLEM)
    _forget_phrases()  # what reads a run opens its folder of problems again, and leaves it open
    registry.import_usr_dir(shelf)
    for name, model in (("small_phrases", ATTENDING), ("small_story", "lstm_lm")):
        problem = registry.problem(name)
        generate_data(problem, folder / "data", folder, num_processes=1, progress=False)
        _write_run(folder / model, folder, name, model)
    yield folder
    _forget_phrases()


def _forget_phrases() -> None:
    """Makes the registry as if nothing had opened the folder of phrases."""
    state = registry._STATE
    state.roots[:] = [folder for folder in state.roots if folder.name != "phrases_shelf"]
    state.forget_index()
    for name in ("small_phrases", "small_story"):
        state.objects["problem"].pop(name, None)
    sys.path[:] = [path for path in sys.path if not Path(path, "phrases_shelf").is_dir()]
    for name in [name for name in sys.modules if name.split(".")[0] == "phrases_shelf"]:
        del sys.modules[name]


def _write_run(path: Path, folder: Path, problem_name: str, model: str) -> None:
    problem, hparams = registry.problem(problem_name), small(registry.hparams(f"{model}_tiny"))
    if model == ATTENDING:
        hparams = hparams.replace(num_hidden_layers=1)  # each takes seconds to export
    task = TaskRecord(
        problem=problem_name,
        model=model,
        hparams_set=f"{model}_tiny",
        usr_dirs=(str(folder / "phrases_shelf"),),
    )
    run = RunDirectory(path)
    run.begin(task, hparams)
    for name in problem.vocab_files:
        (path / name).write_bytes((folder / "data" / name).read_bytes())
    torch.manual_seed(7)  # the weights of many others end some searches early
    network = registry.model(model)(hparams, problem.features(path))
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(3.0)
    adam = torch.optim.Adam(network.parameters())
    CheckpointDirectory(path).save(Snapshot.take(network, adam, TrainerState(step=1)))
    run.unlock()


def export_each_search_once(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Keeps the networks of each search for all processes, as making them takes seconds."""
    make = targets.export_search

    def export_search(model: Any, search: Search, batch_of: Any) -> SearchNetworks:
        weights = float(sum(p.detach().double().abs().sum() for p in model.parameters()))
        key = repr((type(model).__name__, weights, search))
        file = folder / f"search_{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        with filelock.FileLock(f"{file}.lock"):
            if not file.exists():
                partial = file.with_suffix(".partial")
                partial.write_bytes(pickle.dumps(make(model, search, batch_of)))
                partial.replace(file)
        return pickle.loads(file.read_bytes())

    patch.setattr(targets, "export_search", export_search)


@pytest.fixture(autouse=True, scope="module")
def each_search_once(shared_folder: Path) -> Iterator[None]:
    """Makes the networks of one search once."""
    with pytest.MonkeyPatch.context() as patch:
        export_each_search_once(patch, shared_folder)
        yield


@pytest.fixture(scope="module")
def exported(made: Path, each_search_once: None) -> Path:
    """The artifact of the model that turns phrases round, written by the command."""
    folder = made / "artifact"
    asked = [f"--output_dir={made / ATTENDING}", f"--data_dir={made / 'data'}"]
    options = [f"--decode_hparams={SEARCH}"]
    with contextlib.redirect_stdout(io.StringIO()):
        code = command.main([*asked, f"--export_dir={folder}", *options])
    assert code == 0
    return folder


def run_of(made: Path) -> Any:
    """What the run answers, searched for as in the artifact."""
    hparams = parse_decode_hparams(SEARCH, to_write=False)
    return t2t_torch.load(made / ATTENDING, hparams=hparams, device="cpu")


INPUTS = ["one two three", "", "unheard words", "seven", "two " * 30, " six \t five\n", "😀 one"]


def test_an_artifact_writes_what_its_run_writes(exported: Path, made: Path) -> None:
    run = run_of(made)
    artifact = t2t_torch.load(exported)
    expected, found = run.predict(INPUTS), artifact.predict(INPUTS)
    alone = [artifact.predict([text])[0] for text in INPUTS]
    for one, *several in zip(expected, found, alone, strict=True):
        for other in several:
            assert [(h.text, h.ids) for h in other.hypotheses] == [
                (h.text, h.ids) for h in one.hypotheses
            ]
            scores = [h.score for h in one.hypotheses]
            assert [h.score for h in other.hypotheses] == pytest.approx(scores, abs=1e-4)
    assert artifact(INPUTS) == run(INPUTS)
    assert len(set(artifact(INPUTS))) > 2 and all(len(one.hypotheses) == 3 for one in found)


def test_an_artifact_aligns_what_its_run_aligns(exported: Path, made: Path) -> None:
    run, artifact = run_of(made), Artifact(exported)
    expected, found = run.predict(INPUTS), artifact.attend(INPUTS)
    aligner = run.aligner()
    for ids, one, other in zip(run.encode(INPUTS), expected, found, strict=True):
        assert [h.alignment for h in other.hypotheses] == [h.alignment for h in one.hypotheses]
        attention = aligner.attend(ids, one).attention
        assert (other.attention.read, other.attention.written) == (
            attention.read,
            attention.written,
        )
        for row, right in zip(other.attention.weights, attention.weights, strict=True):
            assert row == pytest.approx(right, abs=1e-5)
    assert sum(len(one.hypotheses[0].alignment) > 1 for one in found) > 2
    assert artifact.predict(INPUTS) == [dataclasses.replace(one, attention=None) for one in found]
    plain = artifact.predict(INPUTS, alignments=False)
    assert [one.text for one in plain] == [one.text for one in found]
    assert not any(h.alignment for one in plain for h in one.hypotheses)


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("batch_size", [1, 8])
def test_its_latency_is_measured_beside_pytorchs(
    exported: Path, made: Path, capsys, tmp_path: Path, batch_size: int
) -> None:
    given = ["--rows=8", "--passes=1", "--warm_up=0", f"--batch_size={batch_size}"]
    run = [f"--artifact={exported}", f"--output_dir={made / ATTENDING}"]
    figures = f"--json={tmp_path / 'found.json'}"
    for asked in ([f"--data_dir={made / 'data'}", figures], []):  # the data's, the artifact's own
        assert latency.main([*run, *given, *asked]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split("  ")[0] for line in lines[1:4]] == ["ms", "PyTorch", "artifact"]
    found = json.loads((tmp_path / "found.json").read_text())["found"]
    assert {one["requests"] for one in found.values()} == {8 // batch_size}
    assert all(one["p50"] > 0 for one in found.values())


def test_a_run_of_another_problem_is_not_measured_beside_it(exported, made, capsys) -> None:
    run = [f"--artifact={exported}", f"--output_dir={made / 'lstm_lm'}"]
    assert latency.main(run) == 2
    assert "is of problem 'small_phrases', and --output_dir" in capsys.readouterr().err


def test_an_artifact_says_how_it_searches(exported: Path) -> None:
    signature = Signature.read(exported)
    assert signature.search == {
        "beam_size": 3, "alpha": 0.6, "extra_length": 6, "force_decode_length": False,
        "return_beams": True, "write_alignments": True, "alignment_step": "written",
        "alignment_layer": 0,
    }  # fmt: skip
    assert [(field.name, field.kind) for field in signature.fields] == [("inputs", "text")]
    assert [(t.name, t.kind, t.size) for t in signature.targets] == [("targets", "text", 3)]
    examples = [json.loads(line) for line in (exported / "examples.jsonl").read_text().splitlines()]
    told = [one["answer"]["hypotheses"][0]["text"] for one in examples]
    assert Artifact(exported)([one["input"]["inputs"] for one in examples]) == told


def test_an_artifact_writes_without_torch(exported: Path) -> None:
    script = (
        "import sys\n"
        "for name in ('torch', 'pydantic', 'absl', 'sentencepiece', 'onnx'):\n"
        "    sys.modules[name] = None\n"
        "import t2t_torch\n"
        f"print(t2t_torch.load({str(exported)!r})({INPUTS[:1]!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(Artifact(exported)(INPUTS[:1]))


@pytest.mark.slow
def test_a_language_model_goes_on_as_its_run_does(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "artifact"
    asked = [f"--output_dir={made / 'lstm_lm'}", f"--data_dir={made / 'data'}"]
    options = ["--decode_hparams=extra_length=12"]
    assert command.main([*asked, f"--export_dir={folder}", *options]) == 0
    hparams = DecodeHParams(extra_length=12)
    run = t2t_torch.load(made / "lstm_lm", hparams=hparams, device="cpu")
    prompts = ["one ", "", "t", "Seven,six  FIVE", "zebra"]
    artifact = t2t_torch.load(folder)
    assert artifact(prompts) == run(prompts)
    assert artifact([{"prompt": "one "}]) == run(["one "])


def _operators(node: Any) -> Iterator[str]:
    """The operators in the bodies of one."""
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield inner.op_type
            yield from _operators(inner)


@pytest.mark.slow
def test_texts_are_written_with_eight_bits_one_at_a_time(
    exported: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([2.0, 1.0] * quantization._ROUNDS)
    monkeypatch.setattr(quantization, "_seconds", lambda *_: next(times))
    monkeypatch.setattr(quantization, "POINTS", 1.0)  # nothing was learnt: any row may change
    folder = tmp_path / "artifact"
    asked = [f"--output_dir={made / ATTENDING}", f"--data_dir={made / 'data'}"]
    options = [f"--decode_hparams={SEARCH}", "--quantize=int8"]
    assert command.main([*asked, f"--export_dir={folder}", *options]) == 0
    artifact = Artifact(folder)
    assert artifact.signature.quantized == "int8"
    graph = onnx.load(folder / "model.onnx").graph
    (loop,) = [node for node in graph.node if node.op_type == "Loop" and len(node.output) > 4]
    assert set(_operators(loop)) & {"MatMulInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul"}
    together = artifact.predict(INPUTS)
    assert together == [artifact.predict([text])[0] for text in INPUTS]


def test_what_was_exported_without_alignments_says_so(made: Path) -> None:
    subject = target_of(load_run(made / ATTENDING), DecodeHParams())
    assert "write_alignments" not in subject.signature_parts()["search"]
    with pytest.raises(HParamsError, match="a language model continues its input"):
        target_of(load_run(made / "lstm_lm"), DecodeHParams(write_alignments=True))


def test_what_a_search_in_a_graph_does_not_read_is_refused(made: Path) -> None:
    loaded = load_run(made / ATTENDING)
    with pytest.raises(
        HParamsError, match="the search in a graph does not read sampling_method, top_p"
    ):
        target_of(loaded, DecodeHParams().parse("sampling_method=random,top_p=0.5", "flag"))


def test_a_prompt_is_cut_as_the_predictor_cuts_it(made: Path) -> None:
    subject: Any = target_of(load_run(made / "lstm_lm"), DecodeHParams())
    predictor, graph = subject._predictor, Graph("prompts")
    given = (subject._given, subject._cutters)
    inputs = InputGraph(graph, predictor.problem, predictor.features, LengthLimits(), *given)
    ids = inputs.encoded()
    graph.output("ids", ids["prompt"], "int64", ["batch", None])
    session = onnxruntime.InferenceSession(graph.model().SerializeToString())
    prompts = ["One,two", "", " seven  SIX!", "don't\\nfive<br/>"]
    (found,) = session.run(None, {"prompt": np.array(prompts, object)})
    for row, expected in zip(found.tolist(), predictor.encode(prompts), strict=True):
        assert row == [*expected, *[0] * (len(row) - len(expected))]
    assert predictor.encode(["One,two"]) == predictor.encode(["one , two"])


def test_a_language_model_has_no_metric_for_int8(made: Path) -> None:
    subject = target_of(load_run(made / "lstm_lm"), DecodeHParams())
    with pytest.raises(ExportError, match="of a language model there is no right output"):
        subject.metrics(made / "data", {})


class _Changed:
    """An artifact that tells other scores, texts, alignments or weights."""

    def __init__(self, artifact: Artifact, shift: float = 0.0, **changes: object) -> None:
        self._artifact, self._shift, self._changes = artifact, shift, changes

    def predict(self, inputs: list[str]) -> list[Prediction]:
        return self._changed(self._artifact.predict(inputs))

    def attend(self, inputs: list[str]) -> list[Prediction]:
        return self._changed(self._artifact.attend(inputs))

    def _changed(self, predictions: Any) -> list[Prediction]:
        told = []
        for found in predictions:
            its = (dataclasses.replace(one, **self._changes) for one in found.hypotheses)
            attention = found.attention
            if attention is not None:
                rows = tuple(tuple(w + self._shift for w in row) for row in attention.weights)
                attention = dataclasses.replace(attention, weights=rows)
            told.append(Prediction.of_texts("targets", tuple(its), attention))
        return told


def changed_by(folder: Path, **changes: Any) -> Any:
    return _Changed(Artifact(folder), **changes)


def test_other_texts_or_scores_are_told_with_the_row(exported: Path, made: Path) -> None:
    run = run_of(made)
    rows = [VerificationRow("row 7 of the dev split", {"inputs": "one two"}, 7)]
    verified = verify_rows(TextComparison(run), Artifact(exported), rows)
    assert (verified.ties, verified.difference < 1e-5) == (0, True)
    for changes in ({"score": -0.125}, {"score": -0.125, "text": "other"}):
        with pytest.raises(ExportError, match=r"run alone: row 7 of the dev split(.|\n)*model:"):
            verify_rows(TextComparison(run), changed_by(exported, **changes), rows)


def test_other_alignments_or_weights_are_told_with_the_row(exported: Path, made: Path) -> None:
    run = run_of(made)
    rows = [VerificationRow("row 7 of the dev split", {"inputs": "one two three"}, 7)]
    verified = verify_rows(TextComparison(run), Artifact(exported), rows)
    assert verified.attention is not None and verified.attention < 1e-5
    assert verified.looks == 0 and verified.answers[0].attention is None
    for changes in ({"shift": 0.001}, {"alignment": ((0, 0),)}):
        with pytest.raises(ExportError, match="does not look where the model looks, run alone"):
            verify_rows(TextComparison(run), changed_by(exported, **changes), rows)


def test_a_score_that_is_no_number_is_no_tie(exported: Path, made: Path) -> None:
    run = run_of(made)
    rows = [VerificationRow("row 7 of the dev split", {"inputs": "one two"}, 7)]
    with pytest.raises(ExportError, match="run alone: row 7"):
        verify_rows(TextComparison(run), changed_by(exported, score=float("nan")), rows)


def test_another_text_of_an_equal_score_is_a_tie(
    exported: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(made)
    row = VerificationRow("row 7 of the dev split", {"inputs": "one two"}, 7)
    monkeypatch.setattr(verification, "MOST_TIES", 1.0)
    verified = verify_rows(TextComparison(run), changed_by(exported, text="another"), [row])
    assert verified.ties == 1
    assert isinstance(verified.answers[0].hypotheses[0], Hypothesis)
    monkeypatch.setattr(verification, "MOST_TIES", 0.9)
    with pytest.raises(ExportError, match="of equal scores for 1 of 1 rows"):
        verify_rows(TextComparison(run), changed_by(exported, text="another"), [row])
