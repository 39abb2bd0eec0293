"""Recurrence in depth: a block of Transformer layers applied several times to each position.

Dehghani et al. 2019, "Universal Transformers", arXiv:1807.03819; halting as in Graves 2016,
"Adaptive Computation Time for Recurrent Neural Networks", arXiv:1603.08983; in tensor2tensor's form
(models/research/universal_transformer_util.py).

A position's states after each step do not depend on when it or others halt: halting only decides
which of them are in the output.  So a decoder can cache keys and values of each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.pooling import mean
from t2t_torch.layers.tokens import PenalizedLayer
from t2t_torch.layers.transformer_layer import Joined, Preprocess, sinusoids

Block = Callable[[Tensor, int], Tensor]
"""The layers of a step: (state [B, T, H], number of the step) -> [B, T, H]."""
SharedHalting = Callable[[Tensor, int], Tensor]
"""Halting probabilities of positions that halt together, of each by itself: [B, T] -> [B, T]."""


PACKED = (
    "act_type=global: the examples of a packed row would halt together. Set "
    "--hparams=pack_dataset=False."
)
"""Message about packed rows."""


class DepthRecurrence(PenalizedLayer):
    """Steps of a block, with signals of position and step before each.

    Its penalty in TRAIN is the weighted mean of the steps and the remainder of an example's
    positions, if they halt by themselves (`recurrence_type=act`).

    Args:
      hparams: hyperparameters of a Transformer, with those of `RecurrenceHParams`.

    Raises:
      HParamsError: positions halt together, and rows are packed.

    Attributes:
      steps: greatest number of steps.
      ponder: of the last pass in TRAIN with recurrence_type=act: steps and remainder of each
        position, [B, T]; else None.
    """

    def __init__(self, hparams: Any) -> None:
        super().__init__()
        self.hparams = hparams
        if self.halts_together and hparams.pack_dataset:
            raise HParamsError(PACKED)
        self.steps: int = hparams.steps(hparams.num_hidden_layers)
        self.ponder: Tensor | None = None
        size = hparams.hidden_size
        if hparams.add_step_timing_signal and hparams.step_timing_signal_type == "learned":
            self.step_embedding = nn.Parameter(torch.randn(self.steps, size) * size**-0.5)
        self.cell = _CELLS[hparams.recurrence_type](hparams)
        is_random = hparams.act_type == "random"
        if hparams.recurrence_type == "act" and not is_random:
            self.halting = nn.Linear(size, 1)
        initialize(self, hparams)
        self.cell.initialize_biases()
        if hparams.recurrence_type == "act" and not is_random:
            nn.init.constant_(self.halting.bias, hparams.act_halting_bias_init)

    @property
    def halts_together(self) -> bool:
        """True if the positions of an example share their halting probability."""
        return bool(self.hparams.recurrence_type == "act" and self.hparams.act_type == "global")

    __call__: Callable[..., Tensor]

    def forward(
        self,
        x: Tensor,
        block: Block,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        shared: SharedHalting | None = None,
    ) -> Tensor:
        """Returns the states after the last step.

        Args:
          x: first states, [B, T, H].
          block: the layers of a step.
          mask: positions that count in the penalty, [B, T] bool; None: a step of a decode, which
            runs all steps.
          positions: [T] or [B, T] integers; None: from 0.
          shared: averages halting probabilities, for `halts_together`.

        Returns:
          [B, T, H].
        """

        def run(state: Tensor, step: int) -> Tensor:
            return block(self._with_signals(state, step, positions), step)

        if self.hparams.recurrence_type == "act":
            return self._until_halted(x, block, mask, positions, shared)
        state, memory = x, self.cell.start(x)
        for step in range(self.steps):
            state, memory = self.cell(step, state, x, memory, run)
        return state

    def _with_signals(self, x: Tensor, step: int, positions: Tensor | None) -> Tensor:
        """Returns states with the signals of their positions and of the step.  [B, T, H]."""
        size = x.size(-1)
        if self.hparams.add_position_timing_signal:
            if positions is None:
                positions = torch.arange(x.size(1), device=x.device)
            x = x + sinusoids(positions, size).to(x.dtype)
        if not self.hparams.add_step_timing_signal:
            return x
        if self.hparams.step_timing_signal_type == "learned":
            signal: Tensor = self.step_embedding[step] * size**0.5
        else:
            signal = sinusoids(torch.tensor(step, device=x.device), size)
        return x + signal.to(x.dtype)

    def _until_halted(
        self,
        x: Tensor,
        block: Block,
        mask: Tensor | None,
        positions: Tensor | None,
        shared: SharedHalting | None,
    ) -> Tensor:
        """Runs steps until all positions have halted; see `forward`.

        A position halts when the sum of its probabilities is above 1 - act_epsilon, and its last
        step has what is left to 1.
        """
        threshold = 1.0 - self.hparams.act_epsilon
        state, output = x, torch.zeros_like(x)
        total = x.new_zeros(x.shape[:2], dtype=torch.float32)
        updates, remainders = torch.zeros_like(total), torch.zeros_like(total)
        for step in range(self.steps):
            state = self._with_signals(state, step, positions)
            p = self._probabilities(state, step, shared)  # [B, T]
            running = total < 1.0
            ends = running & (total + p > threshold)
            goes = (running & ~ends).float()
            total = total + p * goes
            remainders = remainders + ends * (1.0 - total)
            total = total + ends * remainders
            updates = updates + running
            weight = (p * goes + ends * remainders)[..., None].to(x.dtype)
            state = block(state, step)
            kept = output if self.hparams.act_type == "accumulated" else output * (1.0 - weight)
            output = state * weight + kept
            if mask is not None and not torch.compiler.is_compiling() and bool((total >= 1).all()):
                break
        if self.training and mask is not None:
            ponder = updates + remainders
            self.ponder = ponder.detach()
            if self.hparams.act_loss_weight:
                counted = mask.float()
                steps = (ponder * counted).sum(1) / counted.sum(1).clamp(min=1.0)
                self.penalty = self.hparams.act_loss_weight * steps
        return output

    def _probabilities(self, state: Tensor, step: int, shared: SharedHalting | None) -> Tensor:
        """Returns the halting probability of each position.  [B, T, H] -> [B, T] float32."""
        if self.hparams.act_type == "random":
            p = state.new_full(state.shape[:2], 0.5, dtype=torch.float32)
            return p.uniform_() if self.training else p
        p = self.halting(state).squeeze(-1).float().sigmoid()
        if self.halts_together and shared is not None:
            p = shared(p, step)
        return p


def run_encoder(
    recurrence: DepthRecurrence, layers: nn.ModuleList, x: Tensor, mask: Tensor, joined: Joined
) -> Tensor:
    """Runs all steps of an encoder.

    Args:
      recurrence: the steps.
      layers: of the block.
      x: [B, S, H].
      mask: attention mask, [B, 1, 1 or S, S] bool.
      joined: mask and positions of the inputs.

    Returns:
      [B, S, H].
    """

    def block(state: Tensor, step: int) -> Tensor:
        for layer in layers:
            state = layer(state, mask)
        return state

    def shared(p: Tensor, step: int) -> Tensor:
        return mean(p[..., None], joined.mask).expand_as(p)

    return recurrence(x, block, joined.mask, joined.positions, shared)


class BasicCell(nn.Module):
    """The block's output is the next state.

    Args:
      hparams: see `DepthRecurrence`.
    """

    def __init__(self, hparams: Any) -> None:
        super().__init__()

    def initialize_biases(self) -> None:
        """Sets biases that do not start at 0."""

    def start(self, x: Tensor) -> list[Tensor]:
        """Returns the memory before the first step.  [B, T, H]."""
        return []

    def forward(
        self, step: int, state: Tensor, first: Tensor, memory: list[Tensor], run: Block
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the state and the memory after a step.

        Args:
          step: number of the step.
          state: [B, T, H].
          first: state before the first step, [B, T, H].
          memory: what the cell keeps of earlier steps.
          run: the block, with signals.
        """
        return run(state, step), memory


