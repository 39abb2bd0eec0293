"""Mixture of several problems, in proportions that depend on the training step."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch import registry
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.features import Features
from t2t_torch.problem import Problem
from t2t_torch.problem_types.multi import SeveralProblems

_OF_THE_FIRST = (
    "batch_size_means_tokens",
    "batch_size_multiplier",
    "input_space_id",
    "target_space_id",
    "metrics",
    "suggested_flags",
    "cutters",
)
_BEING_MADE: ContextVar[str | None] = ContextVar("_BEING_MADE", default=None)


class MixtureProblem(SeveralProblems):
    """Several problems with the same features and vocabulary, trained together.

    A mixture has no data of its own: generate the data of each problem separately.  Share a
    vocabulary with `use_vocab_from_other_problem`.  Unless the mixture overrides them, metrics,
    suggested flags and batch counting are those of its first problem.

    Attributes:
      mixing_schedule: their proportions of the training batches by step, in tensor2tensor's
        notation: "step @0 0.7 0.3" or "linear @0 1 0 @1000 0 1" (`problem_types/mixture.py`).
    """

    mixing_schedule: ClassVar[str]

    def __init__(self, *, reverse: bool = False, copy: bool = False) -> None:
        super().__init__(reverse=reverse, copy=copy)
        first = self._first()
        said = [vars(kind) for kind in type(self).__mro__ if issubclass(kind, MixtureProblem)]
        for name in _OF_THE_FIRST:
            if not any(name in attributes for attributes in said):
                setattr(self, name, getattr(first, name))

    def _first(self) -> Problem:
        """Instantiates the first of the problems; RegistryError if one of them is a mixture."""
        if (outer := _BEING_MADE.get()) is not None:
            raise RegistryError(
                f"{outer!r} mixes {self.name!r}, which is a mixture and has no data of its own. "
                "Name problems that are none in `problem_names`."
            )
        token = _BEING_MADE.set(self.name)
        try:
            return self.components[0]
        finally:
            _BEING_MADE.reset(token)

    @property
    def components(self) -> Sequence[Problem]:
        """The mixed problems."""
        return [registry.problem(name) for name in self.problem_names]

    @property
    def vocab_files(self) -> tuple[str, ...]:
        """The vocabulary files of the first problem."""
        return self.components[0].vocab_files

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the first problem, which all problems must share."""
        return self.components[0].features(directory)


_FORM = (
    'Expected "step @0 0.7 0.3", "linear @0 1 0 @1000 0 1", "exponential @1000 0.5 0.5", '
    '"0.7 0.3", "round_robin" or "by_size".'
)
_LEAST = 1e-4  # tensor2tensor's share of the secondary tasks at the start, of their last share
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Kind: TypeAlias = Literal["step", "linear", "exponential", "round_robin", "by_size"]


