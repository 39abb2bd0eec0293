"""Plots of a search: parallel coordinates, learning curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from t2t_torch.reports.plots import AxisScale, Frame, axis_range, downsampled, svg_text, written
from t2t_torch.reports.section import escaped
from t2t_torch.search_space import AnyValue
from t2t_torch.tune.search_record import SearchRecord, SpaceAxis, State, TrialRecord

_MARKS: dict[State, str] = {
    "completed": "m-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "paused": "m-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "stopped": "m-2.7,-2.7h5.4v5.4h-5.4z",
    "failed": "m-3,-3l6,6m-6,0l6,-6",
    "running": "m-3,-3.5l6.5,3.5l-6.5,3.5z",
}
_FEW = 30  # maximum number of trials that are drawn distinctly
_FILLED: tuple[State, ...] = ("completed", "running")


def shades(record: SearchRecord) -> dict[int, float]:
    """Returns the shade of each trial by the rank of its latest value: 1 is best, 0 is worst.

    Trials without a value, and failed ones, are absent.
    """
    valued = [one for one in record.trials if one.value is not None and one.state != "failed"]
    valued.sort(key=lambda one: (record.loss_of(one.value), one.number))
    last = max(len(valued) - 1, 1)
    return {one.number: 1 - place / last for place, one in enumerate(valued)}


def colour(shade: float | None, trials: int) -> str:
    """Returns the style of a line or a dot.

    Args:
      shade: shade of the trial; None if it has no value.
      trials: number of drawn trials: with many, only the best are emphasized.
    """
    if shade is None:
        return "--c:var(--soft);--o:.6"
    crowd = 1 - min(1.0, _FEW / trials)
    strength = shade ** (1 + 3 * crowd)
    part = round(100 * strength)
    opacity = 0.35 - 0.2 * crowd + 0.55 * strength
    return f"--c:color-mix(in oklab,var(--good) {part}%,var(--bad));--o:{opacity:.2f}"


def drawn(record: SearchRecord) -> Iterator[tuple[TrialRecord, str]]:
    """Yields the trials, the best last, with the SVG attributes of their shapes."""
    shade = shades(record)
    for trial in sorted(record.trials, key=lambda one: (shade.get(one.number, -1.0), one.number)):
        style = colour(shade.get(trial.number), len(record.trials))
        yield (
            trial,
            f'class="{classes(record, trial)}" data-trial="{trial.number}" style="{style}"',
        )


def classes(record: SearchRecord, trial: TrialRecord) -> str:
    """Returns the CSS classes of a trial's shapes."""
    known = {"best": record.best, "default": record.default}
    own = [name for name, one in known.items() if one is not None and one.number == trial.number]
    return " ".join(["trial", trial.state, *own])


def mark(state: State, x: float, y: float) -> str:
    """Returns the marker at the end of a curve, by the state of its trial."""
    filled = "full" if state in _FILLED else "open"
    return f'<path class="mark {filled}" d="M{x:.1f},{y:.1f}{_MARKS[state]}"/>'


def key_of_states(counts: Mapping[State, int]) -> str:
    """Returns the legend of the markers, with the number of trials in each state."""
    return "".join(
        f'<span><svg viewBox="0 0 12 12" aria-hidden="true" style="--c:var(--ink)">'
        f"{mark(state, 6, 6)}</svg>{count} {state}</span>"
        for state, count in counts.items()
    )


def wrapped(name: str, columns: int, most: int) -> list[str]:
    """Splits a name into lines at underscores and dots, or within words if necessary.

    Args:
      name: name to split.
      columns: maximum length of a line.
      most: maximum number of lines; the rest is replaced by an ellipsis.
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


def finite(value: float | None) -> bool:
    """Returns True if the value is finite and not None."""
    return value is not None and math.isfinite(value)


_WIDE = 20.0  # ratio of a metric's values above which its axis is logarithmic
_FAR = 12.0  # the same for steps


def scale_of(axis: SpaceAxis, values: Iterable[AnyValue]) -> AxisScale:
    """Returns the scale of a hyperparameter: its range, extended to all tried values.

    Args:
      axis: axis of the search space.
      values: tried values; those of the default may be outside the range.
    """
    tried = list(values)
    if axis.low is None or axis.high is None:
        names = tuple(dict.fromkeys(map(written, (*axis.values, *tried))))
        if all(type(value) in (int, float) for value in (*axis.values, *tried)):
            names = tuple(sorted(names, key=float))
        return AxisScale(0.0, 1.0, names=names)
    numbers = [float(v) for v in tried if isinstance(v, int | float) and math.isfinite(v)]
    low, high = min([axis.low, *numbers]), max([axis.high, *numbers])
    return _scale(low, high, log=axis.log and low > 0, whole=axis.kind == "int")


def scale_of_metric(values: Sequence[float]) -> AxisScale:
    """Returns the scale of a metric: all finite values with a margin."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _WIDE:
        low, high = axis_range([math.log10(value) for value in values])
        # The lower margin of a logarithmic axis does not reach 0.
        return AxisScale(min(low, math.log10(min(values))), high, log=True)
    return _scale(*axis_range(values), log=False, whole=False)


