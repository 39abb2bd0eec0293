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
"""The version of each domain's operators; the last are those of onnxruntime_extensions."""

IR_VERSION = 10  # the first that knows these versions

EXTENSIONS = "ai.onnx.contrib"

Shape: TypeAlias = Sequence[int | str | None]
"""The sizes of a tensor's axes; a name stands for one that varies."""

Input: TypeAlias = str | float | list[Any]
"""A value by its name, or a constant: a number or a list of numbers; see `Graph.constant`."""


class Graph:
    """Operators over named values, all in one graph.

    Values are known by their names, which are made here.  A body of `Loop`, `Scan` or `If` is a
    graph too, made by `body`, and may read the values of the one that it stands in.

    Args:
      name: of the graph.

    Attributes:
      nodes: the operators, in the order of computation.
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
        """Whether an operator is one of onnxruntime_extensions."""
        return EXTENSIONS in set(_domains(self.nodes))

    def input(self, name: str, dtype: str | int, shape: Shape) -> str:
        """Adds an input and returns its value.

        Args:
          name: of the input; in a body only the beginning of it.
          dtype: "string", "int64", "float32", "bool" and the like, or ONNX's number of it.
          shape: of the tensor.
        """
        name = name if self._root is self else self._value(name)
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def optional(self, name: str, default: Any) -> str:
        """Adds an input that need not be given, and returns its value.

        Args:
          name: of the input.
          default: what it is where it is not given: a bool or a number.
        """
        array = np.asarray(default)
        self._inputs.append(_value_info(name, str(array.dtype), array.shape))
        self._defaults.append(_tensor(array, name))
        return name

    def output(self, name: str, value: str, dtype: str | int, shape: Shape) -> None:
        """Makes a value an output.

        Args:
          name: of the output, as in `input`.
          value: what is put out.
          dtype: as in `input`.
          shape: of the tensor.
        """
        name = name if self._root is self else self._value(name)
        self.nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(_value_info(name, dtype, shape))

    def add(self, op: str, *inputs: Input, domain: str = "", **attributes: Any) -> str:
        """Adds an operator and returns the value that it computes.

        Args:
          op: its name.
          inputs: values, or constant numbers; an empty name is an input that is left out.
          domain: of the operator, one of `OPSETS`.
          attributes: of the operator; a `Graph` among them is a body; "name" names the operator,
            as errors of onnxruntime do.
        """
        return self.several(1, op, *inputs, domain=domain, **attributes)[0]

    def several(
        self, count: int, op: str, *inputs: Input, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Adds an operator and returns the `count` values that it computes; else as `add`."""
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
        """Returns a value that never changes; the same one for the same content.

        Args:
          value: an array, a number, a string or a list of them; an array of objects may hold
            strings as bytes, also those that are no UTF-8.
          dtype: of the numbers; None takes int64 for integers and float32 for floats.
        """
        array = np.asarray(value)
        if array.dtype.kind == "U":
            array = np.array(value, object)  # else NULs at the end are lost
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
        """Returns a graph for a body, whose names differ from those here; see `add`."""
        body = Graph(self._value(name))
        body._root = self._root
        return body

    def require(self, condition: str, message: str, value: str) -> str:
        """Returns a value as it is; the graph fails where a condition does not hold.

        Args:
          condition: a single bool.
          message: the name of the operator that fails, which onnxruntime's error tells.
          value: what is computed only if the condition holds; it has one axis at least.
        """
        index = self.integers(self.add("Not", condition))
        index = self.add("Reshape", index, self.constant([1]))
        start = self.add("Gather", self.constant([0]), index, name=message)
        end = self.constant([np.iinfo(np.int64).max])
        return self.add("Slice", value, start, end)

    def inline(self, model: onnx.ModelProto, feeds: Mapping[str, str]) -> dict[str, str]:
        """Adds a whole model and returns its outputs by name.

        Args:
          model: of the same versions of operators; its functions are written out.
          feeds: for each of its inputs, the value that it is given.

        Raises:
          ExportError: an input is given no value, or a version is another.
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
        """Returns the value of a model's tensor; of two models that share weights the same one."""
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.ClearField("name")
        content = hashlib.sha256(copy.SerializeToString(deterministic=True)).digest()
        if content not in self._weights:
            copy.name = self._value(tensor.name)
            self._weights[content] = copy
        return self._weights[content].name

    def proto(self) -> onnx.GraphProto:
        """Returns the graph, with those of its constants that something reads."""
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
        """Returns the graph as a model that onnx's checker finds no fault with."""
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
    """Yields the graphs among a node's attributes."""
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


def _renamed(node: onnx.NodeProto, renamed: Callable[[str], str]) -> onnx.NodeProto:
    """Returns a node with other names of values, also in its bodies."""
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


# Numbers in a line in a graph: what stands beside each, and where the nearest of a kind is.


def shifted(graph: Graph, line: str, by: int, padding: int) -> str:
    """Returns for each place what stands `by` places on, or back if it is negative.

    Args:
      graph: that the operators are added to.
      line: [N] int64.
      by: how far; not 0.
      padding: what stands beyond the ends.
    """
    pads = graph.constant([max(-by, 0), max(by, 0)])
    longer = graph.add("Pad", line, pads, graph.constant(padding))
    start, end = max(by, 0), min(by, 0) or _END
    return graph.add("Slice", longer, [start], [end])


def places(graph: Graph, line: str) -> str:
    """Returns 0, 1, 2 and so on: as many as a line, [N], is long.  [N] int64."""
    count = graph.add("Squeeze", graph.add("Shape", line))
    return graph.add("Range", 0, count, 1)


def latest(graph: Graph, flags: str) -> str:
    """Returns for each place the nearest that is true, itself or one before it, or -1.

    Args:
      graph: that the operators are added to.
      flags: [N] bool.
    """
    found = graph.add("Concat", [-1], _true_places(graph, flags), axis=0)
    return graph.add("Gather", found, _count(graph, flags))


def following(graph: Graph, flags: str) -> str:
    """Returns for each place the nearest one after it that is true, or N.

    Args:
      graph: that the operators are added to.
      flags: [N] bool.
    """
    beyond = graph.add("Shape", flags)
    found = graph.add("Concat", _true_places(graph, flags), beyond, axis=0)
    return graph.add("Gather", found, _count(graph, flags))


def before_each(graph: Graph, counts: str) -> str:
    """Returns the sum of what stands before each place, and behind the last that of all.

    Args:
      graph: that the operators are added to.
      counts: [N] int64.

    Returns:
      [N + 1] int64.
    """
    longer = graph.add("Pad", counts, [1, 0], 0)
    return graph.add("CumSum", longer, 0)


_END = 2**63 - 1


def _true_places(graph: Graph, flags: str) -> str:
    return graph.add("Squeeze", graph.add("NonZero", flags), [0])


def _count(graph: Graph, flags: str) -> str:
    """Returns how many places up to each are true.  [N] int64."""
    return graph.add("CumSum", graph.integers(flags), 0)
