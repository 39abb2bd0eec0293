"""Interface of modalities: input and output layers of a feature, chosen by its type."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import kl_divergence
from t2t_torch.layers.tokens import Hidden
from t2t_torch.loss import Loss, TargetLoss, TargetOutputs, average

__all__ = ["Hidden", "InputModality", "Loss", "Modality", "modality_of"]


class RowPrediction(NamedTuple):
    """The part of a `BatchPrediction` that belongs to one example."""

    numbers: Sequence[Any]
    probability: float | None = None
    scores: Sequence[Any] | None = None


class BatchPrediction(NamedTuple):
    """Predictions of a batch, as tensors.

    Attributes:
      numbers: [B, n], arguments of `Feature.decode`; sequences are padded.
      probability: [B], probability of each prediction; None if undefined, for example for numbers.
      scores: [B, C], probability of each class; for tags, [B, W], of the tag of each word; or None.
    """

    numbers: Tensor
    probability: Tensor | None = None
    scores: Tensor | None = None

    def rows(self) -> list[RowPrediction]:
        """Returns the numbers, probability and scores of each example."""
        size = len(self.numbers)
        columns = [[None] * size if column is None else column.tolist() for column in self]
        return [RowPrediction(*row) for row in zip(*columns, strict=True)]


class Modality(nn.Module, abc.ABC):
    """Input layer (`bottom`) and, for a target, output layers (`top`, `loss`) of a feature.

    `serves` declares the type of feature, which may be a user's own.  Subclasses of that type are
    served too, unless they have their own modality.

    Attributes:
      serves: type of feature.
      default_loss: registered name of the default loss of a target; if empty, the modality has its
        own loss and overrides `loss`.
      loss_reads: hparams of losses that an own `loss` reads; None is any.
      is_distribution: True if `alternatives` returns the scores of a distribution.
      learns_from_teacher: True if it implements distillation itself, without a distribution.
      bottom: embeds values of a batch, -> [B, S, H]; None for a target that is never an input.
      top: hidden [..., H] -> logits; targets only.
      target_loss: loss of a target, set by `build_modalities`; None for a modality with its own.
    """

    serves: ClassVar[type[Feature]]
    default_loss: ClassVar[str] = ""
    loss_reads: ClassVar[tuple[str, ...] | None] = None
    is_distribution: ClassVar[bool] = False
    learns_from_teacher: ClassVar[bool] = False
    bottom: nn.Module | None
    top: nn.Module
    target_loss: TargetLoss | None

    def __init__(self) -> None:
        super().__init__()
        self.target_loss = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "serves" in cls.__dict__:
            _SERVING[cls.serves] = cls

    @classmethod
    @abc.abstractmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Creates the modality of a feature.

        Args:
          feature: feature of the type `serves`.
          hparams: sizes, label smoothing.
          is_target: True for a target, False for an input.

        Raises:
          HParamsError: the feature cannot be a target, or an input.
        """

    @classmethod
    def chosen(cls, hparams: HParams) -> type[Modality]:
        """Returns the class to use with these hparams; this class by default."""
        return cls

    def embed(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """Returns the embedding of the feature of this name for the body: [B, S, H]."""
        return batch[name] if self.bottom is None else self.bottom(batch[name])

    @abc.abstractmethod
    def mask(self, values: Tensor) -> Tensor:
        """Returns the mask of the output of `embed`, True where there is data: [B, S] bool."""

    def scores(self, logits: Tensor) -> Tensor:
        """Returns logits in the form of a loss, classes on the last axis; see `TargetLoss`."""
        return logits

    def labels(self, targets: Tensor) -> Tensor:
        """Returns targets in the form of a loss; see `TargetLoss`."""
        return targets

    def alternatives(self, logits: Tensor) -> Tensor:
        """Returns the scores, [..., V], of mutually exclusive values; if `is_distribution`."""
        return self.scores(logits)

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 for each item of the targets that counts, else 0: [B], [B, T] of a sequence."""
        return torch.ones(len(targets), device=targets.device)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the loss of logits, as reported in EVAL; targets only.

        Args:
          logits: output of `top`.
          targets: targets as in the batch.
          weights: weights of examples, [B]; None is 1.
        """
        if self.target_loss is None:
            raise NotImplementedError(f"{type(self).__name__} has no loss")
        counted = self.item_weights(targets, weights)
        values = self.target_loss.values(self.scores(logits), self.labels(targets))
        values = average([values], counted.dim())
        return Loss((values * counted).sum(), counted.sum())

    def training_loss(self, outputs: TargetOutputs) -> Loss:
        """Returns the training loss; a modality may compute it without all logits."""
        targets, terms = outputs.targets, outputs.terms
        logits = [(outputs.top or self.logits)(one) for one in outputs.passes]
        if self.target_loss is None:
            return self.loss(logits[0], targets, outputs.weights)
        counted, labels = self.item_weights(targets, outputs.weights), self.labels(targets)
        each = [self.target_loss.values(self.scores(one), labels) for one in logits]
        values = average(each, counted.dim())
        if terms is not None:
            teacher = terms.teacher
            taught = None if teacher is None else teacher.logits(teacher.hidden)
            values = terms(values, logits, taught, counted.dim())
        return Loss((values * counted).sum(), counted.sum())

    def distill(
        self, scores: Sequence[Tensor], taught: Tensor, axes: int, *, weight: float, heat: float
    ) -> Tensor:
        """Returns the weighted distillation loss of each item.

        Hinton et al. 2015, arXiv:1503.02531: the divergence from the teacher, both at a
        temperature, times the squared temperature to keep the scale of the gradients.

        Args:
          scores: scores of each pass, as returned by `alternatives`.
          taught: scores of the teacher.
          axes: number of leading axes that index items.
          weight: weight of the teacher.
          heat: temperature.
        """
        soft = average([kl_divergence(taught / heat, one / heat) for one in scores], axes)
        return weight * heat**2 * soft

    def item_weights(self, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Returns the weight of each item: that of its example, in TRAIN times that of its class.

        Args:
          targets: targets as in the batch.
          weights: weights of examples, [B]; None is 1.

        Returns:
          [B], or [B, T] of a sequence, float32.
        """
        counted = self.counted(targets)
        if weights is not None:
            counted = counted * weights.view(-1, *[1] * (counted.dim() - 1))
        by_class = None if self.target_loss is None else self.target_loss.weights(targets)
        return counted if by_class is None else counted * by_class

    def sample(self, hidden: Hidden, top: Callable[[Hidden], Tensor] | None = None) -> Tensor:
        """Samples an id for each position of a text.  [B, T].

        Args:
          hidden: output of the body.
          top: computes the logits; by default that of the modality.
        """
        raise NotImplementedError(f"{type(self).__name__} is of no text: nothing is sampled")

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns the output of `top`, minus infinity at padding."""
        logits: Tensor = self.top(hidden.states)
        if hidden.mask is None:
            return logits
        mask = hidden.mask if hidden.mask.dim() == logits.dim() else hidden.mask[..., None]
        return logits.masked_fill(~mask, -torch.inf)

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the logits of the mean of the probabilities of several models.

        Without a distribution, the mean of the outputs.

        Args:
          logits: logits of each model, of the same shape.
        """
        if not self.is_distribution:
            return torch.stack([one.float() for one in logits]).mean(0)
        return log_mean_exp([one.float().log_softmax(-1) for one in logits])

    def teaching(self, logits: Tensor) -> Tensor:
        """Returns the distillation targets made from a teacher's logits; by default the logits."""
        return logits

    def averaged(self, members: Sequence[Any]) -> Modality:
        """Returns the modality for the `mean` of several models: itself, unless it has weights.

        Args:
          members: modalities of all models, this one first.
        """
        return self

    def readable(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns logits for metrics, whose maximum is the prediction of `predict`.

        Args:
          logits: output of `top`.
          targets: targets as in the batch.
        """
        return logits

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the predictions of a batch; generated targets are predicted by search instead.

        Exporters trace this method: it must consist of tensor operations for any shapes.

        Args:
          logits: output of `top`, [B, ...].
        """
        raise NotImplementedError(f"{type(self).__name__} has no predict")

    def answer_logits(
        self, feature: Any, values: Sequence[Any], scores: Sequence[Any], targets: Tensor
    ) -> Tensor:
        """Returns logits that represent given answers, to compute metrics from.

        Args:
          feature: the target.
          values: answers, as returned by `Feature.decode`.
          scores: scores by label of each answer; None if it has none.
          targets: correct answers, as in a batch.
        """
        raise NotImplementedError(f"{type(self).__name__} has no answers")


class InputModality(Modality):
    """Base class of modalities of inputs, which cannot be targets.

    Args:
      bottom: embeds values of a batch.
    """

    bottom: nn.Module

    def __init__(self, bottom: nn.Module) -> None:
        super().__init__()
        self.bottom = bottom

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Creates the modality of an input."""
        if is_target:
            raise HParamsError(f"{type(feature).__name__} can be an input, but no target.")
        return cls(cls.bottom_of(feature, hparams))

    @classmethod
    @abc.abstractmethod
    def bottom_of(cls, feature: Any, hparams: Any) -> nn.Module:
        """Returns the layer that embeds the values."""


def log_mean_exp(values: Sequence[Tensor]) -> Tensor:
    """Returns the logarithm of the mean of probabilities, given their logarithms."""
    return torch.logsumexp(torch.stack(tuple(values)), 0) - math.log(len(values))


_SERVING: dict[type[Feature], type[Modality]] = {}


def modality_of(name: str, feature: Feature, hparams: HParams | None = None) -> type[Modality]:
    """Returns the modality class of a feature, as chosen by the hparams if given.

    Raises:
      HParamsError: there is no modality for the type of feature.
    """
    for kind in type(feature).__mro__:
        if kind in _SERVING:
            kind_of_modality = _SERVING[kind]
            return kind_of_modality if hparams is None else kind_of_modality.chosen(hparams)
    raise HParamsError(
        f"feature {name!r} is a {type(feature).__name__}: it has no modality. Write a subclass of "
        f"Modality with `serves = {type(feature).__name__}`."
    )
