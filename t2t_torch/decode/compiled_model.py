"""A model with a step compiled by torch.compile, for faster search.

On a CPU one program handles any number of rows and positions.  On a GPU launching operations takes
most of a step's time, so programs are replayed as CUDA graphs: the numbers of rows, input lengths
and cache capacities are limited to a few values.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.decode.search import Step
from t2t_torch.distributed.network import check_compiler
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import HParamsError
from t2t_torch.layers.attention import Attended, Attending, Growing
from t2t_torch.layers.recurrent import RowState
from t2t_torch.model import State, T2TModel
from t2t_torch.text.encoder import PAD

_FEWEST = 8  # sentences
_FIRST_CAPACITY = 32  # positions; doubled when they are full


def places_for(sentences: int) -> int:
    """Returns the number of places for `sentences` sentences: a power of two."""
    return max(_FEWEST, 1 << (sentences - 1).bit_length())


class FixedRows:
    """A `State` that wraps a model's own and pads its rows.

    The place of a finished sentence stays empty until half of all places are; then the others move.

    CUDA graphs replay operations on the same memory: each number of rows, and each length of a
    growing cache, would need another graph.

    Args:
      state: the model's state before its first step.
      sentences: B, its rows.
      device: device of the state.

    Attributes:
      attended: see `Attending`.
    """

    def __init__(self, state: State, sentences: int, device: torch.device) -> None:
        self.attended: Attended | None = None
        self._hypotheses = 1
        self._places = places_for(sentences)
        self._alive = torch.arange(sentences, device=device)  # [B] place of each sentence
        self._steps = 0
        self._capacity = _FIRST_CAPACITY
        self._is_of_graph = False  # True if the next replay writes into its memory
        fill = torch.arange(self._places, device=device).clamp(max=sentences - 1)
        self._state: Any = state if self._places == sentences else state.reorder(fill)

    def watched(self) -> FixedRows | None:
        """Returns a state whose steps return their attention; None if there is no such state."""
        watched = self._state.watched() if isinstance(self._state, Attending) else None
        return None if watched is None else self._with(watched)

    def expand(self, hypotheses: int) -> FixedRows:
        """See `State`."""
        state = self._with(self._state.expand(hypotheses))
        state._hypotheses = self._hypotheses * hypotheses
        return state

    def reorder(self, index: Tensor) -> FixedRows:
        """See `State`."""
        count = self._hypotheses
        index = self._rows(self._alive).index_select(0, index)  # [R'] rows among all places
        sentences = index.view(-1, count)[:, 0] // count  # [B'] place of each sentence
        if (room := places_for(len(sentences))) < self._places:
            fill = torch.arange(room, device=index.device).clamp(max=len(sentences) - 1)
            state = self._with(self._state.reorder(index.view(-1, count)[fill].flatten()))
            state._places = room
            state._alive = torch.arange(len(sentences), device=index.device)
            return state
        whole = torch.arange(self._places * count, device=index.device)
        whole = whole.index_copy(0, self._rows(sentences), index)
        state = self._with(self._state.reorder(whole))
        state._alive = sentences
        return state

    def step(self, first: Step, later: Step, ids: Tensor) -> tuple[Tensor, FixedRows]:
        """Reads one more id of each row.

        Args:
          first: function of the first step, which determines the types of caches.
          later: function of the other steps.
          ids: [R] int64.

        Returns:
          The logits, [R, V], and the state after the step.
        """
        rows = self._rows(self._alive)
        read = ids.new_zeros(self._places * self._hypotheses).index_copy(0, rows, ids)
        state = self._state
        if self._is_of_graph:
            state = state.reorder(torch.arange(len(read), device=ids.device))
        capacity = self._capacity
        if self._steps and isinstance(state, Growing):
            while capacity <= self._steps:
                capacity *= 2
            if self._steps == 1 or capacity > self._capacity:
                state = state.fixed(capacity)
        logits, state = (later if self._steps else first)(read, state)
        stepped = self._with(state)
        stepped._is_of_graph = self._steps > 0
        stepped._steps, stepped._capacity = self._steps + 1, capacity
        if (attended := getattr(state, "attended", None)) is not None:
            stepped.attended = Attended(*(part.index_select(0, rows) for part in attended))
        return logits.index_select(0, rows), stepped

    def _with(self, state: Any) -> FixedRows:
        """Returns a copy with another state of the model."""
        rows = object.__new__(FixedRows)
        rows.__dict__.update(self.__dict__)
        rows._state, rows._is_of_graph, rows.attended = state, False, None
        return rows

    def _rows(self, places: Tensor) -> Tensor:
        """Returns the rows of all hypotheses of the sentences at these places.  [B] -> [R]."""
        within = torch.arange(self._hypotheses, device=places.device)
        return (places[:, None] * self._hypotheses + within).flatten()


_BACKEND = "inductor"
_WIDTH = 16  # input lengths are padded to a multiple of it when shapes are limited


@dataclasses.dataclass
class Begun(RowState):
    """A `State` before its first step.

    Attributes:
      state: the model's state.
    """

    attended: ClassVar[None] = None
    state: State

    def watched(self) -> Begun | None:
        """See `Attending`."""
        watched = self.state.watched() if isinstance(self.state, Attending) else None
        return None if watched is None else Begun(watched)


class CompiledModel:
    """`encode` and `step` of a model, always compiled except for the first step.

    The first step of a decode is not compiled: it determines the types and shapes of the others.
    With a beam of four it is a quarter of another step's work.

    Args:
      model: model on the device to compute on.
      fixed: True to limit the number of shapes; by default on a GPU.

    Raises:
      HParamsError: a compiler is missing.
    """

    def __init__(self, model: T2TModel | Ensemble, *, fixed: bool | None = None) -> None:
        device = next(model.parameters()).device
        check_compiler(device)
        # One LSTM step is a product and a few activations, which may be decomposed.
        torch._dynamo.config.allow_rnn = True
        self._model: Any = model
        self._on_gpu = device.type == "cuda"
        self._fixed = self._on_gpu if fixed is None else fixed
        self._program: Any = torch.compile(
            model.step,
            dynamic=True,
            fullgraph=True,
            backend=_BACKEND,
            mode="reduce-overhead" if self._on_gpu else None,
        )

    def encode(self, batch: dict[str, Tensor]) -> Any:
        """Returns the state before the first step; see `T2TModel.encode`."""
        if not self._fixed:
            return Begun(self._model.encode(batch))
        # Inputs are padded to one of a few lengths.
        wide = {n: F.pad(ids, (0, -ids.size(1) % _WIDTH), value=PAD) for n, ids in batch.items()}
        (ids,) = wide.values()
        return FixedRows(self._model.encode(wide), len(ids), ids.device)

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads one more id of each row; see `T2TModel.step`.

        Raises:
          HParamsError: the step cannot be compiled.
        """
        if isinstance(state, FixedRows):
            return state.step(self._model.step, self._run, ids)
        if isinstance(state, Begun):
            result: tuple[Tensor, Any] = self._model.step(ids, state.state)
            return result
        return self._run(ids.contiguous(), state)

    def _run(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Runs a compiled step."""
        if self._on_gpu:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        try:
            result: tuple[Tensor, Any] = self._program(ids, state)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            raise HParamsError(
                f"compile=true: the step of {type(self._model).__name__} cannot be compiled: "
                f"{reason}. Leave it out: the plain step finds the same."
            ) from error
        return result
