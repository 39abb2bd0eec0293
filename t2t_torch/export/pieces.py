"""Vocabularies of other libraries in an ONNX graph: texts as ids, and ids as text."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import ExportError
from t2t_torch.export import decode_ids
from t2t_torch.export.graph import (
    EXTENSIONS,
    LINE,
    Graph,
    Proxy,
    any_true,
    combine,
    latest,
    loop,
    places,
    shifted,
    take,
    where,
)
from t2t_torch.export.strings import (
    EncoderGraph,
    FieldText,
    NumberRows,
    at_least_one,
    before_end,
    characters,
    characters_of,
    count_of,
    joined,
    joined_words,
    look_up,
    named,
    of_flat,
    substitute,
    tokens,
)
from t2t_torch.export.subtokens import PieceTrie
from t2t_torch.text.encoder import EOS, NUM_RESERVED, PAD
from t2t_torch.text.pieces import (
    END_OF_WORD,
    BytePairEncoding,
    HuggingFacePieces,
    PieceEncoder,
    SentencePieces,
)

IntArray = npt.NDArray[np.int64]

_BLOCK = 256  # neighboring characters, which are often unchanged or removed all
_META_SPACE = "\u2581"


def why_not_in_graph(encoder: PieceEncoder, *, as_target: bool) -> str:
    """Returns the reason why a graph cannot hold an encoder; "" if it can.

    Args:
      encoder: the encoder.
      as_target: True for a text that the graph writes, False for one that it reads.
    """
    pieces = encoder.pieces
    if isinstance(pieces, HuggingFacePieces) and (as_target or not _is_bert(pieces.config)):
        kind = (pieces.config.get("model") or {}).get("type")
        return f"its subwords are a tokenizer of Hugging Face ({kind})"
    if not isinstance(encoder.pieces, SentencePieces):
        return ""
    processor, numbers = encoder.pieces.processor, encoder.pieces.numbers
    if any(processor.is_byte(number) for number in numbers.values()):
        return "its sentencepiece model falls back to bytes"
    return ""


def _is_bert(config: Mapping[str, Any]) -> bool:
    """Returns True if a tokenizer splits texts like BERT."""
    parts = [(config.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer")]
    model = config.get("model") or {}
    return [*parts, model.get("type")] == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]


class PieceGraph(EncoderGraph):
    """A `PieceEncoder` in a graph.

    A character that the sentencepiece model does not know is the unknown token, even if the
    dictionary has it; and a text ends at NUL.  Names of special tokens of BERT, such as [SEP], are
    texts like any other.

    Raises:
      ExportError: its subwords cannot be in a graph.
    """

    def __init__(self, encoder: PieceEncoder, graph: Graph, name: str) -> None:
        if reason := why_not_in_graph(encoder, as_target=False):
            raise ExportError(
                f"{name!r}: a graph cannot read this text: {reason}. Serve the run with PyTorch:  "
                "t2t-server --output_dir=RUN"
            )
        super().__init__(encoder, graph, name)
        self.unknown = PAD if encoder.unknown is None else encoder.unknown
        silent = {*encoder.silent, *range(NUM_RESERVED)}
        tokens = reversed(list(enumerate(encoder.tokens)))
        self.ids = {token: number for number, token in tokens if number not in silent}

    def of_texts(self, field: FieldText) -> NumberRows:
        """Returns the ids of the pieces of each text."""
        rows, first = encode_pieces(self.encoder.pieces, self, field), self.encoder.first
        if not first:
            return rows
        shape = rows.values.size(0).Concat([len(first)], axis=0)
        values = combine("Expand", [list(first)], shape).Concat(rows.values, axis=1)
        return NumberRows(values, rows.lengths + len(first))

    def of_words(self, field: FieldText) -> NoReturn:
        """Raises ExportError: no imported model has a text of words."""
        raise ExportError(f"{self._name!r}: a graph cannot split this text into words.")


@functools.singledispatch
def encode_pieces(pieces: Any, encoder: PieceGraph, field: FieldText) -> NumberRows:
    """Returns the ids of the pieces of texts; pieces without rules of their own are whole words."""
    parts = field.parts
    ids = look_up(parts, {**encoder.ids, "": PAD}, encoder.unknown)
    return NumberRows(at_least_one(ids, PAD), count_of(parts))


@encode_pieces.register(SentencePieces)
def _sentence_pieces(pieces: SentencePieces, encoder: PieceGraph, field: FieldText) -> NumberRows:
    theirs, lengths = sentence_pieces(field.texts, pieces.model)
    table = np.full(len(pieces.numbers), encoder.unknown, np.int64)
    for piece, number in pieces.numbers.items():
        table[number] = encoder.ids.get(piece, encoder.unknown)
    return of_flat(take(table, theirs), lengths)


@encode_pieces.register(BytePairEncoding)
def _byte_pairs(pieces: BytePairEncoding, encoder: PieceGraph, field: FieldText) -> NumberRows:
    codes, parts = _Codes(pieces, encoder.encoder.tokens), field.parts
    words, row = _nonempty(parts)
    symbols, word = codes.merged(words)
    beside = word == shifted(word, 1, -1)
    inside, last = codes.ids(encoder.ids, encoder.unknown)
    ids = where(beside, take(inside, symbols), take(last, symbols))
    return _rows(ids, row[word], parts)


@encode_pieces.register(HuggingFacePieces)
def _word_pieces(pieces: HuggingFacePieces, encoder: PieceGraph, field: FieldText) -> NumberRows:
    """Returns the ids of the pieces of texts: the longest one first, or one unknown piece."""
    model = pieces.config["model"]
    parts = _bert_words(field, pieces)
    words, row = _nonempty(parts)
    # The first symbol of a word is its start, and only pieces that begin words begin with it.
    letters, word = _nonempty(characters_of(combine("StringConcat", "\n", words)))
    alphabet = {one for token in encoder.ids for one in token} - {"\n"}
    numbers = {one: number for number, one in enumerate(["\n", *sorted(alphabet)])}
    prefix = model["continuing_subword_prefix"]
    trie = {}
    for token, number in encoder.ids.items():
        is_inside = token.startswith(prefix)
        text = token.removeprefix(prefix) if is_inside else f"\n{token}"
        if text.strip("\n"):
            trie[tuple(numbers[one] for one in text)] = number
    symbols = look_up(letters, numbers, len(numbers))
    starts = symbols == 0
    cut = PieceTrie(trie, len(numbers)).cut(symbols, starts)
    none = combine("Expand", 0, words.Shape())
    fails = none.ScatterElements(word, (cut.begins & (cut.ids < 0)).integers(), reduction="max")
    sizes = none.ScatterElements(word, combine("Expand", 1, word.Shape()), reduction="add")
    is_unknown = ((fails == 1) | (sizes > int(model["max_input_chars_per_word"]) + 1))[word]
    ids = where(is_unknown, encoder.unknown, cut.ids)
    kept = cut.begins & (starts | ~is_unknown)
    ids, row = (one.Compress(kept, axis=0) for one in (ids, row[word]))
    return _rows(ids, row, parts)


def _nonempty(strings: Proxy) -> tuple[Proxy, Proxy]:
    """Returns the nonempty strings of rows [B, W], and the row of each.  [N] string, [N] int64."""
    mask = strings != ""
    return strings.Reshape([-1]).Compress(mask.Reshape([-1]), axis=0), mask.NonZero()[0]


def _rows(ids: Proxy, row: Proxy, like: Proxy) -> NumberRows:
    """Returns rows of ids.

    Args:
      ids: [N] int64, those of each row in order.
      row: the row of each, [N] int64.
      like: a tensor with as many rows.
    """
    zeros, ones = combine("Expand", 0, like.size(0)), combine("Expand", 1, row.Shape())
    return of_flat(ids, zeros.ScatterElements(row, ones, reduction="add"))


def _bert_words(field: FieldText, pieces: HuggingFacePieces) -> Proxy:
    """Returns the normalized words of texts, [B, W] string, padded with "".

    BERT's normalization and its split do not depend on the characters around one.
    """
    changed: dict[str, str] = {}
    every = characters()
    for start in range(0, len(every), _BLOCK):
        block = every[start : start + _BLOCK]
        words = pieces.words(f"a{''.join(block)}a")
        if words == ["aa"]:
            changed |= dict.fromkeys(block, "")
        elif words != [f"a{''.join(block)}a"]:
            texts = {one: " ".join(pieces.words(f"a{one}a"))[1:-1] for one in block}
            changed |= {one: text for one, text in texts.items() if text != one}
    letters = substitute(field.letters, changed, "\n")  # which is in no word
    return tokens(joined(letters), separators=[" +"])


class _Codes:
    """Merges of BPE in a graph.

    Args:
      pieces: the merges.
      tokens: tokens of the vocabulary; characters that occur in no merge may be tokens.
    """

    def __init__(self, pieces: BytePairEncoding, tokens: Iterable[str]) -> None:
        self._pieces = pieces
        single = (token.removesuffix(pieces.separator) for token in tokens)
        symbols = dict.fromkeys(one for pair in pieces.ranks for one in (*pair, "".join(pair)))
        for one in sorted({*single, END_OF_WORD} - {""}):
            if len(one) == 1 or one == END_OF_WORD:
                symbols |= dict.fromkeys((one, one + END_OF_WORD))
        self._symbols = {symbol: number for number, symbol in enumerate(symbols)}
        self._unknown = len(self._symbols)

    def ids(self, ids: Mapping[str, int], unknown: int) -> tuple[IntArray, IntArray]:
        """Returns the id of each symbol inside a word, and at its end.

        Args:
          ids: ids by token.
          unknown: id of all others.
        """
        inside = [ids.get(one + self._pieces.separator, unknown) for one in self._symbols]
        last = [ids.get(one.removesuffix(END_OF_WORD), unknown) for one in self._symbols]
        return np.array([*inside, unknown]), np.array([*last, unknown])

    def merged(self, words: Proxy) -> tuple[Proxy, Proxy]:
        """Returns the concatenated symbols of words, [M], and the number of the word of each.

        Args:
          words: nonempty, [N] string.
        """
        symbols, word = self._letters(words)
        worst = combine("Expand", len(self._pieces.ranks), words.Shape())

        def merge(body: Graph, turn: Proxy, symbols: Proxy, word: Proxy) -> tuple[Proxy, ...]:
            return self._merge(symbols, word, worst)

        symbols, word = loop(words.graph, merge, symbols, word, kinds=[LINE] * 2)
        if self._pieces.end_is_apart:  # an end that was not merged is no piece
            kept = symbols != self._symbols[END_OF_WORD]
            symbols, word = (one.Compress(kept, axis=0) for one in (symbols, word))
        return symbols, word

    def _letters(self, words: Proxy) -> tuple[Proxy, Proxy]:
        """Returns `merged` before the first merge."""
        if self._pieces.end_is_apart:  # words have no line ends
            words = words.StringConcat("\n")
        letters, word = _nonempty(characters_of(words))
        if self._pieces.end_is_apart:
            names = {**self._symbols, "\n": self._symbols[END_OF_WORD]}
            return look_up(letters, names, self._unknown), word
        letters = letters.StringConcat(where(word == shifted(word, 1, -1), "", END_OF_WORD))
        return look_up(letters, self._symbols, self._unknown), word

    def _merge(self, symbols: Proxy, word: Proxy, worst: Proxy) -> tuple[Proxy, ...]:
        """Makes the best merge of each word, at all its places.

        Args:
          symbols: [M] int64.
          word: [M] int64.
          worst: number of merges, for each word, [N] int64.

        Returns:
          True if there was one, and the merged symbols and word.
        """
        ranks, numbers = self._pieces.ranks, self._symbols
        size, none = self._unknown + 1, len(ranks)
        keys = (numbers[first] * size + numbers[second] for first, second in ranks)
        key = symbols * size + shifted(symbols, 1, 0)
        by_key = dict(zip(keys, ranks.values(), strict=True))
        rank = look_up(key, {-1: none, **by_key}, none)  # never empty
        rank = where(word == shifted(word, 1, -1), rank, none)
        is_best = (rank == worst.ScatterElements(word, rank, reduction="min")[word]) & (rank < none)
        # Pairs of equal symbols overlap: from the left, every second one is merged.
        merges = is_best & ((places(word) - latest(~is_best)).BitwiseAnd(1) == 1)
        by_rank = np.zeros(none + 1, np.int64)
        for pair, number in ranks.items():
            by_rank[number] = numbers["".join(pair)]
        symbols = where(merges, take(by_rank, rank), symbols)
        kept = shifted(merges.integers(), -1, 0) == 0
        return any_true(merges), symbols.Compress(kept, axis=0), word.Compress(kept, axis=0)


def sentence_pieces(texts: Proxy, model: bytes) -> tuple[Proxy, Proxy]:
    """Returns the concatenated ids of texts, [N], and the number per text, [B].

    Args:
      texts: [B] string.
      model: sentencepiece model, whose ids they are.
    """
    # The best segmentation, no sampling; no start and end symbols, not reversed, the model's ids.
    options: list[list[Any]] = [[0], [0.0], *[[False]] * 4]
    ids, ends = texts.graph.several(
        2, "SentencepieceTokenizer", texts, *options, domain=EXTENSIONS, model=model
    )
    return ids.integers(), ends[1 : ends.Shape()] - ends[:-1]


@decode_ids.register(PieceEncoder)
def decode_pieces(encoder: PieceEncoder, graph: Graph, ids: Proxy) -> Proxy:
    """Returns `decode_ids`; ExportError for the reasons of `why_not_in_graph`."""
    if reason := why_not_in_graph(encoder, as_target=True):
        raise ExportError(f"{reason}.")
    has_text = np.ones(encoder.vocab_size, bool)
    has_text[[PAD, EOS, *encoder.silent]] = False
    return join_pieces(encoder.pieces, encoder, ids, before_end(ids) & take(has_text, ids))


@functools.singledispatch
def join_pieces(pieces: Any, encoder: PieceEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the texts of pieces, [B] string; pieces without rules of their own are words.

    Args:
      pieces: pieces of the encoder.
      encoder: the encoder.
      ids: [B, T] int64.
      mask: mask of ids that have a text, [B, T] bool.
    """
    return joined_words(named(encoder.tokens, ids, mask), mask)


