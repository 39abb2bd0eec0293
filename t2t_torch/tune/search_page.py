"""The HTML page of a search (`search.html`): trials, analyses and results."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_torch.reports.page import Behaviour, PageHead, document
from t2t_torch.reports.plots import written
from t2t_torch.reports.section import (
    Block,
    Markup,
    Note,
    Section,
    Table,
    command_line,
    counted,
    escaped,
    number,
    percent,
)
from t2t_torch.search_space import AnyValue
from t2t_torch.tune.findings import (
    SET_FILE,
    YAML_FILE,
    Evidence,
    Importance,
    evidence_of,
    hparams_flag,
    hparams_of,
    importance_of,
    ready_to_paste,
    summary,
)
from t2t_torch.tune.plots import classes, finite, key_of_states, parallel_coordinates, trial_curves
from t2t_torch.tune.search_record import STATES, SearchRecord, SpaceAxis, TrialRecord, duration

_ASSET = Path(__file__).with_suffix("")

BEHAVIOUR = Behaviour(
    style=_ASSET.with_suffix(".css").read_text("utf-8"),
    script=_ASSET.with_suffix(".js").read_text("utf-8"),
)
"""Style and script of the page."""


_MOST_ERROR = 160  # length limit for the last line of an error


@dataclass(frozen=True)
class _Cell:
    """Text of a table cell, and its sort key: numbers, then strings, then None."""

    text: str
    key: float | str | None
    words: bool = False
    title: str = ""


def trial_table(record: SearchRecord, names: Sequence[str]) -> str:
    """Returns the table as a `<div>`.

    Args:
      record: record of the search.
      names: hyperparameters in the order of the columns.
    """
    failed = any(one.error for one in record.trials)
    head = ["trial", "state", "step", record.metric, *names, "time", *(["error"] if failed else [])]
    buttons = "".join(
        f'<th scope="col"{_class(words=name in ("trial", "state", "error"))}>'
        f'<button type="button" title="{escaped(name)}">{_broken(name)}</button></th>'
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
    name = str(trial.number)
    name += " best" if "best" in known else ""
    name += " unchanged" if "default" in known else ""
    steps = f"{trial.step:,} of {trial.length:,}"
    value = number(trial.value) if trial.value is not None and finite(trial.value) else "none"
    state = trial.state + (f", {counted(trial.restarts, 'restart')}" if trial.restarts else "")
    cells = [
        _Cell(name, trial.number, words=True, title=str(trial.output_dir)),
        _Cell(state, STATES.index(trial.state), words=True, title=trial.error),
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


def _of_value(value: AnyValue) -> _Cell:
    if value is None:
        return _Cell("", None)
    if isinstance(value, bool | str):
        return _Cell(written(value), written(value))
    shown = number(value) if isinstance(value, float) else written(value)
    return _Cell(shown, value if math.isfinite(value) else None, title=repr(value))


def _cell(cell: _Cell, name: str) -> str:
    key = "" if cell.key is None else f' data-key="{escaped(str(cell.key))}"'
    title = f' title="{escaped(cell.title)}"' if cell.title else ""
    attributes = f'data-name="{escaped(name)}"{_class(words=cell.words)}{key}{title}'
    return f"<td {attributes}>{escaped(cell.text)}</td>"


def _class(*, words: bool) -> str:
    return ' class="text"' if words else ""


def _broken(name: str) -> str:
    """Returns a name as HTML that may wrap at underscores and dots."""
    return escaped(name).replace("_", "_<wbr>").replace(".", ".<wbr>")


_DRAG = "Drag along an axis to choose trials"


def search_page(record: SearchRecord) -> str:
    """Returns the self-contained page of a search, finished or not."""
    evidence = evidence_of(record)
    importance = importance_of(record)
    names = [axis.name for axis in record.space if axis.kind != "const"]
    shares = {one.name: one.share for one in importance.shares}
    # The sort is stable: equally important hyperparameters keep the order of the space.
    by_share = sorted(names, key=lambda name: -shares.get(name, 0.0))
    sections = [
        *_best(record, evidence),
        _parallel(record, by_share, ranked=bool(shares)),
        _importance(importance),
        _curves(record),
        _trials(record, names),
        _search(record),
    ]
    head = PageHead(
        title=f"{record.name}: a search",
        heading=f"{record.name}: a search",
        place=str(record.output_dir),
        tiles=tuple(_tiles(record, evidence)),
        note="" if record.over else f"As of {_time_text(time.time())}; the search was not over.",
        findings=tuple(_worth_a_look(record)),
        writer="t2t-tuner",
    )
    return document(head, sections, {}, BEHAVIOUR)


def _tiles(record: SearchRecord, evidence: Evidence | None) -> Iterator[tuple[str, str]]:
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
    yield from summary(record)
    if not any(one.value is not None for one in record.trials):
        yield "No trial has been evaluated yet."
    failed = [one for one in record.trials if one.state == "failed"]
    if failed:
        reasons = [
            (one.error.strip().splitlines() or ["no reason was given"])[-1] for one in failed
        ]
        often = max(dict.fromkeys(reasons), key=reasons.count)
        verb = "of which says" if len(failed) == 1 else f"{reasons.count(often)} of which say"
        yield f"{counted(len(failed), 'trial')} failed, {verb}: {often}"


def _best(record: SearchRecord, evidence: Evidence | None) -> Iterator[Section]:
    if evidence is None:
        return
    best = hparams_of(record, evidence)
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
        name = SET_FILE if record.hparams_set else YAML_FILE
        blocks.append(_code(f"Ready to paste: {name}", ready_to_paste(record, evidence)))
        if record.hparams_set:
            blocks.append(_code("As a flag of t2t-trainer", hparams_flag(record, evidence)))
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
    if not any(finite(one.value) for one in record.trials):
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


def _importance(importance: Importance) -> Section:
    meaning = (
        "How much each hyperparameter alone separates the best quarter of the trials from all "
        "(PED-ANOVA, Watanabe et al. 2023), as a share of all.  The upright mark is what chance "
        "alone can give: a bar that does not reach it says nothing."
    )
    blocks: list[Block] = [Note(importance.reliability)]
    if importance.shares:
        blocks.append(Markup(_bars(importance)))
    return Section("importance", "What matters", meaning, blocks)


def _bars(importance: Importance) -> str:
    most = max(max(one.share, one.chance) for one in importance.shares) or 1.0
    parts = []
    for one in importance.shares:
        weak = ' class="weak"' if one.share <= one.chance else ""
        chance = percent(one.chance)
        parts.append(
            f"<span>{escaped(one.name)}</span>"
            f'<div title="by chance up to {escaped(chance)}">'
            f'<i{weak} style="width:{100 * one.share / most:.1f}%"></i>'
            f'<b style="left:{100 * one.chance / most:.1f}%"></b></div>'
            f"<span>{escaped(percent(one.share))}</span>"
        )
    return f'<div class="bars">{"".join(parts)}</div>'


def _curves(record: SearchRecord) -> Section:
    meaning = f"{record.metric} of every evaluation by optimizer steps; the mark is the state."
    if not any(finite(value) for one in record.trials for _, value in one.curve):
        return Section("curves", "Learning curves", meaning, [Note("No evaluation yet.")])
    label = f"{record.metric} by steps of {counted(len(record.trials), 'trial')}"
    block = _plot(key_of_states(record.counts), label, trial_curves(record))
    return Section("curves", "Learning curves", meaning, [block])


def _trials(record: SearchRecord, names: Sequence[str]) -> Section:
    meaning = "A click on a heading sorts; values are those of the newest evaluation."
    block = Markup(trial_table(record, names)) if record.trials else Note("No trial yet.")
    return Section("trials", "Trials", meaning, [block])


def _search(record: SearchRecord) -> Section:
    rows = [[axis.name, axis.kind, _searched(axis)] for axis in record.space]
    blocks: list[Block] = [
        Note(
            f"Searched by {record.searcher}, seed {record.seed}, for the "
            f"{'lowest' if record.lower_is_better else 'highest'} {record.metric}; started "
            f"{_time_text(record.began)}."
        )
    ]
    if record.hparams_changes:
        blocks.append(Note(f"In all trials: {record.hparams_changes}."))
    if record.command:
        blocks.append(command_line(record.command, "Command:"))
    table = Table(("hyperparameter", "kind", "searched"), rows, frozenset({0, 1, 2}))
    meaning = "The search space and settings; the command resumes the search or repeats it."
    return Section("search", "The search", meaning, [*blocks, table])


def _time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))
