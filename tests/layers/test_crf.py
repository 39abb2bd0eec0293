"""The linear-chain CRF agrees with all sequences, written out."""

import itertools

import pytest
import torch

from t2t_torch.layers import crf
from t2t_torch.layers.crf import NEVER, Chain, TagConstraints
from t2t_torch.text.tags import scheme_of

C, W = 3, 4
LENGTHS = (4, 2, 1)
MASK = torch.arange(W) < torch.tensor(LENGTHS)[:, None]


@pytest.fixture
def emissions():
    return torch.randn(len(LENGTHS), W, C, generator=torch.Generator().manual_seed(1)) * 2


@pytest.fixture
def chain():
    generator = torch.Generator().manual_seed(2)
    return Chain(*(torch.randn(*size, generator=generator) for size in ((C,), (C, C), (C,))))


def paths(row, length, chain):
    """Every sequence of a sentence with its score."""
    found = {}
    for tags in itertools.product(range(C), repeat=length):
        total = chain.start[tags[0]] + chain.end[tags[-1]]
        total = total + sum(row[place, tag] for place, tag in enumerate(tags))
        found[tags] = total + sum(chain.follow[a, b] for a, b in itertools.pairwise(tags))
    return found


def test_the_log_sum_is_that_over_all_sequences(emissions, chain):
    expected = [
        torch.stack(list(paths(row, length, chain).values())).double().logsumexp(0)
        for row, length in zip(emissions, LENGTHS, strict=True)
    ]
    found = crf.log_sum(emissions, MASK, chain)
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-6)


def test_the_best_sequence_is_the_best_of_all(emissions, chain):
    found = crf.best_tags(emissions, MASK, chain)
    for row, length, tags in zip(emissions, LENGTHS, found.tolist(), strict=True):
        every = paths(row, length, chain)
        assert tuple(tags[:length]) == max(every, key=every.get)


def test_marginals_are_sums_over_the_sequences_with_a_tag(emissions, chain):
    found = crf.posterior(emissions, MASK, chain).marginals
    assert bool((found[~MASK] == NEVER).all())
    for number, length in enumerate(LENGTHS):
        every = paths(emissions[number], length, chain)
        total = torch.stack(list(every.values())).logsumexp(0)
        for place, tag in itertools.product(range(length), range(C)):
            having = torch.stack([value for tags, value in every.items() if tags[place] == tag])
            expected = having.logsumexp(0) - total
            torch.testing.assert_close(found[number, place, tag], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("unknown", [[], [(0, 1)], [(0, 0), (0, 3), (2, 0)]])
def test_an_unknown_tag_is_summed_over(emissions, chain, unknown):
    tags = torch.tensor([[0, 1, 2, 0], [2, 1, -100, -100], [1, -100, -100, -100]])
    for place in unknown:
        tags[place] = -1
    found, there = crf.negative_log_likelihood(emissions, tags, MASK, chain)
    assert bool(there.all())
    for number, length in enumerate(LENGTHS):
        every = paths(emissions[number], length, chain)
        given = tags[number, :length].tolist()
        agreeing = [
            value
            for path, value in every.items()
            if all(said in (-1, tag) for tag, said in zip(path, given, strict=True))
        ]
        total = torch.stack(list(every.values())).logsumexp(0)
        expected = total - torch.stack(agreeing).logsumexp(0)
        torch.testing.assert_close(found[number], expected, atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_sum_over_all_sequences(emissions, chain):
    tags = torch.tensor([[0, -1, 2, 0]])
    row, mask = emissions[:1].clone().requires_grad_(), MASK[:1]
    learnt = Chain(*(one.clone().requires_grad_() for one in chain))
    crf.negative_log_likelihood(row, tags, mask, learnt)[0].sum().backward()
    other = emissions[0].clone().requires_grad_()
    slow = Chain(*(one.clone().requires_grad_() for one in chain))
    every = paths(other, W, slow)
    agreeing = [value for path, value in every.items() if (path[0], *path[2:]) == (0, 2, 0)]
    total = torch.stack(list(every.values())).logsumexp(0)
    (total - torch.stack(agreeing).logsumexp(0)).backward()
    torch.testing.assert_close(row.grad[0], other.grad, atol=1e-5, rtol=1e-4)
    for fast, expected in zip(learnt, slow, strict=True):
        torch.testing.assert_close(fast.grad, expected.grad, atol=1e-5, rtol=1e-4)


def test_what_padding_holds_does_not_count(emissions, chain):
    other = emissions.clone()
    other[~MASK] = NEVER
    assert torch.equal(crf.log_sum(other, MASK, chain), crf.log_sum(emissions, MASK, chain))
    best = crf.best_tags(other, MASK, chain)
    assert torch.equal(best[MASK], crf.best_tags(emissions, MASK, chain)[MASK])


def test_scores_far_below_the_best_are_not_lost(chain):
    """Tag 1 comes only after tag 1, which is 300 nats behind: float32 has no such number."""
    rules = TagConstraints(scheme_of(["O", "I-a", "B-a"]).rules(["O", "I-a", "B-a"]))()
    emissions = torch.zeros(1, 3, C)
    emissions[0, :, 1:] = -300.0
    tags = torch.tensor([[2, 1, 1]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    found, there = crf.negative_log_likelihood(emissions, tags, mask, rules)
    torch.testing.assert_close(found, torch.tensor([900.0]), atol=1e-3, rtol=1e-6)
    assert bool(there.all())


def test_a_sentence_that_the_rules_forbid_has_no_loss(emissions, chain):
    rules = TagConstraints(scheme_of(["O", "B-a", "I-a"]).rules(["O", "B-a", "I-a"]))()
    tags = torch.tensor([[0, 2, 2, 0], [1, 2, -100, -100], [0, -100, -100, -100]])
    row = emissions.clone().requires_grad_()
    found, there = crf.negative_log_likelihood(row, tags, MASK, chain.plus(rules))
    assert there.tolist() == [False, True, True]
    assert found[0] == 0 and found[1] > 0
    found.sum().backward()
    assert not row.grad[0].any() and bool(row.grad.isfinite().all())


def test_rules_are_obeyed_whatever_the_scores(chain):
    labels = ["O", "B-a", "I-a"]
    rules = TagConstraints(scheme_of(labels).rules(labels))()
    emissions = torch.randn(50, W, C, generator=torch.Generator().manual_seed(3)) * 5
    mask = torch.ones(50, W, dtype=torch.bool)
    free = crf.best_tags(emissions, mask, chain)
    bound = crf.best_tags(emissions, mask, chain.plus(rules))
    assert any(broken(row, labels) for row in free.tolist())
    assert not any(broken(row, labels) for row in bound.tolist())


def broken(tags, labels):
    """Whether an I-a stands elsewhere than after B-a or I-a."""
    names = ["O", *(labels[tag] for tag in tags)]
    return any(b == "I-a" and a == "O" for a, b in itertools.pairwise(names))


def test_autocast_changes_nothing(emissions, chain):
    expected = crf.log_sum(emissions, MASK, chain)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(crf.log_sum(emissions, MASK, chain), expected)
