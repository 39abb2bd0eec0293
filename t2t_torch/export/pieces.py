"""Subwords in an ONNX graph: vocabularies of other libraries, and tensor2tensor's subtokens."""

from __future__ import annotations

import functools
import itertools
import sys
from typing import Any, NamedTuple

import numpy as np

from t2t_torch.errors import ExportError
from t2t_torch.export import decode_ids, encoder_graph, strings
from t2t_torch.export.graph import (
    EXTENSIONS,
    Graph,
    Proxy,
    before_each,
    combine,
    concat,
    following,
    latest,
    places,
    shifted,
    take,
    where,
)
from t2t_torch.export.segmentation import PieceTrie, merge_pairs
from t2t_torch.export.tokenizer_graph import (
    META_SPACE,
    OurIds,
    tokenizer_ids,
    tokenizer_texts,
    trials,
)
from t2t_torch.runtime.session import onnx_runtime
from t2t_torch.text import tensor2tensor_subword
from t2t_torch.text.encoder import EOS, NUM_RESERVED, PAD
from t2t_torch.text.pieces import (
    END_OF_WORD,
    BytePairEncoding,
    HuggingFacePieces,
    PieceEncoder,
    SentencePieces,
)
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder


@functools.lru_cache(4)
def why_not_in_graph(encoder: PieceEncoder, *, as_target: bool) -> str:
    """Returns the reason why a graph cannot hold an encoder; "" if it can.

    Args:
      encoder: the encoder.
      as_target: True for a text that the graph writes, False for one that it reads.
    """
    pieces = encoder.pieces
    if isinstance(pieces, HuggingFacePieces):
        reason = _why_not_tokenizer(encoder, pieces, as_target=as_target)
        return reason and f"its subwords are a tokenizer of Hugging Face, and {reason}"
    if not isinstance(pieces, SentencePieces):
        return ""
    if any(pieces.processor.is_byte(number) for number in pieces.numbers.values()):
        return "its sentencepiece model falls back to bytes"
    return ""


def _why_not_tokenizer(encoder: PieceEncoder, pieces: HuggingFacePieces, *, as_target: bool) -> str:
    """Returns the reason why a graph does not hold a tokenizer of Hugging Face: a part that none
    computes, or a text for which it computes something else.
    """
    graph, (given, texts) = Graph(), trials(encoder)
    rows = [encoder.encode(text) for text in texts]
    wanted: list[Any] = rows
    try:
        if as_target:
            rows = [*given, *rows]
            texts = wanted = [encoder.decode(row) for row in rows]
            feed = np.array([*itertools.zip_longest(*rows, fillvalue=EOS)]).T
            written = _written(encoder, graph.input("given", "int64", [None, None]))
            graph.output("made", written, "string", [None])
        else:
            feed = np.array(texts, object)
            field = strings.FieldText(graph.input("given", "string", [None]))
            ids = encode_pieces(pieces, _readable(encoder), field)
            graph.output("made", strings.with_end(ids).values, "int64", [None, None])
        options = onnx_runtime().SessionOptions()
        options.log_severity_level = 4  # its errors are raised
        if graph.needs_extensions:
            from onnxruntime_extensions import get_library_path

            options.register_custom_ops_library(get_library_path())
        session = onnx_runtime().InferenceSession(graph.model().SerializeToString(), options)
        made = session.run(["made"], {"given": feed})[0].tolist()
    except ExportError as error:
        return str(error)
    except Exception as error:  # those of onnxruntime have no common base class
        return f"its graph fails: {error!r:.300}"
    found = made if as_target else [row[: row.index(EOS)] for row in made]
    triples = zip(texts, found, wanted, strict=True)
    wrong = next((text for text, its, known in triples if its != known), None)
    return "" if wrong is None else f"its ids or texts in a graph differ for {wrong!a}"


def _readable(encoder: PieceEncoder) -> OurIds:
    """Returns the ids of tokens that texts have, and that of all others."""
    silent = {*encoder.silent, *range(NUM_RESERVED)}
    tokens = reversed(list(enumerate(encoder.tokens)))
    ids = {token: number for number, token in tokens if number not in silent}
    return OurIds(ids, PAD if encoder.unknown is None else encoder.unknown)


