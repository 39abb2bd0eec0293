"""Slices of evaluated rows on which a model is worst: by label, length, word and value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from t2t_torch.reports.section import Section, Table, number, percent

_LEAST_ROWS = 10
_MOST_SLICES = 200_000  # that are counted; words that are met later are not
_SHOWN = 10
_VALUE = 40  # characters of a text that is taken as a value
_DEVIATIONS = 3.0  # by which errors must exceed those of all rows, as many slices are compared


class Slices:
    """Counts of rows and errors of each slice of one target."""

    def __init__(self) -> None:
        self._rows = self._errors = 0
        self._counts: dict[tuple[str, str], list[int]] = {}

    def add(self, inputs: Mapping[str, Any], right: Any, *, is_right: bool) -> None:
        """Counts a row.

        Args:
          inputs: its input values by name: texts, lists of words, and others, which are ignored.
          right: its correct value; a label, or a list of labels.
          is_right: whether the prediction is correct.
        """
        self._rows += 1
        self._errors += not is_right
        for key in {*_slices_of(inputs, right)}:
            if len(self._counts) < _MOST_SLICES or key in self._counts:
                counts = self._counts.setdefault(key, [0, 0])
                counts[0] += 1
                counts[1] += not is_right

    def worst(self) -> list[dict[str, Any]]:
        """Returns the slices with significantly more errors than all rows, the worst first.

        The order is that of the lower bound of Wilson's interval of the share of errors.

        Returns:
          `slice` (a description), `rows`, `errors`, and `share` of errors.
        """
        share = self._errors / max(1, self._rows)
        found = []
        for (what, value), (rows, errors) in self._counts.items():
            if not _LEAST_ROWS <= rows < self._rows:
                continue
            bound, _ = wilson_interval(errors / rows, rows, _DEVIATIONS)
            if bound > share:
                counts = {"rows": rows, "errors": errors, "share": errors / rows}
                found.append((-bound, {"slice": f"{what} {value}", **counts}))
        found.sort(key=lambda pair: (pair[0], pair[1]["slice"]))
        return [one for _, one in found[:_SHOWN]]


def _slices_of(inputs: Mapping[str, Any], right: Any) -> Iterator[tuple[str, str]]:
    """Yields the slices of a row, each a description and a value."""
    labels = right if isinstance(right, list) else [right]
    yield from (("label", repr(label)) for label in labels if isinstance(label, str))
    for name, value in inputs.items():
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            continue
        high = 2 ** max(2, math.ceil(math.log2(max(1, len(words)))))
        yield f"length of {name}", f"{high // 2 + 1 if high > 4 else 0} to {high} words"
        yield from ((f"word in {name}", repr(word.casefold().strip('.,;:!?"'))) for word in words)
        if isinstance(value, str) and len(value) <= _VALUE:
            yield f"{name} is", repr(value)


def wilson_interval(share: float, rows: int, deviations: float = 1.96) -> tuple[float, float]:
    """Returns the interval of a share of some rows, by default of 95 % (Wilson 1927)."""
    rows, share = max(1, rows), min(1.0, max(0.0, share))
    spread = deviations * math.sqrt(share * (1 - share) / rows + (deviations / (2 * rows)) ** 2)
    centre, scale = share + deviations**2 / (2 * rows), 1 + deviations**2 / rows
    return (centre - spread) / scale, (centre + spread) / scale


def sections_of_slices(results: Mapping[str, Any]) -> Iterator[Section]:
    """Yields a section for each target whose results have slices.

    Args:
      results: results of `t2t-eval --output`.
    """
    for target, slices in (results.get("slices") or {}).items():
        if slices:
            rows = [
                [one["slice"], number(one["rows"]), number(one["errors"]), percent(one["share"])]
                for one in slices
            ]
            table = Table(("slice", "rows", "errors", "share"), rows, frozenset({0}))
            meaning = (
                "Rows with a label, a length, a word or a value in common that are wrong more often"
                " than all rows, by three standard deviations.  A slice may be part of another."
            )
            yield Section(f"slices-{target}", f"Where {target} is worst", meaning, [table])
