"""Encoding of inputs to a model's features in a graph, equal to that of `LabelPredictor`."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from t2t_torch.errors import ExportError
from t2t_torch.export import encode_graph, encoder_graph, unsupported_input
from t2t_torch.export.answers import BATCH, windows_of
from t2t_torch.export.encoders import ByteGraph, IntegerTable, SubwordGraph, SymbolTable, TokenTable
from t2t_torch.export.graph import Graph, Shape
from t2t_torch.export.pieces import PieceGraph
from t2t_torch.export.strings import (
    SPACE,
    FieldText,
    NumberRows,
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
    mask_of,
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
from t2t_torch.features.audio import NO_SAMPLE, Audio
from t2t_torch.features.feature import find_alignments, select_texts
from t2t_torch.features.image import Image
from t2t_torch.features.real import Real
from t2t_torch.features.text import Text, TreeFeature, Turns, Words
from t2t_torch.features.word import (
    NUM_RESERVED,
    Gazetteer,
    WordCharacters,
    WordLabel,
    WordReal,
    WordShape,
    WordStarts,
)
from t2t_torch.features.word import Shape as WordForm
from t2t_torch.pipeline.reader import LengthLimits
from t2t_torch.problem import Problem
from t2t_torch.runtime.feeds import WEIGHTS, offsets_name, words_given_name
from t2t_torch.text.encoder import (
    ByteEncoder,
    CharacterEncoder,
    IntegerEncoder,
    TokenEncoder,
    WordCutter,
)
from t2t_torch.text.pieces import PieceEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder

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
    width = graph.add("Shape", values, start=1, end=2)
    in_text = graph.add("Unsqueeze", mask_of(graph, lengths, width), [2])
    nothing = graph.add("CastLike", 0.0, values)
    return graph.add("Where", in_text, values, nothing)


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


class InputGraph:
    """The inputs of a graph, and the operators that encode them; see `export.encode_graph`.

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

    Attributes:
      graph: the graph.
      starts: position of each word's first id, by feature of words.
      limits: lengths to which inputs are truncated, by feature.
      entries: ids and weights of gazetteers, by field.
      windows: windows of a text that is split into several, with one row of features each.
    """

    def __init__(
        self,
        graph: Graph,
        problem: Problem,
        features: Features,
        limits: LengthLimits,
        selected: Mapping[str, Feature] | None = None,
        cutters: Mapping[str, WordCutter] | None = None,
    ) -> None:
        self.graph = graph
        self.starts: dict[str, NumberRows] = {}
        self.entries: dict[str, tuple[str, str]] = {}
        self.windows = windows = windows_of(graph, problem)
        self._cutters = problem.cutters if cutters is None else cutters
        self._selected = features.given if selected is None else selected
        self._features = features
        self.limits = limits.by_feature
        self._tagged = set(find_alignments(features.targets).values())
        self._fields: dict[str, FieldText] = {} if windows is None else {**windows.fields}

    def encoded(self) -> dict[str, str]:
        """Returns the tensors of all features by name, as in an evaluation batch.

        Raises:
          ExportError: a field or feature is not supported in a graph; names it.
        """
        texts = select_texts(self._selected)
        order = sorted(self._selected, key=lambda name: name not in texts)
        tensors = {name: encode_graph(self._selected[name], name, self) for name in order}
        return {name: tensors[name] for name in self._selected}

    def source(self, name: str) -> str:
        """Returns the field of a feature."""
        return self._selected[name].source or name

    def input(self, name: str, dtype: str, shape: Shape) -> str:
        """Returns the field of a feature as an input; with windows its value for each window.

        Args:
          name: the feature.
          dtype: see `Graph.input`.
          shape: shape of one example.
        """
        values = self.graph.input(self.source(name), dtype, [BATCH, *shape])
        return values if self.windows is None else self.windows.of_each(values)

    def field(self, name: str) -> FieldText:
        """Returns the texts of a feature's field."""
        field = self.source(name)
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

    def truncated(self, name: str, ids: NumberRows, *, add_eos: bool) -> str:
        """Returns the ids of a text, truncated.  [B, S] int64.

        Args:
          name: the feature.
          ids: its ids.
          add_eos: if True, appends `EOS`.
        """
        ids = with_end(self.graph, ids) if add_eos else ids
        limit = self.limits.get(name)
        if limit is None:
            return cut(self.graph, ids, ids.lengths).values
        if name in self._tagged:
            fits = longest(self.graph, ids.lengths)
            fits = self.graph.add("LessOrEqual", fits, [limit])
            fits = self.graph.add("Squeeze", fits)
            values = self.graph.require(fits, f"{name}: more than {limit} ids", ids.values)
            ids = NumberRows(values, ids.lengths)
        return cut(self.graph, ids, self.graph.constant([limit])).values

    def word_counts(self, name: str, of: str, *, is_given: bool = False) -> str:
        """Returns the number of kept words of each text: those that begin before its end.  [B].

        Args:
          name: the feature.
          of: the feature of words.
          is_given: True if the feature has a field of its own.

        Raises:
          ExportError: the words are not encoded, or they are in the windows of a text.
        """
        kind = type(self._selected[name]).__name__
        if of not in self.starts:
            raise unsupported_input(name, kind)
        if is_given and self.windows is not None:
            what = f"{kind}, given of words that are found in a whole text"
            raise unsupported_input(name, what)
        graph, counts = self.graph, self.field(of).word_counts
        if of not in self.limits:
            return counts
        limit = graph.constant(self.limits[of])
        if self._features.word_starts.get(of) not in self._selected:
            return graph.add("Min", counts, limit)
        places = self.starts[of]
        width = graph.add("Squeeze", graph.add("Shape", places.values, start=1, end=2))
        numbers = graph.add("Range", 0, width, 1)
        word = graph.add("Less", numbers, graph.add("Unsqueeze", counts, 1))
        left = graph.add("And", word, graph.add("Less", places.values, limit))
        return graph.add("ReduceSum", graph.integers(left), [1], keepdims=0)

    def checked(self, name: str, of: str, some: str, values: str) -> str:
        """Returns the values of words; the graph fails unless there is one entry per word.

        Args:
          name: the feature.
          of: the feature of words.
          some: [B, W', n], mask of entries.
          values: [B, W', n].
        """
        graph = self.graph
        entries = graph.add("ReduceSum", graph.integers(some), [2], keepdims=0)
        mask = graph.add("Greater", entries, 0)  # [B, W']
        counts = self.field(of).word_counts
        width = graph.add("Shape", mask, start=1, end=2)
        room = graph.add("GreaterOrEqual", width, graph.add("ReduceMax", counts, keepdims=0))
        in_text = mask_of(graph, counts, graph.add("Shape", mask, start=1, end=2))
        behind = graph.add("And", mask, graph.add("Not", in_text))
        none = graph.add("ReduceSum", graph.integers(behind), keepdims=0)
        none = graph.add("Equal", none, 0)
        fits = graph.add("And", none, graph.add("Squeeze", room))
        return graph.require(fits, self.unequal(name, of), values)

    def unequal(self, name: str, of: str) -> str:
        """Returns the name of the operator that fails unless there is one entry per word."""
        return f"{self.source(name)}: not one for each word of {of}"


