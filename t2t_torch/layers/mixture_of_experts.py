"""Mixture of experts: each position is processed by a few of many feed-forward networks.

`moe`: Lepikhin et al. 2021, "GShard", arXiv:2006.16668; Fedus et al. 2022, "Switch Transformers",
arXiv:2101.03961; Jiang et al. 2024, "Mixtral of Experts", arXiv:2401.04088.  `local_moe`: noisy
top-k gating of Shazeer et al. 2017, arXiv:1701.06538, as in tensor2tensor's utils/expert_utils.py.

Only in TRAIN do experts have a capacity and gates noise, so that a result does not depend on the
rest of a batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.hparam_groups import TransformerLayerHParams
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.tokens import PenalizedLayer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu_squared": lambda x: F.relu(x).square(),
    "tanh": torch.tanh,
    "linear": lambda x: x,
}

_LEAST_NOISE = 1e-2  # added to the deviation of the noise


class Routing(NamedTuple):
    """Experts of each of P positions.

    Attributes:
      experts: in descending order of their gates, [P, k] int64.
      gates: weights of their outputs, [P, k] float32.
      penalty: load-balancing loss in TRAIN, []; None in EVAL.
    """

    experts: Tensor
    gates: Tensor
    penalty: Tensor | None


class MixtureOfExperts(PenalizedLayer):
    """Feed-forward sublayer with `moe_num_experts` networks without biases.

    Args:
      hparams: hidden_size, filter_size, relu_dropout, ffn_layer, ffn_activation, ffn_gated, moe_*.

    Attributes:
      there: positions with data in the next pass in TRAIN, [B, T] bool; None: all.  Set by
        `mark_data`.

    Raises:
      HParamsError: moe_k is above moe_num_experts, or settings do not apply to `local_moe`.
    """

    def __init__(self, hparams: TransformerLayerHParams) -> None:
        super().__init__()
        count, size, width = hparams.moe_num_experts, hparams.hidden_size, hparams.filter_size
        if hparams.moe_k > count:
            raise HParamsError(
                f"moe_k={hparams.moe_k}: there are moe_num_experts={count}. Set a smaller moe_k."
            )
        self.is_noisy = hparams.ffn_layer == "local_moe"
        if self.is_noisy and (hparams.ffn_gated or hparams.ffn_activation != "relu"):
            raise HParamsError(
                "ffn_layer=local_moe has experts with ReLU as in tensor2tensor. Set ffn_layer=moe "
                "for ffn_gated or another ffn_activation."
            )
        self.k, self.coefficient = hparams.moe_k, hparams.moe_loss_coef
        self.overhead = 0.0 if self.is_noisy else hparams.moe_overhead_train
        self.scale = (width / size) ** -0.5 if self.is_noisy else 1.0
        self.router = nn.Linear(size, count, bias=False)
        if self.is_noisy:
            self.noise = nn.Linear(size, count, bias=False)
        self.inner = nn.Parameter(_experts(hparams, size, width))  # [E, H, F]
        self.gated = hparams.ffn_gated
        if self.gated:
            self.gate = nn.Parameter(_experts(hparams, size, width))
        self.outer = nn.Parameter(_experts(hparams, width, size))  # [E, F, H]
        self.activation = ACTIVATIONS[hparams.ffn_activation]
        self.dropout = Dropout(hparams.relu_dropout)
        self.there: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]; zeros where all experts of a position are full."""
        flat = x.flatten(0, -2)  # [P, H]
        there = None
        if self.training and self.there is not None and self.there.shape == x.shape[:-1]:
            there = self.there.flatten()
        routing = self._noisy(flat, there) if self.is_noisy else self._routed(flat, there)
        if routing.penalty is not None:
            penalty = (self.coefficient * routing.penalty).expand(len(x))
            # A layer that is applied several times in a pass has a penalty for each.
            self.penalty = penalty if self.penalty is None else self.penalty + penalty
        return self._processed(flat, routing, there).view_as(x)

    def _routed(self, x: Tensor, there: Tensor | None) -> Routing:
        """Chooses experts by a softmax over all; gates of several are normalized."""
        probabilities = self.router(x).float().softmax(-1)  # [P, E]
        gates, experts = probabilities.topk(self.k, -1)
        penalty = None
        if self.training:  # Fedus et al. 2022, equations 4 to 6
            counted = x.new_ones(len(x), dtype=torch.float32) if there is None else there.float()
            total = counted.sum().clamp(min=1.0)
            chosen = F.one_hot(experts, probabilities.size(-1)).sum(1)  # [P, E]
            share = (chosen * counted[:, None]).sum(0) / (self.k * total)
            mean = (probabilities * counted[:, None]).sum(0) / total
            penalty = probabilities.size(-1) * (share * mean).sum()
        if self.k > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        return Routing(experts, gates, penalty)

    def _noisy(self, x: Tensor, there: Tensor | None) -> Routing:
        """Chooses experts by scores with noise in TRAIN, a softmax over the chosen ones."""
        clean = self.router(x).float()
        scores = clean
        if self.training:
            deviation = F.softplus(self.noise(x).float()) + _LEAST_NOISE
            scores = clean + self._drawn(clean) * deviation
        count = clean.size(-1)
        best, experts = scores.topk(min(self.k + 1, count), -1)
        experts, gates = experts[:, : self.k], best[:, : self.k].softmax(-1)
        if not self.training:
            return Routing(experts, gates, None)
        kept = 1.0 if there is None else there.float()[:, None]
        importance = torch.zeros_like(clean).scatter(-1, experts, gates) * kept
        load = (importance > 0).float()
        if self.k < count:  # probability of being chosen, were the noise drawn again
            limit = torch.where(
                scores > best[:, self.k, None], best[:, self.k, None], best[:, self.k - 1, None]
            )
            load = torch.special.ndtr((clean - limit) / deviation) * kept
        penalty = _squared_variation(importance.sum(0)) + _squared_variation(load.sum(0))
        return Routing(experts, gates, penalty)

    def _drawn(self, like: Tensor) -> Tensor:
        """Returns standard normal noise."""
        return torch.randn_like(like)

    def _processed(self, x: Tensor, routing: Routing, there: Tensor | None) -> Tensor:
        """Returns the weighted outputs of each position's experts.  [P, H] -> [P, H].

        Each expert has a table of rows.  First choices have precedence, then earlier positions.
        """
        count, rows = len(self.inner), x.size(0)
        experts = routing.experts.t().flatten()  # [k P], all first choices first
        chosen = F.one_hot(experts, count)  # [k P, E]
        if there is not None:
            chosen = chosen * there.repeat(self.k)[:, None]
        places = (chosen.cumsum(0) * chosen).sum(1) - 1  # [k P], -1 of padding
        if self.training and self.overhead:
            capacity = min(rows, math.ceil(self.k * rows / count * self.overhead))
        elif torch.compiler.is_compiling():
            capacity = rows  # a size that does not depend on values
        else:
            capacity = int(chosen.sum(0).max())
        fits = (places >= 0) & (places < capacity)
        slots = torch.where(fits, experts * capacity + places, count * capacity)  # the last: none
        tokens = torch.arange(rows, device=x.device).repeat(self.k)
        table = x.new_zeros(count * capacity + 1, x.size(-1))
        table = table.index_put((slots,), x[tokens])[:-1].view(count, capacity, -1)
        y = self.activation(torch.bmm(table, self.inner))
        if self.gated:
            y = y * torch.bmm(table, self.gate)
        y = torch.bmm(self.dropout(y), self.outer).flatten(0, 1) * self.scale
        y = F.pad(y, (0, 0, 0, 1))[slots]  # [k P, H]
        gates = routing.gates.t().flatten()[:, None].to(y.dtype)
        return (y * gates).view(self.k, rows, -1).sum(0).to(x.dtype)


def _experts(hparams: TransformerLayerHParams, inputs: int, outputs: int) -> Tensor:
    """Returns initial weights of all experts, [E, inputs, outputs]."""
    linear = [nn.Linear(inputs, outputs, bias=False) for _ in range(hparams.moe_num_experts)]
    for one in linear:
        initialize(one, hparams)
    return torch.stack([one.weight.detach().t() for one in linear])


def _squared_variation(values: Tensor) -> Tensor:
    """Returns the squared coefficient of variation.  [E] -> []."""
    return values.var(correction=0) / (values.mean().square() + 1e-10)


def mark_data(layers: nn.Module, there: Tensor) -> None:
    """Sets the positions with data of the next pass in mixtures of experts; TRAIN only.

    Args:
      layers: of an encoder or a decoder.
      there: [B, T] bool.
    """
    if layers.training:
        for layer in layers.modules():
            if isinstance(layer, MixtureOfExperts):
                layer.there = there
