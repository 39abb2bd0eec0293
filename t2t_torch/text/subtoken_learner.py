"""How a vocabulary of subtokens is learnt from the counts of tokens.  tensor2tensor's way.

Source: tensor2tensor's `SubwordTextEncoder.build_to_target_size`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from t2t_torch.errors import DataError
from t2t_torch.text import tokenizer
from t2t_torch.text.encoder import RESERVED_TOKENS

# tensor2tensor's, of Text2TextProblem and SubwordTextEncoder.build_from_generator.
MAX_LENGTH = 200
NUM_ROUNDS = 4
_LEAST_COUNTS = (1, 1000)

# A vocabulary's file has an entry a line, so no entry may hold these.  tensor2tensor took them into
# its alphabet, and could not read the file back.
_LINE_BREAKS = frozenset("\n\r")


def learn(
    counts: Mapping[str, int],
    size: int,
    *,
    reserved: Sequence[str] = RESERVED_TOKENS,
    max_length: int | None = MAX_LENGTH,
    least_counts: tuple[int, int] = _LEAST_COUNTS,
) -> list[str]:
    """Returns a vocabulary of about `size` subtokens; their numbers are their ids.

    The least count of a subtoken is searched for, by halves, until the size is within 1 %.

    Args:
      counts: how often each token is there.
      size: how many subtokens are wanted; the alphabet alone may be more.
      reserved: the names of the first ids.
      max_length: of a subtoken, in characters, not reached; None for any.
      least_counts: between which the least count is searched for.
    """
    low, high = least_counts
    best: list[str] = []
    while True:
        least = (low + high) // 2
        found = build(counts, least, reserved=reserved, max_length=max_length)
        # Where two are equally near, tensor2tensor keeps the one found first.
        if not best or abs(len(found) - size) < abs(len(best) - size):
            best = found
        if abs(len(found) - size) * 100 < size or low >= high or least < 2:
            return best
        if len(found) > size:
            low = least + 1
        else:
            high = least - 1


def build(
    counts: Mapping[str, int],
    least_count: int,
    *,
    num_rounds: int = NUM_ROUNDS,
    reserved: Sequence[str] = RESERVED_TOKENS,
    max_length: int | None = None,
) -> list[str]:
    """Returns the vocabulary of all subtokens that are there often enough, the frequent first.

    In each round the tokens are cut with the vocabulary of the last; what begins at a cut is
    counted, whatever its end.  A subtoken that is taken takes its count from all its beginnings.

    Args:
      counts: how often each token is there.
      least_count: how often a subtoken must be there; each character is taken all the same.
      num_rounds: how many vocabularies are made, each from the last.
      reserved: the names of the first ids.
      max_length: of a subtoken, in characters, not reached; None for any.
    """
    alphabet = {c for token in (*counts, *reserved) for c in token} | tokenizer.ESCAPES
    alphabet -= _LINE_BREAKS
    escaped = {tokenizer.escape(token, alphabet): count for token, count in counts.items()}
    first = [tokenizer.escape(token, alphabet) for token in reserved]
    known: Collection[str] = alphabet
    vocabulary: list[str] = []
    for _ in range(num_rounds):
        found = _count_beginnings(escaped, known, max_length)
        taken = _take(found, max(least_count, 1))
        ranked = [(count, piece) for piece, count in taken.items() if piece not in alphabet]
        ranked += [(found.get(character, 0), character) for character in alphabet]
        vocabulary = first + [piece for _, piece in sorted(ranked, reverse=True)]
        known = set(vocabulary)
    return vocabulary


def longest_by_start(known: Iterable[str]) -> dict[str, int]:
    """Returns for each character how many the longest entry that begins with it has."""
    longest: dict[str, int] = {}
    for piece in known:
        if len(piece) > longest.get(piece[:1], 0):
            longest[piece[:1]] = len(piece)
    return longest


def cut(escaped: str, known: Collection[str], longest: Mapping[str, int]) -> list[str]:
    """Cuts an escaped token: from the left, each piece the longest that is known.

    Args:
      escaped: a token as `tokenizer.escape` gives it.
      known: the vocabulary.
      longest: its `longest_by_start`.

    Raises:
      DataError: a character is not in the vocabulary.
    """
    pieces = []
    start, stop = 0, len(escaped)
    while start < stop:
        reach = longest.get(escaped[start], 0)
        for end in range(min(stop, start + reach), start, -1):
            piece = escaped[start:end]
            if piece in known:
                pieces.append(piece)
                start = end
                break
        else:
            raise DataError(
                f"The subtoken vocabulary has no entry for the character {escaped[start]!r}, which "
                f"{escaped!r} is to be written with. It was cut or altered: use the whole file."
            )
    return pieces


def _count_beginnings(
    escaped: Mapping[str, int], known: Collection[str], max_length: int | None
) -> dict[str, int]:
    """Counts what begins where a piece of a token does, one character short of `max_length`."""
    longest = longest_by_start(known)
    found: defaultdict[str, int] = defaultdict(int)
    for token, count in escaped.items():
        start = 0
        for piece in cut(token, known, longest):
            stop = len(token) + 1
            if max_length is not None:
                stop = min(stop, start + max_length)
            for end in range(start + 1, stop):
                found[token[start:end]] += count
            start += len(piece)
    return found


def _take(found: dict[str, int], least_count: int) -> dict[str, int]:
    """Takes what is frequent, long before short; `found` loses the counts of what is taken."""
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for piece, count in found.items():
        if count >= least_count:
            by_length[len(piece)].append(piece)
    taken = {}
    for length in sorted(by_length, reverse=True):
        for piece in by_length[length]:
            count = found[piece]
            if count >= least_count:
                taken[piece] = count
                for end in range(1, length):
                    found[piece[:end]] -= count
    return taken
