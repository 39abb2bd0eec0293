"""The vectors of a text's tokens, with what is known of its words beside them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from t2t_torch.features import Features, Text
from t2t_torch.layers.words import WordPlaces
from t2t_torch.token_hparam import TokenHParams


class Tokens(nn.Module):
    """Concatenates a token's own vector with those of its word's characters, shape, entries.

    Where a word has several ids, what is known of it stands at the first.

    Args:
      features: the problem's.
      hparams: the widths of the parts.
      text: the name of the input.

    Attributes:
      size: E, of a token's vector.
      places: where the words stand.
    """

    def __init__(self, features: Features, hparams: TokenHParams, text: str) -> None:
        super().__init__()
        self._text = text
        self._parts = [name for name, its in features.inputs.items() if its.aligned_to == text]
        widths = [hparams.input_width(features.inputs[name]) for name in (text, *self._parts)]
        self.size = sum(widths)
        self.places = WordPlaces(features)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """Returns the vectors of what `T2TModel.bottom` gives, zeros at padding.  [B, S, E]."""
        own = features[self._text]
        parts = [
            self.places.at_ids(self._text, features[name], own, features) for name in self._parts
        ]
        x = torch.cat([own, *(part.to(own.dtype) for part in parts)], -1) if parts else own
        return x * features[f"{self._text}_mask"][..., None].to(x.dtype)


def texts_of(features: Features) -> list[str]:
    """Returns the names of the inputs that are texts, in their order."""
    return [name for name, its in features.inputs.items() if isinstance(its, Text)]


def dense_of(features: Features) -> list[str]:
    """Returns the names of the inputs that are of a whole example, such as numbers."""
    return [
        name
        for name, its in features.inputs.items()
        if not isinstance(its, Text) and not its.aligned_to
    ]
