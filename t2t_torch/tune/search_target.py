"""Target of a search: a problem and a model, or a trial, as flags of t2t-trainer."""

from __future__ import annotations

import json
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
from t2t_torch.search_space import AnyValue, Categorical, Space

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


# Which searched hyperparameters a trial reads.
#
# A range may hold the settings of several optimizers beside the choice of one, as tensor2tensor's
# `basic_range1` does: `optimizer_adam_beta1` is nothing to a trial of sgd.  The trainer refuses
# what a user has set and nothing reads; so such a value is not handed to it, and a name that no
# trial of a search can read is refused before the search begins.


_DRAWS = 64  # of a space with choices; each choice of up to a dozen is met almost surely


def unread(hparams: HParams, values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of a trial that nothing reads, and why.

    Args:
      hparams: the set that the trial changes.
      values: what it changes.
    """
    try:
        check_settings(hparams.replace(**values).signed("a search"))
    except HParamsError as error:
        # What else is wrong, as a decay that never decays, is the trainer's to refuse.
        told = {line.partition("=")[0]: line for line in str(error).splitlines()}
        return {name: told[name] for name in values if name in told}
    return {}


def read_ones(hparams: HParams, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a trial that are read."""
    left_out = unread(hparams, values)
    return {name: value for name, value in values.items() if name not in left_out}


def check_read(hparams: HParams, space: Space, source: str) -> None:
    """Refuses a space in which a name is read by no trial.

    Args:
      hparams: the set that the trials change.
      space: what is searched.
      source: where the space is from, as in "--hparams_range=basic_range1".

    Raises:
      HParamsError: for each such name, what does not read it, and what would.
    """
    rng = random.Random(0)
    # Only values that are names or switches decide what is read.
    choices = any(
        isinstance(kind, Categorical) and any(isinstance(v, bool | str) for v in kind.values)
        for kind in space.kinds.values()
    )
    never: dict[str, str] = {}
    for draw in range(_DRAWS if choices else 1):
        found = unread(hparams, space.sample(rng))
        never = found if not draw else {n: why for n, why in never.items() if n in found}
        if not never:
            return
    raise HParamsError("\n".join(f"{source}: {why}" for why in never.values()))


_KEPT = ("--keep_checkpoint_max=1", "--keep_checkpoint_best=1")
"""The newest checkpoint, to go on from, and the best one."""


class SearchTarget(Protocol):
    """Target of a search: a problem by a model, or a PyTorchTrial."""

    @property
    def name(self) -> str:
        """Display name."""
        ...

    def check_data(self) -> None:
        """Raises DataError if the data is not there, before a trial is started to find out."""
        ...

    def arguments(self, hparams: Mapping[str, AnyValue]) -> list[str]:
        """Returns the trainer's flags of these hyperparameters, but for where and how far."""
        ...

    def identity(self) -> dict[str, Any]:
        """Returns what another tuner has to bring to search together."""
        ...


@dataclass(frozen=True)
class ProblemSearchTarget:
    """A problem, a model and the set that trials change.

    Attributes:
      problem: the registered name.
      model: the registered name.
      hparams_set: the registered name.
      hparams: changes to the set, the same in all trials.
      data_dir: of the generated data.
      usr_dirs: folders of the user's.
      more: flags of the trainer, the same for all trials.
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
        """Checks that the data of each problem is generated, with a split to evaluate on.

        Raises:
          DataError: it is not; says how to generate it.
        """
        for component in registry.problem(self.problem).components:
            manifest = Manifest.load(self.data_dir, component.dataset_name)
            manifest.split(Split.EVAL, self.data_dir)

    def arguments(self, hparams: Mapping[str, AnyValue]) -> list[str]:
        """Returns the flags; each value is a flag of its own, and wins over `hparams`."""
        return [
            f"--problem={self.problem}",
            f"--model={self.model}",
            f"--hparams_set={self.hparams_set}",
            *([f"--hparams={self.hparams}"] if self.hparams else []),
            *(f"--hp={name}={written(value)}" for name, value in self._read(hparams).items()),
            f"--data_dir={self.data_dir}",
            *(f"--t2t_usr_dir={folder}" for folder in self.usr_dirs),
            *_KEPT,
            *self.more,
        ]

    def _read(self, hparams: Mapping[str, AnyValue]) -> dict[str, AnyValue]:
        """Returns the values that this trial reads: the trainer refuses others."""
        return read_ones(registry.hparams(self.hparams_set).parse(self.hparams), hparams)

    def identity(self) -> dict[str, Any]:
        """Returns all but where things lie."""
        return {
            "name": self.name,
            "problem": self.problem,
            "model": self.model,
            "hparams_set": self.hparams_set,
            "hparams": self.hparams,
            "trainer": list(self.more),
        }


@dataclass(frozen=True)
class TrialSearchTarget:
    """A PyTorchTrial and its experiment's file.

    Attributes:
      trial: as `--trial` takes it.
      config: the experiment's file.
      class_name: of the trial, as a reader calls it.
      usr_dirs: folders of the user's.
      more: flags of the trainer, the same for all trials.
    """

    trial: str
    config: Path
    class_name: str
    usr_dirs: tuple[str, ...]
    more: tuple[str, ...]

    @property
    def name(self) -> str:
        """The trial."""
        return self.class_name

    def check_data(self) -> None:
        """Checks nothing: a trial's own code reads its data."""

    def arguments(self, hparams: Mapping[str, AnyValue]) -> list[str]:
        """Returns the flags; each value is a flag of its own, by its dotted name, as JSON."""
        return [
            f"--trial={self.trial}",
            f"--config={self.config}",
            *(f"--hp={name}={json.dumps(value)}" for name, value in hparams.items()),
            *(f"--t2t_usr_dir={folder}" for folder in self.usr_dirs),
            *self.more,
        ]

    def identity(self) -> dict[str, Any]:
        """Returns all but where things lie."""
        return {"name": self.name, "trial": Path(self.trial).name, "trainer": list(self.more)}


def written(value: AnyValue) -> str:
    """Writes a value as `--hparams` reads it."""
    if isinstance(value, bool) or value is None:
        return "none" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(written, value))}]"
    return value if isinstance(value, str) else json.dumps(value)
