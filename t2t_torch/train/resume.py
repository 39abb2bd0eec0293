"""Whether a run may go on as it is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t2t_torch.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.hparam import HParams

MAY_CHANGE = frozenset(
    {
        "activation_dtype",
        "attention_dropout",
        "clip_grad_norm",
        "eval_drop_long_sequences",
        "label_smoothing",
        "layer_prepostprocess_dropout",
        "learning_rate",
        "learning_rate_boundaries",
        "learning_rate_constant",
        "learning_rate_cosine_cycle_steps",
        "learning_rate_decay_rate",
        "learning_rate_decay_scheme",
        "learning_rate_decay_staircase",
        "learning_rate_decay_steps",
        "learning_rate_minimum",
        "learning_rate_multiples",
        "learning_rate_schedule",
        "learning_rate_warmup_steps",
        "optimizer_adam_beta1",
        "optimizer_adam_beta2",
        "optimizer_adam_epsilon",
        "optimizer_multistep_accumulate_steps",
        "pad_batch",
        "relu_dropout",
        "symbol_dropout",
        "weight_decay",
    }
)
"""Fields that may differ from those a run began with: neither the weights' shapes nor the order of
the data depend on them.  (`batches_per_step` has a check of its own.)"""


def changed_fields(before: HParams, now: HParams) -> list[str]:
    """Returns "name: old -> new" for what a resumed run changes.

    Raises:
      CheckpointError: a field that may not change has changed; all are listed.
    """
    fields = type(now).model_fields
    changes = {
        name: (getattr(before, name), getattr(now, name))
        for name in fields
        if getattr(before, name) != getattr(now, name)
    }
    refused = sorted(set(changes) - MAY_CHANGE)
    if refused:
        listed = ", ".join(
            f"{name} was {changes[name][0]}, is {changes[name][1]}" for name in refused
        )
        mend = ",".join(f"{name}={changes[name][0]}" for name in refused)
        raise CheckpointError(
            f"this output_dir was begun with other hparams: {listed}. "
            f"Go on with --hparams={mend}, or train in another --output_dir."
        )
    return [f"{name}: {old} -> {new}" for name, (old, new) in sorted(changes.items())]


def check_seed(state: TrainerState, checkpoint: Path, seed: int | None) -> None:
    """Checks a seed that was asked for.

    Raises:
      CheckpointError: it is not the one that the run began with.
    """
    if seed is not None and seed != state.seed:
        raise CheckpointError(
            f"{checkpoint} was trained with --random_seed={state.seed}, not {seed}. Leave the "
            "flag out to go on, or train in another --output_dir."
        )


def check_position(
    state: TrainerState, checkpoint: Path, *, fingerprint: str, accumulate: int, world_size: int
) -> None:
    """Checks that the batches to come are those that would have come.

    Args:
      state: of the checkpoint.
      checkpoint: its folder, for the message.
      fingerprint: of the plan now.
      accumulate: micro-batches per step and process now.
      world_size: processes now.

    Raises:
      CheckpointError: the data, its order or the size of a step is another one.
    """
    if state.batches_per_step != accumulate * world_size:
        fitting, rest = divmod(state.batches_per_step, world_size)
        mend = (
            f"--hparams=optimizer_multistep_accumulate_steps={fitting}"
            if not rest
            else f"a number of processes that divides {state.batches_per_step}"
        )
        raise CheckpointError(
            f"a step of {checkpoint} is {state.batches_per_step} batches; here it is "
            f"{accumulate * world_size} ({world_size} processes, {accumulate} each). Go on with "
            f"{mend}."
        )
    version, made_by = (known.rpartition("-")[0] for known in (fingerprint, state.plan_fingerprint))
    if version != made_by:
        raise CheckpointError(
            f"{checkpoint} is of another version of t2t_torch, which gave the training data "
            f"another order (order {made_by or 1}; here it is {version or 1}). Go on with that "
            "version, or train in another --output_dir."
        )
    if state.plan_fingerprint != fingerprint:
        raise CheckpointError(
            f"the training data of {checkpoint} came in another order: its plan is "
            f"{state.plan_fingerprint}, here it is {fingerprint}. The shards in --data_dir were "
            "generated anew with another result, or batch_size, max_length, the buckets' hparams, "
            "--random_seed, or the problems or the mixing_schedule of a mixture changed. Restore "
            "them, or train in another --output_dir."
        )
