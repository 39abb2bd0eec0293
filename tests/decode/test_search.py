"""Beam search against tensor2tensor's own results and against exhaustive search."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from t2t_torch.decode.beam import NO_SCORE
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import beam_search
from t2t_torch.errors import DecodeError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "beam_search.json").read_text())
TABLES = {table["name"]: torch.tensor(table["logits"]) for table in GOLDEN["tables"]}
CASES = GOLDEN["cases"]


class TableState(NamedTuple):
    """Which row of the table each hypothesis reads, and at which step."""

    rows: Tensor
    position: int = 0

    def expand(self, copies: int) -> TableState:
        return self._replace(rows=self.rows.repeat_interleave(copies))

    def reorder(self, index: Tensor) -> TableState:
        return self._replace(rows=self.rows[index])


class Table:
    """A model that looks its logits up by row, step and last id; it counts its steps."""

    def __init__(self, logits: Tensor, initial_ids: Tensor | None = None) -> None:
        self.logits = logits  # [B, T, V, V]
        self.initial_ids = initial_ids
        self.num_steps = 0

    def state(self) -> TableState:
        return TableState(torch.arange(self.logits.size(0)))

    def step(self, ids: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        if state.position == 0 and self.initial_ids is not None:
            ids = self.initial_ids[state.rows]
        self.num_steps += 1
        return self.logits[state.rows, state.position, ids], state._replace(
            position=state.position + 1
        )


def search_case(case: dict[str, Any], rows: slice) -> tuple[Tensor, Tensor, int]:
    initial_ids = torch.tensor(case["initial_ids"])[rows]
    table = Table(TABLES[case["table"]][rows], initial_ids)
    found = beam_search(
        table.step,
        table.state(),
        max_lengths=torch.full_like(initial_ids, case["decode_length"]),
        beam_size=case["beam_size"],
        policy=BeamPolicy(alpha=case["alpha"], stop_early=case["stop_early"]),
        eos=case["eos_id"],
    )
    return found.ids, found.scores, table.num_steps


def case_name(case: dict[str, Any]) -> str:
    names = ("table", "beam_size", "alpha", "decode_length", "stop_early")
    return "-".join(str(case[name]) for name in names) + f"-from{case['initial_ids'][0]}"


@pytest.mark.quick
@pytest.mark.sample(40)
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_beam_search_finds_what_tensor2tensor_found(case: dict[str, Any]) -> None:
    ids, scores, num_steps = search_case(case, slice(None))
    expected_ids = torch.tensor(case["ids"])[:, :, 1:]  # tensor2tensor's begin with the initial id
    expected_scores = torch.tensor(case["scores"])
    ids = torch.nn.functional.pad(ids, (0, expected_ids.size(-1) - ids.size(-1)))
    # Without stop_early tensor2tensor waits until the worst place of all rows beats every row.
    assert num_steps == case["steps_run"] or not case["stop_early"]
    for row in range(ids.size(0)):
        # With stop_early tensor2tensor goes on filling the lower places of a row whose best is
        # certain for as long as any other row runs; only a row that ran to the end has them all.
        own_steps = search_case(case, slice(row, row + 1))[2]
        places = slice(1) if case["stop_early"] and own_steps < num_steps else slice(None)
        torch.testing.assert_close(
            scores[row, places], expected_scores[row, places], atol=2e-6, rtol=1e-6
        )
        assert torch.equal(ids[row, places], expected_ids[row, places])


@pytest.mark.sample(40)
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_a_row_is_searched_alike_alone_and_in_a_batch(case: dict[str, Any]) -> None:
    ids, scores, _ = search_case(case, slice(None))
    for row in range(ids.size(0)):
        ids_alone, scores_alone, _ = search_case(case, slice(row, row + 1))
        assert torch.equal(scores[row], scores_alone[0])
        assert torch.equal(ids[row, :, : ids_alone.size(-1)], ids_alone[0])
        assert not ids[row, :, ids_alone.size(-1) :].any()


def every_ended_sequence(logits: Tensor, max_length: int) -> list[tuple[float, list[int]]]:
    """Log-probabilities of all sequences that end with 1 within `max_length`, by brute force."""
    log_probs = logits.log_softmax(-1)
    found = []
    for length in range(1, max_length + 1):
        for body in itertools.product([0, *range(2, logits.size(-1))], repeat=length - 1):
            sequence = [*body, 1]
            steps = enumerate(zip([0, *sequence[:-1]], sequence, strict=True))
            found.append((sum(log_probs[t, a, b].item() for t, (a, b) in steps), sequence))
    return found


def test_a_wide_beam_finds_the_best_of_all_sequences() -> None:
    logits = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(3))
    table = Table(logits)
    found = beam_search(
        table.step,
        table.state(),
        max_lengths=torch.tensor([4]),
        beam_size=40,
        policy=BeamPolicy(alpha=0.8),
    )
    ranked = max(
        (log_prob / BeamPolicy(0.8).penalty(torch.tensor(float(len(ids)))).item(), ids)
        for log_prob, ids in every_ended_sequence(logits[0], 4)
    )
    assert found.ids[0, 0].tolist()[: len(ranked[1])] == ranked[1]
    assert found.scores[0, 0].item() == pytest.approx(ranked[0], abs=1e-5)


def greedy(logits: Tensor, max_length: int) -> tuple[list[int], float]:
    log_probs, ids, last, total = logits.log_softmax(-1), [], 0, 0.0
    for position in range(max_length):
        value, chosen = log_probs[position, last].max(-1)
        last, total = int(chosen), total + value.item()
        ids.append(last)
        if last == 1:
            break
    return ids, total


def test_one_candidate_of_a_beam_of_one_is_greedy_search() -> None:
    logits = torch.randn(6, 7, 5, 5, generator=torch.Generator().manual_seed(4)) * 2
    table = Table(logits)
    limits = torch.tensor([7, 6, 5, 4, 1, 0])
    found = beam_search(
        table.step, table.state(), max_lengths=limits, beam_size=1, policy=BeamPolicy(per_place=1)
    )
    for row, limit in enumerate(limits.tolist()):
        expected_ids, expected_score = greedy(logits[row], limit)
        assert found.ids[row, 0].tolist()[: len(expected_ids)] == expected_ids
        assert not found.ids[row, 0, len(expected_ids) :].any()
        assert found.scores[row, 0].item() == pytest.approx(expected_score, abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_prefix_is_kept_and_adds_nothing_to_the_score(beam_size: int) -> None:
    logits = torch.randn(4, 8, 6, 6, generator=torch.Generator().manual_seed(5))
    prefix = torch.tensor([[0, 0, 0], [4, 0, 0], [2, 1, 5], [3, 3, 0]])
    limits = torch.tensor([6, 7, 8, 8])
    table = Table(logits)
    together = beam_search(
        table.step, table.state(), max_lengths=limits, beam_size=beam_size, prefix=prefix
    )
    for row, length in enumerate([0, 1, 3, 2]):
        last = prefix[row, length - 1 : length] if length else torch.tensor([0])
        tail = Table(logits[row : row + 1, length:], last)  # the search from the prefix's end on
        expected = beam_search(
            tail.step, tail.state(), max_lengths=limits[row : row + 1] - length, beam_size=beam_size
        )
        torch.testing.assert_close(together.scores[row], expected.scores[0])
        assert torch.equal(together.ids[row, :, : expected.ids.size(-1)], expected.ids[0])


def test_a_prefix_counts_as_length() -> None:
    logits = torch.randn(1, 8, 6, 6, generator=torch.Generator().manual_seed(6))
    logits[:, 4, :, 1] = 9.0
    table, prefix = Table(logits), torch.tensor([[3, 2]])
    plain, penalized = (
        beam_search(
            table.step,
            table.state(),
            max_lengths=torch.tensor([5]),
            beam_size=1,
            policy=BeamPolicy(per_place=1, alpha=alpha),
            prefix=prefix,
        )
        for alpha in (0.0, 0.6)
    )
    assert plain.ids.tolist() == penalized.ids.tolist()
    length = 2 + int((plain.ids != 0).sum())
    assert plain.ids[0, 0, -1] == 1
    assert penalized.scores.item() == pytest.approx(
        plain.scores.item() / BeamPolicy(0.6).penalty(torch.tensor(float(length))).item()
    )


def test_the_state_shrinks_as_rows_end() -> None:
    logits = torch.zeros(3, 6, 4, 4)
    for row, end in enumerate([0, 2, 4]):
        logits[row, :, :, 2] = 9.0
        logits[row, end, :, 1] = 99.0
    widths = []
    table = Table(logits)

    def step(ids: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        widths.append(ids.numel())
        return table.step(ids, state)

    beam_search(step, table.state(), max_lengths=torch.tensor([6, 6, 6]), beam_size=2)
    assert widths == [3, 4, 4, 2, 2]  # at first one place of a row stands for both


def test_places_that_nothing_filled_say_so() -> None:
    table = Table(torch.tensor([0.0, 50.0, 0.0, 0.0]).expand(1, 1, 4, 4))
    found = beam_search(table.step, table.state(), max_lengths=torch.tensor([1]), beam_size=3)
    assert found.ids[0].tolist() == [[1], [0], [0]]
    assert (found.scores[0] > NO_SCORE).tolist() == [True, False, False]


def test_logits_that_are_not_numbers_are_an_error() -> None:
    table = Table(torch.full((1, 2, 4, 4), torch.nan))
    with pytest.raises(DecodeError, match="not finite"):
        beam_search(table.step, table.state(), max_lengths=torch.tensor([2]), beam_size=2)
