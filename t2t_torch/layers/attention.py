"""Multi-head scaled dot-product attention.  Vaswani et al. 2017, section 3.2.

Relative positions: Shaw et al. 2018, "Self-Attention with Relative Position Representations",
arXiv:1803.02155.

Key-value caches of a decode have growing or fixed capacity.  A step compiled with fixed shapes, for
CUDA graphs, needs a cache of fixed capacity whose length is a tensor: with a Python number each
position would be compiled separately.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.layers.dropout import Dropout


def distances(queries: int, keys: int, device: torch.device) -> Tensor:
    """Returns the distance of each key from each query, positive behind it, negative before it.

    The last query and the last key have the same position.

    Args:
      queries: T.
      keys: S.
      device: device of the result.

    Returns:
      [T, S] int64.
    """
    places = torch.arange(keys, device=device)
    return places - torch.arange(keys - queries, keys, device=device)[:, None]


class RelativePositions(nn.Module):
    """Learned vectors for each distance, one added to the keys and one to the values.

    Shared by all heads of a layer.  Avoids tensors of [T, S, D]: the product of a query with a
    key's vector is one of 2M + 1 products, and the addition to the values is a sum of 2M + 1
    vectors, each weighted by the total attention at its distance.

    Args:
      size: D, the width of a head.
      furthest: M; larger distances are clipped to it.
    """

    def __init__(self, size: int, furthest: int) -> None:
        super().__init__()
        self.furthest = furthest
        # Row M + d of the keys, column M + d of the values: distance d.
        self.keys: Callable[[Tensor], Tensor] = nn.Linear(size, 2 * furthest + 1, bias=False)
        self.values: Callable[[Tensor], Tensor] = nn.Linear(2 * furthest + 1, size, bias=False)

    def scores(self, q: Tensor, apart: Tensor) -> Tensor:
        """Returns the addition to the attention scores.

        Args:
          q: scaled queries, [..., T, D].
          apart: distances, [T, S] or broadcastable to [..., T, S].

        Returns:
          [..., T, S].
        """
        return self.keys(q).gather(-1, self._index(apart).expand(*q.shape[:-1], apart.size(-1)))

    def mixed(self, weights: Tensor, apart: Tensor) -> Tensor:
        """Returns the addition to the weighted values.

        Args:
          weights: attention weights, [..., T, S].
          apart: as in `scores`.

        Returns:
          [..., T, D].
        """
        index = self._index(apart).expand_as(weights)
        by_distance = weights.new_zeros(*weights.shape[:-1], 2 * self.furthest + 1)
        return self.values(by_distance.scatter_add(-1, index, weights))

    def _index(self, apart: Tensor) -> Tensor:
        return apart.clamp(-self.furthest, self.furthest) + self.furthest


class RelativeKeys(nn.Module):
    """Learned vectors of each head for distances to earlier positions, added to the keys.

    tensor2tensor's dot_product_relative_v2.  Later positions, and those that are too far, have
    none.

    Args:
      num_heads: N.
      size: D, the width of a head.
      count: M, number of distances, from 0.
    """

    def __init__(self, num_heads: int, size: int, count: int) -> None:
        super().__init__()
        table = torch.randn(num_heads, count, size) * size**-0.5
        self.table = nn.Parameter(table)  # [N, M, D], the last row is distance 0

    def scores(self, q: Tensor, apart: Tensor) -> Tensor:
        """See `RelativePositions.scores`; q [B, N, T, D], or of one position [R, N, D]."""
        count = self.table.size(1)
        form = "bntd,nmd->bntm" if q.dim() == 4 else "bnd,nmd->bnm"
        products = torch.einsum(form, q, self.table.to(q.dtype))
        index = (apart + (count - 1)).clamp(0, count - 1).expand(*q.shape[:-1], apart.size(-1))
        return products.gather(-1, index) * ((apart <= 0) & (apart > -count))

    def mixed(self, weights: Tensor, apart: Tensor) -> Tensor | None:
        """Returns the addition to the weighted values: none."""


class LinearBiases(nn.Module):
    """Biases of attention scores that fall linearly with the distance, without parameters (ALiBi).

    Press et al. 2022, arXiv:2108.12409.  Heads have slopes in a geometric row from 2^(-8/N); if
    their number is no power of two, every second slope of twice as many heads follows those of the
    next lower power.  Distances count in both directions alike.

    Args:
      num_heads: N.
    """

    slopes: Tensor

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        power = 1 << (num_heads.bit_length() - 1)
        slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(num_heads - power)]
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)

    def scores(self, q: Tensor, apart: Tensor) -> Tensor:
        """Returns the addition to the attention scores.

        Args:
          q: queries, [B, N, T, D], or of one position [R, N, D].
          apart: distances, [T, S], or of each row [R, 1, S].

        Returns:
          [N, T, S] or [R, N, S].
        """
        slopes = self.slopes.to(q.dtype)
        slopes = slopes[:, None, None] if q.dim() == 4 else slopes[:, None]
        return -slopes * apart.abs()

    def mixed(self, weights: Tensor, apart: Tensor) -> Tensor | None:
        """Returns the addition to the weighted values: none."""


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Rotates queries or keys by their positions: products depend on distances alone.

    Su et al. 2021, arXiv:2104.09864, with the halves of a head as pairs, as in GPT-NeoX.

    Args:
      x: [..., T, D]; D is even.
      positions: [T] integers, or broadcastable to [..., T].

    Returns:
      [..., T, D].
    """
    half = x.size(-1) // 2
    steps = torch.arange(half, dtype=torch.float32, device=x.device)
    angles = positions[..., None].float() * torch.exp(steps * (-math.log(1e4) / half))
    sines, cosines = angles.sin().to(x.dtype), angles.cos().to(x.dtype)  # [..., T, D / 2]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)


