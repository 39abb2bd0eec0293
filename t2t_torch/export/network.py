"""A model's network as an ONNX graph from feature tensors to predictions.

torch.export unrolls an `nn.LSTM` for the lengths of the example.  Each layer of
`layers.recurrent.LSTM` therefore becomes a custom operator, which is translated as a whole, for any
lengths.
"""

from __future__ import annotations

import contextlib
import copy
import linecache
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import torch
from onnxscript import opset20
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import ExportError
from t2t_torch.export.graph import OPSETS, remove_metadata
from t2t_torch.features import Features
from t2t_torch.features.feature import select_sequences
from t2t_torch.layers import recurrent
from t2t_torch.model import T2TModel

_GATES = (0, 3, 1, 2)
"""Permutation of gates: ONNX orders them input, output, forget, cell; torch input, forget, cell,
output."""

_op: Any = opset20


def _lstm_layer(
    x: Tensor,
    lengths: Tensor,
    weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    hidden: Tensor,
    cell: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns tensors of the shapes of an LSTM layer's outputs, and of its state at each row's end.

    The values are zeros: a trace reads the shapes, and ONNX's LSTM computes the values.

    Args:
      x: [B, S, E].
      lengths: number of positions without padding per row, [B] int32.
      weight: weights of the gates in ONNX's order, for D directions, [D, 4 H, E].
      recurrent_weight: [D, 4 H, H].
      bias: input and recurrent biases, concatenated, [D, 8 H].
      hidden: initial outputs, [D, B, H].
      cell: initial cells, [D, B, H].

    Returns:
      Outputs [B, S, D * H], zeros at padding, and the final outputs and cells, [D, B, H] each.
    """
    directions, _, size = recurrent_weight.shape
    whole = x.new_zeros(x.size(0), x.size(1), directions * size)
    return whole, torch.zeros_like(hidden), torch.zeros_like(cell)


lstm_layer = torch.library.custom_op("t2t_torch::lstm_layer", _lstm_layer, mutates_args=())
lstm_layer.register_fake(_lstm_layer)


def _translated(
    x: Any, lengths: Any, weight: Any, recurrent_weight: Any, bias: Any, hidden: Any, cell: Any
) -> tuple[Any, Any, Any]:
    """Translates the operator to ONNX, whose layout is time first with an axis of directions."""
    directions, _, size = recurrent_weight.shape
    outputs, hidden_after, cell_after = _op.LSTM(
        _op.Transpose(x, perm=[1, 0, 2]),
        weight,
        recurrent_weight,
        bias,
        _op.Cast(lengths, to=onnx.TensorProto.INT32),
        hidden,
        cell,
        hidden_size=int(size),
        direction="bidirectional" if int(directions) == 2 else "forward",
    )  # [S, D, B, H]
    by_row = _op.Transpose(outputs, perm=[2, 0, 1, 3])
    whole = _op.Reshape(by_row, _op.Constant(value_ints=[0, 0, -1]))
    return whole, hidden_after, cell_after


class _Layers(nn.Module):
    """The layers of an LSTM for inference.

    Args:
      lstm: LSTM with the weights.
    """

    def __init__(self, lstm: recurrent.LSTM) -> None:
        super().__init__()
        self.size = lstm.size
        self.num_layers = len(lstm.layers)
        for number, directions in enumerate(lstm.layers):
            ones: Any = directions
            weights = [_ordered(one.weight_ih_l0) for one in ones]
            self.register_buffer(f"weight{number}", torch.stack(weights))
            weights = [_ordered(one.weight_hh_l0) for one in ones]
            self.register_buffer(f"recurrent{number}", torch.stack(weights))
            biases = [
                torch.cat([_ordered(b) for b in (one.bias_ih_l0, one.bias_hh_l0)]) for one in ones
            ]
            self.register_buffer(f"bias{number}", torch.stack(biases))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See `layers.recurrent.LSTM.forward`."""
        return self.run(x, mask)[0]

    def run(
        self, x: Tensor, mask: Tensor | None = None, memory: recurrent.Memory | None = None
    ) -> tuple[Tensor, recurrent.Memory]:
        """See `layers.recurrent.LSTM.run`; outputs are zeros at padding."""
        everywhere = x.new_ones(x.size(0), x.size(1), dtype=torch.bool)
        lengths = (everywhere if mask is None else mask).sum(1).int()
        hiddens, cells = [], []
        for number in range(self.num_layers):
            names = ("weight", "recurrent", "bias")
            weights = [self.get_buffer(f"{name}{number}") for name in names]
            directions, _, size = weights[1].shape
            before = [x.new_zeros(directions, x.size(0), size)] * 2
            if memory is not None:
                before = [memory.hidden[number, None], memory.cell[number, None]]
            x, hidden, cell = lstm_layer(x, lengths, *weights, *before)
            hiddens.append(hidden.transpose(0, 1).flatten(1))
            cells.append(cell.transpose(0, 1).flatten(1))
        return x, recurrent.Memory(torch.stack(hiddens), torch.stack(cells))


def _ordered(weight: Tensor) -> Tensor:
    """Returns a weight of torch with its four gates in ONNX's order.  [4 H, ...]."""
    parts = weight.detach().chunk(4)
    return torch.cat([parts[gate] for gate in _GATES])


def replace_lstms(module: nn.Module) -> None:
    """Replaces every `recurrent.LSTM` in `module` with one of a custom operator, in place."""
    for name, child in list(module.named_children()):
        if isinstance(child, recurrent.LSTM):
            setattr(module, name, _Layers(child))
        else:
            replace_lstms(child)


def _sorted(
    x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Any, Any]:
    """Translates `torch.sort(x, stable=True)` to ONNX."""
    size = _op.Reshape(_op.Gather(_op.Shape(x), _op.Constant(value_int=dim)), [1])
    result: tuple[Any, Any] = _op.TopK(x, size, axis=dim, largest=int(descending), sorted=1)
    return result


_TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.t2t_torch.lstm_layer.default: _translated,
    torch.ops.aten.sort.stable: _sorted,
}
"""Argument `custom_translation_table` of `torch.onnx.export`."""


