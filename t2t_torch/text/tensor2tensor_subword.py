"""Subword vocabularies of tensor2tensor: encoding, files and training (`SubtokenEncoder.train`).

A text is split where runs of letters and numbers begin or end.  A single space between two tokens
of letters is dropped and restored on decoding.  In the vocabulary a token ends with "_", and
characters outside the alphabet are written as code points, "\\8217;".  Source: tensor2tensor's
`data_generators/tokenizer.py` and `text_encoder.py`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.atomic_files import write_text
from t2t_torch.errors import DataError
from t2t_torch.files import MAX_VOCABULARY, open_regular, read_bytes
from t2t_torch.text.encoder import RESERVED_TOKENS, TextEncoder, check_unicode, vocabulary_errors

END = "_"
"""The end marker of an escaped token; occurs nowhere else."""

ESCAPES = frozenset("\\_u;0123456789")
"""The characters used in escapes; part of every vocabulary."""

UNKNOWN = "\u3013"
"""Replacement for an escape of an invalid code point: the sign for an undisplayable character."""

# Characters of the Unicode classes L and N: those that `\w` matches, except "_".  They depend on
# the Python version; tensor2tensor's were Unicode 11.0 in Python 3.7.  Unicode 14.0 has 6473 more
# letters and numbers, mostly rare Chinese characters and historic scripts.
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
    r"""Returns a token with characters outside the alphabet escaped; "\n" is always escaped."""
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    if not all(map(alphabet.__contains__, token)) or "\n" in token:
        token = "".join(c if c in alphabet and c != "\n" else f"\\{ord(c)};" for c in token)
    return token + END


def unescape(escaped: str) -> str:
    """Returns the original token, or a best effort for malformed escapes."""
    return _ESCAPE.sub(_unescaped, escaped.removesuffix(END))


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return "_"
    if match[2]:
        return "\\"
    digits = match[3].lstrip("0")  # skips long numbers, which are slow to parse
    code_point = int(digits or "0") if len(digits) < 8 else _LAST_CODE_POINT + 1
    known = code_point <= _LAST_CODE_POINT and code_point not in _SURROGATES
    return chr(code_point) if known else UNKNOWN


# Values of tensor2tensor's Text2TextProblem and SubwordTextEncoder.build_from_generator.
MAX_LENGTH = 200
NUM_ROUNDS = 4
_LEAST_COUNTS = (1, 1000)

# A vocabulary file has one entry per line, so no entry may contain these.  tensor2tensor included
# them in its alphabet and could not read the file back.
_LINE_BREAKS = frozenset("\n\r")


def learn(
    counts: Mapping[str, int],
    size: int,
    *,
    reserved: Sequence[str] = RESERVED_TOKENS,
    max_length: int | None = MAX_LENGTH,
    least_counts: tuple[int, int] = _LEAST_COUNTS,
) -> list[str]:
    """Returns a vocabulary of about `size` subtokens; list positions are ids.

    A binary search over the minimum count of a subtoken stops when the size is within 1 %.

    Source: tensor2tensor's `SubwordTextEncoder.build_to_target_size`.

    Args:
      counts: token counts.
      size: target size; the alphabet alone may exceed it.
      reserved: the names of the first ids.
      max_length: exclusive limit on subtoken length, in characters; None for no limit.
      least_counts: search range of the minimum count.
    """
    low, high = least_counts
    best: list[str] = []
    while True:
        least = (low + high) // 2
        vocabulary = build(counts, least, reserved=reserved, max_length=max_length)
        # Of two equally close vocabularies tensor2tensor keeps the first.
        if not best or abs(len(vocabulary) - size) < abs(len(best) - size):
            best = vocabulary
        if abs(len(vocabulary) - size) * 100 < size or low >= high or least < 2:
            return best
        if len(vocabulary) > size:
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
    """Returns the vocabulary of all sufficiently frequent subtokens, most frequent first.

    Each round splits the tokens with the previous vocabulary and counts every substring that
    starts at a split point.  Selecting a subtoken subtracts its count from all its prefixes.

    Args:
      counts: token counts.
      least_count: minimum count of a subtoken; single characters are always included.
      num_rounds: number of rounds, each starting from the previous vocabulary.
      reserved: the names of the first ids.
      max_length: exclusive limit on subtoken length, in characters; None for no limit.
    """
    alphabet = {c for token in (*counts, *reserved) for c in token} | ESCAPES
    alphabet -= _LINE_BREAKS
    escaped = {escape(token, alphabet): count for token, count in counts.items()}
    first = [escape(token, alphabet) for token in reserved]
    known: Collection[str] = alphabet
    vocabulary: list[str] = []
    for _ in range(num_rounds):
        substrings = _count_beginnings(escaped, known, max_length)
        taken = _take(substrings, max(least_count, 1))
        ranked = [(count, piece) for piece, count in taken.items() if piece not in alphabet]
        ranked += [(substrings.get(character, 0), character) for character in alphabet]
        vocabulary = first + [piece for _, piece in sorted(ranked, reverse=True)]
        known = set(vocabulary)
    return vocabulary


def longest_by_start(known: Iterable[str]) -> dict[str, int]:
    """Returns the length of the longest entry that begins with each character."""
    longest: dict[str, int] = {}
    for piece in known:
        if len(piece) > longest.get(piece[:1], 0):
            longest[piece[:1]] = len(piece)
    return longest


def cut(escaped: str, known: Collection[str], longest: Mapping[str, int]) -> list[str]:
    """Splits an escaped token greedily from the left into the longest known pieces.

    Args:
      escaped: a token as returned by `escape`.
      known: the vocabulary.
      longest: `longest_by_start` of the vocabulary.

    Raises:
      DataError: a character is not in the vocabulary.
    """
    pieces = []
    start, stop = 0, len(escaped)
    while start < stop:
        for end in range(min(stop, start + longest.get(escaped[start], 0)), start, -1):
            if (piece := escaped[start:end]) in known:
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
    """Counts the substrings that start at a piece of a token, shorter than `max_length`."""
    longest = longest_by_start(known)
    counts: defaultdict[str, int] = defaultdict(int)
    for token, count in escaped.items():
        start = 0
        for piece in cut(token, known, longest):
            stop = len(token) + 1
            if max_length is not None:
                stop = min(stop, start + max_length)
            for end in range(start + 1, stop):
                counts[token[start:end]] += count
            start += len(piece)
    return counts


def _take(counts: dict[str, int], least_count: int) -> dict[str, int]:
    """Selects frequent subtokens, longest first; subtracts selected counts from `counts`."""
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for piece, count in counts.items():
        if count >= least_count:
            by_length[len(piece)].append(piece)
    taken = {}
    for length in sorted(by_length, reverse=True):
        for piece in by_length[length]:
            count = counts[piece]
            if count >= least_count:
                taken[piece] = count
                for end in range(1, length):
                    counts[piece[:end]] -= count
    return taken


# Words repeat, and a cache lookup is 5 times as fast as splitting.
_MAX_CACHED = 1 << 18
_MAX_CACHED_LENGTH = 64


class SubtokenEncoder(TextEncoder):
    """Encodes tokens (`split`) as the longest matching vocabulary entries.

    `decode(encode(text)) == text` for every Unicode text, including characters outside the
    vocabulary.  No piece spans a space.  The names of the reserved ids are ordinary text.  Ids
    outside the vocabulary are ignored on decoding.
    Source: tensor2tensor's `SubwordTextEncoder`, with the same files, ids and texts.

    Args:
      subtokens: the vocabulary; an entry's position is its id, and the last of duplicates counts.

    Raises:
      DataError: the vocabulary does not start with tensor2tensor's reserved tokens.
    """

    def __init__(self, subtokens: Sequence[str]) -> None:
        self._subtokens = list(subtokens)
        first = self._subtokens[: len(RESERVED_TOKENS)]
        # The published vocabularies were made by versions that did not add the end marker.
        if [name.removesuffix(END) for name in first] != list(RESERVED_TOKENS):
            raise DataError(
                f"A subtoken vocabulary starts with the lines {' and '.join(RESERVED_TOKENS)}, "
                f"each perhaps with {END!r} at its end, and this one does not."
            )
        self._ids = {piece: i for i, piece in enumerate(self._subtokens) if piece}
        self._longest = longest_by_start(self._ids)
        self._alphabet = {c for piece in self._subtokens for c in piece} | ESCAPES
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def load(cls, path: Path) -> SubtokenEncoder:
        r"""Reads a tensor2tensor vocabulary file: one entry per line, quoted or not.

        Only "\n" ends a line and every "\r" is dropped, because an entry may contain U+2028 and
        similar separators.

        Raises:
          DataError: the file is missing, not UTF-8, or not a subtoken vocabulary.
        """
        with vocabulary_errors(path, " Copy the file from tensor2tensor's data folder again."):
            try:
                text = read_bytes(path, max_bytes=MAX_VOCABULARY).decode()
            except UnicodeDecodeError as error:
                place = f"byte {error.start + 1}"
                raise DataError(f"no subtoken vocabulary: its {place} is not UTF-8.") from None
            lines = text.replace("\r", "").removesuffix("\n").split("\n")
            return cls([_unquoted(line.rstrip()) for line in lines])

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, path: Path) -> SubtokenEncoder:
        """Learns a vocabulary as tensor2tensor does and writes its file.

        Args:
          texts: iterated once; their token counts must fit in memory.
          vocab_size: approximate number of ids; the alphabet of the texts alone may need more.
          path: the output file, written atomically.

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
        """Writes the vocabulary atomically in tensor2tensor's format."""
        write_text(path, "".join(f"'{piece}'\n" for piece in self._subtokens))

    @property
    def vocab_size(self) -> int:
        """The number of entries."""
        return len(self._subtokens)

    @property
    def subtokens(self) -> list[str]:
        """The entries, as in the file."""
        return list(self._subtokens)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The subtokens in the order of their ids."""
        return tuple(self._subtokens)

    @property
    def alphabet(self) -> frozenset[str]:
        """The characters that need no escape, except the line break."""
        return frozenset(self._alphabet)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text.

        Raises:
          DataError: the text holds a lone surrogate, or the vocabulary lacks an escape character.
        """
        tokens = split(text)
        cached = [self._cache.get(token) for token in tokens]
        if None in cached:
            check_unicode(text)
        ids: list[int] = []
        for token, known in zip(tokens, cached, strict=True):
            ids += self._look_up(token) if known is None else known
        return ids

    def encode_without_tokenizing(self, text: str) -> list[int]:
        """Returns the ids of a text treated as one token, whose pieces may span spaces.

        The names of the reserved ids encode to those ids, as in tensor2tensor.
        """
        check_unicode(text)
        return list(self._look_up(text))

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each word, including the preceding space where decoding adds none."""
        batch = []
        after_letters = False
        for index, word in enumerate(words):
            has_space = index == 0 or (after_letters and word[:1].isalnum())
            batch.append(self.encode(word if has_space else f" {word}"))
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
        """Pickles only the vocabulary."""
        return SubtokenEncoder, (self._subtokens,)


def holds_subtokens(path: Path) -> bool:
    """Returns whether a file starts like a tensor2tensor subtoken vocabulary."""
    with vocabulary_errors(path), open_regular(path) as file:
        head = file.read(16)
    return head.lstrip(b"'\"").startswith(RESERVED_TOKENS[0].encode())


def _unquoted(line: str) -> str:
    quoted = line[:1] in ("'", '"') and line[:1] == line[-1:]
    return line[1:-1] if quoted else line
