"""Outputs of a graph with readable values: labels, tags, texts."""

from __future__ import annotations

from typing import Any, NamedTuple

from t2t_torch.errors import ExportError
from t2t_torch.export import GraphOutput, Outputs, decode_graph
from t2t_torch.export.graph import Graph
from t2t_torch.export.strings import (
    FieldText,
    at_least_one,
    beside,
    blank_mask,
    characters_of,
    count_of,
    is_first,
    joined,
    re2,
    tokens,
    upright,
    whitespace,
)
from t2t_torch.features import Features
from t2t_torch.features.label import Choice, ClassLabel, MultiLabel, SoftLabel, Tags
from t2t_torch.features.real import Real
from t2t_torch.problem import Problem
from t2t_torch.problem_types.words import SpanQAProblem, token_pattern
from t2t_torch.text.tokenizer import IDEOGRAPHS, marks

BATCH = "batch"
"""Name of the axis of examples."""

_QUESTION, _CONTEXT = "question", "context"
_SPACE, _IDEOGRAPH, _WORD, _MARK, _OTHER = range(5)
_CERTAIN = 1.0


class Answers(NamedTuple):
    """Answers found in texts.

    Attributes:
      texts: texts of the answers, verbatim, "" for no answer, [B] string.
      spans: start and end (exclusive) in characters, (-1, -1) for no answer, [B, 2] int64.
      probabilities: probabilities of the answers, [B].
    """

    texts: str
    spans: str
    probabilities: str


def windows_of(graph: Graph, problem: Problem) -> ContextWindows | None:
    """Returns the windows of a problem that splits its texts into windows, otherwise None.

    Args:
      graph: graph to which inputs and operators are added.
      problem: the problem.

    Raises:
      ExportError: the problem computes inputs or answers in Python.
    """
    kind = type(problem)
    for name, what in (("inputs_of", "inputs of a sample"), ("answer_of", "answers")):
        window_sizes = getattr(kind, name)
        known = [getattr(Problem, name)]
        if isinstance(problem, SpanQAProblem):
            known = [getattr(SpanQAProblem, name)]
        if window_sizes not in known:
            raise ExportError(
                f"{problem.full_name!r} makes {what} in Python (`{name}`), which cannot stand in a "
                "graph. Declare `cutters` if texts are to be cut, or serve it with PyTorch."
            )
    return ContextWindows(graph, problem) if isinstance(problem, SpanQAProblem) else None


