"""Muon for hidden-layer matrices, AdamW for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.errors import HParamsError
from t2t_torch.optim.parameter_groups import decaying
from t2t_torch.optim.settings import reads
from t2t_torch.optimizers.adam import READS, adam_w
from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


@register_optimizer
@reads("optimizer_muon_momentum", "optimizer_muon_excludes", *READS)
class Muon(torch.optim.Optimizer):
    """Moves matrices along their orthogonalized momentum.  Jordan et al. 2024; torch.optim.Muon.

    Updates are scaled to the size of AdamW's (Liu et al. 2025, arXiv:2502.16982), so one learning
    rate and one `weight_decay` fit both parts.  Muon is meant for matrices that multiply hidden
    vectors: embeddings, softmax, vectors and kernels of more dimensions use `adam_w`.

    Args:
      parameters: pairs of name and parameter, or groups of them.
      hparams: optimizer_muon_momentum and _excludes; those of `adam_w`.

    Raises:
      HParamsError: parameters have no names, or no matrix remains for Muon.
    """

    def __init__(self, parameters: Iterable[Any], hparams: HParams) -> None:
        matrices, rest = [], []
        for group in decaying(parameters, hparams.weight_decay):
            ours = [pair for pair in group["params"] if _is_inner(pair, hparams)]
            others = [pair for pair in group["params"] if not _is_inner(pair, hparams)]
            matrices += [{**group, "params": ours}] if ours else []
            rest += [{**group, "params": others}] if others else []
        if not matrices:
            raise HParamsError(
                "optimizer=muon finds no matrix to train but those that optimizer_muon_excludes="
                f"[{','.join(hparams.optimizer_muon_excludes)}] leaves to adam_w. "
                "Use optimizer=adam_w."
            )
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices,
                lr=0.0,
                momentum=hparams.optimizer_muon_momentum,
                adjust_lr_fn="match_rms_adamw",
            )
        ]
        if rest:
            self._parts.append(adam_w(rest, hparams))
        self._counts = [len(part.param_groups) for part in self._parts]
        super().__init__([group for part in self._parts for group in part.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Updates all parameters that have gradients."""
        if closure is not None:
            raise NotImplementedError("Muon takes no closure.")
        first = 0
        for part, count in zip(self._parts, self._counts, strict=True):
            # Loading a checkpoint replaces groups and state: both parts must use the current ones.
            part.param_groups = self.param_groups[first : first + count]
            part.state = self.state
            part.step()
            first += count


def _is_inner(pair: Any, hparams: HParams) -> bool:
    """Returns whether a parameter is a matrix that no exclusion pattern matches."""
    if not isinstance(pair, tuple):
        raise HParamsError(
            "optimizer=muon needs parameter names to separate matrices from tables: pass "
            "model.named_parameters(), or the groups of parameter_groups(model, hparams)."
        )
    name, parameter = pair
    excluded = any(re.search(pattern, name) for pattern in hparams.optimizer_muon_excludes)
    return parameter.ndim == 2 and not excluded
