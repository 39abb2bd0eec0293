"""Training objectives: the losses of a model's targets, and what hyperparameters add to them.

An `Objective` wraps a model and returns its training losses.  Hyperparameters choose its parts, in
any combination: scheduled sampling (`scheduled_sampling_prob`), R-Drop (`r_drop_alpha`), a
confidence penalty, weights of targets and classes, distillation (`distill_from`) and mixed
pictures (`mixup_alpha`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features
from t2t_torch.hparam import HParams, ScheduledSamplingHParams
from t2t_torch.layers.cross_entropy import entropy, kl_divergence
from t2t_torch.layers.tokens import Hidden
from t2t_torch.loss import Loss, TargetLoss
from t2t_torch.text.encoder import PAD

if TYPE_CHECKING:
    from t2t_torch.ensemble import Ensemble
    from t2t_torch.modality import Modality
    from t2t_torch.model import Output, T2TModel


# The terms of the loss of a target.


class TargetObjective(nn.Module):
    """Loss of a target and additional terms, which apply only in TRAIN.

    Attributes:
      loss: loss of the target.
      passes: number of passes of the body; 2 for R-Drop.

    Args:
      loss: loss of the target.
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
        """True if no term is added to the loss, except for distillation."""
        return not self.confidence_penalty and not self.r_drop_alpha

    def values(self, scores: Sequence[Tensor], labels: Tensor, axes: int) -> Tensor:
        """Returns the loss of each item, averaged over passes.

        Args:
          scores: scores of each pass; see `TargetLoss.values`.
          labels: labels, the same for all passes.
          axes: number of leading axes that index items; the others are averaged.
        """
        return _mean([_by_item(self.loss.values(one, labels), axes) for one in scores])

    def additions(self, alternatives: Sequence[Tensor], axes: int) -> Tensor | float:
        """Returns the additional terms of each item.

        Args:
          alternatives: scores of mutually exclusive values in each pass, [..., V].
          axes: as in `values`.
        """
        added: Tensor | float = 0.0
        if self.confidence_penalty:  # Pereyra et al. 2017, arXiv:1701.06548, equation 3
            unsure = _mean([_by_item(entropy(one), axes) for one in alternatives])
            added = added - self.confidence_penalty * unsure
        if self.r_drop_alpha and len(alternatives) > 1:
            # Liang et al. 2021, arXiv:2106.14448, equations 2 to 4, halved like the loss, which is
            # a mean over the two passes here and a sum in the paper.
            first, second = alternatives
            both = kl_divergence(first, second) + kl_divergence(second, first)
            added = added + self.r_drop_alpha / 4 * _by_item(both, axes)
        return added

    def taught(
        self, values: Tensor, alternatives: Sequence[Tensor], teacher: Tensor, axes: int
    ) -> Tensor:
        """Returns the loss of each item, combined with the distillation loss.

        Hinton et al. 2015, arXiv:1503.02531: the divergence from the teacher, both at a
        temperature, times the squared temperature to keep the scale of the gradients.

        Args:
          values: loss of the data.
          alternatives: as in `additions`.
          teacher: scores of the teacher.
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
    """Averages over the further axes of an item: the ends of a span, classes, numbers."""
    return values if values.dim() <= axes else values.flatten(axes).mean(-1)


def objective_of(
    target: str, features: Features, hparams: HParams, modality: type[Modality]
) -> TargetObjective | None:
    """Returns the objective of a target; None if its modality has its own loss.

    The loss is chosen by the hparam `loss`, else by the problem, else by the modality.

    Raises:
      HParamsError: the loss does not fit the target, or an additional term does not fit the loss.
    """
    feature = features.targets[target]
    requested = by_target("loss", hparams.loss, features)
    names = requested.get(
        target, requested.get("", [features.losses.get(target, modality.default_loss)])
    )
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
    return TargetObjective(loss, hparams)


def by_target(field: str, text: str, features: Features) -> Mapping[str, list[str]]:
    """Parses "[a,b]", or "[intent:a,slots:b,c]": the values of each target.

    Args:
      field: name of the hparam, for messages.
      text: value of the hparam; the brackets, which --hparams needs around a comma, are optional.
      features: features of the problem.

    Returns:
      Values by target; the key "" holds those before any name, for all other targets.

    Raises:
      HParamsError: there is no such target, or it is repeated.
    """
    entries: dict[str, list[str]] = {}
    target = ""
    for part in text.strip().removeprefix("[").removesuffix("]").split(","):
        name, colon, value = (piece.strip() for piece in part.rpartition(":"))
        if colon:
            if name not in features.targets or name in entries:
                fault = "is named twice" if name in entries else "is no target"
                raise HParamsError(
                    f"{field}={text}: {name!r} {fault}. Targets: {', '.join(features.targets)}."
                )
            target = name
        if value:
            entries.setdefault(target, []).append(value)
    return entries


def target_weights(text: str, features: Features) -> dict[str, float]:
    """Returns the weights of the losses of targets, as given by the hparam `target_weights`.

    Args:
      text: "[intent:0.2,slots:0.5]"; a number before any name applies to all other targets.
      features: features of the problem.

    Raises:
      HParamsError: as `by_target`; or a weight is not a number >= 0, or all are 0.
    """
    if not text:
        return {}
    requested = by_target("target_weights", text, features)
    weights = {}
    for target in features.targets:
        words = requested.get(target, requested.get("", ["1"]))
        try:
            weights[target] = float(*words)
        except (TypeError, ValueError):
            weights[target] = -1.0
    if not all(0 <= weight < math.inf for weight in weights.values()) or not any(weights.values()):
        raise HParamsError(
            f"target_weights={text}: expected one number from 0 on for each target, not all 0, as "
            f"in [{','.join(f'{name}:1' for name in features.targets)}]."
        )
    return weights


def _check_additions(
    target: str, feature: Feature, hparams: HParams, modality: type[Modality]
) -> None:
    """Checks that terms that need a distribution have one, and that R-Drop has dropout."""
    requested = {
        "confidence_penalty": hparams.confidence_penalty,
        "r_drop_alpha": hparams.r_drop_alpha,
        "distill_from": hparams.distill_from,
    }
    if modality.learns_from_teacher:
        del requested["distill_from"]
    requested = {name: value for name, value in requested.items() if value}
    if requested and not modality.is_distribution:
        raise HParamsError(
            f"{', '.join(requested)}: of probabilities, but target {target!r} is a "
            f"{type(feature).__name__}, for which {modality.__name__} finds none. Leave it out."
        )
    rates = [name for name in type(hparams).model_fields if name.endswith("dropout")]
    if hparams.r_drop_alpha and not any(getattr(hparams, name) for name in rates):
        raise HParamsError(
            f"r_drop_alpha={hparams.r_drop_alpha} compares two passes with different dropout, but "
            f"there is none: {', '.join(rates)} are 0. Set one, or r_drop_alpha=0."
        )


# Scheduled sampling: in training, some targets that a model reads are replaced by its samples.
#
# Bengio et al. 2015, arXiv:1506.03099, in the parallel form of Duckworth et al. 2019,
# arXiv:1906.04331, with tensor2tensor's hyperparameters: a teacher-forced pass predicts every
# target from the previous ones, and the next pass reads samples in place of some of them.


_LEAST = 0.001  # start of the warm-up; tensor2tensor, utils/scheduled_sampling.py


class ScheduledSampling(nn.Module):
    """Replaces targets by samples, with a probability that increases during training.

    Attributes:
      share: probability of replacing a target, [] float32.  A tensor, because a number would be
        compiled into the model as a constant.

    Args:
      hparams: scheduled_sampling_*.
    """

    share: Tensor

    def __init__(self, hparams: ScheduledSamplingHParams) -> None:
        super().__init__()
        self._most = hparams.scheduled_sampling_prob * (
            1.0 - hparams.scheduled_sampling_gold_mixin_prob
        )
        self._steps = hparams.scheduled_sampling_warmup_steps
        self._schedule = hparams.scheduled_sampling_warmup_schedule
        self.passes = hparams.scheduled_sampling_num_passes if self._most else 0
        self.register_buffer("share", torch.tensor(0.0), persistent=False)
        self.at_step(0)

    def at_step(self, step: int) -> None:
        """Sets the probability of a replacement, after `step` training steps."""
        self.share.fill_(self._most * warm_up(self._schedule, step, self._steps))

    def mix(self, gold: Tensor, read: Tensor, samples: Tensor, number: int) -> Tensor:
        """Returns the targets that the next pass reads.  Padding is kept.

        Args:
          gold: targets, [B, T].
          read: targets that the last pass has read, [B, T].
          samples: samples from the last pass, [B, T].
          number: index of the pass, from 0.  This number of leading targets is kept as read: each
            pass has predicted them from the same prefix.
        """
        drawn = torch.rand(gold.shape, device=gold.device) < self.share
        mixed = torch.where(drawn & (gold != PAD), samples, gold)
        later = torch.arange(gold.size(1), device=gold.device) >= number
        return torch.where(later, mixed, read)


def warm_up(schedule: str, step: int, steps: int) -> float:
    """Returns the factor of the warm-up, from 0.001 at step 0 to 1 from `steps` on.

    tensor2tensor, layers/common_layers.py, inverse_exp_decay, inverse_lin_decay,
    inverse_sigmoid_decay.

    Args:
      schedule: "exp", "linear" or "sigmoid".
      step: number of steps done.
      steps: number of steps of the warm-up; 0 is none.
    """
    if step >= steps:
        return 1.0
    done = step / steps
    if schedule == "exp":
        return float(_LEAST ** (1.0 - done))
    if schedule == "sigmoid":  # from where a sigmoid is _LEAST to where it is 1 - _LEAST
        end = math.log((1.0 - _LEAST) / _LEAST)
        sigmoid = 1.0 / (1.0 + math.exp(end - 2.0 * end * done))
        done = (sigmoid - _LEAST) / (1.0 - 2.0 * _LEAST)
    return _LEAST + (1.0 - _LEAST) * done


# Mixup.  Zhang et al. 2018, arXiv:1710.09412.


class Mixed(NamedTuple):
    """A batch whose pictures are mixed in pairs.

    Attributes:
      batch: mixed pictures with the targets of the first of each pair.
      other: the same pictures with the targets of the second.
      share: weight of the first, from 0 to 1.
    """

    batch: dict[str, Tensor]
    other: dict[str, Tensor]
    share: float


def mixed_up(batch: dict[str, Tensor], features: Features, alpha: float) -> Mixed:
    """Mixes each picture with another of the batch.

    Args:
      batch: features as the pipeline produces them.
      features: features of the problem; all inputs are pictures.
      alpha: both parameters of the Beta distribution from which the weight is drawn.
    """
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    size = len(next(iter(batch.values())))
    partner = torch.randperm(size)
    other = {name: values[partner.to(values.device)] for name, values in batch.items()}
    pictures = {
        name: share * batch[name].float() + (1.0 - share) * other[name].float()
        for name in features.inputs
    }
    return Mixed({**batch, **pictures}, {**other, **pictures}, share)


# The training losses of a model, from the outputs of its body.


class Taught(NamedTuple):
    """Output of a teacher for a target.

    Attributes:
      hidden: output of the teacher's body.
      logits: computes distillation targets from such hidden states, [..., H] -> [..., V].
    """

    hidden: Hidden
    logits: Callable[[Hidden], Tensor]


class ExtraLossInputs(NamedTuple):
    """Inputs of a training loss in addition to the hidden states of one pass.

    Attributes:
      passes: states of further passes, with different dropout.
      mask: mask of `Hidden`, the same in all passes.
      taught: output of a teacher.
      top: computes the logits, for a model that overrides `top`; None: that of the modality.
      data: True to include the loss of the data, False for the additional terms only.
    """

    passes: tuple[Tensor, ...] = ()
    mask: Tensor | None = None
    taught: Taught | None = None
    top: Callable[[Hidden], Tensor] | None = None
    data: bool = True


def training_losses(
    model: T2TModel,
    passes: Sequence[Mapping[str, Hidden]],
    batch: dict[str, Tensor],
    taught: Mapping[str, Taught] | None = None,
) -> dict[str, Loss]:
    """Returns the training loss of each target, with the penalties of the body.

    Args:
      model: model that is trained.
      passes: outputs of its body; two for R-Drop.
      batch: targets, and weights of examples.
      taught: outputs of a teacher by target.
    """
    losses = {}
    for name in model.features.targets:
        hidden = [one[name] for one in passes]
        theirs = None if taught is None else taught[name]
        if model.overrides("loss"):
            loss = _loss_of_its_own(model, name, hidden, batch, theirs)
        else:
            loss = target_loss(model, name, hidden, batch, theirs)
        for penalty in [one.penalty for one in hidden if one.penalty is not None]:
            added = penalty
            if penalty.dim():
                modality = model.modality(name)
                weights = model.example_weights(name, batch)
                counted = modality.item_weights(batch[name], weights)
                added = (penalty * counted.reshape(len(penalty), -1).sum(1)).sum()
            loss = loss._replace(sum=loss.sum + added / len(passes))
        losses[name] = loss
    return losses


def target_loss(
    model: T2TModel,
    target: str,
    passes: Sequence[Hidden],
    batch: dict[str, Tensor],
    taught: Taught | None = None,
    *,
    data: bool = True,
) -> Loss:
    """Returns the training loss of a target, including that of its prepended positions.

    Args:
      model: model that is trained.
      target: name of the target.
      passes: hidden states of each pass.
      batch: targets, and weights of examples.
      taught: output of a teacher.
      data: True to include the loss of the data.
    """
    modality = model.modality(target)
    first, *others = passes
    weights = model.example_weights(target, _with_prepended(target, batch, first))
    if taught is not None and taught.hidden.mask is None:
        # Masked values have no probability to imitate.
        taught = taught._replace(hidden=dataclasses.replace(taught.hidden, mask=first.mask))
    top = functools.partial(model.top, target=target) if model.overrides("top") else None
    extra = ExtraLossInputs(tuple(one.states for one in others), first.mask, taught, top, data)
    loss = modality.training_loss(first.states, batch[target], weights, extra)
    before = [prepended for one in passes if (prepended := one.prepended) is not None]
    if before:  # without distillation
        extra = ExtraLossInputs(tuple(one.states for one in before[1:]), top=top, data=data)
        more = modality.training_loss(before[0].states, before[0].ids, weights, extra)
        loss = Loss(loss.sum + more.sum, loss.weight + more.weight)
    return loss


def _loss_of_its_own(
    model: T2TModel,
    target: str,
    passes: Sequence[Hidden],
    batch: dict[str, Tensor],
    taught: Taught | None,
) -> Loss:
    """Returns the mean over passes of a model's own `loss`, with the additional terms."""
    own = [model.loss(hidden, target, batch) for hidden in passes]
    total = Loss(torch.stack([one.sum for one in own]).mean(0), own[0].weight)
    terms = model.modality(target).objective
    if taught is None and (terms is None or terms.is_plain):
        return total
    added = target_loss(model, target, passes, batch, taught, data=False)
    share = 0.0 if taught is None else model.hparams.distill_weight
    return total._replace(sum=(1.0 - share) * total.sum + added.sum)


