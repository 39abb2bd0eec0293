"""The page of a search (`search.html`): what was tried, what it led to, and what was found."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_torch.files import staged
from t2t_torch.reports.page import Behaviour, Head, document
from t2t_torch.reports.section import Block, Markup, Note, Section, Table, counted, number, percent
from t2t_torch.search_space import AnyValue
from t2t_torch.tune.findings import (
    SET_FILE,
    YAML_FILE,
    Evidence,
    evidence_of,
    found,
    hparams_flag,
    hparams_of,
    ready_to_paste,
)
from t2t_torch.tune.importance import Importance, importance_of
from t2t_torch.tune.plots import (
    classes,
    finite,
    key_of_states,
    parallel_coordinates,
    slices,
    text,
    trial_curves,
    written,
)
from t2t_torch.tune.search_record import STATES, SearchRecord, SpaceAxis, TrialRecord, duration

# What the page of a search looks like beyond the house's style, and what moves on it.
#
# The script needs no network and changes no text: it sorts the table, tells of the trial under the
# mouse, and picks trials where an axis is dragged over.  Without it all is there to be read.


_STYLE = """
:root { --good: #2563be; --bad: #d9a514; --fault: #b42318; }
@media (prefers-color-scheme: dark) {
  :root { --good: #7fb0ff; --bad: #8a6a10; --fault: #ff8a7a; }
}
main { row-gap: 0; }
.wide { overflow-x: auto; margin: .5rem 0; }
.wide svg { touch-action: pan-y; }
svg .label { fill: var(--soft); paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
svg .name { fill: var(--ink); font-weight: 600; }
svg .axis line { stroke: var(--soft); }
svg .grid { stroke: var(--line); }
svg .rung { stroke: var(--soft); stroke-dasharray: 1 4; }
.parallel .trial, .curves .trial polyline {
  fill: none; stroke: var(--c); opacity: var(--o); stroke-width: 1.4; stroke-linejoin: round;
}
.parallel .failed, .curves .failed polyline { stroke-dasharray: 2 4; }
/* What stands on an element itself would win. */
.trial.default { --c: var(--series2) !important; --o: 1 !important; }
.trial.best { --c: var(--good) !important; --o: 1 !important; }
.parallel .default, .curves .default polyline { stroke-width: 2.2; stroke-dasharray: 7 3; }
.parallel .best, .curves .best polyline { stroke-width: 3.2; }
.mark { stroke: var(--c); stroke-width: 1.6; opacity: var(--o); }
.mark.full { fill: var(--c); } .mark.open { fill: var(--card); }
.failed .mark { stroke: var(--fault); opacity: 1; }
.slices .trial { fill: var(--c); opacity: max(var(--o), .6); stroke: var(--card); }
.slices .trial { stroke-width: .8; }
.slices .best { stroke: var(--ink); stroke-width: 2; }
.slices .default { stroke: var(--ink); stroke-width: 1.4; stroke-dasharray: 2 1.5; }
.slices {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .75rem 1rem;
}
.slices figure { max-width: 24rem; }
.slices figcaption { text-align: center; overflow-wrap: anywhere; }
.brush { fill: transparent; cursor: ns-resize; }
.brush:hover { fill: var(--tint); opacity: .5; }
.chosen { fill: var(--good); opacity: .3; pointer-events: none; }
.out { display: none; }
.pointed path.trial:not(.hit), .pointed g.trial:not(.hit), .pointed circle.trial:not(.hit) {
  opacity: .12;
}
.pointed .trial.hit { --o: 1 !important; }
.pointed path.hit, .pointed .hit polyline { stroke-width: 3.2; }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .88rem; align-items: center; }
.key span { display: inline-flex; gap: .35rem; align-items: center; color: var(--soft); }
.key svg { width: .95rem; height: .95rem; }
.key i { display: inline-block; width: 1.5rem; border-top: 3px solid var(--good); }
.key i.dashed { border-top: 2px dashed var(--series2); }
.key i.ramp {
  width: 4rem; height: .55rem; border: 0; border-radius: .2rem;
  background: linear-gradient(90deg in oklab, var(--bad), var(--good));
}
.key button { margin-left: auto; }
.bars { display: grid; grid-template-columns: fit-content(45%) minmax(4rem, 1fr) max-content; }
.bars { gap: .3rem .9rem; align-items: center; font-size: .9rem; margin: .5rem 0 1rem; }
.bars > div { position: relative; height: 1.05rem; background: var(--tint); border-radius: .2rem; }
.bars > div i {
  position: absolute; inset: 0 auto 0 0; background: var(--good); border-radius: .2rem;
}
.bars > div i.weak { background: var(--soft); opacity: .55; }
.bars > div b {
  position: absolute; top: -.15rem; bottom: -.15rem; border-left: 2px solid var(--ink);
}
svg.curves { min-width: 36rem; }
.bars span { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.trials { max-height: 34rem; overflow-y: auto; }
.trials th { position: sticky; top: 0; background: var(--card); z-index: 1; min-width: 3.6rem; }
.trials th button {
  font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer;
  text-align: inherit; max-width: 9rem;
}
.trials th[aria-sort] button { color: var(--ink); }
.trials th[aria-sort=ascending] button::after { content: " ▲"; }
.trials th[aria-sort=descending] button::after { content: " ▼"; }
.trials td:nth-child(-n+2) { white-space: nowrap; }
.trials tr.best td { font-weight: 700; }
.trials tr.hit td, .trials tbody tr:hover td { background: var(--tint); }
.trials tr.failed td { color: var(--fault); }
pre {
  background: var(--paper); border: 1px solid var(--line); border-radius: .4rem; margin: .5rem 0;
  padding: .7rem .9rem; overflow-x: auto; font: .85rem/1.5 ui-monospace, Menlo, Consolas, monospace;
}
summary { cursor: pointer; font-weight: 600; }
details { margin: .5rem 0; }
details > div { position: relative; }
.copy { position: absolute; right: .5rem; top: .5rem; }
.copy, .key button {
  font: inherit; font-size: .85rem; color: var(--accent); background: var(--card); cursor: pointer;
  border: 1px solid var(--line); border-radius: .4rem; padding: .15rem .6rem;
}
:is(button, .scroll):focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
#tip {
  position: fixed; z-index: 9; pointer-events: none; background: var(--card); color: var(--ink);
  border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .75rem; font-size: .85rem;
  box-shadow: 0 4px 18px #0004; max-width: 24rem;
}
#tip table { margin: 0; font-size: inherit; }
#tip td { border: 0; padding: 0 .6rem 0 0; text-align: left; white-space: normal; }
#tip td:first-child { color: var(--soft); }
@media print { .trials { max-height: none; } .copy, .key button { display: none; } }
"""

_SCRIPT = """
"use strict";
(() => {
  const all = (query, root = document) => [...root.querySelectorAll(query)];
  const rows = new Map(all("#trials tbody tr").map(row => [row.dataset.trial, row]));
  const drawn = new Map();
  for (const one of all("svg [data-trial]")) {
    drawn.set(one.dataset.trial, [...(drawn.get(one.dataset.trial) || []), one]);
  }
  const tip = document.createElement("div");
  tip.id = "tip"; tip.hidden = true;
  document.body.append(tip);
  let hit = null;

  function point(number, event) {
    if (number !== hit) {
      for (const one of [...(drawn.get(hit) || []), rows.get(hit)]) one?.classList.remove("hit");
      for (const one of [...(drawn.get(number) || []), rows.get(number)]) one?.classList.add("hit");
      document.body.classList.toggle("pointed", number !== null);
      hit = number;
      const table = document.createElement("table");
      for (const cell of number === null ? [] : rows.get(number).cells) {
        if (!cell.textContent) continue;
        const row = table.insertRow();
        row.insertCell().textContent = cell.dataset.name;
        row.insertCell().textContent = cell.textContent;
      }
      tip.replaceChildren(table);
    }
    tip.hidden = number === null || !event;
    if (tip.hidden) return;
    const right = event.clientX + 18 + tip.offsetWidth > innerWidth;
    const top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8);
    tip.style.left = (right ? event.clientX - 18 - tip.offsetWidth : event.clientX + 18) + "px";
    tip.style.top = Math.max(top, 8) + "px";
  }

  function place(svg, event) {
    return new DOMPoint(event.clientX, event.clientY)
      .matrixTransform(svg.getScreenCTM().inverse());
  }

  function nearest(svg, distances) {
    svg.addEventListener("pointermove", event => {
      if (event.buttons) return;
      const at = place(svg, event);
      let best = null, least = 14;
      for (const [number, distance] of distances) {
        if (rows.get(number).classList.contains("out")) continue;
        const here = distance(at);
        if (here < least) { least = here; best = number; }
      }
      point(best, event);
    });
    svg.addEventListener("pointerleave", () => point(null));
  }

  const parallel = document.querySelector("svg.parallel");
  if (parallel) {
    const { top, bottom, nowhere } = parallel.dataset, axes = all(".axis", parallel);
    const across = axes.map(axis => +axis.querySelector("line").getAttribute("x1"));
    const y = height => height === "" ? +nowhere : bottom - height * (bottom - top);
    nearest(parallel, all("[data-at]", parallel).map(path => {
      const heights = path.dataset.at.split(",");
      return [path.dataset.trial, at => {
        const after = across.findIndex(x => x >= at.x);
        if (after < 1) return Infinity;
        const t = (at.x - across[after - 1]) / (across[after] - across[after - 1]);
        const eased = t * t * (3 - 2 * t);
        return Math.abs(y(heights[after - 1]) * (1 - eased) + y(heights[after]) * eased - at.y);
      }];
    }));

    const chosen = new Map(), button = document.querySelector("#clear");
    const told = document.querySelector("#chosen");
    const choose = () => {
      let kept = 0;
      for (const path of all("[data-at]", parallel)) {
        const heights = path.dataset.at.split(",");
        const out = [...chosen].some(([axis, [low, high]]) =>
          heights[axis] === "" || heights[axis] < low || heights[axis] > high);
        kept += !out;
        const number = path.dataset.trial, its = [...drawn.get(number), rows.get(number)];
        for (const one of its) one.classList.toggle("out", out);
      }
      button.hidden = !chosen.size;
      told.textContent = chosen.size ? `${kept} of ${rows.size} trials chosen` : told.dataset.told;
    };
    const clear = () => {
      chosen.clear();
      for (const one of all(".chosen", parallel)) one.setAttribute("height", 0);
      choose();
    };
    button.addEventListener("click", clear);
    for (const [number, axis] of axes.entries()) {
      const brush = axis.querySelector(".brush"), shown = axis.querySelector(".chosen");
      let from = null;
      brush.addEventListener("pointerdown", event => {
        from = place(parallel, event).y; brush.setPointerCapture(event.pointerId); point(null);
      });
      brush.addEventListener("pointermove", event => {
        if (from === null) return;
        const to = place(parallel, event).y, [high, low] = [Math.min(from, to), Math.max(from, to)];
        shown.setAttribute("y", high); shown.setAttribute("height", low - high);
        const height = y => (bottom - y) / (bottom - top);
        chosen.set(number, [height(low) - 1e-3, height(high) + 1e-3]);
        if (low - high < 3) { chosen.delete(number); shown.setAttribute("height", 0); }
        choose();
      });
      brush.addEventListener("pointerup", event => {
        if (Math.abs(place(parallel, event).y - from) < 3) {
          chosen.delete(number); shown.setAttribute("height", 0); choose();
        }
        from = null;
      });
      brush.addEventListener("pointercancel", () => { from = null; });
    }
  }

  for (const svg of all("svg.curves")) {
    nearest(svg, all("g[data-trial]", svg).map(group => {
      const line = group.querySelector("polyline").getAttribute("points");
      const points = line.split(" ").map(pair => pair.split(",").map(Number));
      return [group.dataset.trial, at => {
        let least = Infinity;
        points.forEach(([x, y], k) => {
          const [a, b] = points[Math.max(k - 1, 0)];
          const wide = x - a, t = wide ? Math.min(Math.max((at.x - a) / wide, 0), 1) : 1;
          least = Math.min(least, Math.hypot(at.x - a - t * wide, at.y - b - t * (y - b)));
        });
        return least;
      }];
    }));
  }
  for (const dot of all(".slices circle")) {
    dot.addEventListener("pointerenter", event => point(dot.dataset.trial, event));
    dot.addEventListener("pointerleave", () => point(null));
  }
  for (const [number, row] of rows) {
    row.addEventListener("pointerenter", () => point(number));
    row.addEventListener("pointerleave", () => point(null));
  }

  for (const [column, head] of all("#trials th").entries()) {
    head.querySelector("button").addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      for (const other of all("#trials th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const key = row => row.cells[column].dataset.key;
      const compare = (one, other) => {
        const [a, b] = [key(one), key(other)];
        if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
        const order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
        return falling ? -order : order;
      };
      document.querySelector("#trials tbody").append(...[...rows.values()].sort(compare));
    });
  }

  for (const button of all(".copy")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.nextElementSibling.textContent);
      button.textContent = "Copied";
    });
  }
})();
"""

BEHAVIOUR = Behaviour(_STYLE, _SCRIPT)
"""Of the page of a search."""


# The table of all trials of a search, which a page's script sorts.


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


def _of_value(value: AnyValue) -> _Cell:
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


_MOST_SLICES = 12
_DRAG = "Drag along an axis to choose trials"


def write_page(record: SearchRecord, path: Path) -> None:
    """Writes the page of a search, over or not; the file is whole whenever it is read."""
    with staged(path) as temporary:
        temporary.write_text(search_page(record), encoding="utf-8")


def search_page(record: SearchRecord) -> str:
    """Returns the page; it needs nothing from elsewhere."""
    evidence = evidence_of(record)
    importance = importance_of(record)
    names = [axis.name for axis in record.space if axis.kind != "const"]
    shares = {one.name: one.share for one in importance.shares}
    # The sort is stable: what is as important stays in the order of the space.
    by_share = sorted(names, key=lambda name: -shares.get(name, 0.0))
    sections = [
        *_best(record, evidence),
        _parallel(record, by_share, ranked=bool(shares)),
        *_importance(record, importance, by_share),
        _curves(record),
        _trials(record, names),
        _search(record),
    ]
    head = Head(
        title=f"{record.name}: a search",
        heading=f"{record.name}: a search",
        place=str(record.output_dir),
        tiles=tuple(_tiles(record, evidence)),
        note="" if record.over else f"As of {_told_time(time.time())}; the search was not over.",
        found=tuple(_worth_a_look(record)),
        writer="t2t-tuner",
    )
    return document(head, sections, {}, BEHAVIOUR)


def _tiles(record: SearchRecord, evidence: Evidence | None) -> Iterator[tuple[str, str]]:
    if evidence is not None:
        yield number(evidence.value), f"{record.metric} of the best, trial {evidence.best.number}"
        if evidence.default_step is not None and evidence.default_value:
            change = evidence.best_value / evidence.default_value - 1
            sign = "−" if change < 0 else "+"
            told = f"against the unchanged set at step {evidence.default_step:,}"
            yield f"{sign}{percent(abs(change))}", told
    yield number(len(record.trials)), "trials"
    yield number(sum(one.step for one in record.trials)), "steps trained"
    yield duration(record.seconds), "of training, all trials together"


def _worth_a_look(record: SearchRecord) -> Iterator[str]:
    yield from found(record)
    if not any(one.value is not None for one in record.trials):
        yield "No trial has been evaluated yet."
    failed = [one for one in record.trials if one.state == "failed"]
    if failed:
        reasons = [(one.error.strip().splitlines() or ["no reason was told"])[-1] for one in failed]
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
        name = YAML_FILE if record.trial else SET_FILE
        blocks.append(_code(f"Ready to paste: {name}", ready_to_paste(record, evidence)))
        if not record.trial:
            blocks.append(_code("As a flag of t2t-trainer", hparams_flag(record, evidence)))
    blocks.append(Note(f"Its run, which can be decoded, exported and served: {_run(evidence)}"))
    meaning = "Of the trials that came furthest, the one with the best value at its newest step."
    yield Section("best", "The best hyperparameters", meaning, blocks)


def _run(evidence: Evidence) -> str:
    return str(evidence.best.output_dir)


def _searched(axis: SpaceAxis) -> str:
    """Writes what was searched of a hyperparameter."""
    if axis.kind == "const":
        return "constant"
    if axis.low is None or axis.high is None:
        return ", ".join(map(written, axis.values))
    return f"{number(axis.low)} to {number(axis.high)}{', logarithmic' if axis.log else ''}"


def _code(summary: str, content: str) -> Markup:
    button = '<button type="button" class="copy" hidden>Copy</button>'
    # Line ends stay as they are; of the rest nothing is markup.
    lines = "\n".join(map(text, content.rstrip("\n").split("\n")))
    return Markup(
        f"<details><summary>{text(summary)}</summary>"
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
        '<div class="key"><span>worse <i class="ramp"></i> better</span>'
        f"<span><i></i>best</span>{default}"
        f'<span id="chosen" role="status" data-told="{_DRAG}">{_DRAG}</span>'
        '<button type="button" id="clear" hidden>Show all</button></div>'
    )
    told = text(f"{len(record.trials)} trials over {', '.join(order)} and {record.metric}")
    plot = parallel_coordinates(record, order)
    block = Markup(f'{key}<div class="wide" role="img" aria-label="{told}">{plot}</div>')
    return Section("parallel", "All trials at a glance", meaning, [block])


def _importance(
    record: SearchRecord, importance: Importance, order: Sequence[str]
) -> Iterator[Section]:
    meaning = (
        "How much of the differences between trials each hyperparameter explains alone (fANOVA, "
        "Hutter et al. 2014, of ranks); the rest is of combinations and of chance.  The upright "
        "mark is what chance alone can give: a bar that does not reach it says nothing."
    )
    blocks: list[Block] = [Note(importance.told)]
    if importance.shares:
        blocks.append(Markup(_bars(importance)))
    if importance.step is not None:
        plots = slices(record, order[:_MOST_SLICES], importance.step)
        if plots:
            told = f"{record.metric} at step {importance.step:,} against each alone:"
            blocks += [Note(told), Markup(plots)]
    yield Section("importance", "What matters", meaning, blocks)


def _bars(importance: Importance) -> str:
    most = max(max(one.share, one.chance) for one in importance.shares) or 1.0
    parts = []
    for one in importance.shares:
        weak = ' class="weak"' if one.share <= one.chance else ""
        chance = percent(one.chance)
        parts.append(
            f"<span>{text(one.name)}</span>"
            f'<div title="by chance up to {text(chance)}">'
            f'<i{weak} style="width:{100 * one.share / most:.1f}%"></i>'
            f'<b style="left:{100 * one.chance / most:.1f}%"></b></div>'
            f"<span>{text(percent(one.share))}</span>"
        )
    return f'<div class="bars">{"".join(parts)}</div>'


def _curves(record: SearchRecord) -> Section:
    meaning = f"{record.metric} of every evaluation by optimizer steps; the mark is the state."
    if not any(finite(value) for one in record.trials for _, value in one.curve):
        return Section("curves", "Learning curves", meaning, [Note("No evaluation yet.")])
    counts = [(state, sum(one.state == state for one in record.trials)) for state in STATES]
    key = key_of_states([(state, count) for state, count in counts if count])
    told = text(f"{record.metric} by steps of {counted(len(record.trials), 'trial')}")
    plot = trial_curves(record)
    block = Markup(
        f'<div class="key">{key}</div><div class="wide" role="img" aria-label="{told}">{plot}</div>'
    )
    return Section("curves", "Learning curves", meaning, [block])


def _trials(record: SearchRecord, names: Sequence[str]) -> Section:
    meaning = "A click on a heading sorts; values are those of the newest evaluation."
    return Section("trials", "Trials", meaning, [Markup(trial_table(record, names))])


def _search(record: SearchRecord) -> Section:
    rows = [[axis.name, axis.kind, _searched(axis)] for axis in record.space]
    told = [
        f"Searched by {record.searcher}, seed {record.seed}, for the "
        f"{'lowest' if record.lower_is_better else 'highest'} {record.metric}; begun "
        f"{_told_time(record.began)}."
    ]
    if record.hparams_changes:
        told.append(f"In all trials: {record.hparams_changes}.")
    if record.command:
        told.append(f"Command: {record.command}")
    table = Table(("hyperparameter", "kind", "searched"), rows, frozenset({0, 1, 2}))
    meaning = "What was searched, and how; the command goes on with it or makes it again."
    return Section("search", "The search", meaning, [*map(Note, told), table])


def _told_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))
