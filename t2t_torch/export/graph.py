"""An ONNX graph under construction."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, inliner, numpy_helper

from t2t_torch.errors import ExportError

OPSETS: dict[str, int] = {
    "": 20,
    "ai.onnx.ml": 4,
    "com.microsoft": 1,
    "ai.onnx.contrib": 1,
}
"""Opset version of each domain; the last domain is that of onnxruntime_extensions."""

IR_VERSION = 10  # the first that supports these versions

EXTENSIONS = "ai.onnx.contrib"

Shape: TypeAlias = Sequence[int | str | None]
"""Sizes of a tensor's axes; a name denotes a dynamic size."""

Input: TypeAlias = str | float | list[Any]
"""Name of a value, or a constant: a number or a list of numbers; see `Graph.constant`."""


class Graph:
    """Builder of an ONNX graph.

    Values are represented by their generated names.  The body of a `Loop`, `Scan` or `If` is also a
    `Graph`, created by `body`, and can use the values of the enclosing graph.

    Args:
      name: name of the graph.

    Attributes:
      nodes: operators in the order of computation.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._defaults: list[onnx.TensorProto] = []
        self._constants: dict[Any, onnx.TensorProto] = {}
        self._weights: dict[bytes, onnx.TensorProto] = {}
        self._numbers = itertools.count()
        self._root = self

    @property
    def needs_extensions(self) -> bool:
        """True if the graph has operators of onnxruntime_extensions."""
        return EXTENSIONS in set(_domains(self.nodes))

    def input(self, name: str, dtype: str | int, shape: Shape) -> str:
        """Adds an input and returns its value.

        Args:
          name: name of the input; in a body the prefix of the name.
          dtype: "string", "int64", "float32", "bool" etc., or ONNX's number of the dtype.
          shape: shape of the tensor.
        """
        name = name if self._root is self else self._value(name)
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def optional(self, name: str, default: Any, shape: Shape | None = None) -> str:
        """Adds an optional input and returns its value.

        Args:
          name: name of the input.
          default: default value: a bool or a number, or a list of them.
          shape: shape of the tensor; None: that of the default.
        """
        array = np.asarray(default)
        shape = array.shape if shape is None else shape
        self._inputs.append(_value_info(name, str(array.dtype), shape))
        self._defaults.append(_tensor(array, name))
        return name

    def output(self, name: str, value: str, dtype: str | int, shape: Shape) -> None:
        """Makes a value an output.

        Args:
          name: name of the output, see `input`.
          value: value of the output.
          dtype: dtype, see `input`.
          shape: shape of the tensor.
        """
        name = name if self._root is self else self._value(name)
        self.nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(_value_info(name, dtype, shape))

    def add(self, op: str, *inputs: Input, domain: str = "", **attributes: Any) -> str:
        """Adds an operator and returns its output.

        Args:
          op: name of the operator.
          inputs: values or constants; an empty name omits an input.
          domain: domain of the operator, one of `OPSETS`.
          attributes: attributes of the operator; a `Graph` is a body; "name" is the name of the
            node in onnxruntime's errors.
        """
        return self.several(1, op, *inputs, domain=domain, **attributes)[0]

    def several(
        self, count: int, op: str, *inputs: Input, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Adds an operator and returns its `count` outputs; see `add`."""
        name = attributes.pop("name", None)
        values = tuple(self._value(op) for _ in range(count))
        given = {
            key: value.proto() if isinstance(value, Graph) else value
            for key, value in attributes.items()
        }
        name = name or values[0]
        named = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        self.nodes.append(helper.make_node(op, named, values, name=name, domain=domain, **given))
        return values

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """Returns a constant; equal content returns the same value.

        Args:
          value: an array, a number, a string or a list of them; an array of objects may hold
            strings as bytes, also invalid UTF-8.
          dtype: dtype of numbers; None for int64 of integers and float32 of floats.
        """
        array = np.asarray(value)
        if array.dtype.kind == "U":
            array = np.array(value, object)  # keeps trailing NULs
        elif dtype is None and not isinstance(value, np.ndarray):
            dtype = {"i": "int64", "f": "float32"}.get(array.dtype.kind)
        if dtype is not None:
            array = array.astype(dtype)
        root = self._root
        content = tuple(array.flat) if array.dtype == object else array.tobytes()
        key = (str(array.dtype), array.shape, content)
        if key not in root._constants:
            root._constants[key] = _tensor(array, root._value("constant"))
        return root._constants[key].name

    def integers(self, value: str) -> str:
        """Returns numbers or bools as int64."""
        return self.add("Cast", value, to=_kind("int64"))

    def body(self, name: str) -> Graph:
        """Returns a graph for a body, with names distinct from those of this graph; see `add`."""
        body = Graph(self._value(name))
        body._root = self._root
        return body

    def require(self, condition: str, message: str, value: str) -> str:
        """Returns a value unchanged; the graph fails if a condition is false.

        Args:
          condition: a single bool.
          message: name of the failing operator, which appears in onnxruntime's error.
          value: value with at least one axis, computed only if the condition is true.
        """
        index = self.integers(self.add("Not", condition))
        index = self.add("Reshape", index, self.constant([1]))
        start = self.add("Gather", self.constant([0]), index, name=message)
        end = self.constant([np.iinfo(np.int64).max])
        return self.add("Slice", value, start, end)

    def inline(self, model: onnx.ModelProto, feeds: Mapping[str, str]) -> dict[str, str]:
        """Adds a whole model and returns its outputs by name.

        Args:
          model: model with the same opset versions; its functions are inlined.
          feeds: values by input of the model.

        Raises:
          ExportError: an input has no value, or an opset version differs.
        """
        if model.functions:
            model = inliner.inline_local_functions(model)
        for opset in model.opset_import:
            if OPSETS.get(opset.domain) != opset.version and _uses(model.graph, opset.domain):
                raise ExportError(
                    f"the model has version {opset.version} of the operators {opset.domain!r}, "
                    f"where {OPSETS.get(opset.domain)} was expected. Export it with that version."
                )
        fixed = {tensor.name for tensor in model.graph.initializer}
        missing = {one.name for one in model.graph.input} - fixed - feeds.keys()
        if missing:
            raise ExportError(f"the model is given no {', '.join(sorted(missing))}.")
        names = dict(feeds)

        def renamed(name: str) -> str:
            if name and name not in names:
                names[name] = self._value(name)
            return names.get(name, "")

        for tensor in model.graph.initializer:
            names[tensor.name] = self._root._initializer(tensor)
        self.nodes += [_renamed(node, renamed) for node in model.graph.node]
        return {one.name: renamed(one.name) for one in model.graph.output}

    def _initializer(self, tensor: onnx.TensorProto) -> str:
        """Returns the value of a model's weight; models that share weights share the value."""
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.ClearField("name")
        content = hashlib.sha256(copy.SerializeToString(deterministic=True)).digest()
        if content not in self._weights:
            copy.name = self._value(tensor.name)
            self._weights[content] = copy
        return self._weights[content].name

    def proto(self) -> onnx.GraphProto:
        """Returns the graph with the constants that are used."""
        tensors = [*self._constants.values(), *self._weights.values()]
        read = set(_reads(self.nodes))
        return helper.make_graph(
            self.nodes,
            self.name,
            self._inputs,
            self._outputs,
            [*self._defaults, *(tensor for tensor in tensors if tensor.name in read)],
        )

    def model(self) -> onnx.ModelProto:
        """Returns the graph as a model, validated by onnx's checker."""
        domains = {"", *_domains(self.nodes)}
        model = helper.make_model(
            self.proto(),
            opset_imports=[helper.make_opsetid(d, v) for d, v in OPSETS.items() if d in domains],
            ir_version=IR_VERSION,
            producer_name="t2t_torch",
        )
        onnx.checker.check_model(model)
        return model

    def _value(self, name: str) -> str:
        return f"{name}.{next(self._root._numbers)}"


