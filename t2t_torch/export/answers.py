"""Outputs of a graph with readable values: labels, tags, texts."""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

from t2t_torch.errors import ExportError
from t2t_torch.export import GraphOutput, Outputs, decode_graph, strings
from t2t_torch.export.graph import Graph, Proxy, arange, combine, take, where
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

    texts: Proxy
    spans: Proxy
    probabilities: Proxy


def windows_of(graph: Graph, problem: Problem) -> ContextWindows | None:
    """Returns the windows of a problem that splits its texts into windows, otherwise None.

    Args:
      graph: graph to which inputs and operators are added.
      problem: the problem.

    Raises:
      ExportError: the problem computes inputs or answers in Python.
    """
    base: Any = SpanQAProblem if isinstance(problem, SpanQAProblem) else Problem
    for name, what in (("inputs_of", "inputs of a sample"), ("answer_of", "answers")):
        if getattr(type(problem), name) is not getattr(base, name):
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
        expression = strings.re2(token_pattern().pattern)
        texts = {name: graph.input(name, "string", [BATCH]) for name in (_QUESTION, _CONTEXT)}
        self._texts = texts[_CONTEXT]
        question, context = (
            strings.at_least_one(strings.tokens(text, tokenexp=expression), "")
            for text in texts.values()
        )
        counts = strings.count_of(context)
        is_nonempty = strings.count_of(question).Min(counts).ReduceMin(keepdims=0) > 0
        message = "a question or a context without a word"
        beyond = (graph.require(is_nonempty, message, counts) - problem.max_context).Max(0)
        stride = problem.context_stride
        count = (beyond + (stride - 1)) / stride + 1  # [B]
        self._there = arange(count.ReduceMax(keepdims=0)) < strings.upright(count)  # [B, K]
        places = self._there.NonZero()  # [2, N], row by row
        self._places = places.Transpose()
        self.rows = places[0]
        self._starts = places[1] * stride
        question = self._cut(question, self._starts * 0, question.size(1).Squeeze())
        context = self._cut(context, self._starts, graph.constant(problem.max_context))
        self.fields = {
            _QUESTION: strings.FieldText(words=question),
            _CONTEXT: strings.FieldText(words=context),
        }

    def _cut(self, words: Proxy, starts: Proxy, size: Proxy) -> Proxy:
        """Returns at most `size` words of each window's input from `starts` on.  [N, W] string.

        They are gathered one by one: onnxruntime's Gather copies only the first string of a row.
        """
        width = words.size(1).Squeeze()
        place = strings.upright(starts) + arange(width.Min(size))  # [N, W]
        inside = place < width
        values = words.Reshape([-1])[where(inside, strings.upright(self.rows) * width + place, 0)]
        return where(inside, values, "")

    def of_each(self, values: Proxy) -> Proxy:
        """Returns the values of each window's input.  [B, ...] -> [N, ...]."""
        return values[self.rows]

    def answers(self, spans: Proxy, probabilities: Proxy) -> Answers:
        """Returns the most probable answer of all windows: `SpanQAProblem.answer_of`.

        Args:
          spans: first and last word in the window, -1 for no answer, [N, 2] int64.
          probabilities: probabilities of the spans, [N].
        """
        is_found = spans.Gather(0, axis=1) >= 0  # [N]
        # A probability of 0 is higher than no answer, which is higher than no window.
        rated = self._by_input(where(is_found, probabilities, -1.0), -2.0)  # [B, K]
        best = rated.ArgMax(axis=1, keepdims=0)
        most = rated.ReduceMax([1], keepdims=0)
        least = self._by_input(probabilities, _CERTAIN + 1).ReduceMin([1], keepdims=0)
        has_one = most >= 0.0  # [B]
        # Windows are ordered by input, so the best one's index follows from the counts before it.
        window = self._there.integers().sum(1).CumSum(0, exclusive=1) + best
        words = spans[window] + strings.upright(self._starts[window])
        first, last = (words.Gather(number, axis=1) for number in (0, 1))
        texts, places = self._strings_of(first, last, has_one)
        return Answers(texts, places, where(has_one, most, least))

    def _by_input(self, values: Proxy, filler: float) -> Proxy:
        """Returns the values of windows by input, padded with `filler`.  [N] -> [B, K]."""
        return combine("Expand", filler, self._there.Shape()).ScatterND(self._places, values)

    def _strings_of(self, first: Proxy, last: Proxy, has_one: Proxy) -> tuple[Proxy, Proxy]:
        """Returns texts [B] and spans [B, 2] of the words from first to last, if there are any."""
        letters = strings.at_least_one(strings.characters_of(self._texts), "")  # [B, L]
        has_one, number = strings.upright(has_one), _word_numbers(letters)
        inside = has_one & (number >= strings.upright(first)) & (number <= strings.upright(last))
        # Spaces have the index of the word before them: trailing ones are not part of an answer.
        each = (inside & ~strings.blank_mask(letters, strings.whitespace())).integers()
        start, end = each.ArgMax(axis=1), each.ArgMax(axis=1, select_last_index=1)  # [B, 1]
        places = arange(letters.size(1))
        mask = has_one & (places >= start) & (places <= end)
        spans = where(has_one, start.Concat(end + 1, axis=1), -1)
        return strings.joined(where(mask, letters, "")), spans


