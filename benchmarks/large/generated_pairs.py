"""A problem as large as one asks: pairs of short made-up sentences, for benchmarks of size."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_torch.mode import Split
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2TextProblem

ROWS = "T2T_GENERATED_PAIRS"
"""The environment variable that says how many pairs of training."""

_ONSETS = "b c d f g h k l m n p r s t v w br dr gr pl st tr".split()
_NUCLEI = "a e i o u ai ou".split()
_NUM_WORDS = 20_000
_NUM_PHRASES = 50_000  # of two words
_SHORTEST, _LONGEST = 3, 7  # phrases of a sentence: 10 words on average
_BLOCK = 1 << 10  # pairs drawn at once


@register_problem
class GeneratedPairs(Text2TextProblem):
    """Two sentences of made-up words, which have nothing to do with each other."""

    approx_vocab_size = 2**13
    shards = {Split.TRAIN: 100, Split.EVAL: 1}  # noqa: RUF012 -- as users write it
    setting_names = (*Text2TextProblem.setting_names, "rows")

    @property
    def rows(self) -> int:
        """How many pairs of training there are."""
        return int(os.environ.get(ROWS, "1000000"))

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the pairs, the same each time."""
        draw = random.Random(f"generated pairs {split.value}")
        words = _words()
        pairs = _pairs(draw, _phrases(words))
        for inputs, targets in itertools.islice(pairs, self.rows if split is Split.TRAIN else 1000):
            yield {"inputs": inputs, "targets": targets}


def _words() -> list[str]:
    """Made-up words of one to four syllables."""
    draw = random.Random("words")
    words: dict[str, None] = {}
    while len(words) < _NUM_WORDS:
        count = draw.choice((1, 2, 2, 2, 3, 3, 4))
        words["".join(draw.choice(_ONSETS) + draw.choice(_NUCLEI) for _ in range(count))] = None
    return list(words)


def _phrases(words: list[str]) -> list[str]:
    """Pairs of words, as drawing words one by one would take longer than encoding them."""
    draw = random.Random("phrases")
    return [" ".join(draw.choices(words, k=2)) for _ in range(_NUM_PHRASES)]


def _pairs(draw: random.Random, phrases: list[str]) -> Iterator[tuple[str, str]]:
    """Yields pairs of sentences without end."""
    while True:
        counts = draw.choices(range(_SHORTEST, _LONGEST + 1), k=2 * _BLOCK)
        drawn = draw.choices(phrases, k=sum(counts))
        edges = list(itertools.accumulate(counts, initial=0))
        sentences = [" ".join(drawn[a:b]) for a, b in itertools.pairwise(edges)]
        yield from zip(sentences[::2], sentences[1::2], strict=True)
