"""A problem's raw samples, with the place of an error in the problem's own code."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_torch.data.raw_file import strangers
from t2t_torch.errors import DataError, T2TError
from t2t_torch.mode import Split

if TYPE_CHECKING:
    from t2t_torch.problem import Problem


def samples_of(problem: Problem, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
    """Yields what `examples_of` makes of what `generate_samples` yields.

    Raises:
      DataError: they raised something else than a T2TError (names problem, split and sample, and
        ends with the problem's part of the traceback), or there is no sample.  Raw files that are
        not those that are known are named.
    """
    number = 0
    try:
        for sample in problem.generate_samples(tmp_dir, split):
            yield from problem.examples_of(sample)
            number += 1
    except T2TError as error:
        strange = strangers(problem.sources, tmp_dir)
        if not strange:
            raise
        raise DataError("\n".join([str(error), *strange])) from error
    except Exception as error:
        frames = error.__traceback__
        frames = frames.tb_next or frames if frames else None  # without this function's own
        told = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        at = f"{problem.dataset_name!r} {split.value}: generate_samples failed at sample {number}"
        strange = strangers(problem.sources, tmp_dir)
        raise DataError("\n".join([f"{at}, counted from 0:\n{told}", *strange])) from error
    if not number:
        _check_empty(problem, tmp_dir, split)


def _check_empty(problem: Problem, tmp_dir: Path, split: Split) -> None:
    """Refuses raw files that have no sample to train on, or that are not those that are known."""
    strange = strangers(problem.sources, tmp_dir)
    files = problem.raw_files(tmp_dir)
    if strange or (files and split is Split.TRAIN):
        read = ", ".join(map(str, files)) or "the raw files"
        told = f"{problem.dataset_name!r} {split.value}: there is no sample in {read}."
        raise DataError("\n".join([told, *strange]))


@contextlib.contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Seeds the global generators, as tensor2tensor's datagen does, and puts them back after."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(f"{seed}:{purpose}")
    np.random.seed(random.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
