"""Flags of tensor2tensor's commands that the commands here do not have.

Flags without an effect here are left out, with a message if a value was meant to have one.  Others
are unknown flags; the error names what there is instead.  tensor2tensor's commands for a trained
model had all flags of its trainer.
"""

from __future__ import annotations

import re
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
      refused: regular expression of values that are refused all the same.
    """

    instead: str
    same: tuple[str, ...] | None = None
    boolean: bool = False
    refused: str = ""


def _unused(
    names: str, why: str = "it has no effect here", *, boolean: bool = False
) -> dict[str, _Old]:
    return dict.fromkeys(names.split(), _Old(why, None, boolean))


def _at(names: str, instead: str, *same: str) -> dict[str, _Old]:
    return dict.fromkeys(names.split(), _Old(instead, same))


def _switch(names: str, instead: str) -> dict[str, _Old]:
    return dict.fromkeys(names.split(), _Old(instead, ("false", "0", ""), boolean=True))


OLD: Mapping[str, _Old] = {
    **_switch("use_tpu use_tpu_estimator cloud_mlengine", _NO_TPU),
    **_at("cloud_tpu cloud_tpu_name tpu_name master", _NO_TPU, ""),
    **_unused("tpu_num_shards tpu_job_name tpu_infeed_sleep_secs iterations_per_loop"),
    **_unused("cloud_mlengine_master_type xla_jit_level std_server_protocol gpu_order"),
    **_switch("xla_compile", "set --hparams=compile=true."),
    **_at("worker_gpu", _PROCESSES, "1", "0"),
    **_at("worker_replicas", _PROCESSES, "1"),
    **_at("worker_id ps_gpu ps_replicas", _PROCESSES, "0"),
    **_at("worker_job", _PROCESSES, "/job:localhost", "/job:worker"),
    **_unused("ps_job"),
    **_unused(
        "sync locally_shard_to_cpu", "gradients are always those of all processes", boolean=True
    ),
    **_switch("optionally_use_dist_strat", _PROCESSES),
    **_unused("worker_gpu_memory_fraction inter_op_parallelism_threads"),
    **_unused("intra_op_parallelism_threads", "use --threads"),
    **_unused(
        "log_device_placement enable_graph_rewriter use_guarantee_const_getter", boolean=True
    ),
    **_unused("disable_grappler_optimizations keep_timestamp", boolean=True),
    **_unused("export_saved_model_api_version"),
    **_unused("eval_throttle_seconds", "--local_eval_frequency sets when evaluations are made"),
    **_switch("tfdbg", "TensorFlow's debugger has no equivalent. Leave it out."),
    **_switch("dbgprofile", "use --hooks=profile."),
    **_switch("gpu_automatic_mixed_precision", "set --hparams=activation_dtype=float16."),
    **_switch("eval_run_autoregressive", "t2t-eval --output=FOLDER decodes and scores texts."),
    **_switch("decode_in_memory", "t2t_torch.load(run_dir) decodes in memory."),
    **_switch(
        "export_saved_model export_as_tfhub",
        "use the command t2t-exporter --output_dir=RUN --export_dir=FOLDER.",
    ),
    "problems": _Old("use --problem; to train several problems together, name a mixture.", ()),
    **_at(
        "num_shards",
        "use the attribute `shards` of the problem, or that key of a declaration.",
        "0",
    ),
    **_at("task_id_start task_id_end", "use --task_id, once for each task.", "-1"),
    **_at("job-dir", "use --output_dir."),
}
"""Flag of several commands of tensor2tensor -> what becomes of it."""

_OF_TRAINING: Mapping[str, _Old] = {
    **_unused("model hparams_set train_steps", "the run directory has it"),
    **_unused("hparams", "the run directory has them"),
    **_unused("schedule hparams_range autotune_objective", "it is for training"),
    **_unused("autotune_maximize generate_data profile", "it is for training", boolean=True),
    **_unused("autotune_max_trials autotune_parallel_trials tmp_dir", "it is for training"),
    **_unused("log_step_count_steps local_eval_frequency warm_start_from", "it is for training"),
    **_unused("keep_checkpoint_max keep_checkpoint_every_n_hours", "it is for training"),
    **_unused("save_checkpoints_secs eval_early_stopping_metric", "it is for training"),
    **_unused("eval_early_stopping_metric_delta", "it is for training"),
    **_unused("eval_early_stopping_steps", "it is for training"),
    **_unused("eval_early_stopping_metric_minimize", "it is for training", boolean=True),
    **_unused("eval_timeout_mins", "a checkpoint is not waited for"),
}
_OF_DECODING = _unused(
    "decode_from_file decode_to_file decode_reference", "t2t-decoder decodes files"
)
_NOTHING_RANDOM = _unused("random_seed", "nothing random happens")
_SAMPLING = "the run directory has them; settings of sampling are --decode_hparams"
_WITH_SAMPLING = _Old(_SAMPLING, None, refused=r"\bsampling_")

OF_COMMAND: Mapping[str, Mapping[str, _Old]] = {
    "t2t-decoder": {
        **_OF_TRAINING,
        **_unused("eval_steps", "--decode_hparams=num_samples=N decodes N examples"),
        "hparams": _WITH_SAMPLING,
        **_at("random_seed", "only sampling is random: use --decode_hparams=random_seed=N."),
        **_at("worker_id", "use --decode_hparams=shard_id=N.", "0"),
    },
    "t2t-eval": {**_OF_TRAINING, **_OF_DECODING, **_NOTHING_RANDOM},
    "t2t-exporter": {
        **_OF_TRAINING,
        **_OF_DECODING,
        **_NOTHING_RANDOM,
        "hparams": _WITH_SAMPLING,
        **_unused("eval_steps", "--verify_rows sets how many rows are compared"),
        **_unused("eval_use_test_set", "the dev split verifies the artifact", boolean=True),
        **_unused("as_text", "it is for TensorFlow's format", boolean=True),
    },
    "t2t-datagen": {
        **_at(
            "env_problem_max_env_steps env_problem_batch_size",
            "there are no problems of reinforcement learning. Leave it out.",
            "0",
        ),
        **_at("task_id", "use --task_id, once for each task.", "-1"),
    },
    "t2t-bleu": _unused("source", "sources do not count for BLEU"),
    "t2t-translate-all": {
        **_at(
            "decoder_command",
            "t2t-translate-all decodes itself. Leave it out.",
            *("", "t2t-decoder {params}"),
        ),
        **_unused("data_dir", "the run directory has the vocabularies"),
    },
    "t2t-query-server": {
        **_unused("t2t_usr_dir", "the server has the problem"),
        **_at(
            "cloud_mlengine_model_name cloud_mlengine_model_version",
            "models of Google's cloud are not supported. Start t2t-server, and give its --server.",
            "",
        ),
    },
}
"""Command -> flags of tensor2tensor's command of that name alone."""


