from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, Features, Tags, Text
from t2t_torch.hooks import confusion_matrix
from t2t_torch.hooks.confusion_matrix import ConfusionMatrix
from t2t_torch.modality import BatchPrediction
from t2t_torch.mode import Split
from t2t_torch.model import Output
from t2t_torch.reports import plots
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder
from t2t_torch.train.summary import Summary

pytest.importorskip("matplotlib")

FEATURES = Features(
    {"inputs": Text(ByteEncoder())},
    {
        "class": ClassLabel(ClassLabelEncoder(["no", "yes"]), allow_unknown=True),
        "tags": Tags(ClassLabelEncoder(["O", "PER", "LOC"])),
    },
)


class BestOf(nn.Module):
    def predict(self, logits):
        return BatchPrediction(logits.argmax(-1).view(len(logits), -1))


class Model(nn.Module):
    """Says what the batch tells it to."""

    def __init__(self):
        super().__init__()
        self.modalities = {"class": BestOf(), "tags": BestOf()}

    def forward(self, batch):
        sizes = {"class": 2, "tags": 3}
        logits = {n: nn.functional.one_hot(batch[f"said_{n}"], size) for n, size in sizes.items()}
        return Output(logits, {})


@pytest.fixture
def estimator(tmp_path):
    return SimpleNamespace(
        model=Model().eval(),
        task=SimpleNamespace(name="a_problem", features=FEATURES),
        world=ONE_PROCESS,
        state=SimpleNamespace(step=1000),
        summary=Summary(tmp_path, leads=True),
    )


@pytest.fixture
def drawn(monkeypatch):
    """What `heat_maps` is given, by the target."""
    result = {}

    def draw(matrices, *, title, **kwargs):
        result[title.split()[0]] = {"matrices": matrices, "title": title, **kwargs}
        return plots.heat_maps(matrices, title=title, **kwargs)

    monkeypatch.setattr(confusion_matrix, "heat_maps", draw)
    return result


BATCHES = [
    {
        "class": torch.tensor([0, 0, 1, -1]),  # the last is unknown: it counts nowhere
        "said_class": torch.tensor([0, 1, 1, 0]),
        "tags": torch.tensor([[0, 1, -100], [2, -1, 0], [1, -100, -100], [0, 0, 0]]),
        "said_tags": torch.tensor([[0, 2, 2], [2, 2, 0], [1, 0, 0], [0, 0, 0]]),
    },
    {
        "class": torch.tensor([0]),
        "said_class": torch.tensor([0]),
        "tags": torch.tensor([[1]]),
        "said_tags": torch.tensor([[0]]),
    },
]


def evaluate(estimator, hook, batches):
    hook.before_evaluation(estimator, Split.EVAL)
    for batch in batches:
        estimator.model(batch)
    hook.after_evaluation(estimator, Split.EVAL, {})


def test_every_class_and_tag_is_counted_once(estimator, drawn, tmp_path):
    hook = ConfusionMatrix()
    hook.begin(estimator)
    evaluate(estimator, hook, BATCHES)
    assert drawn["class"]["numbers"] == [["2", "1"], ["", "1"]]
    assert drawn["tags"]["numbers"] == [["5", "", ""], ["1", "1", "1"], ["", "", "1"]]
    (shares,) = drawn["class"]["matrices"]
    np.testing.assert_allclose(shares, [[2 / 3, 1 / 3], [0, 1]])
    assert drawn["tags"]["rows"] == drawn["tags"]["columns"] == ["O", "PER", "LOC"]
    assert drawn["class"]["title"] == "class of dev, step 1,000: 75.0% of 4 are right"
    files = sorted(path.name for path in (tmp_path / "figures" / "confusion_matrix").iterdir())
    assert files == ["class.png", "tags.png"]


def test_an_evaluation_that_was_broken_off_counts_nowhere(estimator, drawn):
    hook = ConfusionMatrix()
    hook.before_evaluation(estimator, Split.EVAL)
    estimator.model(BATCHES[0])  # and then a signal came
    evaluate(estimator, hook, BATCHES[1:])
    assert drawn["class"]["numbers"] == [["1", ""], ["", ""]]
    assert not estimator.model._forward_hooks, "the model is as it was"


def test_a_class_that_never_is_has_no_shares(estimator, drawn):
    evaluate(estimator, ConfusionMatrix(), BATCHES[1:])
    (shares,) = drawn["class"]["matrices"]
    np.testing.assert_array_equal(np.isnan(shares), [[False, False], [True, True]])


def test_of_many_classes_those_that_are_confused_most_are_shown():
    counts = np.diag(np.arange(100, 140))
    counts[35, 2] = counts[7, 38] = 9
    counts[0, 1] = 1
    folded, labels = confusion_matrix._most_confused(counts, [f"c{i}" for i in range(40)])
    assert folded.shape == (30, 30)
    assert {"c2", "c7", "c35", "c38", "c0", "c1"} <= set(labels)
    assert labels[-1] == "(others)"
    assert folded.sum() == counts.sum()
    assert folded[labels.index("c35"), labels.index("c2")] == 9
    assert folded[labels.index("c35"), labels.index("c35")] == 135


def test_a_problem_without_classes_is_refused_before_the_first_step(estimator):
    text = Features({"inputs": Text(ByteEncoder())}, {"targets": Text(ByteEncoder())})
    estimator.task = SimpleNamespace(name="translate_something", features=text)
    with pytest.raises(UsageError, match="no target of 'translate_something' is a class or a tag"):
        ConfusionMatrix().begin(estimator)


def test_a_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    expected = r"--hooks=confusion_matrix draws with matplotlib \(.*\):  pip"
    with pytest.raises(UsageError, match=expected):
        ConfusionMatrix()
