"""Which words an output's words attend to, in a graph: what has been found is read once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from t2t_torch.export.attention_network import AttentionNetwork
from t2t_torch.export.characters import first
from t2t_torch.export.decoded import decoded
from t2t_torch.export.graph import Graph
from t2t_torch.export.word_numbers import word_numbers, words_of
from t2t_torch.text.encoder import EOS, PAD, TextEncoder


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
    read_ids = graph.add("Unsqueeze", ids[0], graph.constant([1]))  # [B, 1, S]
    # A place behind the ids, so that there is one.
    written_ids = graph.add("Pad", ids[1], graph.constant([0, 0, 0, 0, 0, 1]), graph.constant(PAD))
    read, written = (
        _words(graph, encoder, each)
        for encoder, each in zip(encoders, (read_ids, written_ids), strict=True)
    )
    weights = _weights(graph, network, begun, written_ids)  # [B, n, T, S]
    of_words = graph.add("Transpose", written.parts, perm=[0, 1, 3, 2])  # [B, n, W, T]
    sums = graph.add("MatMul", graph.add("MatMul", of_words, weights), read.parts)  # [B, n, W, R]
    counts = graph.add("ReduceSum", of_words, graph.constant([3]))
    means = graph.add("Div", sums, graph.add("Max", counts, graph.constant(1.0)))
    there = graph.add(
        "And",
        graph.add("Unsqueeze", written.there, graph.constant([3])),
        graph.add("Unsqueeze", read.there, graph.constant([2])),
    )
    return WordAttention(
        graph.add("Where", there, means, graph.constant(-1.0)),
        graph.add("Squeeze", read.names, graph.constant([1])),
        written.names,
    )


def _weights(graph: Graph, network: AttentionNetwork, begun: Mapping[str, str], ids: str) -> str:
    """Returns what is attended to at each id.  [B, n, T] -> [B, n, T, S]."""
    state = {
        name: graph.add("Gather", begun[name], graph.constant(0), axis=network.axes[name])
        if name in network.axes
        else begun[name]
        for name in (*network.carried, *network.kept)
    }
    before = graph.constant([0, 0, 1, 0, 0, 0])
    reads = graph.add("Pad", ids, before, graph.constant(PAD))  # a search begins with PAD
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
    return graph.add("Slice", found, graph.constant([1]), end, graph.constant([2]))


def _words(graph: Graph, encoder: TextEncoder, ids: str) -> _Words:
    """Returns the words of ids up to the first `EOS`, without what fills up.  [B, n, T]."""
    outer = graph.add("Shape", ids, start=0, end=2)
    every = graph.constant([-1])
    width = graph.add("Shape", ids, start=2, end=3)
    flat = graph.add("Reshape", ids, graph.add("Concat", every, width, axis=0))  # [N, T]
    kept = _content(graph, flat)
    numbers = word_numbers(graph, encoder, flat, kept)
    count = graph.add("Add", graph.add("ReduceMax", numbers, every), graph.constant(1))  # [N, 1]
    most = graph.add("Max", graph.add("ReduceMax", count, keepdims=0), graph.constant([1]))  # [1]
    places = graph.add("Range", graph.constant(0), graph.add("Squeeze", most), graph.constant(1))
    there = graph.add("Less", places, count)  # [N, W]
    text = decoded(graph, encoder, graph.add("Where", kept, flat, graph.constant(PAD)))
    blank = graph.add("Expand", graph.constant(""), graph.add("Shape", there))
    names = first(graph, graph.add("Concat", words_of(graph, text), blank, axis=1), most)
    names = graph.add("Where", there, names, graph.constant(""))
    shape = graph.add("Concat", outer, every, axis=0)
    numbers = graph.add("Reshape", numbers, graph.add("Shape", ids))
    each = graph.add("Unsqueeze", numbers, graph.constant([3]))
    parts = graph.add("Cast", graph.add("Equal", each, places), to=TensorProto.FLOAT)
    there, names = (graph.add("Reshape", part, shape) for part in (there, names))
    return _Words(numbers, parts, there, names)


def _content(graph: Graph, ids: str) -> str:
    """Returns which ids are before the end symbol and what fills up.  [N, T] bool."""
    ends = graph.integers(graph.add("Equal", ids, graph.constant(EOS)))
    before = graph.add("Equal", graph.add("CumSum", ends, graph.constant(1)), graph.constant(0))
    there = graph.add("Not", graph.add("Equal", ids, graph.constant(PAD)))
    there = graph.integers(graph.add("And", before, there))
    # What is filled up inside belongs to it: kept is all up to the last that is there.
    behind = graph.add("CumSum", there, graph.constant(1), reverse=1)
    return graph.add("Greater", behind, graph.constant(0))
