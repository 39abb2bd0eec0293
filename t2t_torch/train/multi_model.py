"""The models of several problems as one network: each batch is processed by its problem's model."""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features.text import meanings
from t2t_torch.hparam import (
    MultiProblemHParams,
    OptimizationHParams,
    PrecisionHParams,
    ReportHParams,
)
from t2t_torch.model import Output
from t2t_torch.problem_types.multi import MultiProblem, member, split_member
from t2t_torch.reports.section import aligned

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.objectives.objective import Objective
    from t2t_torch.problem import Problem

_LOG = logging.getLogger(__name__)


class ModelChoice(NamedTuple):
    """The model class and the hyperparameters of a problem."""

    model: type[T2TModel]
    hparams: HParams


def with_models(
    hparams: HParams, models: Mapping[str, str], problems: Sequence[str], before: HParams | None
) -> HParams:
    """Returns hparams with the model and hyperparameters of each problem that has its own.

    They are stored with the run, so a later change of a registered set does not affect it.

    Args:
      hparams: requested hyperparameters.
      models: choices of the problem, `MultiProblem.models`; `multiproblem_models` overrides them.
      problems: names of the problems.
      before: hyperparameters of the run to resume.

    Raises:
      HParamsError: `multiproblem_models` is malformed, or a value does not fit the set.
      RegistryError: a model or a set is not registered.
    """
    if hparams.multiproblem_architecture:
        return hparams
    chosen = {**models, **_own_models(hparams.multiproblem_models, problems)}
    if not chosen:
        return hparams
    if before is not None and before.multiproblem_models == hparams.multiproblem_models:
        known = before.multiproblem_architecture
    else:
        known = json.dumps({name: _described(name, text) for name, text in chosen.items()})
    return hparams.replace(multiproblem_architecture=known).signed("the models of the problems")


def _own_models(text: str, problems: Sequence[str]) -> dict[str, str]:
    """Reads `multiproblem_models`: "[problem:model/hparams_set/name=value,...]"."""
    pieces = text.strip().removeprefix("[").removesuffix("]").split(",")
    chosen = {}
    for piece in filter(None, map(str.strip, pieces)):
        name, colon, choice = piece.partition(":")
        if not colon or name not in problems:
            raise HParamsError(
                f"multiproblem_models={text}: {piece!r} should be one of {', '.join(problems)}, a "
                "colon, a model, a slash and an hparams set."
            )
        chosen[name] = choice
    return chosen


def _described(problem: str, choice: str) -> dict[str, Any]:
    model, *rest = choice.split("/")
    if not rest:
        raise HParamsError(
            f"the model of {problem}, {choice!r}, has no hparams set. Write model/hparams_set, and "
            "after it any number of /name=value."
        )
    own: HParams = registry.hparams(rest[0], model)
    for change in rest[1:]:
        own = own.parse(change)
    if own.unread:
        _LOG.warning("model %r of %s does not read %s", model, problem, own.unread)
    return {"model": model, "hparams_set": rest[0], "hparams": json.loads(own.to_json())}


def model_choices(
    problems: Sequence[str], model: type[T2TModel], hparams: HParams
) -> dict[str, ModelChoice]:
    """Returns the model and the hyperparameters of each problem of a run.

    A problem with its own model has its own hyperparameters of data, model, loss and
    regularization; those of optimization, precision, reports and several problems are the run's.

    Args:
      problems: names of the problems.
      model: model class of the others.
      hparams: hyperparameters of the run, as `with_models` returns them.
    """
    described = json.loads(hparams.multiproblem_architecture or "{}")
    return {
        name: _choice(described[name], hparams)
        if name in described
        else ModelChoice(model, hparams)
        for name in problems
    }


_OF_THE_RUN = (OptimizationHParams, PrecisionHParams, ReportHParams, MultiProblemHParams)
_DISTILLATION = ("distill_from", "distill_weight", "distill_temperature")


def _choice(described: Mapping[str, Any], hparams: HParams) -> ModelChoice:
    kind = registry.model(described["model"])
    text = json.dumps(described["hparams"])
    sets = [described["hparams_set"]]
    own: HParams = registry.hparams_class(kind.HParams, text, sets).from_json(text)
    names = [name for group in _OF_THE_RUN for name in group.model_fields]
    shared = {name: getattr(hparams, name) for name in (*names, *_DISTILLATION)}
    return ModelChoice(kind, own.replace(**shared).signed(sets[0]))


