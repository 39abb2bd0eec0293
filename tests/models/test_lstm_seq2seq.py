"""Sequence to sequence with LSTMs: what the golden numbers do not say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import beam_search
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text, TreeFeature, Words, WordShape
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.model import T2TModel
from t2t_torch.text.encoder import IntegerEncoder
from t2t_torch.text.tree import TransitionEncoder

TEXT = Text(IntegerEncoder(17))
NAMES = ("lstm_seq2seq", "lstm_seq2seq_attention")


def make(name: str, features: Features | None = None, **hparams: Any) -> T2TModel:
    torch.manual_seed(0)
    model_class = registry.model(name)
    made = testing.small(registry.hparams(f"{name}_tiny")).replace(**hparams)
    return model_class(made, features or testing.text_features()).eval()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "changes",
    [
        {"attention_mechanism": "bahdanau", "num_heads": 3},
        {"attention_mechanism": "luong", "num_heads": 2, "attention_layer_size": 5},
        {"output_attention": False, "embedding_size": 7},
    ],
)
def test_every_kind_of_attention_holds_the_contract(changes: dict[str, Any]) -> None:
    hparams = registry.hparams("lstm_attention").replace(**changes)
    testing.check_model(registry.model("lstm_seq2seq_attention"), hparams)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_a_batch_is_searched_as_it_is_alone(name: str) -> None:
    model = make(name)
    batch = testing.random_batch(model.features, rows=4)

    def search(rows: slice) -> Any:
        inputs = batch["inputs"][rows]
        with torch.inference_mode():
            return beam_search(
                model.step,
                model.encode({"inputs": inputs}),
                max_lengths=(inputs != 0).sum(1) + 5,
                beam_size=3,
                policy=BeamPolicy(alpha=0.6),
            )

    together = search(slice(None))
    for row in range(4):
        alone = search(slice(row, row + 1))
        width = alone.ids.size(-1)
        assert torch.equal(together.ids[row, :, :width], alone.ids[0])
        torch.testing.assert_close(together.scores[row], alone.scores[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_trees_are_written_like_texts_and_words_may_have_shapes(name: str) -> None:
    words = Words(IntegerEncoder(17))
    encoder = TransitionEncoder(["IN:A", "SL:B"])
    features = Features(
        {"inputs": words, "inputs_shape": WordShape("inputs")}, {"targets": TreeFeature(encoder)}
    )
    model = make(name, features)
    batch = testing.random_batch(features)
    logits = model(batch).logits["targets"]
    assert logits.shape == (*batch["targets"].shape, encoder.vocab_size)
    other = {**batch, "inputs_shape": batch["inputs_shape"].roll(1, 0)}
    assert not torch.allclose(model(other).logits["targets"], logits)


def test_the_first_word_is_read_last() -> None:
    model = make("lstm_seq2seq", num_hidden_layers=1)
    inputs = torch.tensor([[5, 6, 7, 0, 0]])
    embedded = model.bottom({"inputs": inputs})["inputs"].embedded[:, :3].flip(1)
    encoder: Any = model.get_submodule("encoder.lstm")
    assert isinstance(encoder, LSTM)
    _, expected = encoder.run(embedded)
    state: Any = model.encode({"inputs": inputs})
    torch.testing.assert_close(state.memory.hidden, expected.hidden)


@pytest.mark.parametrize("name", NAMES)
def test_forget_gates_begin_open(name: str) -> None:
    for key, weights in make(name).named_parameters():
        if "bias_ih" in key:
            size = len(weights) // 4
            expected = torch.zeros(4 * size)
            expected[size : 2 * size] = 1.0
            assert torch.equal(weights, expected)


def test_without_an_input_there_is_nothing_to_attend_to() -> None:
    language = testing.text_features(has_inputs=False)
    with pytest.raises(HParamsError, match="reads one text"):
        make("lstm_seq2seq_attention", language)
    assert make("lstm_seq2seq", language)(testing.random_batch(language)).logits["targets"].any()
