"""UTF-8 in a graph: the bytes of characters, and the texts that bytes or code points are.

No operator of onnxruntime tells a character's number, but one hashes strings: MurmurHash3, of 32
bits.  Each of its steps can be undone, so of a string of up to four bytes, once it is known how
many, the hash tells which.  The other way round, strings of a single byte are joined; onnxruntime
lets constants be strings that are no UTF-8 by themselves, though ONNX says that strings are.
"""

from __future__ import annotations

import numpy as np

from t2t_torch.export.characters import joined, numbered
from t2t_torch.export.graph import Graph
from t2t_torch.export.line import shifted

NONE = -1
"""Stands where a character has no more bytes."""

_MOST = 4  # bytes of a character
_LEAST = (0, 0xC0, 0xE0, 0xF0)  # the first byte of a character of so many bytes or more
_RADIX = 64  # a byte behind the first says so much of the number
_CONTINUES = (0x80, 0xBF)  # what stands behind the first byte

# MurmurHash3_x86_32, Austin Appleby, public domain; the seed is 0.
_WORD = 1 << 32
_FACTORS = (0xCC9E2D51, 0x1B873593)
_MIXED = (0x85EBCA6B, 0xC2B2AE35)
_ADDED = 0xE6546B64

# What can be written for a byte: itself, the sign for what is no UTF-8, nothing.
_REPLACED, _NOTHING = 256, 257
_WRITTEN = np.array([*(bytes([i]) for i in range(256)), "\ufffd".encode(), b""], object)
_END = 256  # ends a line of bytes


def utf8(graph: Graph, letters: str) -> str:
    """Returns the bytes of characters.

    Args:
      graph: that the operators are added to.
      letters: [N] string, of one character each or empty.

    Returns:
      [N, 4] int64, filled up with `NONE`.
    """
    plain = {"": NONE, **{chr(number): number for number in range(0x80)}}
    packed = numbered(graph, letters, plain, _WORD)
    others = graph.add("Equal", packed, graph.constant(_WORD))
    places = graph.add("Transpose", graph.add("NonZero", others))
    unhashed = _unhashed(graph, graph.add("Compress", letters, others, axis=0))
    packed = graph.add("ScatterND", packed, places, unhashed)
    packed = graph.add("Unsqueeze", packed, graph.constant([1]))
    octets = graph.add("Div", packed, graph.constant([1 << 8 * i for i in range(_MOST)]))
    octets = graph.add("BitwiseAnd", octets, graph.constant(0xFF))
    first = graph.add("BitwiseAnd", packed, graph.constant(0xFF))
    there = graph.add("GreaterOrEqual", first, graph.constant(list(_LEAST)))
    there = graph.add("And", there, graph.add("GreaterOrEqual", packed, graph.constant(0)))
    return graph.add("Where", there, octets, graph.constant(NONE))


def code_points(graph: Graph, letters: str) -> str:
    """Returns the numbers of characters: [N] string, none empty, to [N] int64."""
    octets = utf8(graph, letters)
    count = graph.integers(graph.add("GreaterOrEqual", octets, graph.constant(0)))
    count = graph.add("ReduceSum", count, graph.constant([1]), keepdims=0)
    # For each number of bytes: what each byte counts, and what the marks of all count.
    weights = np.zeros((_MOST + 1, _MOST), np.int64)
    marks = np.zeros(_MOST + 1, np.int64)
    for size in range(1, _MOST + 1):
        weights[size, :size] = _RADIX ** np.arange(size - 1, -1, -1)
        marks[size] = weights[size, 0] * _LEAST[size - 1] + weights[size, 1:].sum() * _CONTINUES[0]
    weight = graph.add("Gather", graph.constant(weights), count)
    number = graph.add(
        "ReduceSum", graph.add("Mul", octets, weight), graph.constant([1]), keepdims=0
    )
    return graph.add("Sub", number, graph.add("Gather", graph.constant(marks), count))


