"""Transformers that are recurrent in depth: penalties of each step, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Text
from t2t_torch.layers import mixture_of_experts
from t2t_torch.testing import random_batch, small
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder

TEXT = Text(IntegerEncoder(20))
FEATURES = Features({"inputs": TEXT}, {"targets": TEXT})


def model_of(**changes: Any) -> Any:
    torch.manual_seed(0)
    hparams = small(registry.hparams("universal_transformer_tiny")).replace(**changes)
    return registry.model("universal_transformer")(hparams, FEATURES)


def test_the_penalty_of_experts_sums_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(ffn_layer="moe", num_rec_steps=3, moe_loss_coef=1.0)
    penalties = []
    routing = mixture_of_experts.Routing

    def watch(*args: Any) -> Any:
        made = routing(*args)
        penalties.append(made.penalty)
        return made

    monkeypatch.setattr(mixture_of_experts, "Routing", watch)
    hidden = model.hidden_states(random_batch(FEATURES))["targets"]
    assert len(penalties) == 2 * 3
    torch.testing.assert_close(hidden.penalty[0], torch.stack(penalties).sum())


@pytest.mark.parametrize("name", ["num_encoder_layers", "num_decoder_layers"])
def test_layers_of_a_side_are_refused(name: str) -> None:
    with pytest.raises(HParamsError, match=f"{name}=5"):
        model_of(**{name: 5})


def test_examples_of_a_packed_row_do_not_halt_together() -> None:
    settings = {"recurrence_type": "act", "act_type": "global", "pack_dataset": True}
    with pytest.raises(HParamsError, match="act_type=global"):
        model_of(**settings)
    hparams = small(registry.hparams("universal_transformer_encoder_small")).replace(**settings)
    label = ClassLabel(ClassLabelEncoder(["a", "b"]))
    with pytest.raises(HParamsError, match="act_type=global"):
        registry.model("universal_transformer_encoder")(
            hparams, Features({"inputs": TEXT}, {"targets": label})
        )


@pytest.mark.parametrize(
    ("model", "set_name", "name", "value"),
    [
        ("evolved_transformer", "evolved_transformer_tiny", "ffn_layer", "moe"),
        ("evolved_transformer", "evolved_transformer_tiny", "ffn_gated", True),
    ],
)
def test_what_no_layer_reads_is_refused(model: str, set_name: str, name: str, value: Any) -> None:
    hparams = small(registry.hparams(set_name)).replace(**{name: value})
    with pytest.raises(HParamsError, match=f"{name}={value}: layers of {model}"):
        registry.model(model)(hparams, FEATURES)
