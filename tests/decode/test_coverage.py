"""Models that attend to their inputs tell a search what they attended to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.predictor import Predictor
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.model import T2TModel
from t2t_torch.text.encoder import IntegerEncoder

COVERED = DecodeHParams(coverage_penalty=0.5, extra_length=3)
IDS = torch.tensor([[5, 6, 7, 8, 1], [9, 4, 1, 0, 0]])


def model_of(name: str, hparams_set: str) -> T2TModel:
    torch.manual_seed(3)
    text = Text(IntegerEncoder(20))
    features = Features({"inputs": text}, {"targets": text})
    return registry.model(name)(registry.hparams(hparams_set), features).eval()


def ensemble() -> Ensemble:
    first = model_of("transformer", "transformer_test")
    return Ensemble([first, model_of("lstm_seq2seq_attention", "lstm_seq2seq_attention_tiny")])


def attended(model: T2TModel | Ensemble, steps: int) -> list[tuple[Tensor, Tensor]]:
    """Weights and masks of each step, two hypotheses of each row; the second is left last."""
    state = model.encode({"inputs": IDS}).watched().expand(2)
    ids, found = torch.zeros(4, dtype=torch.int64), []
    for step in range(steps):
        logits, state = model.step(ids, state)
        found.append(tuple(state.attended))
        ids = logits.argmax(-1)
        if step == steps - 2:
            state, ids = state.reorder(torch.tensor([2, 3])), ids[2:]
    return found


@pytest.mark.parametrize("kind", ["transformer", "lstm_seq2seq_attention", "ensemble"])
@torch.no_grad()
def test_a_watched_state_tells_weights_of_the_input(kind: str) -> None:
    sets = {"transformer": "transformer_test"}
    model = ensemble() if kind == "ensemble" else model_of(kind, sets.get(kind, f"{kind}_tiny"))
    found = attended(model, 3)
    assert [len(weights) for weights, _ in found] == [4, 4, 2]
    for weights, mask in found:
        rows = IDS.repeat_interleave(2, 0)[-len(weights) :]
        assert torch.equal(mask, rows != 0)
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)))
        assert not weights[~mask].any()
    torch.testing.assert_close(found[0][0][0], found[0][0][1])


@torch.no_grad()
def test_the_weights_of_several_models_are_their_mean() -> None:
    both = ensemble()
    first, second = (attended(model, 1)[0][0] for model in both.models)
    torch.testing.assert_close(attended(both, 1)[0][0], (first + second) / 2)


@torch.no_grad()
def test_a_transformer_tells_what_its_last_layer_mixes() -> None:
    model = model_of("transformer", "transformer_test")
    mixed: list[Tensor] = []

    def note(module: torch.nn.Module, given: tuple[Tensor, ...], found: Tensor) -> None:
        q, k, _, mask = given
        scores = (q @ k.transpose(-1, -2)) * q.size(-1) ** -0.5
        mixed.append(scores.masked_fill(~mask, -torch.inf).softmax(-1).mean(1).flatten(0, 1))

    model.decoder[-1].memory_attention.weights.register_forward_hook(note)
    found = attended(model, 3)
    for (weights, _), expected in zip(found, mixed, strict=True):
        torch.testing.assert_close(weights, expected)


def test_a_model_without_attention_is_refused() -> None:
    model = model_of("lstm_seq2seq", "lstm_seq2seq_tiny")
    predictor = Predictor(model, registry.problem("tiny_algo"), model.features)
    with pytest.raises(HParamsError, match=r"coverage_penalty=0\.5: the model does not attend"):
        predictor.predict(["3 4"], COVERED)


def test_several_models_find_what_is_asked_of_an_output() -> None:
    model = ensemble()
    predictor = Predictor(model, registry.problem("tiny_algo"), model.features)
    asked = {"inputs": "3 4 5", "constraints": ["9 2"], "forbidden": ["7"], "targets_prefix": "4"}
    hparams = COVERED.replace(num_beam_groups=2, no_repeat_ngram_size=2, min_length_ratio=1.5)
    (found,) = predictor.predict([asked], hparams)
    words = found.text.split()
    assert words[0] == "4" and "9 2" in found.text and "7" not in words
    assert len(words) + 1 >= 6
