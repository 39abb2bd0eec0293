"""Where the runs of a search are, and of which search they are."""

from __future__ import annotations

import fcntl
from pathlib import Path

from t2t_torch.data.staging import staged

RUNS = "trials"
"""In the search's folder: the run directories, by the trial's number."""

_OF = ".search"
"""Among them: the id of the search that they are of."""


def trial_directory(output_dir: Path, trial: int) -> Path:
    """Returns the run directory of a trial of a search."""
    return output_dir / RUNS / str(trial)


def claim_runs(output_dir: Path, search: str) -> Path | None:
    """Makes the folder of runs that of a search; runs of another one are set aside.

    A trial would else go on from the checkpoint of another search's trial of its number.

    Args:
      output_dir: of the search.
      search: its id, which all of its tuners know.

    Returns:
      Where the runs of another search are now; None if there were none.
    """
    runs, old = output_dir / RUNS, None
    with (output_dir / f"{RUNS}.lock").open("w") as lock:  # of tuners that begin one at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_of_another(runs, search):
            old = _free_name(output_dir)
            runs.rename(old)
        runs.mkdir(exist_ok=True)
        with staged(runs / _OF) as temporary:
            temporary.write_text(f"{search}\n", "utf-8")
    return old


def _is_of_another(runs: Path, search: str) -> bool:
    if not runs.is_dir() or not any(runs.iterdir()):
        return False
    file = runs / _OF
    return (file.read_text("utf-8").strip() if file.exists() else "") != search


def _free_name(output_dir: Path) -> Path:
    number = 1
    while (old := output_dir / f"{RUNS}.before-{number}").exists():
        number += 1
    return old
