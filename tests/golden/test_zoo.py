"""Our models with the weights of tensor2tensor's zoo compute tensor2tensor's numbers.

Weights, logits, losses and decodes are of tensor2tensor 1.15.7 on TensorFlow 1.15.5, one folder for
each variant in `zoo/`.  Where its result depends on padding and ours does not, ours is made to: see
`reading_padding`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import beam_search
from t2t_torch.features import ClassLabel, Feature, Features, Real, Text
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables
from t2t_torch.layers import pooling
from t2t_torch.layers.mixture_of_experts import MixtureOfExperts
from t2t_torch.models import transformer
from t2t_torch.models.lstm_seq2seq import LSTMSeq2seqAttention
from t2t_torch.models.text_classifier import TextCnn
from t2t_torch.models.transformer_moe import SeparableFeedForward, TransformerMoe
from t2t_torch.text.encoder import EOS, NUM_RESERVED, ClassLabelEncoder, IntegerEncoder

FOLDER = Path(__file__).parent / "zoo"
VARIANTS = sorted(path.name for path in FOLDER.iterdir())
SCORES = {"atol": 2e-5, "rtol": 0.0}
SUMS = {"atol": 1e-4, "rtol": 0.0}

KINDS: Mapping[str, Callable[[int], Feature]] = {
    "symbol": lambda size: Text(IntegerEncoder(size - NUM_RESERVED)),
    "class_label": lambda size: ClassLabel(ClassLabelEncoder([f"c{i}" for i in range(size)])),
    "real_l2": lambda size: Real(size),
}
"""Features by tensor2tensor's modality."""


class Variant:
    """A golden folder.

    Args:
      name: name of the folder.
    """

    def __init__(self, name: str) -> None:
        self.folder = FOLDER / name
        self.record = json.loads((self.folder / "hparams.json").read_text())
        self.decodes = {one["tag"]: one for one in self.record["decodes"]}

    @functools.cached_property
    def variables(self) -> dict[str, Any]:
        return dict(np.load(self.folder / "variables.npz"))

    def arrays(self, file: str, tag: str = "") -> dict[str, Tensor]:
        loaded = np.load(self.folder / f"{file}.npz")
        return {
            name.removeprefix(tag): torch.from_numpy(
                loaded[name].astype(np.int64) if loaded[name].dtype.kind == "i" else loaded[name]
            )
            for name in loaded.files
            if name.startswith(tag)
        }

    def features(self) -> Features:
        problem = self.record["problem_hparams"]
        made = {
            name: KINDS[kind](problem["vocab_size"][name])
            for name, kind in problem["modality"].items()
        }
        return Features(
            {name: feature for name, feature in made.items() if name == "inputs"},
            {"targets": made["targets"]},
            target_space_id=problem["target_space_id"],
        )

    def model(self, **hparams: Any) -> Any:
        """Returns our model with the golden weights, in EVAL mode."""
        name = self.record["model"]
        read = convert_hparams(name, self.record["hparams"], self.variables).replace(**hparams)
        model = registry.model(name)(read, self.features())
        load_variables(model, self.variables)
        return model.eval()


VARIANT = {name: Variant(name) for name in VARIANTS}
LABELS = [name for name, one in VARIANT.items() if one.record["task"] in ("cls", "reg")]
READ_PADDING = (
    "lstm_seq2seq_attention_bidirectional_encoder",
    "transformer_moe",
    "universal_transformer_act_global",
)
TEXTS = [name for name in VARIANTS if name not in (*LABELS, "transformer_memory")]
SCORED = [
    ("transformer_scorer", "score"),
    # Its search excludes hypotheses after an id 0, where its LSTM ends a text.
    ("lstm_seq2seq_bidirectional_encoder", "beam4_a06_top1"),
]
DECODES = [(n, tag) for n in TEXTS for tag in VARIANT[n].decodes if (n, tag) not in SCORED]


def batch_of(golden: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("in_"): v for name, v in golden.items() if name.startswith("in_")}