@encoder_graph.register(PieceEncoder)
class PieceGraph(strings.EncoderGraph):
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
        self.ours = _readable(encoder)

    def of_texts(self, field: strings.FieldText) -> strings.NumberRows:
        """Returns the ids of the pieces of each text."""
        return encode_pieces(self.encoder.pieces, self.ours, field)

    def of_words(self, field: strings.FieldText) -> strings.WordIds:
        """Returns the ids of each text's words, the unknown id for a word without any."""
        words = strings.at_least_one(field.words, "")
        texts = words
        if prefix := getattr(self.encoder.pieces, "word_prefix", ""):
            is_kept = (words == "") | strings.is_first(words)
            texts = where(is_kept, words, combine("StringConcat", prefix, words))
        texts = texts.Reshape([-1])
        rows = encode_pieces(self.encoder.pieces, self.ours, strings.FieldText(texts))
        has_none = (rows.lengths == 0) & (texts != "")
        counts = where(has_none, 1, where(texts == "", 0, rows.lengths))
        unknown = self.ours.unknown
        values = strings.at_least_one(where(has_none.Unsqueeze([1]), unknown, rows.values), unknown)
        mask = strings.mask_of(counts, values.size(1).Squeeze())
        flat = values.Reshape([-1]).Compress(mask.Reshape([-1]), axis=0)
        counts = counts.Reshape(words.Shape())
        starts = where(words == "", 0, counts.CumSum(1, exclusive=1))
        ids = strings.of_flat(flat, counts.sum(1))
        return strings.WordIds(ids, strings.NumberRows(starts, field.word_counts))


@functools.singledispatch
def encode_pieces(pieces: Any, ours: OurIds, field: strings.FieldText) -> strings.NumberRows:
    """Returns our ids of texts; pieces without rules of their own are whole words."""
    ids = strings.look_up(field.parts, {**ours.by_token, "": PAD}, ours.unknown)
    return strings.NumberRows(strings.at_least_one(ids, PAD), strings.count_of(field.parts))


@encode_pieces.register(SentencePieces)
def _sentence_pieces(
    pieces: SentencePieces, ours: OurIds, field: strings.FieldText
) -> strings.NumberRows:
    theirs, lengths = sentence_pieces(field.texts, pieces.model)
    return strings.of_flat(take(ours.of(pieces.numbers), theirs), lengths)


@encode_pieces.register(BytePairEncoding)
def _byte_pairs(
    pieces: BytePairEncoding, ours: OurIds, field: strings.FieldText
) -> strings.NumberRows:
    # Characters that occur in no merge may be tokens.
    single = {token.removesuffix(pieces.separator) for token in ours.by_token}
    symbols = dict.fromkeys(one for pair in pieces.ranks for one in (*pair, "".join(pair)))
    for one in sorted({*single, END_OF_WORD} - {""}):
        if len(one) == 1 or one == END_OF_WORD:
            symbols |= dict.fromkeys((one, one + END_OF_WORD))
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    words, row = strings.nonempty(field.parts)
    if pieces.end_is_apart:  # words have no line ends
        letters, word = strings.nonempty(strings.characters_of(words.StringConcat("\n")))
    else:
        letters, word = strings.nonempty(strings.characters_of(words))
        letters = letters.StringConcat(where(word == shifted(word, 1, -1), "", END_OF_WORD))
    own = strings.look_up(letters, {**numbers, "\n": numbers[END_OF_WORD]}, len(numbers))
    merged, word = merge_pairs(own, word, pieces.ranks, numbers)
    if pieces.end_is_apart:  # an end that was not merged is no piece
        kept = merged != numbers[END_OF_WORD]
        merged, word = (one.Compress(kept, axis=0) for one in (merged, word))
    inside = ours.of(one + pieces.separator for one in numbers)
    last = ours.of(one.removesuffix(END_OF_WORD) for one in numbers)
    goes_on = word == shifted(word, 1, -1)
    ids = where(goes_on, take(inside, merged), take(last, merged))
    return strings.rows_of(ids, row[word], field.parts)


encode_pieces.register(HuggingFacePieces)(tokenizer_ids)


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
    return _written(encoder, ids)


def _written(encoder: PieceEncoder, ids: Proxy) -> Proxy:
    has_text = np.ones(encoder.vocab_size, bool)
    has_text[[PAD, EOS, *encoder.silent]] = False
    return join_pieces(encoder.pieces, encoder, ids, strings.before_end(ids) & take(has_text, ids))


