"""An ONNX graph under construction."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, inliner, numpy_helper

from t2t_torch.errors import ExportError

OPSETS: dict[str, int] = {"": 20, "ai.onnx.ml": 4, "com.microsoft": 1, "ai.onnx.contrib": 1}
"""Opset version of each domain; the last domain is that of onnxruntime_extensions."""

IR_VERSION = 10  # the first that supports these versions

EXTENSIONS = "ai.onnx.contrib"

Shape: TypeAlias = Sequence[int | str | None]
"""Sizes of a tensor's axes; a name denotes a dynamic size."""

_END = 2**63 - 1


def _operator(op: str, *, swapped: bool = False) -> Callable[[Proxy, Any], Proxy]:
    """Returns a method of `Proxy` for an operator of Python."""

    def apply(one: Proxy, other: Any) -> Proxy:
        return combine(op, other, one) if swapped else combine(op, one, other)

    return apply


class Proxy:
    """A value of a graph, with operators that add nodes to it, as those of `torch.fx.Proxy` do.

    Those of Python stand for ONNX's, `x[i]` for `Gather`, `x[i:j]` for `Slice` on the first axis,
    `&`, `|` and `~` for those of masks; all of ONNX's are methods: `x.CumSum(1)`.  Operands may be
    constants, see `Graph.constant`.  A quotient of integers, `x / y`, is truncated as ONNX's.

    Args:
      graph: graph that has the value.
      name: generated name of the value.
    """

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name

    __hash__ = object.__hash__
    __iter__ = __array_ufunc__ = None  # unknown length; an array leaves its operators to this class
    __eq__ = _operator("Equal")  # type: ignore[assignment]
    __lt__ = _operator("Less")
    __le__ = _operator("LessOrEqual")
    __gt__ = _operator("Greater")
    __ge__ = _operator("GreaterOrEqual")
    __and__ = __rand__ = _operator("And")
    __or__ = __ror__ = _operator("Or")
    __add__ = __radd__ = _operator("Add")
    __sub__ = _operator("Sub")
    __rsub__ = _operator("Sub", swapped=True)
    __mul__ = __rmul__ = _operator("Mul")
    __truediv__ = _operator("Div")
    __rtruediv__ = _operator("Div", swapped=True)
    __pow__ = _operator("Pow")
    __mod__ = _operator("Mod")

    def __ne__(self, other: object) -> Proxy:  # type: ignore[override]
        return ~combine("Equal", self, other)

    def __neg__(self) -> Proxy:
        return combine("Neg", self)

    def __invert__(self) -> Proxy:
        return combine("Not", self)

    def __getitem__(self, index: Any) -> Proxy:
        if not isinstance(index, slice):
            return combine("Gather", self, index)
        start = 0 if index.start is None else index.start
        stop = _END if index.stop is None else index.stop
        bounds = (one if isinstance(one, Proxy) else [one] for one in (start, stop))
        return combine("Slice", self, *bounds)

    def __str__(self) -> str:
        return self.name

    def __getattr__(self, op: str) -> Callable[..., Proxy]:
        if not op[0].isupper():
            raise AttributeError(op)
        return functools.partial(combine, op, self)

    def __bool__(self) -> bool:
        raise TypeError(f"{self.name} has no truth value before the graph runs")

    def integers(self) -> Proxy:
        """Returns numbers or bools as int64."""
        return self.Cast(to=onnx.TensorProto.INT64)

    def size(self, axis: int) -> Proxy:
        """Returns the size of an axis.  [1] int64."""
        return self.Shape(start=axis, end=axis + 1)

    def sum(self, *axes: int) -> Proxy:
        """Returns the sum over axes, which are removed; by default over all."""
        return self.ReduceSum(*([list(axes)] if axes else ()), keepdims=0)

    def all(self) -> Proxy:
        """Returns True if all elements of a mask are true.  [] bool."""
        return self.integers().ReduceMin(keepdims=0) == 1


def combine(op: str, *operands: Any, **attributes: Any) -> Proxy:
    """Adds an operator to the innermost graph of its operands and returns its output.

    Args:
      op: name of the operator.
      operands: values, at least one, and constants, see `Graph.constant`.
      attributes: attributes of the operator.
    """
    graphs = (one.graph for one in operands if isinstance(one, Proxy))
    graph = max(graphs, key=lambda graph: graph.depth)
    inputs = (graph.constant(one) if isinstance(one, str) else one for one in operands)
    return graph.add(op, *inputs, **attributes)


where = functools.partial(combine, "Where")
"""Returns the elements of one of two values, by a mask: `where(mask, if_true, if_false)`."""

concat = functools.partial(combine, "Concat")
"""Returns concatenated values: `concat(one, other, axis=1)`."""

take = functools.partial(combine, "Gather")
"""Returns elements of a value, or of a constant, by their indices: `take(table, ids)`."""

Input: TypeAlias = Proxy | str | float | list[Any] | npt.NDArray[Any]
"""A value, its name, or a constant that is no string; see `Graph.constant`."""


