"""tensor2tensor's `t2t-trainer --hparams_range=... --autotune_*`: the search of `t2t-tuner`."""

from __future__ import annotations

from t2t_torch.bin import tuner
from t2t_torch.bin.trainer_flags import FLAGS, chosen, flag, given
from t2t_torch.errors import UsageError

_SAME = (
    *("problem", "model", "hparams_set", "hparams", "data_dir", "output_dir", "eval_metrics"),
    *("train_steps", "eval_steps", "local_eval_frequency", "worker_gpu", "hparams_range"),
)
"""Flags that the tuner has, too."""

_NAMED = {
    "random_seed": "seed",
    "autotune_objective": "metric",
    "autotune_max_trials": "max_trials",
    "autotune_parallel_trials": "parallel",
}
"""Flags that it has by another name."""

_OTHERS = (
    *("autotune_maximize", "t2t_usr_dir", "trust_code", "registry_help", "verbosity", "schedule"),
)


def autotune() -> int:
    """Runs the search that the flags name; returns the command's exit code.

    Raises:
      UsageError: a flag is given that a search does not read.
    """
    read = {*_SAME, *_NAMED, *_OTHERS}
    strange = [name for name in FLAGS if name not in read and chosen(name)]
    if strange:
        raise UsageError(
            f"--{', --'.join(strange)}: nothing in a search (--hparams_range) reads it. Leave it "
            "out, or run t2t-tuner, which has more flags."
        )
    if given("schedule") and chosen("schedule"):
        raise UsageError(f"--schedule={flag('schedule')}: a search trains and evaluates in turns.")
    words = [f"--{name}={_said(name)}" for name in _SAME if given(name)]
    words += [f"--{other}={flag(name)}" for name, other in _NAMED.items() if given(name)]
    if not given("autotune_max_trials"):
        words.append(f"--max_trials={flag('autotune_max_trials')}")
    words += [f"--t2t_usr_dir={folder}" for folder in flag("t2t_usr_dir")]
    words += ["--trust_code"] if flag("trust_code") else []
    if given("autotune_maximize"):
        words.append(f"--metric_minimize={str(not flag('autotune_maximize')).lower()}")
    return tuner.main(words)


def _said(name: str) -> str:
    value = flag(name)
    return ",".join(value) if isinstance(value, list) else str(value)
