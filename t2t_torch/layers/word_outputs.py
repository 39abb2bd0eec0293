"""What models of words give their targets."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from t2t_torch.features import Features
from t2t_torch.layers.dense import beside_dense
from t2t_torch.layers.tokens import dense_of
from t2t_torch.layers.words import WordPlaces


class WordOutputs:
    """Gives each target a vector of every word, and tells where words are.

    Args:
      features: the problem's.
      text: the name of the input whose words they are.
      targets: the names of the targets that are of words; all if not given.
    """

    def __init__(self, features: Features, text: str, targets: Iterable[str] | None = None) -> None:
        self._text = text
        self._targets = list(features.targets if targets is None else targets)
        self._dense = dense_of(features)
        self._places = WordPlaces(features)

    def at_words(self, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Returns what stands at the first id of each word.  [B, S, H] -> [B, W, H].

        Args:
          hidden: a vector of each id.
          features: what `T2TModel.bottom` gives.
        """
        return self._places.at_words(self._text, hidden, features)

    def __call__(self, words: Tensor, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns what `T2TModel.body` does: [B, W, H'] and a mask, [B, W] bool, of each target.

        Args:
          words: a vector of each word, [B, W, H]; the example's numbers are put beside it.
          features: what `T2TModel.bottom` gives.
        """
        words = beside_dense(words, self._dense, features)
        there = self._places.mask(self._text, features)
        found: dict[str, Tensor] = {}
        for name in self._targets:
            found |= {name: words, f"{name}_mask": there}
        return found
