"""Multi-head scaled dot-product attention.  Vaswani et al. 2017, section 3.2."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.layers.dropout import Dropout

_FIRST_CAPACITY = 32  # positions a cache holds before it first grows


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
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Mixes values.

        Args:
          q: [B, N, T, D].
          k: [B, N, S, D].
          v: [B, N, S, D].
          mask: bool, broadcasts to [B, N, T, S], True where a query may look; None means
            everywhere.
          causal: queries do not look at later positions; then T equals S and there is no mask.

        Returns:
          [B, N, T, D].
        """
        if q.device.type != "cpu":
            rate = self.dropout.rate if self.training else 0.0
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=rate, is_causal=causal
            )
        # On a CPU the products written out beat the fused kernel in bfloat16: with the backward
        # pass 5 ms against 28 ms for [200, 4, 18, 64] on two cores (float32: 13 ms against 9 ms).
        # And the fused kernel takes no dropout there.
        if causal:
            mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).tril()
        scores = torch.matmul(q * q.size(-1) ** -0.5, k.transpose(-1, -2))  # [B, N, T, S]
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return torch.matmul(self.dropout(scores.softmax(dim=-1)).to(v.dtype), v)


@dataclasses.dataclass
class KeyValueCache:
    """Keys and values of the positions decoded so far, of one layer.

    Time comes first in memory, so that a new position is written in place and hypotheses are
    reordered with one copy.

    Attributes:
      keys: [capacity, R, N, D].
      values: [capacity, R, N, D].
      length: positions filled.
    """

    keys: Tensor
    values: Tensor
    length: int = 0

    @classmethod
    def empty(cls, rows: int, num_heads: int, size: int, like: Tensor) -> KeyValueCache:
        """Returns the cache before the first position, of R rows.

        Args:
          rows: R.
          num_heads: N.
          size: D.
          like: on the device where it shall be.
        """
        nothing = like.new_empty(0, rows, num_heads, size)
        return cls(nothing, nothing)

    @property
    def rows(self) -> int:
        """R."""
        return self.keys.size(1)

    @property
    def position(self) -> int:
        """Of what is appended next, from 0 on."""
        # An exported graph has no room beyond what is filled: its sizes say how much that is.
        return self.keys.size(0) if torch.compiler.is_exporting() else self.length

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds one position, [R, N, 1, D] each; returns all keys and values, [length, R, N, D]."""
        if torch.compiler.is_exporting():
            self.keys = torch.cat([self.keys, k.squeeze(2).unsqueeze(0)])
            self.values = torch.cat([self.values, v.squeeze(2).unsqueeze(0)])
            return self.keys, self.values
        if self.length == len(self.keys):
            capacity = max(_FIRST_CAPACITY, 2 * self.length)
            self.keys = _grown(self.keys, k, capacity)
            self.values = _grown(self.values, v, capacity)
        self.keys[self.length] = k.squeeze(2)
        self.values[self.length] = v.squeeze(2)
        self.length += 1
        return self.keys[: self.length], self.values[: self.length]

    def reorder(self, index: Tensor) -> KeyValueCache:
        """Returns a cache whose row i is this one's row `index[i]`."""
        if torch.compiler.is_exporting():
            return KeyValueCache(
                self.keys.index_select(1, index), self.values.index_select(1, index)
            )
        return KeyValueCache(
            _selected(self.keys, index, self.length),
            _selected(self.values, index, self.length),
            self.length,
        )

    def expand(self, hypotheses: int) -> KeyValueCache:
        """Returns a cache in which each row stands `hypotheses` times, side by side."""
        rows = torch.arange(self.rows, device=self.keys.device)
        return self.reorder(rows.repeat_interleave(hypotheses))


def _grown(old: Tensor, like: Tensor, capacity: int) -> Tensor:
    """Returns room for `capacity` positions, the old ones copied.  `like` is [R, N, 1, D]."""
    rows, heads, _, size = like.shape
    new = like.new_empty(capacity, rows, heads, size)
    new[: len(old)] = old
    return new


def _selected(old: Tensor, index: Tensor, length: int) -> Tensor:
    """Returns the filled positions of some rows.  [capacity, R, N, D] -> [capacity, R', N, D]."""
    new = old.new_empty(old.size(0), len(index), *old.shape[2:])
    torch.index_select(old[:length], 1, index, out=new[:length])
    return new


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


class SelfAttention(nn.Module):
    """Attention of a sequence to itself.  No biases, as tensor2tensor has it.

    Args:
      hidden_size: H, in and out.
      num_heads: N.
      dropout: probability of zeroing an attention weight; TRAIN only.

    Raises:
      HParamsError: hidden_size is not a multiple of num_heads.
    """

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        _check_heads(hidden_size, num_heads)
        self.num_heads = num_heads
        self.query_key_value = Projections(hidden_size, hidden_size, 3)
        self.weights = AttentionWeights(dropout)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)

    def _project(self, x: Tensor) -> list[Tensor]:
        """Returns queries, keys and values.  [B, T, H] -> three of [B, N, T, D]."""
        return [split_heads(part, self.num_heads) for part in self.query_key_value.split(x)]

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """[B, T, H] -> [B, T, H]; `mask` and `causal` as in `AttentionWeights`."""
        q, k, v = self._project(x)
        return self.output(join_heads(self.weights(q, k, v, mask, causal=causal)))

    def cache(self, rows: int) -> KeyValueCache:
        """Returns the cache of R rows before the first position."""
        weight = self.query_key_value.weight
        return KeyValueCache.empty(rows, self.num_heads, weight.size(1) // self.num_heads, weight)

    def step(self, x: Tensor, cache: KeyValueCache) -> Tensor:
        """Attends from one new position to all before it.  [R, 1, H] -> [R, 1, H]."""
        q, k, v = self._project(x)
        keys, values = cache.append(k, v)  # [t, R, N, D]
        if q.device.type != "cpu" or torch.compiler.is_exporting():
            mixed = self.weights(q, keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3))
            return self.output(join_heads(mixed))
        # With a single query a product of matrices is no faster on a CPU than its definition, which
        # takes the cache as it lies: 0.3 ms against 0.55 ms for 128 hypotheses on one core.
        scores = (keys * q.squeeze(2)).sum(-1) * q.size(-1) ** -0.5  # [t, R, N]
        mixed = (values * scores.softmax(0).unsqueeze(-1)).sum(0)  # [R, N, D]
        return self.output(mixed.flatten(1).unsqueeze(1))


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
