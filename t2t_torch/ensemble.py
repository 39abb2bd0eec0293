"""Several trained models as one, whose probabilities are the mean of theirs.

Dietterich 2000, "Ensemble Methods in Machine Learning".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.layers.attention import Attended, Attending, Growing
from t2t_torch.modality import Guesses, Hidden, Modality
from t2t_torch.model import Output, State, T2TModel

__all__ = ["Ensemble", "MeanModality"]


class Ensemble(nn.Module):
    """Models that have learnt the same targets, as one that answers.

    Of labels, tags, spans and numbers the probabilities (or numbers) are averaged, of tags by a CRF
    the scores of its chains; of texts the log-probabilities of each next id.  It has what search,
    predictors, evaluation and a student ask of a `T2TModel`, and is never trained.

    Attributes:
      models: its members.
      features: the first one's.
      hparams: the first one's.
      modalities: by target, what reads the mean.

    Args:
      models: at least one, of the same features.

    Raises:
      HParamsError: there is none, or one has other targets.
    """

    def __init__(self, models: Sequence[T2TModel]) -> None:
        super().__init__()
        if not models:
            raise HParamsError("an ensemble of no models: name at least one run.")
        self.models = nn.ModuleList(models)
        self.features: Features = models[0].features
        self.hparams: Any = models[0].hparams
        for model in models[1:]:
            check_alike(models[0], model)
        self.modalities = {
            name: MeanModality([_modality(model, name) for model in models])
            for name in self.features.targets
        }
        # What is averaged has weights of its own, which go where the models go.
        self._averaged = nn.ModuleList(each.first for each in self.modalities.values())
        self.eval().requires_grad_(False)

    def bottom(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the batch: each model embeds it by itself."""
        return batch

    def body(self, batch: dict[str, Tensor]) -> dict[str, Hidden]:
        """Returns for each target the states of all models, one after another on the last axis."""
        found = [model.body(model.bottom(batch)) for model in self._members]
        return {
            name: Hidden(torch.cat([one[name].states for one in found], -1), found[0][name].mask)
            for name in self.modalities
        }

    def logits(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the mean of each target; see `T2TModel.logits`."""
        found = [model.logits(batch) for model in self._members]
        return {
            name: modality.mean([each[name] for each in found])
            for name, modality in self.modalities.items()
        }

    def hidden_states(self, batch: dict[str, Tensor]) -> dict[str, Hidden]:
        """Returns the output of `body`."""
        return self.body(batch)

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Returns the mean's logits, as metrics read them, and its losses."""
        logits = self.logits(batch)
        first, losses = self._members[0], {}
        for name, modality in self.modalities.items():
            weights = first.example_weights(name, batch)
            losses[name] = modality.first.loss(logits[name], batch[name], weights)
        readable = {
            name: modality.first.readable(logits[name])
            for name, modality in self.modalities.items()
        }
        return Output(readable, losses)

    def encode(self, batch: dict[str, Tensor]) -> States:
        """Returns the states of all models before the first step."""
        return States(tuple(model.encode(batch) for model in self._members))

    def step(self, ids: Tensor, state: States) -> tuple[Tensor, States]:
        """Returns the mean of the models' log-probabilities of the next id, and their states.

        Of one model its logits as they are.
        """
        steps = [
            model.step(ids, own) for model, own in zip(self._members, state.states, strict=True)
        ]
        states = States(tuple(own for _, own in steps))
        if len(steps) == 1:
            return steps[0][0], states
        (target,) = self.features.targets.values()
        # Each may fill its logits up to another width.
        logits = [found[:, : target.vocab_size] for found, _ in steps]
        return torch.stack([each.float().log_softmax(-1) for each in logits]).mean(0), states

    @property
    def _members(self) -> list[Any]:
        return list(self.models)


class States(NamedTuple):
    """What a decode with several models remembers; a `State`."""

    states: tuple[State, ...]

    @property
    def attended(self) -> Attended | None:
        """What the members attended to, on average; see `Attending`."""
        of_each = [getattr(state, "attended", None) for state in self.states]
        known = [attended for attended in of_each if attended is not None]
        if not known:
            return None
        return known[0]._replace(weights=sum(each.weights.float() for each in known) / len(known))

    def watched(self) -> States | None:
        """Returns states whose steps tell what they attend to; None if one attends to nothing."""
        found = [s.watched() if isinstance(s, Attending) else None for s in self.states]
        return None if None in found else States(tuple(found))

    def expand(self, hypotheses: int) -> States:
        """Returns states in which each row stands `hypotheses` times."""
        return States(tuple(state.expand(hypotheses) for state in self.states))

    def fixed(self, capacity: int) -> States:
        """Returns states with room for so many positions; see `Growing`."""
        each = (s.fixed(capacity) if isinstance(s, Growing) else s for s in self.states)
        return States(tuple(each))

    def reorder(self, index: Tensor) -> States:
        """Returns states whose row i is these ones' row `index[i]`."""
        return States(tuple(state.reorder(index) for state in self.states))


class MeanModality:
    """What reads a target of several models: the mean of their logits.

    Attributes:
      first: what reads the mean as it reads the logits of its own model.

    Args:
      members: of the same kind and feature, one of each model.
    """

    def __init__(self, members: Sequence[Modality]) -> None:
        self._members = list(members)
        self.first = members[0] if len(members) == 1 else members[0].averaged(members)

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the logits of all as one; of one model its own."""
        return logits[0] if len(logits) == 1 else self.first.mean(logits)

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns the mean of what each makes of its states; see `Ensemble.body`."""
        parts = self._parts(hidden.states)
        pairs = zip(self._members, parts, strict=True)
        return self.mean([each.logits(Hidden(part, hidden.mask)) for each, part in pairs])

    def top(self, states: Tensor) -> Tensor:
        """Returns the mean of the logits of states without padding."""
        parts = zip(self._members, self._parts(states), strict=True)
        return self.mean([each.top(part) for each, part in parts])

    def teaching(self, logits: Tensor) -> Tensor:
        """Returns what a student imitates of the mean; see `Modality.teaching`."""
        return self.first.teaching(logits)

    def guess(self, logits: Tensor) -> Guesses:
        """Returns the best guess of each example; see `Modality.guess`."""
        return self.first.guess(logits)

    def _parts(self, states: Tensor) -> Sequence[Tensor]:
        # Members may be of different widths: a top's own weight says how wide its states are.
        widths = [int(_weight(each).shape[-1]) for each in self._members]
        return states.split(widths, -1)


def check_alike(first: T2TModel, other: T2TModel) -> None:
    """Checks that two models have the same targets, read in the same way.

    Raises:
      HParamsError: they have not.
    """

    def told(model: T2TModel) -> str:
        targets = model.features.targets.items()
        return ", ".join(
            f"{name} ({_kind(_modality(model, name))}, {feature.vocab_size:,} ids)"
            for name, feature in targets
        )

    if told(first) != told(other):
        raise HParamsError(
            "an ensemble is of models with the same targets, found in the same way, but one has "
            f"{told(first)} and another {told(other)}. Leave one out."
        )


def _kind(modality: Modality) -> str:
    """Returns what a modality is called in messages: "class label", "tags", "tags by a CRF"."""
    name = type(modality).__name__.removesuffix("Modality")
    crf, name = name.startswith("Crf"), name.removeprefix("Crf")
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
    return f"{words} by a CRF" if crf else words


def _modality(model: T2TModel, name: str) -> Modality:
    modality: Any = model.modalities[name]
    return modality  # type: ignore[no-any-return]


def _weight(modality: Modality) -> Tensor:
    return next(parameter for parameter in modality.top.parameters() if parameter.dim() > 1)
