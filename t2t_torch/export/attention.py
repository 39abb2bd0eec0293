"""Word-level attention of outputs in a graph, computed by a second pass over the outputs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from t2t_torch.export import decode_ids
from t2t_torch.export.encoders import kept
from t2t_torch.export.graph import LINE, Graph, Proxy, arange, combine, concat, loop, take, where
from t2t_torch.export.search import AttentionNetwork, kinds_of
from t2t_torch.export.strings import FieldText, beside, characters, count_of, first
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


def word_numbers(encoder: TextEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the word index of each id, from 0; -1 for ids that are not kept.

    It is the number of words up to the id minus one, as in `decode.word_alignment`.

    Args:
      encoder: encoder accepted by `check_decodable`.
      ids: [N, T] int64.
      mask: mask of the ids of the text: a prefix without `EOS`, [N, T] bool.

    Returns:
      [N, T] int64.
    """
    counts = word_counts(encoder, ids, mask)
    return where(mask, (counts - 1).Max(0), np.int64(-1))


@functools.singledispatch
def word_counts(encoder: TextEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the number of words up to each kept id, for any encoder.  [N, T] int64.

    The prefix up to each id is decoded.  Encoders that know more have their own implementation.

    Args:
      encoder: encoder accepted by `check_decodable`.
      ids: [N, T] int64.
      mask: mask of the ids of the text, [N, T] bool.
    """
    width = ids.size(1).Squeeze()
    places = arange(width)

    def count(body: Graph, number: Proxy) -> tuple[Proxy, ...]:
        part = where(mask & (places <= number), ids, PAD)
        return body.constant(True), count_of(FieldText(decode_ids(encoder, body, part)).parts)

    return loop(ids.graph, count, kinds=[LINE], count=width)[0].Transpose()  # from [T, N]


@word_counts.register(TokenEncoder)
def _counts_of_tokens(encoder: TokenEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    # Tokens are separated by spaces; a token may itself be several words, or none.
    sizes = [0] * NUM_RESERVED + [len(name.split()) for name in encoder.tokens[NUM_RESERVED:]]
    # Ids that are not kept, and those beyond the vocabulary, have no words.
    return take(np.array(sizes, np.int64), where(mask & (ids < len(sizes)), ids, PAD)).CumSum(1)


@word_counts.register(IntegerEncoder)
def _counts_of_integers(encoder: IntegerEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    return (mask & (ids != PAD)).integers().CumSum(1)


@word_counts.register(CharacterEncoder)
def _counts_of_characters(encoder: CharacterEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    names = enumerate(encoder.characters, NUM_RESERVED + 1)
    line = _CompactValues.of(ids, mask & (ids != PAD))
    other = 1 - _are_of(line.values, [number for number, name in names if name.isspace()])
    return line.read(_words_begun(line.mask * other))


@word_counts.register(ByteEncoder)
def _counts_of_bytes(encoder: ByteEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    octets = ids - NUM_RESERVED
    is_byte = mask & (octets >= 0) & (octets < 256)  # the octet of padding is negative
    line = _CompactValues.of(octets, is_byte)
    return line.read(_counts_of_octets(line))


class _CompactValues(NamedTuple):
    """Values of ids, compacted to exclude empty ones.

    Attributes:
      values: values after an empty first one, padded with `_NONE`, [N, 1 + T] int64.
      mask: 1 at values, else 0, [N, 1 + T] int64.
      places: for each id the index of its value, or of the last one before it, [N, T] int64.
    """

    values: Proxy
    mask: Proxy
    places: Proxy

    @classmethod
    def of(cls, values: Proxy, mask: Proxy) -> _CompactValues:
        """Compacts the values at true positions of `mask`: [N, T] int64 and bool."""
        ones = mask.integers()
        places = ones.CumSum(1)
        blank = (ones * 0).Pad([0, 1, 0, 0])
        # Empty values add 0 at their position.
        together: dict[str, Any] = {"axis": 1, "reduction": "add"}
        its_there = blank.ScatterElements(places, ones, **together)
        its_values = blank.ScatterElements(places, where(mask, values - _NONE, 0), **together)
        return cls(its_values + _NONE, its_there, places)

    def read(self, values: Proxy) -> Proxy:
        """Returns the values for each id.  [N, 1 + T] -> [N, T]."""
        return values.GatherElements(self.places, axis=1)


def _are_of(values: Proxy, numbers: Sequence[int]) -> Proxy:
    """Returns 1 for values in `numbers`, 0 for others.  [N, T] int64."""
    equal = values.Unsqueeze([2]) == np.array(numbers, np.int64)
    return equal.integers().sum(2)


def _before(values: Proxy) -> Proxy:
    """Returns for each value the one before it, 0 for the first."""
    return beside(values, 0)[0]


def _words_begun(inside: Proxy) -> Proxy:
    """Returns the number of words that begin up to each value.

    Args:
      inside: 1 inside words, else 0, [N, T] int64.
    """
    return (inside * (1 - _before(inside))).CumSum(1)


def _counts_of_octets(line: _CompactValues) -> Proxy:
    """Returns the number of words of the prefix up to each byte.

    The bytes of a multi-byte space are a space in any context: its first byte always begins a
    character.  A prefix that ends inside it ends with the replacement character, which is part of
    the word before it, or a word of its own if there is none.
    """
    by_size: list[list[int]] = [[] for _ in range(_MOST)]
    for octets in (name.encode() for name in characters() if name.isspace()):
        number_of = functools.reduce(lambda number, octet: number * _RADIX + octet, octets)
        by_size[len(octets) - 1].append(number_of)
    number = octet = line.values
    starts = []  # for spaces of one, two and three bytes
    for numbers in by_size:
        starts.append(_are_of(number, numbers))
        octet = beside(octet, _NONE)[1]
        number = number * _RADIX + octet
    one, two, three = starts
    longer = two + three
    spaces = one + longer + _before(longer) + _before(_before(three))
    inside = line.mask * (1 - spaces)
    alone = 1 - _before(inside)
    return _words_begun(inside) + (longer * alone + _before(three * alone))


class WordAttention(NamedTuple):
    """Word-level attention.

    Attributes:
      weights: weights of output words over input words, averaged over the subwords of the output
        word, -1 at padding, [B, n, W, R] float32.
      read: input words, as written by the vocabulary, [B, R] string.
      written: output words, [B, n, W] string.
    """

    weights: Proxy
    read: Proxy
    written: Proxy


_FORMS = {"weights": ("float32", 4), "read": ("string", 2), "written": ("string", 3)}


class _TextWords(NamedTuple):
    """Texts as words.

    Attributes:
      numbers: word index of each id, -1 for none, [B, n, T] int64.
      parts: 1 where an id belongs to a word, else 0, [B, n, T, W] float32.
      mask: mask of words, [B, n, W] bool.
      names: the words, [B, n, W] string.
    """

    numbers: Proxy
    parts: Proxy
    mask: Proxy
    names: Proxy


def add_attention(
    graph: Graph,
    network: AttentionNetwork,
    initial: Mapping[str, Proxy],
    ids: tuple[Proxy, Proxy],
    encoders: tuple[TextEncoder, TextEncoder],
    wanted: Proxy,
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
    read_ids = branch.add("Unsqueeze", ids[0], [1])  # [B, 1, S]
    # Pad by one position, so that there is at least one.
    written_ids = branch.add("Pad", ids[1], [0, 0, 0, 0, 0, 1], PAD)
    read, written = (
        _words(encoder, each)
        for encoder, each in zip(encoders, (read_ids, written_ids), strict=True)
    )
    weights = _weights(branch, network, initial, written_ids)  # [B, n, T, S]
    of_words = written.parts.Transpose(perm=[0, 1, 3, 2])  # [B, n, W, T]
    sums = of_words.MatMul(weights).MatMul(read.parts)  # [B, n, W, R]
    means = sums / of_words.ReduceSum([3]).Max(1.0)
    mask = written.mask.Unsqueeze([3]) & read.mask.Unsqueeze([2])
    attention = WordAttention(where(mask, means, -1.0), read.names.Squeeze([1]), written.names)
    for name, value in zip(WordAttention._fields, attention, strict=True):
        dtype, rank = _FORMS[name]
        branch.output(name, value, dtype, [None] * rank)
        empty = nothing.constant(np.empty((0,) * rank, object if dtype == "string" else dtype))
        nothing.output(name, empty, dtype, [None] * rank)
    return WordAttention(*graph.several(3, "If", wanted, then_branch=branch, else_branch=nothing))


def _weights(
    graph: Graph, network: AttentionNetwork, initial: Mapping[str, Proxy], ids: Proxy
) -> Proxy:
    """Returns the attention weights of each id.  [B, n, T] -> [B, n, T, S]."""
    state = {
        name: graph.add("Gather", initial[name], 0, axis=network.axes[name])
        if name in network.axes
        else initial[name]
        for name in (*network.carried, *network.kept)
    }
    reads = ids.Pad([0, 0, 1, 0, 0, 0], PAD)  # a search starts with PAD
    kinds = kinds_of(network.step)

    def read(body: Graph, number: Proxy, *carried: Proxy) -> tuple[Proxy, ...]:
        now = dict(zip(network.carried, carried, strict=True))
        inputs = {**state, **now, "ids": reads.Gather(number, axis=2)}
        after = body.inline(network.step, inputs)
        changed = (after[f"next.{name}"] for name in network.carried)
        return body.constant(True), *changed, after["attention"]

    *_, weights = loop(
        graph,
        read,
        *(state[name] for name in network.carried),
        kinds=[*(kinds[name] for name in network.carried), ("float32", [None] * 3)],
        count=(reads if network.read else ids).size(2).Squeeze(),
    )
    weights = weights.Transpose(perm=[1, 2, 0, 3])
    # Drop the weights of PAD.
    return weights.Slice([1], weights.size(2), [2]) if network.read else weights


def _words(encoder: TextEncoder, ids: Proxy) -> _TextWords:
    """Returns the words of ids [B, n, T] up to the first `EOS`, without padding."""
    flat = ids.Reshape(concat([-1], ids.size(2), axis=0))  # [N, T]
    # Padding inside counts: all ids up to the last one that is not padding are kept.
    mask = kept(flat).integers().CumSum(1, reverse=1) > 0
    numbers = word_numbers(encoder, flat, mask)
    count = numbers.ReduceMax([-1]) + 1  # [N, 1]
    most = count.ReduceMax(keepdims=0).Max([1])  # [1]
    places = arange(most)
    is_word = places < count  # [N, W]
    words = FieldText(decode_ids(encoder, ids.graph, where(mask, flat, PAD))).parts
    names = first(words.Concat(combine("Expand", "", is_word.Shape()), axis=1), most)
    names = where(is_word, names, "")
    shape = ids.Shape(start=0, end=2).Concat([-1], axis=0)
    numbers = numbers.Reshape(ids.Shape())
    parts = (numbers.Unsqueeze([3]) == places).Cast(to=TensorProto.FLOAT)
    is_word, names = (part.Reshape(shape) for part in (is_word, names))
    return _TextWords(numbers, parts, is_word, names)
