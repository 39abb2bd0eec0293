"""Contract: what is trained on, as sums that add up over batches and processes."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from t2t_torch.features import Feature
from t2t_torch.hparam import HParams


class Loss(NamedTuple):
    """A sum and the weight it is over: add both over batches and devices, divide once.

    Attributes:
      sum: float32 scalar, in nats for a cross entropy.
      weight: float32 scalar: tokens, or examples.
    """

    sum: Tensor
    weight: Tensor


class TargetLoss(nn.Module, abc.ABC):
    """The loss of one target, value by value; who calls it adds up and leaves padding out.

    A registered loss is a subclass.  It is chosen by its name, with the hparam `loss` or by the
    problem; see `docs/losses.md`.

    Attributes:
      of: the types of targets that it is a loss of.
      reads: the hparams that it reads, so that setting others is refused; None is any.
      takes_class_weights: whether `class_weights` may be set, and `values` or `weights` uses them.
      class_weights: [C] float32, TRAIN only; None is 1 each.

    Args:
      feature: the target.
      hparams: its settings.

    Raises:
      HParamsError: it is no loss of such a target.
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
        """The label smoothing, if `values` is the plain cross entropy with it, which is found
        without making logits (`layers/cross_entropy.py`); else None.
        """
        return None

    @abc.abstractmethod
    def values(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss of each label.

        Args:
          scores: [..., V], a score of each of V classes, of both ends of a span apart, [B, 2, 1 +
            W], minus infinity where there is no word; or [B, size] numbers.
          labels: [...] integers, below 0 where there is no known class (what is returned there does
            not count, but must be finite); or [B, V] of 0 and 1, probabilities or numbers.

        Returns:
          [...] float32 or [B, V]: what is more than one for an item is averaged.
        """

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns how much each label counts by its class, [...]; None is 1.

        TRAIN only; the mean is over these weights, as in torch's cross entropy.
        """
        return None


class ClassLoss(TargetLoss):
    """A loss of one of several classes, given as an integer; each counts by its class's weight."""

    takes_class_weights = True

    def weights(self, labels: Tensor) -> Tensor | None:
        """Returns the weights of the labels' classes.  [...]."""
        if self.class_weights is None or not self.training:
            return None
        return self.class_weights[labels.clamp(min=0)]