encoder_graph.register(ByteEncoder, ByteGraph)
encoder_graph.register(CharacterEncoder, SymbolTable)
encoder_graph.register(IntegerEncoder, IntegerTable)
encoder_graph.register(PieceEncoder, PieceGraph)
encoder_graph.register(SubtokenEncoder, SubtokenGraph)
encoder_graph.register(SubwordEncoder, SubwordGraph)
encoder_graph.register(TokenEncoder, TokenTable)


@encode_graph.register(Text)
def encode_text(feature: Text, name: str, inputs: InputGraph) -> str:
    """Returns the ids of a text.  [B, S] int64."""
    ids = encoder_graph(feature.encoder, inputs.graph, name).of_texts(inputs.field(name))
    return inputs.truncated(name, ids, add_eos=feature.add_eos)


@encode_graph.register(Words)
def encode_words(feature: Words, name: str, inputs: InputGraph) -> str:
    """Returns the ids of words.  [B, S] int64."""
    encoder = encoder_graph(feature.encoder, inputs.graph, name)
    ids, inputs.starts[name] = encoder.of_words(inputs.field(name))
    return inputs.truncated(name, ids, add_eos=feature.add_eos)


encode_graph.register(Turns, encode_graph.dispatch(object))  # texts that no graph encodes
encode_graph.register(TreeFeature, encode_graph.dispatch(object))


@encode_graph.register(Image)
def encode_image(feature: Image, name: str, inputs: InputGraph) -> str:
    """Returns the bytes unchanged.  [B, height, width, channels] uint8."""
    return inputs.input(name, "uint8", feature.shape)


@encode_graph.register(Real)
def encode_real(feature: Real, name: str, inputs: InputGraph) -> str:
    """Returns the standardized numbers.  [B, size] float32."""
    numbers, graph = inputs.input(name, "float32", [feature.size]), inputs.graph
    if not feature.mean:
        return numbers
    mean, std = (np.asarray(x, np.float64) for x in (feature.mean, feature.std))
    numbers = graph.add("Cast", numbers, to=TensorProto.DOUBLE)
    numbers = graph.add("Sub", numbers, graph.constant(mean))
    numbers = graph.add("Div", numbers, graph.constant(std))
    return graph.add("Cast", numbers, to=TensorProto.FLOAT)


