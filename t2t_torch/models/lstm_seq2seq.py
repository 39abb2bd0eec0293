"""Sequence-to-sequence models of LSTMs, in tensor2tensor's form (models/lstm.py).

Converted weights give identical logits (`interop/tensor2tensor.py`); with attention and an encoder
of both directions they do for inputs without padding, which is masked here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Features, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.lstm_seq2seq import LSTMSeq2seqAttentionHParams, LSTMSeq2seqHParams
from t2t_torch.layers.attention import Attended
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize, initialize_lstm
from t2t_torch.layers.pooling import masked_softmax, shift_right
from t2t_torch.layers.recurrent import LSTM, Memory, RowState
from t2t_torch.layers.tokens import EncoderOutput, SequenceLSTMEncoder, TwoWayLSTMEncoder
from t2t_torch.modalities.text import first_input
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model
from t2t_torch.text.encoder import PAD


@dataclasses.dataclass
class LSTMState(RowState):
    """Decoding state of R rows; see `State`.

    Attributes:
      memory: states of the decoder layers, [L, R, H]; None before the first step of a language
        model.
    """

    memory: Memory | None


@register_model
class LSTMSeq2seq(T2TModel):
    """LSTM encoder that reads the input in reverse, and LSTM decoder that starts from its state.

    Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", arXiv:1409.3215.
    Without inputs, only the decoder.
    """

    HParams = LSTMSeq2seqHParams
    reads = (Text, OfWords)
    texts = (0, 1)
    hparams: LSTMSeq2seqHParams

    def __init__(self, hparams: LSTMSeq2seqHParams, features: Features) -> None:
        super().__init__(hparams, features)
        if features.has_inputs:
            self.encoder: nn.Module = SequenceLSTMEncoder(features, hparams, hparams.dropout)
        self.dropout = Dropout(hparams.dropout)
        self.decoder = LSTM(
            hparams.input_width(features.targets["targets"]),
            hparams.hidden_size,
            hparams.num_hidden_layers,
            dropout=hparams.dropout,
        )
        initialize(self, hparams)
        initialize_lstm(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        memory = self.encoder(features).memory if self.features.has_inputs else None
        x = F.pad(features["targets"].embedded, (0, 0, 1, -1))  # shifted right by a zero vector
        return {"targets": Hidden(self.decoder.run(self.dropout(x), None, memory)[0])}

    def encode(self, batch: dict[str, Tensor]) -> LSTMState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        if not self.features.has_inputs:
            return LSTMState(None)
        inputs = {name: batch[name] for name in batch if name not in self.features.targets}
        return LSTMState(self.encoder(self.bottom(inputs)).memory)

    def step(self, ids: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """Runs a decoding step; see `T2TModel.step`."""
        x = self.embed("targets", ids[:, None])  # [R, 1, E]
        outputs, memory = self.decoder.run(x, None, state.memory)
        return self.top(Hidden(outputs.squeeze(1)), "targets"), LSTMState(memory)


class _TwoWays(T2TModel):
    """Reads the inputs of a model in both directions; its decoder has twice as many units."""

    encoder: nn.Module

    def __init__(self, hparams: Any, features: Features) -> None:
        super().__init__(hparams.of_decoder(), features)
        self.hparams = hparams
        if features.has_inputs:
            self.encoder = TwoWayLSTMEncoder(features, hparams, hparams.dropout)
            initialize_lstm(self.encoder, hparams)


@register_model
class LSTMSeq2seqBidirectionalEncoder(_TwoWays, LSTMSeq2seq):
    """`lstm_seq2seq` with `hidden_size` units of each direction, and twice as many of the decoder.

    Sets: those of `lstm_seq2seq`.
    """


class AttentionMemory(NamedTuple):
    """Memory of the attention, shared by the K hypotheses of a sentence.

    Attributes:
      keys: attention keys, [B, S, H].
      values: attention values, [B, S, H].
      mask: mask of data, [B, S] bool.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor


class LSTMAttention(nn.Module):
    """Attention with one or several heads over the outputs of the encoder.

    All heads have the same keys.  Bahdanau's heads have separate scoring weights, Luong's share the
    scores; each head has its own output layer over state and context.

    Args:
      hparams: sizes and the attention mechanism.
    """

    def __init__(self, hparams: LSTMSeq2seqAttentionHParams) -> None:
        super().__init__()
        width, heads = hparams.hidden_size, hparams.num_heads
        self.memory_layer = nn.Linear(width, width, bias=False)
        self.is_additive = hparams.attention_mechanism == "bahdanau"
        if self.is_additive:
            self.query_layer = nn.Linear(width, width, bias=hparams.attention_bias)
            self.match = nn.Linear(width, heads, bias=False)
        self.layers = nn.ModuleList(
            nn.Linear(2 * width, hparams.head_size, bias=hparams.attention_bias)
            for _ in range(heads)
        )
        self.size = heads * hparams.head_size
        self.has_tanh = hparams.attention_activation == "tanh"

    def remember(self, encoded: EncoderOutput) -> AttentionMemory:
        """Returns the memory for `forward`."""
        return AttentionMemory(self.memory_layer(encoded.outputs), encoded.outputs, encoded.mask)

    def attention_of(self, state: Tensor, memory: AttentionMemory) -> Tensor:
        """Returns the attention weights of each state, [B, N, K, S]."""
        query = state.view(memory.mask.size(0), -1, state.size(-1))  # [B, K, H]
        if self.is_additive:
            query = self.query_layer(query)[:, :, None]
            scores = self.match(torch.tanh(query + memory.keys[:, None])).movedim(-1, 0)
        else:
            scores = (query @ memory.keys.transpose(1, 2))[None]  # [1, B, K, S]
        return masked_softmax(scores, memory.mask[:, None]).movedim(0, 1)

    def forward(self, state: Tensor, memory: AttentionMemory) -> Tensor:
        """Returns the outputs of all heads.  [R, H] -> [R, heads * head_size]."""
        weights = self.attention_of(state, memory).movedim(1, 0)  # [N, B, K, S]
        contexts = (weights.to(memory.values.dtype) @ memory.values).flatten(1, 2)  # [N, R, H]
        heads = [
            layer(torch.cat([state, context.to(state.dtype)], -1))
            for layer, context in zip(
                self.layers, contexts.expand(len(self.layers), -1, -1), strict=True
            )
        ]
        joined = torch.cat(heads, -1)
        return joined.tanh() if self.has_tanh else joined


@dataclasses.dataclass
class AttendingState(RowState):
    """Decoding state of R = B * K rows; see `State`.

    Attributes:
      hidden: outputs of the decoder layers, [R, H] each.
      cells: cells of the decoder layers, [R, H] each.
      attention: last output of the attention, [R, A].
      memory: memory of the attention.
      attended: mean attention weights of all heads; see `Attending`.
      watches: True if steps record attention weights.
    """

    shared: ClassVar[tuple[str, ...]] = ("memory", "attended")

    hidden: list[Tensor]
    cells: list[Tensor]
    attention: Tensor
    memory: AttentionMemory
    attended: Attended | None = None
    watches: bool = False

    def watched(self) -> AttendingState:
        """Returns a state that records attention weights."""
        return dataclasses.replace(self, watches=True)

    def reorder(self, index: Tensor) -> AttendingState:
        """Returns a state whose row i is row `index[i]` of this state.  The memory is not copied,
        unless sentences are dropped."""
        state = super().reorder(index)
        if index.size(0) != self.attention.size(0):
            hypotheses = self.attention.size(0) // self.memory.mask.size(0)
            kept = index.view(-1, hypotheses)[:, 0] // hypotheses  # [B']
            state.memory = AttentionMemory(*(part.index_select(0, kept) for part in self.memory))
        return state


