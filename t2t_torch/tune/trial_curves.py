"""The learning curves of all trials of a search in one plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from t2t_torch.report.curves import downsampled
from t2t_torch.tune.drawing import drawn_as, finite, in_order, mark, shades
from t2t_torch.tune.scale import scale_of_metric, scale_of_steps
from t2t_torch.tune.search_record import SearchRecord

_WIDTH, _HEIGHT = 960, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 946, 16, 336
_ROOM = 10  # for marks at both sides
_MOST_POINTS = 80  # of a curve
_MOST_RUNGS = 8  # lines at which trials ended
_LABEL_WIDTH = 6.2  # of a character


def trial_curves(record: SearchRecord) -> str:
    """Returns an `<svg>` element of a search in which a trial has a value.

    A curve's end has the mark of its trial's state; dotted lines, each with its step, stand where
    several trials were stopped or paused.
    """
    values = [v for one in record.trials for _, v in one.curve if v is not None and finite(v)]
    scale = scale_of_metric(values)
    steps = [step for one in record.trials for step, v in one.curve if finite(v)]
    widths = scale_of_steps(steps)

    def across(place: float) -> float:
        return _LEFT + _ROOM + place * (_RIGHT - _LEFT - 2 * _ROOM)

    def x(step: float) -> float:
        return across(widths.place(step) or 0.0)

    def y(value: float) -> float:
        return _BOTTOM - (scale.place(value) or 0.0) * (_BOTTOM - _TOP)

    parts = [f'<svg class="curves" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="11">']
    for height, label in scale.marks():
        at = _BOTTOM - height * (_BOTTOM - _TOP)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(_LEFT - 6, at + 4, label, "end"))
    for place, label in widths.marks():
        parts.append(_text(across(place), _BOTTOM + 16, label, "middle"))
    told = "step, logarithmic" if widths.log else "step"
    parts.append(_text((_LEFT + _RIGHT) / 2, _BOTTOM + 34, told, "middle"))
    parts += _rung_lines([(x(step), step) for step in _rungs(record)])
    shade = shades(record)
    for trial in in_order(record):
        points = [(step, v) for step, v in trial.curve if v is not None and finite(v)]
        if not points:
            continue
        drawn = downsampled(points, _MOST_POINTS)
        line = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in drawn)
        end = points[-1]
        how = drawn_as(record, trial, shade.get(trial.number))
        ending = mark(trial.state, x(end[0]), y(end[1]))
        parts.append(f'<g {how}><polyline points="{line}"/>{ending}</g>')
    return "".join([*parts, "</svg>"])


def _rungs(record: SearchRecord) -> list[int]:
    """Returns the steps at which two trials or more were stopped or paused, if they are few."""
    ends = [one.evaluated for one in record.trials if one.state in ("stopped", "paused")]
    rungs = sorted({step for step in ends if ends.count(step) > 1})
    return rungs if len(rungs) <= _MOST_RUNGS else []


def _rung_lines(rungs: Sequence[tuple[float, int]]) -> Iterator[str]:
    """Yields a line for each rung, and its step above it where the one before leaves room."""
    free = 0.0
    for x, step in rungs:
        yield f'<line class="rung" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>'
        told = f"{step:,}" if free else f"rung at {step:,}"
        half = _LABEL_WIDTH * len(told) / 2
        if x - half >= free:
            yield _text(x, _TOP - 5, told, "middle")
            free = x + half


def _text(x: float, y: float, told: str, anchor: str) -> str:
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{told}</text>'
