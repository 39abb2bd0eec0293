"""What a run reports: TensorBoard, `metrics.jsonl`, and lines or a bar on the terminal."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

EVAL_FOLDER = "eval"


class Summary:
    """Writes scalars beside the run: `metrics.jsonl` and TensorBoard's event files.

    Args:
      directory: the run directory.
      leads: whether this process writes; the others keep still.
    """

    def __init__(self, directory: Path, *, leads: bool) -> None:
        self._directory = directory
        self._leads = leads
        self._purge_step: int | None = None
        self._writers: dict[str, SummaryWriter] = {}

    def start(self, step: int) -> None:
        """Goes on after a step: TensorBoard hides what a lost continuation has written beyond."""
        self._purge_step = step + 1

    def write(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds a report.

        Args:
          split: "train", or the name of what was evaluated.
          step: optimizer steps done.
          values: by name.
        """
        if not self._leads:
            return
        # JSON has no NaN; one line is one write, so that processes may share the file.
        numbers = {k: v if math.isfinite(v) else None for k, v in values.items()}
        line = json.dumps({"step": step, "split": split, "time": round(time.time(), 3), **numbers})
        with (self._directory / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        writer = self._writer("" if split == "train" else EVAL_FOLDER)
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def _writer(self, folder: str) -> SummaryWriter:
        if folder not in self._writers:
            from torch.utils.tensorboard import SummaryWriter  # a second to import

            self._writers[folder] = SummaryWriter(
                str(self._directory / folder), purge_step=self._purge_step
            )
        return self._writers[folder]

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class Progress:
    """A bar on a terminal, lines in a log file: rate and time left either way.

    Args:
      total: steps at which the run ends.
      shown: whether this process talks.
      counted: what the loss is a mean over, "tokens" or "examples".
    """

    def __init__(self, total: int, *, shown: bool, counted: str = "tokens") -> None:
        self._total = total
        self._counted = counted
        self._shown = shown
        self._bar: tqdm[object] | None = None

    def start(self, step: int) -> None:
        """Begins after `step` steps."""
        if self._shown and sys.stderr.isatty():
            self._bar = tqdm(total=self._total, initial=step, unit="step", dynamic_ncols=True)

    def advance(self, step: int) -> None:
        """Shows that `step` steps are done."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """Shows what `Tally.read` returned."""
        numbers = (
            f"loss {values['loss']:.4f}  lr {values['learning_rate']:.3g}  "
            f"norm {values['grad_norm']:.3g}  {values['tokens_per_second']:,.0f} {self._counted}/s"
        )
        if self._bar is not None:
            self._bar.set_postfix_str(numbers)
            return
        left = (self._total - step) / values["steps_per_second"]
        self.say(f"step {step}/{self._total}  {numbers}  {tqdm.format_interval(left)} left")

    def say(self, line: str) -> None:
        """Prints a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        elif self._shown:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