def scale_of_steps(steps: Sequence[int]) -> AxisScale:
    """Returns the scale of optimizer steps; logarithmic if the rungs are far apart."""
    low, high = min(steps), max(steps)
    log = low > 0 and high / low > _FAR
    return _scale(low if log else 0, high, log=log, whole=True)


def _scale(low: float, high: float, *, log: bool, whole: bool) -> AxisScale:
    if log:
        low, high = math.log10(low), math.log10(high)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return AxisScale(low, high, log=log, whole=whole)


_HEIGHT, _TOP, _BOTTOM, _NOWHERE = 400, 84, 356, 382
_LEFT, _RIGHT = 72, 66
_WIDTH, _MOST_AXES = 960, 10  # of a plot that fits the page; more axes make it wider
_APART = 108  # distance between axes of a wider plot
_COLUMNS, _LINES = 15, 4  # limits of an axis title, if space permits
_LABEL = 13  # length limit of a tick label, if space permits
_NAME_WIDTH, _LABEL_WIDTH = 6.5, 6.0  # per character
_TIGHT = 100  # distance between axes below which letters are smaller
_BESIDE = 14  # gap between a label and an axis


@dataclass(frozen=True)
class _ParallelAxis:
    """Axis of the plot: name, scale, and whether lower values are better."""

    name: str
    scale: AxisScale
    flipped: bool = False

    def height(self, value: AnyValue) -> float | None:
        """Returns the height of a value, from 0 to 1; None if it has none."""
        place = self.scale.place(value)
        return place if place is None or not self.flipped else 1 - place


def parallel_coordinates(record: SearchRecord, order: Sequence[str]) -> str:
    """Returns an `<svg>`; a trial without a value starts at the bottom of the metric axis.

    Args:
      record: record of a search with at least one value.
      order: hyperparameters from left to right, after the axes of the metric (better values on top)
        and, if trials differ in it, the reached step.
    """
    axes = _axes(record, order)
    fits = len(axes) <= _MOST_AXES
    width = _WIDTH if fits else _LEFT + _RIGHT + _APART * (len(axes) - 1)
    apart = (width - _LEFT - _RIGHT) / max(len(axes) - 1, 1)
    size = 10 if apart < _TIGHT else 11
    across = [_LEFT + place * apart for place in range(len(axes))]
    parts = [
        f'<svg class="parallel" viewBox="0 0 {width} {_HEIGHT}" font-size="{size}" '
        f'style="min-width:{0.95 * width:.0f}px" data-top="{_TOP}" data-bottom="{_BOTTOM}" '
        f'data-nowhere="{_NOWHERE}"><g class="lines">'
    ]
    for trial, attributes in drawn(record):
        heights = [axis.height(_value(record, trial, axis.name)) for axis in axes]
        at = ",".join("" if height is None else f"{height:.3f}" for height in heights)
        parts.append(f'<path {attributes} data-at="{at}" d="{_line(across, heights)}"/>')
    parts.append("</g>")
    for place, axis in enumerate(axes):
        parts += _drawn(axis, place, across[place], apart)
    if any(trial.value is None for trial in record.trials):
        parts.append(svg_text(across[0] - 7, _NOWHERE + 4, "no value", anchor="end"))
    return "".join([*parts, "</svg>"])


def _axes(record: SearchRecord, order: Sequence[str]) -> list[_ParallelAxis]:
    by_name = {axis.name: axis for axis in record.space}
    metric = [one.value for one in record.trials if one.value is not None and finite(one.value)]
    axes = [_ParallelAxis(record.metric, scale_of_metric(metric), record.lower_is_better)]
    steps = [one.step for one in record.trials]
    if len(set(steps)) > 1:
        axes.append(_ParallelAxis("step", scale_of_steps(steps)))
    of_space = [
        _ParallelAxis(name, scale_of(by_name[name], _values(record, name))) for name in order
    ]
    return axes + of_space


def _values(record: SearchRecord, name: str) -> list[AnyValue]:
    return [one.hparams[name] for one in record.trials if name in one.hparams]


def _value(record: SearchRecord, trial: TrialRecord, name: str) -> AnyValue:
    if name in trial.hparams:
        return trial.hparams[name]
    return {"step": trial.step, record.metric: trial.value}.get(name)


def _y(height: float | None) -> float:
    return _NOWHERE if height is None else _BOTTOM - height * (_BOTTOM - _TOP)


