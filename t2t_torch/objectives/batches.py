"""Changes of a training batch: samples in place of targets, and mixed examples.

Scheduled sampling: Bengio et al. 2015, arXiv:1506.03099, in the parallel form of Duckworth et al.
2019, arXiv:1906.04331, with tensor2tensor's hyperparameters: a teacher-forced pass predicts every
target from the previous ones, and the next pass reads samples in place of some of them.

Mixup: Zhang et al. 2018, arXiv:1710.09412; of the states of texts, Guo et al. 2019,
arXiv:1905.08941.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.features.feature import select_sequences
from t2t_torch.hparam import HParams, ScheduledSamplingHParams
from t2t_torch.loss import Loss
from t2t_torch.model import T2TModel, own_top
from t2t_torch.text.encoder import PAD

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
        self.share.fill_(self._most * warmup_factor(self._schedule, step, self._steps))

    @torch.no_grad()
    def forward(self, model: T2TModel, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the batch with some targets replaced by samples of the model."""
        read = dict(batch)
        for number in range(self.passes):
            hidden = model.hidden_states(read)
            for name in model.features.targets:
                samples = model.modality(name).sample(hidden[name], own_top(model, name))
                read[name] = self.mix(batch[name], read[name], samples, number)
        # Autocast caches the rounded weights of these passes, which have no gradients.
        torch.clear_autocast_cache()
        return read

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


def warmup_factor(schedule: str, step: int, steps: int) -> float:
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


def mix_examples(
    batch: dict[str, Tensor], features: Features, alpha: float
) -> tuple[list[tuple[float, dict[str, Tensor]]], Callable[[Tensor], Tensor]]:
    """Mixes each example with another of the batch: pictures, or else the states of all inputs.

    Args:
      batch: features as the pipeline produces them.
      features: features of the problem.
      alpha: both parameters of the Beta distribution from which the weight is drawn; 0 to mix
        nothing.

    Returns:
      Views of the batch with the weights of their losses, from 0 to 1: with the targets of the
      first of each pair, and with those of the second, or the batch alone; and a function that
      mixes the states that a target is predicted from, [B, ...].
    """
    if not alpha:
        return [(1.0, batch)], lambda states: states
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    partner = torch.randperm(len(next(iter(batch.values()))))
    other = {name: values[partner.to(values.device)] for name, values in batch.items()}

    def mix(values: Tensor) -> Tensor:
        return share * values + (1.0 - share) * values[partner.to(values.device)]

    if not _are_pictures(features):
        return [(share, batch), (1.0 - share, other)], mix
    pictures = {name: mix(batch[name].float()) for name in features.inputs}
    views = [(share, {**batch, **pictures}), (1.0 - share, {**other, **pictures})]
    return views, lambda states: states


def _are_pictures(features: Features) -> bool:
    """Returns True if all inputs are pictures."""
    specs = [one.input_spec(name, features) for name, one in features.inputs.items()]
    return bool(specs) and all(spec.kind == "image" for spec in specs)


def mix_losses(views: Sequence[tuple[float, Loss]]) -> Loss:
    """Returns the loss of a batch, given the weight and the loss of each of its views."""
    (share, loss), *others = views
    for other_share, other in others:
        loss = Loss(
            share * loss.sum + other_share * other.sum,
            share * loss.weight + other_share * other.weight,
        )
    return loss


def check_changes(hparams: HParams, features: Features) -> None:
    """Checks that inputs can be mixed and targets replaced, if hyperparameters say so.

    Raises:
      HParamsError: they cannot.
    """
    if hparams.mixup_alpha and not _are_pictures(features):
        targets = features.targets
        places = [*select_sequences(targets), *(n for n, one in targets.items() if one.refers_to)]
        if places or hparams.distill_from:
            raise HParamsError(
                f"mixup_alpha={hparams.mixup_alpha} mixes pictures, or the states of whole "
                f"examples, not {places[0] if places else 'distill_from'}. Set mixup_alpha=0."
            )
    for target, feature in features.targets.items():
        if hparams.scheduled_sampling_prob and not feature.is_text:
            raise HParamsError(
                f"scheduled_sampling_prob={hparams.scheduled_sampling_prob}: a model "
                f"reads predictions of texts only, and target {target!r} is a "
                f"{type(feature).__name__}. Set scheduled_sampling_prob=0."
            )
