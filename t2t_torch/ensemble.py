"""Ensembles: several trained models as one, with averaged probabilities.

Dietterich 2000, "Ensemble Methods in Machine Learning".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.layers.attention import Attended, Attending, Growing
from t2t_torch.modality import Hidden, Loss, Modality
from t2t_torch.model import Output, State, T2TModel


class Ensemble(nn.Module):
    """Ensemble of models with the same targets, for inference.

    It averages the probabilities of labels, tags and spans, the numbers, the chain scores of CRF
    tags, and the log-probabilities of the next id of texts.  It has the interface of `T2TModel`
    that search, predictors, evaluation and distillation use, and is never trained.

    Attributes:
      models: the members.
      features: features of the first member.
      hparams: hyperparameters of the first member.
      modalities: modalities of the averaged logits by target.

    Args:
      models: at least one model; all have the same features.  One that stands there n times has n
        times the weight; its probabilities are computed once, generated texts n times.

    Raises:
      HParamsError: there is no model, or one has different targets.
    """

    def __init__(self, models: Sequence[T2TModel]) -> None:
        super().__init__()
        if not models:
            raise HParamsError("an ensemble of no models: name at least one run.")
        self.models: Any = nn.ModuleList(models)
        self.features: Features = models[0].features
        self.hparams: Any = models[0].hparams
        for model in models[1:]:
            check_alike(models[0], model)
        self.modalities: dict[str, Modality] = {}
        for name in self.features.targets:
            members = [model.modality(name) for model in models]
            is_one = len(members) == 1
            self.modalities[name] = members[0] if is_one else members[0].averaged(members)
        # Of each model the first place where it stands.
        self._firsts = [next(i for i, a in enumerate(models) if a is one) for one in models]
        # Averaged modalities may have weights, which move with the models.
        self._averaged = nn.ModuleList(self.modalities.values())
        self.eval().requires_grad_(False)

    def bottom(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the batch unchanged: each model embeds it itself."""
        return batch

    def body(self, batch: dict[str, Tensor]) -> dict[str, Hidden]:
        """Returns the states of all models for each target, concatenated on the last axis."""
        each: list[dict[str, Hidden]] = []
        for place, model in enumerate(self.models):
            first = self._firsts[place]
            each.append(each[first] if first < place else model.body(model.bottom(batch)))
        return {name: _joined([one[name] for one in each]) for name in self.modalities}

    def top(self, hidden: Hidden, target: str) -> Tensor:
        """Returns the mean of the logits of all models.

        Args:
          hidden: output of `body`, or rows of its states.
          target: name of the target.
        """
        if isinstance(hidden, _Joined):
            parts = list(hidden.parts)
        else:
            widths = [_width(model.modality(target)) for model in self.models]
            parts = [Hidden(one, hidden.mask) for one in torch.split(hidden.states, widths, -1)]
        pairs = zip(self.models, parts, strict=True)
        logits: list[Tensor] = [model.top(part, target) for model, part in pairs]
        return logits[0] if len(logits) == 1 else self.modalities[target].mean(logits)

    def modality(self, name: str) -> Modality:
        """Returns the modality of the averaged logits of a target."""
        return self.modalities[name]

    @property
    def searches(self) -> bool:
        """True if the members generate texts id by id."""
        return all(model.searches for model in self.models)

    def overrides(self, method: str) -> bool:
        """Returns True if a member overrides `bottom`, `top` or `loss`."""
        return any(model.overrides(method) for model in self.models)

    def logits(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the averaged logits of each target; see `T2TModel.logits`."""
        return {name: self.top(hidden, name) for name, hidden in self.body(batch).items()}

    def hidden_states(self, batch: dict[str, Tensor]) -> dict[str, Hidden]:
        """Returns the output of `body`."""
        return self.body(batch)

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Returns the averaged logits, in the form for metrics, and their losses.

        If members override `loss`, the mean of their losses.
        """
        hidden = self.body(batch)
        losses, readable = {}, {}
        for name, modality in self.modalities.items():
            logits = self.top(hidden[name], name)
            losses[name] = self._loss(hidden[name], logits, name, batch)
            readable[name] = modality.readable(logits, batch[name])
        return Output(readable, losses)

    def _loss(self, hidden: Hidden, logits: Tensor, target: str, batch: dict[str, Tensor]) -> Loss:
        if self.overrides("loss") and isinstance(hidden, _Joined):
            pairs = zip(self.models, hidden.parts, strict=True)
            own = [model.loss(part, target, batch) for model, part in pairs]
            sums, weights = zip(*own, strict=True)
            return Loss(torch.stack(sums).mean(0), torch.stack(weights).mean(0))
        weights = self.models[0].example_weights(target, batch)
        return self.modality(target).loss(logits, batch[target], weights)

    def encode(self, batch: dict[str, Tensor]) -> States:
        """Returns the states of all models before the first step."""
        return States(tuple(model.encode(batch) for model in self.models))

    def step(self, ids: Tensor, state: States) -> tuple[Tensor, States]:
        """Returns the mean of the models' log-probabilities of the next id, and their states.

        With a single model, its logits.
        """
        steps = [model.step(ids, own) for model, own in zip(self.models, state.states, strict=True)]
        states = States(tuple(own for _, own in steps))
        if len(steps) == 1:
            return steps[0][0], states
        (target,) = self.features.targets.values()
        # Models may pad their logits to different widths.
        logits = [output[:, : target.vocab_size] for output, _ in steps]
        return torch.stack([each.float().log_softmax(-1) for each in logits]).mean(0), states


class States(NamedTuple):
    """Decoding state of several models; a `State`."""

    states: tuple[State, ...]

    @property
    def attended(self) -> Attended | None:
        """Mean attention weights of the members; see `Attending`."""
        of_each = [getattr(state, "attended", None) for state in self.states]
        known = [attended for attended in of_each if attended is not None]
        if not known:
            return None
        weights: Any = sum(each.weights.float() for each in known) / len(known)
        return Attended(weights, known[0].mask)

    def watched(self) -> States | None:
        """Returns states that record attention weights; None if a member has no attention."""
        states: list[Any] = [s.watched() if isinstance(s, Attending) else None for s in self.states]
        return None if None in states else States(tuple(states))

    def expand(self, hypotheses: int) -> States:
        """Returns states in which each row is repeated `hypotheses` times."""
        return States(tuple(state.expand(hypotheses) for state in self.states))

    def fixed(self, capacity: int) -> States:
        """Returns states with a fixed capacity of positions; see `Growing`."""
        each = (s.fixed(capacity) if isinstance(s, Growing) else s for s in self.states)
        return States(tuple(each))

    def reorder(self, index: Tensor) -> States:
        """Returns states whose row i is row `index[i]` of these states."""
        return States(tuple(state.reorder(index) for state in self.states))


@dataclasses.dataclass(frozen=True)
class _Joined(Hidden):
    """Concatenated hidden states of several models, and those of each model."""

    parts: tuple[Hidden, ...] = ()


def _joined(parts: Sequence[Hidden]) -> _Joined:
    states = torch.cat([one.states for one in parts], -1)
    return _Joined(states, parts[0].mask, parts=tuple(parts))


def check_alike(first: T2TModel, other: T2TModel) -> None:
    """Checks that two models have the same targets and compatible modalities.

    Raises:
      HParamsError: they differ.
    """

    def described(model: T2TModel) -> str:
        return ", ".join(
            f"{name} ({_kind(model.modality(name))}, {feature.vocab_size:,} ids)"
            for name, feature in model.features.targets.items()
        )

    if described(first) != described(other):
        raise HParamsError(
            "an ensemble is of models with the same targets, found in the same way, but one has "
            f"{described(first)} and another {described(other)}. Leave one out."
        )


def _kind(modality: Modality) -> str:
    """Returns the name of a modality for messages: "class label", "tags", "tags by a CRF"."""
    name = type(modality).__name__.removesuffix("Modality")
    crf, name = name.startswith("Crf"), name.removeprefix("Crf")
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
    return f"{words} by a CRF" if crf else words


def _width(modality: Modality) -> int:
    """Returns the width of the hidden states that the top of a modality takes."""
    weight = next(parameter for parameter in modality.top.parameters() if parameter.dim() > 1)
    return int(weight.shape[-1])
