"""Multi-head scaled dot-product attention.  Vaswani et al. 2017, section 3.2."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.key_value_cache import KeyValueCache
from t2t_torch.layers.relative_positions import RelativePositions, distances


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, N * D] -> [B, N, T, D]."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, N, T, D] -> [B, T, N * D]."""
    return x.transpose(1, 2).flatten(2)


class AttentionWeights(nn.Module):
    """The part that all attention shares: from queries, keys and values to a mix of the values.

    Args:
      dropout: probability of zeroing an attention weight; TRAIN only.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        relative: RelativePositions | None = None,
        apart: Tensor | None = None,
    ) -> Tensor:
        """Mixes values.

        Args:
          q: [B, N, T, D].
          k: [B, N, S, D].
          v: [B, N, S, D].
          mask: bool, broadcasts to [B, N, T, S], True where a query may look; None means
            everywhere.
          causal: queries do not look at later positions; then T equals S and there is no mask.
          relative: what distances between positions add.
          apart: these distances, [T, S]; None: the last query stands at the last key.

        Returns:
          [B, N, T, D].
        """
        if q.device.type != "cpu" and relative is None:
            rate = self.dropout.rate if self.training else 0.0
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=rate, is_causal=causal
            )
        # On a CPU the products written out beat the fused kernel in bfloat16: with the backward
        # pass 5 ms against 28 ms for [200, 4, 18, 64] on two cores (float32: 13 ms against 9 ms).
        # And the fused kernel takes no dropout there.
        if causal:
            mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).tril()
        q = q * q.size(-1) ** -0.5
        scores = torch.matmul(q, k.transpose(-1, -2))  # [B, N, T, S]
        if relative is not None:
            if apart is None:
                apart = distances(q.size(2), k.size(2), q.device)
            scores = scores + relative.scores(q, apart)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = self.dropout(scores.softmax(dim=-1)).to(v.dtype)
        mixed = torch.matmul(weights, v)
        if relative is not None and apart is not None:
            mixed = mixed + relative.mixed(weights, apart)
        return mixed


def _check_heads(hidden_size: int, num_heads: int) -> None:
    if hidden_size % num_heads:
        raise HParamsError(
            f"hidden_size={hidden_size} is not a multiple of num_heads={num_heads}. "
            f"Set one of them, for example --hparams=num_heads={_largest_divisor(hidden_size)}."
        )


def _largest_divisor(hidden_size: int) -> int:
    return max(n for n in (1, 2, 4, 8, 16) if hidden_size % n == 0)


class Projections(nn.Linear):
    """Several linear maps of one input, without biases, as one matrix product.

    Args:
      in_features: width of the input.
      out_features: width of each output.
      parts: number of outputs, side by side.
    """

    def __init__(self, in_features: int, out_features: int, parts: int) -> None:
        super().__init__(in_features, parts * out_features, bias=False)
        self.parts = parts

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """[..., in_features] -> `parts` of [..., out_features]."""
        return self(x).chunk(self.parts, dim=-1)


class Prefix(NamedTuple):
    """What rows have read in one pass before their first step, of one layer.

    The K hypotheses of a sentence share it: it is neither copied nor reordered.

    Attributes:
      keys: [B, N, P, D].
      values: [B, N, P, D].
      mask: where there is data, [B, P] bool; a row's own positions come first.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor


