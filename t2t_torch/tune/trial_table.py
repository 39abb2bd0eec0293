"""The table of all trials of a search, which a page's script sorts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from t2t_torch.report.section import counted, number
from t2t_torch.tune.drawing import classes, finite, text
from t2t_torch.tune.duration import duration
from t2t_torch.tune.scale import written
from t2t_torch.tune.search_record import STATES, SearchRecord, TrialRecord
from t2t_torch.tune.space import Value

_MOST_ERROR = 160  # characters of the last line of an error


@dataclass(frozen=True)
class _Cell:
    """What stands in a cell, and by what it is sorted: numbers, then texts, then nothing."""

    told: str
    key: float | str | None
    words: bool = False
    title: str = ""


def trial_table(record: SearchRecord, names: Sequence[str]) -> str:
    """Returns a `<div>` with the table.

    Args:
      record: of the search.
      names: of the hyperparameters, in the order of the columns.
    """
    failed = any(one.error for one in record.trials)
    head = ["trial", "state", "step", record.metric, *names, "time", *(["error"] if failed else [])]
    buttons = "".join(
        f'<th scope="col"{_class(words=name in ("trial", "state", "error"))}>'
        f'<button type="button" title="{text(name)}">{_broken(name)}</button></th>'
        for name in head
    )
    rows = "\n".join(_row(record, one, names, head, failed=failed) for one in record.trials)
    return (
        '<div class="scroll trials" tabindex="0"><table id="trials">'
        f"<thead><tr>{buttons}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _row(
    record: SearchRecord,
    trial: TrialRecord,
    names: Sequence[str],
    head: Sequence[str],
    *,
    failed: bool,
) -> str:
    known = classes(record, trial).split()
    told = str(trial.number)
    told += " best" if "best" in known else ""
    told += " unchanged" if "default" in known else ""
    steps = f"{trial.step:,} of {trial.length:,}"
    value = number(trial.value) if trial.value is not None and finite(trial.value) else "none"
    state = trial.state + (f", {counted(trial.restarts, 'restart')}" if trial.restarts else "")
    cells = [
        _Cell(told, trial.number, words=True, title=str(trial.output_dir)),
        _Cell(state, STATES.index(trial.state), words=True),
        _Cell(steps, trial.step),
        _Cell(value, trial.value if finite(trial.value) else None),
        *(_of_value(trial.hparams.get(name)) for name in names),
        _Cell(duration(trial.seconds), trial.seconds),
    ]
    if failed:
        last = (trial.error.strip().splitlines() or [""])[-1]
        short = last if len(last) <= _MOST_ERROR else f"{last[:_MOST_ERROR]}…"
        cells.append(_Cell(short, last or None, words=True, title=trial.error))
    written_cells = "".join(_cell(cell, name) for cell, name in zip(cells, head, strict=True))
    return f'<tr class="{" ".join(known)}" data-trial="{trial.number}">{written_cells}</tr>'


def _of_value(value: Value) -> _Cell:
    if value is None:
        return _Cell("", None)
    if isinstance(value, bool | str):
        return _Cell(written(value), written(value))
    shown = number(value) if isinstance(value, float) else written(value)
    return _Cell(shown, value if math.isfinite(value) else None, title=repr(value))


def _cell(cell: _Cell, name: str) -> str:
    key = "" if cell.key is None else f' data-key="{text(str(cell.key))}"'
    title = f' title="{text(cell.title)}"' if cell.title else ""
    return (
        f'<td data-name="{text(name)}"{_class(words=cell.words)}{key}{title}>{text(cell.told)}</td>'
    )


def _class(*, words: bool) -> str:
    return ' class="text"' if words else ""


def _broken(name: str) -> str:
    """Lets a long name break at its underscores and dots."""
    return text(name).replace("_", "_<wbr>").replace(".", ".<wbr>")
