"""Our Transformer with tensor2tensor's weights computes tensor2tensor's numbers.

Weights, logits, losses and decodes are of tensor2tensor 1.15.7 on TensorFlow 1.15.5; tolerances are
those at which an independent recomputation agreed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from t2t_torch.decode.beam import Hypotheses
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import beam_search
from t2t_torch.features import Features, Text
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.models.transformer import Transformer
from t2t_torch.text.encoder import EOS, NUM_RESERVED, IntegerEncoder

VARIANTS = ("v3", "v1_postnorm_unshared", "lm", "relative")
FOLDER = Path(__file__).parent / "transformer"
RECORDS = {name: json.loads((FOLDER / name / "hparams.json").read_text()) for name in VARIANTS}
DECODES = [
    pytest.param(name, decode, id=f"{name}-{decode['tag']}")
    for name, record in RECORDS.items()
    for decode in record["decodes"]
    if "BUG" not in decode["tag"]
]
SCORE_TOLERANCE = {"atol": 2e-5, "rtol": 0.0}
SUM_TOLERANCE = {"atol": 1e-4, "rtol": 0.0}


def arrays(variant: str, file: str) -> dict[str, Tensor]:
    loaded = np.load(FOLDER / variant / f"{file}.npz")
    return {
        name: torch.from_numpy(
            loaded[name].astype(np.int64) if loaded[name].dtype.kind == "i" else loaded[name]
        )
        for name in loaded.files
    }


def load_model(variant: str, **hparams: Any) -> Transformer:
    problem = RECORDS[variant]["problem_hparams"]
    sizes = problem["vocab_size"]
    features = {name: Text(IntegerEncoder(size - NUM_RESERVED)) for name, size in sizes.items()}
    model = Transformer(
        convert_hparams("transformer", RECORDS[variant]["hparams"]).replace(**hparams),
        Features(
            inputs={name: features[name] for name in features if name == "inputs"},
            targets={"targets": features["targets"]},
            input_space_id=problem["input_space_id"],
            target_space_id=problem["target_space_id"],
        ),
    )
    load_variables(model, dict(np.load(FOLDER / variant / "variables.npz")))
    return model.eval()


def features_of(golden: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix("in_"): v for k, v in golden.items() if k.startswith("in_")}


@pytest.mark.parametrize(
    ("variant", "file"), [*((variant, "eval") for variant in VARIANTS), ("v3", "packed")]
)
def test_logits_and_losses_are_those_of_tensor2tensor(variant: str, file: str) -> None:
    golden = arrays(variant, file)
    batch = features_of(golden)
    with torch.no_grad():
        output = load_model(variant)(batch)
    real = batch["targets"] != 0
    torch.testing.assert_close(
        output.logits["targets"][real], golden["logits"][real], **SCORE_TOLERANCE
    )
    torch.testing.assert_close(
        output.losses["targets"].sum, golden["loss_num_ls00"], **SUM_TOLERANCE
    )
    torch.testing.assert_close(output.losses["targets"].weight, golden["loss_den_ls01"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_positions_after_the_padding_have_the_logits_of_tensor2tensor_too(variant: str) -> None:
    golden = arrays(variant, "eval")
    with torch.no_grad():
        output = load_model(variant)(features_of(golden))
    torch.testing.assert_close(output.logits["targets"], golden["logits"], **SCORE_TOLERANCE)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("label_smoothing", [0.1, 0.0])
def test_the_loss_of_every_token_is_that_of_tensor2tensor(
    variant: str, label_smoothing: float
) -> None:
    golden = arrays(variant, "eval")
    name = "xent_ls01" if label_smoothing else "xent_ls00"
    losses = cross_entropy(golden["logits"], golden["in_targets"], label_smoothing)
    torch.testing.assert_close(losses * golden["weights"], golden[name], **SCORE_TOLERANCE)


@pytest.mark.parametrize(
    ("variant", "file"), [*((variant, "eval") for variant in VARIANTS), ("v3", "packed")]
)
def test_the_training_loss_is_the_smoothed_one_of_tensor2tensor(variant: str, file: str) -> None:
    golden = arrays(variant, file)
    no_dropout = {
        "layer_prepostprocess_dropout": 0.0,
        "attention_dropout": 0.0,
        "relu_dropout": 0.0,
        "label_smoothing": 0.1,
    }
    loss = load_model(variant, **no_dropout).train()(features_of(golden)).losses["targets"]
    torch.testing.assert_close(loss.sum.detach(), golden["loss_num_ls01"], **SUM_TOLERANCE)
    torch.testing.assert_close(loss.weight, golden["loss_den_ls01"])


def decode(model: Transformer, inputs: Tensor, how: dict[str, Any]) -> Hypotheses:
    """tensor2tensor's limit is that of the batch: its padded width and `decode_length`."""
    is_greedy = how["beam_size"] == 1
    limits = torch.full((inputs.size(0),), inputs.size(1) + how["decode_length"])
    name = "inputs" if model.features.has_inputs else "targets"
    with torch.inference_mode():
        return beam_search(
            model.step,
            model.encode({name: inputs}),
            max_lengths=limits,
            beam_size=how["beam_size"],
            policy=BeamPolicy(
                alpha=how["alpha"],
                stop_early=how["top_beams"] == 1,
                per_place=1 if is_greedy else 2,
            ),
            prefix=None if model.features.has_inputs else inputs,
        )


def through_eos(ids: Tensor) -> list[int]:
    """The greedy decodes of tensor2tensor go on behind EOS while another row runs."""
    found = ids.tolist()
    return found[: found.index(EOS) + 1] if EOS in found else found


@pytest.mark.sample(17)
@pytest.mark.parametrize(("variant", "how"), DECODES)
def test_decodes_are_those_of_tensor2tensor(variant: str, how: dict[str, Any]) -> None:
    golden = {
        name.removeprefix(how["tag"] + "/"): value
        for name, value in arrays(variant, "decode").items()
        if name.startswith(how["tag"] + "/")
    }
    found = decode(load_model(variant), golden["in_inputs"], how)
    places = how["top_beams"]
    expected_ids = golden["ids"].view(golden["ids"].size(0), places, -1)
    if "scores" in golden:  # not of a greedy search with relative attention
        expected_scores = golden["scores"].view(-1, places)
        torch.testing.assert_close(found.scores[:, :places], expected_scores, **SCORE_TOLERANCE)
    for row in range(expected_ids.size(0)):
        for place in range(places):
            ids = found.ids[row, place]
            width = min(ids.numel(), expected_ids.size(-1))
            assert through_eos(ids[:width]) == through_eos(expected_ids[row, place, :width])
            assert not ids[width:].any()


def test_a_batch_of_prompts_decodes_as_each_prompt_alone() -> None:
    # tensor2tensor hands the rows of a batch each other's prompts: `beam4_a06_top4_batch_BUG`.
    model = load_model("lm")
    golden = arrays("lm", "decode")
    prompts = golden["beam4_a06_top4_batch_BUG/in_inputs"]
    how = {"beam_size": 4, "alpha": 0.6, "top_beams": 4, "decode_length": 10}
    found = decode(model, prompts, how)
    for row in range(len(prompts)):
        torch.testing.assert_close(
            found.scores[row], golden[f"beam4_a06_top4_row{row}/scores"][0], **SCORE_TOLERANCE
        )
        expected = golden[f"beam4_a06_top4_row{row}/ids"][0]
        assert torch.equal(found.ids[row, :, : expected.size(-1)], expected)
    assert not torch.equal(golden["beam4_a06_top4_batch_BUG/ids"][1, 0], found.ids[1, 0])
