"""What was recorded with `recording.py` stays as it was: names, data, losses, answers."""

from __future__ import annotations

import re

import pytest
import recorded_commands
import recording

from t2t_torch.bin.commands import COMMANDS

TOLERANCE = 5e-3
"""Relative; of losses and probabilities after some steps on another processor: of three, two differ
by 0.0035."""


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


def test_every_command_is_recorded():
    names = {recorded_commands.NAMES.get(one, one) for one in recorded_commands.COMMANDS}
    assert {f"t2t-{name.replace('_', '-')}" for name in names} == set(COMMANDS)
    recorded = recording.read("commands")
    assert list(recorded["help"]) == list(recorded["config_schema"]) == recorded_commands.COMMANDS
    assert list(recorded["runs"]) == [run.line for run in recorded_commands.RUNS]
    assert list(recorded["refused"]) == list(recorded_commands.REFUSED)
    assert {one["exit"] for one in recorded["runs"].values()} == {0}
    assert {one["exit"] for one in recorded["refused"].values()} == {2}


@pytest.mark.parametrize(
    ("printed", "recorded"),
    [
        (
            "step 20/20  loss 1.1255  lr 4.8e-05  norm 0.526  7,180 examples/s  00:01-00:02 left\n",
            "step 20/20  loss 1.12…  lr 4.8e-05  norm 0.52…  N examples/s  TIME left\n",
        ),
        ("trips in data, 0.5 seconds\n", "trips in data, N seconds\n"),
        ("exporting and verifying: 8 s so far\nstep 4/20\nstep 4  dev:  loss 0.0361\n",
         "step 4  dev:  loss 0.036…\n"),
        ("10:49:53  1 of 2 trials: 1 running; 8 s of training, about 8 s left\n",
         "TIME  1 of 2 trials: 1 running; N s of training, about N s left\n"),
        ("--verify_rows=20 of 300 rows, 1,381 times, 0.0001 and 1e-08\n", None),
    ],
)  # fmt: skip
def test_what_differs_each_time_is_not_recorded(printed, recorded):
    text = printed
    for pattern, placeholder in recorded_commands.PLACEHOLDERS:
        text = re.sub(pattern, placeholder, text)
    assert recorded_commands.shortened(text) == (recorded or printed)


def test_a_difference_of_texts_is_shown_in_few_lines():
    recorded = {"help": {"data": ["a", "b"], "eval": ["c"]}, "runs": {"data": {"exit": 0}}}
    computed = {"help": {"data": ["a", "d"], "bleu": ["c"]}, "runs": {"data": {"exit": 2}}}
    assert recorded_commands.differences(recorded, recorded) == []
    assert recorded_commands.differences(recorded, computed) == [
        "/help/data\n--- recorded\n+++ now\n@@ -1,2 +1,2 @@\n a\n-b\n+d",
        "/help/eval: is gone",
        "/help/bleu: is new",
        "/runs/data/exit\n--- recorded\n+++ now\n@@ -1 +1 @@\n-0\n+2",
    ]
    long = [str(number) for number in range(100)]
    (shown,) = recorded_commands.differences({"a": long}, {"a": []})
    assert shown.count("\n") == 61
    assert shown.endswith("... 43 more lines")
