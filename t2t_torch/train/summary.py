"""What a run reports: `metrics.jsonl`, TensorBoard, and the newest figures as PNG files."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from t2t_torch.files import staged
from t2t_torch.reports.page import png
from t2t_torch.train.run_directory import MetricsFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard import SummaryWriter


EVAL_FOLDER = "eval"
_EVENTS = "TensorBoard's event files"
FIGURE_FOLDER = "figures"
_DOTS_PER_INCH = 100


class Summary:
    """Writes reports beside the run: `metrics.jsonl`, TensorBoard's event files, figures.

    A report that cannot be written, as the disk is full, is told of once and does not end a run.

    Attributes:
      leads: whether this process writes.

    Args:
      directory: the run directory.
      leads: whether this process writes; the others keep still.
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
        """Goes on after a step: what a lost continuation has reported beyond it is taken back."""
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

        Args:
          split: "train", or the name of what was evaluated.
          step: optimizer steps done.
          values: by name.
          arrays: what is no single number, by name: TensorBoard gets their histograms.
        """
        if not self.leads:
            return
        arrays = arrays or {}
        with self.surviving("metrics.jsonl"):
            lists = {name: array.tolist() for name, array in arrays.items()}
            self._metrics.add(split, step, {**values, **lists})
        folder = "" if split == "train" else EVAL_FOLDER
        with self.surviving(_EVENTS), self._writing(folder, step) as writer:
            for name, value in values.items():
                writer.add_scalar(name, value, step)
            for name, array in arrays.items():
                finite = array[array.isfinite()]
                if len(finite):
                    writer.add_histogram(name, finite, step)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds numbers to TensorBoard alone: too many for `metrics.jsonl`."""
        if self.leads:
            with self.surviving(_EVENTS), self._writing("") as writer:
                for name, value in values.items():
                    writer.add_scalar(name, value, step)

    def text(self, tag: str, text: str, step: int) -> None:
        """Adds a text, which TensorBoard reads as Markdown."""
        if self.leads:
            with self.surviving(_EVENTS), self._writing(EVAL_FOLDER, step) as writer:
                writer.add_text(tag, text, step)

    def figure(self, tag: str, figure: Figure, step: int) -> None:
        """Adds a figure of matplotlib; `figures/<tag>.png` holds the newest of each tag."""
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
        """Puts the run on TensorBoard's page of hparams, where it finds the run's scalars itself.

        `SummaryWriter.add_hparams` would make a run of its own below this one for each call.

        Args:
          values: by name; what is no number is written as a string.
        """
        if not self.leads:
            return
        from torch.utils.tensorboard.summary import hparams

        told = {k: v if type(v) in (int, float) else str(v) for k, v in values.items()}
        # Without the first part, the experiment's, TensorBoard lists what the runs have.
        _, session, _ = hparams(told, {})  # type: ignore[no-untyped-call]
        with self.surviving(_EVENTS), self._writing("") as writer:
            file_writer: Any = writer.file_writer
            file_writer.add_summary(session, 0)

    @contextlib.contextmanager
    def surviving(self, what: str) -> Iterator[None]:
        """Tells of a disk that fails in the body, once a run, and goes on.

        Args:
          what: is being written.
        """
        try:
            yield
        except OSError as error:
            if not self._has_warned:
                told = f"WARNING: {what} in {self._directory} cannot be written: {error}."
                print(f"{told} Training goes on; reports are missing.", file=sys.stderr)
            self._has_warned = True

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            with self.surviving(_EVENTS):
                writer.close()
        self._writers.clear()

    @contextlib.contextmanager
    def _writing(self, folder: str, step: int | None = None) -> Iterator[SummaryWriter]:
        """Yields TensorBoard's writer of a folder; what it is given is on disk afterwards.

        Args:
          folder: of the event files.
          step: of what will be written, if it may be a report that is made again.
        """
        try:
            writer = self._writer(folder, step)
            yield writer
            writer.flush()
        except OSError:
            self._writers.pop(folder, None)  # its thread has ended: the next begins a new file
            raise

    def _writer(self, folder: str, step: int | None) -> SummaryWriter:
        if folder not in self._writers:
            from torch.utils.tensorboard import SummaryWriter  # a second to import

            _print_no_traceback_of_writers()
            purge = self._purge_step if folder not in self._purged else None
            if purge is not None and step is not None:
                purge = min(purge, step)  # an evaluation of the resumed step is made once more
            self._writers[folder] = SummaryWriter(str(self._directory / folder), purge_step=purge)
            self._purged.add(folder)
        return self._writers[folder]


@functools.cache
def _print_no_traceback_of_writers() -> None:
    """Keeps the threads of TensorBoard's writers from printing a traceback when the disk is full.

    Such a thread keeps the error in its attribute `exception`, which the next write raises.
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
