from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.decode import files
from t2t_torch.decode.evaluation import EvaluatedRows, score_lines
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.tree_predictor import TreePredictor
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import DataError, DecodeError, HParamsError
from t2t_torch.metrics import text_scores
from t2t_torch.mode import Split
from t2t_torch.problem_types.words import Text2TreeProblem
from t2t_torch.text.tree import parse_tree
from t2t_torch.text_problem import VocabType

WORDS = ("fly", "to", "Oslo", "on", "Monday", "[", "(")
GREEDY = DecodeHParams(beam_size=1)


class Requests(Text2TreeProblem):
    """Requests with intents and slots."""

    name = "made_requests"
    shards: ClassVar = {Split.TRAIN: 1, Split.EVAL: 1}
    word_shape = True

    def generate_samples(self, tmp_dir: Path, split: Split):
        """Yields twelve of them."""
        for i in range(12):
            yield {"targets": f"[IN:GO fly [SL:TO to [IN:CITY Oslo ] ] {WORDS[i % 5]} ]"}


class Phrases(Requests):
    """Phrase structure with given tags."""

    name = "made_phrases"
    given_tags = True

    def generate_samples(self, tmp_dir: Path, split: Split):
        """Yields twelve sentences."""
        for i in range(12):
            yield {"targets": f"(S (NP (DT the) (NN dog{i % 3})) (VP (VBD saw) (-LRB- -LRB-)))"}


class InBytes(Requests):
    """Words of several ids."""

    name = "made_in_bytes"
    vocab_type = VocabType.CHARACTER


def predictor_of(problem: Any, folder: Path, model: str = "rnng", **settings: Any) -> TreePredictor:
    generate_data(problem, folder, folder, num_processes=1, progress=False)
    torch.manual_seed(0)
    hparams = registry.hparams(f"{model}_tiny")
    if model == "transformer":
        settings["shared_embedding_and_softmax_weights"] = False
    features = problem.features(folder)
    made = registry.model(model)(hparams.replace(hidden_size=16, **settings), features)
    with torch.no_grad():  # far from uniform: untrained models choose among equals
        for parameter in made.parameters():
            parameter.mul_(4)
    return TreePredictor(made, problem, features)


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> TreePredictor:
    return predictor_of(Requests(), tmp_path_factory.mktemp("requests"))


@pytest.fixture(scope="module")
def phrases(tmp_path_factory: pytest.TempPathFactory) -> TreePredictor:
    return predictor_of(Phrases(), tmp_path_factory.mktemp("phrases"))


SENTENCES = ["fly to Oslo", "on", "Monday to [ ( Oslo zebra on", "fly fly"]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_answers_are_trees_over_the_words_of_the_input(requests, beam_size) -> None:
    hparams = DecodeHParams(beam_size=beam_size, alpha=0.0)
    for text, found in zip(SENTENCES, requests.predict(SENTENCES, hparams), strict=True):
        assert found.text.startswith("[IN:")
        assert parse_tree(found.text).words == text.split()
        assert not found.hypotheses[0].repaired


def test_a_sentence_may_be_a_text_a_list_or_a_mapping(requests) -> None:
    forms = ["fly to Oslo", ["fly", "to", "Oslo"], {"inputs": "fly to  Oslo"}]
    assert len(set(requests(forms))) == 1


@pytest.mark.slow
def test_what_stands_beside_a_sentence_changes_nothing(requests) -> None:
    together = requests.predict(SENTENCES, DecodeHParams(beam_size=4))
    for text, found in zip(SENTENCES, together, strict=True):
        alone = requests.predict([text], DecodeHParams(beam_size=4))[0]
        assert alone.text == found.text
        assert alone.score == pytest.approx(found.score, abs=1e-4)


def test_without_the_rules_what_is_no_tree_is_mended(requests) -> None:
    found = requests.predict(SENTENCES, GREEDY.replace(valid_trees=False))
    assert any(each.hypotheses[0].repaired for each in found)
    for text, each in zip(SENTENCES, found, strict=True):
        if each.text:
            assert parse_tree(each.text).words == text.split()


def test_there_is_no_room_for_a_tree_in_too_few_transitions(requests) -> None:
    found = requests.predict(["fly to"], GREEDY.replace(extra_length=2))[0]
    assert (found.text, found.hypotheses[0].repaired) == ("", True)
    found = requests.predict(["fly to"], GREEDY.replace(extra_length=3))[0]
    assert parse_tree(found.text).words == ["fly", "to"]


