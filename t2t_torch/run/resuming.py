"""Rules of resuming: what a resumed run may change, and where its data continues."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from t2t_torch.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from t2t_torch.hparam import HParams
    from t2t_torch.run.checkpoint import TrainerState


_FIXED = frozenset(
    (
        "freeze optimizer optimizer_adafactor_beta1 optimizer_adafactor_factored "
        "optimizer_muon_excludes scheduled_sampling_method swa_every swa_patience "
        "swa_start_step"
    ).split()
)
"""Fields of losses, regularization, optimization and precision that a resumed run must not change:
they determine what the optimizer or the average of the weights stores."""

_CHANGEABLE = frozenset(
    (
        "attention_dropout eval_drop_long_sequences eval_stream_rows lora_dropout "
        "multiproblem_weights pad_batch pretrained_embeddings relu_dropout shuffle_block_size "
        "singleton_dropout word_dropout"
    ).split()
)
"""Fields of data and models that a resumed run may change: neither the shapes of the weights nor
the order of the data depend on them; that of a large split on `shuffle_block_size`, which is in the
fingerprint of the order.  (`batches_per_step` is checked separately.)"""


@functools.cache
def fields_that_may_change() -> frozenset[str]:
    """Returns the names of the hyperparameters that a resumed run may change."""
    from t2t_torch import hparam  # large module, not needed by --help

    groups = (
        hparam.LossHParams,
        hparam.RegularizationHParams,
        hparam.ScheduledSamplingHParams,
        hparam.OptimizationHParams,
        hparam.PrecisionHParams,
        hparam.ReportHParams,
    )
    names = {name for group in groups for name in group.model_fields}
    return frozenset(names - _FIXED | _CHANGEABLE)


def changed_fields(
    before: HParams, now: HParams, *, resume_data: str = "exact", trains: bool = True
) -> list[str]:
    """Returns "name: old -> new" for each hyperparameter that a resumed run changes.

    Args:
      before: hyperparameters of the run.
      now: requested hyperparameters.
      resume_data: unless "exact", fields of the data may change, too.
      trains: True if training continues; False if the run is only read.

    Raises:
      CheckpointError: a field changed that must not change; all are listed.
    """
    from t2t_torch.hparam import DataHParams

    changes = {
        name: (getattr(before, name), getattr(now, name))
        for name in type(now).model_fields
        if getattr(before, name) != getattr(now, name)
    }
    allowed = set(fields_that_may_change())
    if resume_data != "exact":
        allowed.update(DataHParams.model_fields)
    if refused := sorted(set(changes) - allowed):
        listed = ", ".join(
            f"{name} was {changes[name][0]}, is {changes[name][1]}" for name in refused
        )
        restored = ",".join(f"{name}={changes[name][0]}" for name in refused)
        go_on = f"Resume with --hparams={restored}, or train in another --output_dir."
        leave = f"Leave {', '.join(refused)} as trained (--hparams={restored}, or nothing)."
        raise CheckpointError(
            f"this output_dir was started with other hparams: {listed}. "
            + (go_on if trains else leave)
        )
    return [f"{name}: {old} -> {new}" for name, (old, new) in sorted(changes.items())]


def check_seed(state: TrainerState, checkpoint: Path, seed: int | None) -> None:
    """Checks a requested seed.

    Raises:
      CheckpointError: the run was started with another seed.
    """
    if seed is not None and seed != state.seed:
        raise CheckpointError(
            f"{checkpoint} was trained with --random_seed={state.seed}, not {seed}. Leave the "
            "flag out to resume, or train in another --output_dir."
        )


def same_position(
    state: TrainerState,
    checkpoint: Path,
    *,
    fingerprint: str,
    batches_per_step: int,
    processes: int,
    accumulate: str = "--hparams=optimizer_multistep_accumulate_steps={}",
) -> str:
    """Returns why the next batches differ from those of an uninterrupted run; "" if they do not.

    Args:
      state: state of the checkpoint.
      checkpoint: folder of the checkpoint, for the message.
      fingerprint: fingerprint of the present plan.
      batches_per_step: present micro-batches of all processes per step.
      processes: present number of training processes.
      accumulate: the flag that sets the batches of a process per step.
    """
    from t2t_torch.pipeline.streams import STREAMS_MARK  # imports torch

    if state.batches_per_step != batches_per_step:
        fitting, rest = divmod(state.batches_per_step, processes)
        remedy = (
            accumulate.format(fitting)
            if not rest
            else f"a number of processes that divides {state.batches_per_step}"
        )
        return (
            f"a step of {checkpoint} is {state.batches_per_step} batches; here it is "
            f"{batches_per_step} ({processes} processes, {batches_per_step // processes} each). "
            f"Resume with {remedy}; or with --keep_global_batch=True, which keeps the "
            f"{state.batches_per_step}, or =False, which takes the {batches_per_step}."
        )
    version, made_by = (known.rpartition("-")[0] for known in (fingerprint, state.plan_fingerprint))
    streams, before = (STREAMS_MARK in known for known in (version, made_by))
    if streams != before:
        text, examples = "as one text in streams (stream_length above 0)", "example by example"
        return (
            f"the training data of {checkpoint} was read {text if before else examples}, here it "
            f"is read {text if streams else examples}. Set stream_length as it was, or train in "
            "another --output_dir."
        )
    if version != made_by:
        return (
            f"{checkpoint} is of another version of t2t_torch, which gave the training data "
            f"another order (order {made_by or 1}; here it is {version or 1}). Resume with that "
            "version, or train in another --output_dir."
        )
    if state.plan_fingerprint != fingerprint:
        return (
            f"the training data of {checkpoint} came in another order: its plan is "
            f"{state.plan_fingerprint}, here it is {fingerprint}. {_why_another(version, streams)} "
            "Restore them, or train in another --output_dir."
        )
    return ""


def _why_another(version: str, streams: bool) -> str:
    """Returns the settings that determine the order of a plan, as possible changes."""
    if version.startswith("trial"):
        return "The trial's data, its training loader or its sampler, or --random_seed changed."
    settings = (
        "stream_length, stream_rows or --random_seed changed"
        if streams
        else "batch_size, max_length, the buckets' hparams, shuffle_block_size, --random_seed, or "
        "the problems or the mixing_schedule of a mixture changed"
    )
    return f"The shards in --data_dir were generated again with another result, or {settings}."


def new_position(
    state: TrainerState, checkpoint: Path, fault: str, *, resume_data: str, epoch_batches: int
) -> int:
    """Returns the global batch at which a run with changed data resumes.

    Args:
      state: state of the checkpoint.
      checkpoint: folder of the checkpoint, for the message.
      fault: reason why the data cannot continue unchanged.
      resume_data: exact, restart or approx.
      epoch_batches: present number of global batches per epoch; 0 if unknown.

    Raises:
      CheckpointError: `resume_data` is exact; or approx, and epochs cannot be compared.
    """
    if resume_data == "restart":
        return 0
    if resume_data == "approx":
        if state.epoch_batches and epoch_batches:
            return round(state.batches_consumed / state.epoch_batches * epoch_batches)
        raise CheckpointError(
            f"--resume_data=approx: the epochs of {checkpoint} and of the data here cannot be "
            "compared, as problems are mixed. Say --resume_data=restart."
        )
    raise CheckpointError(
        f"{fault}\nOr choose where the data resumes: --resume_data=approx from the same fraction "
        "of the epoch, --resume_data=restart from its beginning."
    )
