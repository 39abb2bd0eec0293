"""Numbers of a network become what users read."""

import numpy as np
import onnxruntime
import pytest

from t2t_torch.errors import ExportError
from t2t_torch.export.answers import add_answers
from t2t_torch.export.graph import Graph
from t2t_torch.features import Choice, ClassLabel, Features, MultiLabel, Real, SoftLabel, Span, Tags
from t2t_torch.text.encoder import ClassLabelEncoder

LABELS = ClassLabelEncoder(["no", "yes", "maybe"])


def answers(target, given):
    """What a graph says of a target "t" whose parts have these values."""
    graph, feeds, found = Graph(), {}, {}
    for part, value in given.items():
        values = np.asarray(value)
        values = values.astype({"f": "float32", "i": "int64"}.get(values.dtype.kind, values.dtype))
        found[f"t.{part}"] = graph.input(part, str(values.dtype), [None] * values.ndim)
        feeds[part] = values
    add_answers(graph, Features({}, {"t": target}), found)
    session = onnxruntime.InferenceSession(graph.model().SerializeToString())
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, (one.tolist() for one in session.run(None, feeds)), strict=True))


@pytest.mark.parametrize(
    ("target", "labels"),
    [(ClassLabel(LABELS), ["yes", "no"]), (Choice(("left", "right")), ["right", "left"])],
)
def test_a_class_and_a_choice_have_a_name(target, labels):
    given = {"numbers": [[1], [0]], "probability": [0.75, 0.5], "scores": [[0.25, 0.75]] * 2}
    assert answers(target, given) == {
        "t": labels,
        "t_probability": [0.75, 0.5],
        "t_scores": [[0.25, 0.75]] * 2,
    }


def test_tags_are_empty_behind_a_sentence():
    given = {"numbers": [[2, 1], [1, 2]], "mask": [[True, True], [True, False]]}
    assert answers(Tags(LABELS, "words"), given) == {"t": [["maybe", "yes"], ["yes", ""]]}


def test_of_several_labels_those_that_are_there_are_true():
    assert answers(MultiLabel(LABELS), {"numbers": [[1, 0, 1]]})["t"] == [[True, False, True]]


@pytest.mark.parametrize("feature", [Real(2), Real(2, mean=(1.0, 4.0), std=(2.0, 0.5))])
def test_numbers_have_their_own_scale(feature):
    found = answers(feature, {"numbers": [[0.5, -2.0]]})["t"]
    assert found == [pytest.approx(feature.decode([0.5, -2.0]))]


def test_a_distribution_stays_one():
    assert answers(SoftLabel(LABELS), {"numbers": [[0.25, 0.25, 0.5]]})["t"] == [[0.25, 0.25, 0.5]]


def test_a_span_is_refused():
    with pytest.raises(ExportError, match="Span"):
        answers(Span(), {"numbers": [[0, 1]]})
