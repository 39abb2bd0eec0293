"""Encoders of text in an ONNX graph: words, characters, integers, bytes, subwords; decoding."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from t2t_torch.errors import ExportError
from t2t_torch.export import decode_ids
from t2t_torch.export.graph import EXTENSIONS, Graph
from t2t_torch.export.pieces import sentence_pieces
from t2t_torch.export.strings import (
    NONE,
    EncoderGraph,
    FieldText,
    NumberRows,
    Spelling,
    WordIds,
    at_least_one,
    beside,
    characters_of,
    count_of,
    counted,
    is_first,
    joined,
    joined_words,
    look_up,
    named,
    of_flat,
    replaced,
    spaced,
    substitute,
    texts_of,
    turned,
    utf8,
)
from t2t_torch.export.subtokens import unescaped_texts
from t2t_torch.text.encoder import (
    EOS,
    NUM_RESERVED,
    PAD,
    ByteEncoder,
    CharacterEncoder,
    IntegerEncoder,
    TextEncoder,
    TokenEncoder,
)
from t2t_torch.text.subword import ESCAPES, SubwordEncoder
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder

_SPACE, *_OTHER_SPACES = (ord(space) + NUM_RESERVED for space in " \t\r\n")


class ByteGraph(EncoderGraph):
    """A `ByteEncoder` in a graph."""

    def of_texts(self, field: FieldText) -> NumberRows:
        """Returns one id per byte of each text."""
        graph, letters = self.graph, field.letters
        octets = utf8(graph, graph.add("Reshape", letters, [-1]))
        octets = graph.add("Reshape", octets, [-1])
        is_byte = graph.add("GreaterOrEqual", octets, 0)
        ids = graph.add("Compress", octets, is_byte, axis=0)
        ids = graph.add("Add", ids, NUM_RESERVED)
        count = graph.add("Shape", letters, start=0, end=1)
        by_text = graph.add("Concat", count, [-1], axis=0)
        is_byte = graph.add("Reshape", graph.integers(is_byte), by_text)
        lengths = graph.add("ReduceSum", is_byte, [1], keepdims=0)
        return of_flat(graph, ids, lengths)

    def of_words(self, field: FieldText) -> WordIds:
        """Returns one id per byte of the words and the spaces between them."""
        graph = self.graph
        ids = self.of_texts(FieldText(graph, words=field.words))
        begins = graph.add("Greater", ids.values, PAD)
        begins = graph.add("And", begins, is_first(graph, ids.values))
        space = graph.add("Equal", ids.values, _SPACE)
        begins = graph.add("NonZero", graph.add("Or", begins, space))
        starts = graph.add("Gather", begins, 1)
        return WordIds(ids, of_flat(graph, starts, field.word_counts))

    def spelled(self, field: FieldText) -> Spelling:
        """Returns the bytes of each text."""
        graph, ids = self.graph, self.of_texts(field).values
        between = graph.add("Equal", ids, PAD)
        for space in (_SPACE, *_OTHER_SPACES):
            is_space = graph.add("Equal", ids, graph.constant(space))
            between = graph.add("Or", between, is_space)
        return Spelling(ids, between)


@decode_ids.register(ByteEncoder)
def _decode_bytes(encoder: ByteEncoder, graph: Graph, ids: str) -> str:
    mask = kept(graph, ids)
    octets = graph.add("Sub", ids, NUM_RESERVED)
    above = graph.add("GreaterOrEqual", octets, 0)
    known = graph.add("And", above, graph.add("Less", octets, 256))
    known = graph.add("And", known, mask)
    return texts_of(graph, graph.add("Where", known, octets, NONE))


class SubwordGraph(EncoderGraph):
    """A `SubwordEncoder` in a graph.

    The only difference: onnxruntime_extensions end a text at NUL, so the graph rejects NUL.
    """

    def of_texts(self, field: FieldText) -> NumberRows:
        """Returns the ids of each text."""
        ids, lengths = sentence_pieces(self.graph, self._escaped(field).texts, self.encoder.model)
        return of_flat(self.graph, ids, lengths)

    def of_words(self, field: FieldText) -> WordIds:
        """Returns the ids of each text's words; all but the first include the space before them."""
        graph = self.graph
        words = at_least_one(graph, self._escaped(field).words, "")
        blank = graph.add("Equal", words, graph.constant(""))
        shape = graph.add("Shape", words)
        texts = graph.add("Reshape", spaced(graph, words), [-1])
        ids, counts = sentence_pieces(graph, texts, self.encoder.model)
        counts = graph.add("Reshape", counts, shape)
        starts = graph.add("CumSum", counts, 1, exclusive=1)
        starts = graph.add("Where", blank, 0, starts)
        lengths = graph.add("ReduceSum", counts, [1], keepdims=0)
        return WordIds(of_flat(graph, ids, lengths), NumberRows(starts, field.word_counts))

    def _escaped(self, field: FieldText) -> FieldText:
        graph, texts = self.graph, field.texts
        sound = graph.integers(graph.add("RegexFullMatch", texts, pattern=r"[^\x{0}]*"))
        sound = graph.add("Equal", graph.add("ReduceMin", sound, keepdims=0), 1)
        texts = graph.require(sound, f"{self._name}: a text holds the character NUL", texts)
        unchanged = f"[^{''.join(ESCAPES)}]*"
        return FieldText(graph, replaced(graph, texts, unchanged, self._escape))

    def _escape(self, texts: str) -> str:
        """Returns texts escaped for sentencepiece.  [B] string."""
        graph = self.graph
        letters = characters_of(graph, texts)
        return joined(graph, substitute(graph, letters, ESCAPES))