def characters_with(graph: Graph, points: str) -> str:
    """Returns the characters of numbers: [N] int64, none a surrogate's, to [N] string."""
    more = [graph.constant(limit) for limit in (0x80, 0x800, 0x10000)]
    counts = [graph.integers(graph.add("GreaterOrEqual", points, limit)) for limit in more]
    behind = graph.add("Add", graph.add("Add", counts[0], counts[1]), counts[2])
    whole = ""
    for place in range(_MOST):
        left = graph.add("Sub", behind, graph.constant(place))  # bytes behind this one
        scale = graph.constant([_RADIX**i for i in range(_MOST)])
        scale = graph.add("Gather", scale, graph.add("Max", left, graph.constant(0)))
        octet = graph.add("Div", points, scale)
        if place:
            octet = graph.add("BitwiseAnd", octet, graph.constant(_RADIX - 1))
            octet = graph.add("Add", octet, graph.constant(_CONTINUES[0]))
        else:
            octet = graph.add(
                "Add", octet, graph.add("Gather", graph.constant(list(_LEAST)), behind)
            )
        there = graph.add("GreaterOrEqual", left, graph.constant(0))
        octet = graph.add("Where", there, octet, graph.constant(_NOTHING))
        part = graph.add("Gather", graph.constant(_WRITTEN), octet)
        whole = graph.add("StringConcat", whole, part) if whole else part
    return whole


def texts_of(graph: Graph, octets: str) -> str:
    """Returns what rows of bytes say: `bytes.decode(errors="replace")`.

    Args:
      graph: that the operators are added to.
      octets: [B, T] int64, each of 0 to 255, or `NONE` where there is no byte.

    Returns:
      [B] string.
    """
    ended = graph.add("Pad", octets, graph.constant([0, 0, 0, 1]), graph.constant(_END))
    places = graph.add("GreaterOrEqual", ended, graph.constant(0))
    flat = graph.add("Compress", ended, graph.add("Reshape", places, graph.constant([-1])))
    letters = graph.add("Gather", graph.constant(_WRITTEN), _sound(graph, flat))
    blank = graph.add("Expand", graph.constant(""), graph.add("Shape", ended))
    places = graph.add("Transpose", graph.add("NonZero", places))
    return joined(graph, graph.add("ScatterND", blank, places, letters))


def _sound(graph: Graph, line: str) -> str:
    """Returns bytes of which those that are no UTF-8 are replaced, as numbers of `_WRITTEN`.

    The first byte of a character tells how many follow and what the second may be; Unicode 15.0,
    table 3-7.  What begins like a character but does not go on is replaced at once, as far as it
    fits.

    Args:
      graph: that the operators are added to.
      line: [N] int64, of several texts, `_END` behind each.
    """
    size, lowest, highest = (graph.add("Gather", graph.constant(x), line) for x in _beginnings())
    length, fits = graph.constant(1), ""
    for place in range(1, _MOST):
        octet = shifted(graph, line, place, _END)
        goes_on = graph.add(
            "And",
            graph.add("GreaterOrEqual", octet, lowest),
            graph.add("LessOrEqual", octet, highest),
        )
        goes_on = graph.add("And", goes_on, graph.add("Greater", size, graph.constant(place)))
        fits = graph.add("And", fits, goes_on) if fits else goes_on
        length = graph.add("Add", length, graph.integers(fits))
        lowest, highest = (graph.constant(limit) for limit in _CONTINUES)
    whole = graph.add("Equal", length, size)
    sound = graph.add("Where", whole, line, graph.constant(_REPLACED))
    for back in range(1, _MOST):
        over = graph.add("Greater", shifted(graph, length, -back, 0), graph.constant(back))
        is_whole = shifted(graph, graph.integers(whole), -back, 0)
        is_whole = graph.add("Equal", is_whole, graph.constant(1))
        inside = graph.add("Where", is_whole, line, graph.constant(_NOTHING))
        sound = graph.add("Where", over, inside, sound)
    ends = graph.add("Equal", line, graph.constant(_END))
    return graph.add("Where", ends, graph.constant(_NOTHING), sound)


