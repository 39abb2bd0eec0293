"""Which problem each batch of a mixture is of.

Like the order in a problem it is a function of a number: batch k is drawn with noise of its own,
so a run resumes at any step, and the number of processes does not matter.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from t2t_torch.families.mixing_schedule import MixingSchedule
from t2t_torch.pipeline.plan import noise, uniform

MIXTURE_VERSION = 2
"""Stands in the fingerprint.  2: each problem is shuffled with a seed of its own."""

_STREAM, _SEEDS = 4, 5  # of the noise; the plan of an epoch has 0 to 3
_BLOCK = 4096  # batches whose problems are drawn together


def component_seed(seed: int, index: int) -> int:
    """Returns the seed of the order of one problem of a mixture.

    With one seed, problems with rows of the same lengths (X and X_rev) would give the same rows at
    the same time.

    Args:
      seed: of the run.
      index: the problem's place in the mixture.
    """
    return int(noise(1, seed, index, _SEEDS)[0])


class MixedPlan:
    """The problem of every batch, and the batch's number in that problem.

    Args:
      schedule: the problems' shares.
      seed: of the run.
      batches_per_step: batches of all processes in an optimizer step, whose number the schedule
        goes by.
    """

    def __init__(self, schedule: MixingSchedule, *, seed: int, batches_per_step: int) -> None:
        self.schedule = schedule
        self.seed = seed
        self.batches_per_step = batches_per_step
        problems = len(schedule.shares[0])
        self._before = [np.zeros(problems, np.int64)]  # batches of each problem before each block
        self._block = functools.lru_cache(maxsize=4)(self._draw)

    def locate(self, index: int) -> tuple[int, int]:
        """Returns the problem of global batch `index`, and how many of its batches came before.

        In turn (round_robin) batch k is of problem k modulo their number.  Else it is drawn.
        The first call at a far position draws all blocks up to there, in some 50 ns a batch.
        """
        if self.schedule.kind == "round_robin":
            turn, problem = divmod(index, len(self.schedule.shares[0]))
            return problem, turn
        block, place = divmod(index, _BLOCK)
        while len(self._before) <= block:
            drawn = self._draw(len(self._before) - 1)
            counts = np.bincount(drawn, minlength=len(self._before[0]))
            self._before.append(self._before[-1] + counts)
        drawn = self._block(block)
        problem = int(drawn[place])
        return problem, int(self._before[block][problem] + (drawn[:place] == problem).sum())

    def _draw(self, block: int) -> npt.NDArray[np.int64]:
        """Returns the problems of a block of batches, [_BLOCK]."""
        numbers = block * _BLOCK + np.arange(_BLOCK)
        ends = np.cumsum(self.schedule.at(numbers // self.batches_per_step), axis=1)
        ends /= ends[:, -1:]
        random = uniform(noise(_BLOCK, self.seed, block, _STREAM))
        return (random[:, None] >= ends[:, :-1]).sum(axis=1)  # type: ignore[no-any-return]
