"""Problems with a target of each kind, whose data takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.features import Choice, ClassLabel, MultiLabel, Real, SoftLabel, Span, Tags, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.problem_types.classification import (
    PairRankingProblem,
    Text2ClassProblem,
    Text2MultiLabelProblem,
    Text2RealProblem,
)
from t2t_torch.problem_types.words import IntentSlotProblem, SpanQAProblem, Text2TagsProblem
from t2t_torch.text_problem import Text2TextProblem, VocabType
from t2t_torch.train.problem_task import ProblemTask

BYTES = {"vocab_type": VocabType.CHARACTER}
WORDS = ("red", "green", "blue")


def _question(i: int) -> dict[str, Any]:
    word = WORDS[i % 3]
    context = f"the sky is {word} today"
    answers = [{"text": word, "start": context.index(word)}]
    return {"question": "what ?", "context": context, "answers": answers}


MADE: dict[Any, tuple[type[Problem], Callable[[int], dict[str, Any]], dict[str, Any]]] = {
    Text: (Text2TextProblem, lambda i: {"inputs": f"a {i}", "targets": f"b {i}"}, BYTES),
    # Of 24 rows 16 are "a", 5 "b" and 3 "c".
    ClassLabel: (
        Text2ClassProblem,
        lambda i: {"inputs": WORDS[(i > 15) + (i > 20)], "targets": "abc"[(i > 15) + (i > 20)]},
        BYTES,
    ),
    SoftLabel: (
        Text2ClassProblem,
        lambda i: {"inputs": WORDS[i % 2], "targets": {"a": 0.25, "b": 0.75}},
        {"soft_labels": True, "class_labels": ("a", "b"), **BYTES},
    ),
    # Of 24 rows 16 have "x", 8 "y", none "z".
    MultiLabel: (
        Text2MultiLabelProblem,
        lambda i: {"inputs": WORDS[i % 3], "targets": ["x", "y"][: i % 3]},
        {"class_labels": ("x", "y", "z"), **BYTES},
    ),
    Real: (
        Text2RealProblem,
        lambda i: {"inputs": "x" * (1 + i % 4), "targets": [i % 4, 1.0]},
        {"target_size": 2, **BYTES},
    ),
    # Of 60 tags 24 are "O", 24 "B-x", 12 "I-x".
    Tags: (
        Text2TagsProblem,
        lambda i: {
            "inputs": ["go", "to", "it"][: 2 + i % 2],
            "targets": ["O", "B-x", "I-x"][: 2 + i % 2],
        },
        {},
    ),
    Choice: (
        PairRankingProblem,
        lambda i: {"query": WORDS[i % 3], "positive": WORDS[i % 3], "negative": "no"},
        BYTES,
    ),
    Span: (SpanQAProblem, _question, {}),
    "joint": (
        IntentSlotProblem,
        lambda i: {
            "inputs": ["go", "to", WORDS[i % 3]],
            "intent": "move" if i % 4 else "stay",
            "slots": ["O", "O", "B-place"],
        },
        {},
    ),
}


def problem(kind: Any) -> Problem:
    """A problem with a target of a kind."""
    family, sample, attributes = MADE[kind]

    def generate_samples(self: Any, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        return (sample(i) for i in range(24 if split is Split.TRAIN else 6))

    name = f"made_{kind if isinstance(kind, str) else kind.__name__.lower()}"
    shards = {Split.TRAIN: 2, Split.EVAL: 1}
    body = {"name": name, "shards": shards, "generate_samples": generate_samples, **attributes}
    return type(name, (family,), body)()


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of all problems."""
    folder = tmp_path_factory.mktemp("data")
    for kind in MADE:
        generate_data(problem(kind), folder, folder, num_processes=1, progress=False)
    return folder


@pytest.fixture
def make_task(data_dir: Path) -> Callable[..., ProblemTask]:
    """Makes a task with a target of a kind; hparams as a string."""

    def make(kind: Any, hparams: str = "", model: str = "") -> ProblemTask:
        name = model or ("transformer" if kind is Text else "transformer_encoder")
        chosen = "transformer_test" if name == "transformer" else "transformer_encoder_tiny"
        small = (
            "batch_size=512,hidden_size=16,filter_size=16,label_smoothing=0,"
            "learning_rate_schedule=constant,learning_rate_constant=0.01"
        )
        return ProblemTask(
            problem(kind),
            registry.model(name),
            registry.hparams(chosen).parse(small).parse(hparams),
            data_dir=data_dir,
            vocab_dir=data_dir,
        )

    return make
