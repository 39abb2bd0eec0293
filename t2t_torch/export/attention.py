"""Which words an output's words attend to, in a graph: what has been found is read once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from t2t_torch.export.encoders import decoded
from t2t_torch.export.graph import Graph
from t2t_torch.export.search import AttentionNetwork
from t2t_torch.export.strings import SPACE, beside, characters, count_of, first, re2, tokens
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

# Which word of a text each of its ids is a part of, in a graph.


_NONE = 256  # stands where there is nothing; what there is may be the same but of bytes
_RADIX = _NONE + 1
_MOST = 3  # bytes of a space


def words_of(graph: Graph, texts: str) -> str:
    """Returns what `str.split` cuts texts into: [B] string to [B, W], filled up with ""."""
    return tokens(graph, texts, separators=[f"{re2(SPACE)}+"])


def word_numbers(graph: Graph, encoder: TextEncoder, ids: str, kept: str) -> str:
    """Returns the number of each id's word, from 0; -1 of ids that are not kept.

    It is how many words there are up to the id, less one: as `decode.word_alignment` has it.

    Args:
      graph: that the operators are added to.
      encoder: one that `check_decodable` lets pass.
      ids: [N, T] int64.
      kept: which of them are of the text, the first ones, none an `EOS`, [N, T] bool.

    Returns:
      [N, T] int64.
    """
    counts = _counts(graph, encoder, ids, kept)
    numbers = graph.add("Max", graph.add("Sub", counts, 1), 0)
    return graph.add("Where", kept, numbers, graph.constant(np.int64(-1)))


def _counts(graph: Graph, encoder: TextEncoder, ids: str, kept: str) -> str:
    """Returns how many words there are up to each id that is kept.  [N, T] int64."""
    if isinstance(encoder, TokenEncoder):
        # Between the names of ids there is a space; one may itself be several words, or none.
        sizes = [0] * NUM_RESERVED + [len(name.split()) for name in encoder.tokens[NUM_RESERVED:]]
        return graph.add("CumSum", _gathered(graph, sizes, ids, kept), 1)
    there = graph.add("And", kept, graph.add("Not", graph.add("Equal", ids, PAD)))
    if isinstance(encoder, IntegerEncoder):
        return graph.add("CumSum", graph.integers(there), 1)
    if isinstance(encoder, CharacterEncoder):
        names = encoder.characters
        spaces = [NUM_RESERVED + 1 + i for i, name in enumerate(names) if name.isspace()]
        line = _Line.of(graph, ids, there)
        return line.read(graph, _counts_of_characters(graph, line, spaces))
    if isinstance(encoder, ByteEncoder):
        octets = graph.add("Sub", ids, NUM_RESERVED)
        is_byte = graph.add("GreaterOrEqual", octets, 0)
        is_byte = graph.add("And", is_byte, graph.add("Less", octets, 256))
        line = _Line.of(graph, octets, graph.add("And", there, is_byte))
        return line.read(graph, _counts_of_bytes(graph, line))
    return _counts_of_beginnings(graph, encoder, ids, kept)


def _gathered(graph: Graph, numbers: Sequence[int], ids: str, kept: str) -> str:
    """Returns the number of each id that is kept; 0 of others, and behind the last number."""
    kept = graph.add("And", kept, graph.add("Less", ids, graph.constant(len(numbers))))
    known = graph.add("Where", kept, ids, PAD)
    return graph.add("Gather", graph.constant(np.array(numbers, np.int64)), known)


def _counts_of_beginnings(graph: Graph, encoder: TextEncoder, ids: str, kept: str) -> str:
    """Returns the same of any encoder: how many words the text of the ids up to each has."""
    width = graph.add("Squeeze", graph.add("Shape", ids, start=1, end=2))
    places = graph.add("Range", 0, width, 1)
    body = graph.body("words")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    before = body.add("And", kept, body.add("LessOrEqual", places, number))
    part = body.add("Where", before, ids, PAD)
    count = count_of(body, words_of(body, decoded(body, encoder, part)))
    body.output("more", body.constant(True), "bool", [])
    body.output("count", count, "int64", [None])
    counts = graph.add("Loop", width, graph.constant(True), body=body)  # [T, N]
    return graph.add("Transpose", counts)


class _Line(NamedTuple):
    """What ids stand for, without those that stand for nothing, so that neighbours are beside
    each other.

    Attributes:
      values: one more than there are ids, the first of nothing: [N, 1 + T] int64, `_NONE` where
        there is none.
      there: 1 where there is one, else 0, [N, 1 + T] int64.
      places: of each id where among them it is, or the last before it: [N, T] int64.
    """

    values: str
    there: str
    places: str

    @classmethod
    def of(cls, graph: Graph, values: str, there: str) -> _Line:
        """Puts values together, those that are there: [N, T] int64 and bool."""
        ones = graph.integers(there)
        places = graph.add("CumSum", ones, 1)
        first_one = graph.constant([0, 1, 0, 0])
        blank = graph.add("Pad", graph.add("Mul", ones, 0), first_one)
        # What is not there adds nothing where it is put.
        together: dict[str, Any] = {"axis": 1, "reduction": "add"}
        its_there = graph.add("ScatterElements", blank, places, ones, **together)
        shifted = graph.add("Sub", values, _NONE)
        shifted = graph.add("Where", there, shifted, 0)
        its_values = graph.add("ScatterElements", blank, places, shifted, **together)
        its_values = graph.add("Add", its_values, _NONE)
        return cls(its_values, its_there, places)

    def read(self, graph: Graph, values: str) -> str:
        """Returns of values of the line those of each id.  [N, 1 + T] -> [N, T]."""
        return graph.add("GatherElements", values, self.places, axis=1)


def _are_of(graph: Graph, values: str, numbers: Sequence[int]) -> str:
    """Returns 1 of values that are one of some numbers, 0 of others.  [N, T] int64."""
    each = graph.add("Unsqueeze", values, [2])
    equal = graph.add("Equal", each, graph.constant(np.array(numbers, np.int64)))
    return graph.add("ReduceSum", graph.integers(equal), [2], keepdims=0)


def _before(graph: Graph, values: str) -> str:
    """Returns for each value the one before it, 0 for the first."""
    return beside(graph, values, 0)[0]


def _others(graph: Graph, values: str) -> str:
    """Returns 1 for 0 and 0 for 1."""
    return graph.add("Sub", 1, values)


def _words_begun(graph: Graph, inside: str) -> str:
    """Returns how many words have begun up to each value.

    Args:
      graph: that the operators are added to.
      inside: 1 of what is in a word, [N, T] int64.
    """
    begins = graph.add("Mul", inside, _others(graph, _before(graph, inside)))
    return graph.add("CumSum", begins, 1)


def _counts_of_characters(graph: Graph, line: _Line, spaces: Sequence[int]) -> str:
    """Returns how many words a text has that ends with each of its characters.

    Args:
      graph: that the operators are added to.
      line: ids of the text.
      spaces: those that are spaces.
    """
    other = _others(graph, _are_of(graph, line.values, spaces))
    return _words_begun(graph, graph.add("Mul", line.there, other))


def _counts_of_bytes(graph: Graph, line: _Line) -> str:
    """Returns how many words a text has that ends with each of its bytes.

    A space of several bytes is one wherever they stand: its first byte begins a character in any
    text.  But a text that ends inside it ends with a sign for what is no UTF-8, which is a part of
    the word before it, or a word if there is none.
    """
    by_size: list[list[int]] = [[] for _ in range(_MOST)]
    for octets in (name.encode() for name in characters() if name.isspace()):
        by_size[len(octets) - 1].append(_number_of(octets))
    number = octet = line.values
    starts = []  # of spaces of one byte, of two, of three
    for numbers in by_size:
        starts.append(_are_of(graph, number, numbers))
        octet = beside(graph, octet, _NONE)[1]
        number = graph.add("Add", graph.add("Mul", number, _RADIX), octet)
    one, two, three = starts
    longer = graph.add("Add", two, three)
    spaces = graph.add("Add", one, graph.add("Add", longer, _before(graph, longer)))
    spaces = graph.add("Add", spaces, _before(graph, _before(graph, three)))
    inside = graph.add("Mul", line.there, _others(graph, spaces))
    alone = _others(graph, _before(graph, inside))
    signs = graph.add("Mul", longer, alone)
    signs = graph.add("Add", signs, _before(graph, graph.add("Mul", three, alone)))
    return graph.add("Add", _words_begun(graph, inside), signs)


def _number_of(octets: bytes) -> int:
    """Returns a number that bytes have alone."""
    number = 0
    for octet in octets:
        number = number * _RADIX + octet
    return number


class WordAttention(NamedTuple):
    """What words look at.

    Attributes:
      weights: of each word that is written to each that is read, the mean over the parts of the
        former, -1 where there is none: [B, n, W, R] float32.
      read: the words of the input, as the vocabulary writes them, [B, R] string.
      written: the words of the outputs, [B, n, W] string.
    """

    weights: str
    read: str
    written: str


_FORMS = {"weights": ("float32", 4), "read": ("string", 2), "written": ("string", 3)}


class _Words(NamedTuple):
    """Texts as words.

    Attributes:
      numbers: of the word that each id is a part of, -1 where there is none: [B, n, T] int64.
      parts: which ids are of which word, [B, n, T, W] float32.
      there: whether there is such a word, [B, n, W] bool.
      names: of the words, [B, n, W] string.
    """

    numbers: str
    parts: str
    there: str
    names: str


def add_attention(
    graph: Graph,
    network: AttentionNetwork,
    begun: Mapping[str, str],
    ids: tuple[str, str],
    encoders: tuple[TextEncoder, TextEncoder],
    wanted: str,
) -> WordAttention:
    """Adds a reading of what a search has found, and returns what it attends to.

    Args:
      graph: that the operators are added to.
      network: a step of it.
      begun: the state with which the search begins, by name.
      ids: of the inputs, [B, S], and of what was found, [B, n, T].
      encoders: of both, which `check_decodable` lets pass.
      wanted: whether anybody wants to know; if not, nothing is read and there is none.  [] bool.
    """
    told, nothing = graph.body("attention"), graph.body("no_attention")
    found = _attention(told, network, begun, ids, encoders)
    for name, value in zip(WordAttention._fields, found, strict=True):
        dtype, rank = _FORMS[name]
        told.output(name, value, dtype, [None] * rank)
        kind = object if dtype == "string" else dtype
        empty = nothing.constant(np.empty((0,) * rank, kind))
        nothing.output(name, empty, dtype, [None] * rank)
    return WordAttention(*graph.several(3, "If", wanted, then_branch=told, else_branch=nothing))


def _attention(
    graph: Graph,
    network: AttentionNetwork,
    begun: Mapping[str, str],
    ids: tuple[str, str],
    encoders: tuple[TextEncoder, TextEncoder],
) -> WordAttention:
    """Returns what `add_attention` does, where it is wanted."""
    read_ids = graph.add("Unsqueeze", ids[0], [1])  # [B, 1, S]
    # A place behind the ids, so that there is one.
    written_ids = graph.add("Pad", ids[1], [0, 0, 0, 0, 0, 1], PAD)
    read, written = (
        _words(graph, encoder, each)
        for encoder, each in zip(encoders, (read_ids, written_ids), strict=True)
    )
    weights = _weights(graph, network, begun, written_ids)  # [B, n, T, S]
    of_words = graph.add("Transpose", written.parts, perm=[0, 1, 3, 2])  # [B, n, W, T]
    sums = graph.add("MatMul", graph.add("MatMul", of_words, weights), read.parts)  # [B, n, W, R]
    counts = graph.add("ReduceSum", of_words, [3])
    means = graph.add("Div", sums, graph.add("Max", counts, 1.0))
    there = graph.add(
        "And",
        graph.add("Unsqueeze", written.there, [3]),
        graph.add("Unsqueeze", read.there, [2]),
    )
    return WordAttention(
        graph.add("Where", there, means, -1.0),
        graph.add("Squeeze", read.names, [1]),
        written.names,
    )


def _weights(graph: Graph, network: AttentionNetwork, begun: Mapping[str, str], ids: str) -> str:
    """Returns what is attended to at each id.  [B, n, T] -> [B, n, T, S]."""
    state = {
        name: graph.add("Gather", begun[name], 0, axis=network.axes[name])
        if name in network.axes
        else begun[name]
        for name in (*network.carried, *network.kept)
    }
    before = graph.constant([0, 0, 1, 0, 0, 0])
    reads = graph.add("Pad", ids, before, PAD)  # a search begins with PAD
    kinds = {one.name: one.type.tensor_type for one in network.step.graph.input}
    shapes = {name: [None] * len(kinds[name].shape.dim) for name in network.carried}
    body = graph.body("reading")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    now = {n: body.input(n, kinds[n].elem_type, shapes[n]) for n in network.carried}
    outer = {name: state[name] for name in network.kept}
    given = {"ids": body.add("Gather", reads, number, axis=2), **now, **outer}
    after = body.inline(network.step, given)
    body.output("more", body.constant(True), "bool", [])
    for name in network.carried:
        body.output(name, after[f"next.{name}"], kinds[name].elem_type, shapes[name])
    body.output("attention", after["attention"], "float32", [None] * 3)
    counted = reads if network.read else ids
    steps = graph.add("Squeeze", graph.add("Shape", counted, start=2, end=3))
    carried = [state[name] for name in network.carried]
    *_, found = graph.several(
        len(carried) + 1, "Loop", steps, graph.constant(True), *carried, body=body
    )
    found = graph.add("Transpose", found, perm=[1, 2, 0, 3])
    if not network.read:
        return found
    end = graph.add("Shape", found, start=2, end=3)  # what is asked at PAD is no id's
    return graph.add("Slice", found, [1], end, [2])


def _words(graph: Graph, encoder: TextEncoder, ids: str) -> _Words:
    """Returns the words of ids up to the first `EOS`, without what fills up.  [B, n, T]."""
    outer = graph.add("Shape", ids, start=0, end=2)
    every = graph.constant([-1])
    width = graph.add("Shape", ids, start=2, end=3)
    flat = graph.add("Reshape", ids, graph.add("Concat", every, width, axis=0))  # [N, T]
    kept = _content(graph, flat)
    numbers = word_numbers(graph, encoder, flat, kept)
    count = graph.add("Add", graph.add("ReduceMax", numbers, every), 1)  # [N, 1]
    most = graph.add("Max", graph.add("ReduceMax", count, keepdims=0), [1])  # [1]
    places = graph.add("Range", 0, graph.add("Squeeze", most), 1)
    there = graph.add("Less", places, count)  # [N, W]
    text = decoded(graph, encoder, graph.add("Where", kept, flat, PAD))
    blank = graph.add("Expand", graph.constant(""), graph.add("Shape", there))
    names = first(graph, graph.add("Concat", words_of(graph, text), blank, axis=1), most)
    names = graph.add("Where", there, names, graph.constant(""))
    shape = graph.add("Concat", outer, every, axis=0)
    numbers = graph.add("Reshape", numbers, graph.add("Shape", ids))
    each = graph.add("Unsqueeze", numbers, [3])
    parts = graph.add("Cast", graph.add("Equal", each, places), to=TensorProto.FLOAT)
    there, names = (graph.add("Reshape", part, shape) for part in (there, names))
    return _Words(numbers, parts, there, names)


def _content(graph: Graph, ids: str) -> str:
    """Returns which ids are before the end symbol and what fills up.  [N, T] bool."""
    ends = graph.integers(graph.add("Equal", ids, EOS))
    before = graph.add("Equal", graph.add("CumSum", ends, 1), 0)
    there = graph.add("Not", graph.add("Equal", ids, PAD))
    there = graph.integers(graph.add("And", before, there))
    # What is filled up inside belongs to it: kept is all up to the last that is there.
    behind = graph.add("CumSum", there, 1, reverse=1)
    return graph.add("Greater", behind, 0)
