"""Outputs that are drawn."""

from __future__ import annotations

import math

import pytest
import torch

from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.decode.interactive import TextPrompt
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.search import Sampler, numbers_of
from t2t_torch.errors import DecodeError, HParamsError

DRAWN = DecodeHParams(sampling_method="random", extra_length=6)
LOGITS = torch.tensor([[9.0, 0.0, 1.0, 2.0, 0.5, -1.0]])  # the first is padding's


def drawn(sampler: Sampler, count: int = 20_000) -> torch.Tensor:
    """How often each id is drawn."""
    numbers = numbers_of(7, [[3]], 1, count, torch.device("cpu"))[0]
    ids = sampler.draw(LOGITS.expand(count, -1).clone(), numbers)
    return torch.bincount(ids, minlength=6) / count


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_ids_are_drawn_by_their_probability(temperature: float) -> None:
    expected = torch.zeros(6)
    expected[1:] = (LOGITS[0, 1:] / temperature).softmax(0)
    found = drawn(Sampler(temperature))
    assert found[0] == 0
    # Pearson's statistic of five ids; above 18.5 in one of a thousand draws that are right.
    chi_square = 20_000 * ((found - expected)[1:].square() / expected[1:]).sum()
    assert chi_square < 18.5


def test_top_k_keeps_the_likeliest() -> None:
    found = drawn(Sampler(top_k=2))
    expected = torch.tensor([1.0, 2.0]).softmax(0)
    assert (found > 0).nonzero().flatten().tolist() == [2, 3]
    torch.testing.assert_close(found[2:4], expected, atol=0.02, rtol=0)


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    ids, probabilities = Sampler().kept(LOGITS.clone())
    one, two = probabilities[0, 0].item(), probabilities[0, :2].sum().item()
    for top_p, kept in ((one - 0.01, [3]), (one + 0.01, [3, 2]), (two + 0.01, [3, 2, 4])):
        found = Sampler(top_p=top_p).kept(LOGITS.clone())[1][0]
        assert ids[0, found > 0].tolist() == kept
        assert found.sum().item() == pytest.approx(1.0)


def test_however_small_top_p_is_the_likeliest_is_drawn() -> None:
    assert drawn(Sampler(top_p=1e-9))[3] == 1.0


def typical(logits: torch.Tensor, mass: float) -> set[int]:
    """Meister et al. 2022, section 4: the ids closest to the entropy that together reach a mass."""
    probabilities = logits.double().softmax(0).tolist()
    entropy = -sum(p * math.log(p) for p in probabilities)
    kept: set[int] = set()
    for place in sorted(
        range(len(logits)), key=lambda i: abs(-math.log(probabilities[i]) - entropy)
    ):
        if sum(probabilities[i] for i in kept) >= mass:
            break
        kept.add(place)
    return kept


@pytest.mark.parametrize("mass", [0.01, 0.3, 0.5, 0.8, 0.99])
def test_typical_p_keeps_what_is_closest_to_the_mean_surprise(mass: float) -> None:
    found = drawn(Sampler(typical_p=mass))
    kept = {place + 1 for place in typical(LOGITS[0, 1:], mass)}
    assert set(found.nonzero().flatten().tolist()) == kept
    expected = LOGITS[0].softmax(0)[sorted(kept)]
    torch.testing.assert_close(found[sorted(kept)], expected / expected.sum(), atol=0.02, rtol=0)


def test_the_likeliest_need_not_be_typical() -> None:
    logits = torch.tensor([[1e-9, 0.4, *[0.1] * 6]]).log()
    ids, probabilities = Sampler(typical_p=0.2).kept(logits.clone())
    assert 1 not in ids[probabilities > 0].tolist()
    both = Sampler(typical_p=0.2, top_k=1).kept(logits.clone())[1]
    assert both[0].tolist() == [1.0, *[0.0] * 7]  # typical of what top_k leaves


def test_numbers_are_those_of_the_input_the_seed_and_the_draw() -> None:
    def numbers(seed: int, inputs: list[list[int]], draws: int) -> list[list[float]]:
        return numbers_of(seed, inputs, draws, 4, torch.device("cpu")).tolist()

    together = numbers(1, [[5, 6], [7]], 2)
    assert together[2:] == numbers(1, [[7]], 2)
    assert together[0] == numbers(1, [[5, 6]], 1)[0]
    distinct = [*together, *numbers(2, [[7]], 2)]
    assert len({tuple(row) for row in distinct}) == 6