class ContextWindows:
    """Words of questions and texts, one row per window of a text.

    Args:
      graph: graph to which inputs and operators are added.
      problem: problem with the length of windows.

    Attributes:
      fields: words of question and text, [N, W], by field.
      rows: index of the input of each window, [N] int64.
    """

    def __init__(self, graph: Graph, problem: SpanQAProblem) -> None:
        self._graph = graph
        self._stride = problem.context_stride
        expression = re2(token_pattern().pattern)
        texts = {name: graph.input(name, "string", [BATCH]) for name in (_QUESTION, _CONTEXT)}
        self._texts = texts[_CONTEXT]
        windows = {
            name: at_least_one(graph, tokens(graph, text, tokenexp=expression), "")
            for name, text in texts.items()
        }
        counts = {name: count_of(graph, words) for name, words in windows.items()}
        fewest = graph.add("Min", counts[_QUESTION], counts[_CONTEXT])
        fewest = graph.add("ReduceMin", fewest, keepdims=0)
        is_nonempty = graph.add("Greater", fewest, 0)
        message = "a question or a context without a word"
        total = graph.require(is_nonempty, message, counts[_CONTEXT])
        beyond = graph.add("Sub", total, graph.constant(problem.max_context))
        beyond = graph.add("Max", beyond, 0)
        stride = graph.constant(self._stride)
        steps = graph.add("Add", beyond, graph.constant(self._stride - 1))
        count = graph.add("Add", graph.add("Div", steps, stride), 1)  # [B]
        most = graph.add("ReduceMax", count, keepdims=0)
        numbers = graph.add("Range", 0, most, 1)
        upright = graph.add("Unsqueeze", count, [1])
        self._there = graph.add("Less", numbers, upright)  # [B, K]
        places = graph.add("NonZero", self._there)  # [2, N], row by row
        self._places = graph.add("Transpose", places)
        self.rows = graph.add("Gather", places, 0)
        self._starts = graph.add("Mul", graph.add("Gather", places, 1), stride)
        whole = graph.add("Mul", self._starts, 0)
        width = graph.add("Squeeze", graph.add("Shape", windows[_QUESTION], start=1, end=2))
        question = self._cut(windows[_QUESTION], whole, width)
        context = self._cut(windows[_CONTEXT], self._starts, graph.constant(problem.max_context))
        self.fields = {
            _QUESTION: FieldText(graph, words=question),
            _CONTEXT: FieldText(graph, words=context),
        }

    def _cut(self, words: str, starts: str, size: str) -> str:
        """Returns at most `size` words of each window's input from `starts` on.  [N, W] string.

        They are gathered one by one: onnxruntime's Gather copies only the first string of a row.
        """
        graph = self._graph
        width = graph.add("Squeeze", graph.add("Shape", words, start=1, end=2))
        length = graph.add("Min", width, size)
        numbers = graph.add("Range", 0, length, 1)
        place = graph.add("Add", upright(graph, starts), numbers)  # [N, W]
        inside = graph.add("Less", place, width)
        first = graph.add("Mul", upright(graph, self.rows), width)
        place = graph.add("Where", inside, graph.add("Add", first, place), 0)
        flat = graph.add("Reshape", words, [-1])
        values = graph.add("Gather", flat, place)
        return graph.add("Where", inside, values, [""])

    def of_each(self, values: str) -> str:
        """Returns the values of each window's input.  [B, ...] -> [N, ...]."""
        return self._graph.add("Gather", values, self.rows)

    def answers(self, spans: str, probabilities: str) -> Answers:
        """Returns the most probable answer of all windows: `SpanQAProblem.answer_of`.

        Args:
          spans: first and last word in the window, -1 for no answer, [N, 2] int64.
          probabilities: probabilities of the spans, [N].
        """
        graph = self._graph
        zero, one = graph.constant(0), graph.constant(1)
        firsts = graph.add("Gather", spans, zero, axis=1)
        is_found = graph.add("GreaterOrEqual", firsts, zero)  # [N]
        # A probability of 0 is higher than no answer, which is higher than no window.
        rated = graph.add("Where", is_found, probabilities, -1.0)
        rated = self._by_input(rated, -2.0)  # [B, K]
        best = graph.add("ArgMax", rated, axis=1, keepdims=0)
        most = graph.add("ReduceMax", rated, [1], keepdims=0)
        least = self._by_input(probabilities, _CERTAIN + 1)
        least = graph.add("ReduceMin", least, [1], keepdims=0)
        has_one = graph.add("GreaterOrEqual", most, 0.0)  # [B]
        # Windows are ordered by input, so the best one's index follows from the counts before it.
        counts = graph.add("ReduceSum", graph.integers(self._there), [1], keepdims=0)
        before = graph.add("CumSum", counts, zero, exclusive=1)
        window = graph.add("Add", before, best)
        start = graph.add("Gather", self._starts, window)
        words = graph.add("Add", graph.add("Gather", spans, window), upright(graph, start))
        first, last = (graph.add("Gather", words, number, axis=1) for number in (zero, one))
        texts, places = self._strings_of(first, last, has_one)
        return Answers(texts, places, graph.add("Where", has_one, most, least))

    def _by_input(self, values: str, filler: float) -> str:
        """Returns the values of windows by input, padded with `filler`.  [N] -> [B, K]."""
        graph = self._graph
        full = graph.add("Expand", graph.constant(filler), graph.add("Shape", self._there))
        return graph.add("ScatterND", full, self._places, values)

    def _strings_of(self, first: str, last: str, has_one: str) -> tuple[str, str]:
        """Returns texts [B] and spans [B, 2] of the words from first to last, if there are any."""
        graph = self._graph
        letters = at_least_one(graph, characters_of(graph, self._texts), "")  # [B, L]
        inside = graph.add("Unsqueeze", has_one, [1])
        number = _word_numbers(graph, letters)
        for bound, is_within in ((first, "GreaterOrEqual"), (last, "LessOrEqual")):
            within = graph.add(is_within, number, upright(graph, bound))
            inside = graph.add("And", inside, within)
        # Spaces have the index of the word before them: trailing ones are not part of an answer.
        inside = graph.add(
            "And", inside, graph.add("Not", blank_mask(graph, letters, whitespace()))
        )
        each = graph.integers(inside)
        start = graph.add("ArgMax", each, axis=1, keepdims=0)
        end = graph.add("ArgMax", each, axis=1, keepdims=0, select_last_index=1)
        width = graph.add("Squeeze", graph.add("Shape", letters, start=1, end=2))
        places = graph.add("Range", 0, width, 1)
        mask = graph.add("Unsqueeze", has_one, [1])
        for bound, is_within in ((start, "GreaterOrEqual"), (end, "LessOrEqual")):
            within = graph.add(is_within, places, upright(graph, bound))
            mask = graph.add("And", mask, within)
        texts = joined(graph, graph.add("Where", mask, letters, [""]))
        end = graph.add("Add", end, 1)
        spans = graph.add("Concat", upright(graph, start), upright(graph, end), axis=1)
        has_one = graph.add("Unsqueeze", has_one, [1])
        return texts, graph.add("Where", has_one, spans, -1)


