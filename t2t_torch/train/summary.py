"""Reports of a run: run banner, progress, `metrics.jsonl`, TensorBoard, figures as PNG files."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from t2t_torch import reporter
from t2t_torch.atomic_files import staged, write_text
from t2t_torch.layers.lora import AdaptedMap
from t2t_torch.optim.settings import factor_names
from t2t_torch.reports.plots import png
from t2t_torch.reports.section import counted
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.train.run_config import RunConfig
from t2t_torch.train.stopping import short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard import SummaryWriter

    from t2t_torch.pipeline.plan import PlanReport
    from t2t_torch.run.checkpoint import TrainerState
    from t2t_torch.run.warm_start import WarmStartReport
    from t2t_torch.train.estimator import TrainState
    from t2t_torch.train.task import Hook


EVAL_FOLDER = "eval"
_EVENTS = "TensorBoard's event files"
FIGURE_FOLDER = "figures"
_DOTS_PER_INCH = 100


class Summary:
    """Writes the reports of a run: `metrics.jsonl`, TensorBoard's event files, figures.

    A report that cannot be written, for example to a full disk, causes one warning and does not end
    a run.

    Attributes:
      leads: True if this process writes.

    Args:
      directory: the run directory.
      leads: True if this process writes; other processes write nothing.
    """

    def __init__(self, directory: Path, *, leads: bool) -> None:
        self._directory = directory
        self.leads = leads
        self._metrics = MetricsFile(directory)
        self._purge_step: int | None = None
        self._purged: set[str] = set()
        self._writers: dict[str, SummaryWriter] = {}
        self._has_warned = False

    def start(self, step: int) -> None:
        """Continues after a step; removes later reports of an interrupted run."""
        self._purge_step = step + 1
        if self.leads:
            with self.surviving("metrics.jsonl"):
                self._metrics.trim(step)

    def write(
        self,
        split: str,
        step: int,
        values: Mapping[str, float],
        arrays: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Adds a report.

        In TensorBoard metrics have their short names, which overlay in runs of different problems.

        Args:
          split: "train", or the name of the evaluated split.
          step: completed optimizer steps.
          values: values by name.
          arrays: arrays by name, written as histograms to TensorBoard.
        """
        if not self.leads:
            return
        arrays = arrays or {}
        with self.surviving("metrics.jsonl"):
            lists = {name: array.tolist() for name, array in arrays.items()}
            self._metrics.add(split, step, {**values, **lists})
        folder = "" if split == "train" else EVAL_FOLDER
        tags = short_names(name for name in (*values, *arrays) if name.startswith("metrics-"))
        with self.surviving(_EVENTS), self._writing(folder, step) as writer:
            for name, value in values.items():
                writer.add_scalar(tags.get(name, name), value, step)
            for name, array in arrays.items():
                finite = array[array.isfinite()]
                if len(finite):
                    writer.add_histogram(tags.get(name, name), finite, step)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds numbers to TensorBoard only: too many for `metrics.jsonl`."""
        if self.leads:
            with self.surviving(_EVENTS), self._writing("") as writer:
                for name, value in values.items():
                    writer.add_scalar(name, value, step)

    def text(self, tag: str, text: str, step: int) -> None:
        """Adds a text, which TensorBoard renders as Markdown."""
        if self.leads:
            with self.surviving(_EVENTS), self._writing(EVAL_FOLDER, step) as writer:
                writer.add_text(tag, text, step)

    def figure(self, tag: str, figure: Figure, step: int) -> None:
        """Adds a matplotlib figure; `figures/<tag>.png` is the newest of each tag."""
        if not self.leads:
            return
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure.set_dpi(_DOTS_PER_INCH)
        canvas: Any = FigureCanvasAgg(figure)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # an empty box
            canvas.draw()
        picture = np.asarray(canvas.buffer_rgba())[..., :3]  # [height, width, 3]
        with self.surviving(_EVENTS), self._writing(EVAL_FOLDER, step) as writer:
            writer.add_image(tag, picture, step, dataformats="HWC")
        with self.surviving(FIGURE_FOLDER):
            path = self._directory / FIGURE_FOLDER / f"{tag}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            with staged(path) as temporary:
                temporary.write_bytes(png(picture))

    def histogram(self, tag: str, tensor: torch.Tensor, step: int) -> None:
        """Adds the distribution of a tensor's finite numbers."""
        if not self.leads:
            return
        values = tensor.detach().float().flatten().cpu()
        values = values[values.isfinite()]
        if len(values):
            with self.surviving(_EVENTS), self._writing("") as writer:
                writer.add_histogram(tag, values, step)

    def hparams(self, values: Mapping[str, Any]) -> None:
        """Adds the run to TensorBoard's page of hparams, which shows the run's scalars.

        `SummaryWriter.add_hparams` would create a separate run below this one at each call.

        Args:
          values: values by name; values other than numbers are written as strings.
        """
        if not self.leads:
            return
        from torch.utils.tensorboard.summary import hparams

        shown = {k: v if type(v) in (int, float) else str(v) for k, v in values.items()}
        # Without the experiment's part, TensorBoard lists the values of the runs.
        _, session, _ = hparams(shown, {})  # type: ignore[no-untyped-call]
        with self.surviving(_EVENTS), self._writing("") as writer:
            file_writer: Any = writer.file_writer
            file_writer.add_summary(session, 0)

    @contextlib.contextmanager
    def surviving(self, what: str) -> Iterator[None]:
        """Reports the first disk error of its block in a run, and continues.

        Args:
          what: description of the output.
        """
        try:
            yield
        except OSError as error:
            if not self._has_warned:
                warning = f"warning: {what} in {self._directory} cannot be written: {error}."
                reporter.message(f"{warning} Training continues; reports are missing.")
            self._has_warned = True

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            with self.surviving(_EVENTS):
                writer.close()
        self._writers.clear()

    @contextlib.contextmanager
    def _writing(self, folder: str, step: int | None = None) -> Iterator[SummaryWriter]:
        """Yields TensorBoard's writer of a folder; flushes to disk on exit.

        Args:
          folder: folder of the event files.
          step: step of the report, if it may repeat an earlier one.
        """
        try:
            writer = self._writer(folder, step)
            yield writer
            writer.flush()
        except OSError:
            self._writers.pop(folder, None)  # its thread has ended: the next starts a file
            raise

    def _writer(self, folder: str, step: int | None) -> SummaryWriter:
        if folder not in self._writers:
            from torch.utils.tensorboard import SummaryWriter  # a second to import

            _print_no_traceback_of_writers()
            purge = self._purge_step if folder not in self._purged else None
            if purge is not None and step is not None:
                purge = min(purge, step)  # an evaluation of the resumed step is repeated
            self._writers[folder] = SummaryWriter(str(self._directory / folder), purge_step=purge)
            self._purged.add(folder)
        return self._writers[folder]


