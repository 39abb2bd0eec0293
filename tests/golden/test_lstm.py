"""Our LSTM models with tensor2tensor's weights compute tensor2tensor's numbers.

Weights, logits, losses and decodes are of tensor2tensor 1.15.7 on TensorFlow 1.15.5.  Its attention
looks at padding, so here ours is made to: see `reading_padding`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import beam_search
from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.model import T2TModel
from t2t_torch.models.lstm_seq2seq import AttentionMemory
from t2t_torch.text.encoder import EOS, NUM_RESERVED, IntegerEncoder

VARIANTS = ("seq2seq_no_attention", "bahdanau", "luong", "luong_multi")
FOLDER = Path(__file__).parent / "lstm"
RECORDS = {name: json.loads((FOLDER / name / "hparams.json").read_text()) for name in VARIANTS}
SCORE_TOLERANCE = {"atol": 2e-5, "rtol": 0.0}
SUM_TOLERANCE = {"atol": 1e-4, "rtol": 0.0}


def variables(variant: str) -> dict[str, Any]:
    return dict(np.load(FOLDER / variant / "variables.npz"))


def arrays(variant: str) -> dict[str, Tensor]:
    loaded = np.load(FOLDER / variant / "eval.npz")
    return {
        name: torch.from_numpy(
            loaded[name].astype(np.int64) if loaded[name].dtype.kind == "i" else loaded[name]
        )
        for name in loaded.files
    }


def make(variant: str, **hparams: Any) -> Any:
    record = RECORDS[variant]
    sizes = record["problem_hparams"]["vocab_size"]
    texts = {name: Text(IntegerEncoder(size - NUM_RESERVED)) for name, size in sizes.items()}
    features = Features({"inputs": texts["inputs"]}, {"targets": texts["targets"]})
    read = convert_hparams(record["model"], record["hparams"] | hparams)
    return registry.model(record["model"])(read, features)


def reading_padding(variant: str, **hparams: Any) -> T2TModel:
    """A model with tensor2tensor's weights whose attention, like its, has no mask."""
    model = make(variant, **hparams)
    load_variables(model, variables(variant))
    if RECORDS[variant]["model"] == "lstm_seq2seq_attention":
        attention = model.attention
        attention.remember = lambda encoded: AttentionMemory(
            attention.memory_layer(encoded.outputs), encoded.outputs, torch.ones_like(encoded.mask)
        )
    return model.eval()


