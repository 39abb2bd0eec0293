"""Masks, masked softmax, and pooling of a sequence into one or several vectors.

Masks are boolean, True where there is data (or where attention is allowed).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.text.encoder import PAD


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over positions, zeros if empty.  [B, S, H], [B, S] -> [B, H]."""
    kept = mask[..., None].to(hidden.dtype)
    return (hidden * kept).sum(1) / kept.sum(1).clamp(min=1.0)


def maximum(hidden: Tensor, mask: Tensor) -> Tensor:
    """Returns the maximum of each unit, zeros if empty.  [B, S, H], [B, S] -> [B, H]."""
    greatest = hidden.masked_fill(~mask[..., None], -torch.inf).amax(1)
    return torch.where(mask.any(1)[:, None], greatest, 0.0)


def last(hidden: Tensor, mask: Tensor) -> Tensor:
    """Returns the vector at the last position with data.  [B, S, H], [B, S] -> [B, H]."""
    index = (mask.sum(1) - 1).clamp(min=0)  # [B]
    return hidden[torch.arange(hidden.size(0), device=hidden.device), index]


def padding_mask(ids: Tensor) -> Tensor:
    """Returns the mask of positions with data.  [B, S] ids -> [B, S] bool."""
    return ids != PAD


def attend_to(mask: Tensor) -> Tensor:
    """Returns an attention mask that lets all queries attend where `mask` is True.

    [B, S] bool -> [B, 1, 1, S] bool; a row without data is True at its first position.
    """
    return never_empty(mask)[:, None, None, :]


def same_segment(queries: Tensor, keys: Tensor) -> Tensor:
    """Returns an attention mask that restricts positions to their own packed example.

    Args:
      queries: segment of each query, 0 at padding.  [B, T]
      keys: segment of each key.  [B, S]

    Returns:
      [B, 1, T, S] bool; padding attends to padding, or to the first key if there is none.
    """
    return never_empty(queries[:, :, None] == keys[:, None, :])[:, None]


def never_empty(mask: Tensor) -> Tensor:
    """Lets queries without any allowed key attend to the first, as a softmax over nothing is NaN.

    [..., S] bool -> [..., S] bool.  Such queries are padding, or examples without inputs, whose
    results do not depend on the width of their batch.
    """
    first = torch.arange(mask.size(-1), device=mask.device) == 0
    return mask | (first & ~mask.any(-1, keepdim=True))


def causal(length: int, device: torch.device) -> Tensor:
    """Returns an attention mask that excludes later positions.  [1, 1, T, T] bool."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def local_causal(positions: Tensor, block: int) -> Tensor:
    """Returns an attention mask over the own and the previous block, without later positions.

    tensor2tensor's local_mask_right.

    Args:
      positions: [T] or [B, T] integers.
      block: number of positions of a block.

    Returns:
      [B or 1, 1, T, T] bool.
    """
    queries, keys = positions[..., :, None], positions[..., None, :]
    mask = (keys <= queries) & (keys >= (queries // block - 1) * block)
    return mask.reshape(-1, 1, *mask.shape[-2:])


def local_around(positions: Tensor, block: int, width: int) -> Tensor:
    """Returns an attention mask over the own block and some positions on both of its sides.

    tensor2tensor's local_unmasked.

    Args:
      positions: [T] or [B, T] integers.
      block: number of positions of a block.
      width: number of positions on each side.

    Returns:
      [B or 1, 1, T, T] bool.
    """
    first, keys = positions[..., :, None] // block * block, positions[..., None, :]
    mask = (keys >= first - width) & (keys < first + block + width)
    return mask.reshape(-1, 1, *mask.shape[-2:])


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Returns a softmax over the positions with data; zeros elsewhere, and if there are none.

    Args:
      scores: [..., S].
      mask: True where there is data, bool; broadcasts to [..., S].

    Returns:
      [..., S], always float32.
    """
    weights = scores.float().masked_fill(~never_empty(mask), -torch.inf).softmax(-1)
    return weights * mask