@functools.cache
def _print_no_traceback_of_writers() -> None:
    """Suppresses tracebacks of TensorBoard's writer threads when the disk is full.

    Such a thread stores the error in its attribute `exception`; the next write raises it.
    """
    print_traceback = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        error = failure.exc_value
        if (
            not isinstance(error, OSError)
            or getattr(failure.thread, "exception", None) is not error
        ):
            print_traceback(failure)

    threading.excepthook = hook


WARM_START_FILE = "warm_start.txt"


def banner(
    run: TrainState, state: TrainerState, config: RunConfig, hooks: Sequence[Hook], train_steps: int
) -> Iterator[str]:
    """Yields the lines of the run banner: important facts about a run of many hours.

    Args:
      run: the training state.
      state: position of the run.
      config: settings of the run.
      hooks: hooks of the run.
      train_steps: step at which the run ends.
    """
    task, data = run.task, run.source.report
    processes = f"{run.processes} processes on {run.device.type}"
    if run.processes == 1 and run.device.type == "cuda":
        processes = torch.cuda.get_device_name(run.device)
    elif run.processes == 1:
        processes = f"{counted(torch.get_num_threads(), 'thread')} of a CPU"
    model, precision = type(run.model).__name__, run.precision.name
    yield f"training {model} on {task.name}: {precision}, on {processes}"
    packed = f" in {data.packed_rows:,} rows" if data.packed_rows else ""
    epoch = "" if data.mixed_tokens else f"{data.batches:,} batches an epoch, "
    yield (
        f"data: {data.kept:,} of {data.examples:,} examples{packed} ({data.too_long:,} too long, "
        f"{data.too_short:,} too short), {epoch}padding {data.padding_fraction:.1%}"
    )
    unit = "tokens" if task.batches.paddings else "examples"
    batches = state.batches_per_step
    yield f"step: {batches} batches, {size_of_step(data, batches, unit)}"
    sizes = [(p.numel(), p.requires_grad) for p in run.model.parameters()]
    frozen = sum(size for size, trained in sizes if not trained)
    whole = sum(size for size, _ in sizes)
    parts = f", {whole - frozen:,} of them trained, {frozen:,} frozen" if frozen else ""
    yield f"model: {whole:,} parameters{parts}"
    yield from getattr(run.model, "banner", ())
    yield f"trained with: {', '.join(_trained_with(run))}"
    if task.hparams.shard_weights and run.processes == 1:
        yield "shard_weights=True does nothing in one process alone; torchrun starts several"
    yield f"learning rate: {_rates(run, state, train_steps)}"
    yield from _never_reached(run, train_steps)
    if watching := [type(hook).__name__ for hook in hooks if hook.in_banner]:
        yield f"hooks: {', '.join(watching)}"
    if state.step:
        yield f"resuming from step {state.step}, batch {state.batches_consumed:,} of the data"