def hint(name: str, command: str = "") -> str:
    """Returns what there is instead of a flag, as a sentence; "" if it is none of tensor2tensor."""
    old = {**OLD, **OF_COMMAND.get(command, {})}.get(name)
    return f" It is a flag of tensor2tensor; here {old.instead.rstrip('.')}." if old else ""


def without_unused(
    known: Collection[str], arguments: Sequence[str], command: str = ""
) -> list[str]:
    """Returns arguments without those flags of tensor2tensor that have no effect here.

    Args:
      known: names of the flags of the command.
      arguments: arguments of the command line.
      command: name of the command.
    """
    own = OF_COMMAND.get(command, {})
    kept: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, has_value, value = argument.lstrip("-").partition("=")
        is_negated = name.startswith("no") and (name[2:] in OLD or name[2:] in own)
        name = name[2:] if is_negated else name
        old = own.get(name) or (None if name in known else OLD.get(name))
        if not argument.startswith("-") or old is None or (name in known and old.same is None):
            kept.append(argument)
            continue
        given = [argument]
        if not has_value:
            value = "false" if is_negated else "true"
            if not old.boolean and rest and re.match(r"-?\d|(?!-)", rest[0]):
                value = rest.pop(0)
                given.append(value)
        if old.refused and re.search(old.refused, value):
            kept += given
        elif old.same is None:
            print(f"--{name} is left out: {old.instead}.", file=sys.stderr)
        elif value.lower() not in old.same:
            kept += given
    return kept
