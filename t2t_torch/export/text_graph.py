"""Encoding of inputs to a model's features in a graph, equal to that of `LabelPredictor`."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

import t2t_torch.export.encoders  # noqa: F401  # registers the graphs of text encoders
from t2t_torch.errors import ExportError
from t2t_torch.export import encode_graph, encoder_graph, strings, unsupported_input
from t2t_torch.export.answers import BATCH, windows_of
from t2t_torch.export.graph import Graph, Proxy, Shape, arange, combine, concat, where
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
from t2t_torch.text.encoder import WordCutter

_SMALL, _CAPITAL = 1, 2


def cut_words(texts: Proxy, cutter: WordCutter) -> Proxy:
    """Returns the words of each text, split by a `WordCutter`.

    Args:
      texts: [B] string.
      cutter: definition of words.

    Returns:
      [B, W] string, padded with "".

    Raises:
      ExportError: an expression of the cutter is not supported in a graph.
    """
    if cutter.spaces:
        texts = strings.joined(
            strings.spaced(strings.tokens(texts, separators=[strings.re2(cutter.spaces)]))
        )
    looked_at = re.escape(cutter.before_words)
    looked_at += "A-Z" if cutter.splits_glued else ""
    looked_at += strings.capitals() if cutter.lower_case else ""
    if looked_at:
        change = functools.partial(_letters, cutter=cutter)
        texts = strings.joined(
            strings.spaced(strings.changed_words(strings.FieldText(texts).parts, looked_at, change))
        )
    return strings.tokens(texts, tokenexp=strings.re2(cutter.words))


def _letters(letters: Proxy, cutter: WordCutter) -> Proxy:
    """Returns characters with the spaces and the case that a cutter uses.  [B, L] string."""
    if cutter.before_words:
        _, after = strings.beside(letters, "")
        after = where(letters == cutter.before_words, after, "")
        letters = where(after.RegexFullMatch(pattern=strings.re2(r"\w")), " ", letters)
    changed = strings.lower(letters) if cutter.lower_case else letters
    if cutter.splits_glued:  # ASCII capitals between two lower-case letters
        kinds = dict.fromkeys(string.ascii_lowercase, _SMALL)
        kinds |= dict.fromkeys(string.ascii_uppercase, _CAPITAL)
        case = strings.look_up(letters, kinds, 0)
        before, after = strings.beside(case, 0)
        glued = (case == _CAPITAL) & (before == _SMALL) & (after == _SMALL)
        changed = where(glued, " ", "").StringConcat(changed)
    return changed


def cut_each(values: Proxy, lengths: Proxy) -> Proxy:
    """Returns the entries of the first words of each text, padded with 0 to at least one word.

    Args:
      values: [B, W', n] numbers.
      lengths: [B] int64, number of words to keep per text.

    Returns:
      [B, W, n].
    """
    # One more column: there may be none.
    values = strings.first(values.Pad([0, 0, 0, 0, 1, 0]), strings.longest(lengths))
    in_text = strings.mask_of(lengths, values.size(1)).Unsqueeze([2])
    return where(in_text, values, combine("CastLike", 0.0, values))


def entries_of(
    labels: Proxy, weights: Proxy, field: str, known_labels: Sequence[str], width: int
) -> tuple[Proxy, Proxy]:
    """Returns ids and weights of each word's entries, equal to `Gazetteer` and `GazetteerWeights`.

    Entries with the largest weights are kept, among equal weights those with the lowest ids;
    unknown labels are dropped.

    Args:
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
    more = [0, 0, 0, 0, 1, width]
    ids = strings.look_up(labels, numbers, 0).Pad(more)
    least = np.array(-np.inf)
    weights = where(ids > 0, weights.Pad(more), least)
    # ONNX's TopK is stable: sort by ids first, then by weights.
    ids, order = ids.graph.several(2, "TopK", ids, ids.size(2), axis=2, largest=0, sorted=1)
    weights = weights.GatherElements(order, axis=2)
    weights, order = ids.graph.several(2, "TopK", weights, [width], axis=2, largest=1, sorted=1)
    is_entry = weights > least
    ids = where(is_entry, ids.GatherElements(order, axis=2), 0)
    return ids, where(is_entry, weights, np.array(0.0)).Cast(to=TensorProto.FLOAT)


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
        self.starts: dict[str, strings.NumberRows] = {}
        self.entries: dict[str, tuple[Proxy, Proxy]] = {}
        self.windows = windows = windows_of(graph, problem)
        self._cutters = problem.cutters if cutters is None else cutters
        self._selected = features.given if selected is None else selected
        self._features = features
        self.limits = limits.by_feature
        self._tagged = set(find_alignments(features.targets).values())
        self._fields: dict[str, strings.FieldText] = {} if windows is None else {**windows.fields}

    def encoded(self) -> dict[str, Proxy]:
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

    def input(self, name: str, dtype: str, shape: Shape) -> Proxy:
        """Returns the field of a feature as an input; with windows its value for each window.

        Args:
          name: the feature.
          dtype: see `Graph.input`.
          shape: shape of one example.
        """
        values = self.graph.input(self.source(name), dtype, [BATCH, *shape])
        return values if self.windows is None else self.windows.of_each(values)

    def field(self, name: str) -> strings.FieldText:
        """Returns the texts of a feature's field."""
        field = self.source(name)
        if field not in self._fields:
            texts = self.graph.input(field, "string", [BATCH])
            tokenizer = self._selected[name].input_spec(name, self._features).tokenizer
            if tokenizer:
                texts = self._tokenized(field, texts, tokenizer)
            text = strings.FieldText(texts)
            if field in self._cutters:
                text = strings.FieldText(words=cut_words(texts, self._cutters[field]))
            self._fields[field] = text
        return self._fields[field]

    def _tokenized(self, field: str, texts: Proxy, tokenizer: str) -> Proxy:
        """Returns texts with a space between their words, and makes the offsets an output.  [B].

        Texts for which the optional input `words_given_name` is true are unchanged.
        """
        graph = self.graph
        given = graph.optional(words_given_name(field), [False], [f"{field}.texts"])
        split = where(
            given,
            texts,
            strings.joined(strings.spaced(strings.tokens(texts, tokenexp=strings.re2(tokenizer)))),
        )
        offsets = strings.token_offsets(texts, split, given)
        graph.output(offsets_name(field), offsets, "int64", [BATCH, f"{field}.tokens", 2])
        return split

    def truncated(self, name: str, ids: strings.NumberRows, *, add_eos: bool) -> Proxy:
        """Returns the ids of a text, truncated.  [B, S] int64.

        Args:
          name: the feature.
          ids: its ids.
          add_eos: if True, appends `EOS`.
        """
        ids = strings.with_end(ids) if add_eos else ids
        limit = self.limits.get(name)
        if limit is None:
            return strings.cut(ids, ids.lengths).values
        if name in self._tagged:
            fits = (strings.longest(ids.lengths) <= limit).Squeeze()
            values = self.graph.require(fits, f"{name}: more than {limit} ids", ids.values)
            ids = strings.NumberRows(values, ids.lengths)
        return strings.cut(ids, self.graph.constant([limit])).values

    def word_counts(self, name: str, of: str, *, is_given: bool = False) -> Proxy:
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
        counts = self.field(of).word_counts
        if of not in self.limits:
            return counts
        limit = self.limits[of]
        if self._features.word_starts.get(of) not in self._selected:
            return counts.Min(limit)
        starts = self.starts[of].values
        return (strings.mask_of(counts, starts.size(1)) & (starts < limit)).integers().sum(1)

    def checked(self, name: str, of: str, some: Proxy, values: Proxy) -> Proxy:
        """Returns the values of words; the graph fails unless there is one entry per word.

        Args:
          name: the feature.
          of: the feature of words.
          some: [B, W', n], mask of entries.
          values: [B, W', n].
        """
        mask = some.integers().sum(2) > 0  # [B, W']
        counts = self.field(of).word_counts
        room = mask.size(1) >= counts.ReduceMax(keepdims=0)
        none = (mask & ~strings.mask_of(counts, mask.size(1))).integers().sum() == 0
        return self.graph.require(none & room.Squeeze(), self.unequal(name, of), values)

    def unequal(self, name: str, of: str) -> str:
        """Returns the name of the operator that fails unless there is one entry per word."""
        return f"{self.source(name)}: not one for each word of {of}"


@encode_graph.register(Text)
def encode_text(feature: Text, name: str, inputs: InputGraph) -> Proxy:
    """Returns the ids of a text.  [B, S] int64."""
    ids = encoder_graph(feature.encoder, inputs.graph, name).of_texts(inputs.field(name))
    return inputs.truncated(name, ids, add_eos=feature.add_eos)


@encode_graph.register(Words)
def encode_words(feature: Words, name: str, inputs: InputGraph) -> Proxy:
    """Returns the ids of words.  [B, S] int64."""
    encoder = encoder_graph(feature.encoder, inputs.graph, name)
    ids, inputs.starts[name] = encoder.of_words(inputs.field(name))
    return inputs.truncated(name, ids, add_eos=feature.add_eos)


encode_graph.register(Turns, encode_graph.dispatch(object))  # texts that no graph encodes
encode_graph.register(TreeFeature, encode_graph.dispatch(object))


@encode_graph.register(Image)
def encode_image(feature: Image, name: str, inputs: InputGraph) -> Proxy:
    """Returns the bytes unchanged.  [B, height, width, channels] uint8."""
    return inputs.input(name, "uint8", feature.shape)


@encode_graph.register(Real)
def encode_real(feature: Real, name: str, inputs: InputGraph) -> Proxy:
    """Returns the standardized numbers.  [B, size] float32."""
    numbers = inputs.input(name, "float32", [feature.size])
    if not feature.mean:
        return numbers
    mean, std = (np.asarray(x, np.float64) for x in (feature.mean, feature.std))
    return ((numbers.Cast(to=TensorProto.DOUBLE) - mean) / std).Cast(to=TensorProto.FLOAT)


@encode_graph.register(Audio)
def encode_audio(feature: Audio, name: str, inputs: InputGraph) -> Proxy:
    """Returns samples as whole frames.  [B, samples] int16 -> [B, frames, samples] int16."""
    graph, field, size = inputs.graph, inputs.source(name), feature.samples_per_frame
    samples = graph.input(field, "int16", [BATCH, f"{field}.samples"])
    width = samples.size(1)
    pads = concat([0, 0, 0], (width + (size - 1)) / size * size - width, axis=0)
    samples = samples.Cast(to=TensorProto.INT32)  # Pad takes no int16
    samples = samples.Pad(pads, graph.constant(NO_SAMPLE, "int32")).Reshape([0, -1, size])
    if name in inputs.limits:
        samples = strings.first(samples, graph.constant([inputs.limits[name]]))
    return samples.Cast(to=TensorProto.INT16)


@encode_graph.register(WordStarts)
def encode_word_starts(feature: WordStarts, name: str, inputs: InputGraph) -> Proxy:
    """Returns the position of each word's first id in its text.  [B, W] int64."""
    lengths = inputs.word_counts(name, feature.of)
    return strings.cut(inputs.starts[feature.of], lengths).values


_ANYTHING = r"[\x{0}-\x{10FFFF}]*"


def _is_titled(character: str) -> bool:
    return character.istitle() and not character.isupper()


@encode_graph.register(WordShape)
def encode_word_shapes(feature: WordShape, name: str, inputs: InputGraph) -> Proxy:
    """Returns the `Shape` of each word.  [B, W] int64."""
    graph, field = inputs.graph, inputs.field(feature.of)
    lengths = inputs.word_counts(name, feature.of)
    capital, small, titled = (
        strings.ranges(str.isupper),
        strings.ranges(str.islower),
        strings.ranges(_is_titled),
    )
    decimal, digit, letter = (
        strings.ranges(str.isdecimal),
        strings.ranges(str.isdigit),
        strings.ranges(str.isalpha),
    )
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
        shapes = where(field.words.RegexFullMatch(pattern=expression), int(shape), shapes)
    return strings.cut(strings.NumberRows(shapes, field.word_counts), lengths).values


@encode_graph.register(WordCharacters)
def encode_word_characters(feature: WordCharacters, name: str, inputs: InputGraph) -> Proxy:
    """Returns the ids of the first characters of each word.  [B, W, width] int64."""
    lengths = inputs.word_counts(name, feature.of)
    encoder = encoder_graph(feature.encoder, inputs.graph, name)
    spelling = encoder.spelled(inputs.field(feature.of))
    if spelling is None:
        what = f"{type(feature).__name__} of a {type(feature.encoder).__name__}"
        raise unsupported_input(name, what)
    letters, in_word = spelling.ids, ~spelling.between  # [B, L]
    before, _ = strings.beside(spelling.between.integers(), 1)
    begins = in_word & (before == 1)
    number = begins.integers()
    word = number.CumSum(1) - 1  # index in its text, from 0
    # Start of each character's word; for that, words are numbered across all texts.
    through = number.Reshape([-1]).CumSum(0) - 1
    starts = begins.NonZero()[1].Concat([0], axis=0)  # before the first word
    place = arange(letters.size(1)) - starts[through].Reshape(letters.Shape())
    mask = in_word & (place < feature.width) & (word < strings.upright(lengths))
    # One row [row, word, position] per kept character.
    at = mask.NonZero()  # [2, N]: row and position in the text
    line = at.Transpose()
    columns = (one.Unsqueeze([1]) for one in (at[0], word.GatherND(line), place.GatherND(line)))
    indices = concat(*columns, axis=1)
    shape = lengths.Shape().Concat(strings.longest(lengths), [feature.width], axis=0)
    return combine("Expand", 0, shape).ScatterND(indices, letters.GatherND(line))


@encode_graph.register(WordLabel)
def encode_word_labels(feature: WordLabel, name: str, inputs: InputGraph) -> Proxy:
    """Returns the ids of labels, one per word.  [B, W] int64."""
    of = feature.of
    lengths = inputs.word_counts(name, of, is_given=True)
    labels = inputs.field(name).parts
    numbers = {label: NUM_RESERVED + i for i, label in enumerate(feature.encoder.labels)}
    rows = strings.NumberRows(strings.look_up(labels, numbers, 0), strings.count_of(labels))
    fits = (rows.lengths == inputs.field(of).word_counts).all()
    values = inputs.graph.require(fits, inputs.unequal(name, of), rows.values)
    return strings.cut(strings.NumberRows(values, rows.lengths), lengths).values


@encode_graph.register(WordReal)
def encode_word_numbers(feature: WordReal, name: str, inputs: InputGraph) -> Proxy:
    """Returns the numbers of each word.  [B, W, size] float32."""
    of, graph = feature.of, inputs.graph
    lengths, field = inputs.word_counts(name, of, is_given=True), inputs.source(name)
    numbers = graph.input(field, "float32", [BATCH, f"{field}.words", feature.size])
    return cut_each(inputs.checked(name, of, numbers != 0.0, numbers), lengths)


@encode_graph.register(Gazetteer)
def encode_gazetteer(feature: Gazetteer, name: str, inputs: InputGraph) -> Proxy:
    """Returns ids or weights of the entries of each word.  [B, W, width] int64 or float32."""
    lengths = inputs.word_counts(name, feature.of, is_given=True)
    graph, field, labels = inputs.graph, inputs.source(name), feature.encoder.labels
    if field not in inputs.entries:
        shape = [BATCH, f"{field}.words", f"{field}.entries"]
        entries = graph.input(field, "string", shape)
        numbers = graph.input(f"{field}{WEIGHTS}", "float64", shape)
        entries = inputs.checked(name, feature.of, entries != "", entries)
        inputs.entries[field] = entries_of(entries, numbers, field, labels, feature.width)
    ids, weights = inputs.entries[field]
    return cut_each(ids if feature.vocab_size else weights, lengths)
