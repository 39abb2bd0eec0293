"""Flags of tensor2tensor's commands that the commands here do not have.

Flags without an effect here are left out, with a message if a value was meant to have one.  Others
are unknown flags; the error names what there is instead.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

_NO_TPU = "TPUs are not supported. Leave it out; the device is chosen automatically."
_PROCESSES = (
    "start several processes with torchrun: "
    "torchrun --nproc-per-node=2 -m t2t_torch.bin.trainer ..."
)


class _Old(NamedTuple):
    """A flag of tensor2tensor.

    Attributes:
      instead: what there is instead, as the end of a sentence.
      same: values that mean what the commands here do anyway; None: all values.
      boolean: True if it is given without a value.
    """

    instead: str
    same: tuple[str, ...] | None = None
    boolean: bool = False


def _unused(
    names: str, why: str = "it has no effect here", *, boolean: bool = False
) -> dict[str, _Old]:
    return dict.fromkeys(names.split(), _Old(why, None, boolean))


def _at(names: str, instead: str, *same: str, boolean: bool = False) -> dict[str, _Old]:
    return dict.fromkeys(names.split(), _Old(instead, same, boolean))


_OFF = ("false", "0", "")
OLD: Mapping[str, _Old] = {
    **_at("use_tpu use_tpu_estimator cloud_mlengine", _NO_TPU, *_OFF, boolean=True),
    **_at("cloud_tpu cloud_tpu_name tpu_name master", _NO_TPU, ""),
    **_unused("tpu_num_shards tpu_job_name tpu_infeed_sleep_secs iterations_per_loop"),
    **_unused("cloud_mlengine_master_type xla_jit_level std_server_protocol gpu_order"),
    **_at("xla_compile", "set --hparams=compile=true.", *_OFF, boolean=True),
    **_at("worker_gpu", _PROCESSES, "1", "0"),
    **_at("worker_replicas", _PROCESSES, "1"),
    **_at("worker_id ps_gpu ps_replicas", _PROCESSES, "0"),
    **_at("worker_job", _PROCESSES, "/job:localhost", "/job:worker"),
    **_unused("ps_job"),
    **_unused(
        "sync locally_shard_to_cpu", "gradients are always those of all processes", boolean=True
    ),
    **_at("optionally_use_dist_strat", _PROCESSES, *_OFF, boolean=True),
    **_unused("worker_gpu_memory_fraction inter_op_parallelism_threads"),
    **_unused("intra_op_parallelism_threads", "set OMP_NUM_THREADS"),
    **_unused(
        "log_device_placement enable_graph_rewriter use_guarantee_const_getter", boolean=True
    ),
    **_unused("disable_grappler_optimizations keep_timestamp", boolean=True),
    **_unused("export_saved_model_api_version"),
    **_unused("eval_throttle_seconds", "--local_eval_frequency sets when evaluations are made"),
    **_at("tfdbg", "TensorFlow's debugger has no equivalent. Leave it out.", *_OFF, boolean=True),
    **_at("dbgprofile", "use --hooks=profile.", *_OFF, boolean=True),
    **_at(
        "gpu_automatic_mixed_precision",
        "set --hparams=activation_dtype=float16.",
        *_OFF,
        boolean=True,
    ),
    **_at(
        "eval_run_autoregressive",
        "t2t-eval --output=FOLDER decodes and scores texts.",
        *_OFF,
        boolean=True,
    ),
    **_at("decode_in_memory", "t2t_torch.load(run_dir) decodes in memory.", *_OFF, boolean=True),
    **_at(
        "export_saved_model export_as_tfhub",
        "use the command t2t-exporter --output_dir=RUN --export_dir=FOLDER.",
        *_OFF,
        boolean=True,
    ),
    **_unused("model hparams_set", "the run directory names it"),
    **_unused("source", "sources do not count for BLEU"),
    "decoder_command": _Old("t2t-translate-all decodes itself. Leave it out.", ("",)),
    "num_shards": _Old(
        "use the attribute `shards` of the problem, or that key of a declaration.", ()
    ),
    "problems": _Old("use --problem; to train several problems together, name a mixture.", ()),
    **_at("task_id_start task_id_end", "use --task_id, once for each task."),
    **_at("job-dir", "use --output_dir."),
}
"""Flag of tensor2tensor -> what becomes of it."""


def hint(name: str) -> str:
    """Returns what there is instead of a flag, as a sentence; "" if it is none of tensor2tensor."""
    return f" It is a flag of tensor2tensor; here {OLD[name].instead}" if name in OLD else ""


def without_unused(known: Collection[str], arguments: Sequence[str]) -> list[str]:
    """Returns arguments without those flags of tensor2tensor that have no effect here.

    Args:
      known: names of the flags of the command.
      arguments: arguments of the command line.
    """
    kept: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, has_value, value = argument.lstrip("-").partition("=")
        is_negated = name.startswith("no") and name[2:] in OLD
        name = name[2:] if is_negated else name
        old = OLD.get(name)
        if not argument.startswith("-") or name in known or old is None:
            kept.append(argument)
            continue
        given = [argument]
        if not has_value:
            value = "false" if is_negated else "true"
            if not old.boolean and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
                given.append(value)
        if old.same is None:
            print(f"--{name} is left out: {old.instead}.", file=sys.stderr)
        elif value.lower() not in old.same:
            kept += given
    return kept
