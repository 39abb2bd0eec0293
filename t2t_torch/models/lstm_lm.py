"""Language model: stacked LSTMs.

Mikolov et al. 2010, "Recurrent neural network based language model"; Zaremba et al. 2014,
arXiv:1409.2329; with the regularization of Merity et al. 2017, arXiv:1708.02182.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.features import Features
from t2t_torch.hparams.lstm_lm import LstmLmHParams
from t2t_torch.layers.dropout import Dropout, LockedDropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.recurrent import CarriedMemory, RowState
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model
from t2t_torch.text.encoder import EOS, PAD


class LstmLayer(nn.Module):
    """LSTM with dropout of its recurrent weights in TRAIN.

    Wan et al. 2013 (DropConnect); Merity et al. 2017, section 3: one mask for all positions.

    Args:
      input_size: E, input width.
      size: H, output width.
      weight_dropout: probability of dropping a weight.
      uniform_range: weights are initialized uniformly in [-range, range]; 0 for 1 / sqrt(H).
    """

    def __init__(
        self, input_size: int, size: int, weight_dropout: float, uniform_range: float
    ) -> None:
        super().__init__()
        self.size = size
        self.lstm = nn.LSTM(input_size, size, batch_first=True)
        self.drop_weights = Dropout(weight_dropout)
        if uniform_range:
            for parameter in self.lstm.parameters():
                nn.init.uniform_(parameter, -uniform_range, uniform_range)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Runs the LSTM from an initial state.

        Args:
          x: inputs, [B, T, E].
          memory: outputs and cells before the first position, [B, 2 H].

        Returns:
          [B, T, H], and the memory after the last position, [B, 2 H].
        """
        before = tuple(part[None].to(x.dtype) for part in torch.split(memory, self.size, -1))
        if self.training and self.drop_weights.rate:
            to_gates, recurrent, *biases = self.lstm.all_weights[0]
            weights = [to_gates, self.drop_weights(recurrent), *biases]
            # Arguments as in nn.LSTM: one layer, biases, no dropout, unidirectional, batch first.
            call: Any = torch.lstm
            x, *after = call(x, before, weights, True, 1, 0.0, True, False, True)
        else:
            x, after = self.lstm(x, before)
        return x, torch.cat([part.reshape(-1, self.size) for part in after], -1)


class WordDropout(nn.Module):
    """Embedding with dropout of whole words of the vocabulary, at all positions, in TRAIN.

    Gal and Ghahramani 2016, arXiv:1512.05287, section 4.

    Args:
      table: embedding, ids -> vectors.
      rate: probability of dropping a word; the other embeddings are scaled up.
    """

    def __init__(self, table: nn.Module, rate: float) -> None:
        super().__init__()
        self.table = table
        self.dropout = Dropout(rate)

    def forward(self, ids: Tensor) -> Tensor:
        """[...] ids -> [..., E]."""
        vectors: Tensor = self.table(ids)
        if not self.training or not self.dropout.rate:
            return vectors
        words = self.table.get_parameter("weight").size(0)
        return vectors.mul(self.dropout(vectors.new_ones(words, 1))[ids])


@dataclasses.dataclass
class LstmLmState(RowState):
    """Decoding state: outputs and cells of each layer, [R, 2 H].  See `State`."""

    memory: list[Tensor]


