"""What is known of words beside their ids, in a graph."""

from __future__ import annotations

from t2t_torch.export.character_class import SPACE, ranges, re2
from t2t_torch.export.characters import beside, numbered, tokens
from t2t_torch.export.field_text import FieldText, count_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.rows import Rows, longest
from t2t_torch.export.symbol_table import SymbolTable
from t2t_torch.features.word import NUM_RESERVED, Shape
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


def characters_of_words(
    graph: Graph, field: FieldText, symbols: SymbolTable, width: int, counts: str
) -> str:
    """Returns the ids of the first characters of each word: what `WordCharacters.encode` gives.

    Args:
      graph: that the operators are added to.
      field: the words.
      symbols: between characters and ids.
      width: how many characters of each word are kept.
      counts: [B] int64, how many words of each text are kept.

    Returns:
      [B, W, width] int64.
    """
    zero, one = graph.constant(0), graph.constant(1)
    letters = field.letters
    between = numbered(graph, letters, dict.fromkeys(["", *" \t\r\n"], 1), 0)  # [B, L]
    before, _ = beside(graph, between, 1)
    in_word = graph.add("Equal", between, zero)
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
    ids = graph.add("GatherND", symbols.ids_of(letters), line)
    return graph.add("ScatterND", graph.add("Expand", zero, shape), indices, ids)
