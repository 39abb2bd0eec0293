"""LSTMs whose results are independent of padding and batching.  Hochreiter and Schmidhuber 1997.

The base class of decoding states is here, too.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from t2t_torch.layers.dropout import Dropout, LockedDropout


@dataclasses.dataclass
class RowState:
    """Base class of decoding states of R rows; see `State`.

    Rows are the first axis of tensors; what a field holds besides tensors are other states, lists
    of both, or values of all rows.

    Attributes:
      shared: names of the fields that stay as they are.
    """

    shared: ClassVar[tuple[str, ...]] = ()

    def expand(self, hypotheses: int) -> Self:
        """Returns a state in which each row is repeated `hypotheses` times, adjacently."""
        return self._each(
            lambda rows: rows.repeat_interleave(hypotheses, 0),
            lambda state: state.expand(hypotheses),
        )

    def reorder(self, index: Tensor) -> Self:
        """Returns a state whose row i is row `index[i]` of this state."""
        return self._each(
            lambda rows: rows.index_select(0, index), lambda state: state.reorder(index)
        )

    def _each(self, of_tensor: Callable[[Tensor], Tensor], of_state: Callable[[Any], Any]) -> Self:
        def changed(value: Any) -> Any:
            if isinstance(value, Tensor):
                return of_tensor(value)
            if isinstance(value, list):
                return [changed(one) for one in value]
            return of_state(value) if hasattr(value, "reorder") else value

        names = [field.name for field in dataclasses.fields(self) if field.name not in self.shared]
        return dataclasses.replace(self, **{name: changed(getattr(self, name)) for name in names})


class Memory(NamedTuple):
    """Hidden state of LSTM layers.

    Attributes:
      hidden: outputs, [L, B, H]; both directions are concatenated on the last axis.
      cell: [L, B, H].
    """

    hidden: Tensor
    cell: Tensor

    def expand(self, hypotheses: int) -> Memory:
        """See `State`; rows are the second axis."""
        return Memory(*(part.repeat_interleave(hypotheses, 1) for part in self))

    def reorder(self, index: Tensor) -> Memory:
        """See `State`."""
        return Memory(*(part.index_select(1, index) for part in self))


class LSTM(nn.Module):
    """LSTM layers over right-padded sequences.

    A backward direction starts at each row's own last position.  Sequences are not packed: oneDNN's
    fused kernel needs full tensors, and takes half the time (2 cores, [32, 100, 300]: 60 instead of
    156 ms per training step).

    Args:
      input_size: E, input width.
      hidden_size: H of each direction.
      num_layers: number of stacked layers.
      bidirectional: add a backward direction: outputs have 2 H units.
      dropout: probability of zeroing a unit between layers.
      locked: use the same dropout mask at all positions of a sequence (Gal and Ghahramani 2016,
        arXiv:1512.05287).

    Attributes:
      size: output width.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
        locked: bool = False,
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        self.size = hidden_size * directions
        self.layers: Any = nn.ModuleList(
            nn.ModuleList(
                nn.LSTM(self.size if number else input_size, hidden_size, batch_first=True)
                for _ in range(directions)
            )
            for number in range(num_layers)
        )
        self.between = LockedDropout(dropout) if locked else Dropout(dropout)

    @classmethod
    def both_ways(cls, input_size: int, size: int, hparams: Any, *, locked: bool = False) -> LSTM:
        """Returns the bidirectional layers of a model, `size` units of each direction."""
        layers, rate = hparams.num_hidden_layers, hparams.layer_prepostprocess_dropout
        return cls(input_size, size, layers, bidirectional=True, dropout=rate, locked=locked)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the outputs of the last layer, zeros at padding.

        Args:
          x: [B, S, E].
          mask: True where there is data, [B, S] bool, left-aligned.

        Returns:
          [B, S, H], or [B, S, 2 H] if bidirectional.
        """
        backward = backward_places(mask)
        there = mask[..., None]
        for number, directions in enumerate(self.layers):
            x = self.between(x) if number else x
            forth, *back = directions
            outputs = [
                forth(x)[0],
                *(turned(lstm(turned(x, backward))[0], backward) for lstm in back),
            ]
            x = torch.cat(outputs, -1)
            x = x * there.to(x.dtype)
        return x

    def run(
        self, x: Tensor, mask: Tensor | None = None, memory: Memory | None = None
    ) -> tuple[Tensor, Memory]:
        """Returns the result of `forward`, and the state of each layer after a row's last position.

        Args:
          x: [B, S, E].
          mask: True where there is data; None means everywhere.
          memory: initial state of a unidirectional LSTM; None means zeros.
        """
        everywhere = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        backward = backward_places(everywhere if mask is None else mask)
        hidden, cells = [], []
        for number, directions in enumerate(self.layers):
            x = self.between(x) if number else x
            before = None
            if memory is not None:
                before = (memory.hidden[number, None], memory.cell[number, None])
            found = []
            for lstm, index in zip(directions, (None, backward), strict=False):
                outputs, after = _run(lstm, turned(x, index), mask, before)
                found.append((turned(outputs, index), *after))
            x, h, c = (torch.cat(parts, -1) for parts in zip(*found, strict=True))
            hidden.append(h)
            cells.append(c)
        return x, Memory(torch.stack(hidden), torch.stack(cells))


def _run(
    lstm: nn.LSTM, x: Tensor, mask: Tensor | None, before: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Runs a layer; its final state is that at each row's own end.  [B, S, E] -> [B, S, H]."""
    if mask is None or x.size(1) == 1:  # packing takes twice the time
        outputs, (hidden, cell) = lstm(x, before)
        return outputs, (hidden[0], cell[0])
    lengths = mask.sum(1).clamp(min=1).cpu()
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    outputs, (hidden, cell) = lstm(packed, before)
    whole, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.size(1))
    return whole, (hidden[0], cell[0])