class Graph:
    """Builder of an ONNX graph.

    The body of a `Loop`, `Scan` or `If` is also a `Graph`, created by `body`, and can use the
    values of the enclosing graph.

    Args:
      name: name of the graph.

    Attributes:
      nodes: operators in the order of computation.
      depth: number of enclosing graphs.
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
        self.depth = 0

    @property
    def needs_extensions(self) -> bool:
        """True if the graph has operators of onnxruntime_extensions."""
        return any(node.domain == EXTENSIONS for node in _walk(self.nodes))

    def input(self, name: str, dtype: str | int, shape: Shape) -> Proxy:
        """Adds an input and returns its value.

        Args:
          name: name of the input; in a body the prefix of the name.
          dtype: "string", "int64", "float32", "bool" etc., or ONNX's number of the dtype.
          shape: shape of the tensor.
        """
        name = name if self is self._root else self._new_name(name)
        self._inputs.append(_value_info(name, dtype, shape))
        return Proxy(self, name)

    def optional(self, name: str, default: Any, shape: Shape | None = None) -> Proxy:
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
        return Proxy(self, name)

    def output(self, name: str, value: Proxy | str, dtype: str | int, shape: Shape) -> None:
        """Makes a value an output.

        Args:
          name: name of the output, see `input`.
          value: value of the output.
          dtype: dtype, see `input`.
          shape: shape of the tensor.
        """
        name = name if self is self._root else self._new_name(name)
        self.nodes.append(helper.make_node("Identity", [str(value)], [name], name=name))
        self._outputs.append(_value_info(name, dtype, shape))

    def add(self, op: str, *inputs: Input, domain: str = "", **attributes: Any) -> Proxy:
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
    ) -> tuple[Proxy, ...]:
        """Adds an operator and returns its `count` outputs; see `add`."""
        name = attributes.pop("name", None)
        outputs = tuple(Proxy(self, self._new_name(op)) for _ in range(count))
        given = {
            key: value.proto() if isinstance(value, Graph) else value
            for key, value in attributes.items()
        }
        names = [str(one) for one in outputs]
        values = (x if isinstance(x, str | Proxy) else self.constant(x) for x in inputs)
        node = helper.make_node(
            op, list(map(str, values)), names, name=name or names[0], domain=domain, **given
        )
        self.nodes.append(node)
        return outputs

    def constant(self, value: Any, dtype: str | None = None) -> Proxy:
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
            root._constants[key] = _tensor(array, root._new_name("constant"))
        return Proxy(self, root._constants[key].name)

    def body(self, name: str) -> Graph:
        """Returns a graph for a body, with names distinct from those of this graph; see `add`."""
        body = Graph(self._new_name(name))
        body._root, body.depth = self._root, self.depth + 1
        return body

    def require(self, condition: Proxy, message: str, value: Proxy) -> Proxy:
        """Returns a value unchanged; the graph fails if a condition is false.

        Args:
          condition: a single bool.
          message: name of the failing operator, which appears in onnxruntime's error.
          value: value with at least one axis, computed only if the condition is true.
        """
        index = (~condition).integers().Reshape([1])
        return value[self.add("Gather", [0], index, name=message) :]

    def inline(self, model: onnx.ModelProto, feeds: Mapping[str, Proxy | str]) -> dict[str, Proxy]:
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
            is_used = any(node.domain == opset.domain for node in _walk(model.graph.node))
            if OPSETS.get(opset.domain) != opset.version and is_used:
                raise ExportError(
                    f"the model has version {opset.version} of the operators {opset.domain!r}, "
                    f"where {OPSETS.get(opset.domain)} was expected. Export it with that version."
                )
        fixed = {tensor.name for tensor in model.graph.initializer}
        missing = {one.name for one in model.graph.input} - fixed - feeds.keys()
        if missing:
            raise ExportError(f"the model is given no {', '.join(sorted(missing))}.")
        names = {name: str(value) for name, value in feeds.items()}

        def renamed(name: str) -> str:
            if name and name not in names:
                names[name] = self._new_name(name)
            return names.get(name, "")

        for tensor in model.graph.initializer:
            names[tensor.name] = self._root._initializer(tensor)
        self.nodes += [_renamed(node, renamed) for node in model.graph.node]
        return {one.name: Proxy(self, renamed(one.name)) for one in model.graph.output}

    def _initializer(self, tensor: onnx.TensorProto) -> str:
        """Returns the value of a model's weight; models that share weights share the value."""
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.ClearField("name")
        content = hashlib.sha256(copy.SerializeToString(deterministic=True)).digest()
        if content not in self._weights:
            copy.name = self._new_name(tensor.name)
            self._weights[content] = copy
        return self._weights[content].name

    def proto(self) -> onnx.GraphProto:
        """Returns the graph with the constants that are used."""
        tensors = [*self._constants.values(), *self._weights.values()]
        read = {name for node in _walk(self.nodes) for name in node.input}
        bodies = (body for node in _walk(self.nodes) for body in _bodies(node))
        read |= {one.name for body in bodies for one in body.output}
        return helper.make_graph(
            self.nodes,
            self.name,
            self._inputs,
            self._outputs,
            [*self._defaults, *(tensor for tensor in tensors if tensor.name in read)],
        )

    def model(self) -> onnx.ModelProto:
        """Returns the graph as a model, validated by onnx's checker."""
        domains = {"", *(node.domain for node in _walk(self.nodes))}
        model = helper.make_model(
            self.proto(),
            opset_imports=[helper.make_opsetid(d, v) for d, v in OPSETS.items() if d in domains],
            ir_version=IR_VERSION,
            producer_name="t2t_torch",
        )
        onnx.checker.check_model(model)
        return model

    def _new_name(self, name: str) -> str:
        return f"{name}.{next(self._root._numbers)}"


