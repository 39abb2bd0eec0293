"""What a user sees while waiting: bars on a terminal, lines in a log file."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import TypeVar

from tqdm import tqdm

_Item = TypeVar("_Item")


class Progress:
    """A bar on a terminal, lines in a log file: loss, rate and time left either way.

    Args:
      total: steps at which the run ends, as far as is known; 0 if it is not.
      shown: whether this process talks.
      counted: what the loss is a mean over, "tokens" or "examples".
    """

    def __init__(self, total: int, *, shown: bool, counted: str = "tokens") -> None:
        self._total = total
        self._seconds = 0
        self._counted = counted
        self._shown = shown
        self._bar: tqdm[object] | None = None

    def start(self, step: int, total: int = 0, seconds: int = 0) -> None:
        """Begins after `step` steps.

        Args:
          step: steps that are done.
          total: if it is not 0, it is known better than before.
          seconds: of training after which the run ends, if it is not 0.
        """
        self._total = total or self._total
        self._seconds = seconds
        if self._shown and sys.stderr.isatty():
            known = self._total or None
            self._bar = tqdm(
                total=known, initial=step, unit="step", desc="train", dynamic_ncols=True
            )

    def advance(self, step: int) -> None:
        """Shows that `step` steps are done."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """Shows what `Tally.read` returned, the learning rate, and the seconds of the run."""
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
        left = (self._total - step) / max(values["steps_per_second"], 1e-9)
        if self._seconds:
            left = min(left, max(self._seconds - values["seconds"], 0.0))
        self.say(f"step {step}/{self._total}  {numbers}  {tqdm.format_interval(left)} left")

    def evaluation(
        self, batches: Iterable[_Item], limit: int | None, split: str
    ) -> Iterator[_Item]:
        """Yields the batches of an evaluation; a second bar tells how many are done.

        Args:
          batches: of this process.
          limit: how many of them are evaluated; None is all.
          split: what is evaluated.
        """
        chosen = itertools.islice(batches, limit)
        if not self._shown or not sys.stderr.isatty():
            yield from chosen
            return
        total = limit
        if isinstance(batches, Sized):
            total = len(batches) if limit is None else min(limit, len(batches))
        # It goes when it is done: the results are told in a line.
        with tqdm(
            total=total, unit="batch", desc=f"evaluate {split}", dynamic_ncols=True, leave=False
        ) as bar:
            for batch in chosen:
                yield batch
                bar.update()

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