def _with_prepended(target: str, batch: dict[str, Tensor], hidden: Hidden) -> dict[str, Tensor]:
    """Returns the batch with all trained ids of a target, the prepended ones first."""
    before = hidden.prepended
    return batch if before is None else batch | {target: torch.cat([before.ids, batch[target]], 1)}


class Objective(nn.Module):
    """Training losses of a model, one per target.

    In EVAL it behaves like the model.  Its own state is neither trained nor saved.

    Attributes:
      model: model that is trained.
      scheduled_sampling: replaces targets that the model reads; None for no replacement.

    Args:
      model: model that is trained.
      teacher: model or ensemble of the same targets, for distillation.  It is frozen, in EVAL
        mode, and stays on its device.

    Raises:
      HParamsError: hyperparameters do not fit the targets.
    """

    def __init__(self, model: T2TModel, teacher: T2TModel | Ensemble | None = None) -> None:
        super().__init__()
        self.model = model
        hparams: Any = model.hparams
        check_objective(hparams, model.features)
        self.scheduled_sampling: ScheduledSampling | None = None
        if hparams.scheduled_sampling_prob:
            self.scheduled_sampling = ScheduledSampling(hparams)
        self._mixup_alpha = hparams.mixup_alpha
        self._weights = target_weights(hparams.target_weights, model.features)
        terms = [model.modality(name).objective for name in model.features.targets]
        self._passes = max((term.passes for term in terms if term is not None), default=1)
        self._teacher: tuple[Any, ...] = ()  # a tuple hides it from nn.Module
        if teacher is not None:
            self._teacher = (teacher.eval().requires_grad_(False),)

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Returns the training losses; in EVAL the output of the model.

        Args:
          batch: features as the pipeline produces them.
        """
        output: Output = self.model(batch, self.losses if self.training else None)
        return output

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Loss]:
        """Returns the training loss of each target."""
        model, mixed = self.model, None
        if self._mixup_alpha:
            mixed = mixed_up(batch, model.features, self._mixup_alpha)
            batch = mixed.batch
        read = self._with_samples(batch)
        passes = [model.hidden_states(read) for _ in range(self._passes)]
        taught = self._taught(batch)
        losses = training_losses(model, passes, batch, taught)
        if mixed is not None:
            second, share = training_losses(model, passes, mixed.other, taught), mixed.share
            losses = {
                name: Loss(
                    *(share * a + (1.0 - share) * b for a, b in zip(one, second[name], strict=True))
                )
                for name, one in losses.items()
            }
        for name, weight in self._weights.items():
            losses[name] = losses[name]._replace(sum=losses[name].sum * weight)
        return losses

    def at_step(self, step: int) -> None:
        """Sets the number of steps done; called before each training step."""
        if self.scheduled_sampling is not None:
            self.scheduled_sampling.at_step(step)

    @torch.no_grad()
    def _taught(self, batch: dict[str, Tensor]) -> dict[str, Taught] | None:
        """Returns the outputs of the teacher by target; None if there is no teacher."""
        if not self._teacher:
            return None
        (teacher,) = self._teacher
        hidden = teacher.hidden_states(batch)
        return {name: _taught(teacher, name, states) for name, states in hidden.items()}

    @torch.no_grad()
    def _with_samples(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the batch in which scheduled sampling has replaced some targets."""
        if self.scheduled_sampling is None:
            return batch
        model, read = self.model, dict(batch)
        for number in range(self.scheduled_sampling.passes):
            hidden = model.hidden_states(read)
            for name in model.features.targets:
                top = functools.partial(model.top, target=name) if model.overrides("top") else None
                samples = model.modality(name).sample(hidden[name], top)
                mixed = self.scheduled_sampling.mix(batch[name], read[name], samples, number)
                read[name] = mixed
        # Autocast caches the rounded weights of these passes, which have no gradients.
        torch.clear_autocast_cache()
        return read


