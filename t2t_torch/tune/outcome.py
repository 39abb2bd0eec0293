"""What a search leaves behind: its record, its page, what it found, and a link to the best run."""

from __future__ import annotations

import os
from pathlib import Path

from t2t_torch.data.staging import staged
from t2t_torch.tune.search_record import SearchRecord

RECORD = "search.json"
PAGE = "search.html"
BEST = "best"


def write_outcome(record: SearchRecord) -> list[str]:
    """Writes all that a search tells into its folder.

    Args:
      record: of a search, over or not.

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
        _link(directory / BEST, record.best.output_dir)
        lines.append(f"The best run, to decode, export or serve: {directory / BEST}")
    return lines


def _write(path: Path, text: str) -> None:
    with staged(path) as temporary:
        temporary.write_text(text, "utf-8")


def _link(link: Path, target: Path) -> None:
    """Makes a relative link, which is moved into its place: there is always one."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.incomplete")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, link.parent))
    temporary.replace(link)