def _value_info(name: str, dtype: str | int, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _kind(dtype), list(shape))


def _kind(dtype: str | int) -> int:
    """Returns ONNX's number of a dtype."""
    if isinstance(dtype, int):
        return dtype
    kind = object if dtype == "string" else dtype
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def _tensor(array: npt.NDArray[Any], name: str) -> onnx.TensorProto:
    if array.dtype != object:
        return numpy_helper.from_array(array, name)
    strings = onnx.TensorProto(name=name, data_type=onnx.TensorProto.STRING, dims=array.shape)
    raw = (one if isinstance(one, bytes) else str(one).encode() for one in array.flat)
    strings.string_data.extend(raw)
    return strings


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yields the graph attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _domains(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield node.domain
        for body in _bodies(node):
            yield from _domains(body.node)


def _uses(graph: onnx.GraphProto, domain: str) -> bool:
    return domain in set(_domains(graph.node))


def _reads(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield from node.input
        for body in _bodies(node):
            yield from _reads(body.node)
            yield from (one.name for one in body.output)


def remove_metadata(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Removes stack traces and the like, which hold paths of this machine and differ by caller."""
    values: list[Any] = [*getattr(graph, "input", ()), *graph.value_info, *graph.node, graph]
    for one in values:
        if isinstance(one, str):  # an input of a function
            continue
        one.ClearField("metadata_props")
        one.ClearField("doc_string")
    for node in graph.node:
        for body in _bodies(node):
            remove_metadata(body)


def _renamed(node: onnx.NodeProto, renamed: Callable[[str], str]) -> onnx.NodeProto:
    """Returns a node with renamed values, also in its bodies."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [renamed(name) for name in node.input]
    copy.output[:] = [renamed(name) for name in node.output]
    copy.name = renamed(node.name) if node.name else copy.output[0]
    for body in _bodies(copy):
        for one in (*body.input, *body.output, *body.initializer, *body.value_info):
            one.name = renamed(one.name)
        nodes = [_renamed(inner, renamed) for inner in body.node]
        del body.node[:]
        body.node.extend(nodes)
    return copy


def shifted(graph: Graph, line: str, by: int, padding: int) -> str:
    """Returns a tensor shifted by `by` positions: element i is element i + by of `line`.

    Args:
      graph: graph to which operators are added.
      line: [N] int64.
      by: shift, positive or negative; not 0.
      padding: value beyond the ends.
    """
    pads = graph.constant([max(-by, 0), max(by, 0)])
    longer = graph.add("Pad", line, pads, graph.constant(padding))
    start, end = max(by, 0), min(by, 0) or _END
    return graph.add("Slice", longer, [start], [end])


def places(graph: Graph, line: str) -> str:
    """Returns the indices 0, 1, 2 etc. of a tensor [N].  [N] int64."""
    count = graph.add("Squeeze", graph.add("Shape", line))
    return graph.add("Range", 0, count, 1)


def latest(graph: Graph, flags: str) -> str:
    """Returns for each position the nearest true position at or before it, or -1.

    Args:
      graph: graph to which operators are added.
      flags: [N] bool.
    """
    places = graph.add("Concat", [-1], _true_places(graph, flags), axis=0)
    return graph.add("Gather", places, _count(graph, flags))


def following(graph: Graph, flags: str) -> str:
    """Returns for each position the nearest true position after it, or N.

    Args:
      graph: graph to which operators are added.
      flags: [N] bool.
    """
    beyond = graph.add("Shape", flags)
    places = graph.add("Concat", _true_places(graph, flags), beyond, axis=0)
    return graph.add("Gather", places, _count(graph, flags))


def before_each(graph: Graph, counts: str) -> str:
    """Returns the exclusive cumulative sum, followed by the total.

    Args:
      graph: graph to which operators are added.
      counts: [N] int64.

    Returns:
      [N + 1] int64.
    """
    longer = graph.add("Pad", counts, [1, 0], 0)
    return graph.add("CumSum", longer, 0)


def any_true(graph: Graph, flags: str) -> str:
    """Returns True if any element is true: [N] bool to [] bool."""
    count = graph.add("ReduceSum", graph.integers(flags), keepdims=0)
    return graph.add("Greater", count, 0)


_END = 2**63 - 1


def _true_places(graph: Graph, flags: str) -> str:
    return graph.add("Squeeze", graph.add("NonZero", flags), [0])


def _count(graph: Graph, flags: str) -> str:
    """Returns the number of true positions up to and including each.  [N] int64."""
    return graph.add("CumSum", graph.integers(flags), 0)