class GatedCell(BasicCell):
    """Mixes the block's output with the state before it (highway), or with the first (skip).

    Srivastava et al. 2015, "Highway Networks", arXiv:1505.00387.
    """

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self.from_first = hparams.recurrence_type == "skip"
        self.reads = hparams.gates_inputs
        self.bias = hparams.transform_bias_init
        self.transform = SigmoidGate(hparams)
        self.carry = None if hparams.couple_carry_transform_gates else SigmoidGate(hparams)

    def initialize_biases(self) -> None:
        """Sets the biases of the gates."""
        nn.init.constant_(self.transform.linear.bias, self.bias)
        if self.carry is not None:
            nn.init.constant_(self.carry.linear.bias, -self.bias)

    def forward(
        self, step: int, state: Tensor, first: Tensor, memory: list[Tensor], run: Block
    ) -> tuple[Tensor, list[Tensor]]:
        """See `BasicCell.forward`."""
        output = run(state, step)
        given = {"s": state, "t": output, "i": first}
        inputs = [given[letter] for letter in "sti" if letter in self.reads]
        share = self.transform(inputs)
        kept = 1.0 - share if self.carry is None else self.carry(inputs)
        return (first if self.from_first else state) * kept + output * share, memory


class SigmoidGate(nn.Module):
    """Sigmoid of a linear map of several normalized inputs.

    Args:
      hparams: hidden_size, gates_inputs, and what stands before a sublayer.
    """

    def __init__(self, hparams: Any) -> None:
        super().__init__()
        count = len(set(hparams.gates_inputs))
        self.before = nn.ModuleList(Preprocess(hparams) for _ in range(count))
        self.linear = nn.Linear(count * hparams.hidden_size, hparams.hidden_size)

    def forward(self, inputs: list[Tensor]) -> Tensor:
        """[B, T, H] of each input -> [B, T, H] from 0 to 1."""
        read = [before(x) for before, x in zip(self.before, inputs, strict=True)]
        gate: Tensor = self.linear(torch.cat(read, -1)).sigmoid()
        return gate


