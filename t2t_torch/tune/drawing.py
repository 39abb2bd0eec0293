"""How the plots of a search look alike: colours by rank, marks of states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from t2t_torch.report.excerpt import visible
from t2t_torch.tune.search_record import SearchRecord, State, TrialRecord

_MARKS: dict[State, str] = {
    "completed": "m-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "paused": "m-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "stopped": "m-2.7,-2.7h5.4v5.4h-5.4z",
    "failed": "m-3,-3l6,6m-6,0l6,-6",
    "running": "m-3,-3.5l6.5,3.5l-6.5,3.5z",
}
_FEW = 30  # trials that can all be told apart
_FILLED: tuple[State, ...] = ("completed", "running")


def shades(record: SearchRecord) -> dict[int, float]:
    """Returns how good each trial's newest value is by rank: 1 the best, 0 the worst.

    Trials without a value, and failed ones, are absent.
    """
    valued = [one for one in record.trials if one.value is not None and one.state != "failed"]
    valued.sort(key=lambda one: (record.loss_of(one.value), one.number))
    last = max(len(valued) - 1, 1)
    return {one.number: 1 - place / last for place, one in enumerate(valued)}


def colour(shade: float | None, trials: int) -> str:
    """Returns the style of a line or a dot.

    Args:
      shade: how good its trial is; None if it has no value.
      trials: how many are drawn: of many only the best stand out.
    """
    if shade is None:
        return "--c:var(--soft);--o:.6"
    crowd = 1 - min(1.0, _FEW / trials)
    strength = shade ** (1 + 3 * crowd)
    part = round(100 * strength)
    opacity = 0.35 - 0.2 * crowd + 0.55 * strength
    return f"--c:color-mix(in oklab,var(--good) {part}%,var(--bad));--o:{opacity:.2f}"


def drawn_as(record: SearchRecord, trial: TrialRecord, shade: float | None) -> str:
    """Returns the attributes of what is drawn of a trial: its classes, its number, its colour."""
    return (
        f'class="{classes(record, trial)}" data-trial="{trial.number}" '
        f'style="{colour(shade, len(record.trials))}"'
    )


def in_order(record: SearchRecord) -> list[TrialRecord]:
    """Returns the trials as they are drawn over each other: the best last."""
    shade = shades(record)
    return sorted(record.trials, key=lambda one: (shade.get(one.number, -1.0), one.number))


def classes(record: SearchRecord, trial: TrialRecord) -> str:
    """Returns the classes of what is drawn of a trial."""
    best, default = record.best, record.default
    told = ["trial", trial.state]
    if best is not None and best.number == trial.number:
        told.append("best")
    if default is not None and default.number == trial.number:
        told.append("default")
    return " ".join(told)


def mark(state: State, x: float, y: float) -> str:
    """Returns the mark at the end of a curve, of a trial that is in this state."""
    filled = "full" if state in _FILLED else "open"
    return f'<path class="mark {filled}" d="M{x:.1f},{y:.1f}{_MARKS[state]}"/>'


def key_of_states(states: Sequence[tuple[State, int]]) -> str:
    """Returns the legend of the marks: each state with its count."""
    parts = [
        f'<span><svg viewBox="0 0 12 12" aria-hidden="true" style="--c:var(--ink)">'
        f"{mark(state, 6, 6)}</svg>{count} {state}</span>"
        for state, count in states
    ]
    return "".join(parts)


def wrapped(name: str, columns: int, most: int) -> list[str]:
    """Cuts a name into lines at its underscores and dots, within words if it must.

    Args:
      name: that is cut.
      columns: of a line.
      most: lines; what is left over is an ellipsis.
    """
    lines = [""]
    parts = name.replace("_", "_\n").replace(".", ".\n").split("\n")
    for part in parts:
        pieces = [part[k : k + columns] for k in range(0, len(part), columns)]
        for piece in pieces:
            if len(lines[-1]) + len(piece) <= columns:
                lines[-1] += piece
            else:
                lines.append(piece)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: columns - 1]}…"]
    return lines


def text(told: str) -> str:
    """Writes a text so that it is nothing but a text, in an element or between quotes."""
    return escape(visible(told))


def finite(value: float | None) -> bool:
    """Tells whether there is a value to draw."""
    return value is not None and math.isfinite(value)
