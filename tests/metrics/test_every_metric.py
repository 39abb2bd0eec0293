"""What holds of every registered metric, with every kind of target that it is of."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds_of_targets import (
    FEATURES,
    ROWS,
    add,
    all_padding,
    batch_of,
    evaluation,
    examples,
    fitting,
)
from together import run_together

from t2t_torch import registry
from t2t_torch.errors import UsageError
from t2t_torch.metrics.metric import lower_is_better, metric_of

NAMES = registry.list_names("metric")
PAIRS = [(name, kind) for name in NAMES for kind in fitting(name)]


@pytest.fixture(scope="module")
def whole():
    """The results of all examples in one batch."""
    one, _ = evaluation()
    add(one, list(range(ROWS)))
    return one.result()


def close(expected):
    return {name: pytest.approx(value, rel=1e-6, abs=1e-9) for name, value in expected.items()}


@settings(max_examples=12, deadline=None)
@given(
    order=st.permutations(range(ROWS)),
    cuts=st.sets(st.integers(1, ROWS - 1)),
    more=st.lists(st.integers(0, 5), min_size=ROWS, max_size=ROWS),
)
def test_neither_batches_nor_their_order_nor_padding_change_a_result(whole, order, cuts, more):
    parts, _ = evaluation()
    places = [0, *sorted(cuts), ROWS]
    for start, end, width in zip(places[:-1], places[1:], more, strict=False):
        add(parts, list(order[start:end]), more=width)
    assert parts.result() == close(whole)


@pytest.mark.slow
def test_two_processes_with_unequal_shares_find_what_one_finds(whole, tmp_path):
    folder, written = Path(__file__).parent, tmp_path / "results.json"
    codes, errors = run_together([folder / "two_processes.py", written], 2)
    assert codes == [0, 0], errors
    assert json.loads(written.read_text("utf-8")) == close(whole)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_what_the_processor_finds(whole):
    there, _ = evaluation()
    add(there, list(range(ROWS)), device="cuda")
    assert there.result() == {k: pytest.approx(v, rel=1e-4, abs=1e-5) for k, v in whole.items()}


def test_every_metric_is_among_the_results(whole):
    told = {part for name in whole for part in name.split("/")}
    assert set(NAMES) <= told
    assert all(math.isfinite(value) for value in whole.values())


@pytest.mark.sample(60)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_over_nothing_a_metric_is_a_number(name, kind):
    metric = metric_of(name, FEATURES[kind])
    sums = metric.update(*all_padding(FEATURES[kind]))
    assert sums.shape[-1:] == (metric.size,)
    assert sums.dtype == torch.float64
    for nothing in (sums, torch.zeros_like(sums)):
        assert all(map(math.isfinite, metric.results(name, nothing).values()))


# The best guess of a rate is its logarithm, and not all numbers have one.
@pytest.mark.sample(60)
@pytest.mark.parametrize(("name", "kind"), [pair for pair in PAIRS if pair[0] != "log_poisson"])
def test_a_guess_that_is_right_is_no_worse_than_one_that_is_not(name, kind):
    feature = FEATURES[kind]
    logits, targets = batch_of(feature, *examples(feature, ROWS, 1), list(range(ROWS)), 0)
    metric = metric_of(name, feature)
    worse, better = (
        metric.result(metric.update(guess, targets)) for guess in (logits, perfect(kind))
    )
    assert better <= worse + 1e-9 if lower_is_better(name) else better >= worse - 1e-9


def perfect(kind):
    """Logits that are sure of what is right, of the examples of seed 1."""
    feature = FEATURES[kind]
    logits, targets = batch_of(feature, *examples(feature, ROWS, 1), list(range(ROWS)), 0)
    if kind == "numbers":
        return targets
    if kind == "labels":
        return torch.where(targets > 0, 9.0, -9.0)
    if kind == "distribution":
        return targets.log()
    sure = torch.full_like(logits, -9.0)
    if kind == "span":
        return sure.scatter(1, targets[:, None] + 1, 9.0)
    return sure.scatter(-1, targets.clamp(min=0)[..., None], 9.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_says_of_which_targets_it_is_and_refuses_others(name):
    others = [kind for kind in FEATURES if kind not in fitting(name)]
    assert others
    for kind in others:
        with pytest.raises(UsageError):
            metric_of(name, FEATURES[kind])