def reading_padding(model: Any, inputs: Tensor) -> Any:
    """Makes means over positions include padding, which tensor2tensor's networks leave as it is."""
    there = inputs != 0

    def skip(module: Any, given: Any, found: Tensor) -> Tensor:
        return found * there[..., None]

    def whole(values: Tensor, step: int) -> Tensor:
        return values.mean(1, keepdim=True).expand_as(values)

    if isinstance(model, TextCnn):
        model.modality("inputs").mask = torch.ones_like
        return model
    if isinstance(model, TransformerMoe):
        for layer in model.encoder:
            if isinstance(part := layer.feed_forward, SeparableFeedForward):
                part._padded = lambda number, x, windows, _, run=part._padded: run(
                    number, x, windows, None
                )
                places = torch.arange(
                    inputs.size(1)
                )  # of a layer whose attention has no other mask
                layer.attention.forward = functools.partial(
                    layer.attention.forward, mask=model._local_mask(places, is_masked=True)
                )
                layer.attention.forward = lambda x, _, run=layer.attention.forward: run(x)
        return model
    if isinstance(model, LSTMSeq2seqAttention):
        remember = model.attention.remember
        model.attention.remember = lambda encoded: remember(
            encoded._replace(mask=torch.ones_like(encoded.mask))
        )
    for layer in model.encoder if isinstance(model.encoder, torch.nn.ModuleList) else ():
        layer.feed_forward.register_forward_hook(skip)
    for side in ("encoder_recurrence", "decoder_recurrence"):
        if (recurrence := getattr(model, side, None)) is not None and recurrence.halts_together:
            recurrence.forward = lambda x, block, mask, positions, _, run=recurrence.forward: run(
                x, block, mask, positions, whole
            )
    return model


@pytest.mark.parametrize("name", TEXTS)
def test_logits_and_losses_are_those_of_tensor2tensor(name: str) -> None:
    golden = VARIANT[name].arrays("eval")
    batch = batch_of(golden)
    model = VARIANT[name].model()
    if name in READ_PADDING:
        reading_padding(model, batch["inputs"])
    with torch.no_grad():
        output = model(batch)
    real = batch["targets"] != 0
    torch.testing.assert_close(output.logits["targets"][real], golden["logits"][real], **SCORES)
    torch.testing.assert_close(output.losses["targets"].sum, golden["loss_num"], **SUMS)
    torch.testing.assert_close(output.losses["targets"].weight, golden["loss_den"])


