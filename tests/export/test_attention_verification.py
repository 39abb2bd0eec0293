"""An artifact's words have to look where the model's do."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.export.verification import TextComparison, VerificationRow, verify_rows
from t2t_torch.runtime.prediction import Attention, Hypothesis, Prediction

WEIGHTS = ((0.5, 0.5, 0.0), (0.25, 0.25 + 4e-6, 0.5))
EXPECTED = Attention(("a", "b", "c"), ("x", "y"), WEIGHTS)


class _Model:
    """Looks at everything as `EXPECTED` says."""

    hparams = DecodeHParams(write_alignments=True)

    def aligner(self) -> _Model:
        return self

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [[1] for _ in texts]

    def attend(self, ids: list[int], prediction: Prediction) -> Prediction:
        return dataclasses.replace(prediction, attention=EXPECTED)


def looked(
    attention: Any = EXPECTED, pairs: Any = ((0, 0), (2, 1)), **model: Any
) -> tuple[float, int]:
    """What is found of another attention and alignment than the model's."""
    right = Hypothesis("x y", (2, 3), -1.0, alignment=model.get("right", ((0, 0), (2, 1))))
    found = Prediction.of_texts(
        "targets", (dataclasses.replace(right, alignment=pairs),), attention
    )
    predictor: Any = _Model()
    comparison = TextComparison(predictor)
    expected = Prediction.of_texts("targets", (right,), EXPECTED)
    return comparison.attention_gap("a b c", expected, found)


def test_the_same_looks_are_no_apart() -> None:
    assert looked() == (0.0, 0)


def test_the_greatest_difference_of_a_weight_is_told() -> None:
    other = dataclasses.replace(EXPECTED, weights=((0.5, 0.5, 0.0), (0.25, 0.25, 0.375)))
    assert looked(other) == (0.125, 0)


def test_words_of_equal_weights_may_be_aligned_otherwise() -> None:
    assert looked(pairs=((1, 0), (2, 1))) == (0.0, 1)
    assert looked(pairs=((1, 0), (1, 1)), right=((0, 0), (0, 1))) == (0.0, 2)


@pytest.mark.parametrize("pairs", [((0, 0), (0, 1)), ((0, 0),), ((0, 1), (2, 0)), ()])
def test_other_alignments_are_no_ties(pairs: Any) -> None:
    assert looked(pairs=pairs)[0] == math.inf


@pytest.mark.parametrize(
    "changes",
    [
        {"read": ("a", "b", "d")},
        {"written": ("x", "z")},
        {"weights": ((math.nan, 0.5, 0.0), WEIGHTS[1])},
    ],
)
def test_other_words_and_no_numbers_are_infinitely_apart(changes: dict[str, Any]) -> None:
    assert looked(dataclasses.replace(EXPECTED, **changes))[0] == math.inf
    assert looked(None)[0] == math.inf


def test_a_word_of_equal_weights_is_counted_once() -> None:
    texts = ["a b c", "a", "c"]
    right = Prediction.of_texts(
        "targets", (Hypothesis("x y", (2, 3), -1.0, alignment=((0, 0), (2, 1))),)
    )

    class Told(_Model):
        def predict(self, asked: list[str]) -> list[Prediction]:
            return [right] * len(asked)

    class Artifact:
        def attend(self, asked: list[str]) -> list[Prediction]:
            """Aligns a word otherwise: of the first alone and with others, of the second alone."""
            return [
                Prediction.of_texts(
                    "targets",
                    (dataclasses.replace(right.hypotheses[0], alignment=pairs),),
                    EXPECTED,
                )
                for pairs in (
                    ((1, 0), (2, 1))
                    if text == texts[0] or (text == texts[1] and len(asked) == 1)
                    else ((0, 0), (2, 1))
                    for text in asked
                )
            ]

    model: Any = Told()
    artifact: Any = Artifact()
    rows = [VerificationRow(f"row {n}", {"inputs": text}, n) for n, text in enumerate(texts)]
    verified = verify_rows(TextComparison(model), artifact, rows)
    assert (verified.looks, verified.ties, verified.attention) == (2, 0, 0.0)
