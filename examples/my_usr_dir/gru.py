"""A model of your own, its hyperparameters and a set of them, in one file.

    t2t-trainer --t2t_usr_dir=examples/my_usr_dir --model=gru --hparams_set=gru_small ...

It generates, so it has `encode` and `step`; with them it is decoded as every other model is.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from t2t_torch.features import Features
from t2t_torch.hparam import HParams, hp
from t2t_torch.layers.dropout import Dropout
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_hparams, register_model


class GruHParams(HParams):
    """GRU: what the other models do not have."""

    attention_scale: float = hp(1.0, "Factor on the attention's scores.", above=0)


@register_hparams
def gru_small() -> GruHParams:
    """Two layers of 128, with the quickstart's schedule and a higher rate."""
    return GruHParams().replace(
        hidden_size=128,
        num_hidden_layers=2,
        batch_size=2048,
        label_smoothing=0.0,
        weight_decay=0.0,
        clip_grad_norm=1.0,
        shared_embedding_and_softmax_weights=True,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay",
        learning_rate_constant=0.005,
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
    )


@dataclasses.dataclass
class GruState:
    """What a decode remembers of R rows.

    Attributes:
      hidden: of each layer, [L, R, H].
      memory: the encoder's output, [R, S, H]; None for a language model.
      mask: where the inputs hold data, [R, S] bool; None for a language model.
    """

    hidden: Tensor
    memory: Tensor | None
    mask: Tensor | None

    def expand(self, hypotheses: int) -> GruState:
        """Returns a state in which each row stands `hypotheses` times, side by side."""
        rows = torch.arange(self.hidden.size(1), device=self.hidden.device)
        return self.reorder(rows.repeat_interleave(hypotheses))

    def reorder(self, index: Tensor) -> GruState:
        """Returns a state whose row i is this one's row `index[i]`."""
        return GruState(
            self.hidden.index_select(1, index),
            None if self.memory is None else self.memory.index_select(0, index),
            None if self.mask is None else self.mask.index_select(0, index),
        )


@register_model("gru")
class Gru(T2TModel):
    """Gated recurrent units with attention; the decoder alone where the problem has no inputs.

    Cho et al. 2014, arXiv:1406.1078; Luong et al. 2015, arXiv:1508.04025, global attention, "dot".
    """

    HParams = GruHParams
    hparams: GruHParams

    def __init__(self, hparams: GruHParams, features: Features) -> None:
        super().__init__(hparams, features)
        size, layers = hparams.hidden_size, hparams.num_hidden_layers
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.decoder = nn.GRU(size, size, layers, batch_first=True)
        if features.has_inputs:
            self.encoder = nn.GRU(size, size // 2, layers, batch_first=True, bidirectional=True)
            self.join = nn.Linear(2 * size, size)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        memory = mask = None
        if self.features.has_inputs:
            mask = features["inputs"].mask
            memory = self._encode(features["inputs"].embedded, mask)
        x = nn.functional.pad(
            features["targets"].embedded, (0, 0, 1, -1)
        )  # shifted right by a zero vector
        hidden, _ = self.decoder(self.dropout(x))
        return {"targets": Hidden(self.dropout(self._attend(hidden, memory, mask)))}

    def encode(self, batch: dict[str, Tensor]) -> GruState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        ids = batch["inputs" if self.features.has_inputs else "targets"]
        shape = (self.hparams.num_hidden_layers, len(ids), self.hparams.hidden_size)
        hidden = torch.zeros(shape, device=ids.device)
        if not self.features.has_inputs:
            return GruState(hidden, None, None)
        mask = ids != 0
        return GruState(hidden, self._encode(self.embed("inputs", ids), mask), mask)

    def step(self, ids: Tensor, state: GruState) -> tuple[Tensor, GruState]:
        """Reads one more id of each row; see `T2TModel.step`."""
        x = self.embed("targets", ids[:, None])  # [R, 1, H]
        x, hidden = self.decoder(x, state.hidden)
        x = self._attend(x, state.memory, state.mask)
        logits = self.top(Hidden(x.squeeze(1)), "targets")  # [R, V]
        return logits, dataclasses.replace(state, hidden=hidden)

    def _encode(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H].  Packed, so that the backward direction begins at the last id."""
        lengths = mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(self.dropout(x), lengths, True, enforce_sorted=False)
        memory, _ = pad_packed_sequence(self.encoder(packed)[0], True, total_length=x.size(1))
        return memory

    def _attend(self, hidden: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """[B, T, H] -> [B, T, H], with what was found in the memory, [B, S, H]."""
        if memory is None or mask is None:
            return hidden
        scores = hidden @ memory.mT * self.hparams.attention_scale  # [B, T, S]
        weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1)
        return torch.tanh(self.join(torch.cat([hidden, weights @ memory], -1)))
