"""A step of training reads from top to bottom: few calls lie between it and the loss."""

from __future__ import annotations

import sys

import pytest

from t2t_torch.losses import cross_entropy as classes
from t2t_torch.modalities import text

MOST_CALLS = 6


def calls_below(name):
    """The functions of the package that run, from the one of this name to the innermost."""
    names, frame = [], sys._getframe(2)
    while frame is not None and name not in names:
        code = frame.f_code
        if "t2t_torch" in frame.f_globals["__name__"] and not code.co_name.startswith("<"):
            names.append(code.co_name)
        frame = frame.f_back
    return names[-2::-1]


@pytest.mark.parametrize(
    ("problem", "module", "function"),
    [("", text, "linear_cross_entropy"), ("tiny_kind", classes, "cross_entropy")],
    ids=["text", "label"],
)
def test_few_calls_lie_between_a_step_and_its_cross_entropy(
    make_estimator, make_multi, problem, module, function, monkeypatch
):
    paths, compute = [], getattr(module, function)

    def watched(*args):
        paths.append([*calls_below("train_step"), function])
        return compute(*args)

    monkeypatch.setattr(module, function, watched)
    make_estimator(task=make_multi(problem=problem) if problem else None).train(1)
    assert paths
    assert all(len(path) <= MOST_CALLS for path in paths), paths