def _value_info(name: str, dtype: str | int, shape: Shape) -> onnx.ValueInfoProto:
    """Returns the description of a value; a dtype is numpy's name, "string", or ONNX's number."""
    if not isinstance(dtype, int):
        named = np.dtype(object if dtype == "string" else dtype)
        dtype = int(helper.np_dtype_to_tensor_dtype(named))
    return helper.make_tensor_value_info(name, dtype, list(shape))


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


def _walk(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yields nodes, and those of their bodies."""
    for node in nodes:
        yield node
        for body in _bodies(node):
            yield from _walk(body.node)


def remove_metadata(graph: onnx.GraphProto) -> None:
    """Removes stack traces and the like, which hold paths of this machine and differ by caller."""
    values: list[Any] = [*graph.input, *graph.value_info, *graph.node, graph]
    for one in values:
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


def loop(
    graph: Graph,
    step: Callable[..., tuple[Proxy, ...]],
    *state: Proxy,
    kinds: Sequence[tuple[str | int, Shape]],
    count: Proxy | str = "",
    first: Proxy | bool = True,
) -> tuple[Proxy, ...]:
    """Repeats a step, and returns the final state, followed by the stacked results of the steps.

    Args:
      graph: graph to which the loop is added.
      step: function of the body, the number of the step and the state; it returns True if there is
        a further step, the next state, and its results.
      state: state before the first step.
      kinds: dtype and shape of each part of the state, and of each result.
      count: maximum number of steps.
      first: True if there is a first step.
    """
    body = graph.body("step")
    number = body.input("number", "int64", [])
    body.input("more", "bool", [])
    inputs = [body.input("state", *kind) for kind in kinds[: len(state)]]
    more, *outputs = step(body, number, *inputs)
    body.output("more", more, "bool", [])
    for value, kind in zip(outputs, kinds, strict=True):
        body.output("state", value, *kind)
    first = graph.constant(True) if first is True else first
    return graph.several(len(kinds), "Loop", count, first, *state, body=body)


LINE: tuple[str, Shape] = ("int64", [None])
"""dtype and shape of a vector of numbers, for `loop`."""


def shifted(line: Proxy, by: int, padding: int) -> Proxy:
    """Returns a tensor shifted by `by` positions: element i is element i + by of `line`.

    Args:
      line: [N] int64.
      by: shift, positive or negative; not 0.
      padding: value beyond the ends.
    """
    longer = line.Pad([max(-by, 0), max(by, 0)], padding)
    start, end = max(by, 0), min(by, 0) or _END
    return longer[start:end]


def arange(size: Proxy) -> Proxy:
    """Returns 0, 1, ..., size - 1 of a size [] or [1].  [size] int64."""
    return combine("Range", 0, size.Squeeze(), 1)


def places(line: Proxy) -> Proxy:
    """Returns the indices 0, 1, 2 etc. of a tensor [N].  [N] int64."""
    return arange(line.Shape())


def latest(flags: Proxy) -> Proxy:
    """Returns for each position the nearest true position at or before it, or -1.

    Args:
      flags: [N] bool.
    """
    return concat([-1], true_places(flags), axis=0)[_count(flags)]


def following(flags: Proxy) -> Proxy:
    """Returns for each position the nearest true position after it, or N.

    Args:
      flags: [N] bool.
    """
    return true_places(flags).Concat(flags.Shape(), axis=0)[_count(flags)]


def before_each(counts: Proxy) -> Proxy:
    """Returns the exclusive cumulative sum, followed by the total.

    Args:
      counts: [N] int64.

    Returns:
      [N + 1] int64.
    """
    return counts.Pad([1, 0], 0).CumSum(0)


def any_true(flags: Proxy) -> Proxy:
    """Returns True if any element is true: [N] bool to [] bool."""
    return flags.integers().sum() > 0


def true_places(flags: Proxy) -> Proxy:
    """Returns the indices of true elements.  [N] bool -> [N'] int64."""
    return flags.NonZero().Squeeze([0])


def _count(flags: Proxy) -> Proxy:
    """Returns the number of true positions up to and including each.  [N] int64."""
    return flags.integers().CumSum(0)