class DepthwiseAttentionCell(BasicCell):
    """The block reads a weighted sum of the states before the last step.

    As in tensor2tensor the weights are a softmax over the units of a state, and the sum of step n
    has the first n of the states, the inputs included: that of step 0 has none.
    """

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        size = hparams.hidden_size
        self.weights = nn.Linear(size, size if hparams.dwa_elements else 1)
        self.depth_embedding: nn.Parameter | None = None
        if hparams.depth_embedding:
            steps = hparams.steps(hparams.num_hidden_layers)
            self.depth_embedding = nn.Parameter(torch.randn(steps + 1, size) * size**-0.5)

    def start(self, x: Tensor) -> list[Tensor]:
        """Returns the first state."""
        return [x]

    def forward(
        self, step: int, state: Tensor, first: Tensor, memory: list[Tensor], run: Block
    ) -> tuple[Tensor, list[Tensor]]:
        """See `BasicCell.forward`."""
        mixed = torch.zeros_like(first)
        for depth, one in enumerate(memory[:step]):
            if self.depth_embedding is not None:
                one = one + self.depth_embedding[depth] * one.size(-1) ** 0.5
            mixed = mixed + one * self.weights(one).softmax(-1)
        state = run(mixed, step)
        return state, [*memory, state]


class RecurrentCell(BasicCell):
    """Base class of recurrent cells over the steps, with norms before and behind."""

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self.before, self.after = Preprocess(hparams), Preprocess(hparams)


class GRUCell(RecurrentCell):
    """Gated recurrent unit; as in tensor2tensor the update gate keeps the block's output, not the
    state.  Cho et al. 2014, arXiv:1406.1078.
    """

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        size = hparams.hidden_size
        self.update = nn.Linear(2 * size, size)
        self.reset = nn.Linear(2 * size, size)
        self.candidate = nn.Linear(2 * size, size)

    def initialize_biases(self) -> None:
        """Sets the biases of both gates to 1."""
        nn.init.ones_(self.update.bias)
        nn.init.ones_(self.reset.bias)

    def forward(
        self, step: int, state: Tensor, first: Tensor, memory: list[Tensor], run: Block
    ) -> tuple[Tensor, list[Tensor]]:
        """See `BasicCell.forward`."""
        x = self.before(run(state, step))
        both = torch.cat([x, state], -1)
        update, reset = self.update(both).sigmoid(), self.reset(both).sigmoid()
        candidate = self.candidate(torch.cat([x, reset * state], -1)).tanh()
        return self.after((1.0 - update) * x + update * candidate), memory


class LSTMCell(RecurrentCell):
    """Long short-term memory.  Hochreiter and Schmidhuber 1997."""

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self.forget_bias = hparams.lstm_forget_bias
        size = hparams.hidden_size
        self.input_gate, self.forget_gate, self.output_gate, self.modulation = (
            nn.Linear(2 * size, size) for _ in range(4)
        )

    def start(self, x: Tensor) -> list[Tensor]:
        """Returns zeros."""
        return [torch.zeros_like(x)]

    def forward(
        self, step: int, state: Tensor, first: Tensor, memory: list[Tensor], run: Block
    ) -> tuple[Tensor, list[Tensor]]:
        """See `BasicCell.forward`."""
        both = torch.cat([self.before(run(state, step)), state], -1)
        forget = torch.sigmoid(self.forget_gate(both) + self.forget_bias)
        cell = memory[0] * forget + self.input_gate(both).sigmoid() * self.modulation(both).tanh()
        return self.after(cell.tanh() * self.output_gate(both).sigmoid()), [cell]


_CELLS: dict[str, type[BasicCell]] = {
    "basic": BasicCell,
    "act": BasicCell,
    "highway": GatedCell,
    "skip": GatedCell,
    "dwa": DepthwiseAttentionCell,
    "gru": GRUCell,
    "lstm": LSTMCell,
}


class NoSublayer(nn.Module):
    """Takes the place of a sublayer or of what stands around it: returns its first argument."""

    def forward(self, x: Tensor, *_: Tensor) -> Tensor:
        """Returns `x`."""
        return x


def without_feed_forward(layers: nn.ModuleList, hparams: Any) -> None:
    """Removes the feed-forward networks of layers whose cell takes their place."""
    is_cell = hparams.recurrence_type in ("gru", "lstm")
    if is_cell and not hparams.add_ffn_unit_to_the_transition_function:
        for layer in layers:
            for name in ("feed_forward_before", "feed_forward", "feed_forward_after"):
                setattr(layer, name, NoSublayer())
