"""LSTMs as one operator of ONNX, whatever the lengths.

torch.export writes an `nn.LSTM` out step by step, for the lengths of its example alone.  So each
layer of `layers.recurrent.LSTM` becomes an operation of its own, which is translated as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnxscript import opset20
from torch import Tensor, nn

from t2t_torch.layers import recurrent

_GATES = (0, 3, 1, 2)
"""ONNX has a layer's gates in the order input, output, forget, cell; torch input, forget, cell,
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
    """Returns what a layer of LSTM gives, zeros at padding, and its memory at each row's end.

    Args:
      x: [B, S, E].
      lengths: how many positions of each row are data, [B] int32.
      weight: of each of D directions, its gates in ONNX's order, [D, 4 H, E].
      recurrent_weight: [D, 4 H, H].
      bias: of both, one after the other, [D, 8 H].
      hidden: outputs before the first position, [D, B, H].
      cell: of the same, [D, B, H].

    Returns:
      [B, S, D * H], and [D, B, H] of outputs and of cells.
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
        found = torch.lstm(turned, before, back, True, 1, 0.0, False, False, True)[0]
        outputs.append(recurrent.turned(found, index))
        after.append(_memory_at_ends(turned, before, back, ends))
    whole = torch.cat(outputs, -1) * mask[..., None].to(x.dtype)
    hiddens, cells = (torch.stack(parts) for parts in zip(*after, strict=True))
    return whole, hiddens, cells


def _memory_at_ends(
    x: Tensor, before: tuple[Tensor, Tensor], weights: list[Tensor], ends: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the memory of one direction after each row's own last position.  [B, H] each."""
    hidden, cell = before
    found = []
    for place in range(x.size(1)):
        _, hidden, cell = torch.lstm(
            x[:, place : place + 1], (hidden, cell), weights, True, 1, 0.0, False, False, True
        )
        found.append(torch.cat([hidden[0], cell[0]], -1))
    index = ends[..., None].expand(-1, 1, found[0].size(-1))
    kept = torch.stack(found, 1).gather(1, index).squeeze(1)
    hidden, cell = kept.chunk(2, -1)
    return hidden.clone(), cell.clone()


@lstm_layer.register_fake
def _(
    x: Tensor,
    lengths: Tensor,
    weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    hidden: Tensor,
    cell: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    directions, _, size = recurrent_weight.shape
    whole = x.new_empty(x.size(0), x.size(1), directions * size)
    return whole, torch.empty_like(hidden), torch.empty_like(cell)


def _translated(
    x: Any, lengths: Any, weight: Any, recurrent_weight: Any, bias: Any, hidden: Any, cell: Any
) -> tuple[Any, Any, Any]:
    """Writes the operation in ONNX: time goes first, and directions have an axis of their own."""
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


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.t2t_torch.lstm_layer.default: _translated
}
"""For `torch.onnx.export(custom_translation_table=...)`."""


class _Layers(nn.Module):
    """The layers of an LSTM that is not trained any more.

    Args:
      lstm: whose weights these are.
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
    """Puts the four gates on the first axis into another order.  [4 H, ...]."""
    parts = weight.detach().chunk(4)
    return torch.cat([parts[gate] for gate in gates])


def replace_lstms(module: nn.Module) -> None:
    """Puts the operation in the place of every LSTM below `module`, which is changed."""
    for name, child in list(module.named_children()):
        if isinstance(child, recurrent.LSTM):
            setattr(module, name, _Layers(child))
        else:
            replace_lstms(child)
