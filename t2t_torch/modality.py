"""Contract: how one feature enters and leaves a network, found by the feature's type."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature
from t2t_torch.hparam import HParams
from t2t_torch.layers.tokens import Hidden
from t2t_torch.loss import Loss
from t2t_torch.objectives import ExtraLossInputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from t2t_torch.objectives import TargetObjective


__all__ = ["ExtraLossInputs", "Hidden", "Loss", "Modality", "modality_of"]


GuessRow: TypeAlias = tuple[Sequence[Any], float | None, Sequence[float] | None]
"""The part of `Guesses` that is of one example."""


class Guesses(NamedTuple):
    """The predictions of a batch, as tensors.

    Attributes:
      numbers: [B, n], for `Feature.decode`; sequences are padded.
      probability: [B], of each prediction; None if there is none, as of numbers.
      scores: [B, C], the probability of each class; of tags, [B, W], that of each word's tag; or
        None.
    """

    numbers: Tensor
    probability: Tensor | None = None
    scores: Tensor | None = None

    def rows(self) -> list[GuessRow]:
        """Returns numbers, probability and scores of each example."""
        size = len(self.numbers)
        columns = [[None] * size if its is None else its.tolist() for its in self]
        return [(*row,) for row in zip(*columns, strict=True)]


class Modality(nn.Module, abc.ABC):
    """One feature's way in (`bottom`) and, for a target, out (`top`, `loss`).

    A subclass says with `serves` which features it is for, also a user's own; those of a subclass
    of that type are served too, unless there is a modality of theirs.

    Attributes:
      serves: the type of feature.
      default_loss: registered name of a target's loss, unless another one is chosen; if empty, the
        modality has one of its own: it overrides `loss`.
      loss_reads: the hparams of losses that a loss of its own reads; None is any.
      is_distribution: whether `alternatives` gives the scores of a distribution.
      learns_from_teacher: whether it imitates a teacher in a way of its own, where it is none.
      bottom: what is in a batch -> [B, S, H]; None for a target that no model is given.
      top: hidden [..., H] -> logits; targets only.
      objective: what is trained on, a target that `build_modalities` made; else None.
    """

    serves: ClassVar[type[Feature]]
    default_loss: ClassVar[str] = ""
    loss_reads: ClassVar[tuple[str, ...] | None] = None
    is_distribution: ClassVar[bool] = False
    learns_from_teacher: ClassVar[bool] = False
    bottom: nn.Module | None
    top: nn.Module
    objective: TargetObjective | None

    def __init__(self) -> None:
        super().__init__()
        self.objective = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "serves" in cls.__dict__:
            _SERVING[cls.serves] = cls

    @classmethod
    @abc.abstractmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Makes the modality of a feature.

        Args:
          feature: of the type `serves`.
          hparams: sizes, label smoothing.
          is_target: whether it is produced, else it is given.

        Raises:
          HParamsError: it cannot be what it is asked to be.
        """

    @classmethod
    def chosen(cls, hparams: HParams) -> type[Modality]:
        """Returns what stands for this class under these hparams: itself, unless they say."""
        return cls

    def embed(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """Returns what the body is given for the feature of this name: [B, S, H]."""
        return batch[name] if self.bottom is None else self.bottom(batch[name])

    @abc.abstractmethod
    def mask(self, values: Tensor) -> Tensor:
        """Returns where there is data, of what `embed` gives: [B, S] bool."""

    def scores(self, logits: Tensor) -> Tensor:
        """Returns logits as a loss takes them, classes on the last axis; see `TargetLoss`."""
        return logits

    def labels(self, targets: Tensor) -> Tensor:
        """Returns targets as a loss takes them; see `TargetLoss`."""
        return targets

    def alternatives(self, logits: Tensor) -> Tensor:
        """Returns the scores, [..., V], of what one of is right; if `is_distribution`."""
        return self.scores(logits)

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 for each item of the targets that counts, else 0: [B], [B, T] of a sequence."""
        return torch.ones(len(targets), device=targets.device)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the loss of logits, as it is reported in EVAL; what is only an input has none.

        Args:
          logits: of `top`.
          targets: as they are in the batch.
          weights: how much each example counts, [B]; None is 1.
        """
        if self.objective is None:
            raise NotImplementedError(f"{type(self).__name__} has no loss")
        counted = self.item_weights(targets, weights)
        values = self.objective.values([self.scores(logits)], self.labels(targets), counted.dim())
        return Loss((values * counted).sum(), counted.sum())

    def training_loss(
        self,
        hidden: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        extra: ExtraLossInputs | None = None,
    ) -> Loss:
        """Returns the loss that is trained on; a modality may find it without making logits.

        Args:
          hidden: [B, ..., H].
          targets: as they are in the batch.
          weights: how much each example counts, [B]; None is 1.
          extra: what else the loss depends on, if anything.
        """
        extra = extra or ExtraLossInputs()
        top = extra.top or self.logits
        logits = [top(Hidden(one, extra.mask)) for one in (hidden, *extra.passes)]
        if self.objective is None:
            return self.loss(logits[0], targets, weights)
        taught = None if extra.taught is None else extra.taught.logits(extra.taught.hidden)
        counted = self.item_weights(targets, weights)
        values = self.training_values(logits, targets, taught, counted.dim(), data=extra.data)
        return Loss((values * counted).sum(), counted.sum())

    def training_values(
        self,
        logits: Sequence[Tensor],
        targets: Tensor,
        taught: Tensor | None,
        axes: int,
        *,
        data: bool = True,
    ) -> Tensor:
        """Returns the training loss of each item.

        Args:
          logits: of each pass.
          targets: of all.
          taught: the teacher's logits.
          axes: how many axes of the targets say which item it is.
          data: whether the loss of the data is part of it, or the additions alone.
        """
        objective = self.objective
        assert objective is not None
        scores = [self.scores(one) for one in logits]
        values = objective.values(scores, self.labels(targets), axes)
        if not data:
            values = torch.zeros_like(values)
        if taught is None and objective.is_plain:
            return values
        alternatives = [self.alternatives(one) for one in logits]
        if taught is not None:
            values = objective.taught(values, alternatives, self.alternatives(taught), axes)
        return values + objective.additions(alternatives, axes)

    def item_weights(self, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Returns how much each item counts, by its example, and in TRAIN by its class.

        Args:
          targets: as they are in the batch.
          weights: of each example, [B]; None is 1.

        Returns:
          [B], or [B, T] of a sequence, float32.
        """
        counted = self.counted(targets)
        if weights is not None:
            counted = counted * weights.view(-1, *[1] * (counted.dim() - 1))
        by_class = None if self.objective is None else self.objective.loss.weights(targets)
        return counted if by_class is None else counted * by_class

    def sample(self, hidden: Hidden, top: Callable[[Hidden], Tensor] | None = None) -> Tensor:
        """Draws an id for each position of a text by its probability.  [B, T].

        Args:
          hidden: of the body.
          top: makes the logits; by default the modality's own.
        """
        raise NotImplementedError(f"{type(self).__name__} is of no text: nothing is sampled")

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns what `top` makes of it, minus infinity where there is nothing."""
        logits: Tensor = self.top(hidden.states)
        if hidden.mask is None:
            return logits
        mask = hidden.mask if hidden.mask.dim() == logits.dim() else hidden.mask[..., None]
        return logits.masked_fill(~mask, -torch.inf)

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the logits of several models as one: those of the mean of their probabilities.

        Of what is no distribution, the mean itself.

        Args:
          logits: of each model, of one shape.
        """
        if not self.is_distribution:
            return torch.stack([one.float() for one in logits]).mean(0)
        return log_mean_exp([one.float().log_softmax(-1) for one in logits])

    def teaching(self, logits: Tensor) -> Tensor:
        """Returns what a student imitates of a teacher's logits: themselves, if they say it all."""
        return logits

    def averaged(self, members: Sequence[Any]) -> Modality:
        """Returns what reads the `mean` of several models' logits: itself, unless it has weights.

        Args:
          members: the modalities of all models, its own first.
        """
        return self

    def readable(self, logits: Tensor) -> Tensor:
        """Returns logits whose highest are what `guess` takes, as metrics read them."""
        return logits

    def guess(self, logits: Tensor) -> Guesses:
        """Returns the best guess of each example; of what generates, a search finds it.

        What is exported consists of operations on tensors of this, whatever their shapes.

        Args:
          logits: of `top`, [B, ...].
        """
        raise NotImplementedError(f"{type(self).__name__} has no guess")

    def answer_logits(
        self, feature: Any, values: Sequence[Any], scores: Sequence[Any], targets: Tensor
    ) -> Tensor:
        """Returns logits that stand for answers, of which metrics are computed.

        Args:
          feature: the target.
          values: answers, as `Feature.decode` returns them.
          scores: by label, of each answer; None where it has none.
          targets: the right answers, as they are in a batch.
        """
        raise NotImplementedError(f"{type(self).__name__} has no answers")


def log_mean_exp(values: Sequence[Tensor]) -> Tensor:
    """Returns the logarithm of the mean of what log-probabilities stand for."""
    return torch.logsumexp(torch.stack(tuple(values)), 0) - math.log(len(values))


_SERVING: dict[type[Feature], type[Modality]] = {}


def modality_of(name: str, feature: Feature, hparams: HParams | None = None) -> type[Modality]:
    """Returns the modality of a feature; under hparams, the one that they choose.

    Raises:
      HParamsError: there is none.
    """
    for kind in type(feature).__mro__:
        if kind in _SERVING:
            found = _SERVING[kind]
            return found if hparams is None else found.chosen(hparams)
    raise HParamsError(
        f"feature {name!r} is a {type(feature).__name__}: it has no modality. Write a subclass of "
        f"Modality with `serves = {type(feature).__name__}`."
    )
