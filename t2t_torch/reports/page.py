"""A report as a self-contained HTML file, which runs only its own script."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_torch.reports.plots import data_of, draw
from t2t_torch.reports.section import (
    Bar,
    Block,
    Heat,
    Markup,
    Note,
    Picture,
    Plot,
    Section,
    Table,
    escaped,
    number,
)
from t2t_torch.reports.statistics import AlignedWords, DatasetStatistics, SampleRow

_ASSET = Path(__file__).with_name("page.css")

_FOUND = '<div class="found" role="region" aria-labelledby="found"><h2 id="found">Worth a look</h2>'
_LONG_CELL = 24  # characters, above which a column of texts is wide
_OUTSIDE = "O"  # the tag of words outside every span: not to be coloured
# No script but a page's own, nothing from elsewhere: whatever a row holds, it is only shown.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(
    statistics: DatasetStatistics, sections: Sequence[Section], findings: Sequence[str]
) -> str:
    """Returns the page of dataset statistics, with plots.

    Args:
      statistics: statistics, for the plots, the title and the totals.
      sections: sections of the page.
      findings: warnings.
    """
    head = PageHead(
        title=f"{statistics.problem}: its data",
        heading=statistics.problem,
        place=statistics.data_dir,
        tiles=tuple(_tiles(statistics)),
        findings=findings or ["Nothing odd was found."],
        writer="t2t-data",
    )
    return document(head, sections, draw(statistics))


@dataclass(frozen=True)
class PageHead:
    """Header and footer of a page.

    Attributes:
      title: title of the window.
      heading: heading of the page.
      place: location of the data.
      writer: command that has written the page.
      tiles: (number, label) of the most important figures.
      note: sentence below them, or "".
      findings: warnings; the box is omitted if empty.
    """

    title: str
    heading: str
    place: str
    writer: str
    tiles: Sequence[tuple[str, str]] = ()
    note: str = ""
    findings: Sequence[str] = ()


@dataclass(frozen=True)
class Behaviour:
    """Additional style and script of a page.

    Attributes:
      style: CSS rules after those of all pages.
      script: script that runs when the page is loaded; it cannot load resources.
    """

    style: str = ""
    script: str = ""

    @property
    def policy(self) -> str:
        """Content security policy: only this script may run."""
        if not self.script:
            return _POLICY
        digest = base64.b64encode(hashlib.sha256(self.script.encode()).digest()).decode()
        return f"{_POLICY}; script-src 'sha256-{digest}'"


def document(
    head: PageHead,
    sections: Sequence[Section],
    plots: Mapping[str, str],
    behaviour: Behaviour | None = None,
) -> str:
    """Returns a page.

    Args:
      head: header and footer.
      sections: sections of the page.
      plots: `<svg>` elements by the names of `section.Plot`.
      behaviour: additional style and script, if any.
    """
    more = behaviour or Behaviour()
    style = _ASSET.read_text("utf-8") + more.style
    script = f"<script>{more.script}</script>\n" if more.script else ""
    links = "".join(
        f'<li><a href="#{escaped(one.name)}">{escaped(one.title)}</a></li>' for one in sections
    )
    found = "".join(f'<li dir="auto">{escaped(one)}</li>' for one in head.findings)
    tiles = "".join(f"<li><b>{escaped(what)}</b>{escaped(of)}</li>" for what, of in head.tiles)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{more.policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(head.title)}</title>\n<style>{style}</style>\n</head>",
            f"<body>\n<header>\n<h1>{escaped(head.heading)}</h1>",
            f'<div class="soft">{escaped(head.place)}</div>',
            f'<ul class="tiles">{tiles}</ul>',
            *([f'<p class="soft">{escaped(head.note)}</p>'] if head.note else []),
            "</header>\n<main>",
            f'<nav aria-label="Contents"><h2>Contents</h2><ol>{links}</ol></nav>',
            *([f"{_FOUND}<ul>{found}</ul></div>"] if found else []),
            *(_section(one, plots) for one in sections),
            f"</main>\n<footer>Written by {escaped(head.writer)}.</footer>",
            f"{script}</body>\n</html>\n",
        ]
    )


def _tiles(statistics: DatasetStatistics) -> Iterator[tuple[str, str]]:
    for split, rows in statistics.rows.items():
        yield number(rows), f"rows of {split}"
    for feature in statistics.features:
        if feature.vocab_size and feature.role != "notes":
            yield number(feature.vocab_size), f"ids of {feature.name}"


def _section(section: Section, plots: Mapping[str, str]) -> str:
    name = escaped(section.name)
    groups = itertools.groupby(section.blocks, lambda block: isinstance(block, Plot))
    parts = []
    for are_plots, group in groups:  # in rows if the page is wide enough
        html = "\n".join(filter(None, (_block(block, plots) for block in group)))
        parts.append(f'<div class="plots">{html}</div>' if html and are_plots else html)
    blocks = "\n".join(parts)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{escaped(section.title)}</h2>\n'
        f'<p class="meaning">{escaped(section.meaning)}</p>\n{blocks}\n</section>'
    )


def _block(block: Block, plots: Mapping[str, str]) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Note):
        return f'<p dir="auto">{escaped(block.text)}</p>'
    if isinstance(block, Plot):
        return _plot(block, plots)
    if isinstance(block, Markup):
        return block.html
    if isinstance(block, Picture):
        file = base64.b64encode(block.png).decode()
        alternative = escaped(block.alternative)
        return f'<img class="figure" src="data:image/png;base64,{file}" alt="{alternative}">'
    return _sample(block)


def _plot(plot: Plot, plots: Mapping[str, str]) -> str:
    if plot.name not in plots:
        return ""
    alternative = escaped(plot.alternative)
    narrow = ' class="narrow"' if plot.name.startswith("pair-") else ""
    return (
        f'<figure{narrow}><div role="img" aria-label="{alternative}">{plots[plot.name]}</div>'
        f"<figcaption>{alternative}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    caption = f"<caption><span>{escaped(table.title)}</span></caption>" if table.title else ""
    head = "".join(
        f'<th scope="col"{_text(place, table)}>{escaped(one)}</th>'
        for place, one in enumerate(table.head)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(_cell(cell, _text(place, table)) for place, cell in enumerate(row))
        + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _text(place: int, table: Table) -> str:
    return ' class="text"' if place in table.words else ""


def _cell(cell: str | Bar, attributes: str) -> str:
    if isinstance(cell, Heat):
        share = f' style="--heat:{min(1.0, cell.length):.2f}"' if cell.text else ""
        return f'<td class="heat"{share}>{escaped(cell.text)}</td>'
    if isinstance(cell, Bar):
        drawn = 100 * min(1.0, cell.length)
        share = f'<i style="width:{drawn:.1f}%"></i>' if drawn >= 0.5 else ""  # else a speck
        return f'<td class="bar">{share}{escaped(cell.text)}</td>'
    if not attributes:
        return f"<td>{escaped(cell)}</td>"
    kind = "text long" if len(cell) > _LONG_CELL else "text"
    return f'<td class="{kind}" dir="auto">{escaped(cell)}</td>'


def _sample(sample: SampleRow) -> str:
    aligned = {name for words in sample.aligned for name in words.names}
    parts = [_words(words) for words in sample.aligned]
    entries = []
    for value in sample.values:
        rows = ""
        if value.name in sample.pictures:
            rows = _picture(sample, value.name)
        if value.name not in aligned:
            rows += f'<span dir="auto">{escaped(value.text) or "(empty)"}</span>'
        name = escaped(value.name)
        code = f'<code class="ids">{value.ids_text}</code>' if value.ids else ""
        entries.append(f"<dt>{name}</dt><dd>{rows}{code}</dd>")
    heading = f"{escaped(sample.split)}, row {sample.row:,}"
    body = f"{''.join(parts)}<dl>{''.join(entries)}</dl>"
    return f'<div class="sample"><h3>{heading}</h3>{body}</div>'


def _picture(sample: SampleRow, name: str) -> str:
    pixels = sample.pictures[name]
    pixels = pixels if pixels.shape[2] <= 4 else pixels[..., :3]
    what = ", ".join(f"{one.name} {one.text}" for one in sample.values if one.name != name)
    alternative = escaped(f"{name} of {sample.split}, row {sample.row}: {what}")
    kind = "picture wide" if pixels.shape[1] > 2 * pixels.shape[0] else "picture"
    return f'<img class="{kind}" src="{data_of(pixels)}" alt="{alternative}">'


def _words(aligned: AlignedWords) -> str:
    """Words as little columns, the others' entries below each."""
    names = "".join(f"<small>{escaped(name)}</small>" for name in aligned.names[1:])
    columns = [f'<span class="names"><small>{escaped(aligned.names[0])}</small>{names}</span>']
    for word, *entries in aligned.words:
        below = "".join(f"<small>{escaped(one)}</small>" for one in entries)
        plain = ' class="plain"' if entries and entries[0] == _OUTSIDE else ""
        columns.append(f'<span{plain} dir="auto">{escaped(word)}{below}</span>')
    if aligned.left_out:
        columns.append(f'<span class="plain">… {aligned.left_out:,} more</span>')
    return f'<div class="words">{"".join(columns)}</div>'