class MaskedSoftmax(nn.Module):
    """`masked_softmax` as a module, for hooks that record it (`hooks/attention_maps.py`)."""

    def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Returns the weights in the dtype of the scores.  [B, R, S], [B, S] bool -> [B, R, S]."""
        return masked_softmax(scores, mask[:, None]).to(scores.dtype)


def prepend(inputs: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """Concatenates each row's inputs, a zero vector and its targets.

    Each row is independent of the lengths of other rows: padding comes last.

    The input of decoder-only models: tensor2tensor's `prepend_mode`; Liu et al. 2018,
    arXiv:1801.10198, section 4.2.1.

    Args:
      inputs: embedded, [B, S, H].
      targets: embedded, [B, T, H].
      lengths: lengths of the inputs, [B].

    Returns:
      [B, S + 1 + T, H].
    """
    size, width = inputs.size(1), inputs.size(1) + 1 + targets.size(1)
    both = torch.cat([inputs, inputs.new_zeros(len(inputs), 1, inputs.size(2)), targets], 1)
    places = torch.arange(width, device=inputs.device)
    after = places - lengths[:, None]  # [B, L], 0 at the separator
    index = torch.where(after < 0, places, size + after)
    index = torch.where(index < width, index, size)  # zeros after the targets, too
    return both.gather(1, index[..., None].expand(-1, -1, inputs.size(2)))


def shift_right(x: Tensor, start: Tensor | None, positions: Tensor | None = None) -> Tensor:
    """Returns the inputs of a decoder: each position has the embedding of the one before it.

    Args:
      x: embeddings of the targets, [B, T, H].
      start: first input, [H]; None: zeros.
      positions: of packed examples, the position within the example, [B, T].
    """
    shifted = nn.functional.pad(x, (0, 0, 1, -1))
    if start is None:
        return shifted
    if positions is None:
        positions = torch.arange(x.size(1), device=x.device)
    return torch.where((positions == 0)[..., None], start.to(x.dtype), shifted)


def at_targets(hidden: Tensor, lengths: Tensor, count: int) -> Tensor:
    """Returns the states in rows of `prepend` that predict the targets.

    Args:
      hidden: of a decoder that reads them shifted by one position, [B, S + 1 + T, H].
      lengths: lengths of the inputs, [B].
      count: T.

    Returns:
      [B, T, H].
    """
    index = lengths[:, None] + 1 + torch.arange(count, device=hidden.device)  # [B, T]
    return hidden.gather(1, index[..., None].expand(-1, -1, hidden.size(2)))


def full_over_inputs(lengths: Tensor, width: int) -> Tensor:
    """Returns an attention mask that is bidirectional over inputs and causal over targets.

    Raffel et al. 2020, arXiv:1910.10683, section 3.2.1, "prefix LM".

    Args:
      lengths: lengths of the inputs, [B]; the decoder has them at positions 0 (the start) to
        length.
      width: L.

    Returns:
      [B, 1, L, L] bool.
    """
    is_input = torch.arange(width, device=lengths.device) <= lengths[:, None]  # [B, L]
    return causal(width, lengths.device) | is_input[:, None, None, :]


class Pooled(NamedTuple):
    """Result of attention pooling.

    Attributes:
      means: the paper's M with concatenated hops, [B, R * H].
      weights: the paper's A; each hop sums to 1 over positions with data, [B, R, S].
    """

    means: Tensor
    weights: Tensor


class AttentionPooling(nn.Module):
    """Attention pooling with R hops: A = softmax(W2 tanh(W1 H)), M = A H; section 2.1.

    Lin et al. 2017, "A Structured Self-attentive Sentence Embedding", arXiv:1703.03130.

    Args:
      size: H, width of a state.
      attention_size: the paper's d_a, rows of W1.
      hops: R, rows of W2.
    """

    def __init__(self, size: int, attention_size: int, hops: int = 1) -> None:
        super().__init__()
        self.inner = nn.Linear(size, attention_size, bias=False)  # W1
        self.outer = nn.Linear(attention_size, hops, bias=False)  # W2
        self.weights = MaskedSoftmax()

    def forward(self, hidden: Tensor, mask: Tensor) -> Pooled:
        """[B, S, H], [B, S] bool -> [B, R * H] and [B, R, S]."""
        scores = self.outer(self.inner(hidden).tanh()).transpose(1, 2)  # [B, R, S]
        weights = self.weights(scores, mask)
        return Pooled(torch.matmul(weights, hidden).flatten(1), weights)


def hop_penalty(weights: Tensor) -> Tensor:
    """Returns the redundancy penalty of the hops of each text.

    The squared Frobenius norm of A A^T - I; section 2.2.  [B, R, S] -> [B].
    """
    weights = weights.float()
    gram = torch.matmul(weights, weights.transpose(1, 2))  # [B, R, R]
    identity = torch.eye(gram.size(-1), device=gram.device)
    return (gram - identity).square().sum((1, 2))


SlotScore = Literal["concat", "multiply", "dot"]
"""Score of words i and j: v . tanh(W [h_i; h_j]), h_i W h_j or h_i . h_j."""


class SlotAttention(nn.Module):
    """Concatenates each word's vector with an attention-weighted mean of the sentence.

    The matrix of `concat` is applied once per word, not per pair.

    From PyText (Aly et al. 2018, arXiv:1812.08729), after Liu and Lane 2016, arXiv:1609.01454; its
    three scores are those of Luong et al. 2015, arXiv:1508.04025, section 3.1.

    Args:
      size: H, width of a vector.
      score: the score function.
      attention_size: A, units of `concat`.
    """

    def __init__(self, size: int, score: SlotScore, attention_size: int) -> None:
        super().__init__()
        self.score = score
        if score == "concat":
            self.of_word = nn.Linear(size, attention_size, bias=False)
            self.of_others = nn.Linear(size, attention_size, bias=False)
            self.vector = nn.Linear(attention_size, 1, bias=False)
        elif score == "multiply":
            self.of_word = nn.Linear(size, size, bias=False)
        self.weights = MaskedSoftmax()

    def forward(self, words: Tensor, sentence: Tensor, mask: Tensor) -> Tensor:
        """Returns each word's vector concatenated with its mean of the sentence.

        Args:
          words: [B, W, H].
          sentence: all vectors, [B, S, H].
          mask: True where there is data, [B, S] bool.

        Returns:
          [B, W, 2 H].
        """
        if self.score == "concat":
            pairs = self.of_word(words)[:, :, None] + self.of_others(sentence)[:, None]
            scores = self.vector(pairs.tanh()).squeeze(-1)  # [B, W, S]
        else:
            asked = self.of_word(words) if self.score == "multiply" else words
            scores = asked @ sentence.transpose(1, 2)
        means = self.weights(scores, mask).to(sentence.dtype) @ sentence
        return torch.cat([words, means], -1)