def test_given_tags_stand_above_the_words(phrases) -> None:
    given = {"inputs": ["the", "(", "ox"], "tags": "DT -LRB- NEW"}
    (text,) = phrases([given])
    assert text.startswith("(")
    bare, tags = parse_tree(text).without_tags()
    assert (bare.words, tags) == (["the", "(", "ox"], ["DT", "-LRB-", "NEW"])


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ("the dog", DecodeError, "has no tags; .* the fields inputs, tags"),
        ({"inputs": "the dog", "tags": "DT"}, DataError, "2 words and 1 tags"),
        ({"inputs": "the dog", "tags": 7}, DataError, "7 is no text and no list of labels"),
    ],
)
def test_what_cannot_be_parsed_says_why(phrases, given, error, why) -> None:
    with pytest.raises(error, match=why):
        phrases.predict([given])


def test_a_sentence_without_words_has_an_empty_answer(phrases) -> None:
    given = {"inputs": ["the", "dog"], "tags": "DT NN"}
    empty = {"inputs": "", "tags": ""}
    first, found, of_a_line = phrases.predict([given, empty, ""])
    assert first.text.startswith("(")
    assert found == of_a_line
    assert (found.text, found.score, found.hypotheses[0].repaired) == ("", 0.0, False)
    assert phrases([""]) == [""]


@pytest.mark.parametrize("model", ["rnng", "lstm_seq2seq_attention"])
def test_a_line_is_scored_with_all_inputs_that_are_made_of_it(tmp_path, model) -> None:
    made = predictor_of(Requests(), tmp_path, model)
    lines = ["fly to Oslo fly\t[IN:GO fly [SL:TO to [IN:CITY Oslo ] ] fly ]"] * 2
    lines.append("fly Oslo\t[IN:GO fly Oslo ]")
    found = score_lines(made, lines)
    assert found[0].log_probability < 0
    assert found[0].log_probability == pytest.approx(found[1].log_probability)
    assert found[0].tokens > found[2].tokens
    alone = score_lines(made, lines[2:])[0]
    assert alone.log_probability == pytest.approx(found[2].log_probability, abs=1e-4)


def test_given_labels_of_words_are_scored_from_the_tree(phrases) -> None:
    (found,) = score_lines(phrases, ["the ox\t(NP (DT the) (NEW ox))"])
    assert found.log_probability < 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("fly\tnot a tree", "line 2: column 1: a tree begins"),
        ("fly\t[IN:GO to ]", "line 2: the tree's words"),
        ("fly", "line 2: expected an input and an output"),
    ],
)
def test_a_line_that_cannot_be_scored_is_named(requests, line, why) -> None:
    with pytest.raises(DataError, match=why):
        score_lines(requests, ["fly\t[IN:GO fly ]", line])


def test_a_sentence_is_not_cut(requests) -> None:
    hparams = DecodeHParams(max_input_size=2)
    assert requests.predict(["fly to"], hparams)[0].text
    with pytest.raises(DataError, match="3 ids, more than max_input_size=2"):
        requests.predict(["fly to Oslo"], hparams)


def test_trees_are_not_drawn(requests) -> None:
    with pytest.raises(HParamsError, match="do not read sampling_method"):
        requests.predict(["fly"], DecodeHParams(sampling_method="random"))


@pytest.mark.parametrize(
    ("problem", "model"),
    [(InBytes(), "rnng"), (Requests(), "transformer"), (InBytes(), "transformer")],
)
def test_any_model_of_trees_keeps_the_rules_also_with_words_of_several_ids(
    problem, model, tmp_path
) -> None:
    predictor = predictor_of(problem, tmp_path, model)
    for text, found in zip(SENTENCES, predictor.predict(SENTENCES, GREEDY), strict=True):
        assert parse_tree(found.text).words == text.split()
        assert not found.hypotheses[0].repaired


def test_several_models_parse_as_one(requests) -> None:
    one = TreePredictor(Ensemble([requests.model] * 2), requests.problem, requests.features)
    assert one(SENTENCES) == requests(SENTENCES)


def test_a_model_that_rules_things_out_itself_is_searched_too(tmp_path) -> None:
    predictor = predictor_of(Requests(), tmp_path, valid_actions_only=True)
    for text, found in zip(SENTENCES, predictor(SENTENCES), strict=True):
        assert parse_tree(found).words == text.split()


