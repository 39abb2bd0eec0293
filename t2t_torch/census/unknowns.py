"""What a vocabulary has no id for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from t2t_torch.census.column import Column
from t2t_torch.census.labels import id_counts
from t2t_torch.features import Feature, Text, WordCharacters
from t2t_torch.text.character import CharacterEncoder
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.transition import TransitionEncoder

_LOOKED_AT = 20_000
"""Unknown places of a split that examples are taken from, the first ones."""
_EXAMPLES = 8


@dataclass(frozen=True)
class Unknowns:
    """The ids of a text of one split, and those of them that stand for what is unknown.

    Attributes:
      noun: what is counted.
      tokens: ids of the texts, padding and ends of texts not counted.
      unknown: those that stand for what has no id of its own.
      rows: rows with such an id.
      first_row: the first of them; -1 if there is none.
      most_frequent: what is unknown and how often, where that is known; of the first
        twenty thousand places.
      used: how many different ids there are.
    """

    noun: str
    tokens: int
    unknown: int
    rows: int
    first_row: int
    most_frequent: tuple[tuple[str, int], ...]
    used: int

    @property
    def share(self) -> float:
        """Unknown ones among all."""
        return self.unknown / max(1, self.tokens)


def unknowns_of(
    feature: Text, column: Column, characters: tuple[WordCharacters, Column] | None = None
) -> Unknowns:
    """Counts ids.

    Args:
      feature: of the texts.
      column: their ids.
      characters: the characters of each word, if the data has them and a word has one id.
    """
    encoder = feature.encoder
    unknown = np.zeros(encoder.vocab_size, bool)
    unknown[list(encoder.unknown_ids)] = True
    counts = np.zeros(encoder.vocab_size, np.int64)
    rows_with, first_row, looked_at = 0, -1, 0
    seen: Counter[str] = Counter()
    for first, rows in column.blocks():
        counts += id_counts(rows.values, encoder.vocab_size)
        marks = unknown[rows.values]
        places = np.flatnonzero(marks)
        if not len(places):
            continue
        owners = np.unique(np.searchsorted(rows.offsets, places, side="right") - 1)
        rows_with += len(owners)
        first_row = first + int(owners[0]) if first_row < 0 else first_row
        places = places[: max(0, _LOOKED_AT - looked_at)]
        looked_at += len(places)
        if isinstance(encoder, SubwordEncoder):
            runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
            for run in runs if len(places) else ():
                seen.update(encoder.decode(rows.values[run]))
        elif characters is not None and len(places):
            owner = np.searchsorted(rows.offsets, places, side="right") - 1
            words = places - rows.offsets[owner]
            seen.update(_spelt(*characters, (owner + first).tolist(), words.tolist()))
    return Unknowns(
        noun=_noun(feature),
        tokens=int(counts.sum() - counts[PAD] - counts[EOS]),
        unknown=int(counts[unknown].sum()),
        rows=rows_with,
        first_row=first_row,
        most_frequent=tuple(seen.most_common(_EXAMPLES)),
        used=int(np.count_nonzero(counts)),
    )


def _spelt(feature: WordCharacters, column: Column, rows: list[int], words: list[int]) -> list[str]:
    """The first characters of words, by row and place."""
    width = feature.width
    return [
        feature.encoder.decode(column.row(row)[word * width : (word + 1) * width])
        for row, word in zip(rows, words, strict=True)
    ]


def _noun(feature: Feature) -> str:
    encoder = feature.encoder if isinstance(feature, Text) else None
    if isinstance(encoder, SubwordEncoder):
        return "byte fallback"
    if isinstance(encoder, TransitionEncoder):
        return "unknown labels"
    return "unknown characters" if isinstance(encoder, CharacterEncoder) else "unknown words"
