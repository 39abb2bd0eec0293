"""Slot attention agrees with every pair of words, written out."""

import pytest
import torch

from t2t_torch.layers.pooling import SlotAttention

H, A = 5, 3


def slowly(attention, words, sentence):
    """One sentence without padding.  [W, H], [S, H] -> [W, 2 H]."""
    rows = []
    for word in words:
        scores = []
        for other in sentence:
            if attention.score == "concat":
                both = torch.cat([attention.of_word.weight, attention.of_others.weight], 1)
                inner = (both @ torch.cat([word, other])).tanh()
                scores.append(attention.vector.weight[0] @ inner)
            elif attention.score == "multiply":
                scores.append(other @ attention.of_word.weight @ word)
            else:
                scores.append(word @ other)
        shares = torch.stack(scores).softmax(0)
        mean = sum(share * other for share, other in zip(shares, sentence, strict=True))
        rows.append(torch.cat([word, mean]))
    return torch.stack(rows)


@pytest.mark.parametrize("score", ["concat", "multiply", "dot"])
def test_it_is_the_mean_of_the_sentence_by_the_score_of_each_pair(score):
    torch.manual_seed(0)
    attention = SlotAttention(H, score, A)
    sentence, lengths = torch.randn(3, 6, H), (6, 4, 1)
    words = sentence[:, :4]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    found = attention(words, sentence, mask)
    for row, length in enumerate(lengths):
        expected = slowly(attention, words[row], sentence[row, :length])
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-5)


def test_a_row_without_words_is_finite():
    attention = SlotAttention(H, "concat", A)
    found = attention(torch.randn(1, 2, H), torch.zeros(1, 2, H), torch.zeros(1, 2).bool())
    assert bool(found.isfinite().all())
