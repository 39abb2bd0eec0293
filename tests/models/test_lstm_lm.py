"""The LSTM language model: what it carries, ties, drops and adds to the loss."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.layers.recurrent import CarriedMemory
from t2t_torch.models.lstm_lm import LstmLayer, LstmLm, WordDropout
from t2t_torch.testing import text_features

FEATURES = text_features(has_inputs=False)
TINY = registry.hparams("lstm_lm_tiny").replace(
    hidden_size=12, embedding_size=8, stream_length=5, stream_rows=3
)
STILL = TINY.replace(input_dropout=0.0, between_dropout=0.0, output_dropout=0.0)


def make(hparams=STILL, seed=0):
    torch.manual_seed(seed)
    return LstmLm(hparams, FEATURES)


def text(rows=3, length=20, seed=1):
    return torch.randint(1, 19, (rows, length), generator=torch.Generator().manual_seed(seed))


def blocks_of(ids, length=5, streams=None):
    """The batches in which streams come, as the pipeline makes them."""
    streams = torch.arange(len(ids)) if streams is None else streams
    for block, part in enumerate(ids.split(length, 1)):
        before = ids[:, block * length - 1] if block else torch.zeros(len(ids), dtype=torch.int64)
        blocks = torch.full((len(ids),), block)
        yield {
            "targets": part,
            "targets_before": before,
            "targets_stream": streams,
            "targets_block": blocks,
        }


def logits_in_blocks(model, ids, **how):
    """All logits of a text that is read in blocks, of a model in TRAIN or EVAL."""
    top = model.modalities["targets"].top
    found = [
        top(model.body(model.bottom(batch))["targets"].states) for batch in blocks_of(ids, **how)
    ]
    return torch.cat(found, 1)


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_a_text_read_in_blocks_is_one_long_pass(training):
    model, ids = make(), text()
    whole = model.eval()({"targets": ids}).logits["targets"]
    model.train(training)
    torch.testing.assert_close(logits_in_blocks(model, ids), whole, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_text_begins_as_after_the_end_of_another():
    model = make().eval()
    first = model({"targets": torch.tensor([[5, 1, 7, 8]])}).logits["targets"]
    zero = [torch.zeros(1, 2 * layer.size) for layer in model.layers]
    state = model.encode({"targets": torch.zeros(1, 0)})
    assert all(torch.equal(a, b) for a, b in zip(state.memory, zero, strict=True))
    by_eos, _ = model.step(torch.tensor([1]), state)
    torch.testing.assert_close(first[:, 0], by_eos)


@torch.no_grad()
def test_an_evaluation_leaves_what_training_remembers():
    model, ids = make().train(), text()
    batches = list(blocks_of(ids))
    expected = logits_in_blocks(model, ids)[:, 5:10]
    model.body(model.bottom(batches[0]))
    kept = {name: values.clone() for name, values in model.state_dict().items()}
    logits_in_blocks(model.eval(), text(seed=7))
    assert all(torch.equal(model.state_dict()[name], values) for name, values in kept.items())
    model.train()
    found = model.modalities["targets"].top(model.body(model.bottom(batches[1]))["targets"].states)
    torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_a_pass_that_is_made_again_finds_the_same():
    model = make().train()
    first, second, *_ = blocks_of(text())
    model.body(model.bottom(first))
    once = model.body(model.bottom(second))["targets"].states
    assert torch.equal(model.body(model.bottom(second))["targets"].states, once)


def test_a_loaded_model_reads_on_where_the_saved_one_stood():
    model = make().train()
    first, second, *_ = blocks_of(text())
    model(first)
    other = make(seed=5).train()
    other.load_state_dict(model.state_dict())
    losses = [one(second).losses["targets"].sum for one in (model, other)]
    assert torch.equal(*losses)


def test_gradients_end_with_the_batch():
    model = make().train()
    first, second, *_ = blocks_of(text())
    model(first).losses["targets"].sum.backward()
    model.zero_grad()
    model(second).losses["targets"].sum.backward()  # nothing of the first is asked for
    assert not any(layer.requires_grad for layer in model.carried.layers)


def test_a_memory_that_is_not_finite_is_forgotten():
    memory = CarriedMemory([2], 2).train()
    streams, block = torch.arange(2), torch.zeros(2, dtype=torch.int64)
    memory.write(streams, block, [torch.tensor([[1.0, torch.nan], [3.0, 4.0]])])
    assert memory.read(streams, block + 1)[0].tolist() == [[0.0, 0.0], [3.0, 4.0]]


def test_processes_share_what_each_of_them_has_written():
    """Two processes, each with a stream of its own, as sums over both would be."""
    ours, theirs = CarriedMemory([2], 2).train(), CarriedMemory([2], 2).train()
    block = torch.zeros(1, dtype=torch.int64)
    ours.write(torch.tensor([0]), block, [torch.tensor([[1.0, 2.0]])])
    theirs.write(torch.tensor([1]), block, [torch.tensor([[3.0, 4.0]])])
    sent = []
    theirs.share(lambda values: sent.append(values.clone()))
    ours.share(lambda values: values.add_(sent.pop(0)))
    assert ours.layers[0][0].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert not ours.layers[0][1].any()


def test_a_tied_model_has_one_table_and_its_last_layer_the_width_of_it():
    model = make()
    modality = model.modalities["targets"]
    assert modality.top.weight is modality.bottom.table.weight
    assert [layer.size for layer in model.layers] == [12, 8]
    assert isinstance(model.projection, torch.nn.Identity)


def test_a_tied_model_may_have_a_linear_map_before_the_table():
    model = make(STILL.replace(tie_by_projection=True))
    assert [layer.size for layer in model.layers] == [12, 12]
    assert model.projection.weight.shape == (8, 12)
    assert model.modalities["targets"].top.weight is model.modalities["targets"].bottom.table.weight


def test_an_untied_model_has_two_tables():
    model = make(STILL.replace(shared_embedding_and_softmax_weights=False))
    modality = model.modalities["targets"]
    assert modality.top.weight.shape == (19, 12)
    assert modality.bottom.table.weight.shape == (19, 8)


def test_dropped_weights_are_the_same_at_all_positions_and_never_those_from_the_input():
    torch.manual_seed(0)
    layer = LstmLayer(3, 4, 0.5, 0.0).train()
    x, memory = torch.randn(2, 6, 3), torch.zeros(2, 8)
    torch.manual_seed(3)
    found, after = layer(x, memory)
    torch.manual_seed(3)
    kept = layer.drop_weights(torch.ones(16, 4))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    slow = torch.nn.LSTM(3, 4, batch_first=True)
    slow.load_state_dict(layer.lstm.state_dict())
    with torch.no_grad():
        slow.weight_hh_l0.mul_(kept)
    expected, (hidden, cell) = slow(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(after, torch.cat([hidden[0], cell[0]], -1))


def test_weights_are_whole_in_eval_and_have_gradients_in_train():
    layer = LstmLayer(3, 4, 0.5, 0.0)
    x, memory = torch.randn(2, 6, 3), torch.zeros(2, 8)
    torch.testing.assert_close(layer.eval()(x, memory)[0], layer.lstm(x)[0])
    layer.train()(x, memory)[0].sum().backward()
    gradient = layer.lstm.weight_hh_l0.grad
    assert 0.2 < (gradient == 0).float().mean() < 0.8


def test_a_dropped_word_is_dropped_wherever_it_stands():
    table = torch.nn.Embedding(50, 4)
    embedding = WordDropout(table, 0.5).train()
    ids = torch.arange(50).repeat(2, 3)
    torch.manual_seed(0)
    factor = (embedding(ids) / table(ids)).mean(-1)
    assert set(factor.round(decimals=4).unique().tolist()) == {0.0, 2.0}
    assert all(factor[ids == word].unique().numel() == 1 for word in range(50))
    assert torch.equal(embedding.eval()(ids), table(ids))


def test_the_penalties_are_those_of_the_outputs_where_there_are_tokens():
    plain = make(STILL).train()
    with_both = make(STILL.replace(activation_penalty=2.0, change_penalty=3.0)).train()
    ids = text(2, 6)
    ids[1, 4:] = 0
    hidden = plain.body(plain.bottom({"targets": ids}))["targets"].states
    expected = torch.zeros(())
    for row, length in ((0, 6), (1, 4)):
        states = hidden[row, :length]
        expected = expected + 2.0 * states.square().mean(-1).sum()
        expected = expected + 3.0 * (states[1:] - states[:-1]).square().mean(-1).sum()
    batch = {"targets": ids}
    losses = [one(batch).losses["targets"] for one in (with_both, plain)]
    torch.testing.assert_close(losses[0].sum - losses[1].sum, expected)
    assert losses[0].weight == losses[1].weight == 10
    evaluated = [one.eval()(batch).losses["targets"].sum for one in (with_both, plain)]
    assert torch.equal(*evaluated)


def test_zarembas_rate_falls_after_the_fourth_epoch():
    hparams = registry.hparams("lstm_lm_ptb_small")
    assert hparams.learning_rate_boundaries[0] == 4 * 2323
    assert hparams.learning_rate_multiples[:2] == (0.5, 0.25)


def test_the_awd_model_is_as_large_as_published():
    model = LstmLm(registry.hparams("lstm_lm_awd_ptb"), FEATURES)
    table = model.modalities["targets"].top.weight.numel()
    layers = sum(p.numel() for p in model.parameters()) - table
    assert layers + 10_000 * 400 == 24_211_600 + 0  # 24 million, the softmax's bias left out


def test_a_model_that_reads_no_streams_is_refused(tmp_path):
    from t2t_torch.train.problem_task import check_pairing

    hparams = registry.hparams("transformer_test").replace(stream_length=8)
    with pytest.raises(HParamsError, match="reads each example by itself"):
        check_pairing(registry.model("transformer"), hparams)
