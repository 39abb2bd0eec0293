"""Answers that stand in for one another, as a model takes them for equally probable."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from t2t_torch.errors import ExportError
from t2t_torch.export.verification import (
    LabelComparison,
    VerificationRow,
    Verified,
    is_a_tie,
    verify_rows,
)
from t2t_torch.features import ClassLabel, Features, Span, Words
from t2t_torch.problem_types.words import SpanQAProblem
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.text.encoder import ClassLabelEncoder, TokenEncoder

SAMPLE = {"question": "who", "context": "she and he, or she and  it"}


class Asked(SpanQAProblem):
    """Questions about texts of six words, which overlap by three."""

    name = "asked"
    max_context = 6
    context_stride = 3

    def generate_samples(self, tmp_dir, split):
        """Yields nothing."""
        return iter(())


def predictor_of(chances: list[list[tuple[float, float]]]) -> Any:
    """Returns what has found these probabilities of first and last words, the first of none."""
    width = max(map(len, chances))
    filled = [[*window, *[(0.0, 0.0)] * (width - len(window))] for window in chances]
    logits = torch.tensor(filled).clamp(min=1e-30).log()
    words = Words(TokenEncoder(["unk"], replace_oov="unk"))
    targets = {"targets": Span("context"), "kind": ClassLabel(ClassLabelEncoder(["x", "y"]))}
    return SimpleNamespace(
        problem=Asked(),
        features=Features({"question": words, "context": words}, targets),
        batch_of=lambda samples: samples,
        model=SimpleNamespace(logits=lambda batch: {"targets": logits}),
    )


def answer(text: str, probability: float, kind: str = "x") -> Prediction:
    return Prediction({"targets": text, "kind": kind}, {"targets": probability})


def window(none: float, **ends: tuple[float, float]) -> list[tuple[float, float]]:
    """Returns the probabilities of a window: of its words by their numbers."""
    places = {int(name[1:]): its for name, its in ends.items()}
    return [(none, none), *(places.get(number, (0.0, 0.0)) for number in range(6))]


def sure(predictor: Any, number: int, first: int, last: int) -> float:
    """Returns how probable an answer of a window is, from word to word; -1 is none."""
    shares = predictor.model.logits(None)["targets"][number].softmax(0)
    return float(shares[1 + first, 0] * shares[1 + last, 1])


def test_two_parts_of_a_text_may_stand_for_one_another() -> None:
    near = 0.4 * (1 + 2e-5)
    predictor = predictor_of([window(0.1, w0=(0.4, 0.0), w2=(near, 0.4)), window(0.9)])
    chance = sure(predictor, 0, 0, 2)
    first, other = answer("she and he", chance), answer("he", chance)
    assert is_a_tie(predictor, SAMPLE, first, other)
    assert is_a_tie(predictor, SAMPLE, other, first)
    for found in (
        answer("he", chance + 0.01),
        answer("he", chance, kind="y"),
        answer("she", 0.0),
        answer("nowhere", chance),
        answer("", sure(predictor, 0, -1, -1)),
    ):
        assert not is_a_tie(predictor, SAMPLE, first, found)


def test_the_same_words_may_be_found_in_another_window() -> None:
    windows = [window(0.1, w5=(0.5, 0.5)), window(0.1, w4=(0.5 * (1 + 2e-5), 0.5))]
    predictor = predictor_of(windows)  # the sixth word, and the eighth
    found = answer("it", sure(predictor, 1, 4, 4))
    assert is_a_tie(predictor, SAMPLE, answer("she", sure(predictor, 0, 5, 5)), found)


def test_an_answer_may_stand_for_none() -> None:
    even = predictor_of([window(0.4, w2=(0.4, 0.4)), window(0.9)])
    found, none = (answer(text, sure(even, 0, 2, 2)) for text in ("he", ""))
    assert is_a_tie(even, SAMPLE, found, none) and is_a_tie(even, SAMPLE, none, found)
    surer = predictor_of([window(0.4, w2=(0.41, 0.41)), window(0.9)])
    found, none = answer("he", sure(surer, 0, 2, 2)), answer("", sure(surer, 0, -1, -1))
    assert not is_a_tie(surer, SAMPLE, found, none)


def test_spaces_are_part_of_what_is_compared() -> None:
    last = predictor_of([window(0.9), window(0.1, w2=(0.6, 0.0), w3=(0.6, 0.0), w4=(0.0, 0.6))])
    chance = sure(last, 1, 2, 4)
    found = answer("she and  it", chance)
    assert is_a_tie(last, SAMPLE, found, answer("and  it", chance))
    assert not is_a_tie(last, SAMPLE, found, answer("and it", chance))


def test_what_has_no_parts_of_texts_has_no_ties() -> None:
    other: Any = SimpleNamespace(problem=None, features=Features({}, {}))
    assert not is_a_tie(other, {}, Prediction({}, {}), Prediction({}, {}))


def verified(own: int, made_up: int, places: list[int], **changes: Any) -> Verified:
    """Verifies what finds "he" at some places where the model finds "she and he", as probable."""
    near = 0.4 * (1 + 2e-5)
    model = predictor_of([window(0.1, w0=(0.4, 0.0), w2=(near, 0.4)), window(0.9)])
    chance = sure(model, 0, 0, 2)
    scores = {"kind": {"x": 0.75, "y": 0.25}}
    right = Prediction({"targets": "she and he", "kind": "x"}, {"targets": chance}, scores)
    other = dataclasses.replace(right, values={"targets": "he", "kind": "x"}, **changes)
    samples: list[Any] = [{**SAMPLE, "question": str(n)} for n in range(own + made_up)]
    asked = [samples[place] for place in places]

    def answers(inputs: list[Any]) -> list[Prediction]:
        return [other if sample in asked else right for sample in inputs]

    model.predict = lambda inputs: [right] * len(inputs)
    artifact: Any = SimpleNamespace(predict=answers)
    numbers = [*range(own), *[-1] * made_up]
    rows = [
        VerificationRow(f"row {n}", sample, n) for n, sample in zip(numbers, samples, strict=True)
    ]
    return verify_rows(LabelComparison(model), artifact, rows)


def test_few_rows_of_the_data_may_be_ties() -> None:
    assert verified(40, 4, [3, 7, 40, 41, 42, 43]).ties == 6  # two of the data
    expected = (
        r"for 3 of 40 rows, where rounding changes a few; the first is row 3: {\"question\": "
    )
    with pytest.raises(ExportError, match=expected):
        verified(40, 4, [3, 7, 20])
    with pytest.raises(ExportError, match="for 20 of 20 rows"):
        verified(20, 0, list(range(20)))


def test_of_a_tie_all_else_is_compared() -> None:
    nearly = {"kind": {"x": 0.75 - 2e-5, "y": 0.25 + 2e-5}}
    assert verified(40, 0, [5], scores=nearly).difference == pytest.approx(2e-5)
    with pytest.raises(ExportError, match="does not answer as the model does, run alone: row 5"):
        verified(40, 0, [5], scores={"kind": {"x": 0.7, "y": 0.3}})