def _word_numbers(graph: Graph, letters: str) -> str:
    """Returns the index, from 0, of the word that contains or precedes each character.  [B, L].

    Words are those of `token_pattern`: a combining mark joins the character before it unless that
    is a space or sign, and a letter joins the letter or mark before it unless the marks belong to
    an ideograph.
    """
    kinds = graph.add(
        "Where", blank_mask(graph, letters, whitespace()), *map(graph.constant, (_SPACE, _OTHER))
    )
    for kind, expression in (
        (_WORD, rf"[^\W{IDEOGRAPHS}]"),
        (_MARK, f"[{marks()}]"),
        (_IDEOGRAPH, f"[{IDEOGRAPHS}]"),
    ):
        matches = graph.add("RegexFullMatch", letters, pattern=re2(expression))
        kinds = graph.add("Where", matches, graph.constant(kind), kinds)

    def is_kind(values: str, *of: int) -> str:
        equal = graph.add("Equal", values, graph.constant(of[0]))
        for kind in of[1:]:
            equal = graph.add("Or", equal, graph.add("Equal", values, graph.constant(kind)))
        return equal

    before, _ = beside(graph, kinds, _SPACE)
    marked, _ = beside(graph, _last_unmarked(graph, kinds), _SPACE)
    in_word = graph.add("Not", is_kind(marked, _IDEOGRAPH))
    in_word = graph.add("And", is_kind(before, _MARK), in_word)
    in_word = graph.add("Or", in_word, is_kind(before, _WORD))
    goes_on = graph.add("And", is_kind(kinds, _WORD), in_word)
    marked = graph.add("And", is_kind(kinds, _MARK), is_kind(before, _IDEOGRAPH, _WORD, _MARK))
    goes_on = graph.add("Or", goes_on, graph.add("Or", marked, is_kind(kinds, _SPACE)))
    number = graph.add("CumSum", graph.integers(graph.add("Not", goes_on)), 1)
    return graph.add("Sub", number, 1)


def _last_unmarked(graph: Graph, kinds: str) -> str:
    """Returns the kind of the last character up to each that is not a mark.  [B, L].

    At the start of a text it is the kind of a space.
    """
    plain = graph.add("Not", graph.add("Equal", kinds, _MARK))
    begin = graph.add("And", is_first(graph, kinds), graph.add("Not", plain))
    kinds = graph.add("Where", begin, _SPACE, kinds)
    plain = graph.add("Or", plain, begin)
    flat = graph.add("Reshape", kinds, [-1])
    plain = graph.add("Reshape", plain, [-1])
    place = graph.add("CumSum", graph.integers(plain), 0)  # from 1
    place = graph.add("Sub", place, 1)
    last = graph.add("Gather", graph.add("Compress", flat, plain, axis=0), place)
    return graph.add("Reshape", last, graph.add("Shape", kinds))


