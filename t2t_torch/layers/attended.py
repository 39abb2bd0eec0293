"""What a step of a decode attends to, for whoever wants to know."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor


class Attended(NamedTuple):
    """What the last step looked at in the input.

    Attributes:
      weights: [R, S], of each row to each place of the input; a row sums to 1.
      mask: [R, S] bool, True where there is input.
    """

    weights: Tensor
    mask: Tensor


@runtime_checkable
class Attending(Protocol):
    """A `State` of a model that may attend to its input.

    Attributes:
      attended: of the last step; None unless the state is watched.
    """

    attended: Attended | None

    def watched(self) -> Any | None:
        """Returns a state whose steps tell what they attend to; None if they attend to nothing."""
