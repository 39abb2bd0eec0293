"""The metrics of one pass over a split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from t2t_torch.features import Feature
from t2t_torch.metrics.metric import Metric, metric_of, quotient
from t2t_torch.model import Output


class Evaluation:
    """Adds up the loss and some metrics of each target over batches.

    Args:
      targets: the features, by name.
      metrics: registered names, for each target.
      problem: full name of the problem, for the names of the results.

    Attributes:
      sums: [n] float64: for each target the loss, its weight, and what its metrics add up; may be
        added over processes (an all-reduce) before `result`.
    """

    def __init__(
        self,
        targets: Mapping[str, Feature],
        metrics: Mapping[str, Sequence[str]],
        problem: str,
    ) -> None:
        self._metrics: dict[str, dict[str, Metric]] = {
            target: {name: metric_of(name, feature) for name in metrics[target]}
            for target, feature in targets.items()
        }
        self._problem = problem
        size = sum(2 + sum(m.size for m in of.values()) for of in self._metrics.values())
        self.sums = torch.zeros(size, dtype=torch.float64)

    def update(self, output: Output, batch: Mapping[str, Tensor]) -> None:
        """Adds one batch."""
        found: list[Tensor] = []
        for target, metrics in self._metrics.items():
            logits, targets = output.logits[target], batch[target]
            loss = [float(x) for x in output.losses[target]]
            found.append(torch.tensor(loss, dtype=torch.float64))
            found += [metric.update(logits, targets).cpu() for metric in metrics.values()]
        self.sums += torch.cat(found)

    def result(self) -> dict[str, float]:
        """Returns `{"loss": ..., "metrics-<problem>/<target>/<metric>": ...}`, tensor2tensor's
        names.

        The loss is the sum of the targets' mean losses.
        """
        results = {"loss": 0.0}
        sums = self._sums()
        for target, metrics in self._metrics.items():
            results["loss"] += quotient(next(sums))
            for name, metric in metrics.items():
                key = f"metrics-{self._problem}/{target}/{name}"
                results[key] = metric.result(next(sums))
        return results

    def _sums(self) -> Iterator[Tensor]:
        sizes = [
            size
            for metrics in self._metrics.values()
            for size in (2, *(metric.size for metric in metrics.values()))
        ]
        yield from self.sums.split(sizes)