@decode_ids.register(SubwordEncoder)
def _decode_subwords(encoder: SubwordEncoder, graph: Graph, ids: str) -> str:
    """Returns `decode_ids`; a text also ends at the id of the byte NUL."""
    end = graph.integers(graph.add("Equal", ids, EOS))
    before = graph.add("Equal", graph.add("CumSum", end, 1), 0)
    known = graph.add(  # sentencepiece's unknown id, the first after the reserved ones, has no text
        "And",
        graph.add("Greater", ids, NUM_RESERVED),
        graph.add("Less", ids, graph.constant(encoder.vocab_size)),
    )
    mask = graph.add("And", before, known)
    body = graph.body("decode")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    texts = body.input("texts", "string", [None])
    row = body.add("Compress", body.add("Gather", ids, number), body.add("Gather", mask, number))
    text = body.add("SentencepieceDecoder", row, domain=EXTENSIONS, model=encoder.model)
    body.output("more", body.constant(True), "bool", [])
    body.output("texts", body.add("Concat", texts, text, axis=0), "string", [None])
    count = graph.add("Squeeze", graph.add("Shape", ids, start=0, end=1))
    none = graph.constant(np.array([], object))
    texts = graph.add("Loop", count, graph.constant(True), none, body=body)
    return joined(graph, _unescaped(graph, characters_of(graph, texts)))


def _unescaped(graph: Graph, letters: str) -> str:
    """Returns characters with two-character escapes replaced by one.  [B, L] string."""
    before, after = beside(graph, letters, "")
    whole = letters
    for character, escaped in ESCAPES.items():
        mark, digit = escaped[0], escaped[1]
        is_mark = graph.add("Equal", letters, graph.constant(mark))
        is_mark = graph.add("And", is_mark, graph.add("Equal", after, graph.constant(digit)))
        is_digit = graph.add("Equal", letters, graph.constant(digit))
        is_digit = graph.add("And", is_digit, graph.add("Equal", before, graph.constant(mark)))
        whole = graph.add("Where", is_mark, graph.constant(""), whole)
        whole = graph.add("Where", is_digit, graph.constant(character), whole)
    return whole