@register_model
class LstmLm(T2TModel):
    """Language model of stacked LSTMs, which continues from the state of the last batch.

    A text starts as if it followed another: the first id that is read is `EOS`.
    """

    HParams = LstmLmHParams
    texts = (0, 0)
    reads = ()
    reads_streams = True
    hparams: LstmLmHParams

    def __init__(self, hparams: LstmLmHParams, features: Features) -> None:
        super().__init__(hparams, features)
        sizes = [hparams.hidden_size] * hparams.num_hidden_layers
        width = self.target_width(hparams, features, "targets")
        if not hparams.tie_by_projection:
            sizes[-1] = width
        dropout = LockedDropout if hparams.locked_dropout else Dropout
        self.drop_input = dropout(hparams.input_dropout)
        self.drop_between = dropout(hparams.between_dropout)
        self.drop_output = dropout(hparams.output_dropout)
        self.layers: Any = nn.ModuleList(
            LstmLayer(size_in, size, hparams.weight_dropout, hparams.recurrent_range)
            for size_in, size in zip([hparams.embedding_size, *sizes], sizes, strict=False)
        )
        self.projection = nn.Identity() if sizes[-1] == width else nn.Linear(sizes[-1], width)
        initialize(self.projection, hparams)
        modality: Any = self.modalities["targets"]
        for table in (modality.bottom.weight, modality.top.weight):
            nn.init.uniform_(table, -hparams.uniform_range, hparams.uniform_range)
        modality.bottom = WordDropout(modality.bottom, hparams.embedding_dropout)
        if hparams.stream_length:
            self.carried = CarriedMemory([2 * size for size in sizes], hparams.stream_rows)

    @classmethod
    def target_width(cls, hparams: LstmLmHParams, features: Features, target: str) -> int:
        """Returns the input width of the softmax: that of the embedding if they are tied."""
        tied = hparams.shared_embedding_and_softmax_weights
        return hparams.embedding_size if tied else hparams.hidden_size

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        targets = features["targets"]
        read = targets.embedded
        before = targets.before
        if before is None:
            before = read.new_zeros(len(read), dtype=torch.int64)
        x = torch.cat([self._embedded(before[:, None]), read[:, :-1]], 1)  # shifted right
        streams, blocks = targets.streams, targets.blocks
        if streams is None or blocks is None:
            x, _ = self._read(x, self._nothing(x.size(0)))
        else:
            x, memory = self._read(x, self.carried.read(streams, blocks))
            self.carried.write(streams, blocks, memory)
        dropped = self.drop_output(x)
        states, penalty = self.projection(dropped), None
        if self.training and (self.hparams.activation_penalty or self.hparams.change_penalty):
            # Activation regularization and temporal AR, summed over positions like the loss.
            activation = dropped.float().square().mean(-1) * targets.mask
            change = (x[:, 1:] - x[:, :-1]).float().square().mean(-1) * targets.mask[:, 1:]
            penalty = self.hparams.activation_penalty * activation.sum()
            penalty = penalty + self.hparams.change_penalty * change.sum()
        return {"targets": Hidden(states, penalty=penalty)}

    def _embedded(self, ids: Tensor) -> Tensor:
        """Returns the embeddings of ids, with `EOS` in place of padding.  [B, T] -> [B, T, E]."""
        return self.embed("targets", torch.where(ids == PAD, EOS, ids))

    def _nothing(self, rows: int) -> list[Tensor]:
        """Returns the initial state of a text."""
        device = next(self.parameters()).device
        return [torch.zeros(rows, 2 * layer.size, device=device) for layer in self.layers]

    def _read(self, x: Tensor, memory: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Runs all layers over [B, T, E]; returns the last output and the final states."""
        x = self.drop_input(x)
        after = []
        for number, (layer, before) in enumerate(zip(self.layers, memory, strict=True)):
            x, then = layer(self.drop_between(x) if number else x, before)
            after.append(then)
        return x, after

    def encode(self, batch: dict[str, Tensor]) -> LstmLmState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        return LstmLmState(self._nothing(batch["targets"].size(0)))

    def step(self, ids: Tensor, state: LstmLmState) -> tuple[Tensor, LstmLmState]:
        """Runs a decoding step; see `T2TModel.step`."""
        x, memory = self._read(self._embedded(ids[:, None]), state.memory)
        hidden = Hidden(self.projection(self.drop_output(x[:, 0])))
        return self.top(hidden, "targets"), LstmLmState(memory)
