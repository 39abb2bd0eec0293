"""What is known of words beside their ids, in a graph."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from t2t_torch.errors import ExportError
from t2t_torch.export.character_class import SPACE, ranges, re2
from t2t_torch.export.characters import beside, first, numbered, tokens
from t2t_torch.export.encoder_graph import Spelling
from t2t_torch.export.field_text import FieldText, count_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.rows import Rows, longest
from t2t_torch.features.word import NUM_RESERVED, Gazetteer, Shape
from t2t_torch.text.label import ClassLabelEncoder


def labels_of(graph: Graph, texts: str, encoder: ClassLabelEncoder) -> Rows:
    """Returns the ids of labels separated by spaces: what `WordLabel.encode` gives.

    Args:
      graph: that the operators are added to.
      texts: [B] string.
      encoder: of the labels; one that it does not know becomes 0.
    """
    labels = tokens(graph, texts, separators=[f"{re2(SPACE)}+"])
    numbers = {label: NUM_RESERVED + i for i, label in enumerate(encoder.labels)}
    return Rows(numbered(graph, labels, numbers, 0), count_of(graph, labels))


def shapes_of(graph: Graph, field: FieldText) -> Rows:
    """Returns how each word is written: what `WordShape.encode` gives."""
    capital, small, titled = ranges(str.isupper), ranges(str.islower), ranges(_is_titled)
    decimal, digit, letter = ranges(str.isdecimal), ranges(str.isdigit), ranges(str.isalpha)
    no_capital, no_small = f"[^{capital}{titled}]*", f"[^{small}{titled}]*"
    any_small = f"{no_capital}[{small}]{no_capital}"
    # As in `shape_of`: the first that fits is right.
    expressions = [
        ("", 0),
        (f"[{decimal}]+", Shape.NUMBER),
        (f"[^{digit}]*[{digit}]{_ANYTHING}", Shape.WITH_DIGIT),
        (any_small, Shape.LOWER),
        (f"[{capital}]", Shape.CAPITALIZED),
        (f"{no_small}[{capital}]{no_small}", Shape.UPPER),
        (f"[{capital}]{any_small}", Shape.CAPITALIZED),
        (f"[^{letter}]*[{letter}]{_ANYTHING}", Shape.MIXED),
    ]
    found = graph.constant(int(Shape.OTHER))
    for expression, shape in reversed(expressions):
        fits = graph.add("RegexFullMatch", field.words, pattern=expression)
        found = graph.add("Where", fits, graph.constant(int(shape)), found)
    return Rows(found, field.word_counts)


_ANYTHING = r"[\x{0}-\x{10FFFF}]*"


def _is_titled(character: str) -> bool:
    return character.istitle() and not character.isupper()


def characters_of_words(graph: Graph, spelling: Spelling, width: int, counts: str) -> str:
    """Returns the ids of the first characters of each word: what `WordCharacters.encode` gives.

    Args:
      graph: that the operators are added to.
      spelling: of the texts that the words are in.
      width: how many characters of each word are kept.
      counts: [B] int64, how many words of each text are kept.

    Returns:
      [B, W, width] int64.
    """
    zero, one = graph.constant(0), graph.constant(1)
    letters, between = spelling.ids, graph.integers(spelling.between)  # [B, L]
    before, _ = beside(graph, between, 1)
    in_word = graph.add("Not", spelling.between)
    begins = graph.add("And", in_word, graph.add("Equal", before, one))
    number = graph.integers(begins)
    word = graph.add("Sub", graph.add("CumSum", number, one), one)  # in its text, from 0
    # Where the word of each character begins: words are counted through all texts for that.
    flat = graph.add("Reshape", number, graph.constant([-1]))
    through = graph.add("Sub", graph.add("CumSum", flat, zero), one)
    starts = graph.add("Gather", graph.add("NonZero", begins), one)
    starts = graph.add("Concat", starts, graph.constant([0]), axis=0)  # before the first word
    start = graph.add("Reshape", graph.add("Gather", starts, through), graph.add("Shape", letters))
    end = graph.add("Squeeze", graph.add("Shape", letters, start=1, end=2))
    place = graph.add("Sub", graph.add("Range", zero, end, one), start)
    kept = graph.add("And", in_word, graph.add("Less", place, graph.constant(width)))
    limit = graph.add("Unsqueeze", counts, one)
    kept = graph.add("And", kept, graph.add("Less", word, limit))
    # One line of [row, word, place] for each character that is kept.
    where = graph.add("NonZero", kept)  # [2, N]: row and place in the text
    line = graph.add("Transpose", where)
    indices = graph.add(
        "Concat",
        graph.add("Unsqueeze", graph.add("Gather", where, zero), one),
        graph.add("Unsqueeze", graph.add("GatherND", word, line), one),
        graph.add("Unsqueeze", graph.add("GatherND", place, line), one),
        axis=1,
    )
    shape = graph.add(
        "Concat",
        graph.add("Shape", counts),
        longest(graph, counts),
        graph.constant([width]),
        axis=0,
    )
    ids = graph.add("GatherND", letters, line)
    return graph.add("ScatterND", graph.add("Expand", zero, shape), indices, ids)


def check_padded(graph: Graph, there: str, counts: str, message: str, values: str) -> str:
    """Returns what words have as it is; the graph fails unless it is of these words alone.

    Args:
      graph: that the operators are added to.
      there: [B, W'] bool, which words have something.
      counts: [B] int64, how many words each text has.
      message: what is told where there are fewer places than words, or something behind them.
      values: [B, W', ...].
    """
    width = graph.add("Shape", there, start=1, end=2)
    room = graph.add("GreaterOrEqual", width, graph.add("ReduceMax", counts, keepdims=0))
    behind = graph.add("And", there, graph.add("Not", _in_text(graph, there, counts)))
    none = graph.add("ReduceSum", graph.integers(behind), keepdims=0)
    none = graph.add("Equal", none, graph.constant(0))
    fits = graph.add("And", none, graph.add("Squeeze", room))
    return graph.require(fits, message, values)


def cut_each(graph: Graph, values: str, kept: str) -> str:
    """Returns what the first words of each text have, 0 behind them, of one word at least.

    Args:
      graph: that the operators are added to.
      values: [B, W', n] numbers.
      kept: [B] int64, how many words of each text are kept.

    Returns:
      [B, W, n].
    """
    pads = graph.constant([0, 0, 0, 0, 1, 0])  # a column behind: there may be none
    values = graph.add("Pad", values, pads)
    values = first(graph, values, longest(graph, kept))
    in_text = graph.add("Unsqueeze", _in_text(graph, values, kept), graph.constant([2]))
    nothing = graph.add("CastLike", graph.constant(0.0), values)
    return graph.add("Where", in_text, values, nothing)


def _in_text(graph: Graph, values: str, counts: str) -> str:
    """Returns which columns of values, [B, W, ...], are of a text's words.  [B, W] bool."""
    width = graph.add("Squeeze", graph.add("Shape", values, start=1, end=2))
    numbers = graph.add("Range", graph.constant(0), width, graph.constant(1))
    return graph.add("Less", numbers, graph.add("Unsqueeze", counts, graph.constant([1])))


def entries_of(graph: Graph, labels: str, weights: str, feature: Gazetteer) -> tuple[str, str]:
    """Returns ids and weights of each word's entries: what `Gazetteer` and `GazetteerWeights` give.

    Those of greatest weight are kept, of equals those of the lowest id; labels that are not known
    are left out.

    Args:
      graph: that the operators are added to.
      labels: [B, W, E] string, "" where there is none.
      weights: [B, W, E] float64.
      feature: knows the labels.

    Returns:
      [B, W, width] int64, and [B, W, width] float32; 0 where there is none.

    Raises:
      ExportError: the empty string is a label.
    """
    if "" in feature.encoder.labels:
        raise ExportError(
            f"a label of {feature.field!r} is the empty string, which in a graph's tensors says "
            "that there is none. Give it a name, or serve this run with PyTorch."
        )
    numbers = {label: NUM_RESERVED + i for i, label in enumerate(feature.encoder.labels)}
    more = graph.constant([0, 0, 0, 0, 0, feature.width])  # there may be fewer than are kept
    ids = graph.add("Pad", numbered(graph, labels, numbers, 0), more)
    known = graph.add("Greater", ids, graph.constant(0))
    least = graph.constant(np.array(-np.inf))
    weights = graph.add("Where", known, graph.add("Pad", weights, more), least)
    # ONNX's TopK takes the first of equals: by their ids first, then by their weights.
    size = graph.add("Shape", ids, start=2, end=3)
    ids, order = graph.several(2, "TopK", ids, size, axis=2, largest=0, sorted=1)
    weights = graph.add("GatherElements", weights, order, axis=2)
    width = graph.constant([feature.width])
    weights, order = graph.several(2, "TopK", weights, width, axis=2, largest=1, sorted=1)
    there = graph.add("Greater", weights, least)
    ids = graph.add("GatherElements", ids, order, axis=2)
    ids = graph.add("Where", there, ids, graph.constant(0))
    weights = graph.add("Where", there, weights, graph.constant(np.array(0.0)))
    return ids, graph.add("Cast", weights, to=TensorProto.FLOAT)
