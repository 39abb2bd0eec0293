"""The HTML page of a search (`search.html`): trials, plots, analyses and results."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_torch.reports.page import Behaviour, PageHead, document
from t2t_torch.reports.plots import AxisScale, Frame, axis_range, downsampled, svg_text, written
from t2t_torch.reports.section import (
    Bar,
    Block,
    Markup,
    Note,
    Section,
    Table,
    command_line,
    counted,
    cut,
    escaped,
    number,
    percent,
    time_text,
)
from t2t_torch.search_space import AnyValue
from t2t_torch.tune import findings
from t2t_torch.tune.search_plan import STATES, SearchRecord, SpaceAxis, State, TrialRecord, duration

_ASSET = Path(__file__).with_suffix("")

BEHAVIOUR = Behaviour(
    style=_ASSET.with_suffix(".css").read_text("utf-8"),
    script=_ASSET.with_suffix(".js").read_text("utf-8"),
)
"""Style and script of the page."""


_MOST_ERROR = 160  # length limit for the last line of an error


_TEXTS = frozenset({"trial", "state", "error"})  # columns of texts


def trial_table(record: SearchRecord, names: Sequence[str]) -> str:
    """Returns the table as a `<div>`.

    Args:
      record: record of the search.
      names: hyperparameters in the order of the columns.
    """
    errors = ["error"] if any(one.error for one in record.trials) else []
    head = ["trial", "state", "step", record.metric, *names, "time", *errors]
    buttons = "".join(
        f'<th scope="col"{_class(name)}><button type="button" title="{escaped(name)}">'
        # The name may wrap at underscores and dots.
        f"{escaped(name).replace('_', '_<wbr>').replace('.', '.<wbr>')}</button></th>"
        for name in head
    )
    rows = "\n".join(_row(record, one, head, names) for one in record.trials)
    return (
        '<div class="scroll trials" tabindex="0"><table id="trials">'
        f"<thead><tr>{buttons}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _row(
    record: SearchRecord, trial: TrialRecord, head: Sequence[str], names: Sequence[str]
) -> str:
    """Returns the row of a trial; the sort keys are numbers, then strings, then None."""
    known = classes(record, trial).split()
    roles = [
        role for kind, role in {"best": "best", "default": "unchanged"}.items() if kind in known
    ]
    value, last = trial.value, (trial.error.strip().splitlines() or [""])[-1]
    restarts = [counted(trial.restarts, "restart")] if trial.restarts else []
    cells: list[tuple[str, float | str | None, str]] = [  # text, sort key, title
        (" ".join([str(trial.number), *roles]), trial.number, str(trial.output_dir)),
        (", ".join([trial.state, *restarts]), STATES.index(trial.state), trial.error),
        (f"{trial.step:,} of {trial.length:,}", trial.step, ""),
        ("none" if value is None else number(value), value, ""),
        *(_value_cell(trial.hparams.get(name)) for name in names),
        (duration(trial.seconds), trial.seconds, ""),
        (cut(last, _MOST_ERROR), last or None, trial.error),
    ]
    columns = []
    for name, (text, key, title) in zip(head, cells, strict=False):  # without errors no column
        attributes = f'data-name="{escaped(name)}"{_class(name)}'
        attributes += "" if key is None else f' data-key="{escaped(str(key))}"'
        attributes += f' title="{escaped(title)}"' if title else ""
        columns.append(f"<td {attributes}>{escaped(text)}</td>")
    return f'<tr class="{" ".join(known)}" data-trial="{trial.number}">{"".join(columns)}</tr>'


def _value_cell(value: AnyValue) -> tuple[str, float | str | None, str]:
    if value is None:
        return "", None, ""
    if isinstance(value, bool | str):
        return written(value), written(value), ""
    shown = number(value) if isinstance(value, float) else written(value)
    return shown, value, repr(value)


def _class(name: str) -> str:
    return ' class="text"' if name in _TEXTS else ""


_DRAG = "Drag along an axis to choose trials"


def search_page(record: SearchRecord) -> str:
    """Returns the self-contained page of a search, finished or not."""
    evidence = findings.evidence_of(record)
    importance = findings.importance_of(record)
    names = [axis.name for axis in record.space if axis.kind != "const"]
    shares = {one.name: one.share for one in importance.shares}
    # The sort is stable: equally important hyperparameters keep the order of the space.
    by_share = sorted(names, key=lambda name: -shares.get(name, 0.0))
    sections = [
        *_best(record, evidence),
        _parallel(record, by_share, ranked=bool(shares)),
        _importance(importance),
        _curves(record),
        Section(
            "trials",
            "Trials",
            "A click on a heading sorts; values are those of the newest evaluation.",
            [Markup(trial_table(record, names)) if record.trials else Note("No trial yet.")],
        ),
        _search(record),
    ]
    head = PageHead(
        title=f"{record.name}: a search",
        heading=f"{record.name}: a search",
        place=str(record.output_dir),
        tiles=tuple(_tiles(record, evidence)),
        note="" if record.over else f"As of {time_text(time.time())}; the search was not over.",
        findings=tuple(_worth_a_look(record)),
        writer="t2t-tuner",
    )
    return document(head, sections, {}, BEHAVIOUR)


def _tiles(record: SearchRecord, evidence: findings.Evidence | None) -> Iterator[tuple[str, str]]:
    if evidence is not None:
        yield number(evidence.value), f"{record.metric} of the best, trial {evidence.best.number}"
        if evidence.default_step is not None and evidence.default_value:
            change = evidence.best_value / evidence.default_value - 1
            sign = "−" if change < 0 else "+"
            label = f"against the unchanged set at step {evidence.default_step:,}"
            yield f"{sign}{percent(abs(change))}", label
    yield number(len(record.trials)), "trials"
    yield number(sum(one.step for one in record.trials)), "steps trained"
    yield duration(record.seconds), "of training, all trials together"


def _worth_a_look(record: SearchRecord) -> Iterator[str]:
    yield from findings.summary(record)
    if not any(one.value is not None for one in record.trials):
        yield "No trial has been evaluated yet."
    if failed := [one for one in record.trials if one.state == "failed"]:
        reasons = [
            (one.error.strip().splitlines() or ["no reason was given"])[-1] for one in failed
        ]
        often = max(dict.fromkeys(reasons), key=reasons.count)
        verb = "of which says" if len(failed) == 1 else f"{reasons.count(often)} of which say"
        yield f"{counted(len(failed), 'trial')} failed, {verb}: {often}"


def _best(record: SearchRecord, evidence: findings.Evidence | None) -> Iterator[Section]:
    if evidence is None:
        return
    best = findings.hparams_of(record, evidence)
    unchanged: Mapping[str, AnyValue] = record.default.hparams if record.default else {}
    spaces = {axis.name: axis for axis in record.space}
    with_default = bool(unchanged) and not evidence.is_default
    head = ["hyperparameter", "best", *(["unchanged set"] if with_default else []), "searched"]
    rows = []
    for name, value in best.items():
        before = [written(unchanged[name]) if name in unchanged else ""] if with_default else []
        searched = _searched(spaces[name]) if name in spaces else ""
        rows.append([name, written(value), *before, searched])
    blocks: list[Block] = [Table(head, rows, frozenset({0, len(head) - 1}))]
    if not evidence.is_default:
        name = findings.SET_FILE if record.hparams_set else findings.YAML_FILE
        blocks.append(_code(f"Ready to paste: {name}", findings.ready_to_paste(record, evidence)))
        if record.hparams_set:
            blocks.append(
                _code("As a flag of t2t-trainer", findings.hparams_flag(record, evidence))
            )
    run = evidence.best.output_dir
    blocks.append(Note(f"Its run, which can be decoded, exported and served: {run}"))
    meaning = "Of the trials that came furthest, the one with the best value at its newest step."
    yield Section("best", "The best hyperparameters", meaning, blocks)


def _searched(axis: SpaceAxis) -> str:
    """Returns the searched range or values of a hyperparameter."""
    if axis.kind == "const":
        return "constant"
    if axis.low is None or axis.high is None:
        return ", ".join(map(written, axis.values))
    return f"{number(axis.low)} to {number(axis.high)}{', logarithmic' if axis.log else ''}"


def _code(title: str, content: str) -> Markup:
    button = '<button type="button" class="copy" hidden>Copy</button>'
    # Keeps line breaks and escapes all markup.
    lines = "\n".join(map(escaped, content.rstrip("\n").split("\n")))
    return Markup(
        f"<details><summary>{escaped(title)}</summary>"
        f'<div>{button}<pre tabindex="0">{lines}</pre></div></details>'
    )


def _parallel(record: SearchRecord, order: Sequence[str], *, ranked: bool) -> Section:
    meaning = (
        f"Each line is a trial; where it crosses an axis is its value.  {record.metric} is that of "
        "its newest evaluation, also of trials that were stopped early."
    )
    if ranked:
        meaning += "  Hyperparameters stand from left to right by how much they matter."
    if all(one.value is None for one in record.trials):
        return Section("parallel", "All trials at a glance", meaning, [Note("No value yet.")])
    default = '<span><i class="dashed"></i>unchanged set</span>' if record.default else ""
    key = (
        '<span>worse <i class="ramp"></i> better</span>'
        f"<span><i></i>best</span>{default}"
        f'<span id="chosen" role="status" data-hint="{_DRAG}">{_DRAG}</span>'
        '<button type="button" id="clear" hidden>Show all</button>'
    )
    label = f"{len(record.trials)} trials over {', '.join(order)} and {record.metric}"
    block = _plot(key, label, parallel_coordinates(record, order))
    return Section("parallel", "All trials at a glance", meaning, [block])


def _plot(key: str, label: str, svg: str) -> Markup:
    """Returns a plot, which may be wider than the page, under its key."""
    wide = f'<div class="wide" role="img" aria-label="{escaped(label)}">{svg}</div>'
    return Markup(f'<div class="key">{key}</div>{wide}')


def _importance(importance: findings.Importance) -> Section:
    meaning = (
        "How much each hyperparameter alone separates the best quarter of the trials from all "
        "(PED-ANOVA, Watanabe et al. 2023), as a share of all, and up to which share chance alone "
        "does: a share that is not above it says nothing."
    )
    blocks: list[Block] = [Note(importance.reliability)]
    if importance.shares:
        most = max(one.share for one in importance.shares) or 1.0
        rows: list[list[str | Bar]] = [
            [one.name, Bar(percent(one.share), one.share / most), percent(one.chance)]
            for one in importance.shares
        ]
        blocks.append(Table(("hyperparameter", "share", "by chance"), rows, frozenset({0})))
    return Section("importance", "What matters", meaning, blocks)


def _curves(record: SearchRecord) -> Section:
    meaning = f"{record.metric} of every evaluation by optimizer steps; the mark is the state."
    if not any(one.values for one in record.trials):
        return Section("curves", "Learning curves", meaning, [Note("No evaluation yet.")])
    label = f"{record.metric} by steps of {counted(len(record.trials), 'trial')}"
    block = _plot(key_of_states(record.counts), label, trial_curves(record))
    return Section("curves", "Learning curves", meaning, [block])


def _search(record: SearchRecord) -> Section:
    rows = [[axis.name, axis.kind, _searched(axis)] for axis in record.space]
    blocks: list[Block] = [
        Note(
            f"Searched by {record.searcher}, seed {record.seed}, for the "
            f"{'lowest' if record.lower_is_better else 'highest'} {record.metric}; started "
            f"{time_text(record.began)}."
        )
    ]
    if record.hparams_changes:
        blocks.append(Note(f"In all trials: {record.hparams_changes}."))
    if record.command:
        blocks.append(command_line(record.command, "Command:"))
    table = Table(("hyperparameter", "kind", "searched"), rows, frozenset({0, 1, 2}))
    meaning = "The search space and settings; the command resumes the search or repeats it."
    return Section("search", "The search", meaning, [*blocks, table])


_MARKS: dict[State, str] = {
    "completed": "m-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "paused": "m-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "stopped": "m-2.7,-2.7h5.4v5.4h-5.4z",
    "failed": "m-3,-3l6,6m-6,0l6,-6",
    "running": "m-3,-3.5l6.5,3.5l-6.5,3.5z",
}
_FEW = 30  # maximum number of trials that are drawn distinctly
_FILLED: tuple[State, ...] = ("completed", "running")


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
    """Yields the trials, the best last, with the SVG attributes of their shapes.

    The shade of a trial is its rank: 1 is best, 0 is worst.  Trials without a value have none.
    """
    valued = [one for one in record.trials if one.value is not None and one.state != "failed"]
    valued.sort(key=lambda one: (record.loss_of(one.value), one.number))
    last = max(len(valued) - 1, 1)
    shade = {one.number: 1 - place / last for place, one in enumerate(valued)}
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
    for part in name.replace("_", "_\n").replace(".", ".\n").split("\n"):
        for piece in [part[k : k + columns] for k in range(0, len(part), columns)]:
            if len(lines[-1]) + len(piece) <= columns:
                lines[-1] += piece
            else:
                lines.append(piece)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: columns - 1]}…"]
    return lines


_WIDE = 20.0  # ratio of a metric's values above which its axis is logarithmic
_FAR = 12.0  # the same for steps


def scale_of_metric(values: Sequence[float]) -> AxisScale:
    """Returns the scale of a metric: all finite values with a margin."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _WIDE:
        low, high = axis_range([math.log10(value) for value in values])
        # The lower margin of a logarithmic axis does not reach 0.
        return AxisScale(min(low, math.log10(min(values))), high, log=True)
    return findings.scale_between(*axis_range(values), log=False, whole=False)


