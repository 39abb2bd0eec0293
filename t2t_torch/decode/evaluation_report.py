"""What an evaluation tells: tables on the console, results as JSON, rows as a table in a file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.data.staging import staged
from t2t_torch.decode.evaluated import EvaluatedRows
from t2t_torch.decode.record import marks_spans
from t2t_torch.decode.table import write_table
from t2t_torch.decode.target import open_target
from t2t_torch.errors import UsageError
from t2t_torch.features import ClassLabel, Feature, MultiLabel, Tags

_COLUMNS = ("precision", "recall", "f1", "support")
_PER_LABEL = re.compile(
    r"metrics-(?P<problem>.+?)/(?P<target>[^/]+)/(?P<span>span_)?"
    r"(?P<column>precision|recall|f1|support)_per_label/(?P<label>.*)"
)
_SHOWN = 40  # labels of a table on the console
_UNKNOWN = "(unknown)"

LabelTable = dict[str, dict[str, float]]
"""By label: precision, recall, f1 and support."""


class Files(NamedTuple):
    """Where `--output` writes.

    Attributes:
      results: JSON.
      rows: tab-separated.
    """

    results: Path
    rows: Path

    @classmethod
    def of(cls, output: str) -> Files:
        """Returns the files of a folder, `results.json` and `rows.tsv`, or of a file's name.

        Args:
          output: a folder, or a name that ends in .json or .tsv, which the other file shares.

        Raises:
          UsageError: it ends like another file, and there is no folder of that name.
        """
        path = Path(output)
        if path.suffix in (".json", ".tsv") and not path.is_dir():
            return cls(path.with_suffix(".json"), path.with_suffix(".tsv"))
        if path.suffix and not path.is_dir() and not output.endswith("/"):
            raise UsageError(
                f"--output={output}: expected a folder, or a file that ends in .json or .tsv. If "
                f"it is to be a folder:  --output={output}/"
            )
        return cls(path / "results.json", path / "rows.tsv")

    def rows_of(self, problem: str | None) -> Path:
        """Returns the file of rows of one of several problems; None is the only one."""
        if problem is None:
            return self.rows
        return self.rows.with_suffix(f".{problem}.tsv")


def label_metrics(feature: Feature) -> tuple[str, ...]:
    """Returns the metrics that a target's table of labels is made of: spans' where tags mark some;
    none of what has no labels.
    """
    if not isinstance(feature, ClassLabel | Tags | MultiLabel):
        return ()
    spans = isinstance(feature, Tags) and marks_spans(feature)
    return tuple(f"{'span_' if spans else ''}{column}_per_label" for column in _COLUMNS)


def label_tables(
    metrics: Mapping[str, float],
) -> tuple[dict[str, LabelTable], dict[str, float]]:
    """Returns the tables of labels that are among the results of an evaluation, and the others.

    Tables have the target's name, that of its problem before it where there are several.
    """
    found = [match for name in metrics if (match := _PER_LABEL.fullmatch(name))]
    several = len({match["problem"] for match in found}) > 1
    tables: dict[str, LabelTable] = {}
    names: dict[str, list[str]] = {}
    for match in found:
        target = f"{match['problem']}/{match['target']}" if several else match["target"]
        name = f"{target} (spans)" if match["span"] else target
        row = tables.setdefault(name, {}).setdefault(match["label"], {})
        row[match["column"]] = metrics[match.string]
        names.setdefault(name, []).append(match.string)
    whole = {name: table for name, table in tables.items() if _is_whole(table)}
    taken = {one for name in whole for one in names[name]}
    return whole, {name: value for name, value in metrics.items() if name not in taken}


def told_tables(tables: Mapping[str, LabelTable]) -> Iterator[str]:
    """Yields the lines of tables of labels, those with most examples first."""
    for name, table in tables.items():
        ranked = sorted(table, key=lambda label: -table[label]["support"])
        rows = [
            [label, *(f"{table[label][c]:.4f}" for c in _COLUMNS[:3]), _count(table[label])]
            for label in ranked[:_SHOWN]
        ]
        yield ""
        yield f"{name}:"
        yield from aligned(("label", *_COLUMNS), rows)
        if len(ranked) > _SHOWN:
            yield f"  ... and {len(ranked) - _SHOWN} labels with fewer examples"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table: the first column to the left, numbers to the right."""
    table = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for row in table:
        first, *others = row
        numbers = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield "  " + "  ".join([f"{first:<{widths[0]}}", *numbers])


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Writes results as JSON; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with staged(path) as file:
        file.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_rows(path: Path, rows: EvaluatedRows) -> int:
    """Writes the rows of a split; the file appears whole or not at all.  Returns their number."""
    with open_target(path) as stream:
        return write_table(stream, rows.header, (rows.cells(row) for row in rows))


def confusion(counts: Counter[tuple[str | None, str | None]]) -> dict[str, Any]:
    """Returns how often each label was taken for each, as JSON has it.

    Returns:
      `labels`, those that are right or found somewhere, and `counts`: a row for each label that is
      right, a column for each that was found.
    """
    named = Counter[tuple[str, str]]()
    for (right, found), count in counts.items():
        named[right or _UNKNOWN, found or _UNKNOWN] += count
    labels = sorted({label for pair in named for label in pair})
    return {"labels": labels, "counts": [[named[r, f] for f in labels] for r in labels]}


def _is_whole(table: LabelTable) -> bool:
    return all(len(row) == len(_COLUMNS) for row in table.values())


def _count(row: Mapping[str, float]) -> str:
    return f"{round(row['support']):,}"
