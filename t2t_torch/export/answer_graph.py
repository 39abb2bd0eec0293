"""Guesses with the names that users know: labels, tags."""

from __future__ import annotations

from collections.abc import Mapping

from t2t_torch.errors import ExportError
from t2t_torch.export.context_windows import ContextWindows
from t2t_torch.export.graph import Graph
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Feature,
    Features,
    MultiLabel,
    Real,
    SoftLabel,
    Span,
    Tags,
)


def add_answers(
    graph: Graph,
    features: Features,
    found: Mapping[str, str],
    windows: ContextWindows | None = None,
) -> None:
    """Makes the outputs of a graph.

    Of each target t: "t", and "t_probability" and "t_scores" where there are some.  A class or a
    choice is a string, [B]; tags are strings, [B, W], empty behind a sentence's words; of several
    labels those that are there are true, [B, C]; numbers and distributions are float32, [B, n].  A
    part of a text is a string, [B], "" where there is none; "t_span" is its first character in the
    text and the one behind its last, int64 [B, 2], -1 twice where there is none.

    Args:
      graph: holds the network.
      features: of the problem.
      found: the network's outputs by name, as `network.export_network` names them.
      windows: of a text that is cut into some, whose answers these are.

    Raises:
      ExportError: a target is of a kind that a graph cannot name yet.
    """
    for name, feature in features.targets.items():
        numbers = found[f"{name}.numbers"]
        if isinstance(feature, Span) and windows is not None:
            part = windows.answers(numbers, _float(graph, found[f"{name}.probability"]))
            graph.output(name, part.texts, "string", ["batch"])
            graph.output(f"{name}_span", part.spans, "int64", ["batch", 2])
            graph.output(f"{name}_probability", part.probabilities, "float32", ["batch"])
            continue
        match feature:
            case ClassLabel() | Choice():
                only = graph.add("Squeeze", numbers, graph.constant([1]))
                graph.output(name, _named(graph, feature, only), "string", ["batch"])
            case MultiLabel():
                there = graph.add("Greater", numbers, graph.constant([0]))
                graph.output(name, there, "bool", ["batch", None])
            case Tags():
                tags = _named(graph, feature, numbers)
                if mask := found.get(f"{name}.mask"):
                    tags = graph.add("Where", mask, tags, graph.constant([""]))
                graph.output(name, tags, "string", ["batch", "words"])
            case Real():
                values = _unscaled(graph, feature, numbers)
                graph.output(name, values, "float32", ["batch", feature.size])
            case SoftLabel():
                graph.output(name, numbers, "float32", ["batch", None])
            case _:
                raise ExportError(
                    f"target {name!r} is a {type(feature).__name__}, which no artifact can answer "
                    "with. Classes, labels, tags, numbers, distributions, choices, and parts of a "
                    "text in problems of questions about one (SpanQAProblem) can be exported."
                )
        if probability := found.get(f"{name}.probability"):
            graph.output(f"{name}_probability", _float(graph, probability), "float32", ["batch"])
        if scores := found.get(f"{name}.scores"):
            axis = "words" if isinstance(feature, Tags) else None
            graph.output(f"{name}_scores", _float(graph, scores), "float32", ["batch", axis])


def labels_of(feature: Feature) -> list[str]:
    """Returns the names of what a target's scores are of, in their order; none of numbers."""
    if isinstance(feature, Choice):
        return list(feature.candidates)
    if isinstance(feature, ClassLabel | MultiLabel | SoftLabel | Tags):
        return list(feature.encoder.labels)
    return []


def _named(graph: Graph, feature: Feature, numbers: str) -> str:
    """Returns the labels of numbers.  [...] int64 -> [...] string."""
    return graph.add("Gather", graph.constant(labels_of(feature)), numbers)


def _unscaled(graph: Graph, feature: Real, numbers: str) -> str:
    """Returns numbers as `Real.decode` does: not standardized any more.  [B, n] float32."""
    if not feature.mean:
        return numbers
    scaled = graph.add("Mul", numbers, graph.constant(list(feature.std), "float32"))
    return graph.add("Add", scaled, graph.constant(list(feature.mean), "float32"))


def _float(graph: Graph, values: str) -> str:
    return graph.add("Cast", values, to=1)
