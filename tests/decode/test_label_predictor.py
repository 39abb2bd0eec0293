"""Labels, tags, numbers and spans for inputs, from Python and from the command line."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import datagen, decoder, trainer
from t2t_torch.bin.commands import evaluation as evaluate
from t2t_torch.decode import label_predictor
from t2t_torch.decode.files import decode_file
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.errors import DataError, DecodeError
from t2t_torch.modality import BatchPrediction
from t2t_torch.problem import Problem
from t2t_torch.problem_types.classification import (
    PairRankingProblem,
    Text2ClassProblem,
    Text2MultiLabelProblem,
    TextPair2RealProblem,
)
from t2t_torch.problem_types.words import IntentSlotProblem, SpanQAProblem
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.testing import small
from t2t_torch.text_problem import VocabType
from t2t_torch.workflows.decode_checkpoints import CheckpointDecoder

WORDS = {"vocab_type": VocabType.WORD}


def predictor(family: type[Problem], samples: list[dict[str, Any]], tmp_path: Path, **more: Any):
    """A model of a family that has learnt nothing."""
    body = {"name": "made", "generate_samples": lambda self, tmp, split: iter(samples), **more}
    problem = type("Made", (family,), body)()
    problem.build_vocab(tmp_path, tmp_path)
    features = problem.features(tmp_path)
    torch.manual_seed(0)
    model_class = registry.model("transformer_encoder")
    model = model_class(small(registry.hparams("transformer_encoder_tiny")), features)
    return LabelPredictor(model, problem, features)


def test_a_class_is_answered_by_its_name_with_its_probability(tmp_path: Path) -> None:
    samples = [{"inputs": "a b c", "targets": label} for label in ("yes", "no")]
    made = predictor(Text2ClassProblem, samples, tmp_path, **WORDS)
    answers = made.predict(["a b", "never heard", "c"])
    assert {answer.value for answer in answers} <= {"yes", "no"}
    assert all(0.5 <= answer.probabilities["targets"] <= 1 for answer in answers)
    alone = made.predict(["a b"])[0]
    assert alone.value == answers[0].value
    assert alone.probabilities["targets"] == pytest.approx(answers[0].probabilities["targets"])


def test_what_is_raised_before_a_batch_ends_the_labelling(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("t2t_torch.decode.label_predictor._BATCH_TOKENS", 4)
    samples = [{"inputs": "a b c", "targets": label} for label in ("yes", "no")]
    made = predictor(Text2ClassProblem, samples, tmp_path, **WORDS)
    calls = []
    made.before_batch = lambda: calls.append(1)
    made(["a b c"] * 3)
    assert len(calls) == 3

    def stop() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise InterruptedError

    made.before_batch = stop
    with pytest.raises(InterruptedError):
        made(["a b c"] * 3)
    assert len(calls) == 5


@pytest.mark.parametrize("vocab_type", [VocabType.WORD, VocabType.CHARACTER])
def test_words_have_a_tag_each_and_the_request_an_intent(tmp_path: Path, vocab_type) -> None:
    samples = [
        {"inputs": ["to", "Oslo"], "intent": "go", "slots": ["O", "B-city"]},
        {"inputs": ["stay"], "intent": "stay", "slots": ["O"]},
    ]
    made = predictor(
        IntentSlotProblem, samples, tmp_path, vocab_type=vocab_type, word_shape=True, word_bytes=4
    )
    long, short = made(["we go to Oslo", "stay"])
    assert long["intent"] in ("go", "stay") and len(long["slots"]) == 4
    assert len(short["slots"]) == 1 and set(short["slots"]) <= {"O", "B-city"}
    assert made([{"inputs": ["we", "go", "to", "Oslo"]}]) == [long]


def test_other_kinds_of_answer(tmp_path: Path) -> None:
    pair = {"first": "a", "second": "b", "targets": 1.0}
    for folder in ("real", "labels", "ranking", "span"):
        (tmp_path / folder).mkdir()
    real = predictor(TextPair2RealProblem, [pair], tmp_path / "real", **WORDS)
    assert isinstance(real([{"first": "a", "second": "b"}])[0][0], float)
    several = [{"inputs": "a", "targets": ["x", "y"]}]
    labels = predictor(Text2MultiLabelProblem, several, tmp_path / "labels", **WORDS)
    assert set(labels(["a"])[0]) <= {"x", "y"}
    triple = {"query": "a", "positive": "a b", "negative": "c"}
    ranking = predictor(PairRankingProblem, [triple], tmp_path / "ranking", **WORDS)
    assert ranking([triple])[0] in ("positive", "negative")
    asked = {
        "question": "who?",
        "context": "It was Bob, not Al.",
        "answers": [{"text": "Bob", "start": 7}],
    }
    span = predictor(SpanQAProblem, [asked], tmp_path / "span")
    answer = span([{"question": "who?", "context": "It was Bob, not Al."}])[0]
    assert answer in "It was Bob, not Al."  # also ""


def test_an_input_that_lacks_a_field_or_cannot_be_encoded_is_named(tmp_path: Path) -> None:
    pair = {"first": "a", "second": "b", "targets": 1.0}
    made = predictor(TextPair2RealProblem, [pair], tmp_path, **WORDS)
    with pytest.raises(DecodeError, match="input 1 has no second"):
        made([{"first": "a", "second": "b"}, {"first": "a"}])
    with pytest.raises(DataError, match="input 0 cannot be encoded"):
        made([{"first": 3, "second": "b"}])
    with pytest.raises(DecodeError, match="not a string"):
        made.predict("a")


def test_what_no_file_can_hold_is_refused_as_an_artifact_refuses_it(tmp_path: Path) -> None:
    samples = [{"inputs": ["stay"], "intent": "stay", "slots": ["O"]}]
    made = predictor(IntentSlotProblem, samples, tmp_path)
    with pytest.raises(DataError, match=r"input 1 .* a space, tab or line end ends one"):
        made(["stay", {"inputs": ["stay\there"]}])
    for torn in ("stay \ud800", ["stay", "\ud800"]):
        with pytest.raises(DataError, match=r"input 1 .* has a lone surrogate at character"):
            made(["stay", {"inputs": torn}])


def test_inputs_are_cut_as_those_of_evaluation_are(tmp_path: Path) -> None:
    samples = [{"inputs": "a b c", "targets": label} for label in ("yes", "no")]
    made = predictor(Text2ClassProblem, samples, tmp_path, **WORDS)
    hparams = made.model.hparams.replace(max_input_seq_length=3)
    model = type(made.model)(hparams, made.features)
    model.load_state_dict(made.model.state_dict())
    cut = LabelPredictor(model, made.problem, made.features)
    long, short = cut.predict(["a b c " + "b " * 200_000, "a b c c"])
    assert long.probabilities["targets"] == pytest.approx(short.probabilities["targets"])
    assert made.predict(["a b c c"])[0].probabilities != short.probabilities


def test_words_that_would_be_cut_are_not_left_without_a_tag(tmp_path: Path) -> None:
    samples = [{"inputs": ["to", "Oslo"], "intent": "go", "slots": ["O", "B-city"]}]
    made = predictor(IntentSlotProblem, samples, tmp_path, **WORDS)
    limit = made.model.hparams.batch_size
    assert len(made(["to " * limit])[0]["slots"]) == limit
    with pytest.raises(DataError, match=f"input 0 .* trained on {limit} at most"):
        made(["to " * (limit + 1)])


@pytest.fixture
def run(tmp_path: Path, own_registry: None, made_once: Any) -> Path:
    """A run of a declared problem: which queue a ticket belongs to."""
    folder = made_once("tickets", _train)
    registry.import_usr_dir(folder / "tickets_shelf")
    for part in ("data", "run"):
        shutil.copytree(folder / part, tmp_path / part)
    return tmp_path / "run"


def _train(folder: Path) -> None:
    shelf = folder / "tickets_shelf"
    shelf.mkdir()
    declaration = {
        "problem": "tickets",
        "kind": "text2class",
        "files": {"train": "train.csv", "eval": 0.2},
        "fields": {"inputs": "body", "targets": "queue"},
        "vocab_type": "word",
        "vocab_size": 100,
    }
    (shelf / "tickets.json").write_text(json.dumps(declaration))
    with (shelf / "train.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["body", "queue"])
        for i in range(120):
            table.writerow([f"my bill {i} is wrong", "billing"])
            table.writerow([f"it crashed, {i} times", "tech"])
    common = [f"--t2t_usr_dir={shelf}", "--problem=tickets", f"--data_dir={folder / 'data'}"]
    assert datagen.main([*common, "--verbosity=-1"]) == 0
    how = ["--model=transformer_encoder", "--hparams_set=transformer_encoder_tiny"]
    sizes = "hidden_size=16,filter_size=16,batch_size=256,learning_rate_warmup_steps=10"
    where = [f"--output_dir={folder / 'run'}", "--train_steps=40", f"--hparams={sizes}"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert trainer.main([*common, *how, *where]) == 0
    assert "accuracy 1.0000" in said.getvalue()


def test_from_a_csv_to_labels_for_the_lines_of_a_file(run: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("my bill 7 is wrong\nit crashed, 9 times\n\n")
    flags = [f"--output_dir={run}", f"--decode_from_file={source}", f"--decode_to_file={target}"]
    assert decoder.main(flags) == 0
    assert target.read_text().splitlines()[:2] == ["billing", "tech"]
    assert len(target.read_text().splitlines()) == 3
    assert t2t_torch.load(run)(["it crashed, 3 times"]) == ["tech"]
    assert decoder.main(flags[:2]) == 0
    assert (tmp_path / "in.txt.labels").read_text() == target.read_text()


@pytest.mark.slow
def test_a_signal_between_batches_of_a_checkpoint_ends_it_and_the_next_time_it_goes_on_there(
    run: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("t2t_torch.decode.label_predictor._BATCH_TOKENS", 4)
    source = tmp_path / "in.txt"
    source.write_text("my bill 7 is wrong\n" * 3)
    decode = CheckpointDecoder(run, tmp_path / "data", DecodeHParams(), source=source)
    newest = CheckpointDirectory(run).newest()
    assert newest is not None
    polls = []

    def poll() -> None:
        polls.append(1)
        if len(polls) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        decode(newest, poll=poll)
    assert [file.name for file in (run / "decodes").iterdir()] == ["in.txt-40.part"]
    assert len(decode(newest, poll=poll).target.read_text().splitlines()) == 3
    assert len(polls) == 2 + 2
    assert [file.name for file in (run / "decodes").iterdir()] == ["in.txt-40"]


def test_labels_are_compared_with_a_reference_line_by_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, right = tmp_path / "in.txt", tmp_path / "right.txt"
    source.write_text("my bill 7 is wrong\nit crashed, 9 times\n")
    right.write_text("billing\nbilling\n")
    flags = [f"--output_dir={run}", f"--decode_from_file={source}", f"--decode_reference={right}"]
    assert decoder.main(flags) == 0
    assert "exact match = 0.5000 (1 of 2)" in capsys.readouterr().out


def test_what_a_model_of_labels_cannot_do_is_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert decoder.main([f"--output_dir={run}", f"--data_dir={tmp_path / 'data'}"]) == 2
    told = capsys.readouterr().err
    assert "has learnt to give targets" in told and "t2t-eval --output" in told


def test_labels_are_written_with_probabilities(run: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out"
    source.write_text('my bill 7 is wrong\n{"inputs": "it crashed\\ttwice", "id": 3}\n')
    flags = [f"--output_dir={run}", f"--decode_from_file={source}", f"--decode_to_file={target}"]
    assert decoder.main([*flags, "--decode_hparams=output_format=jsonl,num_labels=1"]) == 0
    first, second = map(json.loads, target.read_text().splitlines())
    found = first["output"]["targets"]
    assert first["input"] == {"inputs": "my bill 7 is wrong"} and found["value"] == "billing"
    assert found["probabilities"] == {"billing": found["probability"]}
    assert second["input"]["id"] == 3
    assert decoder.main([*flags, "--decode_hparams=output_format=tsv"]) == 0
    header, one, two = csv.reader(target.read_text().splitlines(), delimiter="\t")
    assert header == ["inputs", "targets", "targets_probability", "targets_probabilities"]
    assert one[:2] == ["my bill 7 is wrong", "billing"] and float(one[2]) > 0.5
    assert two[0] == "it crashed\\ttwice"
    assert sum(json.loads(two[3]).values()) == pytest.approx(1, abs=1e-4)


def test_what_is_typed_is_answered_with_probabilities(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.stdin", ["my bill 7 is wrong\n", '{"text": "x"}\n', "?\n", "q\n", "x\n"]
    )
    assert decoder.main([f"--output_dir={run}", "--decode_interactive"]) == 0
    help_text, answer, wrong, again, end = capsys.readouterr().out.split("> ")
    assert 'a text, or JSON such as {"inputs": "..."}' in help_text
    assert help_text == again and end == ""
    (best, other) = (line.split() for line in answer.splitlines())
    assert [best[1], other[1]] == ["billing", "tech"]
    assert float(best[0]) + float(other[0]) == pytest.approx(1, abs=2e-4)
    assert wrong.startswith("error: this line: the JSON object has no inputs, but text.")


def test_every_row_is_written_with_what_is_right_and_found(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--output_dir={run}", f"--data_dir={tmp_path / 'data'}", "--worker_gpu=0"]
    more = [f"--output={tmp_path / 'e'}", "--eval_metrics=f1_macro,roc_auc"]
    capsys.readouterr()
    assert evaluate.main([*flags, *more]) == 0
    told = capsys.readouterr().out
    results = json.loads((tmp_path / "e" / "results.json").read_text())
    lines = (tmp_path / "e" / "rows.tsv").read_text().splitlines()
    table = list(csv.DictReader(lines, delimiter="\t"))
    support = {label: row["support"] for label, row in results["labels"]["targets"].items()}
    counted = Counter(row["targets"] for row in table)
    assert support == dict(counted) and f"{len(table)} rows written" in told
    assert re.search(r"billing +1\.0000 +1\.0000 +1\.0000 +" + str(counted["billing"]), told)
    assert results["metrics"]["metrics-tickets/targets/f1_macro"] == 1.0
    assert results["confusion"]["targets"]["labels"] == ["billing", "tech"]
    assert results["confusion"]["targets"]["counts"][0] == [counted["billing"], 0]
    assert all(row["targets"] == row["targets_found"] for row in table)
    assert {row["targets_is_right"] for row in table} == {"1"}
    assert evaluate.main([*flags, *more[:1], "--eval_steps=1"]) == 2
    assert "writes every row" in capsys.readouterr().err
    assert evaluate.main([*flags, "--eval_metrics=bleu_score"]) == 2
    assert evaluate.main([*flags, "--eval_metrics=span_f1"]) == 2
    assert "no target of 'tickets' is one that span_f1" in capsys.readouterr().err


def test_the_number_of_one_label_chooses_the_checkpoint(run: Path, tmp_path: Path) -> None:
    flags = ["--problem=tickets", f"--data_dir={tmp_path / 'data'}", "--eval_metrics=f1_per_label"]
    how = ["--model=transformer_encoder", "--hparams_set=transformer_encoder_tiny"]
    sizes = "hidden_size=16,filter_size=16,batch_size=256,learning_rate_warmup_steps=1"
    where = [f"--output_dir={tmp_path / 'other'}", "--train_steps=2", f"--hparams={sizes}"]
    watched = "--eval_early_stopping_metric=f1_per_label/tech"
    assert trainer.main([*flags, *how, *where, watched]) == 0
    best = json.loads((tmp_path / "other" / "best.json").read_text())
    assert best["metric"] == "metrics-tickets/targets/f1_per_label/tech"
    assert best["lower_is_better"] is False


def test_a_long_context_is_answered_from_all_its_windows(tmp_path: Path, monkeypatch) -> None:
    context = "It was Bob, not  Al; so they said."
    asked = {"question": "who?", "context": context, "answers": []}
    made = predictor(SpanQAProblem, [asked], tmp_path, max_context=4, context_stride=4)
    seen = []

    def predict(logits):
        """In the second window of three the answer is its first two words."""
        seen.append(len(logits))
        return BatchPrediction(
            torch.tensor([[-1, -1], [0, 1], [0, 0]]), torch.tensor([0.9, 0.5, 0.25])
        )

    monkeypatch.setattr(made.model.modalities["targets"], "predict", predict)
    (answer,) = made.predict([{"question": "who?", "context": context}])
    assert seen == [3]
    assert (answer.value, answer.probabilities) == ("not  Al", {"targets": 0.5})


def test_it_computes_in_the_type_in_which_the_run_was_trained(tmp_path: Path) -> None:
    samples = [{"inputs": "a b c d", "targets": label} for label in ("yes", "no")]
    made = predictor(Text2ClassProblem, samples, tmp_path, **WORDS)
    (exact,) = made.predict(["a b c"])
    made.model.hparams = made.model.hparams.replace(activation_dtype="bfloat16")
    (rounded,) = made.predict(["a b c"])
    batch = {"inputs": torch.tensor([made.features.inputs["inputs"].encode("a b c")])}
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = made.model.logits(batch)["targets"]
    probability = expected.float().softmax(-1).max()
    assert rounded.probabilities["targets"] == pytest.approx(float(probability), rel=1e-6)
    assert rounded.probabilities != exact.probabilities


@pytest.mark.parametrize("change", ["nothing", "weights", "inputs"])
def test_labels_of_other_weights_or_inputs_are_found_anew(
    tmp_path: Path, monkeypatch, capsys, change: str
) -> None:
    samples = [{"inputs": "a b c", "targets": label} for label in ("yes", "no")]
    made = predictor(Text2ClassProblem, samples, tmp_path, **WORDS)
    monkeypatch.setattr(label_predictor, "_BATCH_TOKENS", 1)  # a line at a time
    source, target = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("a\nb\nc\n")
    begun: list[int] = []

    def end() -> None:
        begun.append(1)
        if len(begun) == 3:
            raise KeyboardInterrupt

    made.before_batch = end
    with pytest.raises(KeyboardInterrupt):
        decode_file(made, source, target, DecodeHParams())
    if change == "weights":
        next(made.model.parameters()).data.mul_(0.5)
    elif change == "inputs":
        source.write_text("c\nb\nc\n")
    begun[:] = [1] * 3
    capsys.readouterr()
    decode_file(made, source, target, DecodeHParams())
    assert len(begun) - 3 == (1 if change == "nothing" else 3)
    told = f"of other {change}: all inputs are decoded again" in capsys.readouterr().err
    assert told == (change != "nothing")
    assert target.read_text().count("\n") == 3
