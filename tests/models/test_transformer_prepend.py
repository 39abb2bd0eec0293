"""A Transformer whose decoder reads the inputs before the targets, and one of distances."""

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.decode import word_alignment
from t2t_torch.decode.policies import BeamPolicy
from t2t_torch.decode.search import beam_search
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Real, Text
from t2t_torch.models.transformer import Transformer
from t2t_torch.objectives.objective import Objective
from t2t_torch.text.encoder import IntegerEncoder

SETS = (
    "transformer_relative_tiny",
    "transformer_prepend",
    "transformer_decoder_only_tiny",
    "transformer_prefix_lm_tiny",
)
RELATIVE = {
    "pos": "none",
    "self_attention_type": "dot_product_relative",
    "max_relative_position": 3,
}
MASKED = "prepend_inputs_masked_attention"


def transformer(name, features=None, **hparams):
    torch.manual_seed(0)
    made = testing.small(registry.hparams(name)).replace(**hparams)
    return Transformer(made, features or testing.text_features()).eval()


@pytest.mark.parametrize("name", SETS[1:])
def test_prepended_inputs_and_distances_go_together(name):
    hparams = registry.hparams(name).replace(**RELATIVE)
    testing.check_model(Transformer, hparams, has_inputs=(True,))


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_a_search_finds_for_a_row_what_it_finds_for_it_alone(name, relative):
    """Inputs of four lengths; rows leave the batch when they are done."""
    model = transformer(name, **(RELATIVE if relative else {}))
    inputs = torch.tensor([[5, 6, 7, 8, 1], [9, 1, 0, 0, 0], [1, 0, 0, 0, 0], [3, 4, 1, 0, 0]])
    limits = torch.tensor([7, 4, 5, 9])

    def search(rows):
        width = max(1, int((inputs[rows] != 0).sum(1).max()))
        with torch.inference_mode():
            state = model.encode({"inputs": inputs[rows, :width]})
            return beam_search(
                model.step,
                state,
                max_lengths=limits[rows],
                beam_size=3,
                policy=BeamPolicy(alpha=0.6),
            )

    together = search([0, 1, 2, 3])
    for row in range(4):
        alone = search([row])
        torch.testing.assert_close(together.scores[row], alone.scores[0])
        width = alone.ids.size(-1)
        assert torch.equal(together.ids[row, 0, :width], alone.ids[0, 0])


def test_alignments_are_those_of_the_targets():
    """The decoder attends to the encoder's output where it reads inputs, too."""
    model = transformer("transformer_prepend")
    layer = model.decoder[0].memory_attention
    batch = testing.random_batch(model.features)
    with torch.no_grad():
        together = word_alignment._attention(model, layer, batch, read=False)
        for row in range(3):
            pair = {k: ids[row][ids[row] != 0][None] for k, ids in batch.items()}
            alone = word_alignment._attention(model, layer, pair, read=False)[0]
            torch.testing.assert_close(
                together[row, : alone.size(0), : alone.size(1)], alone, atol=1e-6, rtol=1e-5
            )


def test_a_decoder_alone_has_no_encoder_and_one_table():
    model = transformer("transformer_decoder_only_tiny")
    names = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert names == {"decoder", "decoder_output", "modalities"}
    assert list(model.modalities) == ["targets"]
    assert not any("memory" in name for name, _ in model.named_parameters())


def test_full_attention_lets_early_inputs_see_late_ones():
    batch = testing.random_batch(testing.text_features())
    other = {name: ids.clone() for name, ids in batch.items()}
    other["inputs"][0, 3] = 12
    for name, sees in (("transformer_prefix_lm_tiny", True), ("transformer_decoder_only_tiny", 0)):
        model = transformer(name)
        with torch.no_grad():
            keys = [model.encode(each).prefixes[1].keys[0, :, 2] for each in (batch, other)]
        assert torch.equal(*keys) != bool(sees)


def test_what_is_trained_on_of_inputs_counts_as_the_targets_do():
    features = testing.text_features()
    batch = testing.random_batch(features)
    tokens = {name: int((ids != 0).sum()) for name, ids in batch.items()}
    masked = transformer("transformer_decoder_only_tiny").train()
    loss = masked(batch).losses["targets"]
    assert loss.weight == tokens["inputs"] + tokens["targets"]
    whole = transformer("transformer_prefix_lm_tiny").train()
    assert whole(batch).losses["targets"].weight == tokens["targets"]
    masked.counts_examples = True
    torch.testing.assert_close(masked(batch).losses["targets"].weight, torch.tensor(3.0))


@pytest.mark.parametrize(
    "hparams", [{"r_drop_alpha": 1.0}, {"scheduled_sampling_prob": 1.0, "label_smoothing": 0.0}]
)
def test_further_passes_work_with_prepended_inputs(hparams):
    model = transformer("transformer_decoder_only_tiny", **hparams).train()
    loss = Objective(model)(testing.random_batch(model.features)).losses["targets"]
    loss.sum.backward()
    assert loss.sum.isfinite()


def test_a_teacher_teaches_the_targets():
    model = transformer("transformer_decoder_only_tiny").train()
    objective = Objective(model, transformer("transformer_tiny"))
    assert objective(testing.random_batch(model.features)).losses["targets"].sum.isfinite()


@pytest.mark.parametrize(
    ("hparams", "features", "message"),
    [
        ({"prepend_mode": MASKED}, testing.text_features(has_inputs=False), "no inputs to prepend"),
        ({"prepend_mode": MASKED, "pack_dataset": True}, None, "pack_dataset=False"),
        ({"encode_inputs": False}, None, "nothing would read the inputs"),
        ({"self_attention_type": "dot_product_relative"}, None, "max_relative_position=20"),
        (
            {"prepend_mode": MASKED, "shared_embedding_and_softmax_weights": False},
            Features({"inputs": Text(IntegerEncoder(5))}, {"targets": Text(IntegerEncoder(6))}),
            "vocabularies have 7 and 8 ids",
        ),
        (
            {"prepend_mode": MASKED},
            Features(
                {"inputs": Text(IntegerEncoder(5)), "dense": Real(2)},
                {"targets": Text(IntegerEncoder(5))},
            ),
            "puts one text before another",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_set(hparams, features, message):
    with pytest.raises(HParamsError, match=message):
        transformer("transformer_test", features, **hparams)


@pytest.mark.parametrize("name", ["prepend_mode", "self_attention_type"])
def test_another_name_is_refused_with_those_there_are(name):
    with pytest.raises(HParamsError, match=f"{name}='?prepend_outputs'?: .*(masked|relative)"):
        registry.hparams("transformer_test").parse(f"{name}=prepend_outputs")


def test_packed_examples_cannot_follow_their_inputs():
    model = transformer("transformer_decoder_only_tiny")
    batch = testing.random_batch(model.features)
    batch["targets_segmentation"] = (batch["targets"] != 0).long()
    with pytest.raises(HParamsError, match="not packed"):
        model(batch)
