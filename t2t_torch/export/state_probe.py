"""What a model's state looks like, found by taking a few steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from t2t_torch.export.decode_state import Axes, axes_of, tensors_of, with_tensors
from t2t_torch.text.encoder import EOS

BATCHES = (2, 3)
"""Sentences of the examples; 1 would become part of the graph."""

STEPS = 3
"""After which the state is as a step's example."""

_LONGER = 2  # ids by which the inputs of one example are longer


class StateProbe:
    """A model's state after a few steps.

    Args:
      model: that generates.
      hypotheses: of each sentence.
      batch_of: gives an example of so many rows, each of so many ids at least.

    Attributes:
      hypotheses: as given.
      state: after some steps, for its form.
      tensors: of it.
      axes: of each of them.
      carried: the names of those that a step changes.
      kept: those of the others.
    """

    def __init__(
        self, model: Any, hypotheses: int, batch_of: Callable[[int, int], dict[str, Tensor]]
    ) -> None:
        self.hypotheses = hypotheses
        few, many = BATCHES
        self.state = self._after(model, batch_of(few, STEPS), STEPS)
        self.tensors = tensors_of(self.state)
        others = [
            self._after(model, batch_of(many, STEPS), STEPS),
            self._after(model, batch_of(few, STEPS), STEPS + 1),
            self._after(model, batch_of(few, STEPS + _LONGER), STEPS),
        ]
        shapes = [
            {name: tuple(tensor.shape) for name, tensor in tensors_of(state).items()}
            for state in others
        ]
        self.axes = {
            name: axes_of(name, tuple(tensor.shape), tuple(each[name] for each in shapes), BATCHES)
            for name, tensor in self.tensors.items()
        }
        given = with_tensors(self.state, self.tensors)
        rows = torch.arange(few * hypotheses)
        _, after = model.step(torch.zeros_like(rows), given)
        found = tensors_of(after.reorder(rows))
        self.carried = [name for name in self.axes if found[name] is not self.tensors[name]]
        self.kept = [name for name in self.axes if name not in self.carried]

    def _after(self, model: Any, batch: dict[str, Tensor], steps: int) -> Any:
        state = model.encode(batch).expand(self.hypotheses)
        rows = len(next(iter(batch.values()))) * self.hypotheses
        for _ in range(steps):
            _, state = model.step(torch.full((rows,), EOS), state)
        return state

    @property
    def example(self) -> dict[str, Tensor]:
        """The tensors as a step of a graph is given them."""
        return {name: self.split(name, tensor) for name, tensor in self.tensors.items()}

    @property
    def varying(self) -> dict[str, tuple[int, ...]]:
        """Of each tensor of `example` the axes whose sizes vary."""
        return {name: self._varying(axes) for name, axes in self.axes.items()}

    @property
    def sentences(self) -> dict[str, int]:
        """Of each tensor of `example` the axis of sentences, where it has one."""
        either = {n: a.batch if a.rows is None else a.rows for n, a in self.axes.items()}
        return {name: axis for name, axis in either.items() if axis is not None}

    def state_of(self, given: dict[str, Tensor]) -> Any:
        """Returns the state whose split tensors are given, among others, by name."""
        return with_tensors(
            self.state, {name: self.joined(name, given[name]) for name in self.axes}
        )

    def split(self, name: str, tensor: Tensor) -> Tensor:
        """Returns a tensor whose rows have two axes, of sentences and of their hypotheses."""
        axis = self.axes[name].rows
        if axis is None:
            return tensor
        rows = tensor.size(axis) // self.hypotheses
        shape = (*tensor.shape[:axis], rows, self.hypotheses, *tensor.shape[axis + 1 :])
        # ONNX cannot reshape what has no elements, as a cache has none at first.
        return tensor.reshape(shape) if tensor.numel() else tensor.new_zeros(shape)

    def joined(self, name: str, tensor: Tensor) -> Tensor:
        """Undoes `split`."""
        axis = self.axes[name].rows
        return tensor if axis is None else tensor.flatten(axis, axis + 1)

    @staticmethod
    def _varying(axes: Axes) -> tuple[int, ...]:
        of_batch = [axis for axis in (axes.rows, axes.batch) if axis is not None]
        behind = [axis + (axes.rows is not None and axis > axes.rows) for axis in axes.varying]
        return tuple(sorted([*of_batch, *behind]))
