"""Training on several problems: models with shared parts, batches of one problem each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.metrics.metric import lower_is_better
from t2t_torch.model import check_features
from t2t_torch.objectives.objective import Objective
from t2t_torch.optim.parameter_groups import freeze
from t2t_torch.pipeline.loader import MixedBatches, OnePass
from t2t_torch.pipeline.training_split import component_seed
from t2t_torch.problem_types.multi import MultiProblem, member, split_member
from t2t_torch.train import multi_model
from t2t_torch.train.problem_data import FIRST_MIXING, schedule_of
from t2t_torch.train.problem_task import DataArguments, LearningTask, ProblemTask
from t2t_torch.train.task import Evaluator

if TYPE_CHECKING:
    from typing import Unpack

    from t2t_torch.hparam import HParams
    from t2t_torch.mode import Split
    from t2t_torch.model import Output, T2TModel
    from t2t_torch.problem import Problem
    from t2t_torch.train.task import Batch, EvalSource, Metrics


class MultiTask(LearningTask):
    """Training of models with shared weights on several problems.

    Args:
      problem: the problems to train on.
      model: class of the models of problems that have none of their own.
      hparams: hyperparameters of the run and of these models.
      data: see `ProblemTask`.

    Raises:
      HParamsError: hyperparameters are not supported for several problems.
      DataError: a vocabulary is missing, or the schedule is malformed.
      UsageError: a metric does not fit its target, or a metric to select does not exist.
    """

    evaluates_in_order = False  # each process begins with another problem
    _taught = ", of the problems that it has learnt"

    def __init__(
        self,
        problem: MultiProblem,
        model: type[T2TModel],
        hparams: HParams,
        **data: Unpack[DataArguments],
    ) -> None:
        vocab_dir = data["vocab_dir"]
        names = list(problem.problem_names)
        hparams = multi_model.with_models(hparams, problem.models, names, None)
        chosen = multi_model.model_choices(names, model, hparams)
        for part in problem.components:
            check_features(chosen[part.full_name].model, part.features(vocab_dir), part.full_name)
            _check(chosen[part.full_name].hparams, part.full_name)
        super().__init__(problem, model, hparams, vocab_dir)
        self._selected = problem.selected
        self._workers = data.get("loader_workers", 1)
        self._pin_memory = data.get("pin_memory", False)
        self.tasks = {
            part.full_name: ProblemTask(part, *chosen[part.full_name], **data)
            for part in problem.components
        }
        counted = {task.counted for task in self.tasks.values()}
        self.counted = counted.pop() if len(counted) == 1 else "examples"
        self._schedule = schedule_of(problem, hparams, len(self.tasks))
        self._weights = multi_model.problem_weights(hparams.multiproblem_weights, list(self.tasks))
        self.evaluator()  # rejects missing metrics before training

    def plain_model(self) -> multi_model.MultiModel:
        """Returns a new model of each problem, combined."""
        models: dict[str, Any] = {name: task.plain_model() for name, task in self.tasks.items()}
        return multi_model.multi_model(models, self.hparams)

    def initialize(self, model: nn.Module) -> list[str]:
        """Loads the word vectors set in hparams into each model."""
        whole: Any = model
        return [
            line
            for name, task in self.tasks.items()
            for line in task.initialize(whole.problems[name])
        ]

    def objective(self, model: nn.Module) -> nn.Module:
        """Freezes parameters and sets class weights as hparams require; returns all objectives."""
        freeze(model, self.hparams)
        whole: Any = model
        for name, task in self.tasks.items():
            task.weigh_classes(whole.problems[name])
        teachers = self._teachers(model)
        objectives = {
            name: Objective(whole.problems[name], teachers.get(name)) for name in self.tasks
        }
        return multi_model.MultiObjective(objectives, self._weights)

    def train_batches(
        self, *, seed: int, start: int, rank: int, world_size: int, batches_per_step: int = 0
    ) -> MixedBatches:
        """Returns batches of all problems, one problem per batch, by the schedule."""
        components = []
        for index, (name, task) in enumerate(self.tasks.items()):
            own = component_seed(seed, index)
            (component,) = task.train_batches(seed=own, start=0, rank=0, world_size=1).components
            components.append(
                dataclasses.replace(component, collate=_Collate(name, component.collate))
            )
        accumulate = self.hparams.optimizer_multistep_accumulate_steps or 1
        return MixedBatches(
            components,
            self._schedule,
            seed=seed,
            batches_per_step=batches_per_step or accumulate * world_size,
            start=start,
            rank=rank,
            world_size=world_size,
            workers=self._workers,
            pin_memory=self._pin_memory,
        )

    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> EvalSource:
        """Returns batches of a split of each problem, in turn."""
        passes, before = [], 0
        for name, task in self.tasks.items():
            own = task.eval_batches(split, rank=(rank - before) % world_size, world_size=world_size)
            passes.append((name, own))
            before += own.total
        first = rank % len(passes)
        passes = [*passes[first:], *passes[:first]]
        return OnePass(sum(len(own) for _, own in passes), lambda: _in_turns(passes))

    def evaluator(self) -> Evaluator:
        """Returns an evaluation with the metrics of all problems."""
        parts = {name: task.evaluator().metrics for name, task in self.tasks.items()}
        return Evaluator(MultiEvaluation(parts, self.name, self._selected))


@functools.singledispatch
def task_of(
    problem: Problem, model: type[T2TModel], hparams: HParams, **data: Unpack[DataArguments]
) -> LearningTask:
    """Returns the task of one or several problems, with the arguments of `ProblemTask`.

    Raises:
      HParamsError: also if settings for several problems are set for one.
    """
    _check_one(problem, hparams)
    return ProblemTask(problem, model, hparams, **data)


task_of.register(MultiProblem, MultiTask)


@functools.singledispatch
def with_choices(problem: Problem, hparams: HParams, before: HParams | None = None) -> HParams:
    """Returns hparams with the models of several problems; see `with_models`.

    Args:
      problem: one or several problems.
      hparams: requested hyperparameters.
      before: hyperparameters of the run to resume.
    """
    return hparams


@with_choices.register(MultiProblem)
def _(problem: MultiProblem, hparams: HParams, before: HParams | None = None) -> HParams:
    return multi_model.with_models(hparams, problem.models, problem.problem_names, before)


def _check_one(problem: Problem, hparams: HParams) -> None:
    """Rejects settings that have a meaning only for several problems."""
    names = ["multiproblem_shared", "multiproblem_weights", "multiproblem_models"]
    names += ["mixing_schedule", *FIRST_MIXING] if problem.mixing_schedule is None else []
    fields = type(hparams).model_fields
    if faults := [name for name in names if getattr(hparams, name) != fields[name].default]:
        raise HParamsError(
            f"{', '.join(faults)}: of several problems, and {problem.full_name!r} is one. Leave it "
            "out, or name a MultiProblem (docs/how_to/several_problems.md)."
        )


def _check(hparams: HParams, problem: str) -> None:
    """Rejects settings that are not supported for several problems.

    Raises:
      HParamsError: names the setting and the remedy.
    """
    if hparams.stream_length:
        raise HParamsError(
            f"stream_length={hparams.stream_length} reads a text on from batch to batch, and "
            "batches of several problems come in between. Set --hparams=stream_length=0, or "
            f"/stream_length=0 behind the hparams set of {problem} in multiproblem_models."
        )
    if hparams.shard_weights:
        raise HParamsError(
            "shard_weights=True divides each layer by itself, and models of several problems have "
            "layers in common. Set --hparams=shard_weights=False."
        )


class _Collate:
    """Creates batches with feature names prefixed by the problem."""

    def __init__(self, problem: str, collate: Callable[..., Batch]) -> None:
        self._problem, self._collate = problem, collate

    def __call__(self, rows: Any, epoch: int = 0) -> Batch:
        return named(self._problem, self._collate(rows, epoch))


def named(problem: str, batch: Mapping[str, Tensor]) -> Batch:
    """Returns a batch with feature names prefixed by the problem."""
    return {member(problem, name): tensor for name, tensor in batch.items()}


def _in_turns(passes: Sequence[tuple[str, Iterable[Batch]]]) -> Iterator[Batch]:
    """Yields batches of each problem in turn: the first few are of all problems."""
    left = [map(functools.partial(named, problem), batches) for problem, batches in passes]
    while left:
        for one in list(left):
            batch = next(one, None)
            if batch is None:
                left.remove(one)
            else:
                yield batch


class MultiEvaluation:
    """The metrics of several problems, each as in its own evaluation.

    Attributes:
      sums: sums of all problems, concatenated; may be added over processes before `result`.
      rows: rows of all problems' metrics; may be joined over processes before `result`.

    Args:
      parts: evaluation of each problem.
      name: common name of the problems.
      selected: by problem, the metric "<target>/<metric>" to sum; by default its first metric.

    Raises:
      UsageError: a problem does not have the metric.
    """

    def __init__(
        self, parts: Mapping[str, Metrics], name: str, selected: Mapping[str, str]
    ) -> None:
        self._parts = dict(parts)
        self.sums = torch.cat([part.sums for part in self._parts.values()])
        sizes = [len(part.sums) for part in self._parts.values()]
        for part, own in zip(self._parts.values(), torch.split(self.sums, sizes), strict=True):
            part.sums = own  # a view: additions to it change the concatenated sums
        self.rows = {
            f"{problem}/{name}": rows
            for problem, part in self._parts.items()
            for name, rows in part.rows.items()
        }
        self._sum = f"metrics-{name}/all_problems/sum"
        self._selected = {
            problem: _selected(problem, list(part.result()), selected.get(problem, ""))
            for problem, part in self._parts.items()
        }

    def update(self, output: Output, batch: Batch) -> None:
        """Adds a batch of one problem."""
        problem = split_member(next(iter(batch)))[0]
        logits = {split_member(name)[1]: values for name, values in output.logits.items()}
        losses = {split_member(name)[1]: loss for name, loss in output.losses.items()}
        own = output._replace(logits=logits, losses=losses)
        self._parts[problem].update(own, multi_model.own_batch(batch))

    def result(self) -> dict[str, float]:
        """Returns the metrics of each problem with the names of its own evaluation.

        The loss is the sum of the problems' losses.  "metrics-<name>/all_problems/sum" is the sum
        of the selected metrics; a metric that is better when lower counts negatively.
        """
        results, loss, total = {}, 0.0, 0.0
        for problem, part in self._parts.items():
            own = part.result()
            loss += own.pop("loss")
            results.update(own)
            chosen = self._selected[problem]
            total += -own[chosen] if lower_is_better(chosen) else own[chosen]
        return {"loss": loss, **results, self._sum: total}


def _selected(problem: str, names: list[str], requested: str) -> str:
    """Returns the full name of the metric that is added to the sum."""
    known = [name for name in names if name.startswith(f"metrics-{problem}/")]
    if not requested and known:
        return known[0]
    wanted = f"metrics-{problem}/{requested}"
    if wanted not in known:
        raise UsageError(
            f"{problem!r} has no metric {requested!r} to select by. It has: "
            f"{', '.join(name.partition('/')[2] for name in known) or 'none'}."
        )
    return wanted
