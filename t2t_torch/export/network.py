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
from collections.abc import Callable, Iterator, Mapping, Sequence
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


@torch.library.custom_op("t2t_torch::lstm_layer", mutates_args=())
def lstm_layer(
    x: Tensor,
    lengths: Tensor,
    weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    hidden: Tensor,
    cell: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the outputs of an LSTM layer, zeros at padding, and its state at each row's end.

    Args:
      x: [B, S, E].
      lengths: number of positions without padding per row, [B] int32.
      weight: weights of the gates in ONNX's order, for D directions, [D, 4 H, E].
      recurrent_weight: [D, 4 H, H].
      bias: input and recurrent biases, concatenated, [D, 8 H].
      hidden: initial outputs, [D, B, H].
      cell: initial cells, [D, B, H].

    Returns:
      Outputs [B, S, D * H], and the final outputs and cells, [D, B, H] each.
    """
    mask = torch.arange(x.size(1), device=x.device) < lengths[:, None]
    ends = (lengths.long() - 1).clamp(min=0)[:, None]
    backward = recurrent.backward_places(mask)
    outputs, after = [], []
    for direction, index in zip(range(len(weight)), (None, backward), strict=False):
        weights = (weight[direction], recurrent_weight[direction], *bias[direction].chunk(2))
        back = [_ordered(each, tuple(_GATES.index(gate) for gate in range(4))) for each in weights]
        before = hidden[direction, None], cell[direction, None]
        turned = recurrent.turned(x, index)
        states = torch.lstm(turned, before, back, True, 1, 0.0, False, False, True)[0]
        outputs.append(recurrent.turned(states, index))
        after.append(_memory_at_ends(turned, before, back, ends))
    whole = torch.cat(outputs, -1) * mask[..., None].to(x.dtype)
    hiddens, cells = (torch.stack(parts) for parts in zip(*after, strict=True))
    return whole, hiddens, cells


def _memory_at_ends(
    x: Tensor, before: tuple[Tensor, Tensor], weights: list[Tensor], ends: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the state of one direction after each row's last position.  [B, H] each."""
    hidden, cell = before
    states = []
    for place in range(x.size(1)):
        _, hidden, cell = torch.lstm(
            x[:, place : place + 1], (hidden, cell), weights, True, 1, 0.0, False, False, True
        )
        states.append(torch.cat([hidden[0], cell[0]], -1))
    index = ends[..., None].expand(-1, 1, states[0].size(-1))
    last = torch.stack(states, 1).gather(1, index).squeeze(1)
    hidden, cell = last.chunk(2, -1)
    return hidden.clone(), cell.clone()


@lstm_layer.register_fake
def _(x: Tensor, *others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _, _, recurrent_weight, _, hidden, cell = others
    directions, _, size = recurrent_weight.shape
    whole = x.new_empty(x.size(0), x.size(1), directions * size)
    return whole, torch.empty_like(hidden), torch.empty_like(cell)


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


LSTM_TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.t2t_torch.lstm_layer.default: _translated
}
"""Argument `custom_translation_table` of `torch.onnx.export`."""


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
            weights = [_ordered(one.weight_ih_l0, _GATES) for one in ones]
            self.register_buffer(f"weight{number}", torch.stack(weights))
            weights = [_ordered(one.weight_hh_l0, _GATES) for one in ones]
            self.register_buffer(f"recurrent{number}", torch.stack(weights))
            biases = [
                torch.cat([_ordered(b, _GATES) for b in (one.bias_ih_l0, one.bias_hh_l0)])
                for one in ones
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


def _ordered(weight: Tensor, gates: tuple[int, ...]) -> Tensor:
    """Returns a weight with the four gates on the first axis permuted.  [4 H, ...]."""
    parts = weight.detach().chunk(4)
    return torch.cat([parts[gate] for gate in gates])


def replace_lstms(
    module: nn.Module, kind: type[nn.Module] = recurrent.LSTM, operator: Any = _Layers
) -> None:
    """Replaces every LSTM of a kind in `module` with a module of a custom operator, in place."""
    for name, child in list(module.named_children()):
        if isinstance(child, kind):
            setattr(module, name, operator(child))
        else:
            replace_lstms(child, kind, operator)


def _sorted(
    x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Any, Any]:
    """Translates `torch.sort(x, stable=True)` to ONNX."""
    size = _op.Reshape(_op.Gather(_op.Shape(x), _op.Constant(value_int=dim)), [1])
    result: tuple[Any, Any] = _op.TopK(x, size, axis=dim, largest=int(descending), sorted=1)
    return result


SORT_TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.sort.stable: _sorted
}
"""Argument `custom_translation_table` of `torch.onnx.export`."""


_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), contextlib.__file__)
"""Source folders of torch and of this package."""


