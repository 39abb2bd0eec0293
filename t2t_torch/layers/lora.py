"""Low-rank adapters of linear maps (LoRA).  Hu et al. 2021, arXiv:2106.09685.

An adapted map computes W x + b + alpha / rank * B A x.  W and b keep their names; A and B are the
parameters `lora_a` and `lora_b` of the same module.  B starts at zero, so a model computes with new
adapters what it computes without them.  Adapters exist in training only: files with adapters are
merged when a model without them reads them (`run/tensors.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError, listed
from t2t_torch.layers.dropout import Dropout

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

_A, _B, _WEIGHT = "lora_a", "lora_b", "weight"
_NUMBERED = re.compile(r"\.\d+(\.|$)")


def is_adapter(name: str) -> bool:
    """Returns True if a parameter's name is that of an adapter's A or B."""
    return name.rpartition(".")[2] in (_A, _B)


class AdaptedMap(nn.Module):
    """A linear map with an adapter; base class that comes before the map's own class.

    `weight` is the weight of the whole map, W + alpha / rank * B A, for code that multiplies by it
    without calling the module.  W itself is the parameter of that name.

    Attributes:
      lora_a: [rank, inputs]; transposed if W is [inputs, outputs].
      lora_b: [outputs, rank]; transposed if W is [inputs, outputs].
      lora_scale: alpha / rank.
      lora_dropout: dropout of the adapter's input.
      is_linear: True if the map's own class computes as `nn.Linear` does.
      is_transposed: as the function of that name.
    """

    lora_a: Tensor
    lora_b: Tensor
    lora_scale: float
    lora_dropout: Dropout
    is_linear: ClassVar[bool] = False
    is_transposed: ClassVar[bool] = False

    @property
    def weight(self) -> Tensor:
        """The weight of the whole map, in the layout of W.

        Raises:
          HParamsError: dropout of the adapter's input has no weight.
        """
        own: Any = self._parameters[_WEIGHT]
        if self.training and self.lora_dropout.rate and torch.is_grad_enabled():
            raise HParamsError(
                f"lora_dropout={self.lora_dropout.rate}: the model reads the weight of a linear "
                f"map, {type(self).__name__} {list(own.shape)}, and does not call it, so its "
                "input has no dropout. Set lora_dropout=0, or leave it out of lora_targets."
            )
        merged: Tensor = own + _product(self.lora_a, self.lora_b, own.shape) * self.lora_scale
        return merged

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        own: Any = self._parameters[_WEIGHT]
        bias: Any = self.bias
        if self.is_transposed:
            low: Tensor = self.lora_dropout(x) @ self.lora_a @ self.lora_b
            y = torch.addmm(bias, x.view(-1, x.size(-1)), own).view(low.shape)
            return y + low * self.lora_scale
        if self.is_linear:
            low = F.linear(F.linear(self.lora_dropout(x), self.lora_a), self.lora_b)
            return F.linear(x, own, bias) + low * self.lora_scale
        whole: Tensor = super().forward(x)  # reads `weight`
        return whole


_ADAPTED: dict[type, type[nn.Module]] = {}
"""Classes of adapted maps by those of the maps."""


def is_transposed(kind: type) -> bool:
    """Returns True for the linear maps of Hugging Face's GPT-2, whose W is [inputs, outputs]."""
    return any(
        (base.__module__, base.__name__) == ("transformers.pytorch_utils", "Conv1D")
        for base in kind.__mro__
    )


def _product(a: Tensor, b: Tensor, shape: torch.Size) -> Tensor:
    """Returns B A in the layout of W, of this shape; the rank is less than both sizes."""
    return b @ a if (b.size(0), a.size(1)) == tuple(shape) else a @ b