class SelfAttention(nn.Module):
    """Attention of a sequence to itself.  No biases, as tensor2tensor has it.

    Args:
      hidden_size: H, in and out.
      num_heads: N.
      dropout: probability of zeroing an attention weight; TRAIN only.
      max_relative_position: the furthest distance that has vectors of its own; 0: distances have
        none.  See `RelativePositions`.

    Raises:
      HParamsError: hidden_size is not a multiple of num_heads.
    """

    def __init__(
        self, hidden_size: int, num_heads: int, dropout: float, max_relative_position: int = 0
    ) -> None:
        super().__init__()
        _check_heads(hidden_size, num_heads)
        self.num_heads = num_heads
        self.query_key_value = Projections(hidden_size, hidden_size, 3)
        self.weights = AttentionWeights(dropout)
        self.relative: RelativePositions | None = None
        if max_relative_position:
            self.relative = RelativePositions(hidden_size // num_heads, max_relative_position)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)

    def _project(self, x: Tensor) -> list[Tensor]:
        """Returns queries, keys and values.  [B, T, H] -> three of [B, N, T, D]."""
        return [split_heads(part, self.num_heads) for part in self.query_key_value.split(x)]

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """[B, T, H] -> [B, T, H]; `mask` and `causal` as in `AttentionWeights`."""
        return self.read(x, mask, causal=causal)[0]

    def read(
        self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """As `forward`; returns the keys and values too, [B, N, T, D] each, for a `Prefix`."""
        q, k, v = self._project(x)
        mixed = self.weights(q, k, v, mask, causal=causal, relative=self.relative)
        return self.output(join_heads(mixed)), (k, v)

    def cache(self, rows: int) -> KeyValueCache:
        """Returns the cache of R rows before the first position."""
        weight = self.query_key_value.weight
        return KeyValueCache.empty(rows, self.num_heads, weight.size(1) // self.num_heads, weight)

    def step(self, x: Tensor, cache: KeyValueCache, prefix: Prefix | None = None) -> Tensor:
        """Attends from one new position to all before it.

        Args:
          x: [R, 1, H].
          cache: grows by the position.
          prefix: of the R / K sentences, what stands before the cache.

        Returns:
          [R, 1, H].
        """
        q, k, v = self._project(x)
        keys, values = cache.append(k, v)  # [t, R, N, D]
        if prefix is not None:
            return self.output(self._mixed_after(prefix, q.squeeze(2), keys, values, cache))
        past = (keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3))  # [R, N, t, D]
        if cache.there is not None:
            mask, apart = cache.there[None, None, None], None
            if self.relative is not None:
                apart = cache.distances(keys.size(0))
            mixed = self.weights(q, *past, mask, relative=self.relative, apart=apart)
            return self.output(join_heads(mixed))
        if q.device.type != "cpu" or self.relative is not None or torch.compiler.is_exporting():
            return self.output(join_heads(self.weights(q, *past, relative=self.relative)))
        # With a single query a product of matrices is no faster on a CPU than its definition, which
        # takes the cache as it lies: 0.3 ms against 0.55 ms for 128 hypotheses on one core.
        scores = (keys * q.squeeze(2)).sum(-1) * q.size(-1) ** -0.5  # [t, R, N]
        mixed = (values * scores.softmax(0).unsqueeze(-1)).sum(0)  # [R, N, D]
        return self.output(mixed.flatten(1).unsqueeze(1))

    def _mixed_after(
        self, prefix: Prefix, q: Tensor, keys: Tensor, values: Tensor, cache: KeyValueCache
    ) -> Tensor:
        """Returns the mix of a prefix's values and those of the steps after it, heads joined.

        Args:
          prefix: of B sentences, P positions.
          q: [R, N, D].
          keys: of t steps, [t, R, N, D].
          values: [t, R, N, D].
          cache: that they are of.

        Returns:
          [R, 1, H].
        """
        sentences, heads, length, size = prefix.keys.shape
        q = q * size**-0.5
        by_sentence = q.view(sentences, -1, heads, size).transpose(1, 2)  # [B, N, K, D]
        before = torch.matmul(by_sentence, prefix.keys.transpose(-1, -2))  # [B, N, K, P]
        before = before.masked_fill(~prefix.mask[:, None, None], float("-inf"))
        before = before.transpose(1, 2).reshape(-1, heads, length)  # [R, N, P]
        after = (keys * q).sum(-1).permute(1, 2, 0)  # [R, N, t]
        if cache.there is not None:
            after = after.masked_fill(~cache.there, float("-inf"))
        scores = torch.cat([before, after], -1)  # [R, N, P + t]
        if self.relative is not None:
            apart = self._distances(prefix, cache.distances(keys.size(0)), q.size(0))
            scores = scores + self.relative.scores(q, apart)
        weights = scores.softmax(-1).to(values.dtype)
        early, late = weights.split([length, keys.size(0)], -1)
        mixed = (values * late.permute(2, 0, 1).unsqueeze(-1)).sum(0)  # [R, N, D]
        early = early.view(sentences, -1, heads, length).transpose(1, 2)  # [B, N, K, P]
        mixed = mixed + torch.matmul(early, prefix.values).transpose(1, 2).reshape_as(mixed)
        if self.relative is not None:
            mixed = mixed + self.relative.mixed(weights, apart)
        return mixed.flatten(1).unsqueeze(1)

    @staticmethod
    def _distances(prefix: Prefix, after: Tensor, rows: int) -> Tensor:
        """Returns how far what is there stands from the newest step, [R, 1, P + t].

        The first step follows the last position of a row's own prefix.

        Args:
          prefix: of B sentences, P positions.
          after: how far the steps are from the newest one, [1, t].
          rows: R.
        """
        sentences, length = prefix.mask.shape
        places = torch.arange(length, device=prefix.mask.device)
        before = places - prefix.mask.sum(1, keepdim=True) + after[:, :1]  # [B, P]
        apart = torch.cat([before, after.expand(sentences, -1)], 1)
        return apart.unsqueeze(1).expand(-1, rows // sentences, -1).reshape(rows, 1, -1)


class CrossAttention(nn.Module):
    """Attention of one sequence to another.  No biases, as tensor2tensor has it.

    Args:
      hidden_size: H of both sequences.
      num_heads: N.
      dropout: probability of zeroing an attention weight; TRAIN only.

    Raises:
      HParamsError: hidden_size is not a multiple of num_heads.
    """

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        _check_heads(hidden_size, num_heads)
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key_value = Projections(hidden_size, hidden_size, 2)
        self.weights = AttentionWeights(dropout)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)

    def remember(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Returns keys and values of the memory.  [B, S, H] -> two of [B, N, S, D]."""
        k, v = (split_heads(part, self.num_heads) for part in self.key_value.split(memory))
        return k.contiguous(), v.contiguous()  # a decode reads them once a step

    def forward(self, x: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Attends from every position of `x` to the memory.

        Args:
          x: [B, T, H].
          memory: keys and values, from `remember`.
          mask: bool, broadcasts to [B, N, T, S], True where there is data.

        Returns:
          [B, T, H].
        """
        q = split_heads(self.query(x), self.num_heads)
        return self.output(join_heads(self.weights(q, *memory, mask)))

    def attention_of(self, x: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Returns the weights with which `forward` mixes, [B, N, T, S]."""
        q = split_heads(self.query(x), self.num_heads)
        scores = torch.matmul(q * q.size(-1) ** -0.5, memory[0].transpose(-1, -2))
        return scores.masked_fill(~mask, float("-inf")).softmax(-1)