_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), contextlib.__file__)
"""Source folders of torch and of this package."""


class NamedNetwork(nn.Module):
    """A network with named inputs.

    Args:
      names: names of the inputs, in the order of the arguments.
      model: the model that it runs.
      function: function from the model and its inputs by name to the outputs by name.
    """

    def __init__(
        self, names: Iterable[str], model: Any, function: Callable[..., dict[str, Tensor]]
    ) -> None:
        super().__init__()
        self.names = list(names)
        self.model = model
        self._function = function

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """Returns the outputs by name."""
        return self._function(self.model, dict(zip(self.names, values, strict=True)))


def predict_targets(model: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the predictions of a model: of `Modality.predict` for its `hidden_states`.

    They are "t.numbers" of each target t, and "t.probability", "t.scores" and "t.mask" if present.
    """
    outputs: dict[str, Tensor] = {}
    for name, hidden in model.hidden_states(batch).items():
        guesses = model.modality(name).predict(model.top(hidden, name))
        tensors = {**guesses._asdict(), "mask": hidden.mask}
        outputs |= {
            f"{name}.{part}": tensor for part, tensor in tensors.items() if tensor is not None
        }
    return outputs


def export_network(model: T2TModel | Ensemble, example: Mapping[str, Tensor]) -> onnx.ModelProto:
    """Returns a model's network for batches of any size and lengths, in float32.

    Args:
      model: model that predicts labels, numbers or tags; it is not modified.
      example: a batch of the input pipeline without targets, on the CPU, with at least two rows of
        several words.

    Returns:
      A graph whose inputs have the names of the features.  Its outputs are those of
      `Modality.predict` for each target t: "t.numbers" [B, n], "t.probability" [B], "t.scores"
      [B, ...]; and for a target of words "t.mask", the valid positions, [B, W].

    Raises:
      ExportError: the model has operations that depend on the batch, or that ONNX lacks.
    """
    still = frozen(model)
    replace_lstms(still)
    network = NamedNetwork(example, still, predict_targets)
    return exported(type(model).__name__, network, example, axes_of(model.features, example))


def axes_of(features: Features, example: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Returns the dynamic axes of a batch's features: rows, and positions of a sequence."""
    sequences = select_sequences(features.all)
    return {
        name: tuple(range(min(value.dim(), 2))) if name in sequences else (0,)
        for name, value in example.items()
    }


def frozen(model: Any) -> Any:
    """Returns a copy of a model in float32, on the CPU, in evaluation mode."""
    return copy.deepcopy(model).cpu().float().eval().requires_grad_(False)


def exported(
    name: str,
    network: nn.Module,
    example: Mapping[str, Tensor],
    varying: Mapping[str, Sequence[int]],
    *,
    otherwise: str = "Serve the run itself, with PyTorch.",
) -> onnx.ModelProto:
    """Returns a network as an ONNX graph.

    Args:
      name: name of the model, for error messages.
      network: module called with the values of `example` in order; returns outputs by name.
      example: inputs by name; dynamic sizes must not be 0 or 1.
      varying: dynamic axes by input.
      otherwise: end of error messages: what to do instead.

    Raises:
      ExportError: the network has operations that depend on the sizes, or that ONNX lacks.
    """
    network = network.eval()
    axes = tuple(dict.fromkeys(varying.get(one, ()), torch.export.Dim.AUTO) for one in example)
    what = f"{name} cannot be exported"
    with tracing(what, otherwise), _fixed_sizes() as fixed:
        program = torch.export.export(
            network, tuple(example.values()), dynamic_shapes=(axes,), strict=False
        )
        outputs = list(network(*example.values()))
        graph = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSETS[""],
            custom_translation_table=_TRANSLATIONS,
            input_names=list(example),
            output_names=outputs,
            verbose=False,
        )
        assert graph is not None
        graph.optimize()  # inlines all functions
        model: onnx.ModelProto = graph.model_proto
        remove_metadata(model.graph)
        model.ClearField("metadata_props")
    check_varies(program, what, {one: varying.get(one, ()) for one in example}, _why_fixed(fixed))
    return model