def add_adapters(model: nn.Module, hparams: HParams) -> None:
    """Adds adapters to linear maps of a model, as set by `lora_rank`; without it does nothing.

    A starts uniformly as the weight of an `nn.Linear` does, B at zero.  Maps that share a weight
    share the adapter.

    Args:
      model: model whose weights are not frozen, before it is wrapped for several processes.
      hparams: `lora_rank`, `lora_alpha`, `lora_dropout` and `lora_targets`.

    Raises:
      HParamsError: a pattern matches no linear map; a map is smaller than the rank; a weight is
        shared with a module that is no adapted map.
    """
    rank = hparams.lora_rank
    if not rank:
        return
    chosen = _targets(model, hparams)
    known: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
    for module in chosen:
        kind: Any = type(module)
        weight: Any = module.weight
        if id(weight) not in known:
            transposed = is_transposed(kind)
            outputs, inputs = weight.t().shape if transposed else weight.shape
            a, b = weight.new_empty(rank, inputs), weight.new_zeros(outputs, rank)
            nn.init.kaiming_uniform_(a, a=math.sqrt(5))
            pair = (a.t().contiguous(), b.t().contiguous()) if transposed else (a, b)
            known[id(weight)] = (nn.Parameter(pair[0]), nn.Parameter(pair[1]))
        module.lora_a, module.lora_b = known[id(weight)]
        module.lora_scale = hparams.lora_alpha / rank  # type: ignore[assignment]
        module.lora_dropout = Dropout(hparams.lora_dropout).train(module.training)
        if kind not in _ADAPTED:
            is_linear = kind.forward is nn.Linear.forward
            forms = {"is_linear": is_linear, "is_transposed": is_transposed(kind)}
            _ADAPTED[kind] = type(f"Adapted{kind.__name__}", (AdaptedMap, kind), forms)
        module.__class__ = _ADAPTED[kind]


def _targets(model: nn.Module, hparams: HParams) -> list[nn.Module]:
    """Returns the linear maps to adapt, each once."""
    rank = hparams.lora_rank
    maps = {name: module for name, module in _linear_maps(model) if "modalities" not in name}
    chosen = {
        name: module
        for name, module in maps.items()
        if _NUMBERED.search(name) and min(module.weight.shape) > rank  # type: ignore[arg-type]
    }
    if hparams.lora_targets:
        chosen, maps = {}, dict(_linear_maps(model))
    for pattern in hparams.lora_targets:
        try:
            matching = {name: maps[name] for name in maps if re.search(pattern, name)}
        except re.error as error:
            raise HParamsError(
                f"lora_targets: {pattern!r} is no regular expression: {error}."
            ) from error
        if not matching:
            raise HParamsError(
                f"lora_targets={pattern}: no linear map of the model has {pattern!r} in its name. "
                f"Linear maps: {listed(list(maps)) or 'none'}."
            )
        chosen |= matching
    if not chosen:
        raise HParamsError(
            f"lora_rank={rank}: the model has no linear maps in numbered layers, as 'encoder.0...',"
            f" with more than {rank} inputs and outputs. Name others with lora_targets, set a "
            f"lower rank, or leave it out. Linear maps: {listed(list(maps)) or 'none'}."
        )
    adapted = set(chosen.values())
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((name, module))
    for name, module in chosen.items():
        weight: Any = module.weight
        if min(weight.shape) <= rank:
            raise HParamsError(
                f"lora_rank={rank}: {name} has a weight of {list(weight.shape)}; both sizes must "
                "be greater than the rank. Set a lower rank, or leave it out of lora_targets."
            )
        if others := [other for other, owner in owners[id(weight)] if owner not in adapted]:
            raise HParamsError(
                f"lora_targets: the weight of {name} is also that of {others[0]}, which is not "
                "adapted. Leave it out of lora_targets."
            )
    return list(dict.fromkeys(chosen.values()))


def _linear_maps(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields the names and modules of linear maps that are not frozen by the model itself."""
    for name, module in model.named_modules(remove_duplicate=False):
        is_linear = isinstance(module, nn.Linear) or is_transposed(type(module))
        if is_linear and module.weight.requires_grad:
            yield name, module


def merged(tensors: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """Returns the weights of a model with adapters as those of the same model without them.

    The sums are computed in float64.

    Args:
      tensors: all weights by name, on the CPU.
      alpha: `lora_alpha`.

    Raises:
      KeyError: a weight that is adapted is missing.
    """
    plain = {name: tensor for name, tensor in tensors.items() if not is_adapter(name)}
    for name, a in tensors.items():
        module, _, last = name.rpartition(".")
        if last == _A:
            weight = f"{module}.{_WEIGHT}".removeprefix(".")
            own, b = plain[weight].double(), tensors[name.removesuffix(_A) + _B].double()
            change = _product(a.double(), b, own.shape) * (alpha / min(a.shape))
            plain[weight] = (own + change).to(plain[weight].dtype)
    return plain