@register_model
class LSTMSeq2seqAttention(T2TModel):
    """LSTM encoder that reads in reverse or in both directions, and LSTM decoder with attention.

    The output of the attention is an input of the next decoder step (`input_feeding`).  Bahdanau et
    al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
    arXiv:1409.0473; Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine
    Translation", arXiv:1508.04025; after TensorFlow's AttentionWrapper.

    The output of a head is linear in state and context, without Luong's tanh, unless
    `attention_activation` says otherwise.
    """

    HParams = LSTMSeq2seqAttentionHParams
    reads = (Text, OfWords)
    texts = (1, 1)
    hparams: LSTMSeq2seqAttentionHParams

    def __init__(self, hparams: LSTMSeq2seqAttentionHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self.encoder: nn.Module = SequenceLSTMEncoder(
            features,
            hparams,
            hparams.dropout,
            bidirectional=hparams.bidirectional_encoder,
            backward=hparams.reverse_inputs,
        )
        self.attention = LSTMAttention(hparams)
        self.dropout = Dropout(hparams.dropout)
        width = hparams.hidden_size
        read = hparams.input_width(features.targets["targets"])
        read += self.attention.size if hparams.input_feeding else 0
        self.decoder = nn.ModuleList(
            nn.LSTMCell(width if number else read, width)
            for number in range(hparams.num_hidden_layers)
        )
        if hparams.output_attention and hparams.num_heads > 1:
            self.join_heads = nn.Linear(self.attention.size, width)
        initialize(self, hparams)
        initialize_lstm(self, hparams)

    @classmethod
    def target_width(
        cls, hparams: LSTMSeq2seqAttentionHParams, features: Features, target: str
    ) -> int:
        """Returns the output width of `body`: that of a head, or `hidden_size`."""
        is_head = hparams.output_attention and hparams.num_heads == 1
        return hparams.head_size if is_head else hparams.hidden_size

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        state = self._start(self.encoder(features))
        x = shift_right(features["targets"].embedded, first_input(self))
        outputs = []
        for read in x.unbind(1):
            output, state = self._read(read, state)
            outputs.append(output)
        return {"targets": Hidden(torch.stack(outputs, 1))}

    def encode(self, batch: dict[str, Tensor]) -> AttendingState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        inputs = {name: batch[name] for name in batch if name not in self.features.targets}
        return self._start(self.encoder(self.bottom(inputs)))

    def step(self, ids: Tensor, state: AttendingState) -> tuple[Tensor, AttendingState]:
        """Runs a decoding step; see `T2TModel.step`."""
        x = self.embed("targets", ids)
        if (first := first_input(self)) is not None:
            x = torch.where((ids == PAD)[:, None], first.to(x.dtype), x)
        output, after = self._read(x, state)
        if state.watches:
            weights = self.attention.attention_of(after.hidden[-1], after.memory).mean(1)
            mask = after.memory.mask[:, None].expand_as(weights)
            attended = Attended(weights.flatten(0, 1), mask.flatten(0, 1))
            after = dataclasses.replace(after, attended=attended, watches=True)
        return self.top(Hidden(output), "targets"), after

    def _start(self, encoded: EncoderOutput) -> AttendingState:
        """Returns the initial state of the decoder."""
        hidden, cells = encoded.memory
        nothing = hidden.new_zeros(hidden.size(1), self.attention.size)
        return AttendingState(list(hidden), list(cells), nothing, self.attention.remember(encoded))

    def _read(self, x: Tensor, state: AttendingState) -> tuple[Tensor, AttendingState]:
        """Runs a decoder step over embeddings; returns the input of the softmax.

        Args:
          x: embeddings of the last ids, [R, E].
          state: state before the step.

        Returns:
          [R, H], and the next state.
        """
        y = torch.cat([x, state.attention.to(x.dtype)], -1) if self.hparams.input_feeding else x
        hidden, cells = [], []
        for cell, *before in zip(self.decoder, state.hidden, state.cells, strict=True):
            y, c = cell(self.dropout(y), tuple(before))
            hidden.append(y)
            cells.append(c)
        attention = self.attention(y, state.memory)
        if self.hparams.output_attention:
            y = self.join_heads(attention) if self.hparams.num_heads > 1 else attention
        return y, AttendingState(hidden, cells, attention, state.memory)


@register_model
class LSTMSeq2seqAttentionBidirectionalEncoder(_TwoWays, LSTMSeq2seqAttention):
    """`lstm_seq2seq_attention` with `hidden_size` units of each direction of the encoder, and twice
    as many of the decoder.

    Sets: those of `lstm_seq2seq_attention`.
    """