@join_pieces.register(SentencePieces)
def _join_sentence_pieces(
    pieces: SentencePieces, encoder: PieceEncoder, ids: Proxy, mask: Proxy
) -> Proxy:
    texts = [token.replace(_META_SPACE, " ") for token in encoder.tokens]
    unknown = pieces.processor.unk_id()
    if unknown >= 0:
        name = pieces.processor.id_to_piece(unknown)
        surface = pieces.processor.decode_pieces([name])
        texts = [surface if text == name else text for text in texts]
    # Spaces at the beginning are not written: all of them, or the first one alone.
    drops_all = encoder.strip or pieces.join([_META_SPACE, f"{_META_SPACE}a"]) == "a"
    ink = mask & ~take(np.array([not token.strip(_META_SPACE) for token in encoder.tokens]), ids)
    lead = (ink if drops_all else mask).integers().CumSum(1) <= 1  # up to the first one
    shorter = [text.lstrip(" ") if drops_all else text.removeprefix(" ") for text in texts]
    words = where(lead, named(shorter, ids, mask), named(texts, ids, mask))
    if encoder.strip:
        words = where(ink.integers().CumSum(1, reverse=1) > 0, words, "")
    return joined(words)


@join_pieces.register(BytePairEncoding)
def _join_pairs(pieces: BytePairEncoding, encoder: PieceEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the texts of pieces: `BytePairEncoding.join`."""
    tokens, separator = encoder.tokens, pieces.separator
    texts = [token.removesuffix(separator) for token in tokens]
    ends = np.array([not token.endswith(separator) for token in tokens])
    ink = (mask & take(np.array([text != "" for text in texts]), ids)).integers()
    space = where(mask & take(ends, ids) & (ink.CumSum(1, reverse=1, exclusive=1) > 0), " ", "")
    return joined(named(texts, ids, mask).StringConcat(space))
