"""Metrics of one pass over a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.features import Feature
from t2t_torch.features.real import scale
from t2t_torch.metrics import is_compared, right_rows
from t2t_torch.metrics.metric import Metric, metric_of, quotient, sums_of
from t2t_torch.model import Output


def all_right(
    features: Mapping[str, Feature], logits: Mapping[str, Tensor], batch: Mapping[str, Tensor]
) -> Tensor:
    """Returns the examples with all targets correct, and all examples, [2] float64."""
    rows = [right_rows(feature, logits[name], batch[name]) for name, feature in features.items()]
    right = torch.stack(rows).all(0)
    return torch.stack([right.sum(), right.new_tensor(len(right), dtype=torch.int64)]).double()


class Evaluation:
    """Accumulates the loss and the metrics of each target over batches.

    With several targets, none of them numeric, also counts examples with all targets correct.

    Args:
      targets: the features, by name.
      metrics: registered names, for each target.
      problem: full name of the problem, for the names of the results.
      notes: features of the annotations in a batch, by name.

    Raises:
      UsageError: a metric does not apply to its target, or needs a missing annotation.

    Attributes:
      sums: [n] float64: for each target the loss, its weight, and the sums of its metrics; may be
        summed over processes (all-reduce) before `result`.
      rows: rows of the batches, [n, size] float64, of each metric "<target>/<name>" that keeps
        them; those of all processes are joined before `result`.
    """

    def __init__(
        self,
        targets: Mapping[str, Feature],
        metrics: Mapping[str, Sequence[str]],
        problem: str,
        notes: Mapping[str, Feature] = MappingProxyType({}),
    ) -> None:
        self._metrics: dict[str, dict[str, Metric]] = {
            target: {name: metric_of(name, feature) for name in metrics[target]}
            for target, feature in targets.items()
        }
        for target, of in self._metrics.items():
            for name, metric in of.items():
                if metric.reads and (note := f"{target}_{metric.reads}") not in notes:
                    raise UsageError(
                        f"the metric {name!r} reads the note {note!r}, and the problem has none. "
                        "Add it to the problem's notes, or take the metric out of its `metrics`."
                    )
        self._problem = problem
        self._standardized = {
            name: feature for name, feature in targets.items() if scale(feature)[0]
        }
        together = len(targets) > 1 and all(map(is_compared, targets.values()))
        self._together = dict(targets) if together else {}
        self._sizes, self.rows = list[int](), dict[str, list[Tensor]]()
        for target, of in self._metrics.items():
            self._sizes += [2, *(metric.size for metric in of.values() if not metric.keeps_rows)]
            for name, metric in of.items():
                if metric.keeps_rows:
                    self.rows[f"{target}/{name}"] = [torch.zeros(0, metric.size).double()]
        self._sizes += [2] if together else []
        self.sums = torch.zeros(sum(self._sizes), dtype=torch.float64)

    def update(self, output: Output, batch: Mapping[str, Tensor]) -> None:
        """Adds a batch."""
        found: list[Tensor] = []
        for target, metrics in self._metrics.items():
            logits, targets = output.logits[target], batch[target]
            loss = output.losses[target]
            found.append(sums_of(loss.sum, loss.weight))
            feature = self._standardized.get(target)
            for name, metric in metrics.items():
                pair = (logits, targets)
                if feature is not None and not metric.reads_standardized:
                    pair = (_in_own_units(feature, logits), _in_own_units(feature, targets))
                if metric.reads:
                    added = metric.noted_update(*pair, batch[f"{target}_{metric.reads}"])
                else:
                    added = metric.update(*pair)
                if added.shape[metric.keeps_rows :] != (metric.size,):
                    raise UsageError(
                        f"update of metric {name!r} returns its sums, [{metric.size}] (size); got "
                        f"{list(added.shape)}."
                    )
                if metric.keeps_rows:
                    self.rows[f"{target}/{name}"].append(added.cpu())
                else:
                    found.append(added)
        if self._together:
            found.append(all_right(self._together, output.logits, batch))
        device = found[0].device
        self.sums += torch.cat([sums.to(device) for sums in found]).cpu()  # synchronizes once

    def result(self) -> dict[str, float]:
        """Returns `{"loss": ..., "metrics-<problem>/<target>/<metric>": ...}`, as tensor2tensor.

        The loss is the sum of the targets' mean losses.  A metric with several values has a name
        for each, such as `.../f1_per_label/<label>`.  The fraction of examples with all targets
        correct is "metrics-<problem>/all_targets/exact_match": frame accuracy for intents and
        slots.
        """
        results = {"loss": 0.0}
        sums = iter(torch.split(self.sums, self._sizes))
        for target, metrics in self._metrics.items():
            results["loss"] += quotient(next(sums))
            for name, metric in metrics.items():
                key, rows = f"{target}/{name}", self.rows.get(f"{target}/{name}")
                own = next(sums) if rows is None else torch.cat(rows)
                results.update(metric.results(f"metrics-{self._problem}/{key}", own))
        if self._together:
            results[f"metrics-{self._problem}/all_targets/exact_match"] = quotient(next(sums))
        return results


def _in_own_units(feature: Feature, numbers: Tensor) -> Tensor:
    """Returns numbers in original units, as `Feature.decode` does.  [B, size] float64."""
    mean, std = (
        torch.tensor(moments, dtype=torch.float64, device=numbers.device)
        for moments in scale(feature)
    )
    return numbers.double() * std + mean