def check_decodable(name: str, encoder: TextEncoder) -> None:
    """Checks that a graph can decode texts of an encoder.

    Args:
      name: name of the text.
      encoder: the encoder.

    Raises:
      ExportError: it cannot.
    """
    graph = Graph("text")
    try:
        decode_ids(encoder, graph, graph.input("ids", "int64", [None, None]))
    except ExportError as error:
        raise ExportError(
            f"{name!r} is a text of a {type(encoder).__name__}, which a graph cannot write: "
            f"{error} Serve the run with PyTorch:  t2t-server --output_dir=RUN"
        ) from None


@decode_ids.register(SubtokenEncoder)
def _decode_subtokens(encoder: SubtokenEncoder, graph: Graph, ids: str) -> str:
    pieces = named(graph, encoder.subtokens, ids, kept(graph, ids))
    return unescaped_texts(graph, joined(graph, pieces))


@decode_ids.register(CharacterEncoder)
def _decode_characters(encoder: CharacterEncoder, graph: Graph, ids: str) -> str:
    unknown = encoder.decode([encoder.vocab_size])
    signs = ["", "", unknown, *encoder.characters]
    return joined(graph, named(graph, signs, ids, kept(graph, ids), unknown))


@decode_ids.register(IntegerEncoder)
def _decode_integers(encoder: IntegerEncoder, graph: Graph, ids: str) -> str:
    mask = kept(graph, ids)
    numbers = graph.add("Sub", ids, NUM_RESERVED)
    words = graph.add("Cast", numbers, to=TensorProto.STRING)
    return joined_words(graph, graph.add("Where", mask, words, [""]), mask)


@decode_ids.register(TokenEncoder)
def _decode_words(encoder: TokenEncoder, graph: Graph, ids: str) -> str:
    if encoder.reverse:
        raise ExportError("its words are from the last to the first.")
    mask = kept(graph, ids)
    return joined_words(graph, named(graph, encoder.tokens, ids, mask), mask)


def decoded_hypotheses(graph: Graph, encoder: TextEncoder, ids: str) -> str:
    """Returns the text of each hypothesis; hypotheses may be empty.

    Args:
      graph: graph to which operators are added.
      encoder: encoder accepted by `check_decodable`.
      ids: [B, n, T] int64; T may be 0.

    Returns:
      [B, n] string.
    """
    shape = graph.add("Shape", ids, start=0, end=2)
    ids = graph.add("Pad", ids, [0, 0, 0, 0, 0, 1], PAD)
    width = graph.add("Shape", ids, start=2, end=3)
    flat = graph.add("Reshape", ids, graph.add("Concat", [-1], width, axis=0))
    return graph.add("Reshape", decode_ids(encoder, graph, flat), shape)


def kept(graph: Graph, ids: str) -> str:
    """Returns a mask of the ids of the text.  [B, T] bool."""
    end = graph.integers(graph.add("Equal", ids, EOS))
    before = graph.add("Equal", graph.add("CumSum", end, 1), 0)
    return graph.add("And", before, graph.add("Not", graph.add("Equal", ids, PAD)))


class TokenTable(EncoderGraph):
    """A `TokenEncoder` in a graph."""

    def __init__(self, encoder: TokenEncoder, graph: Graph, name: str) -> None:
        super().__init__(encoder, graph, name)
        words = enumerate(encoder.tokens[NUM_RESERVED:], NUM_RESERVED)
        # An empty line of a vocabulary file is never a word of a text; here it is the padding.
        self._numbers = {**{word: number for number, word in words}, "": PAD}

    def of_texts(self, field: FieldText) -> NumberRows:
        """Returns one id per whitespace-separated token (`str.split`) of each text."""
        rows = self._looked_up(field.lower_parts if self.encoder.lower_case else field.parts)
        return turned(self.graph, rows) if self.encoder.reverse else rows

    def of_words(self, field: FieldText) -> WordIds:
        """Returns one id per word."""
        ids = self._looked_up(field.lower_words if self.encoder.lower_case else field.words)
        return WordIds(ids, counted(self.graph, ids.lengths))

    def _looked_up(self, words: str) -> NumberRows:
        graph, lengths = self.graph, count_of(self.graph, words)
        unknown = next(iter(self.encoder.unknown_ids), -1)
        ids = at_least_one(graph, look_up(graph, words, self._numbers, unknown), PAD)
        if unknown < 0:
            known = graph.add("GreaterOrEqual", graph.add("ReduceMin", ids, keepdims=0), 0)
            ids = graph.require(known, f"{self._name}: a word is not in the vocabulary", ids)
        return NumberRows(ids, lengths)


