"""How features enter and leave a network."""

import torch

from t2t_torch.modalities.text import Embedding

IDS = torch.randint(1, 50, (100, 100))


def test_padding_is_the_zero_vector_and_the_rest_is_scaled():
    embedding = Embedding(50, 8, scale=3.0, symbol_dropout=0.0)
    vectors = embedding(torch.tensor([[7, 0]]))
    torch.testing.assert_close(vectors[0, 0], 3.0 * embedding.weight[7])
    assert not vectors[0, 1].any()


def test_symbol_dropout_drops_whole_ids_and_scales_nothing():
    torch.manual_seed(0)
    embedding = Embedding(50, 8, scale=1.0, symbol_dropout=0.3)
    vectors = embedding(IDS)
    dropped = (vectors == 0).all(-1)
    assert 0.28 < dropped.float().mean() < 0.32
    torch.testing.assert_close(vectors[~dropped], embedding.weight[IDS[~dropped]])


def test_symbol_dropout_is_for_training():
    embedding = Embedding(50, 8, scale=1.0, symbol_dropout=0.3).eval()
    assert not (embedding(IDS) == 0).all(-1).any()
