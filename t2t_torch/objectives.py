"""Training objectives: the losses of a model's targets, and what hyperparameters add to them.

An `Objective` wraps a model and returns its training losses.  Hyperparameters choose its parts, in
any combination: scheduled sampling (`scheduled_sampling_prob`), R-Drop (`r_drop_alpha`), a
confidence penalty, weights of targets and classes, and distillation (`distill_from`).
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


# The terms of one target's loss, value by value.


class TargetObjective(nn.Module):
    """The loss of a target and its additions.  All but the loss itself is for TRAIN alone.

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
        if self.r_drop_alpha and len(alternatives) > 1:
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
) -> TargetObjective | None:
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
    return TargetObjective(loss, hparams)


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


# Scheduled sampling: in training, some targets that a model reads are its own samples.
#
# Bengio et al. 2015, arXiv:1506.03099, in the parallel form of Duckworth et al. 2019,
# arXiv:1906.04331, with tensor2tensor's hyperparameters: a teacher-forced pass predicts every
# target from those before it, and the next pass reads samples in place of some of them.


_LEAST = 0.001  # of the warm-up, tensor2tensor, utils/scheduled_sampling.py


class ScheduledSampling(nn.Module):
    """Replaces targets by samples, more of them as training goes on.

    Attributes:
      share: probability of replacing a target, [] float32.  A tensor, because a number would be
        compiled into the model.

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
        """Sets the share for the step that follows `step` steps."""
        self.share.fill_(self._most * warm_up(self._schedule, step, self._steps))

    def mix(self, gold: Tensor, read: Tensor, samples: Tensor, number: int) -> Tensor:
        """Returns the targets that the next pass reads.  Padding stays.

        Args:
          gold: the targets, [B, T].
          read: the targets that the last pass has read, [B, T].
          samples: drawn from the last pass, [B, T].
          number: of the pass, from 0.  As many first targets are kept as they were read: in each
            pass they were predicted from the same ids before them.
        """
        drawn = torch.rand(gold.shape, device=gold.device) < self.share
        mixed = torch.where(drawn & (gold != PAD), samples, gold)
        later = torch.arange(gold.size(1), device=gold.device) >= number
        return torch.where(later, mixed, read)


def warm_up(schedule: str, step: int, steps: int) -> float:
    """Returns the state of the warm-up, from 0.001 at step 0 to 1 from `steps` on.

    tensor2tensor, layers/common_layers.py, inverse_exp_decay, inverse_lin_decay,
    inverse_sigmoid_decay.

    Args:
      schedule: "exp", "linear" or "sigmoid".
      step: steps done.
      steps: of the warm-up; 0 is none.
    """
    if step >= steps:
        return 1.0
    done = step / steps
    if schedule == "exp":
        return _LEAST ** (1.0 - done)
    if schedule == "sigmoid":  # from where a sigmoid is _LEAST to where it is 1 - _LEAST
        end = math.log((1.0 - _LEAST) / _LEAST)
        sigmoid = 1.0 / (1.0 + math.exp(end - 2.0 * end * done))
        done = (sigmoid - _LEAST) / (1.0 - 2.0 * _LEAST)
    return _LEAST + (1.0 - _LEAST) * done


# The training losses of a model, from the outputs of its body.


class Taught(NamedTuple):
    """The output of a teacher for a target.

    Attributes:
      hidden: of the teacher's body.
      logits: returns what a student imitates of such hidden states, [..., H] -> [..., V].
    """

    hidden: Hidden
    logits: Callable[[Hidden], Tensor]


class ExtraLossInputs(NamedTuple):
    """What a training loss depends on besides the hidden states of one pass.

    Attributes:
      passes: states of further passes, with other dropout.
      mask: of `Hidden`, in all passes.
      taught: the output of a teacher.
      top: makes the logits, of a model with its own `top`; None is the modality's.
      data: whether the loss of the data is part of it; False is the additions alone.
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
      model: whose losses.
      passes: outputs of its body; two for R-Drop.
      batch: the targets, and the weights of examples.
      taught: by target, the output of a teacher.
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
    """Returns the training loss of a target, that of its prepended positions included.

    Args:
      model: whose loss.
      target: its name.
      passes: hidden states of each pass.
      batch: the targets, and the weights of examples.
      taught: the output of a teacher.
      data: whether the loss of the data is part of it.
    """
    modality = model.modality(target)
    first, *others = passes
    weights = model.example_weights(target, _with_prepended(target, batch, first))
    if taught is not None and taught.hidden.mask is None:
        # What may not be here has no probability to imitate.
        taught = taught._replace(hidden=dataclasses.replace(taught.hidden, mask=first.mask))
    top = functools.partial(model.top, target=target) if model.overrides("top") else None
    extra = ExtraLossInputs(tuple(one.states for one in others), first.mask, taught, top, data)
    loss = modality.training_loss(first.states, batch[target], weights, extra)
    before = [its for one in passes if (its := one.prepended) is not None]
    if before:  # no teacher has a part in it
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
    """Returns the mean of the model's own `loss` over passes, with what is added to it."""
    own = [model.loss(hidden, target, batch) for hidden in passes]
    total = Loss(torch.stack([one.sum for one in own]).mean(0), own[0].weight)
    terms = model.modality(target).objective
    if taught is None and (terms is None or terms.is_plain):
        return total
    added = target_loss(model, target, passes, batch, taught, data=False)
    share = 0.0 if taught is None else model.hparams.distill_weight
    return total._replace(sum=(1.0 - share) * total.sum + added.sum)