def warm_start_lines(directory: Path, report: WarmStartReport | None) -> Iterator[str]:
    """Yields the initial weights of a new run; lists all names in `warm_start.txt`, one per line.

    Args:
      directory: directory of the run.
      report: report of the warm start; None if there was none.
    """
    if report is None:
        return
    file = directory / WARM_START_FILE
    write_text(file, report.table)
    yield f"{report}\n  all names: {file}"
    if report.warning:
        yield report.warning


def _trained_with(run: TrainState) -> Iterator[str]:
    """Yields the optimizer and settings that differ from defaults: losses, teacher, averages."""
    hparams = run.task.hparams
    yield from run.task.trained_with or [type(run.optimizer).__name__]
    if hparams.lora_rank:
        maps = sum(isinstance(module, AdaptedMap) for module in run.model.modules())
        yield f"LoRA of rank {hparams.lora_rank} in {counted(maps, 'linear map')}"
    if hparams.ema_decay:
        yield f"EMA {hparams.ema_decay:g} of the weights"
    if hparams.swa_start_step:
        every = f", every {hparams.swa_every}" if hparams.swa_every > 1 else ""
        yield f"SWA of the weights from step {hparams.swa_start_step}{every}"
    if hparams.swa_patience:
        yield f"SWA of the weights once {hparams.swa_patience} evaluations bring nothing better"


