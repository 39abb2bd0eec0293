"""Metrics of one pass over a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from t2t_torch.errors import UsageError
from t2t_torch.features import Feature, QueryPlace
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
            lacking = [name for name, metric in of.items() if metric.reads_mask]
            if lacking and f"{target}_mask" not in notes:
                raise UsageError(
                    f"the metric {lacking[0]!r} reads which ids of {target!r} count from the note "
                    f"'{target}_mask', and the problem has none. Add it to the problem's notes, or "
                    "take the metric out of its `metrics`."
                )
            for name, metric in of.items():
                if metric.reads_place:
                    place = notes.get(f"{target}_place")
                    if not isinstance(place, QueryPlace):
                        raise UsageError(
                            f"the metric {name!r} reads which document of which query an example "
                            f"is from the note '{target}_place', and the problem has none. Set "
                            "its max_queries (in a declaration "
                            '"settings": {"max_queries": 10000}, then t2t-datagen --overwrite), or '
                            "take the metric out of its `metrics`."
                        )
                    metric.make_room(place.queries, place.documents)
        self._problem = problem
        self._standardized = {
            name: feature for name, feature in targets.items() if scale(feature)[0]
        }
        together = len(targets) > 1 and all(map(is_compared, targets.values()))
        self._together = dict(targets) if together else {}
        sizes = [(2, *(m.size for m in of.values())) for of in self._metrics.values()]
        self._sizes = [size for of in sizes for size in of] + ([2] if together else [])
        self.sums = torch.zeros(sum(self._sizes), dtype=torch.float64)

    def update(self, output: Output, batch: Mapping[str, Tensor]) -> None:
        """Adds a batch."""
        found: list[Tensor] = []
        for target, metrics in self._metrics.items():
            logits, targets = output.logits[target], batch[target]
            mask = batch.get(f"{target}_mask")
            loss = output.losses[target]
            found.append(sums_of(loss.sum, loss.weight))
            feature = self._standardized.get(target)
            for name, metric in metrics.items():
                pair = (logits, targets)
                if feature is not None and not metric.reads_standardized:
                    pair = (_in_own_units(feature, logits), _in_own_units(feature, targets))
                if metric.reads_place:
                    found.append(metric.placed_update(*pair, batch[f"{target}_place"]))
                else:
                    found.append(metric.masked_update(*pair, mask))
                if found[-1].shape != (metric.size,):
                    raise UsageError(
                        f"update of metric {name!r} returns its sums, [{metric.size}] (size); got "
                        f"{list(found[-1].shape)}."
                    )
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
                key = f"metrics-{self._problem}/{target}/{name}"
                results.update(metric.results(key, next(sums)))
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
