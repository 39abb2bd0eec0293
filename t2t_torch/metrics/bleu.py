"""BLEU from n-gram counts, as in tensor2tensor (`utils/bleu_hook.py`).  Imports no torch.

Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

ORDER = 4
"""Maximum n-gram length."""

SIZE = 2 * ORDER + 2
"""Length of the result of `bleu_counts`."""


def ngrams(tokens: Sequence[Hashable], order: int) -> Iterator[tuple[Hashable, ...]]:
    """Yields the n-grams of one length, in order."""
    for start in range(len(tokens) - order + 1):
        yield tuple(tokens[start : start + order])


def bleu_counts(output: Sequence[Hashable], reference: Sequence[Hashable]) -> list[int]:
    """Returns the additive counts of an output and its reference.

    Returns:
      matching n-grams of each length, n-grams of the output, and both lengths, [SIZE].
    """
    right, found = [], []
    for order in range(1, ORDER + 1):
        ours, theirs = Counter(ngrams(output, order)), Counter(ngrams(reference, order))
        right.append((ours & theirs).total())
        found.append(ours.total())
    return [*right, *found, len(output), len(reference)]


def bleu_of(counts: Sequence[float]) -> float:
    """Returns the BLEU of summed counts, 0 to 1.

    A length without matching n-grams counts 1 / 2^k of its n-grams at the k-th such length.  A
    length without any n-grams is skipped, but the root is still the fourth: a corpus of one correct
    word has 1.0, where sacreBLEU returns 0.
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