@functools.singledispatch
def join_pieces(pieces: Any, encoder: PieceEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the texts of pieces, [B] string; pieces without rules of their own are words.

    Args:
      pieces: pieces of the encoder.
      encoder: the encoder.
      ids: [B, T] int64.
      mask: mask of ids that have a text, [B, T] bool.
    """
    return strings.joined_words(strings.named(encoder.tokens, ids, mask), mask)


@join_pieces.register(SentencePieces)
def _join_sentence_pieces(
    pieces: SentencePieces, encoder: PieceEncoder, ids: Proxy, mask: Proxy
) -> Proxy:
    texts = [token.replace(META_SPACE, " ") for token in encoder.tokens]
    unknown = pieces.processor.unk_id()
    if unknown >= 0:
        name = pieces.processor.id_to_piece(unknown)
        surface = pieces.processor.decode_pieces([name])
        texts = [surface if text == name else text for text in texts]
    # Spaces at the beginning are not written: all of them, or the first one alone.
    drops_all = encoder.strip or pieces.join([META_SPACE, f"{META_SPACE}a"]) == "a"
    ink = mask & ~take(np.array([not token.strip(META_SPACE) for token in encoder.tokens]), ids)
    lead = (ink if drops_all else mask).integers().CumSum(1) <= 1  # up to the first one
    shorter = [text.lstrip(" ") if drops_all else text.removeprefix(" ") for text in texts]
    words = where(lead, strings.named(shorter, ids, mask), strings.named(texts, ids, mask))
    if encoder.strip:
        words = where(ink.integers().CumSum(1, reverse=1) > 0, words, "")
    return strings.joined(words)


join_pieces.register(HuggingFacePieces)(tokenizer_texts)


@join_pieces.register(BytePairEncoding)
def _join_pairs(pieces: BytePairEncoding, encoder: PieceEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the texts of pieces: `BytePairEncoding.join`."""
    tokens, separator = encoder.tokens, pieces.separator
    texts = [token.removesuffix(separator) for token in tokens]
    ends = np.array([not token.endswith(separator) for token in tokens])
    ink = (mask & take(np.array([text != "" for text in texts]), ids)).integers()
    space = where(mask & take(ends, ids) & (ink.CumSum(1, reverse=1, exclusive=1) > 0), " ", "")
    return strings.joined(strings.named(texts, ids, mask).StringConcat(space))


_LINE_END = "\n"  # not in any alphabet
_POWERS = [10**i for i in range(6, -1, -1)]  # place values of the digits of a code point


class _Characters(NamedTuple):
    """The concatenated characters of all texts.

    Attributes:
      letters: characters, [N] string.
      kinds: 1 for letters and numbers, else 0, [N] int64.
      row: index of the text, [N] int64.
      counts: number of characters of each text, [B] int64.
      space: mask of spaces, [N] bool.
      first: mask of the first character of each text, [N] bool.
      last: mask of the last character of each text, [N] bool.
      lone: mask of single spaces between letters or numbers of one text, [N] bool.
    """

    letters: Proxy
    kinds: Proxy
    row: Proxy
    counts: Proxy
    space: Proxy
    first: Proxy
    last: Proxy
    lone: Proxy


@encoder_graph.register(SubtokenEncoder)
class SubtokenGraph(strings.EncoderGraph):
    """A `SubtokenEncoder` in a graph."""

    def __init__(self, encoder: SubtokenEncoder, graph: Graph, name: str) -> None:
        super().__init__(encoder, graph, name)
        alphabet = sorted(encoder.alphabet - {_LINE_END})
        self._numbers = {character: number for number, character in enumerate(alphabet)}
        pieces = {}
        for identity, piece in enumerate(encoder.subtokens):
            # Others are in no token: only the end of a token has the end mark, and a line end is
            # escaped.
            if piece and tensor2tensor_subword.END not in piece[:-1] and _LINE_END not in piece:
                pieces[tuple(self._numbers[character] for character in piece)] = identity
        self._trie = PieceTrie(pieces, len(alphabet))

    def of_texts(self, field: strings.FieldText) -> strings.NumberRows:
        """Returns the ids of each text."""
        line = self._line(field)
        return self._cut(line, line.first)[0]

    def of_words(self, field: strings.FieldText) -> strings.WordIds:
        """Returns the ids of each text's words; a kept space before a word belongs to it."""
        line = self._line(strings.FieldText(words=field.words))
        begins = line.first | line.space
        ids, before = self._cut(line, begins)
        return strings.WordIds(
            ids, strings.of_flat(before.Compress(begins, axis=0), field.word_counts)
        )

    def _line(self, field: strings.FieldText) -> _Characters:
        letters = field.letters
        flat, row = strings.nonempty(letters)
        kinds = flat.RegexFullMatch(pattern=f"[{strings.ranges(str.isalnum)}]").integers()
        first = row != shifted(row, -1, strings.NONE)
        last = row != shifted(row, 1, strings.NONE)
        space = flat == " "
        lone = space & (shifted(kinds, -1, 0) + shifted(kinds, 1, 0) == 2) & ~(first | last)
        return _Characters(flat, kinds, row, strings.count_of(letters), space, first, last, lone)

    def _cut(self, line: _Characters, begins: Proxy) -> tuple[strings.NumberRows, Proxy]:
        """Returns the ids of texts, and the number of ids of the text before each character.

        Args:
          line: characters of the texts.
          begins: mask of characters that always begin a token, [N] bool.
        """
        other = line.kinds != shifted(line.kinds, 1, strings.NONE)
        ends = other | (shifted(begins.integers(), 1, 1) == 1) | line.last  # of tokens
        written = self._written(line, ends)
        is_symbol = written >= 0
        sizes = is_symbol.integers().sum(1)
        symbols = written.Reshape([-1]).Compress(is_symbol.Reshape([-1]), axis=0)
        end = self._numbers[tensor2tensor_subword.END]
        cut = self._trie.cut(symbols, shifted(symbols, -1, end) == end)
        ids = cut.ids.Compress(cut.begins, axis=0)
        known = ids.Concat([0], axis=0).ReduceMin(keepdims=0) >= 0
        ids = self.graph.require(known, f"{self._name}: the vocabulary has no entry for it", ids)
        # Number of ids before each character, and before each text and after the last.
        before = before_each(cut.begins.integers())[before_each(sizes)]
        of_rows = before[before_each(line.counts)]
        lengths = (shifted(of_rows, 1, 0) - of_rows)[:-1]
        return strings.of_flat(ids, lengths), before[:-1] - of_rows[line.row]

    def _written(self, line: _Characters, ends: Proxy) -> Proxy:
        """Returns the symbols of each escaped character: `tokenizer.escape`.

        Returns:
          [N, 11] int64, padded with -1.
        """
        numbers = self._numbers
        mark, low_line, end = numbers["\\"], numbers["_"], numbers[tensor2tensor_subword.END]
        number = strings.look_up(line.letters, numbers, strings.NONE)
        unknown = number == strings.NONE
        is_low_line = number == low_line
        first = where(unknown | is_low_line, mark, number)
        second = where(is_low_line, numbers["u"], where(number == mark, mark, strings.NONE))
        semicolon = where(unknown, numbers[";"], strings.NONE)
        ended = where(ends, end, strings.NONE)
        digits = self._digits(line.letters, unknown)
        columns = [one.Unsqueeze([1]) for one in (first, second, semicolon, ended)]
        written = concat(*columns[:2], digits, *columns[2:], axis=1)
        return where(line.lone.Unsqueeze([1]), strings.NONE, written)

    def _digits(self, letters: Proxy, unknown: Proxy) -> Proxy:
        """Returns the code point digits of characters that are not in the alphabet.

        Returns:
          Symbols of the digits, -1 for none, [N, 7] int64.
        """
        points = strings.code_points(letters.Compress(unknown, axis=0)).Unsqueeze([1])
        symbols = [self._numbers[digit] for digit in "0123456789"]
        digits = take(symbols, points / _POWERS % 10)
        digits = where(points >= [*_POWERS[:-1], 0], digits, strings.NONE)
        blank = combine("Expand", strings.NONE, letters.Shape().Concat([len(_POWERS)], axis=0))
        return blank.ScatterND(unknown.NonZero().Transpose(), digits)


# Kinds of characters; the kind of a digit is its value.
_DIGITS = 10
_MARK, _LOW_LINE, _SEMICOLON, _OTHER, _END = range(_DIGITS, _DIGITS + 5)
_KINDS = {
    **{str(digit): digit for digit in range(_DIGITS)},
    "\\": _MARK, "u": _LOW_LINE, ";": _SEMICOLON, tensor2tensor_subword.END: _END, "": _END,
}  # fmt: skip

_MOST_DIGITS = 7  # a number with more digits, without leading zeros, is not a code point


def unescaped_texts(escaped: Proxy) -> Proxy:
    """Returns the texts of joined subtokens, equal to `SubtokenEncoder.decode`.

    Args:
      escaped: [B] string.

    Returns:
      [B] string.
    """
    letters = strings.characters_of(escaped)
    # An end after each text separates it from the next.
    letters = letters.Concat(combine("Expand", "", letters.size(0).Concat([1], axis=0)), axis=1)
    shape, flat = letters.Shape(), letters.Reshape([-1])
    kinds = strings.look_up(flat, _KINDS, _OTHER)
    flat = _unescaped(flat, kinds)
    return strings.joined(
        _apart(flat, kinds, places(kinds) / letters.size(1).Squeeze()).Reshape(shape)
    )


def _unescaped(letters: Proxy, kinds: Proxy) -> Proxy:
    """Returns characters without escapes: the escaped character at the position of the mark, and
    "" at the other positions of the escape.  [N] string.
    """

    def is_kind(kind: int, by: int = 0) -> Proxy:
        return (shifted(kinds, by, _END) if by else kinds) == kind

    def back(flags: Proxy) -> Proxy:
        return shifted(flags.integers(), -1, 0) == 1

    # In a sequence of marks every second one is escaped by the one before it.
    mark = is_kind(_MARK)
    odd = (places(kinds) - latest(~mark)).BitwiseAnd(1) == 1
    odd_mark = mark & odd
    low_line = odd_mark & is_kind(_LOW_LINE, 1)

    digit = kinds < _DIGITS
    stop = following(~digit)
    stops_at = kinds.Pad([0, 1], _END)[stop]
    number = odd_mark & (shifted(kinds, 1, _END) < _DIGITS) & (stops_at == _SEMICOLON)
    of_number = digit & number[latest(~digit)]

    points = _numbers(kinds, digit, stop).Compress(number, axis=0)
    removed = mark & ~odd | is_kind(_LOW_LINE) & back(low_line) | of_number | is_kind(_END)
    removed = removed | is_kind(_SEMICOLON) & back(of_number)
    letters = where(low_line, "_", where(removed, "", letters))
    spots = number.NonZero().Transpose()
    known = (points <= sys.maxunicode) & ((points < 0xD800) | (points > 0xDFFF))
    points = where(known, points, ord(tensor2tensor_subword.UNKNOWN))
    return letters.ScatterND(spots, strings.characters_with(points))


def _numbers(kinds: Proxy, digit: Proxy, stop: Proxy) -> Proxy:
    """Returns the number formed by the digits after each position; numbers above all code points
    may be inexact, but stay above them.

    Args:
      kinds: kinds of the characters, [N] int64.
      digit: mask of digits, [N] bool.
      stop: next position without a digit, [N] int64.
    """
    powers = [10**i for i in range(_MOST_DIGITS + 1)]
    value = where(digit, kinds * take(powers, (stop - places(kinds) - 1).Min(_MOST_DIGITS)), 0)
    before = before_each(value)
    return before[stop] - before[:-1]


def _apart(letters: Proxy, kinds: Proxy, row: Proxy) -> Proxy:
    """Returns characters with a space before each token of letters or numbers that directly follows
    another one: `tokenizer.join`.

    Args:
      letters: characters, [N] string.
      kinds: kinds of the escaped characters, [N] int64.
      row: index of the text of each character, [N] int64.
    """
    begins = (shifted(kinds, -1, _END) == _END) & (kinds < _END)
    heads = letters.Compress(begins, axis=0)
    of_letters = heads.RegexFullMatch(pattern=f"[{strings.ranges(str.isalnum)}]").integers()
    row = row.Compress(begins, axis=0)
    apart = (row == shifted(row, -1, -1)) & (of_letters + shifted(of_letters, -1, 0) == 2)
    space = where(apart, " ", "")
    return letters.ScatterND(begins.NonZero().Transpose(), space.StringConcat(heads))
