"""tensor2tensor's pieces of words as ids."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.files import staged
from t2t_torch.text.encoder import RESERVED_TOKENS, TextEncoder, check_unicode

# Texts as tokens, and tokens as what a subtoken vocabulary is made of.  tensor2tensor's way.
#
# A text is cut where letters and numbers begin or end.  A single space between two tokens is not
# kept: it comes back between two tokens of letters.  In the vocabulary a token ends with "_", and
# characters that the vocabulary has not are written as their code points, "\8217;".
# Source: tensor2tensor's `data_generators/tokenizer.py` and `text_encoder.py`.


END = "_"
"""What an escaped token ends with, and nothing else holds."""

ESCAPES = frozenset("\\_u;0123456789")
"""The characters that escapes are written with; every vocabulary has them."""

UNKNOWN = "\u3013"
"""What an escape of no character becomes: the sign for a character that cannot be set."""

# The characters of Unicode's classes L and N: what `\w` matches, but "_".  They are those of this
# Python, as tensor2tensor's were of its: Unicode 11.0 in Python 3.7.  Since then 6473 letters and
# numbers have come to Unicode 14.0, most of them rare Chinese ones and old scripts.
_TOKENS = re.compile(r"[^\W_]+|[\W_]+")
_ESCAPE = re.compile(r"\\(?:(u)|(\\)|([0-9]+);)")
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def split(text: str) -> list[str]:
    """Returns the tokens of a text; none is empty."""
    tokens: list[str] = _TOKENS.findall(text)
    if " " not in tokens[1:-1]:
        return tokens
    return [*tokens[:1], *(token for token in tokens[1:-1] if token != " "), *tokens[-1:]]


def join(tokens: Iterable[str]) -> str:
    """Returns the text of tokens; `join(split(text)) == text` for every text."""
    parts: list[str] = []
    after_letters = False
    for token in tokens:
        letters = token[0].isalnum()
        if letters and after_letters:
            parts.append(" ")
        parts.append(token)
        after_letters = letters
    return "".join(parts)


def escape(token: str, alphabet: Collection[str]) -> str:
    r"""Returns a token as a vocabulary with this alphabet writes it; "\n" is in no alphabet."""
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    if not all(map(alphabet.__contains__, token)) or "\n" in token:
        token = "".join(c if c in alphabet and c != "\n" else f"\\{ord(c)};" for c in token)
    return token + END


def unescape(escaped: str) -> str:
    """Returns the token that was escaped, or the best for what no token escapes to."""
    return _ESCAPE.sub(_unescaped, escaped.removesuffix(END))


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return "_"
    if match[2]:
        return "\\"
    digits = match[3].lstrip("0")  # no number of many digits is read: it would take its time
    code_point = int(digits or "0") if len(digits) < 8 else _LAST_CODE_POINT + 1
    known = code_point <= _LAST_CODE_POINT and code_point not in _SURROGATES
    return chr(code_point) if known else UNKNOWN


# How a vocabulary of subtokens is learnt from the counts of tokens.  tensor2tensor's way.
#
# Source: tensor2tensor's `SubwordTextEncoder.build_to_target_size`.


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
    alphabet = {c for token in (*counts, *reserved) for c in token} | ESCAPES
    alphabet -= _LINE_BREAKS
    escaped = {escape(token, alphabet): count for token, count in counts.items()}
    first = [escape(token, alphabet) for token in reserved]
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


# Words repeat: looking one up is 5 times as fast as cutting it.
_MAX_CACHED = 1 << 18
_MAX_CACHED_LENGTH = 64


class SubtokenEncoder(TextEncoder):
    """Pieces of tokens (`tokenizer.split`), each the longest that the vocabulary has.

    `decode(encode(text)) == text` for every Unicode text, also with characters that the vocabulary
    has not.  No piece spans a space.  The names of the reserved ids are texts like any other.  Ids
    outside the vocabulary decode to nothing.
    Source: tensor2tensor's `SubwordTextEncoder`: the same files, ids and texts.

    Args:
      subtokens: the vocabulary; an entry's place is its id, and the last of equal ones counts.

    Raises:
      DataError: it does not start with tensor2tensor's reserved tokens.
    """

    def __init__(self, subtokens: Sequence[str]) -> None:
        self._subtokens = list(subtokens)
        expected = [name + END for name in RESERVED_TOKENS]
        if self._subtokens[: len(expected)] != expected:
            raise DataError(
                f"A subtoken vocabulary starts with {' and '.join(expected)}; this one starts with "
                f"{self._subtokens[: len(expected)]}."
            )
        self._ids = {piece: i for i, piece in enumerate(self._subtokens) if piece}
        self._longest = longest_by_start(self._ids)
        self._alphabet = {c for piece in self._subtokens for c in piece} | ESCAPES
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def load(cls, path: Path) -> SubtokenEncoder:
        r"""Reads a vocabulary file of tensor2tensor: an entry a line, in quotes or not.

        Only "\n" ends a line, and "\r" is dropped wherever it is: an entry may hold U+2028 and the
        like.

        Raises:
          DataError: the file is missing, not UTF-8, or no such vocabulary.
        """
        try:
            text = path.read_bytes().decode()
            return cls(_entries(text))
        except OSError as error:
            raise DataError(f"Cannot read the vocabulary {path}: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is no subtoken vocabulary: its byte {error.start + 1} is not UTF-8. "
                "Copy the file from tensor2tensor's data folder again."
            ) from None
        except DataError as error:
            raise DataError(
                f"{path}: {error} Copy the file from tensor2tensor's data folder again."
            ) from None

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, path: Path) -> SubtokenEncoder:
        """Learns a vocabulary as tensor2tensor does and writes its file.

        Args:
          texts: read once; the counts of their tokens have to fit in memory.
          vocab_size: about how many ids; the alphabet of the texts alone may need more.
          path: where the file is written, whole or not at all.

        Raises:
          DataError: there is no text.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            check_unicode(text)
            counts.update(split(text))
        if not counts:
            raise DataError("No text to learn a vocabulary from. Are the raw files empty?")
        encoder = cls(learn(counts, vocab_size))
        encoder.save(path)
        return encoder

    def save(self, path: Path) -> None:
        """Writes the vocabulary as tensor2tensor stores it, whole or not at all."""
        text = "".join(f"'{piece}'\n" for piece in self._subtokens)
        with staged(path) as temporary:
            temporary.write_bytes(text.encode())

    @property
    def vocab_size(self) -> int:
        """The number of entries."""
        return len(self._subtokens)

    @property
    def subtokens(self) -> list[str]:
        """The entries, as in the file."""
        return list(self._subtokens)

    @property
    def alphabet(self) -> frozenset[str]:
        """The characters that are not written by number, but for a line's end."""
        return frozenset(self._alphabet)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text.

        Raises:
          DataError: it holds a lone surrogate, or the vocabulary lacks a character of the escapes.
        """
        tokens = split(text)
        found = [self._cache.get(token) for token in tokens]
        if None in found:
            check_unicode(text)
        ids: list[int] = []
        for token, known in zip(tokens, found, strict=True):
            ids += self._look_up(token) if known is None else known
        return ids

    def encode_without_tokenizing(self, text: str) -> list[int]:
        """Returns the ids of a text taken as one token, whose pieces may span spaces.

        The names of the reserved ids become those ids, as in tensor2tensor.
        """
        check_unicode(text)
        return list(self._look_up(text))

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each word: with the space before it, where decoding adds none."""
        batch = []
        after_letters = False
        for index, word in enumerate(words):
            given = index == 0 or (after_letters and word[:1].isalnum())
            batch.append(self.encode(word if given else f" {word}"))
            after_letters = word[-1:].isalnum()
        return batch

    def _decode(self, ids: list[int]) -> str:
        known = range(len(self._subtokens))
        escaped = "".join(self._subtokens[i] for i in ids if i in known)
        tokens = (unescape(part) for part in escaped.split(END))
        return join(token for token in tokens if token)

    def _look_up(self, token: str) -> list[int]:
        escaped = escape(token, self._alphabet)
        ids = [self._ids[p] for p in cut(escaped, self._ids, self._longest)]
        if len(token) <= _MAX_CACHED_LENGTH:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[token] = ids
        return ids

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the vocabulary alone."""
        return SubtokenEncoder, (self._subtokens,)


def holds_subtokens(path: Path) -> bool:
    """Whether a file starts as tensor2tensor's subtoken vocabularies do."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise DataError(f"Cannot read the vocabulary {path}: {error.strerror}.") from None
    return head.lstrip(b"'\"").startswith(RESERVED_TOKENS[0].encode())


def _entries(text: str) -> list[str]:
    lines = text.replace("\r", "").removesuffix("\n").split("\n")
    return [_unquoted(line.rstrip()) for line in lines]


def _unquoted(line: str) -> str:
    quoted = line[:1] in ("'", '"') and line[:1] == line[-1:]
    return line[1:-1] if quoted else line
