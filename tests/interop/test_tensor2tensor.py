"""tensor2tensor's hyperparameters and variables become ours; tests/golden holds the numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables
from t2t_torch.models.transformer import Transformer
from t2t_torch.text.encoder import NUM_RESERVED, IntegerEncoder

FOLDER = Path(__file__).parents[1] / "golden" / "transformer" / "v3"
VALUES: dict[str, Any] = json.loads((FOLDER / "hparams.json").read_text())["hparams"]
EMBEDDING = "transformer/symbol_modality_101_32/shared/weights_{}"
QUERY = "transformer/body/decoder/layer_0/self_attention/multihead_attention/q/kernel"


def variables() -> dict[str, Any]:
    return dict(np.load(FOLDER / "variables.npz"))


def model(**hparams: Any) -> Transformer:
    text = Text(IntegerEncoder(101 - NUM_RESERVED))
    return Transformer(
        convert_hparams("transformer", VALUES | hparams),
        Features({"inputs": text}, {"targets": text}),
    )


def test_hyperparameters_keep_their_names_and_values() -> None:
    hparams = convert_hparams("transformer", VALUES)
    for name in type(hparams).model_fields:
        # A loss is a name here, functions by target there; the mixing is of several problems.
        if name in VALUES and name not in ("loss", "multiproblem_mixing_schedule"):
            assert getattr(hparams, name) == VALUES[name]
    assert hparams.provenance["hidden_size"] == "tensor2tensor"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("self_attention_type", "dilated_mask_right"),
        ("prepend_mode", "prepend_outputs"),
        ("weights_fn", {"targets": "weights_all"}),
        ("norm_type", "noam"),
        ("ffn_layer", "local_moe_tpu"),
        ("attention_key_channels", 64),
        ("pos", "emb"),
        ("hidden_sizes", 32),
    ],
)
def test_hyperparameters_of_another_model_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(HParamsError, match=name):
        convert_hparams("transformer", VALUES | {name: value})


def test_the_weights_that_prepending_sets_itself_are_no_other_model() -> None:
    given = {"prepend_mode": "prepend_inputs_full_attention", "weights_fn": {"targets": "its own"}}
    assert convert_hparams("transformer", VALUES | given).prepend_mode == given["prepend_mode"]


def test_weights_are_transposed_joined_and_shared() -> None:
    loaded, given = model(), variables()
    load_variables(loaded, given)
    parameters = dict(loaded.named_parameters())
    table = np.concatenate([given[EMBEDDING.format(i)] for i in range(16)])
    assert torch.equal(parameters["modalities.inputs.bottom.weight"], torch.from_numpy(table))
    assert loaded.modalities["targets"].top.weight is parameters["modalities.inputs.bottom.weight"]
    query = parameters["decoder.0.attention.query_key_value.weight"][:32]
    assert torch.equal(query, torch.from_numpy(given[QUERY].T))


def test_optimizer_slots_and_counters_are_passed_over() -> None:
    given = variables()
    given |= {
        f"training/{QUERY}/Adam": given[QUERY],
        f"{QUERY}/Adam_1": given[QUERY],
        "global_step": np.array(400),
    }
    loaded, expected = model(), model()
    load_variables(loaded, given)
    load_variables(expected, variables())
    for name, tensor in expected.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_variables_that_do_not_fit_are_named() -> None:
    given = variables()
    del given[QUERY]
    with pytest.raises(CheckpointError, match=r"decoder\.0\.attention\.query_key_value\.weight"):
        load_variables(model(), given)
    with pytest.raises(CheckpointError, match=r"decoder\.1"):
        load_variables(model(num_hidden_layers=1), variables())
    with pytest.raises(CheckpointError, match="feed_forward"):
        load_variables(model(filter_size=128), variables())
    with pytest.raises(CheckpointError, match="body/decoder/magic"):
        load_variables(model(), variables() | {"transformer/body/decoder/magic": np.zeros(3)})


def test_a_table_with_a_piece_missing_is_refused() -> None:
    given = variables()
    del given[EMBEDDING.format(7)]
    with pytest.raises(CheckpointError, match=r"modalities\.inputs\.bottom\.weight"):
        load_variables(model(), given)
