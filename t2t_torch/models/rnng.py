"""Recurrent neural network grammar (RNNG): a transition-based constituency parser.

Dyer et al. 2016, "Recurrent Neural Network Grammars", arXiv:1602.07776 (the discriminative model of
section 3); for requests Gupta et al. 2018, "Semantic Parsing for Task Oriented Dialog using
Hierarchical Representations", arXiv:1810.07942.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Features, Text, TreeFeature
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.rnng import RNNGHParams
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize, initialize_lstm
from t2t_torch.layers.recurrent import LSTM, Memory, RowState, backward_places, turned
from t2t_torch.layers.tokens import Tokens, texts_of
from t2t_torch.layers.tree import (
    REDUCE_ID,
    SHIFT_ID,
    ParseState,
    StackLSTM,
    ValidTransitions,
    structure_of,
)
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model

_MAX_OPEN = 200  # depth of nested constituents; the Penn Treebank has fewer than 40


class SumComposition(nn.Module):
    """Composition of a constituent: tanh(W sum + b) of the vectors of its label and children.

    Args:
      size: H.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output = nn.Linear(size, size)

    def forward(self, members: Tensor, there: Tensor) -> Tensor:
        """Returns the constituents.

        Args:
          members: vectors of the label, then of the children, then zeros; [N, M, H].
          there: mask of members, [N, M] bool.

        Returns:
          [N, H].
        """
        return torch.tanh(self.output(members.sum(1)))


