"""The models of several problems as one network: each batch is processed by its problem's model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features.text import meanings
from t2t_torch.model import Output
from t2t_torch.problem_types.multi import member, split_member

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel
    from t2t_torch.objectives import Objective


# Weight sharing between the models of several problems.


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
      patterns: regular expressions for the names of shared weights.  Empty: all weights are shared
        except those with a target's name in their name.

    Raises:
      HParamsError: a pattern is not a regular expression, or matches no weight that can be shared.
    """
    wanted = _wanted(models, patterns)
    pool: dict[str, _Named] = {}
    owners: dict[int, list[str]] = {}
    faults: dict[tuple[str, str], str] = {}
    for problem, model in models.items():
        for tensor, names in _tied(model):
            match, why = None, ""
            for name in names:
                if wanted(name):
                    match, fault = _of_others(pool, models, problem, name, tensor)
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
                if wanted(name):
                    pool.setdefault(name, _Named(problem, name, tensor))
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
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for name, numbers, who in rows:
        yield f"  {name:<{widths[0]}}  {numbers:>{widths[1]}}  {who}"


def _wanted(models: Mapping[str, T2TModel], patterns: Sequence[str]) -> Any:
    if patterns:
        try:
            expressions = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise HParamsError(
                f"multiproblem_shared=[{','.join(patterns)}] is no list of regular "
                f"expressions: {error}."
            ) from error
        return lambda name: any(one.search(name) for one in expressions)
    targets = {target for model in models.values() for target in model.features.targets}
    return lambda name: targets.isdisjoint(name.split("."))


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
    name: str,
    tensor: Tensor,
) -> tuple[_Named | None, str]:
    """Returns the weight of another model that can replace a weight; or why there is none."""
    features = models[problem].features
    candidates = [pool[name]] if name in pool else []
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
      models: models by the problem's full name, of one class and with the same hyperparameters.
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
