"""Hyperparameters of Transformers that are recurrent in depth; see `layers/depth_recurrence.py`."""

from __future__ import annotations

from typing import ClassVar, Literal

from t2t_torch.params import Params, hp


class RecurrenceHParams(Params):
    """Recurrence in depth: one block of layers, applied several times."""

    computes: ClassVar[bool] = True

    recurrence_type: Literal["basic", "act", "highway", "skip", "dwa", "gru", "lstm"] = hp(
        "basic",
        "State of a position after a step.  basic: the block's output; act: it stops after as many "
        "steps as it needs; highway and skip: gated with the state before, or with the first; dwa: "
        "the block reads a sum over the states before; gru and lstm: a recurrent cell replaces the "
        "feed-forward network.",
    )
    num_rec_steps: int = hp(0, "Steps.  0: num_hidden_layers.", low=0, high=10_000)
    num_inrecurrence_layers: int = hp(1, "Layers of the block.", low=1, high=10_000)
    add_position_timing_signal: bool = hp(
        True, "Each step adds sinusoids of the position, and pos=timing adds nothing."
    )
    add_step_timing_signal: bool = hp(
        True, "Each step adds a vector of its number.  gru and lstm need none."
    )
    step_timing_signal_type: Literal["learned", "sinusoid"] = hp("learned", "Kind of that vector.")
    gates_inputs: str = hp(
        "i",
        "highway and skip: what the gates read.  i: the block's first input; s: the state; t: the "
        "block's output.",
        pattern="^[sti]+$",
    )
    transform_bias_init: float = hp(
        -1.0, "highway and skip: initial bias of the gate of the block's output.", computes=False
    )
    couple_carry_transform_gates: bool = hp(
        True, "highway and skip: the two gates sum to 1, else each is learned."
    )
    depth_embedding: bool = hp(True, "dwa: a learned vector of its step is added to each state.")
    dwa_elements: bool = hp(True, "dwa: each unit of a state has a weight, else each position.")
    add_ffn_unit_to_the_transition_function: bool = hp(
        False, "gru and lstm: a feed-forward network comes before the cell."
    )
    lstm_forget_bias: float = hp(1.0, "lstm: added to the forget gate.")
    act_type: Literal["basic", "accumulated", "global", "random"] = hp(
        "basic",
        "act: halting.  basic: each position, the output is a running mean of the states; "
        "accumulated: it is their weighted sum; global: all positions so far halt together; "
        "random: as basic, with random probabilities in training.",
    )
    act_max_steps: int = hp(
        0, "act: most steps of a position.  0: 2 num_hidden_layers.", low=0, high=10_000
    )
    act_halting_bias_init: float = hp(
        1.0, "act: initial bias of the halting probability.", computes=False
    )
    act_epsilon: float = hp(
        0.01, "act: a position halts when its probability is above 1 - this.", above=0, below=1
    )
    act_loss_weight: float = hp(
        0.01,
        "act: factor on the mean number of steps and remainder in the training loss.",
        low=0,
        computes=False,
    )

    def steps(self, num_hidden_layers: int) -> int:
        """Returns the greatest number of steps.

        Args:
          num_hidden_layers: for settings of 0.
        """
        if self.recurrence_type == "act":
            return self.act_max_steps or 2 * num_hidden_layers
        return self.num_rec_steps or num_hidden_layers
