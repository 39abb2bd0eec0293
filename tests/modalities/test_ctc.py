"""CTC: the loss by enumeration of paths, and the search against all texts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from t2t_torch.hparam import HParams
from t2t_torch.modalities.speech import CtcModality, collapsed, ctc_losses, prefix_beam_search
from t2t_torch.model import Hidden


def probabilities(log_probs: np.ndarray) -> dict[tuple[int, ...], float]:
    """Returns the probability of each text, summed over all paths."""
    found: dict[tuple[int, ...], float] = {}
    frames, size = log_probs.shape
    for path in itertools.product(range(size), repeat=frames):
        text = tuple(i for i, _ in itertools.groupby(path) if i)
        chance = math.exp(sum(log_probs[place, i] for place, i in enumerate(path)))
        found[text] = found.get(text, 0.0) + chance
    return found


def draw(seed: int, frames: int = 5, size: int = 4) -> torch.Tensor:
    return torch.randn(1, frames, size, generator=torch.Generator().manual_seed(seed)) * 2


def test_the_loss_sums_all_paths() -> None:
    logits = draw(0)
    expected = probabilities(logits[0].log_softmax(-1).double().numpy())
    for text in ((2,), (2, 3), (2, 2), (3, 2, 3)):
        # The end symbol and padding are no outputs.
        targets = torch.tensor([[*text, 1, 0]])
        loss = ctc_losses(logits, torch.ones(1, 5, dtype=torch.bool), targets)
        assert math.isclose(float(loss), -math.log(expected[text]), rel_tol=1e-5)


def test_a_text_longer_than_its_sound_costs_nothing() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert float(ctc_losses(draw(1, frames=2), mask, torch.tensor([[2, 3, 2, 1]]))) == 0.0


def test_texts_that_do_not_fit_leave_the_gradient_finite() -> None:
    """ "aab" needs four frames: a blank is between equal ids.  The other rows are not affected."""
    logits = torch.randn(3, 4, 5).requires_grad_()
    targets = torch.tensor([[2, 2, 3, 1], [2, 2, 3, 1], [2, 3, 2, 4]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    losses = ctc_losses(logits, mask, targets)
    assert (losses > 0).tolist() == [False, True, False]
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert gradient.isfinite().all()
    assert gradient.flatten(1).any(1).tolist() == [False, True, False]

    modality = CtcModality(6, HParams().replace(hidden_size=8))
    states = torch.randn(3, 4, 8, requires_grad=True)
    loss = modality.loss(modality.logits(Hidden(states, mask)), targets)
    (gradient,) = torch.autograd.grad(loss.sum, states)
    assert gradient.isfinite().all() and gradient[1].any() and not gradient[[0, 2]].any()


def test_padding_frames_change_no_loss() -> None:
    modality = CtcModality(6, HParams().replace(hidden_size=8))
    states, targets = torch.randn(2, 7, 8), torch.tensor([[2, 3, 1, 0], [4, 4, 5, 1]])
    mask = torch.arange(7) < torch.tensor([[5], [7]])
    together = modality.loss(modality.logits(Hidden(states, mask)), targets)
    alone = [
        modality.loss(modality.logits(Hidden(states[i : i + 1, :n])), targets[i : i + 1])
        for i, n in enumerate((5, 7))
    ]
    torch.testing.assert_close(together.sum, alone[0].sum + alone[1].sum)
    assert float(together.weight) == 2 + 3


def test_the_search_finds_the_best_text_and_its_probability() -> None:
    for seed in range(6):
        log_probs = draw(seed)[0].log_softmax(-1)
        expected = probabilities(log_probs.double().numpy())
        found = prefix_beam_search(log_probs.numpy(), 200)
        best = max(expected, key=lambda text: expected[text])
        assert found[0].ids == best
        assert math.isclose(math.exp(found[0].log_prob), expected[best], rel_tol=1e-3)


def test_texts_are_ranked_by_the_length_penalty() -> None:
    log_probs = (draw(3)[0] / 8).log_softmax(-1).numpy()
    fair = prefix_beam_search(log_probs, 100, lambda length: ((5 + length) / 6) ** 4.0)
    assert [one.score for one in fair] == sorted((one.score for one in fair), reverse=True)
    assert len(fair[0].ids) > len(prefix_beam_search(log_probs, 100)[0].ids) > 0


def test_paths_collapse() -> None:
    path = torch.tensor([[2, 2, 0, 2, 3, 3, 0], [0, 0, 5, 5, 5, 4, 4]])
    assert collapsed(path).tolist() == [[2, 2, 3, 0, 0, 0, 0], [5, 4, 0, 0, 0, 0, 0]]


def test_metrics_read_the_greedy_text() -> None:
    modality = CtcModality(6, HParams().replace(hidden_size=8))
    logits = torch.nn.functional.one_hot(torch.tensor([[2, 2, 0, 2, 3]]), 6).float() * 9
    read = modality.readable(logits, torch.tensor([[2, 1]])).argmax(-1)
    assert read.tolist() == [[2, 2, 3, 1, 0, 0, 0, 0]]
    assert modality.predict(logits).numbers.tolist() == [[2, 2, 3, 0, 0]]
