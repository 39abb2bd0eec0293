"""Style of all pages: light and dark, wide and narrow.  Imports nothing: the server reads it."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #f7f7f5; --card: #fff; --ink: #1d2127; --soft: #5a626e; --line: #dddfe3;
  --accent: #2563be; --tint: #e6eefb; --mark: #fff4d6; --marked: #6b4a00;
  --series0: #2563be; --series1: #c2570c; --series2: #15803d;
  --series3: #9333a8; --series4: #0e7490;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1c1f25; --ink: #e4e6ea; --soft: #a0a8b4; --line: #343943;
    --accent: #7fb0ff; --tint: #22314a; --mark: #3a2f12; --marked: #f3d48b;
    --series0: #6ea4f7; --series1: #f0955a; --series2: #58c07f;
    --series3: #c98be0; --series4: #4fc3d9;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 78rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 .25rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .4rem; }
a { color: var(--accent); }
.soft, .meaning, footer { color: var(--soft); }
.meaning { margin: 0 0 1rem; max-width: 62rem; font-size: .92rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0; }
.tiles li {
  list-style: none; background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .6rem 1rem; min-width: 8rem;
}
.tiles b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
section, nav, .found {
  background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1rem 1.25rem; margin: 0 0 1rem;
}
.found { background: var(--mark); color: var(--marked); border-color: transparent; }
.found ul { margin: .25rem 0 0; padding-left: 1.2rem; }
nav ol { margin: .25rem 0 0; padding-left: 1.3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .25rem 0 .75rem; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
caption span { display: block; max-width: min(100%, calc(100vw - 4rem)); }
th, td {
  padding: .28rem .7rem .28rem 0; text-align: right; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums;
}
th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; }
.text { text-align: left; }
td.text { white-space: normal; max-width: 28rem; overflow-wrap: break-word; }
p, li, h2, h3, summary { overflow-wrap: anywhere; }
.command span { display: inline-block; max-width: 100%; vertical-align: top; }
td.text:last-child { min-width: 12rem; max-width: none; overflow-wrap: anywhere; }
td.long { min-width: 11rem; }
td.bar { min-width: 6rem; position: relative; }
td.bar i {
  position: absolute; left: 0; top: .2rem; height: 1.5em; border-radius: .2rem; opacity: .22;
  background: var(--series0); max-width: calc(100% - .4rem);
}
td.heat {
  --heat: 0; min-width: 2.6rem; padding: .28rem .4rem; text-align: center;
  background: color-mix(in srgb, var(--series0) calc(var(--heat) * 45%), transparent);
}
.plots { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; margin: .75rem 0; }
figure { margin: 0; flex: 1 1 22rem; min-width: 0; max-width: 30rem; }
figure.narrow { flex-basis: 16rem; max-width: 22rem; }
figcaption { font-size: .9rem; color: var(--soft); }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
svg image { image-rendering: pixelated; }
.sample { border-top: 1px solid var(--line); padding: .75rem 0; }
.sample:first-of-type { border-top: 0; }
.sample h3 { margin: 0 0 .4rem; }
dl { margin: 0; display: grid; grid-template-columns: minmax(4rem, max-content) 1fr; gap: 0 1rem; }
dt { color: var(--soft); font-size: .9rem; padding-top: .1rem; }
dd { margin: 0 0 .5rem; min-width: 0; overflow-wrap: anywhere; }
.ids {
  display: block; color: var(--soft); font: .78rem/1.45 ui-monospace, Menlo, Consolas, monospace;
}
.words { display: flex; flex-wrap: wrap; gap: .35rem; margin: 0 0 .6rem; }
.words span {
  display: flex; flex-direction: column; padding: .1rem .4rem; border-radius: .35rem;
  background: var(--tint); min-width: 0; max-width: 100%; overflow-wrap: anywhere;
}
.words span.plain { background: none; }
.words small { color: var(--soft); font-size: .75rem; }
.words .names { background: none; }
.figure { max-width: 100%; height: auto; border-radius: .3rem; margin: 0 0 .75rem; }
.picture {
  image-rendering: pixelated; width: 7rem; height: auto; border: 1px solid var(--line);
  border-radius: .3rem; display: block; margin-bottom: .5rem;
}
.picture.wide { width: 100%; height: 6rem; }
@media (min-width: 72rem) {
  main { display: flow-root; padding-left: 15rem; }
  nav { position: sticky; top: 1rem; float: left; width: 14rem; margin: 0 1rem 0 -15rem; }
}
@media (max-width: 40rem) {
  section, nav, .found { padding: .8rem .85rem; }
  dl { display: block; }
}
@media print { nav { display: none; } section { break-inside: avoid; } }
"""