def _with_prepended(target: str, batch: dict[str, Tensor], hidden: Hidden) -> dict[str, Tensor]:
    """Returns the batch with all ids of a target that are trained, the prepended ones first."""
    before = hidden.prepended
    return batch if before is None else batch | {target: torch.cat([before.ids, batch[target]], 1)}


class Objective(nn.Module):
    """The training losses of a model, one of each target.

    In EVAL it is the model itself.  Its own state is neither trained nor saved.

    Attributes:
      model: that is trained.
      scheduled_sampling: replaces targets that the model reads; None leaves them.

    Args:
      model: that is trained.
      teacher: a model, or an ensemble, of the same targets, whose probabilities are imitated.  It
        is frozen, in EVAL mode, and stays on its device.

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
        self._weights = target_weights(hparams.target_weights, model.features)
        terms = [model.modality(name).objective for name in model.features.targets]
        self._passes = max((its.passes for its in terms if its is not None), default=1)
        self._teacher: tuple[Any, ...] = ()  # a tuple, because it is no submodule
        if teacher is not None:
            self._teacher = (teacher.eval().requires_grad_(False),)

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Returns the training losses; in EVAL the output of the model.

        Args:
          batch: each feature as the pipeline gives it.
        """
        output: Output = self.model(batch, self.losses if self.training else None)
        return output

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Loss]:
        """Returns the training loss of each target."""
        model = self.model
        read = self._with_samples(batch)
        passes = [model.body(model.bottom(read)) for _ in range(self._passes)]
        losses = training_losses(model, passes, batch, self._taught(batch))
        for name, weight in self._weights.items():
            losses[name] = losses[name]._replace(sum=losses[name].sum * weight)
        return losses

    def at_step(self, step: int) -> None:
        """Sets the number of steps done; called before each step of training."""
        if self.scheduled_sampling is not None:
            self.scheduled_sampling.at_step(step)

    @torch.no_grad()
    def _taught(self, batch: dict[str, Tensor]) -> dict[str, Taught] | None:
        """Returns the output of the teacher's body; None if there is no teacher."""
        if not self._teacher:
            return None
        (teacher,) = self._teacher
        hidden = teacher.body(teacher.bottom(batch))
        return {name: _taught(teacher, name, its) for name, its in hidden.items()}

    @torch.no_grad()
    def _with_samples(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the batch to read, in which scheduled sampling has replaced some targets."""
        if self.scheduled_sampling is None:
            return batch
        model, read = self.model, dict(batch)
        for number in range(self.scheduled_sampling.passes):
            hidden = model.body(model.bottom(read))
            for name in model.features.targets:
                top = functools.partial(model.top, target=name) if model.overrides("top") else None
                samples = model.modality(name).sample(hidden[name], top)
                mixed = self.scheduled_sampling.mix(batch[name], read[name], samples, number)
                read[name] = mixed
        # Autocast keeps the rounded weights of these passes, which know nothing of gradients.
        torch.clear_autocast_cache()
        return read


def _taught(teacher: T2TModel | Ensemble, target: str, hidden: Hidden) -> Taught:
    """Returns the output of a teacher; of one with its own `top` the logits of whole examples."""
    teaching = teacher.modality(target).teaching
    if teacher.overrides("top"):
        logits = teaching(teacher.top(hidden, target))
        return Taught(Hidden(logits, hidden.mask), lambda its: its.states)
    return Taught(hidden, lambda its: teaching(teacher.top(its, target)))


def check_objective(hparams: Any, features: Features) -> None:
    """Checks that hyperparameters of training fit the targets.

    Raises:
      HParamsError: they do not.
    """
    target_weights(hparams.target_weights, features)
    for target, feature in features.targets.items():
        if hparams.scheduled_sampling_prob and not feature.is_text:
            raise HParamsError(
                f"scheduled_sampling_prob={hparams.scheduled_sampling_prob}: a model "
                f"reads its guesses of texts alone, and target {target!r} is a "
                f"{type(feature).__name__}. Set scheduled_sampling_prob=0."
            )


def weigh_classes(model: T2TModel, target: str, weights: Sequence[float]) -> None:
    """Sets the weight of each class of a target in TRAIN.

    Args:
      model: that is trained.
      target: its name.
      weights: one for each class, in the order of the ids.

    Raises:
      HParamsError: the target's loss takes no weights.
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
