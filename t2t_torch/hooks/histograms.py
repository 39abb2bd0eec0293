"""Histograms of weights and gradients: tensor2tensor's summarize_vars and summarize_grads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from t2t_torch.registry import register_hook
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from t2t_torch.train.estimator import Estimator


@register_hook
class Histograms(Hook):
    """Writes histograms and norms of each weight and gradient at each report.

    Also active without `--hooks=histograms` if the hparams `summarize_grads` (gradients only) or
    `summarize_vars` (weights only) are set.  Gradients are clipped, as the optimizer receives
    them; weights are those before the update.
    """

    def before_update(self, estimator: Estimator) -> None:
        """Writes the histograms if a report follows this step."""
        step = estimator.state.step + 1
        if step % estimator.config.log_step_count_steps:
            return
        hparams: Any = estimator.task.hparams
        grads, weights = hparams.summarize_grads, hparams.summarize_vars
        if grads or not weights:
            self._write(estimator, "gradients", step, lambda parameter: parameter.grad)
        if weights or not grads:
            self._write(estimator, "weights", step, lambda parameter: parameter.detach())

    def _write(
        self,
        estimator: Estimator,
        kind: str,
        step: int,
        tensor_of: Callable[[nn.Parameter], Tensor | None],
    ) -> None:
        """Writes a histogram and a norm for each parameter."""
        norms = {}
        for name, tensor in _whole(estimator.model, tensor_of):
            estimator.summary.histogram(f"{kind}/{name}", tensor, step)
            norms[f"{kind}_norm/{name}"] = tensor.float().norm()
        if norms and estimator.world.leads:
            # One device synchronization for all instead of one each.
            numbers = torch.stack(list(norms.values())).tolist()
            estimator.summary.scalars(dict(zip(norms, numbers, strict=True)), step)


def _whole(
    model: nn.Module, tensor_of: Callable[[nn.Parameter], Tensor | None]
) -> Iterator[tuple[str, Tensor]]:
    """Yields each full tensor; sharded tensors are gathered in all processes."""
    for name, parameter in model.named_parameters():
        tensor: Any = tensor_of(parameter)
        if tensor is not None:
            yield name, tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
