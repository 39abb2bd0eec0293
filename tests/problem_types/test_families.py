"""Families: from samples to batches to a loss that falls, with the model that fits by default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError, HParamsError, RegistryError, UsageError
from t2t_torch.features import IGNORED, UNKNOWN
from t2t_torch.loss import total_loss
from t2t_torch.mode import Split
from t2t_torch.problem import Problem, metric_names
from t2t_torch.problem_types.classification import (
    MultiTurn2ClassProblem,
    PairRankingProblem,
    QueryRelevanceProblem,
    Text2ClassProblem,
    Text2MultiLabelProblem,
    Text2RealProblem,
    TextPair2ClassProblem,
    TextPair2RealProblem,
)
from t2t_torch.problem_types.images import Image2ClassProblem
from t2t_torch.problem_types.mixture import MixtureProblem
from t2t_torch.problem_types.text2text import QuestionContext2TextProblem
from t2t_torch.problem_types.words import (
    IntentSlotProblem,
    SpanQAProblem,
    Text2TagsProblem,
    Text2TreeProblem,
    tokens_of,
)
from t2t_torch.testing import check_problem, small
from t2t_torch.text.encoder import WordCutter
from t2t_torch.text_problem import Text2SelfProblem, Text2TextProblem, VocabType
from t2t_torch.train.problem_task import ProblemTask

CITIES = ("Boston", "Denver", "Oslo")


def problem(family: type[Problem], sample: Any, **attributes: Any) -> Problem:
    """A problem of a family whose sample number i is `sample(i, split)`."""

    def generate_samples(self: Any, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        return (sample(i, split) for i in range(24 if split is Split.TRAIN else 9))

    name = f"made_{family.__name__.lower()}"
    shards = {Split.TRAIN: 2, Split.EVAL: 1}
    body = {"name": name, "shards": shards, "generate_samples": generate_samples, **attributes}
    return type(name, (family,), body)()


def request(i: int, split: Split) -> dict[str, Any]:
    city = CITIES[i % 3]
    return {
        "inputs": ["fly", "to", city, "on", str(i)],
        "intent": "flight" if i % 2 else "fare",
        "slots": ["O", "O", "B-city", "O", "B-day"],
        "gazetteer": [{}, {}, {"city": 0.9, "name": 0.5}, {}, {}],
        "word_dense": [[0.5 * i, float(place)] for place in range(5)],
        "dense": [float(i), 2.0],
        "weight": 1.0 + i,
    }


def only(*fields: str) -> Any:
    return lambda i, split: {field: request(i, split)[field] for field in fields}


SUBWORDS = {"approx_vocab_size": 300}
BYTES = {"vocab_type": VocabType.CHARACTER}
WORDS = {"vocab_type": VocabType.WORD}
ALL_OF_WORDS = {"word_characters": 4, "word_bytes": 5, "word_shape": True, "gazetteer": True}

MADE = {
    "text2text": problem(
        Text2TextProblem, lambda i, s: {"inputs": f"a {i}", "targets": f"b {i}"}, **BYTES
    ),
    "text2self": problem(Text2SelfProblem, lambda i, s: {"targets": f"line {i}"}, **BYTES),
    "text2class": problem(
        Text2ClassProblem,
        lambda i, s: {
            "inputs": CITIES[i % 3],
            "targets": str(i % 3),
            "dense": [1.0 * i],
            "weight": 0.5,
        },
        dense_size=1,
        row_weight=True,
        **SUBWORDS,
    ),
    "text2class, soft": problem(
        Text2ClassProblem,
        lambda i, s: {"inputs": CITIES[i % 2], "targets": {"a": 0.25, "b": 0.75}},
        soft_labels=True,
        class_labels=("a", "b"),
        **BYTES,
    ),
    "text2multilabel": problem(
        Text2MultiLabelProblem,
        lambda i, s: {"inputs": CITIES[i % 3], "targets": ["x", "y", "z"][: i % 3]},
        **WORDS,
    ),
    "textpair2class": problem(
        TextPair2ClassProblem,
        lambda i, s: {
            "first": CITIES[i % 3],
            "second": CITIES[i % 2],
            "targets": str(i % 3 == i % 2),
        },
        **BYTES,
    ),
    "textpair2real": problem(
        TextPair2RealProblem,
        lambda i, s: {"first": CITIES[i % 3], "second": "x" * (i % 4), "targets": i % 4},
        **BYTES,
    ),
    "text2real": problem(
        Text2RealProblem,
        lambda i, s: {"inputs": "x" * (1 + i % 4), "targets": [i % 4, 1.0]},
        target_size=2,
        **BYTES,
    ),
    "text2tags": problem(
        Text2TagsProblem,
        lambda i, s: {"inputs": request(i, s)["inputs"], "targets": request(i, s)["slots"]},
    ),
    "intentslot, words": problem(
        IntentSlotProblem,
        only("inputs", "intent", "slots", "gazetteer", "word_dense", "dense", "weight"),
        dense_size=2,
        word_dense_size=2,
        row_weight=True,
        **ALL_OF_WORDS,
    ),
    "intentslot, subwords": problem(
        IntentSlotProblem,
        only("inputs", "intent", "slots", "gazetteer"),
        vocab_type=VocabType.SUBWORD,
        approx_vocab_size=290,
        **ALL_OF_WORDS,
    ),
    "intentslot, bytes": problem(IntentSlotProblem, only("inputs", "intent", "slots"), **BYTES),
    "pairranking": problem(
        PairRankingProblem,
        lambda i, s: {"query": CITIES[i % 3], "positive": CITIES[i % 3] * 2, "negative": "no"},
        **BYTES,
    ),
    "queryrelevance": problem(
        QueryRelevanceProblem,
        lambda i, s: {"query": CITIES[i % 3], "document": CITIES[i % 2], "targets": str(i % 2)},
        **BYTES,
    ),
    "spanqa": problem(
        SpanQAProblem,
        lambda i, s: {
            "question": "Which city?",
            "context": f"They went to {CITIES[i % 3]}, by car.",
            "answers": [{"text": CITIES[i % 3], "start": 13}] if i % 4 else [],
        },
    ),
    "text2tree": problem(
        Text2TreeProblem, lambda i, s: {"targets": f"[IN:GO go to [SL:CITY {CITIES[i % 3]} ] ]"}
    ),
    "multiturn2class": problem(
        MultiTurn2ClassProblem,
        lambda i, s: {"inputs": ["hello", CITIES[i % 3]], "targets": str(i % 3)},
        **BYTES,
    ),
    "image2class": problem(
        Image2ClassProblem,
        lambda i, s: {
            "inputs": np.arange(784).astype(np.uint8).reshape(28, 28, 1) << i % 3,
            "targets": str(i % 3),
        },
        class_labels=("0", "1", "2"),
    ),
    "questioncontext2text": problem(
        QuestionContext2TextProblem,
        lambda i, s: {"inputs": "which?", "context": CITIES[i % 3], "targets": CITIES[i % 3]},
        **BYTES,
    ),
}


def task_of(made: Problem, data_dir: Path) -> ProblemTask:
    flags = dict(part.split("=", 1) for part in made.suggested_flags.split())
    model = registry.model(flags["--model"])
    hparams = small(registry.hparams(flags["--hparams_set"])).parse(flags.get("--hparams", ""))
    hparams = hparams.replace(layer_prepostprocess_dropout=0.0, symbol_dropout=0.0)
    return ProblemTask(made, model, hparams, data_dir=data_dir, vocab_dir=data_dir)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", MADE)
def test_a_family_goes_from_samples_to_a_loss_that_falls(kind: str, tmp_path: Path) -> None:
    made = MADE[kind]
    manifest = generate_data(made, tmp_path, tmp_path / "raw", num_processes=1, progress=False)
    assert manifest.splits["train"].rows == 24
    task = task_of(made, tmp_path)
    torch.manual_seed(0)
    model = task.model().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = iter(task.train_batches(seed=1, start=0, rank=0, world_size=1))
    losses = []
    for _ in range(30):
        batch = next(batches)
        loss = total_loss(model(batch))
        (loss.sum / loss.weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.sum / loss.weight).item())
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])
    model.eval()
    evaluator = task.evaluator()
    with torch.no_grad():
        for batch in task.eval_batches(Split.EVAL, rank=0, world_size=1):
            evaluator.update(model(batch), batch)
    results = evaluator.result()
    named = {name for target in task.features.targets for name in metric_names(made, target)}
    together = {"exact_match"} if len(task.features.targets) > 1 else set()  # all targets right
    assert {name.split("/")[-1] for name in results} == named | {"loss"} | together
    assert np.isfinite(list(results.values())).all()


@pytest.mark.parametrize("kind", MADE)
def test_a_family_holds_the_contract(kind: str, tmp_path: Path) -> None:
    check_problem(MADE[kind], tmp_path, tmp_path)


@pytest.mark.parametrize("kind", MADE)
def test_a_model_that_cannot_learn_the_targets_says_so(kind: str, tmp_path: Path) -> None:
    made = MADE[kind]
    made.build_vocab(tmp_path, tmp_path)
    features = made.features(tmp_path)
    text = all(feature.generates for feature in features.targets.values())
    wrong = registry.model("transformer_encoder" if text else "transformer")
    with pytest.raises(HParamsError, match="produces"):
        wrong(wrong.HParams(), features)


def test_halves_of_a_batch_give_the_loss_of_the_whole_also_of_several_targets(tmp_path: Path):
    made = MADE["intentslot, words"]
    generate_data(made, tmp_path, tmp_path / "raw", num_processes=1, progress=False)
    model = task_of(made, tmp_path).model().eval()  # no dropout
    batch = next(iter(task_of(made, tmp_path).eval_batches(Split.EVAL, rank=0, world_size=1)))
    batch["slots"][0, 1:] = IGNORED  # sentences of other lengths
    whole = total_loss(model(batch))
    parts = [total_loss(model({n: x[i::2] for n, x in batch.items()})) for i in (0, 1)]
    torch.testing.assert_close(sum(part.sum for part in parts), whole.sum)
    torch.testing.assert_close(sum(part.weight for part in parts), whole.weight)
    assert whole.weight.item() == pytest.approx(batch["weight"].sum().item())


def test_labels_that_only_evaluation_data_has_are_wrong_and_do_not_fail(tmp_path: Path) -> None:
    made = problem(
        Text2ClassProblem,
        lambda i, split: {"inputs": "x", "targets": "old" if split is Split.TRAIN else "new"},
        **BYTES,
    )
    generate_data(made, tmp_path, tmp_path, num_processes=1, progress=False)
    values, _ = Shards.open(tmp_path, made.name, Split.EVAL).column("targets")[0]
    assert set(values.tolist()) == {UNKNOWN}


def test_a_label_that_is_not_among_the_given_ones_is_refused(tmp_path: Path) -> None:
    made = problem(
        Text2ClassProblem,
        lambda i, split: {"inputs": "x", "targets": "c"},
        class_labels=("a", "b"),
        **BYTES,
    )
    with pytest.raises(DataError, match="'c' is no label; the labels are"):
        generate_data(made, tmp_path, tmp_path, num_processes=1, progress=False)


def test_tags_that_are_not_one_for_each_word_are_refused(tmp_path: Path) -> None:
    made = problem(Text2TagsProblem, lambda i, s: {"inputs": ["a", "b"], "targets": ["O"]})
    with pytest.raises(DataError, match="2 words and 1 targets"):
        generate_data(made, tmp_path, tmp_path, num_processes=1, progress=False)


def test_numbers_are_standardized_by_what_training_has(tmp_path: Path) -> None:
    made = MADE["intentslot, words"]
    generate_data(made, tmp_path, tmp_path, num_processes=1, progress=False)
    shards = Shards.open(tmp_path, made.name, Split.TRAIN)
    dense = np.concatenate([values.reshape(-1, 2) for values, _ in shards.column("dense")])
    np.testing.assert_allclose(dense.mean(0), [0, 0], atol=1e-6)
    np.testing.assert_allclose(dense.std(0), [1, 0], atol=1e-6)  # the second never varies
    feature = made.features(tmp_path).all["dense"]
    np.testing.assert_allclose(feature.decode(feature.encode([3.0, 2.0])), [3.0, 2.0])


def test_a_long_context_becomes_windows_that_overlap() -> None:
    made = problem(SpanQAProblem, lambda i, s: {}, max_context=4, context_stride=3)
    context = "one two three four five six seven"
    sample = {"question": "?", "context": context, "answers": [{"text": "five six", "start": 19}]}
    windows = list(made.examples_of(sample))
    assert [" ".join(window["context"]) for window in windows] == [
        "one two three four",
        "four five six seven",
    ]
    assert [window["targets"] for window in windows] == [None, (1, 2)]


def test_an_answer_that_is_not_where_it_is_said_to_be_is_refused() -> None:
    made = MADE["spanqa"]
    sample = {"question": "?", "context": "a b", "answers": [{"text": "b", "start": 0}]}
    with pytest.raises(DataError, match="not at character 0"):
        list(made.examples_of(sample))


def test_every_character_of_a_text_is_in_a_token_or_is_a_space() -> None:
    text = "Don't pay $3.50, ok? 猫\u00a0x"
    covered = {i for token in tokens_of(text) for i in range(token.start, token.end)}
    assert all(text[i].isspace() for i in range(len(text)) if i not in covered)


def test_a_mixture_has_no_data_of_its_own(tmp_path: Path) -> None:
    class Mixed(MixtureProblem):
        name = "mixed"
        problem_names = ("algorithmic_identity_binary40", "algorithmic_reverse_binary40")
        mixing_schedule = "step @0 .5 .5"

    mixed = Mixed()
    assert mixed.features(tmp_path).inputs["inputs"].vocab_size == 4
    with pytest.raises(UsageError, match="t2t-datagen --problem=algorithmic_identity_binary40,"):
        generate_data(mixed, tmp_path, tmp_path, num_processes=1, progress=False)
    with pytest.raises(UsageError, match="_rev or _copy"):
        Mixed(reverse=True)


def test_words_of_lower_case_keep_their_capitals_in_what_is_known_of_them(tmp_path: Path) -> None:
    made = problem(
        Text2TagsProblem,
        lambda i, split: {"inputs": ["Fly", "fly", "FLY", "Oslo"], "targets": ["a"] * 4},
        lower_case_words=True,
        word_characters=4,
    )
    made.build_vocab(tmp_path, tmp_path)
    inputs = made.features(tmp_path).inputs
    words, letters = inputs["inputs"], inputs["inputs_characters"]
    assert words.decode(words.encode(["Fly", "FLY", "OSLO", "fly"])) == [
        "fly",
        "fly",
        "oslo",
        "fly",
    ]
    assert letters.decode(letters.encode(["Fly", "FLY"])) == ["Fly", "FLY"]


@pytest.mark.parametrize("family", [SpanQAProblem, Text2TreeProblem, Text2TagsProblem])
def test_texts_that_are_words_are_not_cut_and_cutters_of_them_are_refused(
    family: type[Problem],
) -> None:
    with pytest.raises(RegistryError, match="'cut' names `cutters` of inputs, but") as refused:
        problem(family, {}, name="cut", cutters={"inputs": WordCutter()})
    assert "Leave `cutters` out" in str(refused.value)
