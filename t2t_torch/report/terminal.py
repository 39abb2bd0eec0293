"""A report as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from t2t_torch.census.samples import AlignedWords, SampleRow
from t2t_torch.report.excerpt import cut, pad, visible, width
from t2t_torch.report.section import Bar, Block, Note, Section, Table

_COLUMNS = 110
_LEAST_TEXT = 40  # of a table's last column, if it holds words


def told(title: str, sections: Sequence[Section], findings: Sequence[str]) -> str:
    """Returns the report, what is worth a look at its end."""
    title = visible(title)
    lines = [title, "=" * width(title), ""]
    for section in sections:
        lines += [section.title, "-" * width(section.title), *_wrapped(section.meaning), ""]
        for block in section.blocks:
            if made := list(_lines(block)):
                lines += [*made, ""]
    lines += ["Worth a look", "------------"]
    for finding in findings or ["Nothing odd was found."]:
        lines += textwrap.wrap(
            visible(finding), _COLUMNS, initial_indent="- ", subsequent_indent="  "
        )
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(visible(text), _COLUMNS, break_on_hyphens=False)


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Note):
        yield from _wrapped(block.text)
    elif isinstance(block, SampleRow):
        yield from _sample(block)


def _table(table: Table) -> Iterator[str]:
    rows = [
        [visible(cell.text if isinstance(cell, Bar) else cell) for cell in row]
        for row in (table.head, *table.rows)
    ]
    if len(table.head) - 1 in table.words:
        others = zip(*(row[:-1] for row in rows), strict=True)
        left = _COLUMNS - sum(max(map(width, column)) + 2 for column in others)
        rows = [[*row[:-1], cut(row[-1], max(left, _LEAST_TEXT))] for row in rows]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    if table.title:
        yield f"{visible(table.title)}:"
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        line = (pad(cell, wide, right=place not in table.words) for place, (cell, wide) in cells)
        yield "  ".join(line).rstrip()


def _sample(sample: SampleRow) -> Iterator[str]:
    yield f"{sample.split}, row {sample.row:,}"
    aligned = {name for words in sample.aligned for name in words.names}
    names = max(len(value.name) for value in sample.values)
    margin = " " * (names + 4)
    for words in sample.aligned:
        yield from _columns(words, names)
    for value in sample.values:
        lines = []
        if value.name not in aligned:
            lines += textwrap.wrap(visible(value.text), _COLUMNS - len(margin)) or ["(empty)"]
        if value.ids:
            lines += textwrap.wrap(f"[{value.told_ids}]", _COLUMNS - len(margin))
        for place, line in enumerate(lines):
            yield (f"  {value.name.ljust(names)}  " if place == 0 else margin) + line


def _columns(aligned: AlignedWords, names: int) -> Iterator[str]:
    """Yields lines of words with the others' entries under them, as many to a line as fit."""
    words = [[visible(entry) for entry in word] for word in aligned.words]
    if aligned.left_out:
        words.append(["…"] * len(aligned.names))
    line: list[tuple[list[str], int]] = []
    for word in [*words, None]:
        wide = max(map(width, word)) if word is not None else 0
        if word is None or (line and names + 4 + sum(one + 2 for _, one in line) + wide > _COLUMNS):
            for place, name in enumerate(aligned.names):
                entries = "  ".join(pad(column[place], one) for column, one in line)
                yield f"  {name.ljust(names)}  {entries}".rstrip()
            line = []
        if word is not None:
            line.append((word, wide))