class SymbolTable(EncoderGraph):
    """A `CharacterEncoder` in a graph."""

    def __init__(self, encoder: CharacterEncoder, graph: Graph, name: str) -> None:
        super().__init__(encoder, graph, name)
        (self._unknown,) = encoder.unknown_ids
        known = enumerate(encoder.characters, self._unknown + 1)
        self._numbers = {**{character: number for number, character in known}, "": PAD}

    def ids_of(self, letters: str) -> str:
        """Returns the id of each character, `PAD` for the empty string: string to int64."""
        return look_up(self.graph, letters, self._numbers, self._unknown)

    def of_texts(self, field: FieldText) -> NumberRows:
        """Returns one id per character of each text."""
        return NumberRows(self.ids_of(field.letters), count_of(self.graph, field.letters))

    def of_words(self, field: FieldText) -> WordIds:
        """Returns one id per character of the words and the spaces between them."""
        graph = self.graph
        letters = characters_of(graph, joined(graph, spaced(graph, field.words)))
        is_letter = graph.add("Not", graph.add("Equal", letters, graph.constant("")))
        begins = graph.add("And", is_letter, is_first(graph, letters))
        begins = graph.add("Or", begins, graph.add("Equal", letters, graph.constant(" ")))
        starts = graph.add("Gather", graph.add("NonZero", begins), 1)
        ids = NumberRows(self.ids_of(letters), count_of(graph, letters))
        return WordIds(ids, of_flat(graph, starts, field.word_counts))

    def spelled(self, field: FieldText) -> Spelling:
        """Returns the characters of each text."""
        graph, letters = self.graph, field.letters
        between = look_up(graph, letters, dict.fromkeys(["", *" \t\r\n"], 1), 0)
        between = graph.add("Equal", between, 1)
        return Spelling(self.ids_of(letters), between)


class IntegerTable(EncoderGraph):
    """An `IntegerEncoder` in a graph.

    The only difference: integers have at most eighteen ASCII digits and no underscores.
    """

    def of_texts(self, field: FieldText) -> NumberRows:
        """Returns one id per whitespace-separated token (`str.split`) of each text."""
        return self._encoded(field.parts)

    def of_words(self, field: FieldText) -> WordIds:
        """Returns one id per word."""
        ids = self._encoded(field.words)
        return WordIds(ids, counted(self.graph, ids.lengths))

    def _encoded(self, words: str) -> NumberRows:
        graph, lengths = self.graph, count_of(self.graph, words)
        size = self.encoder.vocab_size
        words = at_least_one(graph, words, "")
        blank = graph.add("Equal", words, graph.constant(""))
        words = graph.add("Where", blank, graph.constant("0"), words)
        written = graph.add("RegexFullMatch", words, pattern="[+-]?[0-9]{1,18}")
        words = self._required(written, words, "a word is no integer")
        ids = graph.add("Cast", words, to=TensorProto.INT64)
        ids = graph.add("Add", ids, NUM_RESERVED)
        least = graph.add("GreaterOrEqual", ids, NUM_RESERVED)
        within = graph.add("And", least, graph.add("Less", ids, graph.constant(size)))
        most = size - NUM_RESERVED - 1
        ids = self._required(within, ids, f"an integer is not from 0 to {most}")
        return NumberRows(graph.add("Where", blank, PAD, ids), lengths)

    def _required(self, each: str, values: str, otherwise: str) -> str:
        """Returns values unchanged; the graph fails if a condition is false for one of them."""
        graph = self.graph
        every = graph.add("ReduceMin", graph.integers(each), keepdims=0)
        every = graph.add("Equal", every, 1)
        return graph.require(every, f"{self._name}: {otherwise}", values)