def batch_of(golden: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"inputs": golden["in_inputs"], "targets": golden["in_targets"]}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_losses_are_those_of_tensor2tensor(variant: str) -> None:
    golden = arrays(variant)
    batch = batch_of(golden)
    with torch.no_grad():
        output = reading_padding(variant)(batch)
    real = batch["targets"] != 0
    torch.testing.assert_close(
        output.logits["targets"][real], golden["logits"][real], **SCORE_TOLERANCE
    )
    torch.testing.assert_close(
        output.losses["targets"].sum, golden["loss_num_ls00"], **SUM_TOLERANCE
    )
    torch.testing.assert_close(output.losses["targets"].weight, golden["loss_den_ls01"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_training_loss_is_the_smoothed_one_of_tensor2tensor(variant: str) -> None:
    golden = arrays(variant)
    loss = reading_padding(variant, dropout=0.0).train()(batch_of(golden)).losses["targets"]
    torch.testing.assert_close(loss.sum.detach(), golden["loss_num_ls01"], **SUM_TOLERANCE)
    losses = cross_entropy(golden["logits"], golden["in_targets"], 0.1)
    torch.testing.assert_close(losses * golden["weights"], golden["xent_ls01"], **SCORE_TOLERANCE)


def through_eos(ids: Tensor) -> list[int]:
    """tensor2tensor's slow search goes on behind EOS while another row runs."""
    found = ids.tolist()
    return found[: found.index(EOS) + 1] if EOS in found else found


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("tag", "beam"), [("greedy", 1), ("beam3_a06_top3", 3)])
def test_decodes_are_those_of_tensor2tensor(variant: str, tag: str, beam: int) -> None:
    golden = {name.removeprefix(f"decode/{tag}/"): value for name, value in arrays(variant).items()}
    model, inputs = reading_padding(variant), golden["in_inputs"]
    with torch.inference_mode():
        found = beam_search(
            model.step,
            model.encode({"inputs": inputs}),
            max_lengths=torch.full((len(inputs),), inputs.size(1) + 4),
            beam_size=beam,
            policy=BeamPolicy(alpha=0.6, stop_early=False, per_place=1 if beam == 1 else 2),
        )
    expected = golden["ids"].view(len(inputs), beam, -1)
    for row in range(len(inputs)):
        for place in range(beam):
            ids = found.ids[row, place]
            assert through_eos(ids) == through_eos(expected[row, place])[: len(ids)]
    if beam > 1:
        torch.testing.assert_close(found.scores, golden["scores"], **SCORE_TOLERANCE)


def test_ours_does_not_look_at_padding() -> None:
    model = make("bahdanau")
    load_variables(model, variables("bahdanau"))
    golden = batch_of(arrays("bahdanau"))
    row = {name: torch.nn.functional.pad(ids[1:2], (0, 30)) for name, ids in golden.items()}
    short = {name: ids[:, : int((ids != 0).sum())] for name, ids in row.items()}
    with torch.no_grad():
        long, alone = (model.eval()(one).logits["targets"] for one in (row, short))
        theirs = reading_padding("bahdanau")(row).logits["targets"]
    torch.testing.assert_close(long[:, : alone.size(1)], alone, atol=1e-5, rtol=1e-5)
    assert (theirs - long).abs().max() > 1e-3


def test_several_heads_of_bahdanau_read_their_own_vectors() -> None:
    given = variables("bahdanau")
    scope = "lstm_seq2seq_attention/body/lstm_seq2seq_attention/decoder/rnn/attention_wrapper/"
    first = f"{scope}bahdanau_attention/attention_v"
    more = {
        f"{scope}bahdanau_attention_1/attention_v": given[first] * 2,
        f"{scope}attention_layer_1/kernel": given[f"{scope}attention_layer/kernel"] * 2,
        "lstm_seq2seq_attention/body/lstm_seq2seq_attention/decoder/dense/kernel": np.ones(
            (48, 24), np.float32
        ),
        "lstm_seq2seq_attention/body/lstm_seq2seq_attention/decoder/dense/bias": np.ones(
            24, np.float32
        ),
    }
    cell = f"{scope}multi_rnn_cell/cell_0/lstm_cell/kernel"
    wider = np.concatenate([given[cell][:48], given[cell][24:48], given[cell][48:]])
    model = make("bahdanau", num_heads=2)
    load_variables(model, given | more | {cell: wider})
    match = model.attention.match.weight
    torch.testing.assert_close(match[0], torch.from_numpy(given[first]))
    torch.testing.assert_close(match[1], 2 * match[0])
    torch.testing.assert_close(
        model.attention.layers[1].weight, 2 * model.attention.layers[0].weight
    )


def test_what_does_not_fit_is_named() -> None:
    record = RECORDS["luong"]
    with pytest.raises(HParamsError, match="max_area_width"):
        convert_hparams(record["model"], record["hparams"] | {"max_area_width": 3})
    with pytest.raises(HParamsError, match="hidden_sizes"):
        convert_hparams(record["model"], record["hparams"] | {"hidden_sizes": 3})
    given = variables("luong")
    with pytest.raises(CheckpointError, match=r"luong/magic"):
        load_variables(make("luong"), given | {"luong/magic": np.zeros(3)})
    with pytest.raises(CheckpointError, match=r"decoder\.0\.weight_ih"):
        load_variables(make("luong", attention_layer_size=8), given)
    load_variables(make("luong"), given | {"global_step": np.array(400)})