def _line(across: Sequence[float], heights: Sequence[float | None]) -> str:
    """Returns the path of a trial, horizontal where it crosses an axis."""
    path = f"M{across[0]:.1f},{_y(heights[0]):.1f}"
    for place in range(1, len(across)):
        before, here = across[place - 1], across[place]
        middle = (before + here) / 2
        y, to = _y(heights[place - 1]), _y(heights[place])
        path += f"C{middle:.1f},{y:.1f} {middle:.1f},{to:.1f} {here:.1f},{to:.1f}"
    return path


def _drawn(axis: _ParallelAxis, place: int, x: float, apart: float) -> Iterator[str]:
    """Yields an axis with its title, its labels and its brush area."""
    yield (
        f'<g class="axis" data-axis="{place}"><title>{escaped(axis.name)}</title>'
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>'
    )
    columns = min(_COLUMNS, int(apart / _NAME_WIDTH))
    room = min(_LABEL, int((apart - _BESIDE) / _LABEL_WIDTH))
    lines = wrapped(axis.name, columns, _LINES)
    for count, line in enumerate(reversed(lines)):
        yield svg_text(x, _TOP - 24 - 12.5 * count, line, anchor="middle", kind="name")
    for height, label in axis.scale.marks():
        y = _y(1 - height if axis.flipped else height)
        short = label if len(label) <= room else f"{label[: room - 1]}…"
        yield f'<line x1="{x - 3:.1f}" x2="{x + 3:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield svg_text(x - 7, y + 4, short, anchor="end", title=label if short != label else "")
    if not place:
        yield svg_text(x, _TOP - 9, "▲ better", anchor="middle")
    yield (
        f'<rect class="brush" x="{x - 12:.1f}" y="{_TOP - 6}" width="24" '
        f'height="{_BOTTOM - _TOP + 12}"/><rect class="chosen" x="{x - 7:.1f}" width="14" '
        'y="0" height="0"/></g>'
    )


_CURVES_WIDTH, _CURVES_HEIGHT = 960, 380
_CURVES = Frame(58, 946, 16, 336, margin=10)
_SMALL_LABEL_WIDTH = 6.2  # per character
_MOST_POINTS = 80  # per curve
_MOST_RUNGS = 8  # maximum number of vertical lines at rungs


def trial_curves(record: SearchRecord) -> str:
    """Returns the plot of a search with at least one value, as an `<svg>`.

    The marker at the end of a curve shows the state of its trial; dotted lines mark the steps at
    which several trials were stopped or paused.
    """
    curves = [
        (trial, attributes, [(step, v) for step, v in trial.curve if v is not None and finite(v)])
        for trial, attributes in drawn(record)
    ]
    all_points = [point for *_, points in curves for point in points]
    heights = scale_of_metric([value for _, value in all_points])
    widths = scale_of_steps([step for step, _ in all_points])

    def at(step: float, value: float) -> tuple[float, float]:
        return _CURVES.x(widths.place(step)), _CURVES.y(heights.place(value))

    parts = [
        f'<svg class="curves" viewBox="0 0 {_CURVES_WIDTH} {_CURVES_HEIGHT}" font-size="11">',
        *_CURVES.rows(heights),
        *_CURVES.columns(widths),
    ]
    label = "step, logarithmic" if widths.log else "step"
    parts.append(svg_text(_CURVES.x(0.5), _CURVES.bottom + 34, label, anchor="middle"))
    parts += _rung_lines([(_CURVES.x(widths.place(step)), step) for step in _rungs(record)])
    for trial, attributes, points in curves:
        if points:
            line = " ".join(
                "{:.1f},{:.1f}".format(*at(step, value))
                for step, value in downsampled(points, _MOST_POINTS)
            )
            ending = mark(trial.state, *at(*points[-1]))
            parts.append(f'<g {attributes}><polyline points="{line}"/>{ending}</g>')
    return "".join([*parts, "</svg>"])


def _rungs(record: SearchRecord) -> list[int]:
    """Returns the steps at which at least two trials stopped or paused; empty if there are many."""
    ends = [one.evaluated for one in record.trials if one.state in ("stopped", "paused")]
    rungs = sorted({step for step in ends if ends.count(step) > 1})
    return rungs if len(rungs) <= _MOST_RUNGS else []


def _rung_lines(rungs: Sequence[tuple[float, int]]) -> Iterator[str]:
    """Yields a line per rung, with its step above it if space permits."""
    free = 0.0
    for x, step in rungs:
        yield (
            f'<line class="rung" x1="{x:.1f}" x2="{x:.1f}" y1="{_CURVES.top}" '
            f'y2="{_CURVES.bottom}"/>'
        )
        label = f"{step:,}" if free else f"rung at {step:,}"
        half = _SMALL_LABEL_WIDTH * len(label) / 2
        if x - half >= free:
            yield svg_text(x, _CURVES.top - 5, label, anchor="middle")
            free = x + half
