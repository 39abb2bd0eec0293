"""Interface of losses, as sums that add up over batches and processes."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from t2t_torch.features import Feature
from t2t_torch.hparam import HParams


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
    weights = torch.stack([loss.weight.float() for loss in losses])
    return Loss(sums.sum(), weights.mean())


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
