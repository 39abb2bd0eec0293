"""Batches of given indices, read through a loader's data set and `collate_fn`.

torch's own `DataLoader` does the reading ahead, in as many processes as the user's loader asks for;
with `num_workers=0` each batch is made when it is asked for.  Not in threads: data code draws from
global generators, which threads share with the model.
"""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from absl import logging
from torch.utils import data

from t2t_torch.trial.epoch_orders import Loader, as_it_is
from t2t_torch.trial.item_randomness import isolated, mix

Place = tuple[int, int, list[Any]]
"""An epoch, a batch's place there, and its indices."""


class Fetcher(data.Dataset[Any]):
    """A data set whose items are whole batches, by place.

    Each batch is made under seeds of its own, (seed, purpose, epoch, place): what items draw is the
    same in every process, and however often the run has stopped before.

    Args:
      loader: whose data set and `collate_fn` make batches.
      seed: of the run.
      purpose: "batch" in training; another one for what should draw other numbers.
    """

    def __init__(self, loader: Loader, seed: int, purpose: str) -> None:
        self.dataset = loader.dataset
        self._collate = loader.collate_fn
        self._collates = loader.batch_sampler is not None
        self._seed = seed
        self._purpose = purpose

    def __getitem__(self, place: Place) -> Any:
        """Returns a batch."""
        epoch, number, indices = place
        with isolated(mix(self._seed, self._purpose, epoch, number)):
            if not self._collates:
                return self._collate(self.dataset[indices[0]])
            several = getattr(self.dataset, "__getitems__", None)
            if several:
                return self._collate(several(indices))
            return self._collate([self.dataset[index] for index in indices])


def fetched(loader: Loader, places: Iterable[Place], seed: int, purpose: str) -> Iterator[Any]:
    """Yields the batches at places, in order.

    Args:
      loader: the user's: its workers, their start, pinning and time limit are kept.  The workers
        of training live as long as it does, those of an evaluation as long as that.
      places: where the batches are; read a few ahead where there are workers.
      seed: of the run.
      purpose: as in `Fetcher`.
    """
    workers = getattr(loader, "num_workers", 0)
    of_workers: dict[str, Any] = {}
    if not getattr(loader, "in_order", True):
        told = "The loader's in_order=False is not followed: the order of batches must not change."
        logging.log_first_n(logging.WARNING, told, 1)
    if purpose == "evaluation" and getattr(loader, "persistent_workers", False):
        told = "The loader's persistent_workers=True is not followed: an evaluation ends its own."
        logging.log_first_n(logging.WARNING, told, 1)
    if workers:
        of_workers = {
            "multiprocessing_context": getattr(loader, "multiprocessing_context", None),
            "prefetch_factor": getattr(loader, "prefetch_factor", None),
            "worker_init_fn": _Beginning(getattr(loader, "worker_init_fn", None)),
            "timeout": getattr(loader, "timeout", 0),
        }
    reader: data.DataLoader[Any] = data.DataLoader(
        Fetcher(loader, seed, purpose),
        batch_size=None,
        sampler=_Places(places),
        num_workers=workers,
        collate_fn=as_it_is,
        pin_memory=getattr(loader, "pin_memory", False),
        # So that the workers' first seeds are not drawn from the model's generator.
        generator=torch.Generator().manual_seed(mix(seed, "workers")),
        **of_workers,
    )
    return _read(reader)


def _read(reader: data.DataLoader[Any]) -> Iterator[Any]:
    """Yields the batches of a loader; its workers end when the reading does."""
    batches = iter(reader)
    end = getattr(batches, "_shutdown_workers", None)
    if end is None:  # no workers
        yield from batches
        return
    # By hand, also after an error and at exit: when the garbage collector comes to it, the queues
    # are closed before the workers are told, and each is waited for in vain for seconds.
    atexit.register(end)
    try:
        yield from batches
    finally:
        atexit.unregister(end)
        end()


class _Places(data.Sampler[Place]):
    """Places as a sampler; there may be no end of them."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._places = places

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)


class _Beginning:
    """What a worker process does first.

    A signal to stop often goes to all processes of a group.  The trainer then saves and ends its
    workers; without them it could not finish its step.

    Args:
      worker_init_fn: the user's.
    """

    def __init__(self, worker_init_fn: Callable[[int], None] | None) -> None:
        self._init = worker_init_fn

    def __call__(self, worker: int) -> None:
        info = data.get_worker_info()
        assert info is not None
        # What the user's code asks for is the user's data set, not the one that reads it.
        dataset = info.dataset.dataset  # type: ignore[attr-defined]
        object.__setattr__(info, "dataset", dataset)  # its class is frozen
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, _let_pass)
        if self._init is not None:
            self._init(worker)


def _let_pass(number: int, frame: FrameType | None) -> None:
    """Lets a first signal pass; a second one of its kind ends the process."""
    signal.signal(number, signal.SIG_DFL)
