"""What was recorded with `recording.py` stays as it was: names, data, losses, answers."""

from __future__ import annotations

import pytest
import recording

TOLERANCE = 2e-3
"""Relative; of losses and probabilities after some steps on another processor."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """The recorded problems, generated again."""
    return recording.Workspace(tmp_path_factory.mktemp("before") / "workspace")


def test_no_name_and_no_default_has_changed():
    recorded = recording.renamed(recording.read("inventory"))
    assert (
        recording.differences(recorded, recording.compute("inventory", None, recording.BEFORE))
        == []
    )


@pytest.mark.slow
def test_generated_data_is_the_same_to_the_byte(workspace):
    computed = recording.compute("shards", workspace, recording.BEFORE)
    assert recording.differences(recording.read("shards"), computed) == []


@pytest.mark.slow
def test_old_runs_and_artifacts_answer_and_old_runs_resume(workspace):
    computed = recording.compute("runs", workspace, recording.BEFORE)
    assert recording.differences(recording.read("runs"), computed, tolerance=TOLERANCE) == []


@pytest.mark.slow
def test_models_learn_and_answer_as_before(workspace):
    """As in one of the recordings: after 20 steps those of two processors differ by 0.003."""
    computed = recording.compute("losses", workspace, recording.BEFORE)
    differences = [
        recording.differences(recording.read(section), computed, tolerance=TOLERANCE)
        for section in ("losses", "losses_amd_epyc")
    ]
    assert [] in differences, min(differences, key=len)


def test_a_difference_is_found():
    recorded = {"a": [1.0, {"b": "x"}], "c": 1}
    assert recording.differences(recorded, {"a": [1.0, {"b": "x"}], "c": 1, "new": 2}) == []
    assert recording.differences(recorded, {"a": [1.1, {"b": "y"}]}) == [
        "/c: is gone",
        "/a/0: 1.0 was recorded, is 1.1",
        "/a/1/b: 'x' was recorded, is 'y'",
    ]
    assert recording.differences({"a": 1.0}, {"a": 1.0001}, tolerance=1e-3) == []
    names = {"registered": {"model": ["a", "b"]}}
    assert recording.differences(names, {"registered": {"model": ["a", "b", "c"]}}) == []
    assert recording.differences(names, {"registered": {"model": ["b"]}}) == [
        "/registered/model: 'a' is gone"
    ]
    assert recording.differences({"a": [1]}, {"a": [1, 2]}) == ["/a: [1] was recorded, is [1, 2]"]
