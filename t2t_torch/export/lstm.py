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
    x: Tensor, lengths: Tensor, weight: Tensor, recurrent_weight: Tensor, bias: Tensor
) -> Tensor:
    """Returns what a layer of LSTM gives, zeros at padding.

    Args:
      x: [B, S, E].
      lengths: how many positions of each row are data, [B] int32.
      weight: of each of D directions, its gates in ONNX's order, [D, 4 H, E].
      recurrent_weight: [D, 4 H, H].
      bias: of both, one after the other, [D, 8 H].

    Returns:
      [B, S, D * H].
    """
    mask = torch.arange(x.size(1), device=x.device) < lengths[:, None]
    backward = recurrent.backward_places(mask)
    start = x.new_zeros(1, x.size(0), recurrent_weight.size(-1))
    outputs = []
    for direction, index in zip(range(len(weight)), (None, backward), strict=False):
        weights = (weight[direction], recurrent_weight[direction], *bias[direction].chunk(2))
        back = [_ordered(each, tuple(_GATES.index(gate) for gate in range(4))) for each in weights]
        turned = recurrent.turned(x, index)
        found = torch.lstm(turned, (start, start), back, True, 1, 0.0, False, False, True)[0]
        outputs.append(recurrent.turned(found, index))
    return torch.cat(outputs, -1) * mask[..., None].to(x.dtype)


@lstm_layer.register_fake
def _(x: Tensor, lengths: Tensor, weight: Tensor, recurrent_weight: Tensor, bias: Tensor) -> Tensor:
    directions, _, size = recurrent_weight.shape
    return x.new_empty(x.size(0), x.size(1), directions * size)


def _translated(x: Any, lengths: Any, weight: Any, recurrent_weight: Any, bias: Any) -> Any:
    """Writes the operation in ONNX: time goes first, and directions have an axis of their own."""
    directions, _, size = recurrent_weight.shape
    outputs, _, _ = _op.LSTM(
        _op.Transpose(x, perm=[1, 0, 2]),
        weight,
        recurrent_weight,
        bias,
        _op.Cast(lengths, to=onnx.TensorProto.INT32),
        hidden_size=int(size),
        direction="bidirectional" if int(directions) == 2 else "forward",
    )  # [S, D, B, H]
    by_row = _op.Transpose(outputs, perm=[2, 0, 1, 3])
    return _op.Reshape(by_row, _op.Constant(value_ints=[0, 0, -1]))


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
        lengths = mask.sum(1).int()
        for number in range(self.num_layers):
            names = ("weight", "recurrent", "bias")
            weights = [self.get_buffer(f"{name}{number}") for name in names]
            x = lstm_layer(x, lengths, *weights)
        return x


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