def span_targets(features: Features) -> list[str]:
    """Returns the names of the targets that are parts of a text."""
    targets = features.targets.items()
    return [name for name, one in targets if one.output_spec(name, features).kind == "span"]


def add_answers(
    graph: Graph,
    features: Features,
    outputs: Outputs,
    windows: ContextWindows | None = None,
) -> None:
    """Adds the outputs of a graph.

    They are "t" for each target t, and "t_probability" and "t_scores" if present.  A class or a
    choice is a string, [B]; tags are strings, [B, W], padded with ""; sets of labels are bool,
    [B, C]; numbers and distributions are float32, [B, n].  A text span is a string, [B], "" for
    none; "t_span" is its start and end (exclusive) in characters, int64 [B, 2], (-1, -1) for none.

    Args:
      graph: graph with the network.
      features: features of the problem.
      outputs: outputs of the network by name; see `network.export_network`.
      windows: windows of a text that is split into several.

    Raises:
      ExportError: a target has a kind that is not supported in a graph.
    """
    spans = span_targets(features) if windows is not None else []
    for name, feature in features.targets.items():
        if windows is not None and name in spans:
            probability = _float(graph, outputs[f"{name}.probability"])
            part = windows.answers(outputs[f"{name}.numbers"], probability)
            graph.output(name, part.texts, "string", [BATCH])
            graph.output(f"{name}_span", part.spans, "int64", [BATCH, 2])
            graph.output(f"{name}_probability", part.probabilities, "float32", [BATCH])
            continue
        value, dtype, axes = decode_graph(feature, name, outputs, graph)
        graph.output(name, value, dtype, [BATCH, *axes])
        if f"{name}.probability" in outputs:
            probability = _float(graph, outputs[f"{name}.probability"])
            graph.output(f"{name}_probability", probability, "float32", [BATCH])
        if f"{name}.scores" in outputs:
            scores = _float(graph, outputs[f"{name}.scores"])
            last = "words" if "words" in axes else None
            graph.output(f"{name}_scores", scores, "float32", [BATCH, last])


@decode_graph.register(ClassLabel)
@decode_graph.register(Choice)
def decode_class(feature: Any, name: str, outputs: Outputs, graph: Graph) -> GraphOutput:
    """Returns the name of the class.  [B] string."""
    only = graph.add("Squeeze", outputs[f"{name}.numbers"], [1])
    return graph.add("Gather", graph.constant(list(feature.labels)), only), "string", ()


@decode_graph.register(MultiLabel)
def decode_multilabel(
    feature: MultiLabel, name: str, outputs: Outputs, graph: Graph
) -> GraphOutput:
    """Returns the mask of predicted classes.  [B, C] bool."""
    return graph.add("Greater", outputs[f"{name}.numbers"], [0]), "bool", (None,)


@decode_graph.register(SoftLabel)
def decode_distribution(
    feature: SoftLabel, name: str, outputs: Outputs, graph: Graph
) -> GraphOutput:
    """Returns the distribution.  [B, C] float32."""
    return outputs[f"{name}.numbers"], "float32", (None,)


@decode_graph.register(Tags)
def decode_tags(feature: Tags, name: str, outputs: Outputs, graph: Graph) -> GraphOutput:
    """Returns the tags, "" at padding.  [B, W] string."""
    tags = graph.add("Gather", graph.constant(list(feature.labels)), outputs[f"{name}.numbers"])
    if mask := outputs.get(f"{name}.mask"):
        tags = graph.add("Where", mask, tags, [""])
    return tags, "string", ("words",)


@decode_graph.register(Real)
def decode_real(feature: Real, name: str, outputs: Outputs, graph: Graph) -> GraphOutput:
    """Returns the numbers as they were before they were standardized.  [B, size] float32."""
    numbers = outputs[f"{name}.numbers"]
    if feature.mean:
        numbers = graph.add("Mul", numbers, graph.constant(list(feature.std), "float32"))
        numbers = graph.add("Add", numbers, graph.constant(list(feature.mean), "float32"))
    return numbers, "float32", (feature.size,)


def _float(graph: Graph, values: str) -> str:
    return graph.add("Cast", values, to=1)
