"""Terms of the objective and settings of inputs, with pretrained models."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.errors import HParamsError
from t2t_torch.objectives.objective import Objective
from tests.pretrained.folders import save_model

FAMILIES = [
    ("bert", "pretrained_encoder", "AutoModel"),
    ("gpt2", "pretrained_lm", "AutoModelForCausalLM"),
    ("bart", "pretrained_seq2seq", "AutoModelForSeq2SeqLM"),
    ("t5", "pretrained_seq2seq", "AutoModelForSeq2SeqLM"),
]


def batch_of(name):
    ids = torch.tensor([[5, 6, 7, 8, 9, 1], [8, 7, 1, 0, 0, 0]])
    targets = torch.tensor([1, 0]) if name == "pretrained_encoder" else ids.roll(1, 0)
    return {"inputs": ids, "targets": targets}


@pytest.fixture
def made(tmp_path, model_of):
    def make(family, name, auto, **hparams):
        if not (tmp_path / "config.json").exists():
            zero = (
                "hidden_dropout_prob",
                "attention_probs_dropout_prob",
                "dropout",
                "dropout_rate",
            )
            zero += ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout")
            save_model(family, tmp_path, auto, **dict.fromkeys(zero, 0.0))
        return model_of(name, tmp_path, layer_prepostprocess_dropout=0.0, **hparams)

    return make


@pytest.mark.parametrize(("family", "name", "auto"), FAMILIES)
def test_embeddings_of_pretrained_models_are_moved(made, family, name, auto):
    losses = {}
    for steps in (0, 1):
        more = {"adversarial_steps": steps, "adversarial_epsilon": 0.1, "r3f_weight": 0.1 * steps}
        torch.manual_seed(0)
        model = made(family, name, auto, **more)
        objective = Objective(model).train()
        losses[steps] = objective(batch_of(name)).losses["targets"].sum
    assert losses[1] > 2 * losses[0]
    losses[1].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_both_sides_of_an_encoder_decoder_are_moved(made):
    model = made(*FAMILIES[2], adversarial_steps=1)
    moves = []

    def move(call, output):
        moves.append(output.shape[1])
        return torch.zeros_like(output)

    objective = Objective(model)
    with objective._embeddings.moved(move):
        model.train().hidden_states(batch_of("pretrained_seq2seq"))
    assert len(moves) == 2


@pytest.mark.parametrize(("family", "name", "auto"), [FAMILIES[0], FAMILIES[3]])
def test_words_are_read_as_unknown_in_training_alone(made, family, name, auto):
    model = made(family, name, auto, word_dropout=0.999999)
    (unknown,) = model.features.inputs["inputs"].encoder.unknown_ids
    batch = batch_of(name)
    dropped = {n: torch.where(v > 1, unknown, v) if v.dim() == 2 else v for n, v in batch.items()}
    with torch.no_grad():
        expected = model.hidden_states(dropped)["targets"].states
        other = model.hidden_states(batch)["targets"].states
        found = model.train().hidden_states(batch)["targets"].states
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(other, expected)


def test_what_a_tokenizer_has_no_unknown_token_for_is_refused(made):
    with pytest.raises(HParamsError, match=r"word_dropout=0.1.*no token for unknown"):
        made(*FAMILIES[1], word_dropout=0.1)


@pytest.mark.parametrize(
    "setting",
    [
        {"symbol_dropout": 0.1},
        {"singleton_dropout": 0.1},
        {"pretrained_embeddings": "vectors.txt"},
        {"contextual_embeddings": "run"},
        {"shared_embedding": True},
        {"num_hidden_layers": 2},
    ],
)
def test_settings_that_nothing_reads_are_refused(made, setting):
    with pytest.raises(HParamsError, match=f"{next(iter(setting))}.* does not read it"):
        made(*FAMILIES[0], **setting)
