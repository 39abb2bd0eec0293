from __future__ import annotations

import json

import pytest

SETTINGS = {"local_eval_frequency": 0, "log_step_count_steps": 100, "profile": True}


def test_the_steps_after_the_warm_up_are_recorded(train, capsys):
    folder = train(train_steps=20, **SETTINGS) / "profile"
    trace = json.loads((folder / "17.pt.trace.json").read_text())
    steps = {e["name"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep")}
    assert steps == {f"ProfilerStep#{step}" for step in range(12, 17)}
    table = (folder / "17.txt").read_text()
    assert table.startswith("profile of 5 steps: ")
    rows = table.splitlines()[2:]
    assert len(rows) == 20
    assert any(row.startswith("aten::mm ") for row in rows)
    spent = [float(row[60:].split()[0]) for row in rows]
    assert spent == sorted(spent, reverse=True)
    printed = capsys.readouterr().err
    assert table in printed
    assert "17.pt.trace.json" in printed


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize(("steps", "recorded"), [(14, "profile of 2 steps"), (12, "")])
def test_a_run_that_is_shorter_records_what_it_has(train, capsys, steps, recorded):
    folder = train(train_steps=steps, **SETTINGS) / "profile"
    printed = capsys.readouterr().err
    if recorded:
        assert (folder / f"{steps}.txt").read_text().startswith(recorded)
    else:
        assert "nothing was recorded: that takes 17 steps" in printed
        assert not folder.exists()