def scale_of_steps(steps: Sequence[int]) -> AxisScale:
    """Returns the scale of optimizer steps; logarithmic if the rungs are far apart."""
    low, high = min(steps), max(steps)
    log = low > 0 and high / low > _FAR
    return findings.scale_between(low if log else 0, high, log=log, whole=True)


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
        values = {"step": trial.step, record.metric: trial.value, **trial.hparams}
        heights = [axis.height(values.get(axis.name)) for axis in axes]
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
    metric = [one.value for one in record.trials if one.value is not None]
    axes = [_ParallelAxis(record.metric, scale_of_metric(metric), record.lower_is_better)]
    steps = [one.step for one in record.trials]
    if len(set(steps)) > 1:
        axes.append(_ParallelAxis("step", scale_of_steps(steps)))
    for name in order:
        tried = [one.hparams[name] for one in record.trials if name in one.hparams]
        axes.append(_ParallelAxis(name, findings.scale_of(by_name[name], tried)))
    return axes


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
    for count, line in enumerate(reversed(wrapped(axis.name, columns, _LINES))):
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
    heights = scale_of_metric([v for trial in record.trials for v in trial.values.values()])
    widths = scale_of_steps([step for trial in record.trials for step in trial.values])

    def at(step: float, value: float) -> tuple[float, float]:
        return _CURVES.x(widths.place(step)), _CURVES.y(heights.place(value))

    parts = [
        f'<svg class="curves" viewBox="0 0 {_CURVES_WIDTH} {_CURVES_HEIGHT}" font-size="11">',
        *_CURVES.rows(heights),
        *_CURVES.columns(widths),
    ]
    label = "step, logarithmic" if widths.log else "step"
    parts.append(svg_text(_CURVES.x(0.5), _CURVES.bottom + 34, label, anchor="middle"))
    parts += _rung_lines(record, widths)
    for trial, attributes in drawn(record):
        if points := list(trial.values.items()):
            line = " ".join(
                "{:.1f},{:.1f}".format(*at(step, value))
                for step, value in downsampled(points, _MOST_POINTS)
            )
            ending = mark(trial.state, *at(*points[-1]))
            parts.append(f'<g {attributes}><polyline points="{line}"/>{ending}</g>')
    return "".join([*parts, "</svg>"])


def _rung_lines(record: SearchRecord, scale: AxisScale) -> Iterator[str]:
    """Yields a line per step at which several trials ended, with the step if space permits."""
    ends = [one.evaluated for one in record.trials if one.state in ("stopped", "paused")]
    rungs = sorted({step for step in ends if ends.count(step) > 1})
    free = 0.0
    for step in rungs if len(rungs) <= _MOST_RUNGS else ():
        x = _CURVES.x(scale.place(step))
        yield (
            f'<line class="rung" x1="{x:.1f}" x2="{x:.1f}" y1="{_CURVES.top}" '
            f'y2="{_CURVES.bottom}"/>'
        )
        label = f"{step:,}" if free else f"rung at {step:,}"
        half = _SMALL_LABEL_WIDTH * len(label) / 2
        if x - half >= free:
            yield svg_text(x, _CURVES.top - 5, label, anchor="middle")
            free = x + half
