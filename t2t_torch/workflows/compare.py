"""Comparison of runs: settings that differ, metrics, curves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_torch import atomic_files, errors, files, reporter, trust
from t2t_torch.settings import Settings, hp, hp_path
from t2t_torch.workflows.context import file_to_write

if TYPE_CHECKING:
    from t2t_torch.reports.section import Section


class CompareSettings(Settings):
    """Compares runs: settings that differ, best and last metrics, curves in one chart.

        t2t-compare run1 run2
        t2t-compare run1 run2 run3 --report=compare.html

    Metrics of runs of different problems are compared by their short names.
    """

    runs: tuple[str, ...] = hp(
        (),
        "Run directories of t2t-trainer, two to five; also without --runs=.",
        path=True,
        repeated=True,
    )
    report: str | None = hp_path("HTML page with the tables and the curves.")


_MOST = 5
_MOST_CHARTS = 40


@trust.workflow
def compare(settings: CompareSettings) -> None:
    """Compares runs; writes the requested page."""
    paths = [Path(run).expanduser() for run in settings.runs]
    if not 2 <= len(paths) <= _MOST:
        raise errors.UsageError(f"{len(paths)} runs: give 2 to {_MOST}:  t2t-compare run1 run2")
    if len({path.resolve() for path in paths}) < len(paths):
        raise errors.UsageError("a run is given twice.")
    target = file_to_write(settings, "report")
    from t2t_torch.reports.data_report import plain_text

    names = _names(paths)
    runs = [_RunRecords.read(path) for path in paths]
    sections = [_settings(names, runs), _metrics(names, runs)]
    reporter.output(plain_text(" and ".join(names), sections, None))
    if target is not None:
        atomic_files.write_text(target, _page(names, paths, runs, sections))
        reporter.output(f"\nWritten: {target}")


def _names(paths: Sequence[Path]) -> list[str]:
    """Returns short, different names of the runs: as much of the ends of their paths as needed."""
    parts = [path.resolve().parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(map(str, paths))


class _RunRecords(NamedTuple):
    """The records of a run directory.

    Attributes:
      settings: problem, model, hyperparameters and the other settings, by name.
      series: split and short name of a metric -> (step, value) by step.
    """

    settings: Mapping[str, Any]
    series: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> _RunRecords:
        """Reads a run directory.

        Raises:
          CheckpointError: it is no run directory, or a file is damaged.
        """
        from t2t_torch.run.directory import RunDirectory
        from t2t_torch.run.metrics_file import MetricsFile
        from t2t_torch.train.stopping import short_name

        task = RunDirectory(path).task()
        settings: dict[str, Any] = {
            name: value
            for name, value in task.model_dump().items()
            if name in ("problem", "model", "hparams_set", "trial", "train_steps") and value
        }
        file = path / "hparams.json"
        hparams = files.read_json(file) if file.exists() else {}
        hparams.pop("provenance", None)
        settings |= {f"hparams.{name}": value for name, value in hparams.items()}
        series: dict[str, dict[int, float]] = {}
        for report in MetricsFile(path).read():
            for name, value in report.items():
                if name not in ("step", "split", "time") and isinstance(value, int | float):
                    key = f"{report['split']} {short_name(name)}"
                    series.setdefault(key, {})[int(report["step"])] = float(value)
        return cls(settings, {name: sorted(one.items()) for name, one in series.items()})


def _settings(names: Sequence[str], runs: Sequence[_RunRecords]) -> Section:
    from t2t_torch.reports.section import Note, Section, Table

    keys = dict.fromkeys(key for run in runs for key in run.settings)
    rows = []
    for key in keys:
        values = [json.dumps(run.settings.get(key)) for run in runs]
        if len(set(values)) > 1:
            rows.append([key, *(value.strip('"') for value in values)])
    words = frozenset(range(len(names) + 1))
    blocks = [Table(("setting", *names), rows, words)] if rows else [Note("None.")]
    return Section("settings", "Settings that differ", "", blocks)


def _metrics(names: Sequence[str], runs: Sequence[_RunRecords]) -> Section:
    from t2t_torch.metrics.metric import lower_is_better
    from t2t_torch.reports.section import Note, Section, Table, number

    rows = []
    for key in _shared(runs):
        if key.startswith("train "):
            continue
        try:
            best = min if lower_is_better(key.partition(" ")[2]) else max
        except errors.T2TError:
            continue
        cells = [f"{key}, best"]
        for run in runs:
            evaluated = run.series.get(key, ())
            points = [p for p in evaluated if math.isfinite(p[1])] or evaluated[:1]
            step, value = best(points, key=lambda p: p[1]) if points else (0, math.nan)
            cells.append(f"{number(value)} at {step:,}" if points else "")
        rows.append(cells)
    for key in ("train seconds", "train memory_mib"):
        last = [run.series.get(key, ()) for run in runs]
        if all(last):
            rows.append([f"{key}, last", *(number(points[-1][1]) for points in last)])
    words = frozenset({0})
    blocks = [Table(("metric", *names), rows, words)] if rows else [Note("No evaluation yet.")]
    return Section("metrics", "Metrics", "The best value of each run, and its step.", blocks)


def _shared(runs: Sequence[_RunRecords]) -> list[str]:
    """Returns the series that at least two runs have, evaluations first."""
    keys = dict.fromkeys(key for run in runs for key in run.series)
    several = [key for key in keys if sum(key in run.series for run in runs) > 1]
    return sorted(several, key=lambda key: key.startswith("train "))


def _page(
    names: Sequence[str],
    paths: Sequence[Path],
    runs: Sequence[_RunRecords],
    sections: Sequence[Section],
) -> str:
    from t2t_torch.reports.page import PageHead, document
    from t2t_torch.reports.plots import Curve, chart
    from t2t_torch.reports.section import Plot, Section

    plots = {}
    for key in _shared(runs):
        curves = [
            Curve(name, run.series[key])
            for name, run in zip(names, runs, strict=True)
            if key in run.series
        ]
        if any(math.isfinite(value) for curve in curves for _, value in curve.points):
            plots[key] = chart(curves, logarithmic=key.endswith((" loss", " grad_norm")))
        if len(plots) == _MOST_CHARTS:
            break
    drawn = Section("curves", "Curves", "By optimizer steps.", [Plot(key, key) for key in plots])
    head = PageHead(
        title="Runs compared",
        heading=", ".join(names),
        place=", ".join(str(path.resolve()) for path in paths),
        writer="t2t-compare",
    )
    return document(head, [*sections, drawn], plots)
