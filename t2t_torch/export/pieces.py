"""Vocabularies of other libraries in an ONNX graph: texts as ids, and ids as text."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import ExportError
from t2t_torch.export import decode_ids
from t2t_torch.export.graph import EXTENSIONS, Graph, any_true, latest, places, shifted
from t2t_torch.export.strings import (
    EncoderGraph,
    FieldText,
    NumberRows,
    at_least_one,
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
        graph = self.graph
        shape = graph.add("Shape", rows.values, start=0, end=1)
        shape = graph.add("Concat", shape, [len(first)], axis=0)
        before = graph.add("Expand", graph.constant([list(first)]), shape)
        values = graph.add("Concat", before, rows.values, axis=1)
        return NumberRows(values, graph.add("Add", rows.lengths, len(first)))

    def of_words(self, field: FieldText) -> NoReturn:
        """Raises ExportError: no imported model has a text of words."""
        raise ExportError(f"{self._name!r}: a graph cannot split this text into words.")


@functools.singledispatch
def encode_pieces(pieces: Any, encoder: PieceGraph, field: FieldText) -> NumberRows:
    """Returns the ids of the pieces of texts; pieces without rules of their own are whole words."""
    graph, parts = encoder.graph, field.parts
    ids = look_up(graph, parts, {**encoder.ids, "": PAD}, encoder.unknown)
    return NumberRows(at_least_one(graph, ids, PAD), count_of(graph, parts))


@encode_pieces.register(SentencePieces)
def _sentence_pieces(pieces: SentencePieces, encoder: PieceGraph, field: FieldText) -> NumberRows:
    graph = encoder.graph
    theirs, lengths = sentence_pieces(graph, field.texts, pieces.model)
    table = np.full(len(pieces.numbers), encoder.unknown, np.int64)
    for piece, number in pieces.numbers.items():
        table[number] = encoder.ids.get(piece, encoder.unknown)
    return of_flat(graph, graph.add("Gather", graph.constant(table), theirs), lengths)


@encode_pieces.register(BytePairEncoding)
def _byte_pairs(pieces: BytePairEncoding, encoder: PieceGraph, field: FieldText) -> NumberRows:
    graph, codes, parts = encoder.graph, _Codes(pieces, encoder.encoder.tokens), field.parts
    words, row = _nonempty(graph, parts)
    symbols, word = codes.merged(graph, words)
    beside = graph.add("Equal", word, shifted(graph, word, 1, -1))
    inside, last = codes.ids(encoder.ids, encoder.unknown)
    either = (graph.add("Gather", graph.constant(one), symbols) for one in (inside, last))
    ids = graph.add("Where", beside, *either)
    return _rows(graph, ids, graph.add("Gather", row, word), parts)


@encode_pieces.register(HuggingFacePieces)
def _word_pieces(pieces: HuggingFacePieces, encoder: PieceGraph, field: FieldText) -> NumberRows:
    """Returns the ids of the pieces of texts: the longest one first, or one unknown piece."""
    graph, model = encoder.graph, pieces.config["model"]
    parts = _bert_words(graph, field, pieces)
    words, row = _nonempty(graph, parts)
    # The first symbol of a word is its start, and only pieces that begin words begin with it.
    letters, word = _nonempty(
        graph, characters_of(graph, graph.add("StringConcat", graph.constant("\n"), words))
    )
    alphabet = {one for token in encoder.ids for one in token} - {"\n"}
    numbers = {one: number for number, one in enumerate(["\n", *sorted(alphabet)])}
    prefix = model["continuing_subword_prefix"]
    trie = {}
    for token, number in encoder.ids.items():
        is_inside = token.startswith(prefix)
        text = token.removeprefix(prefix) if is_inside else f"\n{token}"
        if text.strip("\n"):
            trie[tuple(numbers[one] for one in text)] = number
    symbols = look_up(graph, letters, numbers, len(numbers))
    starts = graph.add("Equal", symbols, 0)
    cut = PieceTrie(trie, len(numbers)).cut(graph, symbols, starts)
    none = graph.add("Expand", 0, graph.add("Shape", words))
    fails = graph.add("And", cut.begins, graph.add("Less", cut.ids, 0))
    fails = graph.add("ScatterElements", none, word, graph.integers(fails), reduction="max")
    ones = graph.add("Expand", 1, graph.add("Shape", word))
    sizes = graph.add("ScatterElements", none, word, ones, reduction="add")
    too_long = graph.add("Greater", sizes, int(model["max_input_chars_per_word"]) + 1)
    is_unknown = graph.add("Or", graph.add("Equal", fails, 1), too_long)
    is_unknown = graph.add("Gather", is_unknown, word)
    ids = graph.add("Where", is_unknown, encoder.unknown, cut.ids)
    kept = graph.add("And", cut.begins, graph.add("Or", starts, graph.add("Not", is_unknown)))
    row = graph.add("Gather", row, word)
    ids, row = (graph.add("Compress", one, kept, axis=0) for one in (ids, row))
    return _rows(graph, ids, row, parts)


def _nonempty(graph: Graph, strings: str) -> tuple[str, str]:
    """Returns the nonempty strings of rows [B, W], and the row of each.  [N] string, [N] int64."""
    mask = graph.add("Not", graph.add("Equal", strings, graph.constant("")))
    row = graph.add("Gather", graph.add("NonZero", mask), 0)
    flat = graph.add("Reshape", strings, [-1])
    return graph.add("Compress", flat, graph.add("Reshape", mask, [-1]), axis=0), row


def _rows(graph: Graph, ids: str, row: str, like: str) -> NumberRows:
    """Returns rows of ids.

    Args:
      graph: graph to which operators are added.
      ids: [N] int64, those of each row in order.
      row: the row of each, [N] int64.
      like: a tensor with as many rows.
    """
    zeros = graph.add("Expand", 0, graph.add("Shape", like, start=0, end=1))
    ones = graph.add("Expand", 1, graph.add("Shape", row))
    return of_flat(graph, ids, graph.add("ScatterElements", zeros, row, ones, reduction="add"))


def _bert_words(graph: Graph, field: FieldText, pieces: HuggingFacePieces) -> str:
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
    letters = substitute(graph, field.letters, changed, "\n")  # which is in no word
    return tokens(graph, joined(graph, letters), separators=[" +"])


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

    def merged(self, graph: Graph, words: str) -> tuple[str, str]:
        """Returns the concatenated symbols of words, [M], and the number of the word of each.

        Args:
          graph: graph to which operators are added.
          words: nonempty, [N] string.
        """
        symbols, word = self._letters(graph, words)
        worst = graph.add("Expand", len(self._pieces.ranks), graph.add("Shape", words))
        body = graph.body("merge")
        body.input("turn", "int64", [])
        body.input("more", "bool", [])
        merged, of_word = (body.input(name, "int64", [None]) for name in ("symbols", "word"))
        merged, of_word, merges = self._merge(body, merged, of_word, worst)
        body.output("more", any_true(body, merges), "bool", [])
        body.output("symbols", merged, "int64", [None])
        body.output("word", of_word, "int64", [None])
        yes = graph.constant(True)
        symbols, word = graph.several(2, "Loop", "", yes, symbols, word, body=body)
        if self._pieces.end_is_apart:  # an end that was not merged is no piece
            kept = graph.add("Equal", symbols, self._symbols[END_OF_WORD])
            kept = graph.add("Not", kept)
            symbols = graph.add("Compress", symbols, kept, axis=0)
            word = graph.add("Compress", word, kept, axis=0)
        return symbols, word

    def _letters(self, graph: Graph, words: str) -> tuple[str, str]:
        """Returns `merged` before the first merge."""
        if self._pieces.end_is_apart:  # words have no line ends
            words = graph.add("StringConcat", words, graph.constant("\n"))
        letters, word = _nonempty(graph, characters_of(graph, words))
        if self._pieces.end_is_apart:
            names = {**self._symbols, "\n": self._symbols[END_OF_WORD]}
            return look_up(graph, letters, names, self._unknown), word
        beside = graph.add("Equal", word, shifted(graph, word, 1, -1))
        end = graph.add("Where", beside, graph.constant(""), graph.constant(END_OF_WORD))
        letters = graph.add("StringConcat", letters, end)
        return look_up(graph, letters, self._symbols, self._unknown), word

    def _merge(self, graph: Graph, symbols: str, word: str, worst: str) -> tuple[str, str, str]:
        """Makes the best merge of each word, at all its places.

        Args:
          graph: body of the loop.
          symbols: [M] int64.
          word: [M] int64.
          worst: number of merges, for each word, [N] int64.

        Returns:
          symbols, word, and a mask of the places of merges in the old symbols.
        """
        ranks, numbers = self._pieces.ranks, self._symbols
        size, none = self._unknown + 1, len(ranks)
        keys = (numbers[first] * size + numbers[second] for first, second in ranks)
        key = graph.add("Add", graph.add("Mul", symbols, size), shifted(graph, symbols, 1, 0))
        by_key = dict(zip(keys, ranks.values(), strict=True))
        rank = look_up(graph, key, {-1: none, **by_key}, none)  # never empty
        beside = graph.add("Equal", word, shifted(graph, word, 1, -1))
        rank = graph.add("Where", beside, rank, none)
        best = graph.add("ScatterElements", worst, word, rank, reduction="min")
        is_best = graph.add("Equal", rank, graph.add("Gather", best, word))
        is_best = graph.add("And", is_best, graph.add("Less", rank, none))
        # Pairs of equal symbols overlap: from the left, every second one is merged.
        in_run = graph.add("Sub", places(graph, word), latest(graph, graph.add("Not", is_best)))
        merges = graph.add("Equal", graph.add("BitwiseAnd", in_run, 1), 1)
        merges = graph.add("And", is_best, merges)
        by_rank = np.zeros(none + 1, np.int64)
        for pair, number in ranks.items():
            by_rank[number] = numbers["".join(pair)]
        result = graph.add("Gather", graph.constant(by_rank), rank)
        symbols = graph.add("Where", merges, result, symbols)
        kept = graph.add("Equal", shifted(graph, graph.integers(merges), -1, 0), 0)
        symbols = graph.add("Compress", symbols, kept, axis=0)
        return symbols, graph.add("Compress", word, kept, axis=0), merges


def sentence_pieces(graph: Graph, texts: str, model: bytes) -> tuple[str, str]:
    """Returns the concatenated ids of texts, [N], and the number per text, [B].

    Args:
      graph: graph to which operators are added.
      texts: [B] string.
      model: sentencepiece model, whose ids they are.
    """
    no = graph.constant([False])
    ids, ends = graph.several(
        2,
        "SentencepieceTokenizer",
        texts,
        [0],  # the best segmentation, no sampling
        [0.0],
        no,  # no start symbol,
        no,  # no end symbol,
        no,  # not reversed,
        no,  # and the ids of the model itself
        domain=EXTENSIONS,
        model=model,
    )
    starts = graph.add("Slice", ends, [0], [-1])
    after = graph.add("Slice", ends, [1], graph.add("Shape", ends))
    return graph.integers(ids), graph.add("Sub", after, starts)


@decode_ids.register(PieceEncoder)
def decode_pieces(encoder: PieceEncoder, graph: Graph, ids: str) -> str:
    """Returns `decode_ids`; ExportError for the reasons of `why_not_in_graph`."""
    if reason := why_not_in_graph(encoder, as_target=True):
        raise ExportError(f"{reason}.")
    end = graph.integers(graph.add("Equal", ids, EOS))
    before = graph.add("Equal", graph.add("CumSum", end, 1), 0)
    has_text = np.ones(encoder.vocab_size, bool)
    has_text[[PAD, EOS, *encoder.silent]] = False
    mask = graph.add("And", before, graph.add("Gather", graph.constant(has_text), ids))
    return join_pieces(encoder.pieces, encoder, graph, ids, mask)


@functools.singledispatch
def join_pieces(pieces: Any, encoder: PieceEncoder, graph: Graph, ids: str, mask: str) -> str:
    """Returns the texts of pieces, [B] string; pieces without rules of their own are words.

    Args:
      pieces: pieces of the encoder.
      encoder: the encoder.
      graph: graph to which operators are added.
      ids: [B, T] int64.
      mask: mask of ids that have a text, [B, T] bool.
    """
    return joined_words(graph, named(graph, encoder.tokens, ids, mask), mask)


@join_pieces.register(SentencePieces)
def _join_sentence_pieces(
    pieces: SentencePieces, encoder: PieceEncoder, graph: Graph, ids: str, mask: str
) -> str:
    texts = [token.replace(_META_SPACE, " ") for token in encoder.tokens]
    unknown = pieces.processor.unk_id()
    if unknown >= 0:
        name = pieces.processor.id_to_piece(unknown)
        surface = pieces.processor.decode_pieces([name])
        texts = [surface if text == name else text for text in texts]
    # Spaces at the beginning are not written: all of them, or the first one alone.
    drops_all = encoder.strip or pieces.join([_META_SPACE, f"{_META_SPACE}a"]) == "a"
    is_blank = np.array([not token.strip(_META_SPACE) for token in encoder.tokens])
    ink = graph.add(
        "And", mask, graph.add("Not", graph.add("Gather", graph.constant(is_blank), ids))
    )
    counted = ink if drops_all else mask
    number = graph.add("CumSum", graph.integers(counted), 1)
    lead = graph.add("LessOrEqual", number, 1)  # up to the first one
    shorter = [text.lstrip(" ") if drops_all else text.removeprefix(" ") for text in texts]
    first = named(graph, shorter, ids, mask)
    words = graph.add("Where", lead, first, named(graph, texts, ids, mask))
    if encoder.strip:
        after = graph.add("CumSum", graph.integers(ink), 1, reverse=1)
        words = graph.add("Where", graph.add("Greater", after, 0), words, [""])
    return joined(graph, words)


@join_pieces.register(BytePairEncoding)
def _join_pairs(
    pieces: BytePairEncoding, encoder: PieceEncoder, graph: Graph, ids: str, mask: str
) -> str:
    """Returns the texts of pieces: `BytePairEncoding.join`."""
    tokens, separator = encoder.tokens, pieces.separator
    texts = [token.removesuffix(separator) for token in tokens]
    ends = np.array([not token.endswith(separator) for token in tokens])
    ink = graph.add("Gather", graph.constant(np.array([text != "" for text in texts])), ids)
    ink = graph.integers(graph.add("And", mask, ink))
    later = graph.add("Greater", graph.add("CumSum", ink, 1, reverse=1, exclusive=1), 0)
    ends_word = graph.add("And", mask, graph.add("Gather", graph.constant(ends), ids))
    space = graph.add("Where", graph.add("And", ends_word, later), [" "], [""])
    return joined(graph, graph.add("StringConcat", named(graph, texts, ids, mask), space))
