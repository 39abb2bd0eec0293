"""Encoders of text in an ONNX graph: words, characters, integers, bytes, subwords; decoding."""

from __future__ import annotations

import functools
import operator

import numpy as np
from onnx import TensorProto

from t2t_torch.errors import ExportError
from t2t_torch.export import decode_ids, encoder_graph, strings
from t2t_torch.export.graph import EXTENSIONS, Graph, Proxy, concat, loop, where
from t2t_torch.export.pieces import sentence_pieces, unescaped_texts
from t2t_torch.text import encoder as text_encoder
from t2t_torch.text.encoder import NUM_RESERVED, PAD, TextEncoder
from t2t_torch.text.subword import ESCAPES, SubwordEncoder
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder

_SPACE, *_OTHER_SPACES = (ord(space) + NUM_RESERVED for space in " \t\r\n")


@encoder_graph.register(text_encoder.ByteEncoder)
class ByteGraph(strings.EncoderGraph):
    """A `ByteEncoder` in a graph."""

    def of_texts(self, field: strings.FieldText) -> strings.NumberRows:
        """Returns one id per byte of each text."""
        letters = field.letters
        octets = strings.utf8(letters.Reshape([-1])).Reshape([-1])
        is_byte = octets >= 0
        ids = octets.Compress(is_byte, axis=0) + NUM_RESERVED
        is_byte = is_byte.integers().Reshape(letters.size(0).Concat([-1], axis=0))
        return strings.of_flat(ids, is_byte.sum(1))

    def of_words(self, field: strings.FieldText) -> strings.WordIds:
        """Returns one id per byte of the words and the spaces between them."""
        ids = self.of_texts(strings.FieldText(words=field.words))
        begins = (ids.values > PAD) & strings.is_first(ids.values)
        starts = (begins | (ids.values == _SPACE)).NonZero()[1]
        return strings.WordIds(ids, strings.of_flat(starts, field.word_counts))

    def spelled(self, field: strings.FieldText) -> strings.Spelling:
        """Returns the bytes of each text."""
        ids = self.of_texts(field).values
        spaces = (PAD, _SPACE, *_OTHER_SPACES)
        return strings.Spelling(ids, functools.reduce(operator.or_, [ids == one for one in spaces]))


@decode_ids.register(text_encoder.ByteEncoder)
def _decode_bytes(encoder: text_encoder.ByteEncoder, graph: Graph, ids: Proxy) -> Proxy:
    octets = ids - NUM_RESERVED
    return strings.texts_of(where((octets >= 0) & (octets < 256) & kept(ids), octets, strings.NONE))


@encoder_graph.register(SubwordEncoder)
class SubwordGraph(strings.EncoderGraph):
    """A `SubwordEncoder` in a graph.

    The only difference: onnxruntime_extensions end a text at NUL, so the graph rejects NUL.
    """

    def of_texts(self, field: strings.FieldText) -> strings.NumberRows:
        """Returns the ids of each text."""
        ids, lengths = sentence_pieces(self._escaped(field).texts, self.encoder.model)
        return strings.of_flat(ids, lengths)

    def of_words(self, field: strings.FieldText) -> strings.WordIds:
        """Returns the ids of each text's words; all but the first include the space before them."""
        words = strings.at_least_one(self._escaped(field).words, "")
        ids, counts = sentence_pieces(strings.spaced(words).Reshape([-1]), self.encoder.model)
        counts = counts.Reshape(words.Shape())
        starts = where(words == "", 0, counts.CumSum(1, exclusive=1))
        lengths = counts.sum(1)
        return strings.WordIds(
            strings.of_flat(ids, lengths), strings.NumberRows(starts, field.word_counts)
        )

    def _escaped(self, field: strings.FieldText) -> strings.FieldText:
        """Returns texts escaped for sentencepiece."""

        def escape(some: Proxy) -> Proxy:
            return strings.joined(strings.substitute(strings.characters_of(some), ESCAPES))

        texts = field.texts
        sound = texts.RegexFullMatch(pattern=r"[^\x{0}]*").all()
        texts = self.graph.require(sound, f"{self._name}: a text holds the character NUL", texts)
        return strings.FieldText(strings.replaced(texts, f"[^{''.join(ESCAPES)}]*", escape))


