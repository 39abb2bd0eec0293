"""Numbers of the text classifiers against slower ways to find them."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry
from t2t_torch.features import ClassLabel, Features, MultiLabel, RowWeight, Text, Turns
from t2t_torch.hparams.bilstm_attention_classifier import BilstmAttentionClassifierHParams
from t2t_torch.hparams.fasttext import FasttextHParams
from t2t_torch.hparams.seqnn import SeqnnHParams
from t2t_torch.hparams.text_cnn import TextCnnHParams
from t2t_torch.layers.pooling import hop_penalty
from t2t_torch.models.text_classifier import (
    BilstmAttentionClassifier,
    Fasttext,
    NGrams,
    Seqnn,
    TextCnn,
    _is_first,
    _turns,
)
from t2t_torch.objectives.objective import Objective
from t2t_torch.optim.parameter_groups import parameter_groups
from t2t_torch.testing import small
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder

LABELS = ClassLabelEncoder(["a", "b", "c"])
TEXT = Text(IntegerEncoder(17))
ONE_TEXT = Features({"inputs": TEXT}, {"targets": ClassLabel(LABELS)})
IDS = torch.tensor([[5, 6, 5, 6, 5, 1], [7, 8, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]])
BATCH = {"inputs": IDS, "targets": torch.tensor([0, 1, 2])}


def slow_rows(ids, order, buckets):
    rows = []
    for length in range(2, order + 1):
        for first in range(len(ids) - length + 1):
            number = ids[first]
            for position in range(1, length):
                number = (number * 116_049_371 + ids[first + position] + position + 1) % (2**31 - 1)
            rows.append(number % buckets + 1)
    return rows


def test_ngrams_have_the_rows_of_a_slow_loop():
    found = NGrams(4, 3, 1000).rows(IDS, IDS != 0)
    for ids, rows in zip(IDS, found, strict=True):
        expected = slow_rows([i for i in ids.tolist() if i], 3, 1000)
        assert [row for row in rows.tolist() if row] == expected
    assert found[0, 0] == found[0, 2] != found[0, 1]  # "5 6" twice, and "6 5"


@pytest.mark.parametrize("count_once", [False, True])
def test_fasttext_is_the_mean_of_words_and_ngrams(count_once):
    torch.manual_seed(0)
    hparams = small(FasttextHParams()).replace(ngram_order=3, count_once=count_once)
    model = Fasttext(hparams, ONE_TEXT).eval()
    torch.nn.init.normal_(model.ngrams.weight)
    words = model.modalities["inputs"].bottom
    found = model.body(model.bottom(BATCH))["targets"].states
    for b, row in enumerate(IDS):
        ids = [i for i in row.tolist() if i]
        grams = slow_rows(ids, 3, hparams.ngram_buckets)
        if count_once:
            ids, grams = dict.fromkeys(ids), dict.fromkeys(grams)
        vectors = [words(torch.tensor(i)) for i in ids] + [model.ngrams.weight[i] for i in grams]
        torch.testing.assert_close(found[b], torch.stack(vectors).mean(0))


def test_dropout_of_the_bag_takes_the_mean_of_what_is_left():
    torch.manual_seed(0)
    hparams = small(FasttextHParams()).replace(bag_dropout=0.5, layer_prepostprocess_dropout=0.0)
    model = Fasttext(hparams, ONE_TEXT).train()
    with torch.no_grad():
        model.modalities["inputs"].bottom.weight.fill_(2.0)
        model.ngrams.weight[1:].fill_(2.0)
    scale = model.modalities["inputs"].bottom.scale
    model.ngrams.weight.data[1:] *= scale
    found = torch.cat([model.body(model.bottom(BATCH))["targets"].states for _ in range(20)])
    left = found.any(1)  # of one word nothing may be left
    torch.testing.assert_close(found[left], torch.full_like(found[left], 2.0 * scale))
    assert not left.all()


def test_the_first_of_equal_ids_is_found():
    ids = torch.tensor([[3, 1, 3, 1, 2], [4, 4, 4, 0, 0]])
    expected = [[True, True, False, False, True], [True, False, False, True, False]]
    assert _is_first(ids).tolist() == expected


def test_the_norm_of_each_class_is_bounded_after_every_step():
    torch.manual_seed(0)
    hparams = small(TextCnnHParams()).replace(max_norm=0.5, optimizer="sgd")
    model = TextCnn(hparams, ONE_TEXT).train()
    top = model.modalities["targets"].top
    optimizer = registry.optimizer("sgd")(parameter_groups(model, hparams), hparams)
    for group in optimizer.param_groups:
        group["lr"] = 5.0
    reached = False
    for _ in range(4):
        model(BATCH).losses["targets"].sum.backward()
        optimizer.step()
        before = top.weight.detach().clone()
        model.after_step()
        norms = before.norm(dim=1)
        reached |= bool((norms > 0.5).any())
        assert (top.weight.norm(dim=1) <= 0.5 * (1 + 1e-5)).all()
        kept = norms <= 0.5
        assert torch.equal(top.weight[kept], before[kept])
        once = top.weight.detach().clone()
        model.after_step()
        assert torch.equal(top.weight, once)  # a bound that holds moves nothing
        optimizer.zero_grad()
    assert reached


def test_without_a_bound_the_norm_is_left_alone():
    model = TextCnn(small(TextCnnHParams()).replace(max_norm=0.0), ONE_TEXT)
    weight = model.modalities["targets"].top.weight
    weight.data.fill_(9.0)
    model.after_step()
    assert (weight == 9.0).all()


def losses(penalty, features=ONE_TEXT, batch=BATCH, **more):
    torch.manual_seed(0)
    hparams = small(BilstmAttentionClassifierHParams()).replace(
        layer_prepostprocess_dropout=0.0, attention_penalty=penalty, **more
    )
    model = BilstmAttentionClassifier(hparams, features)
    given = model.bottom(batch)
    hidden = model.lstm(model.tokens(given), given["inputs"].mask)
    penalties = hop_penalty(model.attention(hidden, given["inputs"].mask).weights)
    trained = Objective(model).train()(batch).losses
    return trained, model.eval()(batch).losses, penalties


def test_the_penalty_is_added_to_each_example_in_train_alone():
    plain, plain_eval, penalties = losses(0.0)
    trained, evaluated, _ = losses(0.5)
    expected = plain["targets"].sum + 0.5 * penalties.sum()
    torch.testing.assert_close(trained["targets"].sum, expected)
    assert trained["targets"].weight == plain["targets"].weight
    assert torch.equal(evaluated["targets"].sum, plain_eval["targets"].sum)


def test_the_penalty_counts_as_its_example_does():
    features = Features(
        {"inputs": TEXT}, {"targets": ClassLabel(LABELS)}, notes={"weight": RowWeight()}
    )
    batch = {**BATCH, "targets": torch.tensor([0, -1, 2]), "weight": torch.tensor([0.5, 2.0, 3.0])}
    plain, _, penalties = losses(0.0, features, batch)
    trained, _, _ = losses(1.0, features, batch)
    added = trained["targets"].sum - plain["targets"].sum
    torch.testing.assert_close(added, 0.5 * penalties[0] + 3.0 * penalties[2])


def test_of_two_passes_the_penalty_is_the_mean():
    once, _, penalties = losses(1.0)
    twice, _, _ = losses(1.0, r_drop_alpha=1.0, symbol_dropout=1e-9)  # the passes are the same
    torch.testing.assert_close(twice["targets"].sum, once["targets"].sum)
    assert penalties.sum() > 0


def test_each_target_has_the_penalty():
    features = Features(
        {"inputs": TEXT}, {"targets": ClassLabel(LABELS), "topics": MultiLabel(LABELS)}
    )
    batch = {**BATCH, "topics": torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]], dtype=torch.uint8)}
    plain, _, penalties = losses(0.0, features, batch)
    trained, _, _ = losses(1.0, features, batch)
    for name in features.targets:
        torch.testing.assert_close(trained[name].sum, plain[name].sum + penalties.sum())


def test_turns_are_cut_where_they_end():
    ids = torch.tensor([[5, 1, 6, 7, 8, 1, 9, 0], [1, 4, 1, 0, 0, 0, 0, 0]])
    words = ids[..., None].float() * torch.tensor([1.0, 10.0])
    found, mask = _turns(words, ids)
    assert found.shape == (2, 3, 4, 2)
    assert found[..., 0].tolist() == [
        [[5, 1, 0, 0], [6, 7, 8, 1], [9, 0, 0, 0]],  # the last one is cut off
        [[1, 0, 0, 0], [4, 1, 0, 0], [0, 0, 0, 0]],
    ]
    assert torch.equal(found[..., 1], 10 * found[..., 0])
    assert torch.equal(mask, found[..., 0] != 0)


@pytest.mark.parametrize("encoder", ["cnn", "bilstm"])
def test_a_conversation_is_what_its_turns_are_in_their_order(encoder):
    torch.manual_seed(0)
    features = Features({"inputs": Turns(IntegerEncoder(17))}, {"targets": ClassLabel(LABELS)})
    model = Seqnn(small(SeqnnHParams()).replace(utterance_encoder=encoder), features).eval()
    ids = torch.tensor([[5, 1, 6, 7, 1], [6, 7, 1, 5, 1], [5, 1, 0, 0, 0]])
    logits = model.logits({"inputs": ids})["targets"]
    assert not torch.allclose(logits[0], logits[1])
    embedded = model.modalities["inputs"].bottom(ids)
    alone = [embedded[:1, :2], embedded[:1, 2:]]
    parts = [model.utterance(part, torch.ones(part.shape[:2]).bool()) for part in alone]
    whole = model.conversation(torch.stack(parts, 1), torch.ones(1, 2).bool())
    expected = model.modalities["targets"].top(whole)
    torch.testing.assert_close(logits[:1], expected)
    torch.testing.assert_close(model.logits({"inputs": ids[2:, :2]})["targets"], logits[2:])
