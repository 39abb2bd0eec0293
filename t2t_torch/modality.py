"""Contract: how one feature enters and leaves a network, found by the feature's type."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from t2t_torch.errors import HParamsError
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


class Guess(NamedTuple):
    """What a model takes for the target of an example.

    Attributes:
      numbers: for `Feature.decode`; those of a sequence go on where the others of a batch end.
      probability: of this guess; None where there is none, as of numbers.
    """

    numbers: Sequence[Any]
    probability: float | None


class Modality(nn.Module, abc.ABC):
    """One feature's way in (`bottom`) and, for a target, out (`top`, `loss`).

    A subclass says with `serves` which features it is for, also a user's own; those of a subclass
    of that type are served too, unless there is a modality of theirs.

    Attributes:
      serves: the type of feature.
      bottom: what is in a batch -> [B, S, H]; None for a target that no model is given.
      top: hidden [..., H] -> logits; targets only.
    """

    serves: ClassVar[type[Feature]]
    bottom: nn.Module | None
    top: nn.Module

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

    def embed(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """Returns what the body is given for the feature of this name: [B, S, H]."""
        return batch[name] if self.bottom is None else self.bottom(batch[name])

    @abc.abstractmethod
    def mask(self, values: Tensor) -> Tensor:
        """Returns where there is data, of what `embed` gives: [B, S] bool."""

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the loss of logits, as it is reported in EVAL; what is only an input has none.

        Args:
          logits: of `top`.
          targets: as they are in the batch.
          weights: how much each example counts, [B]; None is 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def training_loss(self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the loss that is trained on; a modality may find it without making logits."""
        return self.loss(self.top(hidden), targets, weights)

    def predict(self, logits: Tensor) -> list[Guess]:
        """Returns the best guess of each example; of what generates, a search finds it.

        Args:
          logits: of `top`, [B, ...].
        """
        raise NotImplementedError(f"{type(self).__name__} has no predict")


_SERVING: dict[type[Feature], type[Modality]] = {}


def modality_of(name: str, feature: Feature) -> type[Modality]:
    """Returns the modality of a feature.

    Raises:
      HParamsError: there is none.
    """
    for kind in type(feature).__mro__:
        if kind in _SERVING:
            return _SERVING[kind]
    raise HParamsError(
        f"feature {name!r} is a {type(feature).__name__}: it has no modality. Write a subclass of "
        f"Modality with `serves = {type(feature).__name__}`."
    )