@contextlib.contextmanager
def _fixed_sizes() -> Iterator[list[tuple[str, int]]]:
    """Records the lines outside torch and this package at which a trace fixes a dynamic size."""
    sizes: list[tuple[str, int]] = []
    original = getattr(ShapeEnv, "_set_replacement", None)
    if original is None:  # a private function that torch may remove
        yield sizes
        return

    def noting(env: ShapeEnv, symbol: Any, value: Any, *more: Any, **named: Any) -> Any:
        if getattr(value, "is_number", False):
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
                frame = frame.f_back
            sizes.append((frame.f_code.co_filename, frame.f_lineno))
        return original(env, symbol, value, *more, **named)

    with mock.patch.object(ShapeEnv, "_set_replacement", noting):
        yield sizes


def _why_fixed(fixed: Sequence[tuple[str, int]]) -> str:
    """Returns the reason why a size became a constant, and what to do."""
    why = "The model reads this size as a number, as int(), range() or a comparison do."
    lines = {(Path(file).name, line): linecache.getline(file, line).strip() for file, line in fixed}
    if lines:
        message = ", ".join(f"{file}, line {line} ({text})" for (file, line), text in lines.items())
        why = f"It is read as a number at {message}."
    if any("range(" in text for text in lines.values()):
        why += " A graph has no loop over a size: compute the whole batch at once."
    elif any("len(" in text for text in lines.values()):
        why += " Take tensor.size() in place of len()."
    return why


def check_varies(
    program: torch.export.ExportedProgram,
    what: str,
    varying: Mapping[str, Iterable[int]],
    otherwise: str,
) -> None:
    """Raises ExportError if a size of the example was fixed in a program.

    Args:
      program: the program.
      what: what is not possible, the beginning of the error.
      varying: dynamic axes by input, in the order of the inputs.
      otherwise: end of the error.
    """
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    inputs = [values[name] for name in program.graph_signature.user_inputs]
    for (name, axes), value in zip(varying.items(), inputs, strict=True):
        for axis in axes:
            size = value.shape[axis]
            size = size if isinstance(size, int) else size.node.maybe_as_int()
            if size is not None:
                raise ExportError(
                    f"{what}: axis {axis} of {name!r} would always be {size}, as in the example. "
                    f"{otherwise}"
                )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses messages of libraries for their own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def tracing(what: str, otherwise: str) -> Iterator[None]:
    """Disables gradients and torch's messages, and names the reason why a trace fails.

    Args:
      what: what is not possible, the beginning of the error.
      otherwise: end of the error: what to do instead.

    Raises:
      ExportError: the body fails.
    """
    try:
        with torch.no_grad(), quiet():
            yield
    except (torch.onnx.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
        why, *_ = (str(error).strip() or type(error).__name__).splitlines()
        raise ExportError(f"{what}: {why} {otherwise}") from error