@decode_ids.register(SubwordEncoder)
def _decode_subwords(encoder: SubwordEncoder, graph: Graph, ids: Proxy) -> Proxy:
    """Returns `decode_ids`; a text also ends at the id of the byte NUL."""
    # sentencepiece's unknown id, the first after the reserved ones, has no text.
    mask = strings.before_end(ids) & (ids > NUM_RESERVED) & (ids < encoder.vocab_size)

    def decode(body: Graph, number: Proxy, texts: Proxy) -> tuple[Proxy, ...]:
        row = ids[number].Compress(mask[number])
        text = row.SentencepieceDecoder(domain=EXTENSIONS, model=encoder.model)
        return body.constant(True), texts.Concat(text, axis=0)

    none, count = graph.constant(np.array([], object)), ids.size(0).Squeeze()
    (texts,) = loop(graph, decode, none, kinds=[("string", [None])], count=count)
    return strings.joined(_unescaped(strings.characters_of(texts)))


def _unescaped(letters: Proxy) -> Proxy:
    """Returns characters with two-character escapes replaced by one.  [B, L] string."""
    before, after = strings.beside(letters, "")
    whole = letters
    for character, escaped in ESCAPES.items():
        mark, digit = escaped[0], escaped[1]
        is_mark = (letters == mark) & (after == digit)
        whole = where((letters == digit) & (before == mark), character, where(is_mark, "", whole))
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
def _decode_subtokens(encoder: SubtokenEncoder, graph: Graph, ids: Proxy) -> Proxy:
    return unescaped_texts(strings.joined(strings.named(encoder.subtokens, ids, kept(ids))))


@decode_ids.register(text_encoder.CharacterEncoder)
def _decode_characters(encoder: text_encoder.CharacterEncoder, graph: Graph, ids: Proxy) -> Proxy:
    unknown = encoder.decode([encoder.vocab_size])
    return strings.joined(
        strings.named(["", "", unknown, *encoder.characters], ids, kept(ids), unknown)
    )


@decode_ids.register(text_encoder.IntegerEncoder)
def _decode_integers(encoder: text_encoder.IntegerEncoder, graph: Graph, ids: Proxy) -> Proxy:
    mask = kept(ids)
    return strings.joined_words(
        where(mask, (ids - NUM_RESERVED).Cast(to=TensorProto.STRING), ""), mask
    )


@decode_ids.register(text_encoder.TokenEncoder)
def _decode_words(encoder: text_encoder.TokenEncoder, graph: Graph, ids: Proxy) -> Proxy:
    if encoder.reverse:
        raise ExportError("its words are from the last to the first.")
    mask = kept(ids)
    return strings.joined_words(strings.named(encoder.tokens, ids, mask), mask)


def decoded_hypotheses(encoder: TextEncoder, ids: Proxy) -> Proxy:
    """Returns the text of each hypothesis; hypotheses may be empty.

    Args:
      encoder: encoder accepted by `check_decodable`.
      ids: [B, n, T] int64; T may be 0.

    Returns:
      [B, n] string.
    """
    shape = ids.Shape(start=0, end=2)
    ids = ids.Pad([0, 0, 0, 0, 0, 1], PAD)
    flat = ids.Reshape(concat([-1], ids.size(2), axis=0))
    return decode_ids(encoder, ids.graph, flat).Reshape(shape)


def kept(ids: Proxy) -> Proxy:
    """Returns a mask of the ids of the text.  [B, T] bool."""
    return strings.before_end(ids) & (ids != PAD)


