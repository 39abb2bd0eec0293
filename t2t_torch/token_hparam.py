"""Hyperparameters of models of words: how wide the vectors of a token are, part by part.

A token's vector is its own beside those of what is known of its word, concatenated; see
`layers/tokens.py`.
"""

from __future__ import annotations

from t2t_torch.features import Feature, Gazetteer, Real, Text, WordCharacters, WordShape
from t2t_torch.hparam import HParams
from t2t_torch.params import hp


class TokenHParams(HParams):
    """Tokens: the parts of their vectors."""

    embedding_size: int = hp(100, "Width of a token's own vector.", low=1)
    character_size: int = hp(50, "Width of what a word's characters or bytes add.", low=1)
    shape_size: int = hp(8, "Width of what a word's shape adds.", low=1)
    gazetteer_size: int = hp(16, "Width of what a word's gazetteer entries add.", low=1)
    dense_size: int = hp(16, "Width of what the numbers of an example become.", low=1)

    def input_width(self, feature: Feature) -> int:
        """Returns the width of the part that a feature is."""
        for kind, width in (
            (Text, self.embedding_size),
            (WordCharacters, self.character_size),
            (WordShape, self.shape_size),
            (Gazetteer, self.gazetteer_size),
            (Real, self.dense_size),
        ):
            if isinstance(feature, kind):
                return width
        return self.hidden_size
