"""Training objective of a model: the losses of its targets, with all terms."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features
from t2t_torch.hparam import HParams, values_by_target
from t2t_torch.layers.cross_entropy import entropy
from t2t_torch.layers.tokens import Hidden
from t2t_torch.loss import ItemTerms, Loss, TargetOutputs, TeacherOutput, average
from t2t_torch.modality import Modality, modality_of
from t2t_torch.model import Output, T2TModel, add_penalties, target_outputs
from t2t_torch.objectives import perturbations
from t2t_torch.objectives.batches import ScheduledSampling, check_changes, mix_examples, mix_losses

if TYPE_CHECKING:
    from t2t_torch.ensemble import Ensemble


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
        hparams: Any = model.hparams
        check_objective(hparams, model.features)
        self.model = model
        self.scheduled_sampling = (
            ScheduledSampling(hparams) if hparams.scheduled_sampling_prob else None
        )
        self._mixup_alpha = hparams.mixup_alpha
        self._passes = 2 if hparams.r_drop_alpha else 1
        self._embeddings: perturbations.TokenEmbeddings | None = None
        changes = {name: getattr(hparams, name) for name in ("r3f_weight", "adversarial_steps")}
        if requested := ", ".join(f"{name}={value}" for name, value in changes.items() if value):
            self._embeddings = perturbations.TokenEmbeddings(model, requested)
        self._adversary: perturbations.Adversary | None = None
        if hparams.adversarial_steps and self._embeddings is not None:
            self._adversary = perturbations.Adversary(self._embeddings, hparams)
        self._weights = target_weights(hparams.target_weights, model.features)
        self._teacher: tuple[Any, ...] = ()  # a tuple hides it from nn.Module
        if teacher is not None:
            self._teacher = (teacher.eval().requires_grad_(False),)

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Returns the training losses; in EVAL the output of the model.

        Args:
          batch: features as the pipeline produces them.
        """
        model = self.model
        if not self.training:
            output: Output = model(batch)
            return output
        views, mix = mix_examples(batch, model.features, self._mixup_alpha)
        seen = read = views[0][1]
        if self.scheduled_sampling is not None:
            read = self.scheduled_sampling(model, seen)

        def states() -> dict[str, Hidden]:
            made = model.hidden_states(read).items()
            return {name: dataclasses.replace(one, states=mix(one.states)) for name, one in made}

        with self._adversary.watching() if self._adversary else contextlib.nullcontext():
            passes = [states()]
        passes += [states() for _ in range(self._passes - 1)]
        taught = self._teach(seen, passes[0])
        parts: dict[str, list[tuple[float, Loss]]] = {}
        for share, gold in views:
            for target in model.features.targets:
                hidden = [one[target] for one in passes]
                terms = item_terms(model.hparams, model.modality(target), taught.get(target))
                outputs = target_outputs(model, hidden, target, gold, terms)
                if model.overrides("loss"):
                    loss = self._add_to_own_loss(outputs, target, gold)
                else:
                    loss = model.modality(target).training_loss(outputs)
                loss = add_penalties(model, loss, hidden, target, gold)
                parts.setdefault(target, []).append((share, loss))
        losses = self._weighed({target: mix_losses(each) for target, each in parts.items()})
        if self._embeddings is not None and model.hparams.r3f_weight:
            move = functools.partial(perturbations.noise, model.hparams)
            with self._embeddings.moved(move):
                noisy = states()
            losses = _added(losses, self._divergences(views, passes[0], noisy), 1.0)
        if self._adversary is not None:
            more: dict[str, Loss] = {}

            def perturbed() -> Tensor:
                more.update(self._losses_of_data(views, states()))
                return _sum(more)

            self._adversary.loss(_sum(losses), perturbed)
            losses = _added(losses, more, model.hparams.adversarial_weight)
        return Output({}, losses)

    def _losses_of_data(
        self, views: Sequence[tuple[float, dict[str, Tensor]]], states: Mapping[str, Hidden]
    ) -> dict[str, Loss]:
        """Returns the weighed losses of targets of one pass, without terms of each item."""
        model = self.model
        losses = {}
        for target in model.features.targets:
            own = states[target]
            parts = [
                (share, add_penalties(model, model.loss(own, target, gold), [own], target, gold))
                for share, gold in views
            ]
            losses[target] = mix_losses(parts)
        return self._weighed(losses)

    def _divergences(
        self,
        views: Sequence[tuple[float, dict[str, Tensor]]],
        clean: Mapping[str, Hidden],
        noisy: Mapping[str, Hidden],
    ) -> dict[str, Loss]:
        """Returns the weighed terms of R3F by target."""
        model, losses = self.model, {}
        gold = views[0][1]  # for the weights of examples
        term = functools.partial(perturbations.divergence, model.hparams.r3f_weight)
        for target in model.features.targets:
            modality = model.modality(target)
            terms = ItemTerms(modality.alternatives, [term], has_data=False)
            both = [clean[target], noisy[target]]
            outputs = target_outputs(model, both, target, gold, terms)
            losses[target] = modality.training_loss(outputs)
        return self._weighed(losses)

    def _weighed(self, losses: dict[str, Loss]) -> dict[str, Loss]:
        for target, weight in self._weights.items():
            losses[target] = losses[target]._replace(sum=losses[target].sum * weight)
        return losses

    def at_step(self, step: int) -> None:
        """Sets the number of steps done; called before each training step."""
        if self.scheduled_sampling is not None:
            self.scheduled_sampling.at_step(step)

    def _add_to_own_loss(
        self, outputs: TargetOutputs, target: str, batch: dict[str, Tensor]
    ) -> Loss:
        """Returns the mean over passes of a model's own `loss`, with the terms of each item."""
        own = [self.model.loss(one, target, batch) for one in outputs.passes]
        total, terms = torch.stack([one.sum for one in own]).mean(0), outputs.terms
        if terms is not None:
            without_data = outputs._replace(terms=dataclasses.replace(terms, has_data=False))
            added = self.model.modality(target).training_loss(without_data)
            total = terms.share * total + added.sum
        return Loss(total, own[0].weight)

    @torch.no_grad()
    def _teach(
        self, batch: dict[str, Tensor], student: Mapping[str, Hidden]
    ) -> dict[str, TeacherOutput]:
        """Returns the outputs of the teacher by target; empty if there is no teacher."""
        taught = {}
        for teacher in self._teacher:
            for name, states in teacher.hidden_states(batch).items():
                output = _teacher_output(teacher, name, states)
                if output.hidden.mask is None:  # masked values have no probability to imitate
                    hidden = dataclasses.replace(output.hidden, mask=student[name].mask)
                    output = output._replace(hidden=hidden)
                taught[name] = output
        return taught


