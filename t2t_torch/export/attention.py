"""Word-level attention of outputs in a graph, computed by a second pass over the outputs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from t2t_torch.export import decode_ids
from t2t_torch.export.encoders import kept
from t2t_torch.export.graph import Graph
from t2t_torch.export.search import AttentionNetwork
from t2t_torch.export.strings import SPACE, beside, characters, count_of, first, re2, tokens
from t2t_torch.text.encoder import (
    NUM_RESERVED,
    PAD,
    ByteEncoder,
    CharacterEncoder,
    IntegerEncoder,
    TextEncoder,
    TokenEncoder,
)

_NONE = 256  # marks empty positions; never a byte, but other values may be equal to it
_RADIX = _NONE + 1
_MOST = 3  # maximum bytes of a space


def words_of(graph: Graph, texts: str) -> str:
    """Returns the tokens of `str.split`: [B] string to [B, W], padded with ""."""
    return tokens(graph, texts, separators=[f"{re2(SPACE)}+"])


def word_numbers(graph: Graph, encoder: TextEncoder, ids: str, mask: str) -> str:
    """Returns the word index of each id, from 0; -1 for ids that are not kept.

    It is the number of words up to the id minus one, as in `decode.word_alignment`.

    Args:
      graph: graph to which operators are added.
      encoder: encoder accepted by `check_decodable`.
      ids: [N, T] int64.
      mask: mask of the ids of the text: a prefix without `EOS`, [N, T] bool.

    Returns:
      [N, T] int64.
    """
    counts = word_counts(encoder, graph, ids, mask)
    numbers = graph.add("Max", graph.add("Sub", counts, 1), 0)
    return graph.add("Where", mask, numbers, graph.constant(np.int64(-1)))


@functools.singledispatch
def word_counts(encoder: TextEncoder, graph: Graph, ids: str, mask: str) -> str:
    """Returns the number of words up to each kept id, for any encoder.  [N, T] int64.

    The prefix up to each id is decoded.  Encoders that know more have their own implementation.

    Args:
      encoder: encoder accepted by `check_decodable`.
      graph: graph to which operators are added.
      ids: [N, T] int64.
      mask: mask of the ids of the text, [N, T] bool.
    """
    width = graph.add("Squeeze", graph.add("Shape", ids, start=1, end=2))
    places = graph.add("Range", 0, width, 1)
    body = graph.body("words")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    before = body.add("And", mask, body.add("LessOrEqual", places, number))
    part = body.add("Where", before, ids, PAD)
    count = count_of(body, words_of(body, decode_ids(encoder, body, part)))
    body.output("more", body.constant(True), "bool", [])
    body.output("count", count, "int64", [None])
    counts = graph.add("Loop", width, graph.constant(True), body=body)  # [T, N]
    return graph.add("Transpose", counts)


@word_counts.register(TokenEncoder)
def _counts_of_tokens(encoder: TokenEncoder, graph: Graph, ids: str, mask: str) -> str:
    # Tokens are separated by spaces; a token may itself be several words, or none.
    sizes = [0] * NUM_RESERVED + [len(name.split()) for name in encoder.tokens[NUM_RESERVED:]]
    # Ids that are not kept, and those beyond the vocabulary, have no words.
    mask = graph.add("And", mask, graph.add("Less", ids, graph.constant(len(sizes))))
    known = graph.add("Where", mask, ids, PAD)
    words = graph.add("Gather", graph.constant(np.array(sizes, np.int64)), known)
    return graph.add("CumSum", words, 1)


@word_counts.register(IntegerEncoder)
def _counts_of_integers(encoder: IntegerEncoder, graph: Graph, ids: str, mask: str) -> str:
    return graph.add("CumSum", graph.integers(_not_padding(graph, ids, mask)), 1)


@word_counts.register(CharacterEncoder)
def _counts_of_characters(encoder: CharacterEncoder, graph: Graph, ids: str, mask: str) -> str:
    is_content = _not_padding(graph, ids, mask)
    names = encoder.characters
    spaces = [NUM_RESERVED + 1 + i for i, name in enumerate(names) if name.isspace()]
    line = _CompactValues.of(graph, ids, is_content)
    other = _others(graph, _are_of(graph, line.values, spaces))
    return line.read(graph, _words_begun(graph, graph.add("Mul", line.mask, other)))


@word_counts.register(ByteEncoder)
def _counts_of_bytes(encoder: ByteEncoder, graph: Graph, ids: str, mask: str) -> str:
    is_content = _not_padding(graph, ids, mask)
    octets = graph.add("Sub", ids, NUM_RESERVED)
    is_byte = graph.add("GreaterOrEqual", octets, 0)
    is_byte = graph.add("And", is_byte, graph.add("Less", octets, 256))
    line = _CompactValues.of(graph, octets, graph.add("And", is_content, is_byte))
    return line.read(graph, _counts_of_octets(graph, line))


def _not_padding(graph: Graph, ids: str, mask: str) -> str:
    return graph.add("And", mask, graph.add("Not", graph.add("Equal", ids, PAD)))


class _CompactValues(NamedTuple):
    """Values of ids, compacted to exclude empty ones.

    Attributes:
      values: values after an empty first one, padded with `_NONE`, [N, 1 + T] int64.
      mask: 1 at values, else 0, [N, 1 + T] int64.
      places: for each id the index of its value, or of the last one before it, [N, T] int64.
    """

    values: str
    mask: str
    places: str

    @classmethod
    def of(cls, graph: Graph, values: str, mask: str) -> _CompactValues:
        """Compacts the values at true positions of `mask`: [N, T] int64 and bool."""
        ones = graph.integers(mask)
        places = graph.add("CumSum", ones, 1)
        first_one = graph.constant([0, 1, 0, 0])
        blank = graph.add("Pad", graph.add("Mul", ones, 0), first_one)
        # Empty values add 0 at their position.
        together: dict[str, Any] = {"axis": 1, "reduction": "add"}
        its_there = graph.add("ScatterElements", blank, places, ones, **together)
        shifted = graph.add("Sub", values, _NONE)
        shifted = graph.add("Where", mask, shifted, 0)
        its_values = graph.add("ScatterElements", blank, places, shifted, **together)
        its_values = graph.add("Add", its_values, _NONE)
        return cls(its_values, its_there, places)

    def read(self, graph: Graph, values: str) -> str:
        """Returns the values for each id.  [N, 1 + T] -> [N, T]."""
        return graph.add("GatherElements", values, self.places, axis=1)


def _are_of(graph: Graph, values: str, numbers: Sequence[int]) -> str:
    """Returns 1 for values in `numbers`, 0 for others.  [N, T] int64."""
    each = graph.add("Unsqueeze", values, [2])
    equal = graph.add("Equal", each, graph.constant(np.array(numbers, np.int64)))
    return graph.add("ReduceSum", graph.integers(equal), [2], keepdims=0)


def _before(graph: Graph, values: str) -> str:
    """Returns for each value the one before it, 0 for the first."""
    return beside(graph, values, 0)[0]


def _others(graph: Graph, values: str) -> str:
    """Returns the complement: 1 for 0 and 0 for 1."""
    return graph.add("Sub", 1, values)


def _words_begun(graph: Graph, inside: str) -> str:
    """Returns the number of words that begin up to each value.

    Args:
      graph: graph to which operators are added.
      inside: 1 inside words, else 0, [N, T] int64.
    """
    begins = graph.add("Mul", inside, _others(graph, _before(graph, inside)))
    return graph.add("CumSum", begins, 1)


def _counts_of_octets(graph: Graph, line: _CompactValues) -> str:
    """Returns the number of words of the prefix up to each byte.

    The bytes of a multi-byte space are a space in any context: its first byte always begins a
    character.  A prefix that ends inside it ends with the replacement character, which is part of
    the word before it, or a word of its own if there is none.
    """
    by_size: list[list[int]] = [[] for _ in range(_MOST)]
    for octets in (name.encode() for name in characters() if name.isspace()):
        by_size[len(octets) - 1].append(_number_of(octets))
    number = octet = line.values
    starts = []  # for spaces of one, two and three bytes
    for numbers in by_size:
        starts.append(_are_of(graph, number, numbers))
        octet = beside(graph, octet, _NONE)[1]
        number = graph.add("Add", graph.add("Mul", number, _RADIX), octet)
    one, two, three = starts
    longer = graph.add("Add", two, three)
    spaces = graph.add("Add", one, graph.add("Add", longer, _before(graph, longer)))
    spaces = graph.add("Add", spaces, _before(graph, _before(graph, three)))
    inside = graph.add("Mul", line.mask, _others(graph, spaces))
    alone = _others(graph, _before(graph, inside))
    signs = graph.add("Mul", longer, alone)
    signs = graph.add("Add", signs, _before(graph, graph.add("Mul", three, alone)))
    return graph.add("Add", _words_begun(graph, inside), signs)


def _number_of(octets: bytes) -> int:
    """Returns a unique number for a sequence of bytes."""
    number = 0
    for octet in octets:
        number = number * _RADIX + octet
    return number


class WordAttention(NamedTuple):
    """Word-level attention.

    Attributes:
      weights: weights of output words over input words, averaged over the subwords of the output
        word, -1 at padding, [B, n, W, R] float32.
      read: input words, as written by the vocabulary, [B, R] string.
      written: output words, [B, n, W] string.
    """

    weights: str
    read: str
    written: str


_FORMS = {"weights": ("float32", 4), "read": ("string", 2), "written": ("string", 3)}


class _TextWords(NamedTuple):
    """Texts as words.

    Attributes:
      numbers: word index of each id, -1 for none, [B, n, T] int64.
      parts: 1 where an id belongs to a word, else 0, [B, n, T, W] float32.
      mask: mask of words, [B, n, W] bool.
      names: the words, [B, n, W] string.
    """

    numbers: str
    parts: str
    mask: str
    names: str


def add_attention(
    graph: Graph,
    network: AttentionNetwork,
    initial: Mapping[str, str],
    ids: tuple[str, str],
    encoders: tuple[TextEncoder, TextEncoder],
    wanted: str,
) -> WordAttention:
    """Adds a second pass over the results of a search, and returns their attention.

    Args:
      graph: graph to which operators are added.
      network: step of the pass.
      initial: initial state of the search by name.
      ids: ids of the inputs, [B, S], and of the results, [B, n, T].
      encoders: encoders of both, accepted by `check_decodable`.
      wanted: if false, the pass is skipped and the attention is empty, [] bool.
    """
    branch, nothing = graph.body("attention"), graph.body("no_attention")
    attention = _attention(branch, network, initial, ids, encoders)
    for name, value in zip(WordAttention._fields, attention, strict=True):
        dtype, rank = _FORMS[name]
        branch.output(name, value, dtype, [None] * rank)
        kind = object if dtype == "string" else dtype
        empty = nothing.constant(np.empty((0,) * rank, kind))
        nothing.output(name, empty, dtype, [None] * rank)
    return WordAttention(*graph.several(3, "If", wanted, then_branch=branch, else_branch=nothing))


def _attention(
    graph: Graph,
    network: AttentionNetwork,
    initial: Mapping[str, str],
    ids: tuple[str, str],
    encoders: tuple[TextEncoder, TextEncoder],
) -> WordAttention:
    """Returns the attention of `add_attention` if it is wanted."""
    read_ids = graph.add("Unsqueeze", ids[0], [1])  # [B, 1, S]
    # Pad by one position, so that there is at least one.
    written_ids = graph.add("Pad", ids[1], [0, 0, 0, 0, 0, 1], PAD)
    read, written = (
        _words(graph, encoder, each)
        for encoder, each in zip(encoders, (read_ids, written_ids), strict=True)
    )
    weights = _weights(graph, network, initial, written_ids)  # [B, n, T, S]
    of_words = graph.add("Transpose", written.parts, perm=[0, 1, 3, 2])  # [B, n, W, T]
    sums = graph.add("MatMul", graph.add("MatMul", of_words, weights), read.parts)  # [B, n, W, R]
    counts = graph.add("ReduceSum", of_words, [3])
    means = graph.add("Div", sums, graph.add("Max", counts, 1.0))
    mask = graph.add(
        "And",
        graph.add("Unsqueeze", written.mask, [3]),
        graph.add("Unsqueeze", read.mask, [2]),
    )
    return WordAttention(
        graph.add("Where", mask, means, -1.0),
        graph.add("Squeeze", read.names, [1]),
        written.names,
    )


def _weights(graph: Graph, network: AttentionNetwork, initial: Mapping[str, str], ids: str) -> str:
    """Returns the attention weights of each id.  [B, n, T] -> [B, n, T, S]."""
    state = {
        name: graph.add("Gather", initial[name], 0, axis=network.axes[name])
        if name in network.axes
        else initial[name]
        for name in (*network.carried, *network.kept)
    }
    before = graph.constant([0, 0, 1, 0, 0, 0])
    reads = graph.add("Pad", ids, before, PAD)  # a search starts with PAD
    kinds = {one.name: one.type.tensor_type for one in network.step.graph.input}
    shapes = {name: [None] * len(kinds[name].shape.dim) for name in network.carried}
    body = graph.body("reading")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    now = {n: body.input(n, kinds[n].elem_type, shapes[n]) for n in network.carried}
    outer = {name: state[name] for name in network.kept}
    inputs = {"ids": body.add("Gather", reads, number, axis=2), **now, **outer}
    after = body.inline(network.step, inputs)
    body.output("more", body.constant(True), "bool", [])
    for name in network.carried:
        body.output(name, after[f"next.{name}"], kinds[name].elem_type, shapes[name])
    body.output("attention", after["attention"], "float32", [None] * 3)
    counted = reads if network.read else ids
    steps = graph.add("Squeeze", graph.add("Shape", counted, start=2, end=3))
    carried = [state[name] for name in network.carried]
    *_, weights = graph.several(
        len(carried) + 1, "Loop", steps, graph.constant(True), *carried, body=body
    )
    weights = graph.add("Transpose", weights, perm=[1, 2, 0, 3])
    if not network.read:
        return weights
    end = graph.add("Shape", weights, start=2, end=3)  # drop the weights of PAD
    return graph.add("Slice", weights, [1], end, [2])


def _words(graph: Graph, encoder: TextEncoder, ids: str) -> _TextWords:
    """Returns the words of ids [B, n, T] up to the first `EOS`, without padding."""
    outer = graph.add("Shape", ids, start=0, end=2)
    every = graph.constant([-1])
    width = graph.add("Shape", ids, start=2, end=3)
    flat = graph.add("Reshape", ids, graph.add("Concat", every, width, axis=0))  # [N, T]
    mask = _content(graph, flat)
    numbers = word_numbers(graph, encoder, flat, mask)
    count = graph.add("Add", graph.add("ReduceMax", numbers, every), 1)  # [N, 1]
    most = graph.add("Max", graph.add("ReduceMax", count, keepdims=0), [1])  # [1]
    places = graph.add("Range", 0, graph.add("Squeeze", most), 1)
    is_word = graph.add("Less", places, count)  # [N, W]
    text = decode_ids(encoder, graph, graph.add("Where", mask, flat, PAD))
    blank = graph.add("Expand", graph.constant(""), graph.add("Shape", is_word))
    names = first(graph, graph.add("Concat", words_of(graph, text), blank, axis=1), most)
    names = graph.add("Where", is_word, names, graph.constant(""))
    shape = graph.add("Concat", outer, every, axis=0)
    numbers = graph.add("Reshape", numbers, graph.add("Shape", ids))
    each = graph.add("Unsqueeze", numbers, [3])
    parts = graph.add("Cast", graph.add("Equal", each, places), to=TensorProto.FLOAT)
    is_word, names = (graph.add("Reshape", part, shape) for part in (is_word, names))
    return _TextWords(numbers, parts, is_word, names)


def _content(graph: Graph, ids: str) -> str:
    """Returns a mask of the ids before the end symbol and the padding.  [N, T] bool."""
    is_content = graph.integers(kept(graph, ids))
    # Padding inside counts: all ids up to the last one that is not padding are kept.
    behind = graph.add("CumSum", is_content, 1, reverse=1)
    return graph.add("Greater", behind, 0)
