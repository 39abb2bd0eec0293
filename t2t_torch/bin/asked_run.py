"""What a command is told of a run that the run itself knows: checked against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from t2t_torch import registry
from t2t_torch.errors import RegistryError, UsageError

if TYPE_CHECKING:
    from t2t_torch.train.run_directory import TaskRecord


def check_is_of_run(values: flags.FlagValues, task: TaskRecord, run: str) -> None:
    """Checks `--problem`, `--model` and `--hparams_set` against a run.

    Args:
      values: the flags.
      task: what the run is of.
      run: its directory, for errors.

    Raises:
      UsageError: the run is of another one.
    """
    for name in ("problem", "model", "hparams_set"):
        asked, here = values[name].value, getattr(task, name)
        # A run of several problems is asked for one of them: `load` knows whether it has it.
        if asked and asked != here and not (name == "problem" and _is_of_several(here)):
            raise UsageError(
                f"--{name}={asked}, but '{run}' is a run of {name} {here!r}. Leave "
                f"--{name} out, or give the --output_dir of another run."
            )


def _is_of_several(problem: str) -> bool:
    try:
        return registry.problem(problem).mixing_schedule is not None
    except RegistryError:  # of a folder of the user's, which is imported later
        return True
