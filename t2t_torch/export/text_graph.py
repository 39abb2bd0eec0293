"""Encoding of inputs to a model's features in a graph, equal to that of `LabelPredictor`."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from t2t_torch.errors import ExportError
from t2t_torch.export.answers import BATCH, ContextWindows, windows_of
from t2t_torch.export.encoders import ByteGraph, IntegerTable, SubwordGraph, SymbolTable, WordTable
from t2t_torch.export.graph import Graph, Shape
from t2t_torch.export.pieces import PieceGraph
from t2t_torch.export.strings import (
    SPACE,
    EncoderGraph,
    FieldText,
    Rows,
    Spelling,
    beside,
    capitals,
    changed_together,
    count_of,
    cut,
    first,
    joined,
    longest,
    look_up,
    lower,
    ranges,
    re2,
    replaced,
    spaced,
    token_offsets,
    tokens,
    with_end,
)
from t2t_torch.export.subtokens import SubtokenGraph
from t2t_torch.features import Feature, Features
from t2t_torch.features.word import NUM_RESERVED
from t2t_torch.features.word import Shape as WordForm
from t2t_torch.pipeline.reader import LengthLimits
from t2t_torch.problem import Problem
from t2t_torch.runtime.feeds import WEIGHTS, offsets_name, words_given_name
from t2t_torch.text.encoder import (
    ByteEncoder,
    CharacterEncoder,
    ClassLabelEncoder,
    IntegerEncoder,
    TextEncoder,
    TokenEncoder,
    WordCutter,
)
from t2t_torch.text.pieces import PieceEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder

# A `WordCutter` in a graph.


_SMALL, _CAPITAL = 1, 2


def cut_words(graph: Graph, texts: str, cutter: WordCutter) -> str:
    """Returns the words of each text, split by a `WordCutter`.

    Args:
      graph: graph to which operators are added.
      texts: [B] string.
      cutter: definition of words.

    Returns:
      [B, W] string, padded with "".

    Raises:
      ExportError: an expression of the cutter is not supported in a graph.
    """
    if cutter.spaces:
        parts = tokens(graph, texts, separators=[re2(cutter.spaces)])
        texts = joined(graph, spaced(graph, parts))
    looked_at = re.escape(cutter.before_words)
    looked_at += "A-Z" if cutter.splits_glued else ""
    looked_at += capitals() if cutter.lower_case else ""
    if looked_at:
        parts = tokens(graph, texts, separators=[f"{re2(SPACE)}+"])
        parts = replaced(
            graph,
            parts,
            f"[^{looked_at}]*",
            lambda some: changed_together(
                graph, some, lambda letters: _letters(graph, letters, cutter)
            ),
        )
        texts = joined(graph, spaced(graph, parts))
    return tokens(graph, texts, tokenexp=re2(cutter.words))


def _letters(graph: Graph, letters: str, cutter: WordCutter) -> str:
    """Returns characters with the spaces and the case that a cutter uses.  [B, L] string."""
    if cutter.before_words:
        _, after = beside(graph, letters, "")
        sign = graph.add("Equal", letters, graph.constant(cutter.before_words))
        after = graph.add("Where", sign, after, graph.constant(""))
        is_space = graph.add("RegexFullMatch", after, pattern=re2(r"\w"))
        letters = graph.add("Where", is_space, graph.constant(" "), letters)
    glued = _glued(graph, letters) if cutter.splits_glued else ""
    if cutter.lower_case:
        letters = lower(graph, letters)
    if glued:
        space = graph.add("Where", glued, graph.constant(" "), graph.constant(""))
        letters = graph.add("StringConcat", space, letters)
    return letters


def _glued(graph: Graph, letters: str) -> str:
    """Returns a mask of ASCII capitals between two lower-case letters.  [B, L] bool."""
    kinds = dict.fromkeys(string.ascii_lowercase, _SMALL)
    kinds.update(dict.fromkeys(string.ascii_uppercase, _CAPITAL))
    case = look_up(graph, letters, kinds, 0)
    small = graph.constant(_SMALL)
    around = [graph.add("Equal", one, small) for one in beside(graph, case, 0)]
    capital = graph.add("Equal", case, _CAPITAL)
    return graph.add("And", capital, graph.add("And", *around))


# Features of words other than their ids, in a graph.


def labels_of(graph: Graph, texts: str, encoder: ClassLabelEncoder) -> Rows:
    """Returns the ids of labels separated by spaces, equal to `WordLabel.encode`.

    Args:
      graph: graph to which operators are added.
      texts: [B] string.
      encoder: encoder of the labels; unknown labels become 0.
    """
    labels = tokens(graph, texts, separators=[f"{re2(SPACE)}+"])
    numbers = {label: NUM_RESERVED + i for i, label in enumerate(encoder.labels)}
    return Rows(look_up(graph, labels, numbers, 0), count_of(graph, labels))


def shapes_of(graph: Graph, field: FieldText) -> Rows:
    """Returns the shape of each word, equal to `WordShape.encode`."""
    capital, small, titled = ranges(str.isupper), ranges(str.islower), ranges(_is_titled)
    decimal, digit, letter = ranges(str.isdecimal), ranges(str.isdigit), ranges(str.isalpha)
    no_capital, no_small = f"[^{capital}{titled}]*", f"[^{small}{titled}]*"
    any_small = f"{no_capital}[{small}]{no_capital}"
    # As in `shape_of`: the first match counts.
    expressions = [
        ("", 0),
        (f"[{decimal}]+", WordForm.NUMBER),
        (f"[^{digit}]*[{digit}]{_ANYTHING}", WordForm.WITH_DIGIT),
        (any_small, WordForm.LOWER),
        (f"[{capital}]", WordForm.CAPITALIZED),
        (f"{no_small}[{capital}]{no_small}", WordForm.UPPER),
        (f"[{capital}]{any_small}", WordForm.CAPITALIZED),
        (f"[^{letter}]*[{letter}]{_ANYTHING}", WordForm.MIXED),
    ]
    shapes = graph.constant(int(WordForm.OTHER))
    for expression, shape in reversed(expressions):
        fits = graph.add("RegexFullMatch", field.words, pattern=expression)
        shapes = graph.add("Where", fits, graph.constant(int(shape)), shapes)
    return Rows(shapes, field.word_counts)


_ANYTHING = r"[\x{0}-\x{10FFFF}]*"


def _is_titled(character: str) -> bool:
    return character.istitle() and not character.isupper()


def characters_of_words(graph: Graph, spelling: Spelling, width: int, counts: str) -> str:
    """Returns the ids of the first characters of each word, equal to `WordCharacters.encode`.

    Args:
      graph: graph to which operators are added.
      spelling: characters of the texts.
      width: number of characters to keep per word.
      counts: [B] int64, number of words to keep per text.

    Returns:
      [B, W, width] int64.
    """
    zero, one = graph.constant(0), graph.constant(1)
    letters, between = spelling.ids, graph.integers(spelling.between)  # [B, L]
    before, _ = beside(graph, between, 1)
    in_word = graph.add("Not", spelling.between)
    begins = graph.add("And", in_word, graph.add("Equal", before, one))
    number = graph.integers(begins)
    word = graph.add("Sub", graph.add("CumSum", number, one), one)  # index in its text, from 0
    # Start of each character's word; for that, words are numbered across all texts.
    flat = graph.add("Reshape", number, [-1])
    through = graph.add("Sub", graph.add("CumSum", flat, zero), one)
    starts = graph.add("Gather", graph.add("NonZero", begins), one)
    starts = graph.add("Concat", starts, [0], axis=0)  # before the first word
    start = graph.add("Reshape", graph.add("Gather", starts, through), graph.add("Shape", letters))
    end = graph.add("Squeeze", graph.add("Shape", letters, start=1, end=2))
    place = graph.add("Sub", graph.add("Range", zero, end, one), start)
    mask = graph.add("And", in_word, graph.add("Less", place, graph.constant(width)))
    limit = graph.add("Unsqueeze", counts, one)
    mask = graph.add("And", mask, graph.add("Less", word, limit))
    # One row [row, word, position] per kept character.
    where = graph.add("NonZero", mask)  # [2, N]: row and position in the text
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
        [width],
        axis=0,
    )
    ids = graph.add("GatherND", letters, line)
    return graph.add("ScatterND", graph.add("Expand", zero, shape), indices, ids)


def check_padded(graph: Graph, mask: str, counts: str, message: str, values: str) -> str:
    """Returns entries of words unchanged; the graph fails if entries and words do not match.

    Args:
      graph: graph to which operators are added.
      mask: [B, W'] bool, mask of words with entries.
      counts: [B] int64, number of words of each text.
      message: error for fewer positions than words, or entries after the last word.
      values: [B, W', ...].
    """
    width = graph.add("Shape", mask, start=1, end=2)
    room = graph.add("GreaterOrEqual", width, graph.add("ReduceMax", counts, keepdims=0))
    behind = graph.add("And", mask, graph.add("Not", _in_text(graph, mask, counts)))
    none = graph.add("ReduceSum", graph.integers(behind), keepdims=0)
    none = graph.add("Equal", none, 0)
    fits = graph.add("And", none, graph.add("Squeeze", room))
    return graph.require(fits, message, values)


def cut_each(graph: Graph, values: str, lengths: str) -> str:
    """Returns the entries of the first words of each text, padded with 0 to at least one word.

    Args:
      graph: graph to which operators are added.
      values: [B, W', n] numbers.
      lengths: [B] int64, number of words to keep per text.

    Returns:
      [B, W, n].
    """
    pads = graph.constant([0, 0, 0, 0, 1, 0])  # one more column: there may be none
    values = graph.add("Pad", values, pads)
    values = first(graph, values, longest(graph, lengths))
    in_text = graph.add("Unsqueeze", _in_text(graph, values, lengths), [2])
    nothing = graph.add("CastLike", 0.0, values)
    return graph.add("Where", in_text, values, nothing)


def _in_text(graph: Graph, values: str, counts: str) -> str:
    """Returns a mask of the columns of values [B, W, ...] at words of the text.  [B, W] bool."""
    width = graph.add("Squeeze", graph.add("Shape", values, start=1, end=2))
    numbers = graph.add("Range", 0, width, 1)
    return graph.add("Less", numbers, graph.add("Unsqueeze", counts, [1]))


def entries_of(
    graph: Graph, labels: str, weights: str, field: str, known_labels: Sequence[str], width: int
) -> tuple[str, str]:
    """Returns ids and weights of each word's entries, equal to `Gazetteer` and `GazetteerWeights`.

    Entries with the largest weights are kept, among equal weights those with the lowest ids;
    unknown labels are dropped.

    Args:
      graph: graph to which operators are added.
      labels: [B, W, E] string, padded with "".
      weights: [B, W, E] float64.
      field: the field, for error messages.
      known_labels: known labels in the order of their ids.
      width: number of entries to keep.

    Returns:
      [B, W + 1, width] int64, and [B, W + 1, width] float32; padded with 0.

    Raises:
      ExportError: the empty string is a label.
    """
    if "" in known_labels:
        raise ExportError(
            f"a label of {field!r} is the empty string, which in a graph's tensors says "
            "that there is none. Give it a name, or serve this run with PyTorch."
        )
    numbers = {label: NUM_RESERVED + i for i, label in enumerate(known_labels)}
    # There may be fewer than `width`, and no word: onnxruntime before 1.32 crashes in TopK of an
    # empty tensor.
    more = graph.constant([0, 0, 0, 0, 1, width])
    ids = graph.add("Pad", look_up(graph, labels, numbers, 0), more)
    known = graph.add("Greater", ids, 0)
    least = graph.constant(np.array(-np.inf))
    weights = graph.add("Where", known, graph.add("Pad", weights, more), least)
    # ONNX's TopK is stable: sort by ids first, then by weights.
    size = graph.add("Shape", ids, start=2, end=3)
    ids, order = graph.several(2, "TopK", ids, size, axis=2, largest=0, sorted=1)
    weights = graph.add("GatherElements", weights, order, axis=2)
    size = graph.constant([width])
    weights, order = graph.several(2, "TopK", weights, size, axis=2, largest=1, sorted=1)
    is_entry = graph.add("Greater", weights, least)
    ids = graph.add("GatherElements", ids, order, axis=2)
    ids = graph.add("Where", is_entry, ids, 0)
    weights = graph.add("Where", is_entry, weights, graph.constant(np.array(0.0)))
    return ids, graph.add("Cast", weights, to=TensorProto.FLOAT)


def encode(
    graph: Graph,
    problem: Problem,
    features: Features,
    limits: LengthLimits,
    selected: Mapping[str, Feature] | None = None,
    cutters: Mapping[str, WordCutter] | None = None,
    windows: ContextWindows | None = None,
) -> dict[str, str]:
    """Adds a problem's fields as inputs and their encoding; returns the features by name.

    The features have the shapes and dtypes of an evaluation batch.

    A field of text, words or labels is one string per example, with words separated by spaces; a
    field of numbers is float32 [B, size], of numbers per word float32 [B, W, size], padded with 0.
    A gazetteer is the labels of each word, string [B, W, E], padded with "", and the field with its
    name and "_weights", float64 [B, W, E], padded with 0; a picture is uint8
    [B, height, width, channels].  Inputs that Python rejects (an unknown word without a symbol for
    unknown words, too few labels, too many words to tag) fail when the graph runs.

    Args:
      graph: graph to which inputs and operators are added.
      problem: the problem.
      features: features of the problem.
      limits: lengths to which inputs are truncated.
      selected: features to encode by name; by default all inputs of a model.
      cutters: word cutters by field; by default those of the problem.
      windows: windows of a text that is split into several, with one row of features each; by
        default they are created.

    Raises:
      ExportError: a field or feature is not supported in a graph; names it.
    """
    windows = windows or windows_of(graph, problem)
    read = features.given if selected is None else selected
    cutters = problem.cutters if cutters is None else cutters
    return InputGraph(graph, cutters, features, limits, read, windows).encoded()


class InputGraph:
    """The inputs of a graph, and the operators that encode them; see `Feature.encode_graph`.

    Args:
      graph: graph to which inputs and operators are added.
      cutters: by field, what splits its text into words.
      features: the problem's features.
      limits: the lengths to which inputs are truncated.
      selected: the features that are encoded, by name.
      windows: the windows of a text that is split into several; features have a row for each.

    Attributes:
      graph: the graph.
    """

    def __init__(
        self,
        graph: Graph,
        cutters: Mapping[str, WordCutter],
        features: Features,
        limits: LengthLimits,
        selected: Mapping[str, Feature],
        windows: ContextWindows | None,
    ) -> None:
        self.graph = graph
        self._windows = windows
        self._cutters = cutters
        self._selected = selected
        self._features = features
        self._limits = limits.by_feature
        self._tagged = {feature.aligned_to for feature in features.targets.values()}
        self._fields: dict[str, FieldText] = {} if windows is None else {**windows.fields}
        self._entries: dict[str, tuple[str, str]] = {}  # labels and weights of gazetteers by field
        self._places: dict[str, Rows] = {}  # position of each word's first id, by feature of words

    def encoded(self) -> dict[str, str]:
        """Returns the tensors of all features by name."""
        order = sorted(self._selected, key=lambda name: not self._selected[name].is_text)
        tensors = {name: self._selected[name].encode_graph(name, self) for name in order}
        return {name: tensors[name] for name in self._selected}

    def unsupported(self, name: str, what: str) -> ExportError:
        """Returns the error for a feature that a graph cannot encode.

        Args:
          name: the feature.
          what: its kind.
        """
        return ExportError(
            f"the input {name!r} is {what}, which cannot stand in a graph. What can are texts and "
            "words of a vocabulary of words, characters, bytes or subwords; characters, bytes and "
            "shapes of words, and their labels, gazetteer entries and numbers where the words are "
            "given; numbers and pictures. Serve this one with PyTorch."
        )

    def input(self, name: str, dtype: str, shape: Shape) -> str:
        """Returns the field of a feature as an input; with windows its value for each window.

        Args:
          name: the feature.
          dtype: see `Graph.input`.
          shape: shape of one example.
        """
        field = self._selected[name].source or name
        values = self.graph.input(field, dtype, [BATCH, *shape])
        return values if self._windows is None else self._windows.of_each(values)

    def frames(self, name: str, size: int, padding: int) -> str:
        """Returns samples as whole frames.  [B, samples] int16 -> [B, frames, size] int16.

        Args:
          name: the feature.
          size: samples of a frame.
          padding: what fills the last frame.
        """
        graph = self.graph
        field = self._selected[name].source or name
        samples = graph.input(field, "int16", [BATCH, f"{field}.samples"])
        width = graph.add("Shape", samples, start=1, end=2)
        frames = graph.add("Div", graph.add("Add", width, [size - 1]), [size])
        missing = graph.add("Sub", graph.add("Mul", frames, [size]), width)
        pads = graph.add("Concat", [0, 0, 0], missing, axis=0)
        samples = graph.add("Cast", samples, to=TensorProto.INT32)  # Pad takes no int16
        samples = graph.add("Pad", samples, pads, graph.constant(padding, "int32"))
        samples = graph.add("Reshape", samples, [0, -1, size])
        limit = self._limits.get(name)
        if limit is not None:
            samples = first(graph, samples, graph.constant([limit]))
        return graph.add("Cast", samples, to=TensorProto.INT16)

    def field(self, name: str) -> FieldText:
        """Returns the texts of a feature's field."""
        field = self._selected[name].source or name
        if field not in self._fields:
            texts = self.graph.input(field, "string", [BATCH])
            tokenizer = self._selected[name].input_spec(name, self._features).tokenizer
            if tokenizer:
                texts = self._tokenized(field, texts, tokenizer)
            text = FieldText(self.graph, texts)
            if field in self._cutters:
                words = cut_words(self.graph, texts, self._cutters[field])
                text = FieldText(self.graph, words=words)
            self._fields[field] = text
        return self._fields[field]

    def _tokenized(self, field: str, texts: str, tokenizer: str) -> str:
        """Returns texts with a space between their words, and makes the offsets an output.  [B].

        Texts for which the optional input `words_given_name` is true are unchanged.
        """
        graph = self.graph
        given = graph.optional(words_given_name(field), [False], [f"{field}.texts"])
        words = tokens(graph, texts, tokenexp=re2(tokenizer))
        split = graph.add("Where", given, texts, joined(graph, spaced(graph, words)))
        offsets = token_offsets(graph, texts, split, given)
        graph.output(offsets_name(field), offsets, "int64", [BATCH, f"{field}.tokens", 2])
        return split

    def text(self, name: str, encoder: TextEncoder, *, add_eos: bool, as_words: bool) -> str:
        """Returns the ids of a text, truncated.  [B, S] int64.

        Args:
          name: the feature.
          encoder: encoder of the text.
          add_eos: if True, appends `EOS`.
          as_words: if True, splits the text into words first and encodes each word.
        """
        encodes = self._encoder(name, encoder)
        if as_words:
            ids, self._places[name] = encodes.of_words(self.field(name))
        else:
            ids = encodes.of_texts(self.field(name))
        ids = with_end(self.graph, ids) if add_eos else ids
        limit = self._limits.get(name)
        if limit is None:
            return cut(self.graph, ids, ids.lengths).values
        if name in self._tagged:
            fits = longest(self.graph, ids.lengths)
            fits = self.graph.add("LessOrEqual", fits, [limit])
            fits = self.graph.add("Squeeze", fits)
            values = self.graph.require(fits, f"{name}: more than {limit} ids", ids.values)
            ids = Rows(values, ids.lengths)
        return cut(self.graph, ids, self.graph.constant([limit])).values

    def _encoder(self, name: str, encoder: TextEncoder) -> EncoderGraph:
        if isinstance(encoder, ByteEncoder):
            return ByteGraph(self.graph)
        if isinstance(encoder, TokenEncoder):
            return WordTable(self.graph, encoder, name)
        if isinstance(encoder, IntegerEncoder):
            return IntegerTable(self.graph, encoder, name)
        if isinstance(encoder, CharacterEncoder):
            return SymbolTable(self.graph, encoder)
        if isinstance(encoder, SubwordEncoder):
            return SubwordGraph(self.graph, encoder, name)
        if isinstance(encoder, SubtokenEncoder):
            return SubtokenGraph(self.graph, encoder, name)
        if isinstance(encoder, PieceEncoder):
            return PieceGraph(self.graph, encoder, name)
        raise self.unsupported(name, f"a text of a {type(encoder).__name__}")

    # Features with one entry per word.

    def word_starts(self, name: str, of: str) -> str:
        """Returns the position of each word's first id in its text.  [B, W] int64."""
        lengths = self._truncated_counts(name, of)
        return cut(self.graph, self._places[of], lengths).values

    def word_shapes(self, name: str, of: str) -> str:
        """Returns the `Shape` of each word.  [B, W] int64."""
        lengths = self._truncated_counts(name, of)
        return cut(self.graph, shapes_of(self.graph, self.field(of)), lengths).values

    def word_characters(self, name: str, of: str, encoder: TextEncoder, width: int) -> str:
        """Returns the ids of the first characters of each word.  [B, W, width] int64."""
        lengths = self._truncated_counts(name, of)
        if not isinstance(encoder, CharacterEncoder | ByteEncoder):
            kind = type(self._selected[name]).__name__
            raise self.unsupported(name, f"{kind} of a {type(encoder).__name__}")
        symbols = self._encoder(name, encoder)
        assert isinstance(symbols, SymbolTable | ByteGraph)
        spelling = symbols.spelled(self.field(of))
        return characters_of_words(self.graph, spelling, width, lengths)

    def word_labels(self, name: str, of: str, encoder: ClassLabelEncoder) -> str:
        """Returns the ids of labels, one per word.  [B, W] int64."""
        lengths, graph = self._truncated_counts(name, of, is_given=True), self.graph
        rows = labels_of(graph, self.field(name).texts, encoder)
        same = graph.add("Equal", rows.lengths, self.field(of).word_counts)
        same = graph.add("ReduceMin", graph.integers(same), keepdims=0)
        fits = graph.add("Equal", same, 1)
        values = graph.require(fits, self._unequal(name, of), rows.values)
        return cut(graph, Rows(values, rows.lengths), lengths).values

    def word_numbers(self, name: str, of: str, size: int) -> str:
        """Returns the numbers of each word.  [B, W, size] float32."""
        lengths, graph = self._truncated_counts(name, of, is_given=True), self.graph
        field = self._selected[name].source or name
        numbers = graph.input(field, "float32", [BATCH, f"{field}.words", size])
        some = graph.add("Not", graph.add("Equal", numbers, 0.0))
        return cut_each(graph, self._checked(name, of, some, numbers), lengths)

    def gazetteer(
        self, name: str, of: str, labels: Sequence[str], width: int, *, weights: bool
    ) -> str:
        """Returns the ids or the weights of the gazetteer entries of each word.  [B, W, width].

        Args:
          name: the feature; a field may have two, of ids and of weights.
          of: the feature of words.
          labels: known labels.
          width: number of entries to keep.
          weights: if True, returns the weights, otherwise the ids.
        """
        lengths, graph = self._truncated_counts(name, of, is_given=True), self.graph
        field = self._selected[name].source or name
        if field not in self._entries:
            shape = [BATCH, f"{field}.words", f"{field}.entries"]
            entries = graph.input(field, "string", shape)
            numbers = graph.input(f"{field}{WEIGHTS}", "float64", shape)
            some = graph.add("Not", graph.add("Equal", entries, graph.constant("")))
            entries = self._checked(name, of, some, entries)
            self._entries[field] = entries_of(graph, entries, numbers, field, labels, width)
        return cut_each(graph, self._entries[field][weights], lengths)

    def _truncated_counts(self, name: str, of: str, *, is_given: bool = False) -> str:
        """Returns the number of kept words of each text: those that begin before its end.  [B].

        Args:
          name: the feature.
          of: the feature of words.
          is_given: True if the feature has a field of its own.

        Raises:
          ExportError: the words are not encoded, or they are in the windows of a text.
        """
        kind = type(self._selected[name]).__name__
        if of not in self._places:
            raise self.unsupported(name, kind)
        if is_given and self._windows is not None:
            what = f"{kind}, given of words that are found in a whole text"
            raise self.unsupported(name, what)
        graph, counts = self.graph, self.field(of).word_counts
        if of not in self._limits:
            return counts
        limit = graph.constant(self._limits[of])
        if not any(one.starts_words and one.aligned_to == of for one in self._selected.values()):
            return graph.add("Min", counts, limit)
        places = self._places[of]
        width = graph.add("Squeeze", graph.add("Shape", places.values, start=1, end=2))
        numbers = graph.add("Range", 0, width, 1)
        word = graph.add("Less", numbers, graph.add("Unsqueeze", counts, 1))
        left = graph.add("And", word, graph.add("Less", places.values, limit))
        return graph.add("ReduceSum", graph.integers(left), [1], keepdims=0)

    def _checked(self, name: str, of: str, some: str, values: str) -> str:
        """Returns the values of words; the graph fails unless there is one entry per word.

        Args:
          name: the feature.
          of: the feature of words.
          some: [B, W', n], mask of entries.
          values: [B, W', n].
        """
        graph = self.graph
        entries = graph.add("ReduceSum", graph.integers(some), [2], keepdims=0)
        entries = graph.add("Greater", entries, 0)
        counts = self.field(of).word_counts
        return check_padded(graph, entries, counts, self._unequal(name, of), values)

    def _unequal(self, name: str, of: str) -> str:
        """Returns the name of the operator that fails unless there is one entry per word."""
        return f"{self._selected[name].source or name}: not one for each word of {of}"
