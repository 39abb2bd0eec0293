"""Scheduled sampling: in training, some targets that a model reads are its own guesses.

Bengio et al. 2015, arXiv:1506.03099, in the parallel form of Duckworth et al. 2019,
arXiv:1906.04331, with tensor2tensor's hyperparameters: a teacher-forced pass guesses every target
from those before it, and the next pass reads guesses in place of some of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from t2t_torch.hparam import ScheduledSamplingHParams
from t2t_torch.text.encoder import PAD

_LEAST = 0.001  # of the warm-up, tensor2tensor, utils/scheduled_sampling.py


class ScheduledSampling(nn.Module):
    """Replaces targets by guesses, the more the longer training lasts.

    Attributes:
      share: of the targets that are replaced, [] float32: a tensor, so that a compiled model is not
        compiled anew when it changes.

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
        """Sets the share for the step after so many."""
        self.share.fill_(self._most * warm_up(self._schedule, step, self._steps))

    def mix(self, gold: Tensor, read: Tensor, guesses: Tensor, number: int) -> Tensor:
        """Returns what the next pass reads.  Padding stays.

        Args:
          gold: the targets, [B, T].
          read: what the last pass has read, [B, T].
          guesses: what it has found, [B, T].
          number: of the pass, from 0: so many first targets are kept as they were read, since pass
            after pass they have been guessed from what stands before them.
        """
        drawn = torch.rand(gold.shape, device=gold.device) < self.share
        mixed = torch.where(drawn & (gold != PAD), guesses, gold)
        later = torch.arange(gold.size(1), device=gold.device) >= number
        return torch.where(later, mixed, read)


def warm_up(schedule: str, step: int, steps: int) -> float:
    """Returns how far the warm-up is, from 0.001 at step 0 to 1 from `steps` on.

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