class Part(NamedTuple):
    """A top-level part of a model, and the problems that share it.

    Attributes:
      name: name of the part, such as "encoder" or "modalities.inputs".
      problems: problems that share its weights; a single one if it is not shared.
      numbers: number of weights.
      why: reason why it is not shared although its name matches.
    """

    name: str
    problems: tuple[str, ...]
    numbers: int
    why: str = ""


class _Named(NamedTuple):
    problem: str
    name: str
    tensor: Tensor


def share(models: Mapping[str, T2TModel], patterns: Sequence[str]) -> list[Part]:
    """Shares weights with the first model that has them; returns the resulting parts.

    A weight is shared if its name matches and an earlier model has a weight of that name and shape,
    or, for the embedding of a text, one of another text with the same vocabulary.  Weights tied
    within a model stay tied.

    Args:
      models: models by problem.
      patterns: regular expressions for the names of shared weights; with "=>name" matches are
        replaced by that name, under which the weights are shared.  Empty: all weights are shared
        except those with a target's name in their name.

    Raises:
      HParamsError: a pattern is not a regular expression, or matches no weight that can be shared.
    """
    shared_name = _shared_names(models, patterns)
    pool: dict[str, _Named] = {}
    owners: dict[int, list[str]] = {}
    faults: dict[tuple[str, str], str] = {}
    for problem, model in models.items():
        for tensor, names in _tied(model):
            match, why = None, ""
            for name in names:
                if (shared := shared_name(name)) is not None:
                    match, fault = _of_others(pool, models, problem, (name, shared), tensor)
                    why = why or fault
                    if match is not None:
                        break
            if match is not None:
                for name in names:
                    _put(model, name, match.tensor)
                owners[id(match.tensor)].append(problem)
                continue
            owners[id(tensor)] = [problem]
            for name in names:
                if (shared := shared_name(name)) is not None:
                    pool.setdefault(shared, _Named(problem, name, tensor))
                if why:
                    faults[problem, name] = why
    if patterns and all(len(have) == 1 for have in owners.values()):
        known = sorted(
            {
                name
                for model in models.values()
                for name, part in model.named_children()
                if part.state_dict()
            }
        )
        raise HParamsError(
            f"multiproblem_shared=[{','.join(patterns)}]: the models of "
            f"{', '.join(models)} have no weight of such a name in common. Names begin with "
            f"{', '.join(known)}."
        )
    return _parts(models, owners, faults)


def table(parts: Sequence[Part]) -> Iterator[str]:
    """Yields the lines of a table of parts: name, size and problems."""
    rows = [
        (
            part.name,
            f"{part.numbers:,}",
            ("shared: " if len(part.problems) > 1 else "") + ", ".join(part.problems) + part.why,
        )
        for part in parts
    ]
    yield from (f"  {line}" for line in aligned(rows, (0, 2)))


def _shared_names(
    models: Mapping[str, T2TModel], patterns: Sequence[str]
) -> Callable[[str], str | None]:
    """Returns the function from a weight's name to that under which it is shared, or None."""
    if patterns:
        pairs = [pattern.partition("=>") for pattern in patterns]
        try:
            expressions = [
                (re.compile(pattern), replacement if arrow else None)
                for pattern, arrow, replacement in pairs
            ]
            for expression, replacement in expressions:
                expression.sub(replacement or "", "")  # an invalid group is found here
        except (re.error, IndexError) as error:
            raise HParamsError(
                f"multiproblem_shared=[{','.join(patterns)}] is no list of regular "
                f"expressions: {error}."
            ) from error

        def rename(name: str) -> str | None:
            for expression, replacement in expressions:
                if expression.search(name):
                    return name if replacement is None else expression.sub(replacement, name)
            return None

        return rename
    targets = {target for model in models.values() for target in model.features.targets}
    return lambda name: name if targets.isdisjoint(name.split(".")) else None


