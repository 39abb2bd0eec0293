"""What the page of a search looks like beyond the house's style, and what moves on it.

The script needs no network and changes no text: it sorts the table, tells of the trial under the
mouse, and picks trials where an axis is dragged over.  Without it all is there to be read.
"""

from __future__ import annotations

from t2t_torch.report.page import Behaviour

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
