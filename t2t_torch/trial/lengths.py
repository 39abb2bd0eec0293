"""How long to train and how often to validate, in the units of an experiment's configuration."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from t2t_torch.errors import ConfigError

Unit = Literal["steps", "batches", "records", "epochs"]
UNITS: tuple[Unit, ...] = ("batches", "records", "epochs")
"""What `max_length` and periods may be counted in; PEDL's older keys count steps of batches."""


@dataclasses.dataclass(frozen=True)
class Length:
    """A length of training.

    Attributes:
      amount: how many.
      unit: of what.  "steps" are PEDL's, of `batches_per_step` batches each; not of the optimizer.
    """

    amount: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.amount:,} {self.unit}"


@dataclasses.dataclass(frozen=True)
class Scale:
    """What an optimizer step of a run consists of.

    An optimizer step takes `aggregation_frequency` batches in every process.  Records and epochs
    are of all processes together.  Batches and PEDL's steps are counted in one process: they say
    how often the model is changed, however many processes share the work.

    Attributes:
      batches_per_step: batches in one of PEDL's steps.
      aggregation_frequency: batches of which the gradients are put together, in each process.
      world_size: processes.
      records_per_batch: items in a batch of the training loader.
      batches_per_epoch: batches that the training loader has; None if it does not tell.
    """

    batches_per_step: int = 100
    aggregation_frequency: int = 1
    world_size: int = 1
    records_per_batch: float = 1.0
    batches_per_epoch: int | None = None

    def steps(self, length: Length, key: str = "searcher.max_length") -> int:
        """Returns the optimizer steps of a length, rounded up: at least 1.

        Args:
          length: above 0.
          key: where it stands, for the error.

        Raises:
          ConfigError: the length is in epochs, and the loader has no length.
        """
        return max(1, math.ceil(self._exact(length, key) - 1e-9))

    def period(self, length: Length, key: str) -> int:
        """Returns the optimizer steps of a period, rounded down: at most so much, at least 1.

        Args:
          length: above 0.
          key: where it stands, for the error.

        Raises:
          ConfigError: the length is in epochs, and the loader has no length.
        """
        return max(1, math.floor(self._exact(length, key) + 1e-9))

    def _exact(self, length: Length, key: str) -> float:
        # Of every process in an optimizer step; and of all of them.
        in_one, in_all = self.aggregation_frequency, self.aggregation_frequency * self.world_size
        if length.unit == "steps":
            return length.amount * self.batches_per_step / in_one
        if length.unit == "batches":
            return length.amount / in_one
        if length.unit == "records":
            return length.amount / (in_all * self.records_per_batch)
        if self.batches_per_epoch is None:
            raise ConfigError(
                f"{key} is {length}, but the training loader has no length, so it is not known how "
                f"long an epoch is. Give {key} in batches or records, set records_per_epoch, or "
                "give the loader a __len__."
            )
        return length.amount * self.batches_per_epoch / in_all
