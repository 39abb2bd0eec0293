"""Runs of several problems, each with a model of its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.errors import RegistryError
from t2t_torch.problem_types.multi import MultiProblem
from t2t_torch.registry import register_run_kind
from t2t_torch.run_kinds.problem import ProblemRun

if TYPE_CHECKING:
    from t2t_torch.run.directory import RunDirectory, TaskRecord


@register_run_kind("several_problems")
class SeveralProblemsRun(ProblemRun):
    """Models that were trained together on the problems of a `MultiProblem`."""

    title = "several problems"

    def claims(self, record: TaskRecord) -> bool:
        """See `RunKind.claims`."""
        if record.kind_name != "problem":
            return False
        with contextlib.suppress(RegistryError):  # the reader of the run reports it
            return isinstance(registry.problem(record.problem), MultiProblem)
        return False

    def problem_names(self, directory: RunDirectory) -> tuple[str, ...]:
        """See `RunKind.problem_names`."""
        problem = registry.problem(directory.task().problem)
        assert isinstance(problem, MultiProblem)
        return tuple(problem.problem_names)
