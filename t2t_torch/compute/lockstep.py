"""Evaluation passes that all processes make together, where each holds a part of the weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World
    from t2t_torch.train.batch import Batch
    from t2t_torch.train.learner import Learner

_NONE, _BATCH, _STOP = range(3)  # what a process has; the greatest of all is what they do


def in_step(
    batches: Iterable[Batch], run: Learner | None, world: World, stop: object = False
) -> Iterator[tuple[Batch, bool]]:
    """Yields (batch, whether it counts) until they end or a signal comes.

    Where weights are divided a pass needs all processes, so each makes as many as the one with most
    batches: what it makes again does not count.  A signal that one of them got ends all at once.

    Args:
      batches: of this process.
      run: the training that goes on, if one does.
      world: the processes.
      stop: true once a signal has come.
    """
    divided = run is not None and run.is_sharded
    waiting, last = iter(batches), None
    while True:
        batch = None if stop else next(waiting, None)
        word = _STOP if stop else _BATCH if batch is not None else _NONE
        if divided:
            word = world.maximum(word)
        if word != _BATCH:
            return
        if batch is not None:
            last = batch
        elif last is None and run is not None:
            last = next(run.source.one_of_each_shape())
        if last is not None:
            yield last, batch is not None