class NamedNetwork(nn.Module):
    """A network with named inputs.  Subclasses define `compute`.

    Args:
      names: names of the inputs, in the order of the arguments.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = list(names)

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """Returns the outputs of `compute`."""
        return self.compute(dict(zip(self.names, values, strict=True)))

    def compute(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the outputs by name for inputs by name."""
        raise NotImplementedError


class Network(NamedNetwork):
    """The exported network: `model.hidden_states`, and `Modality.predict` of each target.

    Args:
      model: the model.
      names: names of the features, in the order of the arguments.
    """

    def __init__(self, model: T2TModel | Ensemble, names: list[str]) -> None:
        super().__init__(names)
        self.model = model

    def compute(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns "t.numbers" of each target t, and "t.probability", "t.scores" and "t.mask" if
        present.
        """
        outputs: dict[str, Tensor] = {}
        for name, hidden in self.model.hidden_states(inputs).items():
            guesses = self.model.modality(name).predict(self.model.top(hidden, name))
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
    varying = axes_of(model.features, example)
    return exported(type(model).__name__, Network(still, list(example)), example, varying)


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
    try:
        with torch.no_grad(), quiet(), _fixed_sizes() as fixed:
            program = torch.export.export(
                network, tuple(example.values()), dynamic_shapes=(axes,), strict=False
            )
            outputs = list(network(*example.values()))
            graph = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSETS[""],
                custom_translation_table={**LSTM_TRANSLATIONS, **SORT_TRANSLATIONS},
                input_names=list(example),
                output_names=outputs,
                verbose=False,
            )
            assert graph is not None
            graph.optimize()
            model: onnx.ModelProto = graph.model_proto
            for part in (model.graph, *model.functions):
                remove_metadata(part)
            model.ClearField("metadata_props")
    except (torch.onnx.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
        why, *_ = (str(error).strip() or type(error).__name__).splitlines()
        raise ExportError(f"{name} cannot be exported: {why} {otherwise}") from error
    _check_varies(model, name, varying, fixed)
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


def _check_varies(
    network: onnx.ModelProto,
    name: str,
    varying: Mapping[str, Sequence[int]],
    fixed: Sequence[tuple[str, int]],
) -> None:
    """Raises ExportError if a size of the example was fixed in the graph."""
    why = "The model reads this size as a number, as int(), range() or a comparison do."
    lines = {(Path(file).name, line): linecache.getline(file, line).strip() for file, line in fixed}
    if lines:
        message = ", ".join(f"{file}, line {line} ({text})" for (file, line), text in lines.items())
        why = f"It is read as a number at {message}."
    if any("range(" in text for text in lines.values()):
        why += " A graph has no loop over a size: compute the whole batch at once."
    elif any("len(" in text for text in lines.values()):
        why += " Take tensor.size() in place of len()."
    for node in network.graph.input:
        for axis in varying.get(node.name, ()):
            dim = node.type.tensor_type.shape.dim[axis]
            size = dim.dim_param or str(dim.dim_value)
            if size.isdecimal():
                raise ExportError(
                    f"{name} cannot be exported: axis {axis} of {node.name!r} is "
                    f"{size} in the graph, as in the example, and should vary. {why}"
                )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses torch's messages for its own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