def backward_places(mask: Tensor) -> Tensor:
    """Returns the positions of each row from its last one with data to its first.  [B, S]."""
    places = torch.arange(mask.size(1), device=mask.device)
    index = mask.sum(1, keepdim=True) - 1 - places
    return torch.where(index < 0, places, index)  # padding is unchanged


def turned(x: Tensor, index: Tensor | None) -> Tensor:
    """Gathers the positions `index` of each row; reversal is self-inverse.  [B, S, H], [B, S]."""
    return x if index is None else x.gather(1, index[..., None].expand(-1, -1, x.size(-1)))


_TURNS = 2  # one read and one written
_BUFFER = re.compile(r"(.*\.)?carried\.layer_\d+")


def is_memory(name: str) -> bool:
    """Returns whether a name in a model's state dict belongs to a `carried` memory."""
    return _BUFFER.fullmatch(name) is not None


class CarriedMemory(nn.Module):
    """Layer states of each stream after its last batch; a model's attribute `carried`.

    In TRAIN they are buffers saved in checkpoints, so a resumed run continues bit-exactly; a model
    that reads no streams can be loaded without them.  Batch k of a stream writes slot k mod 2 and
    reads the other, so a repeated pass reads the same state.  In EVAL they are separate and not
    saved.

    Streams: see `pipeline/streams.py`.

    Args:
      sizes: state size of each layer: twice its units for an LSTM, whose outputs and cells are
        concatenated.
      streams: number of training streams.

    Attributes:
      layers: for each layer [2, streams, size] float32.
    """

    def __init__(self, sizes: Sequence[int], streams: int) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        for number, size in enumerate(sizes):
            self.register_buffer(f"layer_{number}", torch.zeros(_TURNS, streams, size))
        # Slots written since the last exchange with other processes.
        self.register_buffer(
            "_written", torch.zeros(_TURNS, streams, dtype=torch.float32), persistent=False
        )
        self._in_eval: list[Tensor] = []

    @property
    def layers(self) -> list[Tensor]:
        """The training buffers."""
        return [self.get_buffer(f"layer_{number}") for number in range(len(self.sizes))]

    @torch.no_grad()
    def read(self, streams: Tensor, blocks: Tensor) -> list[Tensor]:
        """Returns the state of each layer: zeros at the beginning of a stream.  [B, size] each.

        Args:
          streams: the stream number of each row, [B].
          blocks: number of preceding batches of the stream, [B].
        """
        goes_on = (blocks > 0)[:, None]
        if self.training:
            turns = (blocks + 1) % _TURNS
            found = [layer[turns, streams] for layer in self.layers]
        else:
            self._make_room(streams)
            found = [layer[streams] for layer in self._in_eval]
        return [torch.where(goes_on, values, 0.0) for values in found]

    @torch.no_grad()
    def write(self, streams: Tensor, blocks: Tensor, values: Sequence[Tensor]) -> None:
        """Stores the states; a row that is not finite is reset, as it would spoil all later ones.

        Args:
          streams: as in `read`.
          blocks: as in `read`.
          values: of each layer, [B, size].
        """
        turns = blocks % _TURNS
        for number, one in enumerate(values):
            one = one.detach().float()
            one = torch.where(one.isfinite().all(-1, keepdim=True), one, 0.0)
            if self.training:
                self.layers[number][turns, streams] = one
            else:
                self._in_eval[number][streams] = one
        if self.training:
            self.get_buffer("_written")[turns, streams] = 1.0

    @torch.no_grad()
    def share(self, add: Callable[[Tensor], object]) -> None:
        """Exchanges written states between processes; each stream is written by one of them.

        Args:
          add: replaces a tensor by its sum over the processes.
        """
        written = self.get_buffer("_written")
        by_any = written.clone()
        add(by_any)
        for layer in self.layers:
            theirs = torch.where(written[..., None] > 0, layer, 0.0)
            add(theirs)
            layer.copy_(torch.where(by_any[..., None] > 0, theirs, layer))
        written.zero_()

    def _make_room(self, streams: Tensor) -> None:
        """Allocates the memory of an evaluation; a pass begins with its largest batch."""
        need = int(streams.max()) + 1
        there = self._in_eval
        if not there or len(there[0]) < need or there[0].device != streams.device:
            self._in_eval = [streams.new_zeros(need, n, dtype=torch.float32) for n in self.sizes]
