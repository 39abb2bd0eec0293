"""The metrics of one pass over a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.model import Output


class Evaluation:
    """Adds up the loss and some metrics of each target over batches.

    Args:
      targets: names of the targets.
      metrics: registered names.
      problem: full name of the problem, for the names of the results.

    Attributes:
      sums: [targets, 1 + metrics, 2] float64: values and weights, the loss first; may be added over
        processes (an all-reduce) before `result`.
    """

    def __init__(self, targets: Sequence[str], metrics: Sequence[str], problem: str) -> None:
        self._targets = list(targets)
        self._metrics = {name: registry.metric(name) for name in metrics}
        self._problem = problem
        self.sums = torch.zeros(len(self._targets), 1 + len(self._metrics), 2, dtype=torch.float64)

    def update(self, output: Output, batch: Mapping[str, Tensor]) -> None:
        """Adds one batch."""
        for row, target in zip(self.sums, self._targets, strict=True):
            found = [output.losses[target]]
            found += [f(output.logits[target], batch[target]) for f in self._metrics.values()]
            row += torch.tensor([[float(value), float(weight)] for value, weight in found])

    def result(self) -> dict[str, float]:
        """Returns `{"loss": ..., "metrics-<problem>/<target>/<metric>": ...}`, tensor2tensor's
        names.
        """
        means = self.sums[..., 0] / self.sums[..., 1].clamp(min=1.0)  # [targets, 1 + metrics]
        loss, weight = self.sums[:, 0].sum(0).tolist()
        results = {"loss": loss / max(weight, 1.0)}
        for target, row in zip(self._targets, means[:, 1:].tolist(), strict=True):
            for name, value in zip(self._metrics, row, strict=True):
                results[f"metrics-{self._problem}/{target}/{name}"] = value
        return results
