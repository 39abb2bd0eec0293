"""Interface of losses, as sums that add up over batches and processes."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from t2t_torch.features import Feature
from t2t_torch.hparam import HParams
from t2t_torch.layers.tokens import Hidden


class Loss(NamedTuple):
    """A sum of losses and its total weight: add both over batches and devices, then divide.

    Attributes:
      sum: sum of losses, float32 scalar, in nats for a cross entropy.
      weight: number of tokens or examples, float32 scalar.
    """

    sum: Tensor
    weight: Tensor


class _HasLosses(Protocol):
    @property
    def losses(self) -> Mapping[str, Loss]:
        """Losses by target."""


def total_loss(output: _HasLosses) -> Loss:
    """Returns the loss of a batch; for several targets the sum, weighted by examples.

    (`T2TModel.forward` assigns this weight for several targets.)  The weights differ if an example
    lacks a target; their mean still adds up over batches.
    """
    losses = output.losses.values()
    sums = torch.stack([loss.sum for loss in losses])
    return Loss(sums.sum(), torch.stack([loss.weight.float() for loss in losses]).mean())


class TargetLoss(nn.Module, abc.ABC):
    """Elementwise loss of a target; the caller adds up and excludes padding.

    A registered loss is a subclass.  It is chosen by name, with the hparam `loss` or by the
    problem; see `docs/reference/losses.md`.

    Attributes:
      of: supported types of targets.
      reads: hparams that it reads; setting others is an error; None is any.
      takes_class_weights: True if `class_weights` may be set; `values` or `weights` uses them.
      class_weights: [C] float32, TRAIN only; None is 1 each.

    Args:
      feature: the target.
      hparams: settings.

    Raises:
      HParamsError: the type of target is not supported.
    """

    of: ClassVar[tuple[type[Feature], ...]]
    takes_class_weights: ClassVar[bool] = False
    reads: tuple[str, ...] | None = None
    class_weights: Tensor | None

    def __init__(self, feature: Any, hparams: HParams) -> None:
        super().__init__()
        self.register_buffer("class_weights", None, persistent=False)

    @property
    def label_smoothing_alone(self) -> float | None:
        """The label smoothing, if `values` is plain cross entropy with it, else None.

        Plain cross entropy is computed without storing logits (`layers/cross_entropy.py`).
        """
        return None

    @abc.abstractmethod
    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss of each label.

        Args:
          scores: scores of V classes, [..., V]; of the two ends of a span, [B, 2, 1 + W], minus
            infinity where there is no word; or numbers, [B, size].
          labels: [...] integers, below 0 where there is no known class (the result there is
            ignored, but must be finite); or [B, V] of 0 and 1, probabilities or numbers.

        Returns:
          [...] float32 or [B, V]: several values of an item are averaged.
        """

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns the weight of each label by its class, [...]; None is 1.

        TRAIN only; the mean is weighted, as in torch's cross entropy.
        """
        return None


class ClassLoss(TargetLoss):
    """Base class of losses of integer class labels, which support class weights."""

    takes_class_weights = True

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns the class weight of each label.  [...]."""
        if self.class_weights is None or not self.training:
            return None
        return self.class_weights[labels.clamp(min=0)]


def average(passes: Sequence[Tensor], axes: int) -> Tensor:
    """Returns the mean over passes, and over the further axes of an item.

    Further axes are, for example, the ends of a span, classes, numbers.

    Args:
      passes: values of each pass, [items..., ...].
      axes: number of leading axes that index items.
    """
    items = [one if one.dim() <= axes else one.flatten(axes).mean(-1) for one in passes]
    return items[0] if len(items) == 1 else torch.stack(items).mean(0)


class TeacherOutput(NamedTuple):
    """Output of a teacher for a target.

    Attributes:
      hidden: output of the teacher's body.
      logits: computes distillation targets from such hidden states, [..., H] -> [..., V].
    """

    hidden: Hidden
    logits: Callable[[Hidden], Tensor]


@dataclasses.dataclass(frozen=True)
class ItemTerms:
    """Terms that an objective adds to the loss of each item of a target in TRAIN.

    A modality calls them where it has the logits, which may be those of a few items at a time.

    Attributes:
      scores: returns the scores of mutually exclusive values, given logits; [..., V].
      terms: functions of the scores of each pass and the number of leading axes that index items;
        they return the term of each item.
      teacher: output of a teacher; None if there is none.
      distill: the weighted loss of each item, given the scores of each pass, the teacher's scores
        and the number of axes.
      share: weight of the loss of the data beside a teacher.
      has_data: False to leave out the loss of the data.
    """

    scores: Callable[[Tensor], Tensor]
    terms: list[Callable[[Sequence[Tensor], int], Tensor]]
    teacher: TeacherOutput | None = None
    distill: Callable[[Sequence[Tensor], Tensor, int], Tensor] | None = None
    share: float = 1.0
    has_data: bool = True

    def __call__(
        self, values: Tensor, logits: Sequence[Tensor], taught: Tensor | None, axes: int
    ) -> Tensor:
        """Returns the loss of each item with all terms.

        Args:
          values: loss of the data.
          logits: logits of each pass.
          taught: logits of the teacher.
          axes: number of leading axes that index items.
        """
        scores = [self.scores(one) for one in logits]
        if not self.has_data:
            values = torch.zeros_like(values)
        if taught is not None and self.distill is not None:
            values = self.share * values + self.distill(scores, self.scores(taught), axes)
        return values + sum(term(scores, axes) for term in self.terms)

    def without_teacher(self) -> ItemTerms | None:
        """Returns the terms of positions that the teacher does not have; None if none are left."""
        if self.has_data and not self.terms:
            return None
        return dataclasses.replace(self, teacher=None)


class TargetOutputs(NamedTuple):
    """Inputs of the training loss of a target.

    Attributes:
      passes: output of the body in each pass; passes differ by their dropout.
      targets: targets as in the batch.
      weights: weights of examples, [B]; None is 1.
      top: computes the logits, for a model that overrides `top`; None is that of the modality.
      terms: terms to add to the loss of each item; None if there are none.
    """

    passes: Sequence[Hidden]
    targets: Tensor
    weights: Tensor | None = None
    top: Callable[[Hidden], Tensor] | None = None
    terms: ItemTerms | None = None
