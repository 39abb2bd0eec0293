"""The inputs of an example as one sequence: texts one after another, numbers, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.features import Features
from t2t_torch.layers.positions import sinusoids
from t2t_torch.layers.words import WordPlaces


class Joined(NamedTuple):
    """Several inputs as one sequence.

    Attributes:
      x: [B, S, H].
      mask: [B, S] bool.
      places: for each input the range of positions that it has, [first, last).
    """

    x: Tensor
    mask: Tensor
    places: dict[str, tuple[int, int]]


class JoinInputs(nn.Module):
    """Puts the inputs of an example into one sequence.

    Each text has positions of its own and, if there are several inputs, a vector that says which
    it is.  What is known of each word (its shape, its characters) is added at the word's first id.

    Args:
      features: the problem's; all inputs are joined.
      hidden_size: H.
      timing: whether sinusoids are added to texts.

    Attributes:
      names: the inputs that have positions of their own, in their order.
      places: where the words of texts stand.
    """

    def __init__(self, features: Features, hidden_size: int, *, timing: bool) -> None:
        super().__init__()
        inputs = features.inputs
        self._timing = timing
        self._of_words = {name: f.aligned_to for name, f in inputs.items() if f.aligned_to}
        self.names = [name for name in inputs if name not in self._of_words]
        self._texts = {name for name in self.names if inputs[name].is_sequence}
        self.places = WordPlaces(features)
        if len(self.names) > 1:
            table = torch.randn(len(self.names), hidden_size) * hidden_size**-0.5
            self.which = nn.Parameter(table)

    def forward(
        self,
        features: dict[str, Tensor],
        names: Sequence[str] | None = None,
        as_if: Mapping[str, str] | None = None,
    ) -> Joined:
        """Joins the inputs, or those that are named.

        Args:
          features: what `T2TModel.bottom` gives.
          names: of inputs, in the order in which they are joined; None is all.
          as_if: for an input the one whose vector says which it is, if not its own.
        """
        parts, masks = [], []
        places = {}
        end = 0
        for name in self.names if names is None else names:
            x = self._embedded(name, features)
            if len(self.names) > 1:
                x = x + self.which[self.names.index((as_if or {}).get(name, name))]
            parts.append(x)
            masks.append(features[f"{name}_mask"])
            places[name] = (end, end + x.size(1))
            end += x.size(1)
        return Joined(torch.cat(parts, 1), torch.cat(masks, 1), places)

    def segments(self, features: dict[str, Tensor]) -> Tensor | None:
        """Returns the segment of each position, all inputs; None if nothing is packed.  [B, S]."""
        if f"{self.names[0]}_segmentation" not in features:
            return None
        return torch.cat([features[f"{name}_segmentation"] for name in self.names], 1)

    def _embedded(self, name: str, features: dict[str, Tensor]) -> Tensor:
        """Returns an input with what is known of its words, and its positions.  [B, S, H]."""
        x = features[name]
        for word_feature, text in self._of_words.items():
            if text == name:
                x = x + self.places.at_ids(name, features[word_feature], x, features).to(x.dtype)
        if not self._timing or name not in self._texts:
            return x
        positions = features.get(f"{name}_position")
        if positions is None:
            positions = torch.arange(x.size(1), device=x.device)
        return x + sinusoids(positions, x.size(-1))
