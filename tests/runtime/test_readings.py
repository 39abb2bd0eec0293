"""From a graph's tensors to texts with their scores."""

from __future__ import annotations

import numpy as np

from t2t_torch.features import OutputSpec
from t2t_torch.runtime.feeds import predictions_of


def found(texts, scores, ids):
    outputs = {
        "t": np.array(texts, object),
        "t_scores": np.array(scores, np.float32),
        "t_ids": np.array(ids, np.int64),
    }
    return predictions_of(OutputSpec("t", "text", size=len(texts[0])), outputs)


def test_hypotheses_come_best_first_with_what_the_model_wrote():
    (prediction,) = found([["a b", "a"]], [[-0.5, -1.5]], [[[5, 6, 1], [5, 1, 0]]])
    assert [(one.text, one.score, one.ids) for one in prediction.hypotheses] == [
        ("a b", -0.5, (5, 6)), ("a", -1.5, (5,)),
    ]  # fmt: skip
    assert (prediction.text, prediction.value, prediction.score) == ("a b", "a b", -0.5)


def test_an_output_that_did_not_end_is_told_to_its_limit_without_padding():
    (prediction,) = found([["abc"]], [[-2.0]], [[[5, 0, 7, 0, 0]]])
    assert prediction.hypotheses[0].ids == (5, 0, 7)


def test_places_that_nothing_filled_are_left_out_but_never_all():
    (prediction,) = found([["a", ""]], [[-0.5, -1e7]], [[[5, 1], [0, 0]]])
    assert len(prediction.hypotheses) == 1
    (prediction,) = found([["", ""]], [[-1e7, -1e7]], [[[0, 0], [0, 0]]])
    assert [one.text for one in prediction.hypotheses] == [""]


def test_each_row_has_its_own():
    rows = found([["a"], ["b"]], [[-1.0], [-2.0]], [[[5, 1]], [[6, 1]]])
    assert [row.text for row in rows] == ["a", "b"]
