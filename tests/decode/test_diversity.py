"""Groups that keep away from each other, against the algorithm written out."""

from __future__ import annotations

import itertools

import pytest
import torch
from table_model import EOS, TableModel, ended, log_prob, penalized, random_table
from torch import Tensor

from t2t_torch.decode.beam import Hypotheses
from t2t_torch.decode.constraints import Constraints, Diversity, Phrase, Phrases
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import SearchConstraints, beam_search

VOCAB, LIMIT = 12, 8


def search(
    model: TableModel, rules: SearchConstraints | None, beam_size: int, *rows: int
) -> Hypotheses:
    state = model.state(*rows)
    return beam_search(
        model.step,
        state,
        max_lengths=torch.full((len(state.rows),), LIMIT),
        beam_size=beam_size,
        policy=BeamPolicy(alpha=0.6, stop_early=False),
        rules=rules,
    )


def written_out(
    logits: Tensor, groups: int, size: int, strength: float
) -> list[tuple[float, list[int]]]:
    """Vijayakumar et al. 2018, algorithm 1, a hypothesis at a time; all steps are done."""
    log_probs = logits.double().log_softmax(-1)
    living = [[(0.0, 0.0, [])] for _ in range(groups)]  # log-probability, what it bears, ids
    over: list[list[tuple[float, list[int]]]] = [[] for _ in range(groups)]
    for step in range(LIMIT):
        taken: list[int] = []
        for group in range(groups):
            found = []
            for (own, borne, ids), new in itertools.product(living[group], range(VOCAB)):
                more = float(log_probs[step, ids[-1] if ids else 0, new])
                bears = borne + strength * taken.count(new)
                found.append((own + more - bears, own + more, bears, [*ids, new]))
            found = sorted(found, key=lambda one: -one[0])[: 2 * size]
            over[group] += [
                (penalized(own, len(ids), 0.6), ids) for _, own, _, ids in found if ids[-1] == EOS
            ]
            over[group] = sorted(over[group], reverse=True)[:size]
            going = [one for one in found if one[3][-1] != EOS][:size]
            living[group] = [(own, bears, ids) for _, own, bears, ids in going]
            taken += [ids[-1] for _, _, ids in living[group]]
    return sorted((one for group in over for one in group), reverse=True)


@pytest.mark.sample(2)
@pytest.mark.parametrize("strength", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("groups", "size"), [(2, 1), (4, 1), (2, 2), (3, 2), (2, 3)])
def test_groups_find_what_the_algorithm_written_out_finds(
    groups: int, size: int, strength: float
) -> None:
    for seed in range(20):
        model = random_table(1, LIMIT, VOCAB, seed)
        model.logits[..., EOS] += 1.0
        expected = written_out(model.logits[0], groups, size, strength)
        rules = SearchConstraints(diversity=Diversity(groups, strength))
        found = search(model, rules, groups * size)
        scores = [score for score in found.scores[0].tolist() if score > -1e6]
        assert [ended(ids) for ids in found.ids[0, : len(scores)]] == [ids for _, ids in expected]
        assert scores == pytest.approx([score for score, _ in expected], abs=1e-5)


def test_a_score_is_the_log_probability_without_the_penalty() -> None:
    model = random_table(1, LIMIT, VOCAB, 7)
    found = search(model, SearchConstraints(diversity=Diversity(2, 5.0)), 4)
    for ids, score in zip(found.ids[0], found.scores[0], strict=True):
        own = log_prob(model.logits[0], ended(ids))
        assert score.item() == pytest.approx(penalized(own, len(ended(ids)), 0.6), abs=1e-5)


def test_strong_groups_take_different_ids_first() -> None:
    model = random_table(3, LIMIT, VOCAB, 8)
    model.logits[:, 0, :, EOS] = -50.0
    plain = search(model, None, 4)
    apart = search(model, SearchConstraints(diversity=Diversity(4, 100.0)), 4)

    def firsts(found: Hypotheses, row: int) -> list[int]:
        return [ids[0] for ids in found.ids[row, found.scores[row] > -1e6].tolist()]

    for row in range(3):
        assert len(set(firsts(apart, row))) == len(firsts(apart, row)) > 1
    assert any(len(set(firsts(plain, row))) < len(firsts(plain, row)) for row in range(3))


def test_a_row_is_searched_alike_alone_and_in_a_batch() -> None:
    model = random_table(5, LIMIT, VOCAB, 9)
    model.logits[..., EOS] += 1.5
    phrases: list[list[list[int]]] = [[], [[3, 4]], [], [[5]], []]
    prefix = torch.tensor([[0, 0], [7, 0], [0, 0], [8, 9], [0, 0]])

    def found(*rows: int) -> Hypotheses:
        asked = Phrases.of(
            [[Phrase(tuple(ids)) for ids in phrases[row]] for row in rows], torch.device("cpu")
        )
        return beam_search(
            model.step,
            model.state(*rows),
            max_lengths=torch.full((len(rows),), LIMIT),
            beam_size=6,
            policy=BeamPolicy(alpha=0.6),
            prefix=prefix[list(rows)],
            rules=SearchConstraints(constraints=Constraints(asked), diversity=Diversity(3, 0.7)),
        )

    together = found(0, 1, 3)
    for place, row in enumerate((0, 1, 3)):
        alone = found(row) if phrases[row] else search_plain(model, row)
        width = min(alone.ids.size(-1), together.ids.size(-1))
        assert torch.equal(together.ids[place, :, :width], alone.ids[0, :, :width])
        torch.testing.assert_close(together.scores[place], alone.scores[0])


def search_plain(model: TableModel, row: int) -> Hypotheses:
    """A row of which nothing but groups is asked."""
    return beam_search(
        model.step,
        model.state(row),
        max_lengths=torch.tensor([LIMIT]),
        beam_size=6,
        policy=BeamPolicy(alpha=0.6),
        rules=SearchConstraints(diversity=Diversity(3, 0.7)),
    )