def _word_numbers(letters: Proxy) -> Proxy:
    """Returns the index, from 0, of the word that contains or precedes each character.  [B, L].

    Words are those of `token_pattern`: a combining mark joins the character before it unless that
    is a space or sign, and a letter joins the letter or mark before it unless the marks belong to
    an ideograph.
    """
    kinds = where(strings.blank_mask(letters, strings.whitespace()), _SPACE, _OTHER)
    for kind, expression in (
        (_WORD, rf"[^\W{IDEOGRAPHS}]"),
        (_MARK, f"[{marks()}]"),
        (_IDEOGRAPH, f"[{IDEOGRAPHS}]"),
    ):
        kinds = where(letters.RegexFullMatch(pattern=strings.re2(expression)), kind, kinds)

    def is_kind(values: Proxy, *of: int) -> Proxy:
        return functools.reduce(operator.or_, [values == kind for kind in of])

    before, _ = strings.beside(kinds, _SPACE)
    marked, _ = strings.beside(_last_unmarked(kinds), _SPACE)
    in_word = is_kind(before, _MARK) & ~is_kind(marked, _IDEOGRAPH) | is_kind(before, _WORD)
    marked = is_kind(kinds, _MARK) & is_kind(before, _IDEOGRAPH, _WORD, _MARK)
    goes_on = is_kind(kinds, _WORD) & in_word | marked | is_kind(kinds, _SPACE)
    return (~goes_on).integers().CumSum(1) - 1


def _last_unmarked(kinds: Proxy) -> Proxy:
    """Returns the kind of the last character up to each that is not a mark.  [B, L].

    At the start of a text it is the kind of a space.
    """
    plain = kinds != _MARK
    begin = strings.is_first(kinds) & ~plain
    kinds = where(begin, _SPACE, kinds)
    plain = (plain | begin).Reshape([-1])
    place = plain.integers().CumSum(0)  # from 1
    return kinds.Reshape([-1]).Compress(plain, axis=0)[place - 1].Reshape(kinds.Shape())


def span_targets(features: Features) -> list[str]:
    """Returns the names of the targets that are parts of a text."""
    targets = features.targets.items()
    return [name for name, one in targets if one.output_spec(name, features).kind == "span"]


def add_answers(
    graph: Graph, features: Features, outputs: Outputs, windows: ContextWindows | None = None
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
            probability = _float(outputs[f"{name}.probability"])
            part = windows.answers(outputs[f"{name}.numbers"], probability)
            graph.output(name, part.texts, "string", [BATCH])
            graph.output(f"{name}_span", part.spans, "int64", [BATCH, 2])
            graph.output(f"{name}_probability", part.probabilities, "float32", [BATCH])
            continue
        value, dtype, axes = decode_graph(feature, name, outputs, graph)
        graph.output(name, value, dtype, [BATCH, *axes])
        if f"{name}.probability" in outputs:
            probability = _float(outputs[f"{name}.probability"])
            graph.output(f"{name}_probability", probability, "float32", [BATCH])
        if f"{name}.scores" in outputs:
            scores = _float(outputs[f"{name}.scores"])
            last = "words" if "words" in axes else None
            graph.output(f"{name}_scores", scores, "float32", [BATCH, last])


@decode_graph.register(ClassLabel)
@decode_graph.register(Choice)
def decode_class(feature: Any, name: str, outputs: Outputs, graph: Graph) -> GraphOutput:
    """Returns the name of the class.  [B] string."""
    return take(list(feature.labels), outputs[f"{name}.numbers"].Squeeze([1])), "string", ()


@decode_graph.register(MultiLabel)
def decode_multilabel(
    feature: MultiLabel, name: str, outputs: Outputs, graph: Graph
) -> GraphOutput:
    """Returns the mask of predicted classes.  [B, C] bool."""
    return outputs[f"{name}.numbers"] > [0], "bool", (None,)


@decode_graph.register(SoftLabel)
def decode_distribution(
    feature: SoftLabel, name: str, outputs: Outputs, graph: Graph
) -> GraphOutput:
    """Returns the distribution.  [B, C] float32."""
    return outputs[f"{name}.numbers"], "float32", (None,)


@decode_graph.register(Tags)
def decode_tags(feature: Tags, name: str, outputs: Outputs, graph: Graph) -> GraphOutput:
    """Returns the tags, "" at padding.  [B, W] string."""
    tags = take(list(feature.labels), outputs[f"{name}.numbers"])
    if f"{name}.mask" in outputs:
        tags = where(outputs[f"{name}.mask"], tags, "")
    return tags, "string", ("words",)


@decode_graph.register(Real)
def decode_real(feature: Real, name: str, outputs: Outputs, graph: Graph) -> GraphOutput:
    """Returns the numbers as they were before they were standardized.  [B, size] float32."""
    numbers = outputs[f"{name}.numbers"]
    if feature.mean:
        numbers = numbers * graph.constant(list(feature.std), "float32")
        numbers = numbers + graph.constant(list(feature.mean), "float32")
    return numbers, "float32", (feature.size,)


def _float(values: Proxy) -> Proxy:
    return values.Cast(to=1)