_FIRST_CAPACITY = 32  # initial positions of a growing cache


@runtime_checkable
class Growing(Protocol):
    """A `State` whose memory grows with each step."""

    def fixed(self, capacity: int) -> Any:
        """Returns a state with a fixed capacity, including the existing positions.

        All shapes read and written by its steps stay constant until it is full.
        """


@dataclasses.dataclass
class KeyValueCache:
    """Keys and values of the positions decoded so far, of one layer.

    Time is the first axis: a new position is written in place, and hypotheses are reordered with
    one copy.

    Attributes:
      keys: [capacity, R, N, D].
      values: [capacity, R, N, D].
      length: number of filled positions.
      block: of local attention, the number of positions of a block: the newest position attends to
        its own and the previous one.  0: to all.
    """

    keys: Tensor
    values: Tensor
    length: int = 0
    block: int = 0

    @classmethod
    def empty(cls, rows: int, num_heads: int, size: int, like: Tensor) -> KeyValueCache:
        """Returns an empty cache.

        Args:
          rows: R.
          num_heads: N.
          size: D.
          like: a tensor with the device and dtype of the cache.
        """
        nothing = like.new_empty(0, rows, num_heads, size)
        return cls(nothing, nothing)

    @property
    def rows(self) -> int:
        """The number of rows, R."""
        return self.keys.size(1)

    @property
    def there(self) -> Tensor | None:
        """Mask of visible positions in the result of `append`, [t] bool; None: all."""
        if not self.block:
            return None
        return torch.arange(self.length, device=self.keys.device) >= self._first(self.length - 1)

    def _first(self, position: Tensor | int) -> Tensor | int:
        """Returns the first position that local attention sees from another."""
        return (position // self.block - 1) * self.block

    def next_position(self) -> Tensor:
        """Returns the index of the next position, from 0, [1] int64."""
        return torch.full((1,), self.length, device=self.keys.device)

    def distances(self, steps: int) -> Tensor:
        """Returns the distances of the positions returned by `append` to the newest one, [1, t].

        Args:
          steps: t.
        """
        return distances(1, steps, self.keys.device)

    @property
    def filled(self) -> tuple[Tensor, Tensor]:
        """Returns the filled keys and values, [length, R, N, D]."""
        return self.keys[: self.length], self.values[: self.length]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds one position, [R, N, 1, D] each; returns all keys and values, [length, R, N, D]."""
        if torch.compiler.is_exporting():  # an exported graph has no spare capacity
            self.keys = torch.cat([self.keys, k.squeeze(2).unsqueeze(0)])
            self.values = torch.cat([self.values, v.squeeze(2).unsqueeze(0)])
            self.length = self.keys.size(0)
            return self.keys, self.values
        if self.length == len(self.keys):
            capacity = max(_FIRST_CAPACITY, 2 * self.length)
            self.keys = _grown(self.keys, k, capacity)
            self.values = _grown(self.values, v, capacity)
        self.keys[self.length] = k.squeeze(2)
        self.values[self.length] = v.squeeze(2)
        self.length += 1
        return self.filled

    def reorder(self, index: Tensor) -> KeyValueCache:
        """Returns a cache whose row i is row `index[i]` of this one."""
        parts = []
        for old in (self.keys, self.values):  # [capacity, R, N, D]
            if torch.compiler.is_exporting():
                new = old.index_select(1, index)
            else:
                new = old.new_empty(old.size(0), len(index), *old.shape[2:])
                torch.index_select(old[: self.length], 1, index, out=new[: self.length])
            parts.append(new)
        return KeyValueCache(parts[0], parts[1], self.length, self.block)

    def expand(self, hypotheses: int) -> KeyValueCache:
        """Returns a cache with each row repeated `hypotheses` times, consecutively."""
        rows = torch.arange(self.rows, device=self.keys.device)
        return self.reorder(rows.repeat_interleave(hypotheses, 0))

    def fixed(self, capacity: int) -> FixedCache:
        """Returns a cache of the same positions, with a total capacity of `capacity`."""
        # [length, R, N, D] -> [capacity, R, N, D]
        keys, values = (F.pad(x, (0, 0, 0, 0, 0, 0, 0, capacity - len(x))) for x in self.filled)
        return FixedCache(keys, values, capacity, self.block, self.next_position())


@dataclasses.dataclass
class FixedCache(KeyValueCache):
    """A cache of fixed capacity: all its results have the same shapes at each step.

    Unfilled positions are zero and masked.  `length` is the capacity.

    Attributes:
      position: index of the next position, [1] int64.
    """

    position: Tensor = dataclasses.field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))

    @property
    def there(self) -> Tensor:
        """Mask of visible positions, [capacity] bool."""
        places = torch.arange(self.keys.size(0), device=self.keys.device)
        filled = places < self.position
        return filled & (places >= self._first(self.position - 1)) if self.block else filled

    def next_position(self) -> Tensor:
        """Returns the index of the next position, from 0, [1] int64."""
        return self.position

    def distances(self, steps: int) -> Tensor:
        """Returns the distances of all positions to the newest one, [1, capacity]."""
        places = torch.arange(steps, device=self.keys.device)
        return (places - (self.position - 1))[None]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds one position, [R, N, 1, D] each; returns keys and values, [capacity, R, N, D].

        Writes nothing in place, as required by CUDA graphs.
        """
        at = (torch.arange(self.keys.size(0), device=k.device) == self.position)[
            :, None, None, None
        ]
        self.keys = torch.where(at, k.squeeze(2).to(self.keys.dtype), self.keys)
        self.values = torch.where(at, v.squeeze(2).to(self.values.dtype), self.values)
        self.position = self.position + 1
        return self.keys, self.values

    def reorder(self, index: Tensor) -> FixedCache:
        """Returns a cache whose row i is row `index[i]` of this one, without shared memory."""
        keys, values = (part.index_select(1, index) for part in (self.keys, self.values))
        return FixedCache(keys, values, self.length, self.block, self.position.clone())


def _grown(old: Tensor, like: Tensor, capacity: int) -> Tensor:
    """Returns memory for `capacity` positions with the old ones copied.  `like` is [R, N, 1, D]."""
    rows, heads, _, size = like.shape
    new = like.new_empty(capacity, rows, heads, size)
    new[: len(old)] = old
    return new


class RMSNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm` of the last axis, whose gain has the type of the input.

    Zhang and Sennrich 2019, arXiv:1910.07467.

    torch 2.13 has a fused kernel on a GPU only, and only if both have the same type.  On a CPU its
    training step takes three to four times as long as that of layer norm; `_RMSNorm` is faster.
    """

    def __init__(self, size: int, *, eps: float) -> None:
        super().__init__(size, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> the same shape and type."""
        gain = self.weight.to(x.dtype)
        if self.training and x.device.type == "cpu":
            normed: Tensor = _RMSNorm.apply(x, gain, self.eps)  # type: ignore[no-untyped-call]
            return normed
        return F.rms_norm(x, self.normalized_shape, gain, self.eps)


class _RMSNorm(torch.autograd.Function):
    """Norm of [..., size]; averages over an axis are products with a vector, summed in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        exact = torch.promote_types(x.dtype, torch.float32)
        wide = exact if x.dtype == torch.float16 else None  # whose norm may be infinite
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide).to(exact)
        scale = norm.square().div_(x.size(-1)).add_(eps).rsqrt_()  # [..., 1]
        ctx.save_for_backward(x, gain, scale)
        return (x * scale.to(x.dtype)).mul_(gain)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, gain, scale = ctx.saved_tensors
        size = x.size(-1)
        products = (gradient * x).reshape(-1, size)
        of_gain = scale.to(x.dtype).reshape(1, -1) @ products
        # x / rms(x) does not change along x: that part of the gradient is removed.
        along = (products @ gain).view(scale.shape) * scale**3 / size
        of_x = (gradient * gain).mul_(scale.to(x.dtype)).addcmul_(x, along.to(x.dtype), value=-1)
        return of_x, of_gain.view(size), None


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, N * D] -> [B, N, T, D]."""
    return torch.unflatten(x, -1, (num_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, N, T, D] -> [B, T, N * D]."""
    return x.transpose(1, 2).flatten(2)


class AttentionWeights(nn.Module):
    """Core of all attention layers: scaled dot-product attention with dropout.

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
        relative: RelativePositions | RelativeKeys | LinearBiases | None = None,
        apart: Tensor | None = None,
    ) -> Tensor:
        """Returns weighted sums of the values.

        Args:
          q: [B, N, T, D].
          k: [B, N, S, D].
          v: [B, N, S, D].
          mask: bool, broadcasts to [B, N, T, S], True where a query may attend; None means
            everywhere.
          causal: queries do not attend to later positions; requires T equal to S and no mask.
          relative: relative position vectors, or biases.
          apart: distances, [T, S]; None: the last query has the position of the last key.

        Returns:
          [B, N, T, D].
        """
        # A single query is a step of decoding, whose keys are one more each time: on a GPU cuDNN
        # would plan the fused kernel for each of these shapes (bfloat16: 41 s of 44 s).
        if q.device.type != "cpu" and relative is None and q.size(2) > 1:
            rate = self.dropout.rate if self.training else 0.0
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=rate, is_causal=causal
            )
        # On a CPU explicit products are faster than the fused kernel in bfloat16: with the backward
        # pass 5 ms instead of 28 ms for [200, 4, 18, 64] on two cores (float32: 13 ms instead of
        # 9 ms).  The fused kernel does not support dropout there.
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
            more = relative.mixed(weights, apart)
            mixed = mixed if more is None else mixed + more
        return mixed


def _check_heads(hidden_size: int, num_heads: int) -> None:
    if hidden_size % num_heads:
        fits = max(n for n in (1, 2, 4, 8, 16) if hidden_size % n == 0)
        raise HParamsError(
            f"hidden_size={hidden_size} is not a multiple of num_heads={num_heads}. "
            f"Set one of them, for example --hparams=num_heads={fits}."
        )


class Projections(nn.Linear):
    """Several linear maps of one input as one matrix product.

    Args:
      in_features: width of the input.
      sizes: width of each output.
      bias: True for biases.
    """

    def __init__(self, in_features: int, sizes: Sequence[int], *, bias: bool = False) -> None:
        super().__init__(in_features, sum(sizes), bias=bias)
        self.sizes = tuple(sizes)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """[..., in_features] -> [..., size] of each size."""
        parts: tuple[Tensor, ...] = self(x).split(self.sizes, dim=-1)
        return parts


class Prefix(NamedTuple):
    """Keys and values of a prefix read in one pass before the first step, of one layer.

    The K hypotheses of a sentence share it: it is neither copied nor reordered.

    Attributes:
      keys: [B, N, P, D].
      values: [B, N, P, D].
      mask: True where there is data, [B, P] bool; padding comes last.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor


class LocalMask(NamedTuple):
    """An attention mask that is False but near the diagonal, of which only that part is computed.

    Queries are divided into blocks; a block sees its own positions and some on both sides, of the
    numbers of rows and columns of `mask`.

    Attributes:
      mask: [B or 1, 1, T, T] bool.
      block: positions of a block.
      before: positions before a block that may be True.
      after: positions after a block that may be True.
    """

    mask: Tensor
    block: int
    before: int
    after: int

    @property
    def is_sparse(self) -> bool:
        """True if at most half of it can be True, and the number of blocks may be fixed."""
        width = self.before + self.block + self.after
        return self.mask.size(-1) >= 2 * width and not torch.compiler.is_exporting()

    def divided(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns queries, keys, values and mask of the blocks, each as a row of a batch.

        Args:
          q: [B, N, T, D].
          k: [B, N, T, D].
          v: [B, N, T, D].

        Returns:
          [B * blocks, N, block, D]; two of [B * blocks, N, width, D]; bool, [B * blocks, 1, block,
          width].
        """
        length = q.size(2)
        blocks = -(-length // self.block)
        rest = blocks * self.block - length
        sides, width = (self.before, rest + self.after), self.before + self.block + self.after
        queries = torch.unflatten(F.pad(q, (0, 0, 0, rest)), 2, (blocks, self.block))
        seen = [
            F.pad(one, (0, 0, *sides)).unfold(2, width, self.block).transpose(-1, -2)
            for one in (k, v)
        ]
        mask = torch.unflatten(F.pad(self.mask, (*sides, 0, rest)), 2, (blocks, self.block))
        near = mask.unfold(-1, width, self.block).diagonal(dim1=2, dim2=4)  # blocks come last
        mask = near.movedim(-1, 2).expand(q.size(0), -1, -1, -1, -1)
        # Padding behind the last query attends to something, as a softmax over nothing is NaN.
        mask = mask | ~mask.any(-1, keepdim=True)
        divided = (one.transpose(1, 2).flatten(0, 1) for one in (queries, *seen, mask))
        queries, keys, values, mask = divided
        return queries, keys, values, mask

    @staticmethod
    def joined(x: Tensor, rows: int, length: int) -> Tensor:
        """[B * blocks, N, block, D] -> [B, N, T, D]."""
        return torch.unflatten(x, 0, (rows, -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]


class SelfAttention(nn.Module):
    """Self-attention.

    Args:
      hidden_size: H, input and output width.
      num_heads: N.
      dropout: probability of zeroing an attention weight; TRAIN only.
      max_relative_position: maximum distance of `RelativePositions`; 0 disables them.
      bias: True for biases of the linear maps; tensor2tensor has none.
      num_key_value_heads: heads of keys and values, each of which serves N / this many heads of
        queries (Ainslie et al. 2023, arXiv:2305.13245); 0: N.
      qk_norm: True for an RMS norm of each head's queries and keys (Henry et al. 2020,
        arXiv:2010.04245).
      positions: rotary rotates queries and keys (`rotated`), alibi adds `LinearBiases`.

    Raises:
      HParamsError: hidden_size is not a multiple of num_heads, or num_heads is none of
        num_key_value_heads; or a head is rotated and its width is odd.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        dropout: float,
        max_relative_position: int = 0,
        *,
        bias: bool = False,
        num_key_value_heads: int = 0,
        qk_norm: bool = False,
        positions: Literal["none", "rotary", "alibi"] = "none",
    ) -> None:
        super().__init__()
        _check_heads(hidden_size, num_heads)
        self.num_heads, size = num_heads, hidden_size // num_heads
        self.num_key_value_heads = num_key_value_heads or num_heads
        if num_heads % self.num_key_value_heads:
            raise HParamsError(
                f"num_heads={num_heads} is not a multiple of num_key_value_heads="
                f"{num_key_value_heads}. Set one of them, for example num_key_value_heads=1."
            )
        narrow = self.num_key_value_heads * size
        self.query_key_value = Projections(hidden_size, (hidden_size, narrow, narrow), bias=bias)
        self.weights = AttentionWeights(dropout)
        self.rotates = positions == "rotary"
        if self.rotates and size % 2:
            raise HParamsError(
                f"pos=rotary rotates pairs of a head's channels, and it has {size}: hidden_size="
                f"{hidden_size}, num_heads={num_heads}. Set an even quotient."
            )
        self.relative: RelativePositions | RelativeKeys | LinearBiases | None = None
        if positions == "alibi":
            self.relative = LinearBiases(num_heads)
        elif max_relative_position:
            self.relative = RelativePositions(size, max_relative_position)
        self.query_norm: RMSNorm | None = None
        if qk_norm:
            self.query_norm, self.key_norm = RMSNorm(size, eps=1e-6), RMSNorm(size, eps=1e-6)
        self.output: Callable[[Tensor], Tensor] = nn.Linear(hidden_size, hidden_size, bias=bias)

    def _project(self, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries [B, N, T, D], and keys and values of their heads.

        Args:
          x: [B, T, H].
          positions: those of `rotated`; None: from 0.
        """
        q, k, v = self.query_key_value.split(x)
        if self.query_norm is not None:
            q = self.query_norm(torch.unflatten(q, -1, (self.num_heads, -1))).flatten(-2)
            k = self.key_norm(torch.unflatten(k, -1, (self.num_key_value_heads, -1))).flatten(-2)
        q = split_heads(q, self.num_heads)
        k, v = (split_heads(part, self.num_key_value_heads) for part in (k, v))
        if self.rotates:
            if positions is None:
                positions = torch.arange(x.size(1), device=x.device)
            q, k = rotated(q, positions), rotated(k, positions)
        return q, k, v

    def _repeated(self, x: Tensor, axis: int) -> Tensor:
        """Returns keys or values with a head for each head of the queries."""
        groups = self.num_heads // self.num_key_value_heads
        return x if groups == 1 else x.repeat_interleave(groups, axis)

    def forward(
        self, x: Tensor, mask: Tensor | LocalMask | None = None, *, causal: bool = False
    ) -> Tensor:
        """[B, T, H] -> [B, T, H]; `mask` and `causal` as in `AttentionWeights`."""
        return self.read(x, mask, causal=causal)[0]

    def read(
        self, x: Tensor, mask: Tensor | LocalMask | None = None, *, causal: bool = False
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Same as `forward`; also returns keys and values, [B, N, T, D] each, for a `Prefix`."""
        q, k, v = self._project(x)
        k, v = self._repeated(k, 1), self._repeated(v, 1)
        if isinstance(mask, LocalMask) and mask.is_sparse and self.relative is None:
            mixed = mask.joined(self.weights(*mask.divided(q, k, v)), q.size(0), q.size(2))
        else:
            if isinstance(mask, LocalMask):
                mask = mask.mask
            mixed = self.weights(q, k, v, mask, causal=causal, relative=self.relative)
        return self.output(join_heads(mixed)), (k, v)

    def after(self, x: Tensor, remembered: Tensor, mask: Tensor) -> Tensor:
        """Attends from the positions of `x` to these and to earlier ones.

        Args:
          x: [B, T, H].
          remembered: inputs of M earlier positions, [B, M, H].
          mask: [B, 1, T, M + T] bool.

        Returns:
          [B, T, H].
        """
        q, k, v = self._project(torch.cat([remembered, x], 1))
        k, v = self._repeated(k, 1), self._repeated(v, 1)
        q = q[:, :, remembered.size(1) :]
        return self.output(join_heads(self.weights(q, k, v, mask, relative=self.relative)))

    def cache(self, rows: int) -> KeyValueCache:
        """Returns an empty cache of R rows."""
        weight = self.query_key_value.weight
        size = weight.size(1) // self.num_heads
        return KeyValueCache.empty(rows, self.num_key_value_heads, size, weight)

    def step(self, x: Tensor, cache: KeyValueCache, prefix: Prefix | None = None) -> Tensor:
        """Attends from one new position to all preceding ones.

        Args:
          x: [R, 1, H].
          cache: extended by the position.
          prefix: the prefix of each of the R / K sentences.

        Returns:
          [R, 1, H].
        """
        positions = None
        if self.rotates:
            positions = cache.next_position()  # [1]
            if prefix is not None:  # a row's first step follows its own prefix
                lengths = prefix.mask.sum(1).repeat_interleave(x.size(0) // prefix.mask.size(0), 0)
                positions = (lengths[:, None] + positions)[:, None]  # [R, 1, 1]
        q, k, v = self._project(x, positions)
        keys, values = (self._repeated(one, 2) for one in cache.append(k, v))  # [t, R, N, D]
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
        # For a single query on a CPU an explicit sum over the cache in place is faster than a
        # matrix product: 0.3 ms instead of 0.55 ms for 128 hypotheses on one core.
        scores = (keys * q.squeeze(2)).sum(-1) * q.size(-1) ** -0.5  # [t, R, N]
        mixed = (values * scores.softmax(0).unsqueeze(-1)).sum(0)  # [R, N, D]
        return self.output(mixed.flatten(1).unsqueeze(1))

    def _mixed_after(
        self, prefix: Prefix, q: Tensor, keys: Tensor, values: Tensor, cache: KeyValueCache
    ) -> Tensor:
        """Returns the weighted sum of the values of a prefix and of later steps, heads joined.

        Args:
          prefix: of B sentences, P positions.
          q: [R, N, D].
          keys: of t steps, [t, R, N, D].
          values: [t, R, N, D].
          cache: the cache of these keys and values.

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
            steps = cache.distances(keys.size(0))  # [1, t]; they follow a row's own prefix
            places = torch.arange(length, device=q.device) - prefix.mask.sum(1, keepdim=True)
            apart = torch.cat([places + steps[:, :1], steps.expand(sentences, -1)], 1)[:, None]
            apart = apart.expand(-1, q.size(0) // sentences, -1).reshape(q.size(0), 1, -1)
            scores = scores + self.relative.scores(q, apart)
        weights = scores.softmax(-1).to(values.dtype)
        early, late = torch.split(weights, [length, keys.size(0)], -1)
        mixed = (values * late.permute(2, 0, 1).unsqueeze(-1)).sum(0)  # [R, N, D]
        early = early.view(sentences, -1, heads, length).transpose(1, 2)  # [B, N, K, P]
        mixed = mixed + torch.matmul(early, prefix.values).transpose(1, 2).reshape_as(mixed)
        if self.relative is not None:
            more = self.relative.mixed(weights, apart)
            mixed = mixed if more is None else mixed + more
        return mixed.flatten(1).unsqueeze(1)


class CrossAttention(nn.Module):
    """Attention of one sequence to another.

    Args:
      hidden_size: H of the sequence that attends.
      num_heads: N.
      dropout: probability of zeroing an attention weight; TRAIN only.
      bias: True for biases of the linear maps; tensor2tensor has none.
      memory_size: width of the other sequence; 0: H.

    Raises:
      HParamsError: hidden_size is not a multiple of num_heads.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        dropout: float,
        *,
        bias: bool = False,
        memory_size: int = 0,
    ) -> None:
        super().__init__()
        _check_heads(hidden_size, num_heads)
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size, bias=bias)
        read = memory_size or hidden_size
        self.key_value = Projections(read, (hidden_size, hidden_size), bias=bias)
        self.weights = AttentionWeights(dropout)
        self.output: Callable[[Tensor], Tensor] = nn.Linear(hidden_size, hidden_size, bias=bias)

    def remember(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Returns keys and values of the memory.  [B, S, H] -> two of [B, N, S, D]."""
        k, v = (split_heads(part, self.num_heads) for part in self.key_value.split(memory))
        return k.contiguous(), v.contiguous()  # read at every step of a decode

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
        """Returns the attention weights of `forward`, [B, N, T, S]."""
        q = split_heads(self.query(x), self.num_heads)
        scores = torch.matmul(q * q.size(-1) ** -0.5, memory[0].transpose(-1, -2))
        return scores.masked_fill(~mask, float("-inf")).softmax(-1)


class Attended(NamedTuple):
    """Attention of the last step to the input.

    Attributes:
      weights: [R, S], weights of each row over the input positions; a row sums to 1.
      mask: [R, S] bool, True where there is input.
    """

    weights: Tensor
    mask: Tensor


@runtime_checkable
class Attending(Protocol):
    """A `State` of a model that may attend to its input.

    Attributes:
      attended: attention of the last step; None unless recording is enabled.
    """

    attended: Attended | None

    def watched(self) -> Any | None:
        """Returns a state that records attention at each step; None without attention."""