def _tied(model: nn.Module) -> Iterator[tuple[Tensor, list[str]]]:
    """Yields each weight and persistent buffer of a model, with all its names."""
    saved = model.state_dict().keys()
    tensors = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    names: dict[int, list[str]] = {}
    by_id: dict[int, Tensor] = {}
    for name, tensor in {**tensors, **buffers}.items():
        if name in saved:
            names.setdefault(id(tensor), []).append(name)
            by_id[id(tensor)] = tensor
    for identity, own in names.items():
        yield by_id[identity], own


def _of_others(
    pool: Mapping[str, _Named],
    models: Mapping[str, T2TModel],
    problem: str,
    names: tuple[str, str],
    tensor: Tensor,
) -> tuple[_Named | None, str]:
    """Returns the weight of another model that can replace a weight; or why there is none.

    Args:
      pool: shared weights by the name under which they are shared.
      models: models by problem.
      problem: problem of the weight.
      names: its name, and the name under which it is shared.
      tensor: the weight.
    """
    name, shared = names
    features = models[problem].features
    candidates = [pool[shared]] if shared in pool else []
    feature = _feature_of(features, name)
    if feature and not candidates:
        candidates = [
            other
            for other in pool.values()
            if (other_feature := _feature_of(models[other.problem].features, other.name))
            and other.name.replace(f".{other_feature}.", ".", 1)
            == name.replace(f".{feature}.", ".", 1)
        ]
    why = ""
    for other in candidates:
        if other.tensor.shape != tensor.shape:
            why = why or f" (of {other.problem} it is {list(other.tensor.shape)})"
            continue
        other_feature = _feature_of(models[other.problem].features, other.name)
        if feature and other_feature:
            theirs = models[other.problem].features
            if meanings(theirs, other_feature) != meanings(features, feature):
                why = why or f" (of {other.problem} the ids mean other things)"
                continue
        return other, ""
    return None, why


def _feature_of(features: Features, name: str) -> str:
    """Returns the input or target in a weight's name; "" if there is none."""
    for part in name.split("."):
        if part in features.inputs or part in features.targets:
            return part
    return ""


