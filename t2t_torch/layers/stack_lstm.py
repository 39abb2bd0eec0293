"""LSTMs over a stack: a push goes on from what it stands on, not from what came before it.

Dyer et al. 2015, "Transition-Based Dependency Parsing with Stack Long Short-Term Memory",
arXiv:1505.08075.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.tree_structure import Height


class StackLSTM(nn.Module):
    """Layers of LSTM over the pushes of many stacks.

    Args:
      size: H, of what is pushed and of the outputs.
      num_layers: L, one above the other.
      dropout: probability of zeroing what goes from a layer to the next.
    """

    def __init__(self, size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTMCell(size, size) for _ in range(num_layers))
        self.between = Dropout(dropout)

    def forward(self, x: Tensor, heights: Sequence[Height]) -> Tensor:
        """Returns the output after each push, of stacks that are known beforehand.

        All pushes to one height are computed together: what they stand on is one lower.

        Args:
          x: what is pushed, in the order of heights, [N, H].
          heights: from the lowest; N pushes in all.

        Returns:
          [N, H].
        """
        counts = [height.count for height in heights]
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, nn.LSTMCell)
            x = self.between(x) if number else x
            of_inputs = torch.addmm(layer.bias_ih + layer.bias_hh, x, layer.weight_ih.T)
            weight = layer.weight_hh.T
            outputs: list[Tensor] = []
            memory: Tensor | None = None
            for gates, height in zip(of_inputs.split(counts), heights, strict=True):
                cell = None
                if memory is not None:
                    hidden, cell = memory.index_select(0, height.parents).chunk(2, 1)
                    gates = torch.addmm(gates, hidden, weight)
                memory = torch.cat(_cell(gates, cell), 1)
                outputs.append(memory)
            x = torch.cat(outputs)[:, : x.size(1)] if outputs else x
        return x

    def push(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what the layers remember after one push to each of R stacks.

        Args:
          x: what is pushed, [R, H].
          hidden: outputs of the layers after what it stands on, [R, L, H].
          cell: [R, L, H].
        """
        hiddens, cells = [], []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, nn.LSTMCell)
            x = self.between(x) if number else x
            gates = torch.addmm(layer.bias_ih + layer.bias_hh, x, layer.weight_ih.T)
            gates = torch.addmm(gates, hidden[:, number], layer.weight_hh.T)
            x, c = _cell(gates, cell[:, number])
            hiddens.append(x)
            cells.append(c)
        return torch.stack(hiddens, 1), torch.stack(cells, 1)


def _cell(gates: Tensor, cell: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns output and cell, [R, H] each, of gates [R, 4 H] in PyTorch's order: i, f, g, o."""
    size = gates.size(1) // 4
    enter, keep = gates[:, : 2 * size].sigmoid().chunk(2, 1)
    new = enter * gates[:, 2 * size : 3 * size].tanh()
    cell = new if cell is None else torch.addcmul(new, keep, cell)
    return gates[:, 3 * size :].sigmoid() * cell.tanh(), cell