def test_a_prompt_goes_on_the_same_whatever_else_is_drawn(language_model: Predictor) -> None:
    texts = ["3 4", "", "5", "1 2 3 4 5 6 7", "3 4"]
    hparams = DRAWN.replace(num_decodes=3)
    together = language_model.predict(texts, hparams)
    for text, found in zip(texts, together, strict=True):
        (alone,) = language_model.predict([text], hparams)
        assert [h.ids for h in alone.hypotheses] == [h.ids for h in found.hypotheses]
        assert [h.score for h in alone.hypotheses] == pytest.approx(
            [h.score for h in found.hypotheses], abs=1e-4
        )
    assert len({h.ids for found in together for h in found.hypotheses}) > 6


def test_the_seed_decides(language_model: Predictor) -> None:
    first, again, other = (
        [p.text for p in language_model.predict(["3", "4", "5"], DRAWN.replace(random_seed=seed))]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_drawing_the_one_likeliest_is_greedy_search(language_model: Predictor) -> None:
    texts = ["3 4", "", "5 1 2"]
    likeliest = language_model.predict(texts, DRAWN.replace(sampling_keep_top_k=1))
    greedy = language_model.predict(texts, DecodeHParams(beam_size=1, extra_length=6))
    assert [p.hypotheses[0].ids for p in likeliest] == [p.hypotheses[0].ids for p in greedy]
    assert [p.score for p in likeliest] == pytest.approx([p.score for p in greedy], abs=1e-4)


def test_a_score_is_the_log_probability_of_what_was_drawn(language_model: Predictor) -> None:
    prompt = [5, 6]
    (hypothesis,) = language_model.predict(["3 4"], DRAWN.replace(sampling_temp=2.0))[0].hypotheses
    ids = [*prompt, *hypothesis.ids]
    ids += [1] if len(hypothesis.ids) < 6 else []
    with torch.inference_mode():
        logits = language_model.model({"targets": torch.tensor([ids])}).logits["targets"][0]
    found = logits.log_softmax(-1)[range(len(ids)), ids][len(prompt) :].sum()
    assert hypothesis.score == pytest.approx(found.item(), abs=1e-4)


def test_what_has_inputs_is_drawn_too(predictor: Predictor) -> None:
    texts = ["1 2 3", "4", "5 6 7 8 9"]
    together = predictor.predict(texts, DRAWN.replace(num_decodes=2))
    alone = [predictor.predict([text], DRAWN.replace(num_decodes=2))[0] for text in texts]
    assert [[h.ids for h in p.hypotheses] for p in together] == [
        [h.ids for h in p.hypotheses] for p in alone
    ]


def test_nothing_is_drawn_where_nothing_may_be_added(language_model: Predictor) -> None:
    found = language_model.predict(["", "3 4"], DRAWN.replace(extra_length=0))
    assert [p.text for p in found] == ["", ""]


def test_weights_that_are_not_finite_are_told(language_model: Predictor) -> None:
    def broken(ids: torch.Tensor, state: object) -> tuple[torch.Tensor, object]:
        return torch.full((len(ids), 5), math.nan), state

    from t2t_torch.decode.search import sample

    state = language_model.model.encode({"targets": torch.zeros(1, 1, dtype=torch.int64)})
    with pytest.raises(DecodeError, match="not numbers"):
        sample(
            broken,
            state,
            max_lengths=torch.tensor([2]),
            numbers=torch.zeros(1, 2, dtype=torch.float64),
            sampler=Sampler(),
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sampling_temp=0.5", "does not read sampling_temp"),
        ("top_p=0.9,num_decodes=2", "does not read top_p, num_decodes"),
        ("sampling_method=random,beam_size=2", "does not read beam_size"),
        ("sampling_method=random,write_beam_scores=true", "num_decodes"),
        ("sampling_method=random,top_p=0", "top_p"),
        ("sampling_method=random,typical_p=0", "typical_p"),
        ("typical_p=0.5", "does not read typical_p"),
        ("sampling_method=random,coverage_penalty=1", "does not read coverage_penalty"),
        ("sampling_method=random,beam_size=6,num_beam_groups=2", "beam_size, num_beam_groups"),
        ("beam_size=6,num_beam_groups=4", "cannot be divided"),
        ("diversity_strength=1", "a beam of one group"),
        ("beam_size=1,coverage_penalty=0.2", "compares no hypotheses"),
        ("min_length_ratio=2,max_length_ratio=1", "more than"),
    ],
)
def test_settings_that_nothing_would_read_are_refused(text: str, message: str) -> None:
    with pytest.raises(HParamsError, match=message):
        parse_decode_hparams(text)


def test_the_prompt_shows_as_many_draws_as_are_asked_for(language_model: Predictor) -> None:
    shown: list[str] = []
    TextPrompt(language_model, DRAWN, shown.append).run(["ns=3", "3 4", "q"])
    expected = language_model.predict(["3 4"], DRAWN.replace(num_decodes=3))[0]
    assert "showing 3 draws" in shown[1]
    lines = [f"{h.score:8.2f}  {h.text}" for h in expected.hypotheses]
    assert shown[2].splitlines()[:3] == lines
