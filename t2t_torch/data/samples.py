"""A problem's raw samples, with the place of an error in the problem's own code."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_torch.errors import DataError, T2TError

if TYPE_CHECKING:
    from t2t_torch.mode import Split
    from t2t_torch.problem import Problem


def samples_of(problem: Problem, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
    """Yields what `examples_of` makes of what `generate_samples` yields.

    Raises:
      DataError: they raised something else than a T2TError; names problem, split and sample, and
        ends with the problem's part of the traceback.
    """
    number = 0
    try:
        for sample in problem.generate_samples(tmp_dir, split):
            yield from problem.examples_of(sample)
            number += 1
    except T2TError:
        raise
    except Exception as error:
        frames = error.__traceback__
        frames = frames.tb_next or frames if frames else None  # without this function's own
        told = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        raise DataError(
            f"{problem.dataset_name!r} {split.value}: generate_samples failed at sample {number}, "
            f"counted from 0:\n{told}"
        ) from error


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
