"""What a search leaves behind: its record, its page, what it found, and a link to the best run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from t2t_torch.data.staging import staged
from t2t_torch.errors import T2TError
from t2t_torch.tune.runs import LOG
from t2t_torch.tune.search_record import SearchRecord, TrialRecord

RECORD = "search.json"
PAGE = "search.html"
BEST = "best"


def check_any_value(record: SearchRecord) -> None:
    """Checks that a search that is over has found something.

    Raises:
      T2TError: no trial has come to a value; says why most have not.
    """
    if record.best is not None or not record.trials:
        return
    reasons = [trial.error or "the metric was not finite" for trial in record.trials]
    why, count = Counter(reasons).most_common(1)[0]
    log = record.trials[reasons.index(why)].output_dir / LOG
    raise T2TError(
        f"no trial has come to its end with a value of {record.metric}; {count} of {len(reasons)} "
        f"ended so: {why}\nAll that the first of them has said: {log}\nMend it, and begin again in "
        "another --output_dir."
    )


def write_outcome(record: SearchRecord, where: Callable[[int], str]) -> list[str]:
    """Writes all that a search tells into its folder.

    Args:
      record: of a search, over or not.
      where: tells the machine and folder in which a trial was trained, if it was not here; empty
        if nobody knows.

    Returns:
      Lines for the user: what was found, and what lies where.
    """
    from t2t_torch.tune.findings import write_findings
    from t2t_torch.tune.search_page import write_page

    directory = record.output_dir
    _write(directory / RECORD, record.to_json())
    write_page(record, directory / PAGE)
    told = write_findings(record, directory)
    lines = [told, "", f"All of it, to look at: {directory / PAGE}"]
    if record.best is not None:
        lines.append(_tell_best(directory / BEST, record.best, where))
    return lines


def _tell_best(link: Path, best: TrialRecord, where: Callable[[int], str]) -> str:
    """Links to the best run if it is here; returns a line that says where it is."""
    if best.output_dir.is_dir():
        _link(link, best.output_dir)
        return f"The best run, to decode, export or serve: {link}"
    link.unlink(missing_ok=True)  # to one that is not the best any more
    told = where(best.number) or "another --output_dir of this search"
    name = best.output_dir.relative_to(link.parent)
    return f"The best run, {name}, is not here. It was trained in {told}"


def _write(path: Path, text: str) -> None:
    with staged(path) as temporary:
        temporary.write_text(text, "utf-8")


def _link(link: Path, target: Path) -> None:
    """Makes a relative link, which is moved into its place: there is always one."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.incomplete")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, link.parent))
    temporary.replace(link)
