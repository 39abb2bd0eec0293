"""What stands beside numbers in a line, in a graph."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from t2t_torch.export.graph import Graph, before_each, following, latest, places, shifted


def asked(make, values):
    graph = Graph()
    given = np.array(values, bool if values and isinstance(values[0], bool) else np.int64)
    made = make(graph.input("given", str(given.dtype), ["n"]))
    graph.output("made", made, "int64", ["m"])
    session = onnxruntime.InferenceSession(
        graph.model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"given": given})[0].tolist()


@pytest.mark.parametrize(
    ("by", "expected"),
    [(1, [5, 6, 9]), (2, [6, 9, 9]), (5, [9, 9, 9]), (-1, [9, 4, 5]), (-4, [9, 9, 9])],
)
def test_a_line_is_shifted(by, expected):
    assert asked(lambda line: shifted(line, by, 9), [4, 5, 6]) == expected


def test_the_nearest_that_is_true_is_found_on_either_side():
    flags = [False, True, False, False, True, False]
    assert asked(latest, flags) == [-1, 1, 1, 1, 4, 4]
    assert asked(following, flags) == [1, 4, 4, 4, 6, 6]


def test_sums_and_places_are_those_of_each():
    assert asked(before_each, [2, 0, 3]) == [0, 2, 2, 5]
    assert asked(places, [7, 7, 7]) == [0, 1, 2]
    assert asked(before_each, []) == [0]
    assert asked(places, []) == []