@pytest.mark.parametrize("kind", ["requests", "phrases"])
def test_generated_data_is_decoded_to_trees_and_scored(kind, tmp_path) -> None:
    predictor = predictor_of({"requests": Requests, "phrases": Phrases}[kind](), tmp_path)
    decoded, targets = files.decode_dataset(predictor, tmp_path, Split.EVAL, tmp_path / "d", GREEDY)
    lines = {
        kind: next(tmp_path.glob(f"d*.{kind}")).read_text("utf-8").splitlines()
        for kind in ("decodes", "targets", "inputs")
    }
    assert lines["targets"] == targets and len(targets) == 12
    assert lines["decodes"] == [found.text for found in decoded.predictions]
    for line in (*lines["decodes"], *targets):
        assert parse_tree(line)
    assert [" ".join(parse_tree(line).words) for line in targets] == lines["inputs"]
    if kind == "phrases":
        assert "(S (NP (DT the) (NN dog0)) (VP (VBD saw) (-LRB- -LRB-)))" in targets
    table = text_scores.table(lines["decodes"], targets, text_scores.scores_of(predictor.features))
    assert "bracket F1 = " in table and "malformed = 0.0000 (0 of 12)" in table


class HeldOut(Requests):
    """Requests whose evaluation has words that training has not."""

    name = "made_held_out"

    def generate_samples(self, tmp_dir: Path, split: Split):
        """Yields twelve of them."""
        city = "Oslo" if split is Split.TRAIN else "Tromsø"
        for _ in range(12):
            yield {"targets": f"[IN:GO fly [SL:TO to {city} ] ]"}


def test_words_that_the_vocabulary_lacks_are_written_as_they_are(tmp_path) -> None:
    predictor = predictor_of(HeldOut(), tmp_path)
    _, targets = files.decode_dataset(predictor, tmp_path, Split.EVAL, tmp_path / "d", GREEDY)
    assert targets == ["[IN:GO fly [SL:TO to Tromsø ] ]"] * 12
    for kind in ("decodes", "targets", "inputs"):
        text = next(tmp_path.glob(f"d*.{kind}")).read_text("utf-8")
        assert text.count("Tromsø") == 12
        assert "UNK" not in text
    rows = list(EvaluatedRows(predictor, tmp_path, Split.EVAL, GREEDY))
    assert {row.right["targets"] for row in rows} == {"[IN:GO fly [SL:TO to Tromsø ] ]"}
    assert {" ".join(row.inputs["inputs"]) for row in rows} == {"fly to Tromsø"}


def test_data_without_the_original_words_is_decoded_too(tmp_path, monkeypatch) -> None:
    stored = HeldOut.stored_features
    monkeypatch.setattr(
        HeldOut, "stored_features", lambda *args: dataclasses.replace(stored(*args), kept={})
    )
    generate_data(HeldOut(), tmp_path, tmp_path, num_processes=1, progress=False)
    monkeypatch.undo()
    predictor = predictor_of(HeldOut(), tmp_path)
    _, targets = files.decode_dataset(predictor, tmp_path, Split.EVAL, tmp_path / "d", GREEDY)
    assert targets == ["[IN:GO fly [SL:TO to <UNK> ] ]"] * 12
    assert len(list(EvaluatedRows(predictor, tmp_path, Split.EVAL, GREEDY))) == 12


def test_a_file_of_objects_is_parsed(phrases, tmp_path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given = {"inputs": "the dog1", "tags": "DT NN"}
    source.write_text(json.dumps(given) + "\n", "utf-8")
    files.decode_file(phrases, source, target, DecodeHParams(output_format="jsonl"))
    written = json.loads(target.read_text("utf-8"))
    assert written["input"] == given
    assert parse_tree(written["output"]["targets"]["value"]).words == ["the", "dog1"]
    source.write_text('{"inputs": "the dog1"}\n', "utf-8")
    with pytest.raises(DecodeError, match="has no tags"):
        files.decode_file(phrases, source, target, DecodeHParams())


def test_scores_of_trees_are_those_of_their_counts() -> None:
    right = "[IN:A x [SL:B y ] ]"
    outputs, references = [right, "[IN:A x y ]", "x"], [right] * 3
    names = ("bracket_f1", "tree_f1", "tree_frame_accuracy", "malformed_trees", "exact_match")
    found = {n: s.value for n, s in text_scores.score(outputs, references, names).items()}
    assert found == pytest.approx(
        {
            "bracket_f1": 2 * 3 / (3 + 6),
            "tree_f1": 2 * 2 / (3 + 6),
            "tree_frame_accuracy": 1 / 3,
            "malformed_trees": 1 / 3,
            "exact_match": 1 / 3,
        }
    )


@pytest.mark.parametrize("kind", [Requests, InBytes])
def test_rows_of_a_split_are_parsed_as_their_sentences_are(tmp_path, kind) -> None:
    predictor = predictor_of(kind(), tmp_path)
    rows = list(EvaluatedRows(predictor, tmp_path, Split.EVAL, GREEDY))
    sentences = [row.inputs["inputs"] for row in rows]
    found = [row.records["targets"]["value"] for row in rows]
    assert found == [one.text for one in predictor.predict(sentences, GREEDY)]
