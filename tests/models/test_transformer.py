"""The Transformer beyond the contract and the golden vectors."""

import dataclasses
import re

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.hparam import HParams
from t2t_torch.models.transformer import Transformer
from t2t_torch.text.encoder import IntegerEncoder

HPARAMS = registry.hparams("transformer_test")


def transformer(hparams=HPARAMS, **options):
    torch.manual_seed(0)
    return Transformer(hparams, dataclasses.replace(testing.text_features(), **options)).eval()


def test_one_table_serves_inputs_targets_and_softmax():
    model = transformer()
    inputs, targets = model.modalities["inputs"], model.modalities["targets"]
    assert inputs.bottom.weight is targets.bottom.weight is targets.top.weight


def test_tables_are_separate_where_asked():
    model = transformer(HPARAMS.replace(shared_embedding_and_softmax_weights=False))
    inputs, targets = model.modalities["inputs"], model.modalities["targets"]
    tables = {id(w) for w in (inputs.bottom.weight, targets.bottom.weight, targets.top.weight)}
    assert len(tables) == 3


def test_vocabularies_of_two_sizes_cannot_share_a_table():
    features = Features({"inputs": Text(IntegerEncoder(5))}, {"targets": Text(IntegerEncoder(6))})
    with pytest.raises(HParamsError, match="shared_embedding_and_softmax_weights=False"):
        Transformer(HPARAMS, features)


def test_hparams_of_another_model_are_refused():
    with pytest.raises(HParamsError, match="needs TransformerHParams"):
        Transformer(HParams(), testing.text_features())


def test_the_target_space_matters():
    batch = testing.random_batch(testing.text_features())
    logits = [transformer(target_space_id=i)(batch).logits["targets"] for i in (0, 3)]
    assert not torch.allclose(*logits)


def test_hypotheses_of_a_sentence_share_its_memory():
    """Three hypotheses of each sentence, reordered, one sentence dropped: as if decoded alone."""
    model = transformer()
    batch = testing.random_batch(model.features)
    with torch.no_grad():
        state = model.encode(batch).expand(3)
        logits, state = model.step(torch.zeros(9, dtype=torch.int64), state)
        ids = torch.arange(2, 11)
        _, state = model.step(ids, state)
        kept = torch.tensor([2, 0, 1, 8, 8, 6])  # sentence 1 is done
        logits, _ = model.step(torch.full((6,), 4), state.reorder(kept))
        for i, row in enumerate(kept.tolist()):
            sentence = {"inputs": batch["inputs"][row // 3][None]}
            targets = torch.tensor([[int(ids[row]), 4, 5]])
            expected = model({**sentence, "targets": targets}).logits["targets"][0, 2]
            torch.testing.assert_close(logits[i], expected, atol=1e-5, rtol=1e-5)


def test_a_packed_row_gives_what_its_examples_give_alone():
    """Except for the first position of a later segment, which sees the end of the one before it."""
    model = transformer()
    pairs = [([5, 6, 1], [7, 8, 9, 1]), ([4, 1], [3, 2, 1])]
    packed = {
        "inputs": [i for s, _ in pairs for i in s],
        "targets": [i for _, t in pairs for i in t],
    }
    batch = {name: torch.tensor([ids]) for name, ids in packed.items()}
    for k, name in enumerate(("inputs", "targets")):
        lengths = [len(pair[k]) for pair in pairs]
        batch[f"{name}_position"] = torch.tensor([[p for n in lengths for p in range(n)]])
        batch[f"{name}_segmentation"] = torch.tensor(
            [[s for s, n in enumerate(lengths, 1) for _ in range(n)]]
        )
    logits = model(batch).logits["targets"][0]
    first = {name: torch.tensor([ids]) for name, ids in zip(batch, pairs[0], strict=False)}
    torch.testing.assert_close(logits[:4], model(first).logits["targets"][0], atol=1e-5, rtol=1e-5)
    batch["inputs"][0, :3] = 9  # the first example's input: the second must not see it
    changed = model(batch).logits["targets"][0]
    torch.testing.assert_close(changed[4:], logits[4:])
    assert not torch.allclose(changed[:4], logits[:4])


def test_a_language_model_needs_no_inputs():
    torch.manual_seed(0)
    model = Transformer(HPARAMS, testing.text_features(has_inputs=False)).eval()
    assert not hasattr(model, "encoder")
    state = model.encode({"targets": torch.zeros(2, 0, dtype=torch.int64)})
    logits, state = model.step(torch.zeros(2, dtype=torch.int64), state)
    assert logits.shape == (2, 19) and state.position == 1


def test_numbers_of_layers_can_differ():
    model = transformer(HPARAMS.replace(num_encoder_layers=3, num_decoder_layers=1))
    assert (len(model.encoder), len(model.decoder)) == (3, 1)


def test_each_step_is_at_the_next_position():
    model = transformer()
    state = model.encode(testing.random_batch(model.features))
    assert state.position == 0
    for position in (1, 2):
        _, state = model.step(torch.zeros(3, dtype=torch.int64), state)
        assert state.position == position


@pytest.mark.parametrize("training", [True, False])
def test_targets_without_inputs_have_a_finite_loss(training):
    """A row without inputs, and packed targets of a segment that has no inputs."""
    model = transformer().train(training)
    empty = testing.random_batch(model.features)
    empty["inputs"][1] = 0
    packed = {
        "inputs": torch.tensor([[5, 6, 1, 7, 1]]),
        "inputs_segmentation": torch.tensor([[1, 1, 1, 2, 2]]),
        "inputs_position": torch.tensor([[0, 1, 2, 0, 1]]),
        "targets": torch.tensor([[5, 1, 7, 1, 0, 0]]),
        "targets_segmentation": torch.tensor([[1, 1, 2, 2, 0, 0]]),
        "targets_position": torch.tensor([[0, 1, 0, 1, 0, 0]]),
    }
    for batch in (empty, packed):
        model.zero_grad()
        loss = model(batch).losses["targets"].sum
        loss.backward()
        assert loss.isfinite()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_the_decoder_may_differ_from_the_encoder():
    """Beam search, padding and gradients are those of the contract."""
    unlike = "decoder_hparams=[hidden_size=8,num_heads=1,filter_size=12,pos=rotary,norm_type=rms]"
    hparams = registry.hparams("transformer_test").parse(
        f"{unlike},shared_embedding_and_softmax_weights=false"
    )
    testing.check_model(registry.model("transformer"), hparams, has_inputs=(True,))


@pytest.mark.parametrize(
    ("model", "text", "said"),
    [
        ("transformer", "batch_size=3", "batch_size: no hyperparameter of a decoder's layers"),
        ("transformer", "num_heads=x", "decoder_hparams: num_heads='x' should be int"),
        ("transformer", "hidden_size=8", "vectors of other widths, so they share no table"),
        ("evolved_transformer", "num_heads=1", "evolved_transformer has no encoder and decoder"),
        ("universal_transformer", "num_heads=1", "universal_transformer has no encoder and"),
    ],
)
def test_what_a_decoder_cannot_have_otherwise_is_refused(model, text, said):
    kind = registry.model(model)
    hparams = kind.HParams().parse(
        f"decoder_hparams=[{text}],shared_embedding_and_softmax_weights=true"
    )
    with pytest.raises(HParamsError, match=re.escape(said)):
        kind(hparams, testing.text_features())
