"""The flags of `t2t-tuner`, and how a search that goes on takes them from its beginning."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import flags

from t2t_torch.bin import flags as shared
from t2t_torch.data.staging import staged
from t2t_torch.errors import CheckpointError
from t2t_torch.tune.rungs import MODES
from t2t_torch.tune.search_plan import SEARCHERS
from t2t_torch.tune.study import without_password

NAME = "tuner.json"
"""In the search's folder: the flags that it was begun with."""

_STEPS_OF = "steps_of"
"""There, beside the flags: what loaders have said of a length."""

FLAGS = flags.FlagValues()  # type: ignore[no-untyped-call]
shared.define(
    FLAGS,
    "problem",
    "model",
    "hparams_set",
    "hparams",
    "data_dir",
    "output_dir",
    "eval_metrics",
    "t2t_usr_dir",
    "trust_code",
    "registry_help",
)
FLAGS["output_dir"].help = "Directory of the search: trials, ledger, page and findings."
FLAGS["hparams"].help = 'Changes to the set that all trials have: "hidden_size=64".'

_PATHS = ("data_dir", "config", "ranges", "trial", "t2t_usr_dir")
_TOGETHER = (
    ("problem", "trial"),
    ("hparams_range", "ranges"),
    ("metric", "metric_minimize"),
    ("mode", "bracket_rungs"),
)
"""Flags of which none is remembered if one is given: what it says is all that is said."""
_OF_ONE_START = (
    "output_dir parallel max_restarts report_only registry_help trust_code verbosity".split()
)
"""Flags that are not taken from the beginning of a search."""


def _define_searched() -> None:
    """Defines what is searched."""
    flags.DEFINE_string(
        "hparams_range",
        None,
        "Named ranges that are searched.  Names: --registry_help.",
        flag_values=FLAGS,
    )
    shared.define_path(
        FLAGS,
        "ranges",
        None,
        "A YAML file of ranges in their place, each {type: int|double|log|categorical, ...}.",
    )
    shared.define_path(
        FLAGS, "trial", None, "A PyTorchTrial in place of a problem: dir, file.py or module[:Class]"
    )
    shared.define_path(FLAGS, "config", None, "Its experiment's YAML, whose ranges are searched.")
    flags.DEFINE_enum(
        "searcher",
        None,
        SEARCHERS,
        "How: adaptive_asha stops at rungs what is behind; random; grid; tpe tries more where it "
        "was good; single.  adaptive_asha if nothing says otherwise.",
        flag_values=FLAGS,
    )
    flags.DEFINE_string(
        "metric", None, "By which trials are ranked, as evaluations print it.", flag_values=FLAGS
    )
    flags.DEFINE_boolean(
        "metric_minimize",
        None,
        "Less of it is better; by default as the metric, or the experiment, says itself.",
        flag_values=FLAGS,
    )


def _define_extent() -> None:
    """Defines how far a search goes."""
    integers = {
        "max_trials": (1, "Trials in all, the unchanged set counted; 16 if nothing says it."),
        "train_steps": (1, "Optimizer steps of a whole training."),
        "max_rungs": (1, "Rungs of ASHA, at most; 5 if nothing says otherwise."),
        "seed": (0, "Of the search and of its trainings; 1 if nothing says otherwise."),
        "eval_steps": (0, "Batches of an evaluation; 0: the whole split, as by default."),
        "local_eval_frequency": (
            1,
            "Steps between evaluations besides those at the rungs; a tenth of --train_steps.",
        ),
        "max_restarts": (
            0,
            "How often a training that breaks is begun again from its checkpoint; 5 if nothing "
            "says otherwise.",
        ),
        "worker_gpu": (0, "1: a GPU for each training, if there are any; 0: the CPU."),
    }
    for name, (least, meaning) in integers.items():
        flags.DEFINE_integer(name, None, meaning, lower_bound=least, flag_values=FLAGS)
    flags.DEFINE_integer("parallel", 1, "Trainings at once.", 1, 1024, flag_values=FLAGS)
    flags.DEFINE_float(
        "divisor", None, "At each rung one trial of so many goes on; 4.", flag_values=FLAGS
    )
    flags.DEFINE_enum(
        "mode",
        None,
        MODES,
        "aggressive: trials begin at the lowest rung; conservative: some at each; standard: "
        "between them.",
        flag_values=FLAGS,
    )
    flags.DEFINE_list(
        "bracket_rungs", [], "Rungs of each bracket, in place of --mode.", flag_values=FLAGS
    )
    flags.DEFINE_boolean(
        "default_first",
        True,
        "The first trial is the unchanged set, and is trained to the end for comparison.",
        flag_values=FLAGS,
    )