def _put(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Sets a weight or buffer of a model by name."""
    path, _, leaf = name.rpartition(".")
    module = model.get_submodule(path)
    if isinstance(tensor, nn.Parameter):
        setattr(module, leaf, tensor)
    else:
        module._buffers[leaf] = tensor


def _parts(
    models: Mapping[str, T2TModel],
    owners: Mapping[int, list[str]],
    faults: Mapping[tuple[str, str], str],
) -> list[Part]:
    """Returns the parts of the models; those shared by all come first."""
    sizes: dict[tuple[str, tuple[str, ...], str], int] = {}
    seen: set[int] = set()
    for problem, model in models.items():
        for tensor, names in _tied(model):
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            who = tuple(dict.fromkeys(owners[id(tensor)]))
            depth = 2 if names[0].startswith("modalities.") else 1
            part = ".".join(names[0].split(".")[:depth])
            why = next((faults[problem, name] for name in names if (problem, name) in faults), "")
            key = part, who, why
            sizes[key] = sizes.get(key, 0) + tensor.numel()
    parts = [Part(name, who, numbers, why) for (name, who, why), numbers in sizes.items()]
    return sorted(parts, key=lambda part: -len(part.problems))


class MultiModel(nn.Module):
    """Models of several problems with shared parts.

    Attributes:
      problems: model of each problem.
      parts: parts of the models with the problems that share them.

    Args:
      models: models by the problem's full name.
      shared: patterns of shared weights; see `share`.
    """

    def __init__(self, models: Mapping[str, T2TModel], *, shared: Sequence[str] = ()) -> None:
        super().__init__()
        self.parts = share(models, shared)
        self.problems = nn.ModuleDict(models)

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Runs the model of one problem.

        Args:
          batch: batch of one problem, with features named "<problem>/<feature>".

        Returns:
          Logits and losses of the model, named in the same way.
        """
        problem = split_member(next(iter(batch)))[0]
        return _of_problem(problem, self.problems[problem](own_batch(batch)))

    @property
    def banner(self) -> list[str]:
        """The lines of the run banner about shared parts of the models."""
        return ["parts, and the problems that have them:", *table(self.parts)]

    def after_step(self) -> None:
        """Restores the constraints on each model's weights."""
        for model in self.problems.values():
            own: Any = model
            own.after_step()


class MultiObjective(nn.Module):
    """The training losses of several problems; each batch belongs to one problem.

    The losses of a problem are multiplied by its weight.

    Attributes:
      problems: objective of each problem.

    Args:
      objectives: objectives by the problem's full name.
      weights: weights of the problems.
    """

    has_unused = True
    """A batch of one problem leaves the weights of others without a gradient."""

    def __init__(self, objectives: Mapping[str, Objective], weights: Mapping[str, float]) -> None:
        super().__init__()
        self.problems = nn.ModuleDict(objectives)
        self._weights = dict(weights)

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Returns the losses of one problem's batch, named like its features."""
        problem = split_member(next(iter(batch)))[0]
        output: Output = self.problems[problem](own_batch(batch))
        weight = self._weights.get(problem, 1.0)
        if self.training and weight != 1.0:
            scaled = {n: loss._replace(sum=loss.sum * weight) for n, loss in output.losses.items()}
            output = output._replace(losses=scaled)
        return _of_problem(problem, output)

    def at_step(self, step: int) -> None:
        """Sets the number of completed steps."""
        for objective in self.problems.values():
            own: Any = objective
            own.at_step(step)


def _of_problem(problem: str, output: Output) -> Output:
    """Returns an output with target names prefixed by the problem."""
    return Output(
        {member(problem, name): logits for name, logits in output.logits.items()},
        {member(problem, name): loss for name, loss in output.losses.items()},
    )


@functools.singledispatch
def parts_of(problem: Problem) -> Sequence[Problem]:
    """Returns the problems that have a model each: the problem itself, or those that it names."""
    return [problem]


@parts_of.register(MultiProblem)
def _(problem: MultiProblem) -> Sequence[Problem]:
    return problem.components


@functools.singledispatch
def whole_model(
    problem: Problem, models: Mapping[str, T2TModel], hparams: HParams
) -> T2TModel | MultiModel:
    """Returns the models of a problem's parts as the one that a checkpoint stores.

    Args:
      problem: one or several problems.
      models: the model of each of `parts_of(problem)`, by full name.
      hparams: hyperparameters of the run.
    """
    (model,) = models.values()
    return model


@whole_model.register(MultiProblem)
def _(problem: MultiProblem, models: Mapping[str, T2TModel], hparams: HParams) -> MultiModel:
    return multi_model(models, hparams)


def multi_model(models: Mapping[str, T2TModel], hparams: HParams) -> MultiModel:
    """Returns models of several problems as one, sharing parts as set in hparams.

    If some of them count positions and some examples, all count examples in TRAIN.
    """
    targets = [list(model.features.targets.values()) for model in models.values()]
    by_position = {len(own) == 1 and own[0].is_sequence for own in targets}
    if len(by_position) > 1:
        for model in models.values():
            model.counts_examples = True
    return MultiModel(models, shared=hparams.multiproblem_shared)


def own_batch(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns a batch of one problem with the feature names of its own model."""
    return {split_member(name)[1]: tensor for name, tensor in batch.items()}


def problem_weights(text: str, problems: Sequence[str]) -> dict[str, float]:
    """Reads `multiproblem_weights`: "[name:0.5,other:2]".

    Raises:
      HParamsError: a name is not a problem's, a weight is not a number >= 0, or all weights are 0.
    """
    weights = dict.fromkeys(problems, 1.0)
    pieces = text.strip().removeprefix("[").removesuffix("]")
    for piece in filter(None, (one.strip() for one in pieces.split(","))):
        name, _, written = piece.rpartition(":")
        try:
            weight = float(written)
        except ValueError:
            weight = -1.0
        if name not in weights or not 0 <= weight < float("inf"):
            raise HParamsError(
                f"multiproblem_weights={text}: {piece!r} should be one of {', '.join(problems)}, a "
                "colon and a number from 0 on."
            )
        weights[name] = weight
    if not any(weights.values()):
        raise HParamsError(f"multiproblem_weights={text} leaves nothing to train. Weigh one by 1.")
    return weights
