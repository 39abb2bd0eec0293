"""How features enter and leave a network."""

import torch

from t2t_torch.hparam import HParams
from t2t_torch.modalities.text import Embedding

IDS = torch.randint(1, 50, (100, 100))


def embedding_of(symbol_dropout, **fields):
    plain = HParams().replace(hidden_size=8, multiply_embedding_mode="none")
    return Embedding(50, plain.replace(symbol_dropout=symbol_dropout, **fields), unknown=2)


def test_padding_is_the_zero_vector_and_the_rest_is_scaled():
    embedding = embedding_of(0.0)
    embedding.scale = 3.0
    vectors = embedding(torch.tensor([[7, 0]]))
    torch.testing.assert_close(vectors[0, 0], 3.0 * embedding.weight[7])
    assert not vectors[0, 1].any()


def test_symbol_dropout_drops_whole_ids_and_scales_nothing():
    torch.manual_seed(0)
    embedding = embedding_of(0.3)
    vectors = embedding(IDS)
    dropped = (vectors == 0).all(-1)
    assert 0.28 < dropped.float().mean() < 0.32
    torch.testing.assert_close(vectors[~dropped], embedding.weight[IDS[~dropped]])


def test_symbol_dropout_is_for_training():
    embedding = embedding_of(0.3).eval()
    assert not (embedding(IDS) == 0).all(-1).any()


def test_word_dropout_reads_the_unknown_word_in_training_alone():
    torch.manual_seed(0)
    embedding = embedding_of(0.0, word_dropout=0.3)
    vectors = embedding(IDS)
    replaced = (vectors == embedding.weight[2]).all(-1) & (IDS != 2)
    assert 0.27 < replaced.float().mean() < 0.32
    torch.testing.assert_close(vectors[~replaced], embedding.weight[IDS[~replaced]])
    assert not replaced[IDS == 1].any()  # the end of a text is no word
    assert torch.equal(embedding.eval()(IDS), embedding.weight[IDS])


def test_without_an_unknown_word_word_dropout_reads_nothing():
    embedding = embedding_of(0.0, word_dropout=0.3)
    embedding.unknown = None
    dropped = (embedding(IDS) == 0).all(-1)
    assert 0.25 < dropped.float().mean() < 0.35
    assert not dropped[IDS == 1].any()


def test_singleton_dropout_is_of_words_that_are_there_once():
    embedding = embedding_of(0.0, singleton_dropout=0.5)
    assert torch.equal(embedding(IDS), embedding.weight[IDS])  # nobody has counted
    embedding.singletons = torch.arange(50) == 7
    replaced = (embedding(IDS) != embedding.weight[IDS]).any(-1)
    assert set(IDS[replaced].tolist()) == {7}
    assert 0.3 < replaced[IDS == 7].float().mean() < 0.7
    assert torch.equal(embedding.eval()(IDS), embedding.weight[IDS])
    assert "singletons" not in embedding.state_dict()
