"""Parallel coordinates: an axis for each hyperparameter, a line for each trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from t2t_torch.tune.drawing import drawn_as, finite, in_order, shades, text, wrapped
from t2t_torch.tune.scale import Scale, scale_of, scale_of_metric, scale_of_steps
from t2t_torch.tune.search_record import SearchRecord, TrialRecord
from t2t_torch.tune.space import Value

_HEIGHT, _TOP, _BOTTOM, _NOWHERE = 400, 84, 356, 382
_LEFT, _RIGHT = 72, 66
_WIDTH, _MOST_AXES = 960, 10  # of a plot that fits a page; more axes make it wider
_APART = 108  # distance of axes of a wider one
_COLUMNS, _LINES = 15, 4  # of an axis's name, if there is room
_LABEL = 13  # characters of a tick's label, if there is room
_NAME_WIDTH, _LABEL_WIDTH = 6.5, 6.0  # of a character
_TIGHT = 100  # distance of axes below which letters are smaller
_BESIDE = 14  # what stays free between a label and an axis


@dataclass(frozen=True)
class _Axis:
    """An axis of the plot: its name, its scale, and whether its good end is its lower one."""

    name: str
    scale: Scale
    flipped: bool = False

    def height(self, value: Value) -> float | None:
        """Returns how high a value stands, from 0 to 1; None: nowhere."""
        place = self.scale.place(value)
        return place if place is None or not self.flipped else 1 - place


def parallel_coordinates(record: SearchRecord, order: Sequence[str]) -> str:
    """Returns an `<svg>` element; a trial without a value begins at the foot of the metric's axis.

    Args:
      record: of a search in which a trial has a value.
      order: the hyperparameters from left to right; the metric, its good end on top, and how far
        trials came, if not all equally far, stand before them.
    """
    axes = _axes(record, order)
    fits = len(axes) <= _MOST_AXES
    width = _WIDTH if fits else _LEFT + _RIGHT + _APART * (len(axes) - 1)
    apart = (width - _LEFT - _RIGHT) / max(len(axes) - 1, 1)
    size = 10 if apart < _TIGHT else 11
    across = [_LEFT + place * apart for place in range(len(axes))]
    shade = shades(record)
    parts = [
        f'<svg class="parallel" viewBox="0 0 {width} {_HEIGHT}" font-size="{size}" '
        f'style="min-width:{0.95 * width:.0f}px" data-top="{_TOP}" data-bottom="{_BOTTOM}" '
        f'data-nowhere="{_NOWHERE}"><g class="lines">'
    ]
    for trial in in_order(record):
        heights = [axis.height(_value(record, trial, axis.name)) for axis in axes]
        at = ",".join("" if height is None else f"{height:.3f}" for height in heights)
        how = drawn_as(record, trial, shade.get(trial.number))
        parts.append(f'<path {how} data-at="{at}" d="{_line(across, heights)}"/>')
    parts.append("</g>")
    for place, axis in enumerate(axes):
        parts += _drawn(axis, place, across[place], apart)
    if any(trial.value is None for trial in record.trials):
        parts.append(_text(across[0] - 7, _NOWHERE + 4, "no value", anchor="end"))
    return "".join([*parts, "</svg>"])


def _axes(record: SearchRecord, order: Sequence[str]) -> list[_Axis]:
    by_name = {axis.name: axis for axis in record.space}
    metric = [one.value for one in record.trials if one.value is not None and finite(one.value)]
    axes = [_Axis(record.metric, scale_of_metric(metric), record.lower_is_better)]
    steps = [one.step for one in record.trials]
    if len(set(steps)) > 1:
        axes.append(_Axis("step", scale_of_steps(steps)))
    of_space = [_Axis(name, scale_of(by_name[name], _values(record, name))) for name in order]
    return axes + of_space


def _values(record: SearchRecord, name: str) -> list[Value]:
    return [one.hparams[name] for one in record.trials if name in one.hparams]


def _value(record: SearchRecord, trial: TrialRecord, name: str) -> Value:
    if name in trial.hparams:
        return trial.hparams[name]
    return {"step": trial.step, record.metric: trial.value}.get(name)


def _y(height: float | None) -> float:
    return _NOWHERE if height is None else _BOTTOM - height * (_BOTTOM - _TOP)


def _line(across: Sequence[float], heights: Sequence[float | None]) -> str:
    """Returns the path of a trial: level where it crosses an axis."""
    path = f"M{across[0]:.1f},{_y(heights[0]):.1f}"
    for place in range(1, len(across)):
        before, here = across[place - 1], across[place]
        middle = (before + here) / 2
        y, to = _y(heights[place - 1]), _y(heights[place])
        path += f"C{middle:.1f},{y:.1f} {middle:.1f},{to:.1f} {here:.1f},{to:.1f}"
    return path


def _drawn(axis: _Axis, place: int, x: float, apart: float) -> Iterator[str]:
    """Yields an axis, its name above it, its labels beside it, and where it can be brushed."""
    yield (
        f'<g class="axis" data-axis="{place}"><title>{text(axis.name)}</title>'
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>'
    )
    columns = min(_COLUMNS, int(apart / _NAME_WIDTH))
    room = min(_LABEL, int((apart - _BESIDE) / _LABEL_WIDTH))
    lines = wrapped(axis.name, columns, _LINES)
    for count, line in enumerate(reversed(lines)):
        yield _text(x, _TOP - 24 - 12.5 * count, line, anchor="middle", kind="name")
    for height, label in axis.scale.marks():
        y = _y(1 - height if axis.flipped else height)
        short = label if len(label) <= room else f"{label[: room - 1]}…"
        yield f'<line x1="{x - 3:.1f}" x2="{x + 3:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(x - 7, y + 4, short, anchor="end", title=label if short != label else "")
    if not place:
        yield _text(x, _TOP - 9, "▲ better", anchor="middle")
    yield (
        f'<rect class="brush" x="{x - 12:.1f}" y="{_TOP - 6}" width="24" '
        f'height="{_BOTTOM - _TOP + 12}"/><rect class="chosen" x="{x - 7:.1f}" width="14" '
        'y="0" height="0"/></g>'
    )


def _text(
    x: float, y: float, told: str, *, anchor: str, kind: str = "label", title: str = ""
) -> str:
    hint = f"<title>{text(title)}</title>" if title else ""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{hint}{text(told)}</text>"
    )
