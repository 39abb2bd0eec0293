"""How much of the input a hypothesis has attended to.

Wu et al. 2016, "Google's Neural Machine Translation System", arXiv:1609.08144, section 7,
equation 14.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from t2t_torch.errors import HParamsError
from t2t_torch.layers.attended import Attended, Attending

_LEAST = 1e-30  # of what a word was attended to, so that its logarithm is a number


class Coverage:
    """Adds up what hypotheses attend to, and says what is taken off their scores for the rest.

    Used for one search.

    Args:
      beta: how much it counts; 0.2 is what Wu et al. found best.
    """

    def __init__(self, beta: float) -> None:
        self.beta = beta
        self._sums: Tensor | None = None  # [R, S]
        self._mask: Tensor | None = None  # [R, S]

    def begin(self, state: Any) -> Any:
        """Returns a state whose steps tell what they attend to.

        Raises:
          HParamsError: the model has no attention to its input.
        """
        watched = state.watched() if isinstance(state, Attending) else None
        if watched is None:
            raise HParamsError(
                f"coverage_penalty={self.beta}: the model does not attend to its input word by "
                "word, so nothing is known of what it has covered. Expected a transformer with an "
                "encoder or lstm_seq2seq_attention; set coverage_penalty=0."
            )
        return watched

    def add(self, attended: Attended | None) -> None:
        """Adds what the last step attended to."""
        assert attended is not None, "the state is watched"
        weights = attended.weights.float()
        self._sums = weights if self._sums is None else self._sums + weights
        self._mask = attended.mask

    def reorder(self, index: Tensor) -> None:
        """Keeps the hypotheses of these numbers, in this order."""
        if self._sums is not None:
            self._sums = self._sums.index_select(0, index)

    def penalty(self) -> Tensor:
        """Returns what is added to the score of each hypothesis if it ends here: [R], not above 0.

        beta * sum over the input of log(min(attention to it so far, 1)).
        """
        assert self._sums is not None and self._mask is not None, "at least one step is done"
        logarithms = self._sums.clamp(_LEAST, 1.0).log()
        return self.beta * (logarithms * self._mask).sum(-1)