def _never_reached(run: TrainState, last: int) -> Iterator[str]:
    """Warns if the run ends before the end of the warm-up or the start of weight averaging."""
    hparams = run.task.hparams
    fitting = max(last // 10, 1)
    rises = {"learning_rate_warmup_steps": hparams.learning_rate_warmup_steps}
    if run.learning_rate is not None and "cyclic" in factor_names(hparams):
        rises["learning_rate_decay_steps"] = hparams.learning_rate_decay_steps
    for name, steps in rises.items():
        if run.learning_rate is None or last > steps:
            continue
        reached, peak = run.learning_rate(last - 1), run.learning_rate(steps)
        if reached < peak:
            yield (
                f"warning: the run ends at step {last:,}, before the learning rate has risen to "
                f"its peak at step {steps:,} ({name}={steps}): it reaches {reached:.3g} of "
                f"{peak:.3g}, and the model learns little. Give more --train_steps, or "
                f"--hparams={name}={fitting}"
            )
    if hparams.swa_start_step > last:
        yield (
            f"warning: the run ends at step {last:,}, and swa_start_step={hparams.swa_start_step} "
            f"begins the mean of the weights after it: there will be none. Give more "
            f"--train_steps, or --hparams=swa_start_step={last - fitting}"
        )


def _rates(run: TrainState, state: TrainerState, last: int) -> str:
    """Returns the learning rates of the next step, the end of the warm-up, and the last step."""
    if run.learning_rate is None:
        now = sorted({group["lr"] for group in run.optimizer.param_groups})
        return f"{', '.join(f'{float(rate):.3g}' for rate in now)} now, as the optimizer has it"
    learning_rate = run.learning_rate
    following = min(state.step + 1, last)
    # The rate of update s, counted from 1, is that after s - 1 updates; the warm-up ends at the
    # peak.
    warm = min(run.task.hparams.learning_rate_warmup_steps + 1, last)
    groups = run.optimizer.param_groups
    scale = state.plateau_factor * max(group.get("lr_scale", 1.0) for group in groups)
    rates = ", ".join(
        f"{scale * learning_rate(step - 1):.3g} at step {step}"
        for step in sorted({following, max(following, warm), last})
    )
    if state.plateau_factor != 1.0:
        rates += f"; {state.plateau_factor:g} times the schedule's, as the metric stood still"
    return rates


def size_of_step(data: PlanReport, batches: int, unit: str) -> str:
    """Returns the size of a step; mixed problems have no common epoch."""
    per_step = f"about {data.tokens_per_batch * batches:,.0f} {unit}"
    if data.mixed_tokens:
        return f"{per_step} by the shares at step 0"
    return f"{per_step}; an epoch is {data.batches / batches:,.1f} steps"


_Item = TypeVar("_Item")


def interval(low: float, high: float) -> str:
    """Returns a time in seconds as 01:30, or as 01:30-04:00 if its bounds differ by half."""
    bounds = [tqdm.format_interval(seconds) for seconds in (low, high)]
    return "-".join(bounds) if high > 1.5 * low and bounds[0] != bounds[1] else bounds[1]


_SILENCE = 10.0  # seconds after which a log file gets a line


class TrainProgress:
    """Progress bar on a terminal, lines in a log file: loss, rate and time left.

    The time left is a range where the reports so far differ; the first step, which is slow, is no
    measure of it.

    Args:
      total: step at which the run ends; 0 if unknown.
      shown: True if this process prints.
      counted: unit that the loss is averaged over, "tokens" or "examples".
    """

    def __init__(self, total: int, *, shown: bool, counted: str = "tokens") -> None:
        self._total = total
        self._seconds = 0
        self._counted = counted
        self._shown = shown
        self._reporter = reporter.current()
        self._bar: tqdm[object] | None = None
        self._first = -1  # step whose time is no measure
        self._paces: list[float] = []  # seconds of a step, of the last reports
        self._spoken = time.monotonic()

    def start(self, step: int, total: int = 0, seconds: int = 0) -> None:
        """Starts after `step` steps.

        Args:
          step: completed steps.
          total: updated total, if it is not 0.
          seconds: training time in seconds at which the run ends, if it is not 0.
        """
        self._total = total or self._total
        self._seconds = seconds
        self._first = step + 1
        if self._shown:
            known = self._total or None
            self._bar = self._reporter.bar(total=known, initial=step, unit="step", desc="train")

    def expect(self, total: int) -> None:
        """Takes another step at which the run ends."""
        self._total = total
        if self._bar is not None:
            self._bar.total = total

    def advance(self, step: int) -> None:
        """Shows that `step` steps are complete."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)
        elif self._is_silent():
            self.say(f"step {step}{f'/{self._total}' if self._total else ''}")

    def _is_silent(self) -> bool:
        return self._shown and time.monotonic() - self._spoken >= _SILENCE

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """Shows the result of `TrainMeter.read`, the learning rate, and the seconds of the run."""
        numbers = (
            f"loss {values['loss']:.4f}  lr {values['learning_rate']:.3g}  "
            f"norm {values['grad_norm']:.3g}  {values['tokens_per_second']:,.0f} {self._counted}/s"
        )
        if values.get("skipped_steps"):
            numbers += f"  {values['skipped_steps']:.0f} skipped"
        if self._bar is not None:
            self._bar.set_postfix_str(numbers)
            return
        if not self._total:
            self.say(f"step {step}  {numbers}")
            return
        if step != self._first:
            self._paces = [*self._paces[-2:], 1 / max(values["steps_per_second"], 1e-9)]
        times = [(self._total - step) * pace for pace in self._paces]
        if self._seconds:
            times = [min(left, max(self._seconds - values["seconds"], 0.0)) for left in times]
        left = f"  {interval(min(times), max(times))} left" if times else ""
        self.say(f"step {step}/{self._total}  {numbers}{left}")

    def evaluation(
        self, batches: Iterable[_Item], limit: int | None, split: str
    ) -> Iterator[_Item]:
        """Yields the batches of an evaluation; a second bar shows the progress.

        Args:
          batches: batches of this process.
          limit: maximum number of batches; None for all.
          split: split to evaluate.
        """
        chosen = itertools.islice(batches, limit)
        total = limit
        if isinstance(batches, Sized):
            total = len(batches) if limit is None else min(limit, len(batches))
        what = f"evaluate {split}"
        # The bar is removed at the end: the results are printed in a line.
        options = {"total": total, "unit": "batch", "desc": what, "leave": False}
        bar = self._reporter.bar(**options) if self._shown else None
        if bar is None:
            for number, batch in enumerate(chosen, 1):
                yield batch
                if self._is_silent():
                    of = f" of {total:,}" if total else ""
                    self.say(f"{what}: {number:,}{of} batches")
            return
        with bar:
            for batch in chosen:
                yield batch
                bar.update()

    def say(self, line: str) -> None:
        """Prints a line, above the bar if there is one."""
        self._spoken = time.monotonic()
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        elif self._shown:
            self._reporter.message(line)

    def close(self) -> None:
        """Closes the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
