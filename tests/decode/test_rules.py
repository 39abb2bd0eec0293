"""What a search is asked beyond the likeliest, against all sequences there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from table_model import TableModel, ended, every_ended, log_prob, penalized, random_table
from torch import Tensor

from t2t_torch.decode.beam import Hypotheses
from t2t_torch.decode.constraints import (
    Constraints,
    Coverage,
    ForbiddenPhrases,
    LogitsProcessor,
    MinimumLength,
    PartialOutputs,
    Phrase,
    Phrases,
    RepeatedNgrams,
)
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import SearchConstraints, beam_search
from t2t_torch.errors import HParamsError

CPU = torch.device("cpu")
VOCAB, LIMIT = 5, 5
WIDE = 200  # more than there are prefixes: nothing is pruned


def of(*rows: list[list[int]]) -> Phrases:
    """Phrases whose ids are the same wherever they stand."""
    return Phrases.of([[Phrase(tuple(ids)) for ids in row] for row in rows], CPU)


def holds(ids: list[int], phrase: list[int]) -> bool:
    return any(ids[at : at + len(phrase)] == phrase for at in range(len(ids)))


def repeats(ids: list[int], size: int) -> bool:
    grams = [tuple(ids[at : at + size]) for at in range(len(ids) - size)]  # without the end
    return len(set(grams)) < len(grams)


def best_of_all(
    logits: Tensor, alpha: float, is_right: Callable[[list[int]], bool], limit: int = LIMIT
) -> tuple[float, list[int]]:
    return max(
        (penalized(log_prob(logits, ids), len(ids), alpha), ids)
        for ids in every_ended(VOCAB, limit)
        if is_right(ids)
    )


def search(
    model: TableModel,
    rules: SearchConstraints | None,
    beam_size: int,
    *rows: int,
    alpha: float = 0.6,
) -> Hypotheses:
    state = model.state(*rows)
    return beam_search(
        model.step,
        state,
        max_lengths=torch.full((len(state.rows),), LIMIT),
        beam_size=beam_size,
        policy=BeamPolicy(alpha=alpha, stop_early=False, per_place=1 if beam_size == 1 else 2),
        rules=rules,
    )


CASES: dict[str, tuple[LogitsProcessor, Callable[[list[int]], bool]]] = {
    "at least four": (
        MinimumLength(torch.tensor([4])),
        lambda ids: len(ids) >= 4 and 0 not in ids[:3],
    ),
    "no id twice": (RepeatedNgrams(1), lambda ids: not repeats(ids, 1)),
    "no pair twice": (RepeatedNgrams(2), lambda ids: not repeats(ids, 2)),
    "neither 3 nor 2 4": (
        ForbiddenPhrases(of([[3], [2, 4]])),
        lambda ids: not holds(ids, [3]) and not holds(ids, [2, 4]),
    ),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_a_wide_beam_finds_the_best_of_what_is_allowed(case: str, seed: int) -> None:
    ban, is_right = CASES[case]
    model = random_table(1, LIMIT, VOCAB, seed)
    model.logits[..., 3] += 1.0  # what several of them forbid is likely
    model.logits[..., 1] += 1.0
    score, ids = best_of_all(model.logits[0], 0.6, is_right)
    found = search(model, SearchConstraints((ban,)), WIDE)
    assert ended(found.ids[0, 0]) == ids
    assert found.scores[0, 0].item() == pytest.approx(score, abs=1e-5)
    for row, value in zip(found.ids[0], found.scores[0], strict=True):
        assert value < -1e6 or is_right(ended(row))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_a_narrow_beam_keeps_to_what_is_allowed(case: str, beam_size: int) -> None:
    ban, is_right = CASES[case]
    for seed in range(10):
        found = search(random_table(1, LIMIT, VOCAB, seed), SearchConstraints((ban,)), beam_size)
        best = ended(found.ids[0, 0])
        assert is_right([*best, 1] if best[-1] != 1 else best)


def test_what_is_forbidden_makes_nothing_else_likelier() -> None:
    model = random_table(1, LIMIT, VOCAB, 4)
    found = search(model, SearchConstraints((RepeatedNgrams(1),)), 3, alpha=0.0)
    for row, score in zip(found.ids[0], found.scores[0], strict=True):
        assert score.item() == pytest.approx(log_prob(model.logits[0], ended(row)), abs=1e-5)


def test_the_end_may_follow_where_nothing_else_may() -> None:
    scores = torch.zeros(1, 3)
    bans = (MinimumLength(torch.tensor([9])), ForbiddenPhrases(of([[2]])))
    rules = SearchConstraints(bans)
    rules.forbid(scores, PartialOutputs(torch.tensor([[2, 2]]), torch.tensor([0])))
    assert scores.tolist() == [[-torch.inf, 0.0, -torch.inf]]


def test_the_end_symbol_of_a_prompt_is_no_ngram() -> None:
    scores = torch.zeros(1, 5)
    RepeatedNgrams(1).forbid(scores, PartialOutputs(torch.tensor([[3, 1, 4]]), torch.tensor([0])))
    assert torch.isneginf(scores[0]).tolist() == [False, False, False, True, True]


CONSTRAINTS = [
    [[3]],
    [[2, 4]],
    [[4], [2, 3]],
    [[2, 3], [3, 4]],
    [[2, 3], [2, 4]],
    [[4, 4, 4]],
    [[3, 2, 3, 4]],
]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("phrases", CONSTRAINTS, ids=str)
def test_a_wide_beam_finds_the_best_that_has_all_phrases(
    phrases: list[list[int]], seed: int
) -> None:
    model = random_table(1, LIMIT, VOCAB, seed)
    model.logits[..., 1] += 2.0

    def is_right(ids: list[int]) -> bool:
        last = max(at + len(p) for p in phrases for at in range(5) if ids[at : at + len(p)] == p)
        return last <= LIMIT

    def has_all(ids: list[int]) -> bool:
        return all(holds(ids, phrase) for phrase in phrases) and is_right(ids)

    def no_padding_before(ids: list[int]) -> bool:
        """PAD does not stand where a phrase is still to come."""
        short = next(n for n in range(len(ids) + 1) if all(holds(ids[:n], p) for p in phrases))
        return 0 not in ids[:short]

    score, ids = best_of_all(
        model.logits[0], 0.6, lambda ids: has_all(ids) and no_padding_before(ids)
    )
    rules = SearchConstraints(constraints=Constraints(of(phrases)))
    found = search(model, rules, WIDE)
    assert ended(found.ids[0, 0]) == ids
    assert found.scores[0, 0].item() == pytest.approx(score, abs=1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("beam_size", [2, 3, 4])
@pytest.mark.parametrize("phrases", CONSTRAINTS, ids=str)
def test_however_narrow_the_beam_all_phrases_are_written(
    phrases: list[list[int]], beam_size: int
) -> None:
    for seed in range(8):
        model = random_table(1, LIMIT, VOCAB, seed)
        for identity in {i for phrase in phrases for i in phrase}:
            model.logits[..., identity] -= 6.0  # never of itself
        rules = SearchConstraints(constraints=Constraints(of(phrases)))
        best = ended(search(model, rules, beam_size).ids[0, 0])
        assert all(holds(best, phrase) for phrase in phrases)
        assert best[-1] == 1


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_phrase_may_have_another_form_where_a_text_begins(seed: int) -> None:
    model = random_table(1, LIMIT, VOCAB, seed)
    model.logits[..., 1] += 2.0
    inside, first, other = [4, 2], [3, 3], [2]

    def has_all(ids: list[int]) -> bool:
        return (holds(ids, inside) or ids[:2] == first) and holds(ids, other) and 0 not in ids

    asked = Phrases.of([[Phrase(tuple(inside), tuple(first)), Phrase(tuple(other))]], CPU)
    model.logits[..., 0] = -50.0
    score, ids = best_of_all(model.logits[0], 0.6, has_all)
    found = search(model, SearchConstraints(constraints=Constraints(asked)), WIDE)
    assert ended(found.ids[0, 0]) == ids
    assert found.scores[0, 0].item() == pytest.approx(score, abs=1e-5)
    for beam_size in (2, 4):
        assert has_all(
            ended(
                search(model, SearchConstraints(constraints=Constraints(asked)), beam_size).ids[
                    0, 0
                ]
            )
        )
    out = SearchConstraints((ForbiddenPhrases(asked),))
    best = ended(search(model, out, WIDE).ids[0, 0])
    assert not holds(best, inside) and best[:2] != first and not holds(best, other)


def test_a_phrase_may_repeat_what_nothing_else_may() -> None:
    model = random_table(1, LIMIT, VOCAB, 5)
    phrases = [[2, 2, 2]]
    rules = SearchConstraints((RepeatedNgrams(1),), Constraints(of(phrases)))
    assert holds(ended(search(model, rules, 4).ids[0, 0]), [2, 2, 2])


def test_a_row_does_not_depend_on_what_is_asked_of_its_mates() -> None:
    model = random_table(6, LIMIT, 9, 6)
    constraints = [[[5]], [], [[2, 3], [7]], [], [[4, 4]], []]
    forbidden = [[], [[3], [4, 5]], [[5, 7]], [], [], [[2]]]

    def rules(rows: list[int]) -> SearchConstraints | None:
        wanted, out = [constraints[row] for row in rows], [forbidden[row] for row in rows]
        if not any([*wanted, *out]):
            return None
        bans = (ForbiddenPhrases(of(*out)),) if any(out) else ()
        asked = Constraints(of(*wanted)) if any(wanted) else None
        return SearchConstraints(bans, asked)

    together = search(model, rules(list(range(6))), 4)
    for row in range(6):
        alone = search(model, rules([row]), 4, row)
        width = alone.ids.size(-1)
        assert torch.equal(together.ids[row, :, :width], alone.ids[0])
        torch.testing.assert_close(together.scores[row], alone.scores[0])


def test_coverage_is_the_formula_of_wu_et_al() -> None:
    generator = torch.Generator().manual_seed(7)
    model = random_table(1, LIMIT, VOCAB, 8)
    model.attention = torch.randn(1, LIMIT, VOCAB, 4, generator=generator).mul(3).softmax(-1)
    model.words = 3  # the fourth place is padding
    beta = 0.7

    def scored(ids: list[int]) -> float:
        read = [0, *ids[:-1]]
        sums = [
            sum(model.attention[0, t, last, word].item() for t, last in enumerate(read))
            for word in range(3)
        ]
        covered = sum(torch.tensor(min(one, 1.0)).log().item() for one in sums)
        return penalized(log_prob(model.logits[0], ids), len(ids), 0.6) + beta * covered

    score, ids = max((scored(ids), ids) for ids in every_ended(VOCAB, LIMIT))
    found = search(model, SearchConstraints(coverage=Coverage(beta)), WIDE)
    assert ended(found.ids[0, 0]) == ids
    assert found.scores[0, 0].item() == pytest.approx(score, abs=1e-4)
    plain = search(model, None, WIDE)
    assert ended(plain.ids[0, 0]) != ids  # or this shows nothing


def test_coverage_of_a_row_does_not_depend_on_its_mates() -> None:
    generator = torch.Generator().manual_seed(9)
    model = random_table(4, LIMIT, VOCAB, 10)
    model.attention = torch.randn(4, LIMIT, VOCAB, 3, generator=generator).mul(3).softmax(-1)
    model.words = 3
    together = search(model, SearchConstraints(coverage=Coverage(1.0)), 4)
    for row in range(4):
        alone = search(model, SearchConstraints(coverage=Coverage(1.0)), 4, row)
        assert torch.equal(together.ids[row, :, : alone.ids.size(-1)], alone.ids[0])
        torch.testing.assert_close(together.scores[row], alone.scores[0])


def test_coverage_of_a_model_without_attention_is_refused() -> None:
    class Blind:
        pass

    with pytest.raises(HParamsError, match="does not attend"):
        Coverage(0.2).begin(Blind())


@pytest.mark.parametrize("beam_size", [3, 4, WIDE])
def test_what_was_attended_to_goes_with_its_hypothesis(beam_size: int) -> None:
    """Weights that depend on the ids before tell one hypothesis from another."""
    for seed in range(8):
        model = random_table(1, LIMIT, VOCAB, seed)
        model.words = 3
        generator = torch.Generator().manual_seed(seed)
        weights = torch.randn(1, LIMIT, VOCAB, 3, generator=generator)
        model.attention = weights.mul(3).softmax(-1)
        found = search(model, SearchConstraints(coverage=Coverage(0.7)), beam_size)
        over = [
            (score, ended(ids))
            for ids, score in zip(found.ids[0], found.scores[0].tolist(), strict=True)
            if score > -1e6 and 1 in ids.tolist()
        ]
        assert over
        for score, ids in over:
            read = enumerate([0, *ids[:-1]])
            covered = sum(model.attention[0, step, last] for step, last in read).clamp(max=1.0)
            own = penalized(log_prob(model.logits[0], ids), len(ids), 0.6)
            assert score == pytest.approx(own + 0.7 * covered.log().sum().item(), abs=1e-4)
