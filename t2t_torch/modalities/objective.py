"""What is trained on for a target: its loss, and what hyperparameters add to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import entropy, kl_divergence
from t2t_torch.loss import TargetLoss

if TYPE_CHECKING:
    from t2t_torch.modality import Modality


class Objective(nn.Module):
    """What is trained on for a target.  All but the loss itself is for TRAIN alone.

    Attributes:
      loss: of the target.
      passes: how often the body is run for it: R-Drop compares two passes.

    Args:
      loss: of the target.
      hparams: confidence_penalty, r_drop_alpha, distill_weight, distill_temperature.
    """

    def __init__(self, loss: TargetLoss, hparams: HParams) -> None:
        super().__init__()
        self.loss = loss
        self.confidence_penalty = hparams.confidence_penalty
        self.r_drop_alpha = hparams.r_drop_alpha
        self.passes = 2 if hparams.r_drop_alpha else 1
        self.distill_weight = hparams.distill_weight
        self.distill_temperature = hparams.distill_temperature

    @property
    def is_plain(self) -> bool:
        """Whether nothing is added to the loss, but for a teacher."""
        return not self.confidence_penalty and not self.r_drop_alpha

    def values(self, scores: Sequence[Tensor], labels: Tensor, axes: int) -> Tensor:
        """Returns the loss of each item, the mean over passes.

        Args:
          scores: of each pass; see `TargetLoss.values`.
          labels: of both.
          axes: how many axes say which item it is; what is beyond is averaged.
        """
        return _mean([_by_item(self.loss.values(one, labels), axes) for one in scores])

    def additions(self, alternatives: Sequence[Tensor], axes: int) -> Tensor | float:
        """Returns what hyperparameters add to each item.

        Args:
          alternatives: of each pass, [..., V] scores of which one is right.
          axes: as in `values`.
        """
        added: Tensor | float = 0.0
        if self.confidence_penalty:  # Pereyra et al. 2017, arXiv:1701.06548, equation 3
            unsure = _mean([_by_item(entropy(one), axes) for one in alternatives])
            added = added - self.confidence_penalty * unsure
        if self.r_drop_alpha:
            # Liang et al. 2021, arXiv:2106.14448, equations 2 to 4, halved as the loss is, which
            # is a mean over the two passes here and a sum there.
            first, second = alternatives
            both = kl_divergence(first, second) + kl_divergence(second, first)
            added = added + self.r_drop_alpha / 4 * _by_item(both, axes)
        return added

    def taught(
        self, values: Tensor, alternatives: Sequence[Tensor], teacher: Tensor, axes: int
    ) -> Tensor:
        """Returns the loss of each item with the teacher's share in it.

        Hinton et al. 2015, arXiv:1503.02531: the divergence from the teacher, both at a
        temperature, times its square, which keeps the gradients' size.

        Args:
          values: the data's loss.
          alternatives: as in `additions`.
          teacher: the teacher's.
          axes: as in `values`.
        """
        heat = self.distill_temperature
        soft = _mean(
            [_by_item(kl_divergence(teacher / heat, one / heat), axes) for one in alternatives]
        )
        return (1.0 - self.distill_weight) * values + self.distill_weight * heat**2 * soft


def _mean(values: Sequence[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(list(values)).mean(0)


def _by_item(values: Tensor, axes: int) -> Tensor:
    """Averages what is more than one for an item: the ends of a span, classes, numbers."""
    return values if values.dim() <= axes else values.flatten(axes).mean(-1)


def objective_of(
    target: str, features: Features, hparams: HParams, modality: type[Modality]
) -> Objective | None:
    """Makes what is trained on for a target; None if its modality has a loss of its own.

    The hparam `loss` decides; if it is silent, the problem; if that is too, the modality.

    Raises:
      HParamsError: the loss does not fit the target, or something that is to be added to it.
    """
    feature = features.targets[target]
    asked = by_target("loss", hparams.loss, features)
    names = asked.get(target, asked.get("", [features.losses.get(target, modality.default_loss)]))
    if len(names) != 1:
        raise HParamsError(f"loss={hparams.loss}: one loss for a target, not {len(names)}.")
    name = names[0]
    if not modality.default_loss:
        if name:
            raise HParamsError(
                f"target {target!r} has a loss of its own, that of {modality.__name__}; {name!r} "
                "cannot be set for it. Name the other targets alone: loss=[target:name,...]."
            )
        _check_additions(target, feature, hparams, modality)
        return None
    kind = registry.loss(name)
    if not isinstance(feature, kind.of):
        fit = [n for n in registry.list_names("loss") if isinstance(feature, registry.loss(n).of)]
        raise HParamsError(
            f"the loss {name!r} does not fit target {target!r}, which is a "
            f"{type(feature).__name__}. Those that do: {', '.join(fit)}. "
            f"Set one with --hparams=loss=[{target}:NAME]."
        )
    loss: TargetLoss = kind(feature, hparams)
    _check_additions(target, feature, hparams, modality)
    return Objective(loss, hparams)


def by_target(field: str, text: str, features: Features) -> Mapping[str, list[str]]:
    """Reads "[a,b]", or "[intent:a,slots:b,c]": for each target what stands after its name.

    Args:
      field: the hparam, for messages.
      text: its value; the brackets, which --hparams needs round a comma, may be left out.
      features: whose targets may be named.

    Returns:
      Values by target; by "" those before any name, which are of all other targets.

    Raises:
      HParamsError: there is no such target, or it is named twice.
    """
    found: dict[str, list[str]] = {}
    target = ""
    for part in text.strip().removeprefix("[").removesuffix("]").split(","):
        name, colon, value = (piece.strip() for piece in part.rpartition(":"))
        if colon:
            if name not in features.targets or name in found:
                fault = "is named twice" if name in found else "is no target"
                raise HParamsError(
                    f"{field}={text}: {name!r} {fault}. Targets: {', '.join(features.targets)}."
                )
            target = name
        if value:
            found.setdefault(target, []).append(value)
    return found


def target_weights(text: str, features: Features) -> dict[str, float]:
    """Returns what the losses of targets are multiplied by, of those that `target_weights` names.

    Args:
      text: "[intent:0.2,slots:0.5]"; a number before any name is of all other targets.
      features: whose targets they are.

    Raises:
      HParamsError: as `by_target`; or a weight is no number from 0 on, or all are 0.
    """
    if not text:
        return {}
    asked = by_target("target_weights", text, features)
    found = {}
    for target in features.targets:
        words = asked.get(target, asked.get("", ["1"]))
        try:
            found[target] = float(*words)
        except (TypeError, ValueError):
            found[target] = -1.0
    if not all(0 <= weight < math.inf for weight in found.values()) or not any(found.values()):
        raise HParamsError(
            f"target_weights={text}: expected one number from 0 on for each target, not all 0, as "
            f"in [{','.join(f'{name}:1' for name in features.targets)}]."
        )
    return found


def _check_additions(
    target: str, feature: Feature, hparams: HParams, modality: type[Modality]
) -> None:
    """Refuses what needs a distribution where the target has none, and R-Drop without dropout."""
    asked = {
        "confidence_penalty": hparams.confidence_penalty,
        "r_drop_alpha": hparams.r_drop_alpha,
        "distill_from": hparams.distill_from,
    }
    if modality.learns_from_teacher:
        del asked["distill_from"]
    asked = {name: value for name, value in asked.items() if value}
    if asked and not modality.is_distribution:
        raise HParamsError(
            f"{', '.join(asked)}: of probabilities, but target {target!r} is a "
            f"{type(feature).__name__}, for which {modality.__name__} finds none. Leave it out."
        )
    rates = [name for name in type(hparams).model_fields if name.endswith("dropout")]
    if hparams.r_drop_alpha and not any(getattr(hparams, name) for name in rates):
        raise HParamsError(
            f"r_drop_alpha={hparams.r_drop_alpha} compares two passes with different dropout, but "
            f"there is none: {', '.join(rates)} are 0. Set one, or r_drop_alpha=0."
        )
