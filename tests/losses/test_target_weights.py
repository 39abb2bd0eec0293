"""How much each target counts in training."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Tags, Words
from t2t_torch.objectives.objective import Objective, target_weights
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder

LABELS = ClassLabelEncoder(["a", "b", "c"])
FEATURES = Features(
    {"inputs": Words(IntegerEncoder(9))}, {"intent": ClassLabel(LABELS), "slots": Tags(LABELS)}
)
BATCH = {
    "inputs": torch.tensor([[3, 4, 5], [6, 7, 0]]),
    "intent": torch.tensor([0, 2]),
    "slots": torch.tensor([[0, 1, 2], [1, 1, -100]]),
}


def losses(weights, *, train):
    torch.manual_seed(0)
    hparams = testing.small(registry.hparams("transformer_encoder_tiny"))
    model = registry.model("transformer_encoder")(
        hparams.replace(
            target_weights=weights,
            layer_prepostprocess_dropout=0.0,
            attention_dropout=0.0,
            relu_dropout=0.0,
            symbol_dropout=0.0,
        ),
        FEATURES,
    )
    return Objective(model).train(train)(BATCH).losses


def test_a_targets_loss_is_multiplied_in_training_and_its_weight_is_not():
    plain, weighed = (losses(text, train=True) for text in ("", "[intent:0.25,slots:3]"))
    for target, factor in {"intent": 0.25, "slots": 3.0}.items():
        torch.testing.assert_close(weighed[target].sum, plain[target].sum * factor)
        torch.testing.assert_close(weighed[target].weight, plain[target].weight)


def test_an_evaluation_reports_the_losses_themselves():
    plain, weighed = (losses(text, train=False) for text in ("", "[intent:0.25]"))
    torch.testing.assert_close(weighed["intent"].sum, plain["intent"].sum, rtol=0, atol=0)


def test_targets_that_are_not_named_count_once_or_as_all_others():
    assert target_weights("[intent:2]", FEATURES) == {"intent": 2.0, "slots": 1.0}
    assert target_weights("[0.5,intent:2]", FEATURES) == {"intent": 2.0, "slots": 0.5}
    assert target_weights("", FEATURES) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[intents:2]", "'intents' is no target"),
        ("[intent:much]", "expected one number"),
        ("[intent:-1]", "expected one number"),
        ("[intent:1,2]", "expected one number"),
        ("[0]", "not all 0"),
    ],
)
def test_what_cannot_be_a_weight_is_refused(text, told):
    with pytest.raises(HParamsError, match=told):
        target_weights(text, FEATURES)
