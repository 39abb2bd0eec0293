"""Latencies: percentiles of requests that are put by turns."""

import gc
import itertools
import time

import pytest

from t2t_torch.bin.commands import latency
from t2t_torch.errors import UsageError
from t2t_torch.workflows.latency import Latency, measure


def test_percentiles_are_of_requests_and_rates_of_inputs():
    took = [1_000_000 * (1 + number) for number in range(101)]
    found = Latency.of(took, [each // 2 for each in took], 202)
    assert (found.busy50, found.busy90, found.busy99) == (25.5, 45.5, 50.0)
    assert (found.p50, found.p90, found.p99, found.longest) == (51.0, 91.0, 100.0, 101.0)
    assert found.mean == pytest.approx(51.0)
    assert found.per_second == pytest.approx(202 / (101 * 51.0) * 1e3)
    assert found.requests == 101


def test_all_are_put_the_same_requests_by_turns():
    asked = []
    answerers = {
        name: lambda request, name=name: asked.append((name, tuple(request))) for name in "ab"
    }
    found = measure(answerers, range(120), batch_size=2, warm_up=0, passes=2)
    turns = [name for name, _ in itertools.groupby(asked, key=lambda one: one[0])]
    assert turns == ["a", "b"] * 4  # fifty requests and ten, twice
    first, second = ([request for who, request in asked if who == name] for name in "ab")
    assert first == second
    assert sorted(one for request in first for one in request) == sorted([*range(120)] * 2)
    assert {name: its.requests for name, its in found.items()} == {"a": 120, "b": 120}


def test_what_warms_up_is_not_measured():
    asked = []
    found = measure({"a": asked.append}, ["x", "longer"], warm_up=3, passes=1)
    assert len(asked) == 5
    assert asked[0] == ["longer"]
    assert found["a"].requests == 2


def test_the_time_of_the_processor_is_that_of_the_thread_alone():
    found = measure({"sleeps": lambda request: time.sleep(0.02)}, ["x"] * 5, warm_up=0, passes=1)
    assert found["sleeps"].busy50 < 15.0 < found["sleeps"].p50


def test_garbage_waits_and_is_collected_again_also_after_an_error():
    seen = []

    def fails(request):
        seen.append(gc.isenabled())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        measure({"a": fails}, ["x"], warm_up=0)
    assert seen == [False]
    assert gc.isenabled()


def test_nothing_to_measure_is_refused():
    with pytest.raises(UsageError):
        measure({"a": len}, [])


@pytest.mark.parametrize("flag", ["--batch_size=0", "--passes=0", "--warm_up=-1"])
def test_no_rows_passes_or_requests_are_refused(flag, capsys):
    assert latency.main(["--artifact=none", flag]) == 2
    assert flag in capsys.readouterr().err


def test_a_place_for_the_figures_is_looked_for_before_all_else(tmp_path, capsys):
    faults = {tmp_path / "none" / "figures.json": "there is no folder", tmp_path: "is a folder"}
    for path, fault in faults.items():
        assert latency.main([f"--artifact={tmp_path / 'none'}", f"--json={path}"]) == 2
        printed = capsys.readouterr().err
        assert f"--json={path}" in printed
        assert fault in printed