@dataclasses.dataclass(frozen=True)
class MixingSchedule:
    """Proportions of problems by step, constant between given steps or interpolated.

    Before the first given step and after the last one the proportions are constant.  Source:
    tensor2tensor, `multi_problem_v2.py` and, for "exponential", `multi_problem.py`.

    Attributes:
      kind: "step", "linear" or "exponential": batches are sampled; "round_robin": problems
        alternate; "by_size": proportions depend on the size of the data, see `of_sizes`.
        Exponential: all problems but the first grow to their share at the given step, by the same
        factor with each step, from a ten-thousandth of it; the first one has the rest.
      steps: the given steps, increasing, [S].
      shares: proportions at each of them, with the sum 1, [S][problems].
    """

    kind: Kind
    steps: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]

    @classmethod
    def parse(cls, text: str, problems: int) -> MixingSchedule:
        """Parses tensor2tensor's notation: `step` or `linear`, then `@STEP` and shares, repeatedly.

        Args:
          text: for example "linear @0 1 0 @1000 0 1"; shares are normalized to the sum 1.  Shares
            without steps hold for all steps.  "round_robin" and "by_size" take no shares.
          problems: expected number of shares at each step.

        Raises:
          DataError: the text is malformed; the message gives the position of the word.
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
        if kind not in ("step", "linear", "exponential"):
            raise _fault(text, 2, f"{words[1]!r} follows {kind}, which stands alone")
        steps: list[int] = []
        shares: list[list[float]] = []
        for place, word in enumerate(words[1:], start=2):
            if word.startswith("@"):
                if shares:
                    _check_shares(text, place - 1, shares[-1], problems)
                if not (word.isascii() and word[1:].isdecimal()):
                    raise _fault(text, place, f"{word!r} is no step")
                step = int(word[1:])
                if steps and step <= steps[-1]:
                    raise _fault(text, place, f"step {step} does not come after step {steps[-1]}")
                steps.append(step)
                shares.append([])
            elif not steps:
                raise _fault(text, place, f"{word!r} comes before any @STEP")
            else:
                shares[-1].append(_share(text, place, word))
        if not steps:
            raise _fault(text, len(words), "there is no @STEP")
        if kind == "exponential" and (len(steps) > 1 or not steps[0]):
            raise _fault(text, 2, "exponential has one @STEP, above 0")
        _check_shares(text, len(words), shares[-1], problems)
        totals = [sum(row) for row in shares]
        whole = (tuple(x / s for x in row) for row, s in zip(shares, totals, strict=True))
        return cls(kind, tuple(steps), tuple(whole))

    def of_sizes(self, sizes: Sequence[int]) -> MixingSchedule:
        """Returns the schedule for problems of these sizes, in batches per epoch, at least 1."""
        if self.kind != "by_size":
            return self
        shares = tuple(size / sum(sizes) for size in sizes)
        return MixingSchedule("step", (0,), (shares,))

    def at(self, steps: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Returns the proportions of the problems at the given steps.  [N] -> [N, problems]."""
        shares = np.asarray(self.shares)
        if self.kind == "exponential":
            left = np.maximum(1.0 - (steps + 1) / self.steps[0], 0.0)
            grown = np.power(_LEAST, left)[:, None] * shares[:, 1:]  # [N, problems - 1]
            return np.concatenate([1.0 - grown.sum(axis=1, keepdims=True), grown], axis=1)
        if self.kind != "linear":
            given = np.searchsorted(self.steps, steps, side="right") - 1
            return shares[np.maximum(given, 0)]
        return np.stack([np.interp(steps, self.steps, column) for column in shares.T], axis=1)

    def __str__(self) -> str:
        if self.kind in ("round_robin", "by_size"):
            return self.kind
        rows = (
            f"@{step} {' '.join(f'{share:.6g}' for share in row)}"
            for step, row in zip(self.steps, self.shares, strict=True)
        )
        return f"{self.kind} {' '.join(rows)}"


def first_schedule(
    schedule: str, problems: int, *, threshold: float, max_examples: float, per_task: str
) -> str:
    """Returns the notation of `MixingSchedule.parse` for tensor2tensor's first kind of mixing.

    Source: `multi_problem.py`.

    Args:
      schedule: "constant", "exponential" or "pretrain".
      problems: number of problems.
      threshold: share of all problems but the first, together.
      max_examples: number of steps of an exponential schedule, or on the first problem alone.
      per_task: share of each problem, with commas; overrides the rest if it is not empty.

    Raises:
      DataError: there is one problem only.
    """
    if per_task:
        return " ".join(per_task.split(","))
    if problems < 2:
        raise DataError("multiproblem_mixing_schedule mixes several problems, and here is one.")
    others = problems - 1
    last = " ".join([str(1 - threshold), *[str(threshold / others)] * others])
    step = max(1, round(max_examples))
    if schedule == "exponential":
        return f"exponential @{step} {last}"
    if schedule == "pretrain":
        alone, rest = " ".join(["1", *["0"] * others]), " ".join(["0", *["1"] * others])
        return f"step @0 {alone} @{step} {rest}"
    return last


def _kind(text: str, word: str) -> Kind:
    kinds: tuple[Kind, ...] = ("step", "linear", "exponential", "round_robin", "by_size")
    for kind in kinds:
        if word == kind:
            return kind
    raise _fault(text, 1, f"{word!r} is neither {', '.join(kinds)} nor a share")


def _fault(text: str, place: int, what: str) -> DataError:
    return DataError(f"mixing_schedule {text!r}, word {place}: {what}. {_FORM}")


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