@pytest.mark.parametrize("name", LABELS)
def test_logits_and_losses_of_examples_are_those_of_tensor2tensor(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = VARIANT[name].arrays("eval")
    targets = golden["in_targets"].view(len(golden["in_targets"]), -1)
    numbers = targets.is_floating_point()
    batch = {"inputs": golden["in_inputs"], "targets": targets if numbers else targets[:, 0]}
    monkeypatch.setattr(pooling, "mean", lambda hidden, mask: hidden.mean(1))
    with torch.no_grad():
        output = reading_padding(VARIANT[name].model(), batch["inputs"])(batch)
    expected = golden["logits"].view(len(targets), -1)
    torch.testing.assert_close(output.logits["targets"], expected, **SCORES)
    torch.testing.assert_close(output.losses["targets"].sum, golden["loss_num"], **SUMS)
    torch.testing.assert_close(output.losses["targets"].weight, golden["loss_den"])


@pytest.mark.parametrize("name", [name for name in VARIANTS if "_act" in name])
def test_the_loss_of_steps_is_that_of_tensor2tensor(name: str) -> None:
    golden = VARIANT[name].arrays("eval")
    batch = batch_of(golden)
    rates = ("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout")
    model = VARIANT[name].model(**dict.fromkeys(rates, 0.0)).train()
    reading_padding(model, batch["inputs"])
    model(batch)
    sides = (model.encoder_recurrence, model.decoder_recurrence)
    found = sum(side.ponder.mean() for side in sides)  # padding has steps, too
    torch.testing.assert_close(0.01 * found, golden["losses/act_loss"], **SCORES)


def test_chunks_continue_as_tensor2tensor_intends() -> None:
    variant = VARIANT["transformer_memory"]
    golden, model = variant.arrays("eval"), variant.model()
    length = model.hparams.stream_length
    found = []
    for block, targets in enumerate(golden["in_targets"].split(length, 1)):
        rows = torch.arange(len(targets))
        batch = {
            "targets": targets,
            "targets_before": torch.zeros_like(rows),  # each chunk starts with a vector of zeros
            "targets_stream": rows,
            "targets_block": torch.full_like(rows, block),
        }
        with torch.no_grad():
            found.append(model(batch).logits["targets"])
    real = golden["in_targets"] != 0
    expected = golden["logits_intended_recomputed"]
    torch.testing.assert_close(torch.cat(found, 1)[real], expected[real], **SCORES)


def test_the_loss_of_gates_is_that_of_tensor2tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MixtureOfExperts, "_drawn", lambda self, like: torch.zeros_like(like))
    variant = VARIANT["transformer_moe_ffn_topk"]
    golden = variant.arrays("eval")
    rates = ("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout")
    model = variant.model(**dict.fromkeys(rates, 0.0)).train()
    batch = batch_of(golden)
    monkeypatch.setattr(transformer, "mark_data", lambda layers, there: None)  # padding counts
    hidden = model.body(model.bottom(batch))["targets"]
    torch.testing.assert_close(hidden.penalty.mean(), golden["losses/extra_loss"], **SCORES)


def through_eos(ids: Tensor) -> list[int]:
    """Greedy decodes of tensor2tensor go on behind EOS while another row runs."""
    found = ids.tolist()
    ends = [found.index(end) for end in (EOS, 0) if end in found]
    return found[: min(ends) + 1] if ends else found


@pytest.mark.parametrize(("name", "tag"), DECODES)
def test_decodes_are_those_of_tensor2tensor(name: str, tag: str) -> None:
    variant, how = VARIANT[name], VARIANT[name].decodes[tag]
    golden = variant.arrays("decode", f"{tag}/")
    model, inputs = variant.model(), golden["in_inputs"]
    if name in READ_PADDING:
        reading_padding(model, inputs)
    has_inputs = model.features.has_inputs
    width = golden["ids"].size(-1)
    with torch.inference_mode():
        found = beam_search(
            model.step,
            model.encode({"inputs" if has_inputs else "targets": inputs}),
            max_lengths=torch.full((len(inputs),), inputs.size(1) + how["decode_length"]),
            beam_size=how["beam_size"],
            policy=BeamPolicy(
                alpha=how["alpha"], stop_early=True, per_place=1 if how["beam_size"] == 1 else 2
            ),
            prefix=None if has_inputs else inputs,
        )
    ids = found.ids[:, 0]
    if not has_inputs:
        ids = ids[:, -width:]
    for row in range(len(inputs)):
        expected = golden["ids"].view(len(inputs), -1)[row]
        assert through_eos(ids[row])[:width] == through_eos(expected)
    if "scores" in golden and how["beam_size"] > 1:
        scores = golden["scores"].view(len(inputs), -1)
        torch.testing.assert_close(found.scores[:, : scores.size(1)], scores, **SCORES)


@pytest.mark.parametrize(("name", "tag"), SCORED)
def test_log_probabilities_of_targets_are_those_of_tensor2tensor(name: str, tag: str) -> None:
    golden = VARIANT[name].arrays("decode", f"{tag}/")
    targets = golden.get("in_targets", golden["ids"])
    with torch.no_grad():
        output = VARIANT[name].model()({"inputs": golden["in_inputs"], "targets": targets})
    found = output.logits["targets"].log_softmax(-1).gather(-1, targets[..., None])[..., 0].sum(1)
    torch.testing.assert_close(found, golden["scores"].view(len(found), -1)[:, 0], **SCORES)