@encoder_graph.register(text_encoder.TokenEncoder)
class TokenTable(strings.EncoderGraph):
    """A `TokenEncoder` in a graph."""

    def __init__(self, encoder: text_encoder.TokenEncoder, graph: Graph, name: str) -> None:
        super().__init__(encoder, graph, name)
        words = enumerate(encoder.tokens[NUM_RESERVED:], NUM_RESERVED)
        # An empty line of a vocabulary file is never a word of a text; here it is the padding.
        self._numbers = {**{word: number for number, word in words}, "": PAD}

    def of_texts(self, field: strings.FieldText) -> strings.NumberRows:
        """Returns one id per whitespace-separated token (`str.split`) of each text."""
        rows = self._looked_up(field.lower_parts if self.encoder.lower_case else field.parts)
        return strings.turned(rows) if self.encoder.reverse else rows

    def of_words(self, field: strings.FieldText) -> strings.WordIds:
        """Returns one id per word."""
        ids = self._looked_up(field.lower_words if self.encoder.lower_case else field.words)
        return strings.WordIds(ids, strings.counted(ids.lengths))

    def _looked_up(self, words: Proxy) -> strings.NumberRows:
        unknown = next(iter(self.encoder.unknown_ids), -1)
        ids = strings.at_least_one(strings.look_up(words, self._numbers, unknown), PAD)
        if unknown < 0:
            known = ids.ReduceMin(keepdims=0) >= 0
            ids = self.graph.require(known, f"{self._name}: a word is not in the vocabulary", ids)
        return strings.NumberRows(ids, strings.count_of(words))


@encoder_graph.register(text_encoder.CharacterEncoder)
class SymbolTable(strings.EncoderGraph):
    """A `CharacterEncoder` in a graph."""

    def __init__(self, encoder: text_encoder.CharacterEncoder, graph: Graph, name: str) -> None:
        super().__init__(encoder, graph, name)
        (self._unknown,) = encoder.unknown_ids
        known = enumerate(encoder.characters, self._unknown + 1)
        self._numbers = {**{character: number for number, character in known}, "": PAD}

    def ids_of(self, letters: Proxy) -> Proxy:
        """Returns the id of each character, `PAD` for the empty string: string to int64."""
        return strings.look_up(letters, self._numbers, self._unknown)

    def of_texts(self, field: strings.FieldText) -> strings.NumberRows:
        """Returns one id per character of each text."""
        return strings.NumberRows(self.ids_of(field.letters), strings.count_of(field.letters))

    def of_words(self, field: strings.FieldText) -> strings.WordIds:
        """Returns one id per character of the words and the spaces between them."""
        letters = strings.characters_of(strings.joined(strings.spaced(field.words)))
        starts = ((letters != "") & strings.is_first(letters) | (letters == " ")).NonZero()[1]
        ids = strings.NumberRows(self.ids_of(letters), strings.count_of(letters))
        return strings.WordIds(ids, strings.of_flat(starts, field.word_counts))

    def spelled(self, field: strings.FieldText) -> strings.Spelling:
        """Returns the characters of each text."""
        return strings.Spelling(
            self.ids_of(field.letters), strings.blank_mask(field.letters, " \t\r\n")
        )


@encoder_graph.register(text_encoder.IntegerEncoder)
class IntegerTable(strings.EncoderGraph):
    """An `IntegerEncoder` in a graph.

    The only difference: integers have at most eighteen ASCII digits and no underscores.
    """

    def of_texts(self, field: strings.FieldText) -> strings.NumberRows:
        """Returns one id per whitespace-separated token (`str.split`) of each text."""
        return self._encoded(field.parts)

    def of_words(self, field: strings.FieldText) -> strings.WordIds:
        """Returns one id per word."""
        ids = self._encoded(field.words)
        return strings.WordIds(ids, strings.counted(ids.lengths))

    def _encoded(self, words: Proxy) -> strings.NumberRows:
        lengths, size = strings.count_of(words), self.encoder.vocab_size
        words = strings.at_least_one(words, "")
        blank = words == ""
        words = where(blank, "0", words)
        written = words.RegexFullMatch(pattern="[+-]?[0-9]{1,18}").all()
        words = self.graph.require(written, f"{self._name}: a word is no integer", words)
        ids = words.Cast(to=TensorProto.INT64) + NUM_RESERVED
        within = ((ids >= NUM_RESERVED) & (ids < size)).all()
        message = f"{self._name}: an integer is not from 0 to {size - NUM_RESERVED - 1}"
        ids = self.graph.require(within, message, ids)
        return strings.NumberRows(where(blank, PAD, ids), lengths)
