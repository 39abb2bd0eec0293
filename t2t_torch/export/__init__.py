"""Export of trained models, for example to one ONNX graph from strings to named predictions.

What a graph does with a kind of feature or encoder is registered for its class:

    @encode_graph.register(Date)
    def encode_date(feature: Date, name: str, inputs: InputGraph) -> Proxy: ...

`encode_graph` and `decode_graph` dispatch on features, `encoder_graph` and `decode_ids` on text
encoders.  Importing this package imports neither torch nor onnx, so the file of a problem can
register its own kinds; docs/how_to/add_a_feature.md shows how.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from t2t_torch.errors import ExportError

if TYPE_CHECKING:
    from t2t_torch.export.graph import Graph, Proxy
    from t2t_torch.export.strings import EncoderGraph
    from t2t_torch.export.text_graph import InputGraph
    from t2t_torch.features import Feature
    from t2t_torch.text.encoder import TextEncoder

Outputs: TypeAlias = Mapping[str, "Proxy"]
"""Tensors of a network by name: `<target>.numbers`, and `.probability`, `.scores` and `.mask`."""

GraphOutput: TypeAlias = tuple["Proxy", str, Sequence[int | str | None]]
"""A tensor of a graph, its dtype, and its axes after the batch axis."""

_OWN_KIND = (
    "a kind of your own is registered with t2t_torch.export.{} (docs/how_to/add_a_feature.md)"
)


@functools.singledispatch
def encode_graph(feature: Feature, name: str, inputs: InputGraph) -> Proxy:
    """Adds the encoding of an input field to a graph, equal to `Feature.encode`.

    Args:
      feature: the feature.
      name: name of the feature.
      inputs: inputs of the graph and tensors that are computed from them.

    Returns:
      The tensor [batch, *shape] that the model takes.

    Raises:
      ExportError: the encoding is not supported in graphs.
    """
    raise unsupported_input(name, type(feature).__name__)


@functools.singledispatch
def decode_graph(feature: Feature, name: str, outputs: Outputs, graph: Graph) -> GraphOutput:
    """Adds the decoding of a prediction to a graph, equal to `Feature.decode`.

    Args:
      feature: the feature.
      name: name of the target.
      outputs: outputs of the network.
      graph: graph that contains the network.

    Returns:
      The tensor, its dtype, and its axes after the batch axis.

    Raises:
      ExportError: the decoding is not supported in graphs.
    """
    raise ExportError(
        f"target {name!r} is a {type(feature).__name__}, which no artifact can answer with. "
        "Classes, labels, tags, numbers, distributions, choices, and parts of a text in problems "
        "of questions about one (SpanQAProblem) can be exported; "
        f"{_OWN_KIND.format('decode_graph')}."
    )


@functools.singledispatch
def encoder_graph(encoder: TextEncoder, graph: Graph, name: str) -> EncoderGraph:
    """Returns the implementation of a text encoder in a graph.

    Args:
      encoder: the encoder.
      graph: graph to which operators are added.
      name: name of the text, for errors.

    Raises:
      ExportError: a graph does not support the encoder.
    """
    raise unsupported_input(name, f"a text of a {type(encoder).__name__}", "encoder_graph")


@functools.singledispatch
def decode_ids(encoder: TextEncoder, graph: Graph, ids: Proxy) -> Proxy:
    """Adds the decoding of texts to a graph, equal to `TextEncoder.decode`.

    Args:
      encoder: encoder accepted by `encoders.check_decodable`.
      graph: graph to which operators are added.
      ids: ids of which those up to the first `EOS` are decoded, [B, T] int64.

    Returns:
      The texts, [B] string.

    Raises:
      ExportError: a graph does not support the encoder.
    """
    what = "what it can write are subwords, bytes, characters, integers and words"
    raise ExportError(f"{what}; {_OWN_KIND.format('decode_ids')}.")


def has_graph(dispatch: Any, kind: object) -> bool:
    """Returns True if one of the functions above has an implementation for the class of a kind."""
    return dispatch.dispatch(type(kind)) is not dispatch.dispatch(object)


def unsupported_input(name: str, what: str, function: str = "encode_graph") -> ExportError:
    """Returns the error for an input that a graph cannot encode.

    Args:
      name: the feature.
      what: its kind.
      function: the function of this package that an own kind is registered with.
    """
    return ExportError(
        f"the input {name!r} is {what}, which cannot stand in a graph. What can are texts and "
        "words of a vocabulary of words, characters, bytes or subwords; characters, bytes and "
        "shapes of words, and their labels, gazetteer entries and numbers where the words are "
        f"given; numbers and pictures; {_OWN_KIND.format(function)}. Serve this one with PyTorch."
    )
