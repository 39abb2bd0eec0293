"""What recurrent layers remember of streams from batch to batch.  See `pipeline/streams.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

_TURNS = 2  # what is read and what is written
_BUFFER = re.compile(r"(.*\.)?carried\.layer_\d+")


def is_memory(name: str) -> bool:
    """Whether a name in a model's state dict is of what a `carried` memory of it holds."""
    return _BUFFER.fullmatch(name) is not None


class CarriedMemory(nn.Module):
    """What layers remember of each stream after its last batch; a model's attribute `carried`.

    In TRAIN it stands in buffers that a checkpoint keeps, so that a run that is resumed goes on bit
    by bit; a model that reads no streams can be loaded without it.  Batch k of a stream writes turn
    k mod 2 and reads the other, so a pass that is made again finds what it found before.  In EVAL
    it is apart from that, and in no checkpoint.

    Args:
      sizes: numbers that each layer remembers of a stream: twice its units for an LSTM, whose
        outputs and cells stand side by side.
      streams: of training.

    Attributes:
      layers: for each layer [2, streams, size] float32.
    """

    def __init__(self, sizes: Sequence[int], streams: int) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        for number, size in enumerate(sizes):
            self.register_buffer(f"layer_{number}", torch.zeros(_TURNS, streams, size))
        # Which were written since they were last shared with other processes.
        self.register_buffer(
            "_written", torch.zeros(_TURNS, streams, dtype=torch.float32), persistent=False
        )
        self._in_eval: list[Tensor] = []

    @property
    def layers(self) -> list[Tensor]:
        """The buffers of training."""
        return [self.get_buffer(f"layer_{number}") for number in range(len(self.sizes))]

    @torch.no_grad()
    def read(self, streams: Tensor, blocks: Tensor) -> list[Tensor]:
        """Returns what each layer remembers: zeros at the beginning of a stream.  [B, size] each.

        Args:
          streams: the number of each row's, [B].
          blocks: batches of it that came before, [B].
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
        """Remembers; a row that is not finite is forgotten, lest all that comes after is not.

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
        """Gives all processes what each has written; each stream was written by one of them.

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
        """Makes the memory of an evaluation large enough; a pass begins with its largest batch."""
        need = int(streams.max()) + 1
        there = self._in_eval
        if not there or len(there[0]) < need or there[0].device != streams.device:
            self._in_eval = [streams.new_zeros(need, n, dtype=torch.float32) for n in self.sizes]
