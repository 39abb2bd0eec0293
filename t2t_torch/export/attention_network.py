"""What reads a finished output once more, and tells what each of its ids attends to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import onnx
import torch
from torch import Tensor, nn

from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.word_alignment import asked_layers, watched_layers
from t2t_torch.export.decode_state import tensors_of
from t2t_torch.export.network import NamedNetwork, exported
from t2t_torch.export.state_probe import BATCHES, StateProbe
from t2t_torch.text.encoder import EOS


class AttentionNetwork(NamedTuple):
    """One step of reading an output.

    Attributes:
      step: "ids" [B, n] that are read and the state in; "attention" [B, n, S] while they are, and
        those tensors of the state that change, as "next." and their names, out.
      carried: the names of the latter.
      kept: those of the others, which a step reads.
      axes: by tensor of the state that a search begins with, its axis of hypotheses, of which the
        first alone is read; of those that are read as they are there is none.
      read: whether an id is asked while it is read, not while it is written.
    """

    step: onnx.ModelProto
    carried: Sequence[str]
    kept: Sequence[str]
    axes: Mapping[str, int]
    read: bool


def export_attention(
    model: Any,
    hparams: DecodeHParams,
    searched: StateProbe,
    batch_of: Callable[[int, int], dict[str, Tensor]],
) -> AttentionNetwork:
    """Returns the network that reads outputs, for batches of any size and any lengths.

    Args:
      model: frozen; one that attends to its inputs, or several as one.
      hparams: of the decode.
      searched: the state of a search with it.
      batch_of: gives an example of so many rows, each of so many ids at least.

    Raises:
      HParamsError: there is no such layer.
      ExportError: the model holds operations that depend on the batch, or that ONNX does not have.
    """
    all_told = hparams.return_beams or hparams.beam_size == 1
    read = hparams.alignment_step == "read"
    layers = asked_layers(model, hparams.alignment_layer, read=read)
    probe = searched
    if not all_told:
        with torch.no_grad():
            probe = StateProbe(model, 1, batch_of)
    ids = torch.full((BATCHES[0], probe.hypotheses), EOS)
    step = exported(
        type(model).__name__,
        _Reading(model, layers, probe),
        {"ids": ids, **probe.example},
        {"ids": (0,), **probe.varying},
    )
    rows = {name: axes.rows for name, axes in searched.axes.items()}
    places = {} if all_told else {name: axis + 1 for name, axis in rows.items() if axis is not None}
    return AttentionNetwork(step, probe.carried, probe.kept, places, read)


class _Reading(NamedNetwork):
    def __init__(self, model: nn.Module, layers: Sequence[nn.Module], probe: StateProbe) -> None:
        super().__init__(["ids", *probe.axes])
        self.model: Any = model
        self._layers = layers
        self._probe = probe

    def found(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        with watched_layers(self._layers) as seen:
            _, state = self.model.step(given["ids"].flatten(), self._probe.state_of(given))
        after = tensors_of(state)
        weights = [each.float().mean(1) for each in seen]  # [B, n, S]
        return {
            "attention": torch.stack(weights).mean(0),
            **{
                f"next.{name}": self._probe.split(name, after[name]) for name in self._probe.carried
            },
        }
