// Sorts the table of trials, shows the trial under the mouse, and selects trials where an axis is
// dragged over.  It loads nothing and changes no text; without it the page can be read all the same.
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
    const hint = document.querySelector("#chosen");
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
      hint.textContent = chosen.size ? `${kept} of ${rows.size} trials chosen` : hint.dataset.hint;
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
