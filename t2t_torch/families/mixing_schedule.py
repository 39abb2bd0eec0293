"""The shares of a mixture's problems, by step."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError

_FORM = (
    'Expected "step @0 0.7 0.3", "linear @0 1 0 @1000 0 1", "0.7 0.3", "round_robin" or "by_size".'
)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Kind: TypeAlias = Literal["step", "linear", "round_robin", "by_size"]


@dataclasses.dataclass(frozen=True)
class MixingSchedule:
    """Shares of problems, by step: held from one given step to the next, or interpolated.

    Before the first given step and after the last their shares are held.  Source: tensor2tensor,
    `multi_problem_v2.py`.

    Attributes:
      kind: "step" or "linear", by which batches are drawn; "round_robin", by which they come in
        turn; "by_size", whose shares are known when the data is: see `of_sizes`.
      steps: those that are given, rising, [S].
      shares: of each problem at each of them, with the sum 1, [S][problems].
    """

    kind: Kind
    steps: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]

    @classmethod
    def parse(cls, text: str, problems: int) -> MixingSchedule:
        """Reads tensor2tensor's notation: `step` or `linear`, then `@STEP` and shares, repeatedly.

        Args:
          text: for instance "linear @0 1 0 @1000 0 1"; shares are divided by their sum.  Shares
            alone hold for all steps.  "round_robin" and "by_size" stand alone.
          problems: how many shares there must be at each step.

        Raises:
          DataError: it is malformed; the word is named by its place.
        """
        words = text.split()
        if words in (["round_robin"], ["by_size"]):
            even = (1.0 / problems,) * problems
            return cls(_kind(text, words[0]), (0,), (even,))
        if words and _NUMBER.fullmatch(words[0]):
            alone = [_share(text, place, word) for place, word in enumerate(words, start=1)]
            _check_shares(text, len(words), alone, problems)
            return cls("step", (0,), (tuple(share / sum(alone) for share in alone),))
        kind = _kind(text, words[0] if words else "")
        if kind not in ("step", "linear"):
            raise _fault(text, 2, f"{words[1]!r} follows {kind}, which stands alone")
        steps: list[int] = []
        shares: list[list[float]] = []
        for place, word in enumerate(words[1:], start=2):
            if word.startswith("@"):
                if shares:
                    _check_shares(text, place - 1, shares[-1], problems)
                steps.append(_step(text, place, word, steps))
                shares.append([])
            elif not steps:
                raise _fault(text, place, f"{word!r} comes before any @STEP")
            else:
                shares[-1].append(_share(text, place, word))
        if not steps:
            raise _fault(text, len(words), "there is no @STEP")
        _check_shares(text, len(words), shares[-1], problems)
        totals = [sum(row) for row in shares]
        whole = (tuple(x / s for x in row) for row, s in zip(shares, totals, strict=True))
        return cls(kind, tuple(steps), tuple(whole))

    def of_sizes(self, sizes: Sequence[int]) -> MixingSchedule:
        """Returns the schedule of problems of these sizes, batches of an epoch; at least 1 each."""
        if self.kind != "by_size":
            return self
        shares = tuple(size / sum(sizes) for size in sizes)
        return MixingSchedule("step", (0,), (shares,))

    def at(self, steps: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Returns the shares of the problems at some steps.  [N] -> [N, problems]."""
        shares = np.asarray(self.shares)
        if self.kind != "linear":
            given = np.searchsorted(self.steps, steps, side="right") - 1
            return shares[np.maximum(given, 0)]
        columns = [np.interp(steps, self.steps, column) for column in shares.T]
        return np.stack(columns, axis=1)

    def __str__(self) -> str:
        if self.kind in ("round_robin", "by_size"):
            return self.kind
        rows = (
            f"@{step} {' '.join(f'{share:.6g}' for share in row)}"
            for step, row in zip(self.steps, self.shares, strict=True)
        )
        return f"{self.kind} {' '.join(rows)}"


def _kind(text: str, word: str) -> Kind:
    kinds: tuple[Kind, ...] = ("step", "linear", "round_robin", "by_size")
    for kind in kinds:
        if word == kind:
            return kind
    raise _fault(text, 1, f"{word!r} is neither step, linear, round_robin, by_size nor a share")


def _fault(text: str, place: int, what: str) -> DataError:
    return DataError(f"mixing_schedule {text!r}, word {place}: {what}. {_FORM}")


def _step(text: str, place: int, word: str, before: list[int]) -> int:
    if not (word.isascii() and word[1:].isdecimal()):
        raise _fault(text, place, f"{word!r} is no step")
    step = int(word[1:])
    if before and step <= before[-1]:
        raise _fault(text, place, f"step {step} does not come after step {before[-1]}")
    return step


def _share(text: str, place: int, word: str) -> float:
    share = float(word) if _NUMBER.fullmatch(word) else -1.0
    if not 0 <= share < math.inf:
        raise _fault(text, place, f"{word!r} is no share: a number from 0 on")
    return share


def _check_shares(text: str, place: int, shares: list[float], problems: int) -> None:
    if len(shares) != problems:
        raise _fault(text, place, f"{len(shares)} shares for {problems} problems")
    if not math.isfinite(sum(shares)):
        raise _fault(text, place, "the shares are so large that their sum is no number")
    if not sum(shares):
        raise _fault(text, place, "no problem has a share")
