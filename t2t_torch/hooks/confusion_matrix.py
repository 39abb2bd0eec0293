"""Figures of confusion matrices of classes and tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from t2t_torch.errors import UsageError, require
from t2t_torch.features import Feature
from t2t_torch.features.feature import select_labels
from t2t_torch.registry import register_hook
from t2t_torch.reports.plots import heat_maps
from t2t_torch.reports.section import number
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from t2t_torch.mode import Split
    from t2t_torch.model import Output
    from t2t_torch.train.estimator import Estimator


_MOST = 30  # maximum classes in a figure
_OTHERS = "(others)"

Counts = npt.NDArray[np.int64]


@register_hook
class ConfusionMatrix(Hook):
    """Draws the confusion matrix of each class or tag target after each evaluation.

    TensorBoard shows it as `confusion_matrix/<target>`; `figures/confusion_matrix/` in the run
    directory holds the newest.  Rows are references, columns predictions; colours are fractions of
    a row.  With many classes the most confused are shown, the rest as "(others)".  Labels unknown
    in training are not counted.

    Raises:
      UsageError: matplotlib is missing.
    """

    def __init__(self) -> None:
        require("matplotlib", "plots", "--hooks=confusion_matrix draws with matplotlib")
        self._counts: dict[str, Tensor] = {}
        self._stop: Callable[[], None] = lambda: None  # removes the forward hook

    def begin(self, estimator: Estimator) -> None:
        """Checks that there is a class or tag target.

        Raises:
          UsageError: there is none.
        """
        _targets(estimator)

    def before_evaluation(self, estimator: Estimator, split: Split) -> None:
        """Starts counting predictions."""
        self._stop()  # a previous evaluation may have been interrupted by a signal
        self._counts = {
            name: torch.zeros(feature.vocab_size**2, dtype=torch.int64)
            for name, feature in _targets(estimator).items()
        }
        self._stop = estimator.model.register_forward_hook(self._count).remove

    def after_evaluation(
        self, estimator: Estimator, split: Split, metrics: Mapping[str, float]
    ) -> None:
        """Draws the counts of all processes."""
        self._stop()
        for name, feature in _targets(estimator).items():
            classes, step = feature.vocab_size, estimator.state.step
            # float64 can be sent by every process and is exact for counts.
            on_device = self._counts[name].to(estimator.world.device, torch.float64)
            counts = estimator.world.sum(on_device).cpu().long().view(classes, classes).numpy()
            labels = list(feature.labels)
            if estimator.world.leads:
                right = counts.diagonal().sum() / max(1, counts.sum())
                summary = f"{right:.1%} of {number(int(counts.sum()))} are right"
                title = f"{name} of {split.value}, step {step:,}: {summary}"
                figure = _figure(*_most_confused(counts, labels), title)
                estimator.summary.figure(f"confusion_matrix/{name}", figure, step)

    def end(self, estimator: Estimator) -> None:
        """Removes the forward hook from the model."""
        self._stop()

    def _count(self, model: nn.Module, args: tuple[Any, ...], output: Output) -> None:
        """Adds a batch."""
        (batch,) = args
        for name, counts in self._counts.items():
            if name not in batch:  # belongs to another of several problems
                continue
            right = batch[name].cpu()
            predicted = output.logits[name].argmax(-1).cpu()
            there = right >= 0
            classes = round(len(counts) ** 0.5)
            pairs = right[there] * classes + predicted[there]
            counts += torch.bincount(pairs, minlength=len(counts))


def _targets(estimator: Estimator) -> dict[str, Feature]:
    features = getattr(estimator.task, "features", None)
    targets = features.targets if features is not None else {}
    classified = select_labels(targets)
    if not classified:
        raise UsageError(
            f"--hooks=confusion_matrix: no target of {estimator.task.name!r} is a class or a tag. "
            "Leave the hook out."
        )
    return classified


def _most_confused(counts: Counts, labels: list[str]) -> tuple[Counts, list[str]]:
    """Returns the counts of at most `_MOST` classes, with the rest summed as one more."""
    if len(labels) <= _MOST:
        return counts, labels
    errors = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()
    classes = np.sort(np.argsort(-errors, kind="stable")[: _MOST - 1])
    place = np.full(len(labels), _MOST - 1)
    place[classes] = np.arange(_MOST - 1)
    folded = np.zeros((_MOST, _MOST), np.int64)
    np.add.at(folded, (place[:, None], place[None, :]), counts)
    return folded, [*(labels[one] for one in classes), _OTHERS]


def _figure(counts: Counts, labels: list[str], title: str) -> Figure:
    totals = counts.sum(1, keepdims=True)
    return heat_maps(
        [np.where(totals > 0, counts / np.maximum(totals, 1), np.nan)],
        title=title,
        titles=[""],
        rows=labels,
        columns=labels,
        axes=("is", "taken for"),
        numbers=[[number(one) if one else "" for one in row] for row in counts.tolist()],
    )
