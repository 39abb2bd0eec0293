"""The page of a run (`report.html`), created from the files in its folder only."""

from __future__ import annotations

import html
import json
import math
import platform
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from tqdm import tqdm

import t2t_torch
from t2t_torch import registry, reporter
from t2t_torch.atomic_files import staged, write_text
from t2t_torch.errors import CheckpointError, T2TError, shortened
from t2t_torch.files import read_bytes, read_json
from t2t_torch.metrics.metric import lower_is_better
from t2t_torch.reports.page import PageHead, document
from t2t_torch.reports.plots import Curve, Point, chart, scatter
from t2t_torch.reports.section import (
    Block,
    Note,
    Picture,
    Plot,
    Section,
    Table,
    command_line,
    confusion_blocks,
    counted,
    label_table,
    number,
    time_text,
)
from t2t_torch.run.checkpoint_directory import CheckpointDirectory, Ratings
from t2t_torch.run.checksums import settings_files
from t2t_torch.run.metrics_file import MetricsFile, read_records
from t2t_torch.search_space import Space
from t2t_torch.train.stopping import short_names
from t2t_torch.train.summary import FIGURE_FOLDER, Summary
from t2t_torch.train.task import Hook, reported_hparams

if TYPE_CHECKING:
    from t2t_torch.mode import Split
    from t2t_torch.train.estimator import Estimator


STARTS_NAME = "starts.jsonl"


def add_start(directory: Path, estimator: Estimator) -> None:
    """Records the start of training with a single write of a line.

    `starts.jsonl` has each start of a run, also after an interruption, with its machine.
    """
    start = {
        "time": round(time.time(), 3),
        "step": estimator.state.step,
        "train_steps": estimator.train_steps,
        "parameters": sum(one.numel() for one in estimator.model.parameters()),
        "trained": sum(one.numel() for one in estimator.model.parameters() if one.requires_grad),
        "counted": estimator.task.counted,
        "precision": estimator.precision.name,
        "processes": estimator.world.size,
        **machine(estimator.world.device),
        "changes": estimator.directory.changes,
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "command": " ".join(sys.argv),
    }
    with (directory / STARTS_NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(start) + "\n")


def machine(device: torch.device) -> dict[str, Any]:
    """Returns what the last bits of a training depend on: processor, threads, versions."""
    name = platform.processor() or platform.machine()
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    return {
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "torch": torch.__version__,
        "t2t_torch": t2t_torch.__version__,
    }


def starts_of(directory: Path) -> list[dict[str, Any]]:
    """Returns the recorded starts in order; incomplete lines are skipped."""
    return read_records(directory / STARTS_NAME)


SAMPLES_NAME = "decode_samples.json"
_MOST = 8
_LONGEST = 600  # characters shown of a text
_MARKS, _ESCAPED = re.compile(r"[\\`*_{}\[\]()#+!|~-]"), r"\\\g<0>"  # of Markdown


class DecodeSample(NamedTuple):
    """A sentence with its reference and its decode.

    Attributes:
      inputs: the decoded input.
      reference: the correct output; None if unknown.
      decode: output of the model.
    """

    inputs: str
    reference: str | None
    decode: str


