"""MAP and MRR over queries against loops over sorted lists."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch
from together import run_commands_together

from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, QueryId
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.model import Loss, Output
from t2t_torch.text.encoder import ClassLabelEncoder

LABEL = ClassLabel(ClassLabelEncoder(["0", "1"]))
METRICS = {"targets": ("query_map", "query_mrr")}


def update(evaluation, rows):
    """Adds a batch of (query, document, score, relevant) rows."""
    logits = torch.tensor([[0.0, score] for _, _, score, _ in rows])
    targets = torch.tensor([int(relevant) for *_, relevant in rows])
    nothing = Loss(torch.tensor(0.0), torch.tensor(1.0))
    output = Output({"targets": logits}, {"targets": nothing})
    queries = torch.tensor([query for query, *_ in rows])
    evaluation.update(output, {"targets": targets, "targets_query": queries})


def evaluated(rows, size):
    """The results over (query, document, score, relevant) rows, `size` in a batch."""
    found = Evaluation({"targets": LABEL}, METRICS, "p", {"targets_query": QueryId()})
    for start in range(0, len(rows), size):
        update(found, rows[start : start + size])
    results = found.result()
    return [results[f"metrics-p/targets/{name}"] for name in METRICS["targets"]]


def by_loops(rows):
    precisions, ranks = [], []
    for query in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == query]
        if len({relevant for *_, relevant in own}) < 2:
            continue
        own.sort(key=lambda row: (-row[2], row[3]))  # of equal scores the wrong ones first
        hits, found = 0, []
        for place, (*_, relevant) in enumerate(own, start=1):
            if relevant:
                hits += 1
                found.append(hits / place)
                if hits == 1:
                    ranks.append(1 / place)
        precisions.append(sum(found) / len(found))
    return [sum(precisions) / len(precisions), sum(ranks) / len(ranks)]


@pytest.mark.parametrize("seed", range(5))
def test_the_figures_are_those_of_sorted_lists_whatever_the_batches(seed):
    draw = random.Random(seed)
    rows = [
        (query, document, float(draw.randrange(4)), draw.random() < 0.4)
        for query in range(12)
        for document in range(draw.randrange(1, 9))
    ]
    expected = by_loops(rows)
    draw.shuffle(rows)
    for size in (1, 7, len(rows)):
        assert evaluated(rows, size) == pytest.approx(expected)


def test_a_query_whose_documents_are_all_relevant_does_not_count():
    rows = [(0, 0, 1.0, True), (0, 1, 2.0, True), (1, 0, 2.0, False), (1, 1, 1.0, True)]
    assert evaluated(rows, 2) == [0.5, 0.5]


def test_without_the_queries_of_documents_the_metric_is_refused():
    with pytest.raises(UsageError, match="'targets_query', and the problem has none"):
        Evaluation({"targets": LABEL}, METRICS, "p")


_SCRIPT = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parent.parent / "fault")]!r}
from t2t_torch.distributed.process_group import join_world
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.train.task import Evaluator
from test_queries import LABEL, METRICS, update
from t2t_torch.features import QueryId

with join_world(use_gpu=False) as world:
    evaluation = Evaluation({{"targets": LABEL}}, METRICS, "p", {{"targets_query": QueryId()}})
    rows = [(0, 0, 1.0, True), (0, 1, 2.0, True), (0, 2, 3.0, False), (1, 0, 2.0, True)]
    if world.rank == 1:
        rows = [(1, 1, 1.0, False)]
    update(evaluation, rows)
    Evaluator(evaluation).synchronize(world)
    found = evaluation.result()
    assert abs(found["metrics-p/targets/query_map"] - (1 + (1 / 2 + 2 / 3) / 2) / 2) < 1e-9
    assert found["metrics-p/targets/query_mrr"] == 0.75
"""


def test_documents_of_a_query_may_be_in_several_processes(tmp_path: Path):
    script = tmp_path / "ranks.py"
    script.write_text(_SCRIPT)
    codes, told = run_commands_together([sys.executable, str(script)], 2)
    assert codes == [0, 0], told
