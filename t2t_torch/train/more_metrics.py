"""Metrics that a command names, beside the problem's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from t2t_torch.errors import UsageError
from t2t_torch.metrics.metric import is_metric_of

if TYPE_CHECKING:
    from t2t_torch.features import Feature
    from t2t_torch.train.multi_task import MultiTask
    from t2t_torch.train.problem_task import ProblemTask


def add_metrics(
    task: ProblemTask | MultiTask,
    names: Iterable[str],
    also: Callable[[Feature], Iterable[str]] | None = None,
) -> None:
    """Adds metrics to what a task's evaluations report, each for the targets that it is of.

    Args:
      task: of a problem, or of several.
      names: registered metrics.
      also: returns more names, for a target.

    Raises:
      UsageError: a name is of none of the targets.
      RegistryError: there is no such metric.
    """
    asked = list(dict.fromkeys(names))
    fitting: set[str] = set()
    for one in getattr(task, "tasks", {"": task}).values():
        more = {}
        for target, feature in one.features.targets.items():
            found = [name for name in asked if is_metric_of(name, feature)]
            fitting.update(found)
            more[target] = [*found, *(also(feature) if also is not None else ())]
        one.more_metrics = more
    missing = [name for name in asked if name not in fitting]
    if missing:
        raise UsageError(
            f"--eval_metrics: no target of {task.name!r} is one that {', '.join(missing)} is a "
            "metric of; docs/metrics.md tells of each which are. Leave it out."
        )
    task.evaluator()  # one that lacks what it reads is refused before training