class BLSTMComposition(nn.Module):
    """Composition: tanh(W [f; b] + b) of the final states of two LSTMs.  Dyer et al. 2015, fig. 5.

    One reads the label and the children from the left, the other the label and the children from
    the right.

    Args:
      size: H.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.forth = nn.LSTM(size, size, batch_first=True)
        self.back = nn.LSTM(size, size, batch_first=True)
        self.output = nn.Linear(2 * size, size)

    def forward(self, members: Tensor, there: Tensor) -> Tensor:
        """Returns the constituents; see `SumComposition.forward`."""
        backward = F.pad(backward_places(there[:, 1:]) + 1, (1, 0))  # the label stays the first
        last = (there.sum(1) - 1).clamp(min=0)
        rows = torch.arange(len(members), device=members.device)
        forth = self.forth(members)[0][rows, last]
        back = self.back(turned(members, backward))[0][rows, last]
        return torch.tanh(self.output(torch.cat([forth, back], 1)))


@dataclasses.dataclass
class RNNGState(RowState):
    """Decoding state of R rows; see `State`.

    Pushed items are stored in a pool that rows share; stacks hold indices into it.  Index 0 is the
    empty stack, zeros.

    Attributes:
      buffer: states of the buffer before each word, of all sentences, [B * (S + 1), H].
      front: index of the next word of each row, [R].
      end: index after the last word of each row, [R].
      history: states of the LSTM over transitions, [L, R, H] each.
      stack: indices into the pool, from the bottom, [R, D]; the first is 0.
      height: height of the stack of each row, [R].
      opened: heights of open constituents, [R, D].
      open: number of open constituents, [R].
      vectors: pushed vectors of the pool, [P, H].
      hidden: layer outputs of the pool, [P, L, H].
      cell: layer cells of the pool, [P, L, H].
      used: number of used entries of the pool.
      rules: rules of valid transitions, if the model uses them.
      progress: state of the trees by these rules.
      has_started: True after the first transition.
    """

    shared: ClassVar[tuple[str, ...]] = ("buffer", "vectors", "hidden", "cell")

    buffer: Tensor
    front: Tensor
    end: Tensor
    history: Memory
    stack: Tensor
    height: Tensor
    opened: Tensor
    open: Tensor
    vectors: Tensor
    hidden: Tensor
    cell: Tensor
    used: int
    rules: ValidTransitions | None
    progress: ParseState | None
    has_started: bool = False

    def add(self, vectors: Tensor, hidden: Tensor, cell: Tensor) -> RNNGState:
        """Returns a state with entries added to the pool, from index `used` on."""
        after = self.used + len(vectors)
        pool = {}
        for name, more in (("vectors", vectors), ("hidden", hidden), ("cell", cell)):
            old = getattr(self, name)
            if len(old) < after:  # doubling makes the amortized cost of copies constant
                grown = old.new_zeros(2 * after, *old.shape[1:])
                grown[: self.used] = old[: self.used]
                old = grown
            old[self.used : after] = more
            pool[name] = old
        return dataclasses.replace(self, **pool, used=after)


@register_model("rnng")
class RNNG(T2TModel):
    """Parser with a stack LSTM and composition of constituents from their children."""

    HParams = RNNGHParams
    hparams: RNNGHParams
    produces = (TreeFeature,)
    reads = (Text, OfWords)
    texts = (1, 1)

    def __init__(self, hparams: RNNGHParams, features: Features) -> None:
        super().__init__(hparams, features)
        if hparams.valid_actions_only:
            hparams.refuse(
                ("label_smoothing", "confidence_penalty", "r_drop_alpha", "r3f_weight"),
                " reads the probabilities of all transitions, and valid_actions_only=True leaves "
                "some without. Set one of them to 0.",
            )
        size, layers = hparams.hidden_size, hparams.num_hidden_layers
        rate = hparams.layer_prepostprocess_dropout
        ((self._name, target),) = features.targets.items()
        assert isinstance(target, TreeFeature)
        self._target = target
        (self._text,) = texts_of(features)
        self.tokens = Tokens(features, hparams, self._text)
        self.dropout = Dropout(rate)
        width = self.tokens.size
        if hparams.num_encoder_layers:
            self.encoder = LSTM(
                width, size, hparams.num_encoder_layers, bidirectional=True, dropout=rate
            )
            width = self.encoder.size
        self.buffer = LSTM(width, size, layers, dropout=rate)
        self.history = LSTM(size, size, layers, dropout=rate)
        self.stack = StackLSTM(size, layers, rate)
        self.compose = {"sum": SumComposition, "blstm": BLSTMComposition}[hparams.composition](size)
        self.summary = nn.Linear(3 * size, size)
        initialize(self, hparams)
        initialize_lstm(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`.

        All transitions are known: the buffer and the history need one pass each, constituents are
        composed by depth, and the stack is processed by height.
        """
        ids, labels = (
            features[self._name].values,
            features[self._name].embedded,
        )  # [B, T], [B, T, H]
        buffer, words = self._buffer(features)  # [B, S + 1, H], [B]
        places = buffer.size(1)
        structure = structure_of(ids, places - 1)
        nothing = buffer.new_zeros(1, buffer.size(2))
        buffer = buffer.flatten(0, 1)
        sources = torch.cat([buffer, labels.flatten(0, 1)])
        vectors = torch.cat([nothing, sources.index_select(0, structure.sources)])
        for members in structure.composed:
            parts = vectors.index_select(0, members.flatten()).view(*members.shape, -1)
            vectors = torch.cat([vectors, self.compose(parts, members != 0)])
        pushed = vectors.index_select(0, structure.vectors)
        stacks = torch.cat([nothing, self.stack(pushed, structure.heights)])
        rows = torch.arange(len(ids), device=ids.device)[:, None] * places
        fronts = rows + structure.fronts.clamp(max=places - 1)
        before = F.pad(labels, (0, 0, 1, -1))
        parts_of = [
            buffer.index_select(0, fronts.flatten()).view_as(labels),
            stacks.index_select(0, structure.tops.flatten()).view_as(labels),
            self.history(before, features[self._name].mask),
        ]
        valid = self._valid(ids, words) if self.hparams.valid_actions_only else None
        return {self._name: Hidden(self._summary(parts_of), valid)}

    def _buffer(self, features: ModelInputs) -> tuple[Tensor, Tensor]:
        """Returns the states of the buffer before each word and at the end, and word counts.

        It reads the words in reverse: [B, S + 1, H], zeros from the end on; [B].
        """
        x = self.dropout(self.tokens(features))
        if self.hparams.num_encoder_layers:
            x = self.dropout(self.encoder(x, features[self._text].mask))
        x = self.tokens.places.at_words(self._text, x, features)
        mask = self.tokens.places.mask(self._text, features)
        backward = backward_places(mask)
        x = turned(self.buffer(turned(x, backward), mask), backward)
        return F.pad(x, (0, 0, 0, 1)), mask.sum(1)

    def _summary(self, parts: list[Tensor]) -> Tensor:
        """Returns the input of the softmax, given buffer, stack and history.  [..., H] each."""
        return torch.relu(self.summary(torch.cat([self.dropout(part) for part in parts], -1)))

    def _valid(self, ids: Tensor, words: Tensor) -> Tensor:
        """Returns the mask of valid transitions; the given ones are valid.  [B, T, V] bool."""
        rules = ValidTransitions(self._target, _MAX_OPEN, ids.device)
        progress = rules.start(words)
        valid = []
        for t in range(ids.size(1)):
            valid.append(rules.valid(progress))
            progress = rules.after(ids[:, t], progress)
        followed = torch.stack(valid, 1).scatter(2, ids[..., None], value=True)
        return self._filled_up(followed)

    def _filled_up(self, valid: Tensor) -> Tensor:
        """Pads the mask to the width of the logits (`vocab_divisor`) with False."""
        bottom: Any = self.modalities[self._name].bottom
        return F.pad(valid, (0, len(bottom.weight) - valid.size(-1)))

    def encode(self, batch: dict[str, Tensor]) -> RNNGState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        inputs = {name: values for name, values in batch.items() if name != self._name}
        buffer, words = self._buffer(self.bottom(inputs))
        size, layers = buffer.size(2), self.hparams.num_hidden_layers
        front = torch.arange(len(buffer), device=buffer.device) * buffer.size(1)
        zeros = torch.zeros_like(front)
        rules = progress = None
        if self.hparams.valid_actions_only:
            rules = ValidTransitions(self._target, _MAX_OPEN, buffer.device)
            progress = rules.start(words)
        return RNNGState(
            buffer=buffer.flatten(0, 1),
            front=front,
            end=front + words,
            history=Memory(*(buffer.new_zeros(layers, len(front), size) for _ in range(2))),
            stack=zeros[:, None],
            height=zeros,
            opened=zeros[:, None],
            open=zeros,
            vectors=buffer.new_zeros(1, size),
            hidden=buffer.new_zeros(1, layers, size),
            cell=buffer.new_zeros(1, layers, size),
            used=1,
            rules=rules,
            progress=progress,
        )

    def step(self, ids: Tensor, state: RNNGState) -> tuple[Tensor, RNNGState]:
        """Runs a decoding step of transitions; see `T2TModel.step`."""
        labels = self.embed(self._name, ids[:, None])[:, 0]
        if state.has_started:
            state = self._push(ids, labels, state)
        out, history = self.history.run(labels[:, None], None, state.history)
        state = dataclasses.replace(state, history=history, has_started=True)
        top = state.stack.gather(1, state.height[:, None])[:, 0]
        parts = [
            state.buffer.index_select(0, torch.minimum(state.front, state.end)),
            state.hidden[:, -1].index_select(0, top),
            out[:, 0],
        ]
        logits = self.top(Hidden(self._summary(parts)), self._name)
        if state.rules is not None and state.progress is not None:
            state.progress = state.rules.after(ids, state.progress)
            valid = self._filled_up(state.rules.valid(state.progress))
            logits = logits.masked_fill(~valid, -torch.inf)
        return logits, state

    def _push(self, ids: Tensor, labels: Tensor, state: RNNGState) -> RNNGState:
        """Returns the state after a transition of each row; PAD and EOS have no effect."""
        shifts, reduces, opens = ids == SHIFT_ID, ids == REDUCE_ID, ids > REDUCE_ID
        word = state.buffer.index_select(0, torch.minimum(state.front, state.end))
        vectors = torch.where(shifts[:, None], word, labels)
        last = state.opened.gather(1, (state.open - 1).clamp(min=0)[:, None])[:, 0]
        base = torch.where(state.open > 0, last, 1)
        below = torch.where(reduces, torch.minimum(base - 1, state.height), state.height)
        rows = reduces.nonzero().flatten()
        if len(rows):
            count = (state.height - base + 1)[rows]
            places = torch.arange(max(int(count.max()), 1), device=ids.device)
            at = (base[rows, None] + places).clamp(max=state.stack.size(1) - 1)
            there = places < count[:, None]
            members = torch.where(there, state.stack[rows].gather(1, at), 0)
            composed = self.compose(state.vectors[members], there)
            vectors = vectors.index_copy(0, rows, composed.to(vectors.dtype))
        on = state.stack.gather(1, below[:, None])[:, 0]
        memory = self.stack.push(vectors, state.hidden[on], state.cell[on])
        pushes = shifts | reduces | opens
        height = torch.where(pushes, below + 1, state.height)[:, None]
        place = torch.where(pushes, state.used + torch.arange(len(ids), device=ids.device), on)
        stack = F.pad(state.stack, (0, 1))
        kept = torch.where(pushes, place, stack.gather(1, height)[:, 0])
        opened = F.pad(state.opened, (0, 1))
        open_now = (state.open - reduces.long()).clamp(min=0)
        stands = torch.where(opens, height[:, 0], opened.gather(1, open_now[:, None])[:, 0])
        state = state.add(vectors, *memory)
        return dataclasses.replace(
            state,
            front=torch.minimum(state.front + shifts.long(), state.end),
            stack=stack.scatter(1, height, kept[:, None]),
            height=height[:, 0],
            opened=opened.scatter(1, open_now[:, None], stands[:, None]),
            open=open_now + opens.long(),
        )