def choose_samples(
    inputs: Sequence[str],
    decodes: Sequence[str],
    references: Sequence[str] | None = None,
    most: int = _MOST,
) -> list[DecodeSample]:
    """Returns samples from all parts of a file; always the same lines of a file.

    Args:
      inputs: decoded inputs.
      decodes: one per input.
      references: one per input, or None.
      most: maximum number of samples.
    """
    count = min(len(inputs), len(decodes))
    places = sorted({place * count // most for place in range(most)}) if count else []
    return [
        DecodeSample(inputs[i], references[i] if references else None, decodes[i]) for i in places
    ]


def show_samples(
    summary: Summary, directory: Path, samples: Sequence[DecodeSample], step: int
) -> None:
    """Writes samples to TensorBoard, and the newest to a file for the run page.

    A disk error is reported and does not end the run.

    Args:
      summary: summary of the run.
      directory: directory of the run.
      samples: samples to write.
      step: completed optimizer steps.
    """
    summary.text("decodes", as_markdown(samples), step)
    if summary.leads:
        content = {"step": step, "samples": [sample._asdict() for sample in samples]}
        with summary.surviving(SAMPLES_NAME), staged(directory / SAMPLES_NAME) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def read_samples(directory: Path) -> tuple[int, list[DecodeSample]]:
    """Returns the step of the newest samples and the samples; an empty list if there are none."""
    try:
        content = read_json(directory / SAMPLES_NAME)
    except FileNotFoundError:
        return 0, []
    return content["step"], [DecodeSample(**sample) for sample in content["samples"]]


def as_markdown(samples: Sequence[DecodeSample]) -> str:
    """Returns samples as a Markdown table."""
    rows = ["| inputs | reference | decode |", "|---|---|---|"]
    for sample in samples:
        cells = (" ".join((text or "")[:_LONGEST].split()) for text in sample)
        marked = (html.escape(_MARKS.sub(_ESCAPED, cell), quote=False) for cell in cells)
        rows.append(f"| {' | '.join(marked)} |")
    return "\n".join(rows)


PREDICTIONS_NAME = "predictions.json"


def read_predictions(directory: Path) -> dict[str, Any]:
    """Returns the record of the newest evaluation; empty if there is none."""
    try:
        record: dict[str, Any] = read_json(directory / PREDICTIONS_NAME)
    except FileNotFoundError:
        return {}
    return record


def _predictions(record: Mapping[str, Any]) -> Iterator[tuple[Section, dict[str, str]]]:
    """Yields the sections of the predictions, with their plots."""
    if not record:
        return
    of = f"Of {record['split']} at step {record['step']:,}."
    samples = record["samples"]
    if samples["rows"]:
        words = frozenset(range(len(samples["head"])))
        meaning = f"{of}  From all parts of the split, the wrong ones first."
        if samples["head"][0]:
            meaning = f"{of}  Decoded greedily."
        elif not any(row[0] for row in samples["rows"]):  # neither right nor wrong
            meaning = f"{of}  From all parts of the split."
        yield (
            Section(
                "samples", "Samples", meaning, [Table(samples["head"], samples["rows"], words)]
            ),
            {},
        )
    for name, target in record["targets"].items():
        anchor, labels = f"predictions-{name}", target.get("labels", [])
        if "pairs" in target:
            unit = "words" if target["is_sequence"] else "examples"
            meaning = f"{of}  Counts of {unit}.  Rows are references, columns are predictions."
            blocks = list(confusion_blocks(labels, target["pairs"]))
            yield Section(anchor, f"Confusion of {name}", meaning, blocks), {}
        elif "of_labels" in target:
            columns = zip(labels, *reversed(target["of_labels"]), strict=True)
            statistics = sorted(columns, key=lambda one: -(one[1] + one[2] - 2 * one[3]))
            table = label_table(statistics[:_MOST_LABELS], len(labels))
            yield Section(anchor, f"Labels of {name}", of, [table]), {}
        elif target["points"]:
            finite = [point for point in target["points"] if all(map(math.isfinite, point))]
            plots = {anchor: scatter(finite, ("reference", "prediction"))} if finite else {}
            meaning = f"{of}  {counted(len(finite), 'example')}; on the dashed line both are equal."
            blocks = [Plot(anchor, f"Predictions of {name} by reference"), *_residuals(finite)]
            yield Section(anchor, f"Predictions of {name}", meaning, blocks), plots


def _residuals(points: Sequence[Point]) -> Iterator[Note]:
    errors = sorted(abs(found - reference) for reference, found in points)
    if errors:
        middle, p90 = errors[len(errors) // 2], errors[int(0.9 * (len(errors) - 1))]
        yield Note(
            f"Absolute error: median {number(middle)}, 90 % at most {number(p90)}, "
            f"largest {number(errors[-1])}."
        )
    else:
        yield Note("No prediction is a finite number.")


_TRAIN = "train"
_LOGARITHMIC = ("loss", "grad_norm")
_ONLY_IF_ANY = ("skipped_steps", "checkpoint_failures")
_FIRST = ("loss", "learning_rate", "grad_norm", "tokens_per_second", "steps_per_second")
_MOST_FIGURES = 24
_MOST_STARTS = 20
_MOST_CHARTS = 30
_MOST_LABELS = 30
_OF_LABELS = "_per_label/"  # metrics of single labels: shown in the table because they are many

Report = Mapping[str, Any]
Series = dict[str, dict[str, list[Point]]]


def run_page(directory: Path) -> str:
    """Returns the page.

    Args:
      directory: directory of the run with `task.json` and `hparams.json`; other files are optional.
    """
    reports = MetricsFile(directory).read()
    starts = starts_of(directory)
    task = read_json(directory / "task.json")
    curves, plots = curves_of(directory)
    shown = list(_predictions(read_predictions(directory)))
    for _, of_section in shown:
        plots |= of_section
    sections = [
        curves,
        _evaluations(directory, reports),
        *(section for section, _ in shown),
        *_decodes(directory),
        *_figures(directory),
        _hparams(directory, task),
        _starts(starts),
    ]
    trial = task.get("trial", "")
    head = PageHead(
        title=f"{trial or task['problem']}: a run",
        heading=f"The trial {trial}" if trial else f"{task['model']} on {task['problem']}",
        place=str(directory.resolve()),
        tiles=tuple(_tiles(reports, starts)),
        note=f"As of {time_text(time.time())}.  Updated during the run.",
        findings=tuple(_warnings(reports)),
        writer="t2t-trainer",
    )
    return document(head, sections, plots)


def curves_of(directory: Path) -> tuple[Section, dict[str, str]]:
    """Returns the section of a run's curves, and its plots by name."""
    starts = starts_of(directory)
    resumed = [start["step"] for start in starts[1:]]
    baselines = read_predictions(directory).get("baselines", {})
    plots = dict(_charts(_series(MetricsFile(directory).read()), resumed, baselines))
    return _curves(plots, resumed, _counted(starts)), plots


def _series(reports: Iterable[Report]) -> Series:
    """Returns metric -> split -> points, by step: the loss, metrics of evaluations, the rest."""
    series: Series = {}
    for report in sorted(reports, key=lambda report: int(report["step"])):
        for name, value in report.items():
            if name in ("step", "split", "time", "seconds") or isinstance(value, list):
                continue
            value = math.nan if value is None else float(value)
            points = series.setdefault(name, {}).setdefault(report["split"], [])
            points.append((report["step"], value))
    first = {name: place for place, name in enumerate(_FIRST)}

    def place(item: tuple[str, dict[str, list[Point]]]) -> tuple[bool, int]:
        name, splits = item
        of_training = name != "loss" and _TRAIN in splits
        return of_training, first.get(name, len(first))

    return dict(sorted(series.items(), key=place))


def _charts(
    series: Series, resumed: Sequence[int], baselines: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[str, str]]:
    """Yields name and `<svg>` of each metric with data to show.

    Args:
      series: values.
      resumed: steps at which training was resumed.
      baselines: values of trivial methods by metric and method.
    """
    drawn = 0
    for name, splits in series.items():
        values = [value for points in splits.values() for _, value in points]
        if not any(map(math.isfinite, values)) or (name in _ONLY_IF_ANY and not any(values)):
            continue
        if _OF_LABELS in name or drawn == _MOST_CHARTS:
            continue
        curves = [Curve(split, points) for split, points in splits.items()]
        drawn += 1
        levels = baselines.get(name, {})
        yield name, chart(curves, logarithmic=name in _LOGARITHMIC, marks=resumed, levels=levels)


def _counted(starts: Sequence[Mapping[str, Any]]) -> str:
    """Returns the unit that the loss is averaged over; older runs did not record it."""
    return str(starts[-1].get("counted", "targets")) if starts else "targets"


def _curves(plots: Mapping[str, str], resumed: Sequence[int], unit: str) -> Section:
    meaning = (
        "By optimizer steps; the number beside a name is the last one.  Training's numbers are of "
        "the steps since the report before."
    )
    if resumed:
        meaning += "  Dotted lines: where training was resumed."
    titles = {name: short.replace("_", " ") for name, short in short_names(plots).items()}
    titles["tokens_per_second"] = f"{unit} per second"
    blocks: list[Block] = [Plot(name, titles[name]) for name in plots]
    return Section("curves", "Curves", meaning, blocks or [Note("No report yet.")])


def _evaluations(directory: Path, reports: Sequence[Report]) -> Section:
    rows = []
    for split in dict.fromkeys(report["split"] for report in reports):
        if split == _TRAIN:
            continue
        series = _series(r for r in reports if r["split"] == split)
        names = short_names(series)
        for name, splits in series.items():
            step, last = splits[split][-1]
            points = [point for point in splits[split] if math.isfinite(point[1])]
            if not points and _OF_LABELS in name:
                continue  # an undefined metric of a rare label
            best = _best(name, points) if points else None
            cells = [number(last), number(step), "", ""]
            if best is not None:
                cells[2:] = [number(best[1]), number(best[0])]
            rows.append([split, names[name], *cells])
    head = ("split", "metric", "last", "at step", "best", "at step")
    missing = "No evaluation yet: there are no metrics, samples and confusion matrices."
    blocks: list[Block] = [Table(head, rows, frozenset({0, 1})) if rows else Note(missing)]
    # No verification: it would read whole checkpoints in the training thread.
    steps = [checkpoint.step for checkpoint in CheckpointDirectory(directory).list()]
    try:
        best_ones = [step for step in Ratings(directory).ranked() if step in steps]
    except CheckpointError as error:
        best_ones = []
        blocks.append(Note(str(error)))
    if best_ones:
        blocks.append(Note(f"Best checkpoint: ckpt-{best_ones[0]}."))
    listed = ", ".join(f"{step:,}" for step in steps) or "none"
    blocks.append(Note(f"Checkpoints kept, by step: {listed}."))
    return Section("evaluations", "Evaluations", "Best: of all evaluations so far.", blocks)


def _best(name: str, points: Sequence[Point]) -> Point | None:
    """Returns the best of some points; None for a metric without a known better direction."""
    try:
        choose = min if lower_is_better(name) else max
    except T2TError:
        return None
    return choose(points, key=lambda point: point[1])


def _decodes(directory: Path) -> Iterator[Section]:
    step, samples = read_samples(directory)
    if samples:
        rows = [[one.inputs, one.reference or "", one.decode] for one in samples]
        table = Table(("inputs", "reference", "decode"), rows, frozenset({0, 1, 2}))
        yield Section("decodes", "Decodes", f"Of the weights at step {step:,}.", [table])


def _figures(directory: Path) -> Iterator[Section]:
    folder = directory / FIGURE_FOLDER
    files = sorted(folder.rglob("[!.]*.png"))
    blocks: list[Block] = [
        Picture(read_bytes(file), file.relative_to(folder).with_suffix("").as_posix())
        for file in files[:_MOST_FIGURES]
    ]
    if len(files) > _MOST_FIGURES:
        blocks.append(Note(f"{len(files) - _MOST_FIGURES} more are in {folder}."))
    if blocks:
        meaning = "The newest; those of earlier steps are in TensorBoard."
        yield Section("figures", "Figures", meaning, blocks)


def _hparams(directory: Path, task: Mapping[str, Any]) -> Section:
    """Lists the hyperparameters that differ from the set; those of a file of the run's own, all."""
    if not (directory / "hparams.json").exists():
        files = [read_json(directory / name) for name in settings_files(directory)]
        known = [file.get("hparams", {}) for file in files]
        rows = [
            [name, json.dumps(value)] for one in known for name, value in Space.flat(one).items()
        ]
        table = [Table(("name", "value"), rows, frozenset({0, 1}))] if rows else [Note("None.")]
        return Section("hparams", "Hyperparameters", "As they were chosen.", table)
    values = read_json(directory / "hparams.json")
    values.pop("provenance", None)
    name = task["hparams_set"]
    try:
        named = registry.hparams(name)
    except T2TError as error:  # a folder that is not given or no longer exists
        return Section("hparams", "Hyperparameters", str(error))
    of_set = named.model_dump(mode="json")
    fields = type(named).model_fields
    rows = [
        [
            key,
            shortened(json.dumps(value), 200),
            json.dumps(of_set[key]),
            fields[key].description or "",
        ]
        for key, value in values.items()
        if key in of_set and value != of_set[key]
    ]
    meaning = f"Those that differ from the set {name}; hparams.json has all."
    head = ("name", "here", f"in {name}", "meaning")
    blocks: list[Block] = [Table(head, rows, frozenset({0, 1, 2, 3}))]
    return Section(
        "hparams", "Hyperparameters", meaning, blocks if rows else [Note(f"All are as in {name}.")]
    )


def _starts(starts: Sequence[Mapping[str, Any]]) -> Section:
    rows = [
        [time_text(one["time"]), number(one["step"]), number(one["processes"]), one["device"],
         one["precision"], one["torch"], one["t2t_torch"], one["host"]]
        for one in starts[-_MOST_STARTS:]
    ]  # fmt: skip
    head = "started,from step,processes,device,precision,torch,t2t_torch,host".split(",")
    blocks: list[Block] = [Table(head, rows, frozenset({0, 3, 4, 5, 6, 7}))] if rows else []
    if starts:
        last = starts[-1]
        blocks.append(command_line(last["command"], "Command:"))
        environment = f"Python {last['python']} on {last['system']}; {last['threads']} threads"
        blocks.append(Note(f"Last environment: {environment} a process."))
    if len(starts) > _MOST_STARTS:
        blocks.append(Note(f"{len(starts) - _MOST_STARTS} earlier ones are in starts.jsonl."))
    return Section("starts", "Starts", "Starts and resumes of the training.", blocks)


def _tiles(
    reports: Sequence[Report], starts: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    last: dict[str, Report] = {}
    for report in reports:
        last[report["split"]] = report
    if starts:
        steps = max([starts[-1]["step"], *(report["step"] for report in reports)])
        yield f"{steps:,}", f"steps of {starts[-1]['train_steps']:,}"
        total, trained = starts[-1]["parameters"], starts[-1].get("trained")
        of = "" if trained in (None, total) else f", {trained:,} trained"
        yield number(total), f"parameters{of}"
        yield str(len(starts) - 1), "restarts"
    for split, report in last.items():
        metrics = [name for name in report if name.startswith("metrics-")][:1]
        names = short_names(report)
        for name in [*(metrics if split != _TRAIN else ()), "loss"]:
            if report.get(name) is not None:
                yield f"{report[name]:.4g}", f"{names[name]} of {split}"
    if _TRAIN in last:
        report = last[_TRAIN]
        yield f"{report['tokens_per_second']:,.0f}", f"{_counted(starts)} per second"
        if report.get("seconds") is not None:
            yield tqdm.format_interval(report["seconds"]), "trained"


def _warnings(reports: Sequence[Report]) -> Iterator[str]:
    """Yields the warnings."""
    if train := [report for report in reports if report["split"] == _TRAIN]:
        if skipped := int(train[-1].get("skipped_steps") or 0):
            steps = counted(skipped, "step")
            yield f"{steps} moved nothing: the loss or its gradient was not finite."
        if failures := int(train[-1].get("checkpoint_failures") or 0):
            yield f"{counted(failures, 'checkpoint')} could not be written since the last start."
    for split in dict.fromkeys(report["split"] for report in reports if report["split"] != _TRAIN):
        of_split = [report for report in reports if report["split"] == split]
        if "loss" in of_split[-1] and of_split[-1]["loss"] is None:
            yield f"The loss of {split} is not finite at step {of_split[-1]['step']:,}."
            continue
        losses = [
            (report["loss"], report["step"])
            for report in of_split
            if report.get("loss") is not None
        ]
        if len(losses) > 1 and losses[-1][0] > min(losses)[0]:
            best, step = min(losses)
            yield (
                f"The loss of {split} was {best:.4g} at step {step:,} and is "
                f"{losses[-1][0]:.4g} now."
            )


REPORT_NAME = "report.html"
_SECONDS = 60.0  # minimum time between pages, except after evaluations
_FAULTS = (OSError, ValueError, TypeError, LookupError, T2TError)
"""Errors caused by a full disk, and by files of another version or damaged by a crash."""


class RunReport(Hook):
    """Writes `report.html` at the start, after each evaluation, each minute and at the end.

    It also records each start in `starts.jsonl`, and adds the run to TensorBoard's page of hparams.
    A page that cannot be written because the disk is full or a file of the run is damaged does not
    end a run; it causes one warning per reason.
    """

    in_banner = False  # every run has one

    def __init__(self) -> None:
        self._written_at = 0.0
        self._reported: set[str] = set()

    def begin(self, estimator: Estimator) -> None:
        """Records the start."""
        if not estimator.world.leads:
            return
        try:
            add_start(estimator.directory.path, estimator)
        except _FAULTS as error:
            self._warn(estimator.directory.path, error)
        estimator.summary.hparams(reported_hparams(estimator.task))
        self._write(estimator)

    def after_step(self, estimator: Estimator) -> None:
        """Writes the page if the last one is old."""
        if estimator.world.leads and time.monotonic() - self._written_at >= _SECONDS:
            self._write(estimator)

    def after_evaluation(
        self, estimator: Estimator, split: Split, metrics: Mapping[str, float]
    ) -> None:
        """Writes the page."""
        self._write(estimator)

    def end(self, estimator: Estimator) -> None:
        """Writes the page, and prints its path if this command has trained."""
        self._write(estimator)
        page = estimator.directory.path / REPORT_NAME
        if estimator.run is not None and not self._reported and page.exists():
            estimator.say(f"curves, evaluations and samples:  {page}")

    def _write(self, estimator: Estimator) -> None:
        """Writes the page atomically."""
        directory = estimator.directory.path
        # An evaluating process may run in a folder without training so far.
        if estimator.world.leads and estimator.directory.exists:
            try:
                write_text(directory / REPORT_NAME, run_page(directory))
            except _FAULTS as error:
                self._warn(directory, error)
        self._written_at = time.monotonic()

    def _warn(self, directory: Path, error: Exception) -> None:
        message = f"{type(error).__name__}: {error}"
        if message not in self._reported:
            reporter.message(f"warning: {directory / REPORT_NAME} cannot be written: {message}")
        self._reported.add(message)
