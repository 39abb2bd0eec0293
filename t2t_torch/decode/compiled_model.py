"""A model whose step runs through torch.compile: what a search asks of it, faster where it pays.

On a CPU rows and positions may be of any number in one program.  On a GPU most of a step's time is
that of starting operations, so programs are replayed as CUDA graphs: there rows, lengths of inputs
and the room of caches are of few sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.compute.compiled import check_compiler
from t2t_torch.decode.fixed_rows import FixedRows
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import HParamsError
from t2t_torch.layers.attended import Attending
from t2t_torch.model import State, T2TModel
from t2t_torch.text.encoder import PAD

_BACKEND = "inductor"
_WIDTH = 16  # inputs are as long as a multiple of it, where shapes are few


class Begun:
    """A `State` before its first step.

    Args:
      state: the model's.
    """

    attended = None

    def __init__(self, state: State) -> None:
        self.state = state

    def watched(self) -> Begun | None:
        """See `Attending`."""
        watched = self.state.watched() if isinstance(self.state, Attending) else None
        return None if watched is None else Begun(watched)

    def expand(self, hypotheses: int) -> Begun:
        """See `State`."""
        return Begun(self.state.expand(hypotheses))

    def reorder(self, index: Tensor) -> Begun:
        """See `State`."""
        return Begun(self.state.reorder(index))


class CompiledModel:
    """`encode` and `step` of a model; nothing falls back to the plain step.

    The first step of a decode is the plain one, which is a quarter of the others' work with a beam
    of four: it finds the types and shapes that the others have.

    Args:
      model: on the device where it computes.
      fixed: whether shapes are few; by default on a GPU.

    Raises:
      HParamsError: a compiler is missing.
    """

    def __init__(self, model: T2TModel | Ensemble, *, fixed: bool | None = None) -> None:
        device = next(model.parameters()).device
        check_compiler(device)
        # One step of an LSTM is a product and a few activations: nothing that has to stay whole.
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
        wide = {name: _widened(ids) for name, ids in batch.items()}
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
            found: tuple[Tensor, Any] = self._model.step(ids, state.state)
            return found
        return self._run(ids.contiguous(), state)

    def _run(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Makes a step by the program."""
        if self._on_gpu:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        try:
            made: tuple[Tensor, Any] = self._program(ids, state)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            raise HParamsError(
                f"compile=true: the step of {type(self._model).__name__} cannot be compiled: "
                f"{reason}. Leave it out: the plain step finds the same."
            ) from error
        return made


def _widened(ids: Tensor) -> Tensor:
    """Returns ids with so much padding that their length is one of few.  [B, S] -> [B, S']."""
    return F.pad(ids, (0, -ids.size(1) % _WIDTH), value=PAD)
