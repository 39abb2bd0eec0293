"""A Transformer whose decoder reads the inputs first computes what tensor2tensor's does.

tensor2tensor puts inputs, a 0 and targets into one row of `targets` (`prepend_mode`); here they
stay two features, and the model joins them.  `*_decoder_only` are of a problem without inputs, so
without an encoder.
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

VARIANTS = ("prepend_masked", "prepend_masked_decoder_only", "prepend_full_decoder_only")
FOLDER = Path(__file__).parent / "transformer"
RECORDS = {name: json.loads((FOLDER / name / "hparams.json").read_text()) for name in VARIANTS}
SCORE_TOLERANCE = {"atol": 2e-5, "rtol": 0.0}
SUM_TOLERANCE = {"atol": 1e-4, "rtol": 0.0}
DECODES = [
    pytest.param(name, decode, id=f"{name}-{decode['tag']}")
    for name, record in RECORDS.items()
    for decode in record["decodes"]
    if "BUG" not in decode["tag"] and "ragged" not in decode["tag"]
]


def arrays(variant: str, file: str) -> dict[str, Tensor]:
    loaded = np.load(FOLDER / variant / f"{file}.npz")
    return {
        name: torch.from_numpy(
            loaded[name].astype(np.int64) if loaded[name].dtype.kind == "i" else loaded[name]
        )
        for name in loaded.files
    }


def load_model(variant: str, **hparams: Any) -> Transformer:
    sizes = RECORDS[variant]["problem_hparams"]["vocab_size"]
    text = Text(IntegerEncoder(sizes["targets"] - NUM_RESERVED))
    made = convert_hparams("transformer", RECORDS[variant]["hparams"])
    model = Transformer(
        made.replace(encode_inputs="inputs" in sizes, **hparams),
        Features({"inputs": text}, {"targets": text}),
    )
    load_variables(model, dict(np.load(FOLDER / variant / "variables.npz")))
    return model.eval()


def parts(joined: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Returns inputs and targets of joined rows, and where the targets stand in them, [B, T]."""
    separators = [row.index(0) for row in joined.tolist()]
    inputs = [row[:end] for row, end in zip(joined, separators, strict=True)]
    targets = [row[end + 1 :] for row, end in zip(joined, separators, strict=True)]
    pad = torch.nn.utils.rnn.pad_sequence
    batch = {"inputs": pad(inputs, batch_first=True), "targets": pad(targets, batch_first=True)}
    batch["targets"] = batch["targets"][:, : int((batch["targets"] != 0).sum(1).max())]
    starts = torch.tensor(separators)[:, None] + 1
    return batch, starts + torch.arange(batch["targets"].size(1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_losses_are_those_of_tensor2tensor(variant: str) -> None:
    golden = arrays(variant, "eval")
    batch, places = parts(golden["in_targets"])
    with torch.no_grad():
        output = load_model(variant)(batch)
    rows = torch.arange(len(places))[:, None].expand_as(places)
    real = batch["targets"] != 0
    expected = golden["logits"][rows[real], places[real]]
    torch.testing.assert_close(output.logits["targets"][real], expected, **SCORE_TOLERANCE)
    loss = output.losses["targets"]
    torch.testing.assert_close(loss.sum, golden["loss_num_ls00"], **SUM_TOLERANCE)
    torch.testing.assert_close(loss.weight, golden["loss_den_ls00"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_masked_attention_trains_on_inputs_too_and_full_attention_on_targets(variant: str) -> None:
    golden = arrays(variant, "eval")
    joined = golden["in_targets"]
    counted = golden["weights"] if "full" in variant else (joined != 0).float()
    expected = cross_entropy(golden["logits"], joined, 0.1) * counted
    dropouts = ("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout")
    model = load_model(variant, label_smoothing=0.1, **dict.fromkeys(dropouts, 0.0)).train()
    loss = model(parts(joined)[0]).losses["targets"]
    torch.testing.assert_close(loss.sum.detach(), expected.sum(), **SUM_TOLERANCE)
    torch.testing.assert_close(loss.weight, counted.sum())


def as_counted_by_tensor2tensor(model: Transformer, inputs: Tensor, how: dict[str, Any]) -> Any:
    """Searches with the inputs and the 0 counted as length: limit, penalty and bound.

    They become a forced prefix whose steps the model does not see, as it has read the inputs at
    once; the search here counts what is written alone.
    """
    length = inputs.size(1) + 1  # with the 0
    seen = 0

    def step(ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        nonlocal seen
        seen += 1
        if seen <= length:
            return torch.zeros(len(ids), 1), state
        return model.step(torch.zeros_like(ids) if seen == length + 1 else ids, state)

    with torch.inference_mode():
        return beam_search(
            step,
            model.encode({"inputs": inputs}),
            max_lengths=torch.full((len(inputs),), length + how["decode_length"]),
            beam_size=how["beam_size"],
            policy=BeamPolicy(
                alpha=how["alpha"],
                stop_early=how["top_beams"] == 1,
                per_place=1 if how["beam_size"] == 1 else 2,
            ),
            prefix=torch.full((len(inputs), length), EOS + 1),
        )


def check(found: Hypotheses, golden: dict[str, Tensor], places: int) -> None:
    ids = golden["ids"].view(golden["ids"].size(0), places, -1)
    scores = golden["scores"].view(-1, places)
    torch.testing.assert_close(found.scores[:, :places], scores, **SCORE_TOLERANCE)
    for row in range(ids.size(0)):
        for place in range(places):
            ours, theirs = found.ids[row, place].tolist(), ids[row, place].tolist()
            ends = [one[: one.index(EOS) + 1] for one in (ours, theirs)]
            assert ends[0] == ends[1]


def decode_of(variant: str, tag: str) -> dict[str, Tensor]:
    stored = arrays(variant, "decode").items()
    found = {k.removeprefix(f"{tag}/"): v for k, v in stored if k.startswith(f"{tag}/")}
    # A problem without inputs gave the prefix by that name, with its 0.
    ends_in_zero = bool((found["in_inputs"][:, -1] == 0).all())
    return found | {"in_inputs": found["in_inputs"][:, :-1] if ends_in_zero else found["in_inputs"]}


@pytest.mark.parametrize(("variant", "how"), DECODES)
def test_decodes_are_those_of_tensor2tensor(variant: str, how: dict[str, Any]) -> None:
    golden = decode_of(variant, how["tag"])
    # It decoded a model that was trained with full attention as if it had the other mask.
    model = load_model(variant, prepend_mode="prepend_inputs_masked_attention")
    check(as_counted_by_tensor2tensor(model, golden["in_inputs"], how), golden, how["top_beams"])
