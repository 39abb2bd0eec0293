"""BLEU of counted n-grams, as tensor2tensor counts it (`utils/bleu_hook.py`).  Imports no torch.

Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

ORDER = 4
"""Words of the longest n-grams."""

SIZE = 2 * ORDER + 2
"""How many numbers `bleu_counts` gives."""


def ngrams(tokens: Sequence[Hashable], order: int) -> Iterator[tuple[Hashable, ...]]:
    """Yields the n-grams of one length, in their order."""
    for start in range(len(tokens) - order + 1):
        yield tuple(tokens[start : start + order])


def bleu_counts(output: Sequence[Hashable], reference: Sequence[Hashable]) -> list[int]:
    """Returns what a pair adds to a corpus: such lists add up.

    Returns:
      the n-grams of each length that are right, those of the output, and both lengths, [SIZE].
    """
    right, found = [], []
    for order in range(1, ORDER + 1):
        ours, theirs = Counter(ngrams(output, order)), Counter(ngrams(reference, order))
        right.append((ours & theirs).total())
        found.append(ours.total())
    return [*right, *found, len(output), len(reference)]


def bleu_of(counts: Sequence[float]) -> float:
    """Returns the BLEU of added counts, 0 to 1.

    A length of which no n-gram is right counts 1 / 2^k of its n-grams at the k-th such length.  A
    length of which there are no n-grams at all is left out, but the root is still the fourth: so a
    corpus of one right word has 1.0, where sacreBLEU says 0.
    """
    right, found = counts[:ORDER], counts[ORDER : 2 * ORDER]
    output, reference = counts[2 * ORDER :]
    logs, missing = [], 1.0
    for matched, possible in zip(right, found, strict=True):
        if possible > 0 and matched > 0:
            logs.append(math.log(matched / possible))
        elif possible > 0:
            missing *= 2
            logs.append(-math.log(missing * possible))
    if not logs:
        return 0.0
    short = reference > output
    brevity = math.exp(1.0 - reference / output) if short else 1.0
    return math.exp(sum(logs) / ORDER) * brevity
