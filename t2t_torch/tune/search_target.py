"""Target of a search: a problem and a model, or a trial, as flags of t2t-trainer."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from t2t_torch import registry
from t2t_torch.data.manifest import Manifest
from t2t_torch.errors import HParamsError
from t2t_torch.mode import Split
from t2t_torch.optim.settings import check_settings
from t2t_torch.params import value_text
from t2t_torch.search_space import AnyValue, Categorical, Space

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


_DRAWS = 64  # draws from a space with choices; covers each choice of up to a dozen almost surely


def unread(hparams: HParams, values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of a trial that are not read, each with the reason.

    A range may contain settings of several optimizers and a choice of one, such as tensor2tensor's
    `basic_range1`: a trial with sgd does not read `optimizer_adam_beta1`.  The trainer rejects
    flags that are not read.  Such values are therefore omitted, and a name that no trial can read
    is rejected before the search starts.

    Args:
      hparams: hparams set that the trial changes.
      values: changed values.
    """
    try:
        check_settings(hparams.replace(**values).signed("a search"))
    except HParamsError as error:
        # Other errors, such as a schedule without decay, are left to the trainer.
        reasons = {line.partition("=")[0]: line for line in str(error).splitlines()}
        return {name: reasons[name] for name in values if name in reasons}
    return {}


def read_ones(hparams: HParams, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a trial that are read."""
    left_out = unread(hparams, values)
    return {name: value for name, value in values.items() if name not in left_out}


def check_read(hparams: HParams, space: Space, source: str) -> None:
    """Raises an error if no trial reads a name of the space.

    Args:
      hparams: hparams set that the trials change.
      space: search space.
      source: origin of the space, such as "--hparams_range=basic_range1".

    Raises:
      HParamsError: a name is not read; lists each with the reason and the setting that would read
        it.
    """
    rng = random.Random(0)
    # Only categorical and boolean values decide which names are read.
    choices = any(
        isinstance(kind, Categorical) and any(isinstance(v, bool | str) for v in kind.values)
        for kind in space.kinds.values()
    )
    never: dict[str, str] = {}
    for draw in range(_DRAWS if choices else 1):
        not_read = unread(hparams, space.sample(rng))
        never = not_read if not draw else {n: why for n, why in never.items() if n in not_read}
        if not never:
            return
    raise HParamsError("\n".join(f"{source}: {why}" for why in never.values()))


_KEPT = ("--keep_checkpoint_max=1", "--keep_checkpoint_best=1")
"""Keeps the latest checkpoint, for resuming, and the best one."""


class SearchTarget(Protocol):
    """Target of a search: a problem with a model, or a PyTorchTrial."""

    @property
    def name(self) -> str:
        """Display name."""

    def check_data(self) -> None:
        """Raises DataError if data is missing, before any trial starts."""

    def arguments(self, hparams: Mapping[str, AnyValue]) -> list[str]:
        """Returns the trainer's flags for hyperparameters, without output directory and length."""

    def identity(self) -> dict[str, Any]:
        """Returns the values that must be equal in tuners that share a search."""


@dataclass(frozen=True)
class ProblemSearchTarget:
    """A problem, a model and the hparams set that trials change.

    Attributes:
      problem: registered name of the problem.
      model: registered name of the model.
      hparams_set: registered name of the set.
      hparams: changes to the set, the same for all trials.
      data_dir: directory of the generated data.
      usr_dirs: user directories to import.
      more: additional flags of the trainer, the same for all trials.
    """

    problem: str
    model: str
    hparams_set: str
    hparams: str
    data_dir: Path
    usr_dirs: tuple[str, ...]
    more: tuple[str, ...]

    @property
    def name(self) -> str:
        """The problem and the model."""
        return f"{self.problem} by {self.model}, {self.hparams_set}"

    def check_data(self) -> None:
        """Checks that the data of each problem is generated and includes a split for evaluation.

        Raises:
          DataError: the data is missing; includes the command that generates it.
        """
        for component in registry.problem(self.problem).components:
            Manifest.load(self.data_dir, component.dataset_name).split(Split.EVAL, self.data_dir)

    def arguments(self, hparams: Mapping[str, AnyValue]) -> list[str]:
        """Returns the flags; each value that is read has its own, which overrides `hparams`."""
        own = registry.hparams(self.hparams_set, self.model).parse(self.hparams)
        return [
            f"--problem={self.problem}",
            f"--model={self.model}",
            f"--hparams_set={self.hparams_set}",
            *([f"--hparams={self.hparams}"] if self.hparams else []),
            *(
                f"--hp={name}={value_text(value)}"
                for name, value in read_ones(own, hparams).items()
            ),
            f"--data_dir={self.data_dir}",
            *(f"--t2t_usr_dir={folder}" for folder in self.usr_dirs),
            *_KEPT,
            *self.more,
        ]

    def identity(self) -> dict[str, Any]:
        """Returns all values except locations."""
        names = ("name", "problem", "model", "hparams_set", "hparams")
        return {**{name: getattr(self, name) for name in names}, "trainer": list(self.more)}