@encode_graph.register(Audio)
def encode_audio(feature: Audio, name: str, inputs: InputGraph) -> str:
    """Returns samples as whole frames.  [B, samples] int16 -> [B, frames, samples] int16."""
    graph, field, size = inputs.graph, inputs.source(name), feature.samples_per_frame
    samples = graph.input(field, "int16", [BATCH, f"{field}.samples"])
    width = graph.add("Shape", samples, start=1, end=2)
    frames = graph.add("Div", graph.add("Add", width, [size - 1]), [size])
    missing = graph.add("Sub", graph.add("Mul", frames, [size]), width)
    pads = graph.add("Concat", [0, 0, 0], missing, axis=0)
    samples = graph.add("Cast", samples, to=TensorProto.INT32)  # Pad takes no int16
    samples = graph.add("Pad", samples, pads, graph.constant(NO_SAMPLE, "int32"))
    samples = graph.add("Reshape", samples, [0, -1, size])
    if name in inputs.limits:
        samples = first(graph, samples, graph.constant([inputs.limits[name]]))
    return graph.add("Cast", samples, to=TensorProto.INT16)


@encode_graph.register(WordStarts)
def encode_word_starts(feature: WordStarts, name: str, inputs: InputGraph) -> str:
    """Returns the position of each word's first id in its text.  [B, W] int64."""
    lengths = inputs.word_counts(name, feature.of)
    return cut(inputs.graph, inputs.starts[feature.of], lengths).values


_ANYTHING = r"[\x{0}-\x{10FFFF}]*"


def _is_titled(character: str) -> bool:
    return character.istitle() and not character.isupper()


@encode_graph.register(WordShape)
def encode_word_shapes(feature: WordShape, name: str, inputs: InputGraph) -> str:
    """Returns the `Shape` of each word.  [B, W] int64."""
    graph, field = inputs.graph, inputs.field(feature.of)
    lengths = inputs.word_counts(name, feature.of)
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
    return cut(graph, NumberRows(shapes, field.word_counts), lengths).values


@encode_graph.register(WordCharacters)
def encode_word_characters(feature: WordCharacters, name: str, inputs: InputGraph) -> str:
    """Returns the ids of the first characters of each word.  [B, W, width] int64."""
    graph, lengths = inputs.graph, inputs.word_counts(name, feature.of)
    encoder = encoder_graph(feature.encoder, graph, name)
    spelling = encoder.spelled(inputs.field(feature.of))
    if spelling is None:
        what = f"{type(feature).__name__} of a {type(feature.encoder).__name__}"
        raise unsupported_input(name, what)
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
    mask = graph.add("And", in_word, graph.add("Less", place, graph.constant(feature.width)))
    limit = graph.add("Unsqueeze", lengths, one)
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
    rows = graph.add("Shape", lengths)
    shape = graph.add("Concat", rows, longest(graph, lengths), [feature.width], axis=0)
    ids = graph.add("GatherND", letters, line)
    return graph.add("ScatterND", graph.add("Expand", zero, shape), indices, ids)


@encode_graph.register(WordLabel)
def encode_word_labels(feature: WordLabel, name: str, inputs: InputGraph) -> str:
    """Returns the ids of labels, one per word.  [B, W] int64."""
    of, graph = feature.of, inputs.graph
    lengths = inputs.word_counts(name, of, is_given=True)
    labels = tokens(graph, inputs.field(name).texts, separators=[f"{re2(SPACE)}+"])
    numbers = {label: NUM_RESERVED + i for i, label in enumerate(feature.encoder.labels)}
    rows = NumberRows(look_up(graph, labels, numbers, 0), count_of(graph, labels))
    same = graph.add("Equal", rows.lengths, inputs.field(of).word_counts)
    same = graph.add("ReduceMin", graph.integers(same), keepdims=0)
    fits = graph.add("Equal", same, 1)
    values = graph.require(fits, inputs.unequal(name, of), rows.values)
    return cut(graph, NumberRows(values, rows.lengths), lengths).values


@encode_graph.register(WordReal)
def encode_word_numbers(feature: WordReal, name: str, inputs: InputGraph) -> str:
    """Returns the numbers of each word.  [B, W, size] float32."""
    of, graph = feature.of, inputs.graph
    lengths, field = inputs.word_counts(name, of, is_given=True), inputs.source(name)
    numbers = graph.input(field, "float32", [BATCH, f"{field}.words", feature.size])
    some = graph.add("Not", graph.add("Equal", numbers, 0.0))
    return cut_each(graph, inputs.checked(name, of, some, numbers), lengths)


@encode_graph.register(Gazetteer)
def encode_gazetteer(feature: Gazetteer, name: str, inputs: InputGraph) -> str:
    """Returns ids or weights of the entries of each word.  [B, W, width] int64 or float32."""
    lengths = inputs.word_counts(name, feature.of, is_given=True)
    graph, field, labels = inputs.graph, inputs.source(name), feature.encoder.labels
    if field not in inputs.entries:
        shape = [BATCH, f"{field}.words", f"{field}.entries"]
        entries = graph.input(field, "string", shape)
        numbers = graph.input(f"{field}{WEIGHTS}", "float64", shape)
        some = graph.add("Not", graph.add("Equal", entries, graph.constant("")))
        entries = inputs.checked(name, feature.of, some, entries)
        inputs.entries[field] = entries_of(graph, entries, numbers, field, labels, feature.width)
    ids, weights = inputs.entries[field]
    return cut_each(graph, ids if feature.vocab_size else weights, lengths)