def _taught(teacher: T2TModel | Ensemble, target: str, hidden: Hidden) -> Taught:
    """Returns the output of a teacher; if it overrides `top`, the logits of whole examples."""
    teaching = teacher.modality(target).teaching
    if teacher.overrides("top"):
        logits = teaching(teacher.top(hidden, target))
        return Taught(Hidden(logits, hidden.mask), lambda own: own.states)
    return Taught(hidden, lambda own: teaching(teacher.top(own, target)))


def check_objective(hparams: Any, features: Features) -> None:
    """Checks that hyperparameters of training fit the targets.

    Raises:
      HParamsError: they do not.
    """
    target_weights(hparams.target_weights, features)
    others = [name for name, feature in features.inputs.items() if not feature.is_image]
    if hparams.mixup_alpha and (others or not features.inputs):
        raise HParamsError(
            f"mixup_alpha={hparams.mixup_alpha} mixes pictures, and the inputs are "
            f"{', '.join(others) or 'none'}. Set mixup_alpha=0."
        )
    for target, feature in features.targets.items():
        if hparams.scheduled_sampling_prob and not feature.is_text:
            raise HParamsError(
                f"scheduled_sampling_prob={hparams.scheduled_sampling_prob}: a model "
                f"reads predictions of texts only, and target {target!r} is a "
                f"{type(feature).__name__}. Set scheduled_sampling_prob=0."
            )


def weigh_classes(model: T2TModel, target: str, weights: Sequence[float]) -> None:
    """Sets the weight of each class of a target in TRAIN.

    Args:
      model: model that is trained.
      target: name of the target.
      weights: weight of each class, in the order of the ids.

    Raises:
      HParamsError: the loss of the target does not support weights.
    """
    terms = model.modality(target).objective
    if terms is None or not terms.loss.takes_class_weights:
        raise HParamsError(
            f"class_weights={model.hparams.class_weights}: the loss of target {target!r} takes "
            "no weights of classes. Name another loss, or the other targets alone: "
            "class_weights=[target:...]."
        )
    device = next(model.parameters()).device
    terms.loss.class_weights = torch.tensor(list(weights), device=device)