def _sum(losses: Mapping[str, Loss]) -> Tensor:
    return torch.stack([loss.sum for loss in losses.values()]).sum()


def _added(
    losses: Mapping[str, Loss], others: Mapping[str, Loss], weight: float
) -> dict[str, Loss]:
    """Returns losses of targets with the sums of others, times a weight."""
    return {
        name: loss._replace(sum=loss.sum + weight * others[name].sum)
        for name, loss in losses.items()
    }


def _teacher_output(teacher: T2TModel | Ensemble, target: str, hidden: Hidden) -> TeacherOutput:
    """Returns the output of a teacher; if it overrides `top`, the logits of whole examples."""
    teaching = teacher.modality(target).teaching
    if teacher.overrides("top"):
        logits = teaching(teacher.top(hidden, target))
        return TeacherOutput(Hidden(logits, hidden.mask), lambda own: own.states)
    return TeacherOutput(hidden, lambda own: teaching(teacher.top(own, target)))


def item_terms(
    hparams: Any, modality: Modality, taught: TeacherOutput | None = None
) -> ItemTerms | None:
    """Returns the terms that hyperparameters add to the loss of each item; None for no term.

    Args:
      hparams: confidence_penalty, r_drop_alpha, distill_weight, distill_temperature.
      modality: modality of the target.
      taught: output of a teacher.
    """
    terms = ItemTerms(modality.alternatives, [], taught)
    if hparams.confidence_penalty:
        terms.terms.append(functools.partial(confidence_penalty, hparams.confidence_penalty))
    if hparams.r_drop_alpha:
        # Liang et al. 2021, arXiv:2106.14448, equations 2 to 4, halved like the loss, which is a
        # mean over the two passes here and a sum in the paper.
        terms.terms.append(functools.partial(perturbations.divergence, hparams.r_drop_alpha / 4))
    if taught is None:
        return terms if terms.terms else None
    weight, heat = hparams.distill_weight, hparams.distill_temperature
    distill = functools.partial(modality.distill, weight=weight, heat=heat)
    return dataclasses.replace(terms, distill=distill, share=1.0 - weight)


def confidence_penalty(beta: float, scores: Sequence[Tensor], axes: int) -> Tensor:
    """Returns the negative entropy of each item.  Pereyra et al. 2017, arXiv:1701.06548, eq. 3.

    Args:
      beta: weight.
      scores: scores of mutually exclusive values in each pass, [..., V].
      axes: number of leading axes that index items.
    """
    return -beta * average([entropy(one) for one in scores], axes)


def target_weights(text: str, features: Features) -> dict[str, float]:
    """Returns the weights of the losses of targets, as given by the hparam `target_weights`.

    Args:
      text: "[intent:0.2,slots:0.5]"; a number before any name applies to all other targets.
      features: features of the problem.

    Raises:
      HParamsError: as `values_by_target`; or a weight is not a number >= 0, or all are 0.
    """
    if not text:
        return {}
    requested = values_by_target("target_weights", text, features.targets)
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


def check_objective(hparams: Any, features: Features) -> None:
    """Checks that hyperparameters of training fit the targets.

    Raises:
      HParamsError: they do not.
    """
    for target, feature in features.targets.items():
        _check_terms(target, feature, hparams)
    target_weights(hparams.target_weights, features)
    if hparams.adversarial_steps:
        hparams.refuse(
            ("compile", "shard_weights", "stream_length"),
            f": adversarial_steps={hparams.adversarial_steps} takes a gradient within a pass, "
            "which does not go with it. Leave out one of them.",
        )
    check_changes(hparams, features)


def _check_terms(target: str, feature: Feature, hparams: HParams) -> None:
    """Checks that terms that need a distribution have one, and that R-Drop has dropout."""
    modality = modality_of(target, feature, hparams)
    requested = {
        "confidence_penalty": hparams.confidence_penalty,
        "r_drop_alpha": hparams.r_drop_alpha,
        "r3f_weight": hparams.r3f_weight,
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
