"""The metric against each hyperparameter alone, at equal steps."""

from __future__ import annotations

from collections.abc import Sequence

from t2t_torch.tune.drawing import drawn_as, in_order, shades, text
from t2t_torch.tune.evidence import value_at
from t2t_torch.tune.scale import Scale, scale_of, scale_of_metric
from t2t_torch.tune.search_record import SearchRecord, SpaceAxis, TrialRecord

_WIDTH, _HEIGHT = 300, 174
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 286, 12, 150
_LABEL = 13  # characters of a label
_LABEL_WIDTH = 6.2  # of a character


def slices(record: SearchRecord, names: Sequence[str], step: int) -> str:
    """Returns a `<div>` of plots, or nothing if no trial has a value at the step.

    Args:
      record: of the search.
      names: of the hyperparameters, in the order of the plots.
      step: at which the trials are compared.
    """
    points = [
        (trial, value)
        for trial in in_order(record)
        if trial.state != "failed" and (value := value_at(trial, step)) is not None
    ]
    if not points:
        return ""
    heights = scale_of_metric([value for _, value in points])
    by_name = {axis.name: axis for axis in record.space}
    plots = "".join(_slice(record, by_name[name], points, heights) for name in names)
    return f'<div class="slices">{plots}</div>'


def _slice(
    record: SearchRecord,
    axis: SpaceAxis,
    points: Sequence[tuple[TrialRecord, float]],
    heights: Scale,
) -> str:
    tried = [trial.hparams[axis.name] for trial, _ in points if axis.name in trial.hparams]
    widths = scale_of(axis, tried)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="11" aria-hidden="true">']
    for height, label in heights.marks():
        y = _BOTTOM - height * (_BOTTOM - _TOP)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 5, y + 4, label, "end"))
    parts += _below(widths)
    shade = shades(record)
    for trial, value in points:
        across = widths.place(trial.hparams.get(axis.name))
        high = heights.place(value)
        if axis.name in trial.hparams and across is not None and high is not None:
            x, y = _across(across), _BOTTOM - high * (_BOTTOM - _TOP)
            how = drawn_as(record, trial, shade.get(trial.number))
            parts.append(f'<circle {how} cx="{x:.1f}" cy="{y:.1f}" r="3.4"/>')
    told = text(axis.name)
    return f"<figure>{''.join(parts)}</svg><figcaption>{told}</figcaption></figure>"


def _below(widths: Scale) -> list[str]:
    """Returns the labels below a plot, those left out that would touch the one before."""
    made, free = [], 0.0
    for place, told in widths.marks():
        label = told if len(told) <= _LABEL else f"{told[: _LABEL - 1]}…"
        half = _LABEL_WIDTH * len(label) / 2
        x = min(max(_across(place), half), _WIDTH - half)
        if x - half >= free:
            made.append(_text(x, _BOTTOM + 17, label, "middle"))
            free = x + half + 6
    return made


def _across(place: float) -> float:
    return _LEFT + 8 + place * (_RIGHT - _LEFT - 16)


def _text(x: float, y: float, told: str, anchor: str) -> str:
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(told)}</text>'
