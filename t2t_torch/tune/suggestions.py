"""Which hyperparameters are tried next: drawn, from a grid, or where others were good.

A suggestion is a function of the plan, the trial's number and what is known of the others; no
generator is kept, so that a search that was killed goes on as if it had not been.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from t2t_torch.tune.space import Space, Value

_DRAWS = 100
"""So often it is drawn again where all that was drawn is taken."""


class Tried(NamedTuple):
    """What is known of a trial.

    Attributes:
      hparams: dotted name -> value.
      loss: at the end of its training, less is better; infinity if it failed; None if it is not
        known yet.
    """

    hparams: Mapping[str, Value]
    loss: float | None


class Suggester(Protocol):
    """Says what a trial tries."""

    def suggest(self, number: int, tried: Sequence[Tried]) -> dict[str, Value] | None:
        """Returns the hyperparameters of a trial; None if there is nothing new left to try.

        Args:
          number: of the trial.
          tried: the trials before it, the default among them.
        """
        ...


class Drawn:
    """Draws each value by itself; what was tried before is drawn again."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def suggest(self, number: int, tried: Sequence[Tried]) -> dict[str, Value] | None:
        """Returns what was not tried yet."""
        taken = {key(one.hparams) for one in tried}
        rng = random.Random(f"{self._seed}/{number}")
        for _ in range(_DRAWS):
            drawn = self._space.sample(rng)
            if key(drawn) not in taken:
                return drawn
        return None


class OfGrid:
    """Takes one combination after another."""

    def __init__(self, space: Space, *, has_default: bool) -> None:
        self._space = space
        self._offset = int(has_default)

    def suggest(self, number: int, tried: Sequence[Tried]) -> dict[str, Value] | None:
        """Returns the combination of this number; the default is none of them."""
        del tried
        place = number - self._offset
        return next(itertools.islice(self._space.grid(), place, None), None)


def key(hparams: Mapping[str, Value]) -> str:
    """Returns a text that equal hyperparameters have in common, whatever their order."""
    return json.dumps(_plain(hparams), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return value
