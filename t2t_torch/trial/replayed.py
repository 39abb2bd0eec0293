"""Loaders whose order cannot be listed: read from the beginning, up to where a run goes on."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterator
from typing import Any

from t2t_torch.errors import TrialError
from t2t_torch.trial.epoch_orders import Loader, tell_epoch
from t2t_torch.trial.item_randomness import IsolatedStream, mix


class ReplayedLoader:
    """Every epoch of a loader of which nothing is known but how to iterate over it.

    An epoch is read while the global generators are seeded by (seed, "order", epoch).  A position
    is found again by reading everything before it and throwing it away.

    Attributes:
      batches_per_epoch: `len(loader)`, or None if it has no length.
      records_per_batch: the loader's `batch_size`, or 1.

    Args:
      loader: the user's.
      seed: of the run.
    """

    def __init__(self, loader: Loader, seed: int) -> None:
        self._loader = loader
        self._seed = seed
        self._starts = [0]  # the first batch of each epoch that has begun
        self.batches_per_epoch = _length(loader)
        size = getattr(loader, "batch_size", None)
        self.records_per_batch = float(size) if isinstance(size, int) and size > 0 else 1.0

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Yields the batches of an epoch, from 0."""
        stream = IsolatedStream(mix(self._seed, "order", epoch))
        with stream:
            tell_epoch(getattr(self._loader, "dataset", None), epoch)
            tell_epoch(getattr(self._loader, "sampler", None), epoch)
            batches = iter(self._loader)
        while True:
            with stream:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

    def run(self, start: int, step: int) -> Iterator[Any]:
        """Yields every `step`th batch of all epochs, from batch `start` of the run on.

        One is read ahead: whoever has a batch may ask in which epoch the next one is.

        Raises:
          TrialError: an epoch has no batch.
        """
        number = epoch = 0
        wanted = start
        ahead: list[Any] = []
        while True:
            began = number
            if epoch == len(self._starts):
                self._starts.append(began)
            for batch in self.epoch(epoch):
                number += 1
                if number - 1 == wanted:
                    wanted += step
                    yield from ahead
                    ahead = [batch]
            if number == began:
                yield from ahead  # which was there
                raise TrialError(_nothing(self._loader, epoch))
            epoch += 1

    def place(self, number: int) -> tuple[int, int]:
        """Returns the epoch of a batch, and its place there, each from 0.

        Of those that `run` has yielded, and of the next `step` ones.
        """
        epoch = bisect.bisect_right(self._starts, number) - 1
        return epoch, number - self._starts[epoch]

    @property
    def fingerprint(self) -> str:
        """A hash of what is known of the order."""
        loader = self._loader
        names = [type(each).__qualname__ for each in (loader, getattr(loader, "dataset", None))]
        workers = getattr(loader, "num_workers", 0)
        known = [self._seed, *names, workers, self.batches_per_epoch, self.records_per_batch]
        return hashlib.sha256(repr(known).encode()).hexdigest()


def _length(loader: Loader) -> int | None:
    try:
        return len(loader) or None
    except TypeError:
        return None


def _nothing(loader: Loader, epoch: int) -> str:
    if epoch:
        return (
            f"the training loader ({type(loader).__name__}) yields nothing in epoch {epoch + 1}: "
            "it can be read only once. Its __iter__ has to begin anew."
        )
    return (
        f"the training loader ({type(loader).__name__}) yields no batch. make_data_loaders should "
        "return a loader of a data set that is not empty."
    )