def _define_keeping() -> None:
    """Defines where a search is kept."""
    flags.DEFINE_string(
        "storage",
        None,
        "URL of a database, through which machines share a search; by default a file of "
        "--output_dir.",
        flag_values=FLAGS,
    )
    flags.DEFINE_string(
        "study_name",
        None,
        "Of the search in the storage; by default the name of --output_dir.",
        flag_values=FLAGS,
    )
    flags.DEFINE_boolean(
        "report_only", False, "Trains nothing; writes the page and the findings.", flag_values=FLAGS
    )


_define_searched()
_define_extent()
_define_keeping()


def flag(name: str) -> Any:
    """Returns a flag's value."""
    return FLAGS[name].value


def given(name: str) -> bool:
    """Whether a flag was given, on the command line or at the search's beginning."""
    return bool(FLAGS[name].present) or FLAGS[name].value != FLAGS[name].default


def study_name(output_dir: Path) -> str:
    """Returns the name of the search in its storage."""
    return flag("study_name") or output_dir.name


def recall(output_dir: Path) -> dict[str, int]:
    """Gives flags that are silent the values with which the search was begun.

    Returns:
      What `remember` was given: lengths as they were written -> optimizer steps.

    Raises:
      CheckpointError: what is remembered cannot be read, or the search is kept elsewhere.
    """
    file = output_dir / NAME
    try:
        known = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CheckpointError(
            f"{file} is damaged: {error}. Remove it, and give the flags of the search again."
        ) from error
    steps_of: dict[str, int] = known.pop(_STEPS_OF, {})
    _check_storage(output_dir, known.get("storage") or "")
    _check_study_name(output_dir, known.get("study_name") or output_dir.name)
    for names in _TOGETHER:
        if any(FLAGS[name].present for name in names):
            known = {name: value for name, value in known.items() if name not in names}
    for name, value in known.items():
        if name in FLAGS and not FLAGS[name].present:
            FLAGS[name].value = value
    return steps_of


def _check_study_name(output_dir: Path, known: str) -> None:
    """Checks that it is the same search of the storage: its runs are here.

    Raises:
      CheckpointError: it is not.
    """
    if FLAGS["study_name"].present and flag("study_name") != known:
        raise CheckpointError(
            f"the search of {output_dir} is --study_name={known}. Leave the flag out to go on with "
            "it; or begin another one in another --output_dir."
        )


def _check_storage(output_dir: Path, known: str) -> None:
    """Checks that a search is looked for where it is kept: else it would begin again.

    Raises:
      CheckpointError: it is not, or only a URL with its password can say so.
    """
    asked = without_password(flag("storage") or "")
    if not FLAGS["storage"].present and "***" not in known:
        return
    if asked != known:
        where = f"at --storage={known}" if known else "in its own journal, without --storage"
        raise CheckpointError(
            f"the search of {output_dir} is kept {where}. Say so, with the password if it has one; "
            "or begin one in another --output_dir."
        )


def remember(output_dir: Path, steps_of: Mapping[str, int]) -> None:
    """Writes down the flags, for who goes on with the search; a password is not written down.

    Args:
      output_dir: of the search.
      steps_of: lengths that loaders were asked for, as they were written -> optimizer steps.
    """
    # The folder may be moved, and have another name then.
    known = {**_to_remember(), "study_name": study_name(output_dir), _STEPS_OF: dict(steps_of)}
    file = output_dir / NAME
    with staged(file) as temporary:
        temporary.write_text(json.dumps(known, indent=2) + "\n", "utf-8")


def command(output_dir: Path) -> str:
    """Returns the command that begins this search, as a shell takes it."""
    known = _to_remember()
    if known.get("study_name") == output_dir.name:
        del known["study_name"]
    parts = [f"--{name}={_shown(value)}" for name, value in known.items()]
    return shlex.join(["t2t-tuner", *parts, f"--output_dir={output_dir}"])


def _to_remember() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in FLAGS:
        if name in _OF_ONE_START or not given(name):
            continue
        value = flag(name)
        if name == "storage":
            value = without_password(value)
        if name in _PATHS:
            value = list(map(absolute, value)) if isinstance(value, list) else absolute(value)
        found[name] = value
    return found


def absolute(path: str) -> str:
    """Returns a path, or a `path:Class`, as it is from anywhere; a module's name as it is."""
    head, colon, name = path.rpartition(":")
    if colon and not Path(path).exists() and Path(head).exists():
        return f"{os.path.abspath(head)}:{name}"  # noqa: PTH100 -- links stay what they are
    return os.path.abspath(path) if Path(path).exists() else path  # noqa: PTH100


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