def _beginnings() -> np.ndarray:
    """Returns for each byte and `_END` how many bytes it begins, 0 if none, and which the second
    is: the lowest and the highest.  [3, 257] int64.
    """
    found = np.zeros((3, _END + 1), np.int64)
    found[1:] = np.array(_CONTINUES)[:, None]
    for size, (first, last) in enumerate(((0, 0x7F), (0xC2, 0xDF), (0xE0, 0xEF), (0xF0, 0xF4)), 1):
        found[0, first : last + 1] = size
    found[1, 0xE0], found[2, 0xED] = 0xA0, 0x9F  # no shorter form, no surrogates
    found[1, 0xF0], found[2, 0xF4] = 0x90, 0x8F  # no shorter form, nothing above U+10FFFF
    return found


def _unhashed(graph: Graph, letters: str) -> str:
    """Returns the bytes of characters of two bytes or more as one number, the first the lowest.

    Args:
      graph: that the operators are added to.
      letters: [N] string.

    Returns:
      [N] int64.
    """
    two = graph.add("RegexFullMatch", letters, pattern=r"[\x{80}-\x{7FF}]")
    three = graph.add("RegexFullMatch", letters, pattern=r"[\x{800}-\x{FFFF}]")
    size = graph.add("Where", three, graph.constant(3), graph.constant(4))
    size = graph.add("Where", two, graph.constant(2), size)
    number = graph.add("MurmurHash3", letters, domain="com.microsoft", seed=0, positive=1)
    number = _folded(graph, graph.integers(number), 16)
    number = _times(graph, number, pow(_MIXED[1], -1, _WORD))
    number = _folded(graph, _folded(graph, number, 13), 26)
    number = _times(graph, number, pow(_MIXED[0], -1, _WORD))
    number = graph.add("BitwiseXor", _folded(graph, number, 16), size)
    four = graph.add("Sub", number, graph.constant(_ADDED))
    four = _times(
        graph, graph.add("BitwiseAnd", four, graph.constant(_WORD - 1)), pow(5, -1, _WORD)
    )
    is_four = graph.add("Equal", size, graph.constant(4))
    number = graph.add("Where", is_four, _turned(graph, four, 13), number)
    number = _turned(graph, _times(graph, number, pow(_FACTORS[1], -1, _WORD)), 15)
    return _times(graph, number, pow(_FACTORS[0], -1, _WORD))


def _times(graph: Graph, number: str, factor: int) -> str:
    """Returns the lower 32 bits of a product of two numbers of 32 bits."""
    half = graph.constant(1 << 16)  # by halves, so that nothing exceeds 64 bits
    low = graph.add("BitwiseAnd", number, graph.constant((1 << 16) - 1))
    high = graph.add("Mul", graph.add("Div", number, half), graph.constant(factor))
    high = graph.add("Mul", graph.add("BitwiseAnd", high, graph.constant((1 << 16) - 1)), half)
    product = graph.add("Add", graph.add("Mul", low, graph.constant(factor)), high)
    return graph.add("BitwiseAnd", product, graph.constant(_WORD - 1))


def _folded(graph: Graph, number: str, bits: int) -> str:
    """Returns the exclusive or of a number and the same so many bits further to the right."""
    return graph.add("BitwiseXor", number, graph.add("Div", number, graph.constant(1 << bits)))


def _turned(graph: Graph, number: str, bits: int) -> str:
    """Returns a number of 32 bits turned to the right by so many."""
    over = graph.add("BitwiseAnd", number, graph.constant((1 << bits) - 1))
    over = graph.add("Mul", over, graph.constant(1 << (32 - bits)))
    return graph.add("Add", graph.add("Div", number, graph.constant(1 << bits)), over)
