"""Kinds of run: the parts that workflows take from a run of a problem, of several, of a trial."""

from __future__ import annotations

import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.remote import resolve
from t2t_torch.settings import Settings

if TYPE_CHECKING:
    import torch

    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.distributed.process_group import World
    from t2t_torch.export.exporter import Exporter
    from t2t_torch.export.settings import ExportSettings
    from t2t_torch.problem import Problem
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.serve.repository import ModelSource
    from t2t_torch.signals import StopRequest
    from t2t_torch.train.task import Hook, Task
    from t2t_torch.workflows.decode import DecodeSettings
    from t2t_torch.workflows.evaluate import EvaluateSettings
    from t2t_torch.workflows.search_settings import RequestedSearch, SearchSettings
    from t2t_torch.workflows.serve import ServeSettings
    from t2t_torch.workflows.train_settings import TrainSettings


RunPaths: TypeAlias = str | Path | Sequence[str | Path]
"""A run directory, a `ckpt-<step>` folder in one, or several of them, as an ensemble."""

DEFAULT = "problem"
"""Name of the kind of a run that no other kind claims."""


class TrainedModel(Protocol):
    """A trained model, ready to call: what `RunKind.predictor` returns at least."""

    def __call__(self, inputs: Any, /) -> Any:
        """Returns the outputs for a list of inputs, in order."""


class RunKind(ABC):
    """A kind of run: the parts that the workflows take from it.

    Register a subclass with `registry.register_run_kind`; see docs/how_to/extend.md.

    Attributes:
      name: the registered name.
      title: the kind in messages, with its article.
      forms_ensembles: True if several runs can be evaluated, decoded and exported as one.
      unread: by workflow ("train", "evaluate", "decode", "export", "search"), the settings that it
        does not read for these runs; giving one is an error.
      read_with: by such a setting, the flag with which it would be read.
      needed_by_search: settings that a new search must have.
      exporters: by `--format`, the class that exports these runs, as "module:class".
    """

    name: ClassVar[str]
    title: ClassVar[str]
    forms_ensembles: ClassVar[bool] = False
    unread: ClassVar[Mapping[str, Sequence[str]]] = {}
    read_with: ClassVar[Mapping[str, str]] = {}
    needed_by_search: ClassVar[Sequence[str]] = ()
    exporters: ClassVar[Mapping[str, str]] = {}

    def claims(self, record: TaskRecord) -> bool:
        """Returns True if a run with this `task.json` is of this kind."""
        return record.kind_name == self.name

    def is_requested(self, settings: TrainSettings | SearchSettings) -> bool:
        """Returns True if settings start a run of this kind."""
        return False

    @abstractmethod
    def train(self, settings: TrainSettings, callbacks: Sequence[Hook], stop: StopRequest) -> int:
        """Trains, evaluates or does what else the schedule says; see `workflows.train.train`."""

    @abstractmethod
    def predictor(
        self,
        path: RunPaths,
        checkpoint: int | str | Path | None,
        *,
        problem: str | None,
        hparams: DecodeHParams | None,
        device: str | torch.device | None,
    ) -> TrainedModel:
        """Returns a trained model; see `workflows.run.load`."""

    @abstractmethod
    def hparams(self, directory: RunDirectory) -> Any:
        """Returns the hyperparameters of a run."""

    def problem(self, directory: RunDirectory) -> Problem | None:
        """Returns the problem of a run; None if it has none."""
        return None

    def problem_names(self, directory: RunDirectory) -> tuple[str, ...]:
        """Returns the names of the problems of a run of several; () for other runs."""
        return ()

    def with_data(self, settings: EvaluateSettings) -> EvaluateSettings:
        """Returns settings of an evaluation, completed by the place of the run's data."""
        return settings

    def task(self, settings: EvaluateSettings, directory: RunDirectory, world: World) -> Task:
        """Returns the task whose evaluation `workflows.evaluate.evaluate` reports."""
        raise self._refused("evaluated")

    def decode(self, settings: DecodeSettings, hparams: DecodeHParams) -> None:
        """Decodes as `workflows.decode.decode`."""
        raise self._refused("decoded; t2t_torch.load answers in Python")

    def requested_search(
        self, settings: SearchSettings, known_steps: Mapping[str, int]
    ) -> RequestedSearch:
        """Returns the search that settings request.

        Args:
          settings: the settings.
          known_steps: recorded `RequestedSearch.steps_of` of a resumed search.
        """
        raise self._refused("searched")

    def recorded_of_search(self, settings: SearchSettings) -> dict[str, Any]:
        """Returns what a search records for `check_search`, besides its settings."""
        return {}

    def check_search(  # noqa: B027  nothing to check by default
        self, settings: SearchSettings, output_dir: Path, known: Mapping[str, Any]
    ) -> None:
        """Checks that code that a resumed search names may be executed; see `trust`.

        Args:
          settings: settings, some of them recalled.
          output_dir: directory of the search.
          known: the record of the search.
        """

    def exporter(self, settings: ExportSettings) -> tuple[type[Exporter], ExportSettings]:
        """Returns the exporter of a format, and the settings, completed by those of the run.

        Raises:
          UsageError: the format is unknown, or not for these runs.
        """
        place = self.exporters.get(settings.format, "")
        if not place:
            raise UsageError(
                f"--format={settings.format}: expected one of {', '.join(self.exporters)} for a "
                f"run of {self.title}."
            )
        return pkgutil.resolve_name(place), settings

    def served_models(self, settings: ServeSettings) -> list[ModelSource]:
        """Returns the models of `--output_dir` that a server loads.

        Raises:
          UsageError: a server cannot load such runs.
        """
        raise self._refused("served as they are: t2t-exporter and then t2t-server --artifact")

    def _refused(self, what: str) -> UsageError:
        return UsageError(f"runs of {self.title} cannot be {what}.")


def calling(place: str) -> Any:
    """Returns a method that calls a function, "module:name", which is imported at the call."""

    def method(_: RunKind, *arguments: Any, **named: Any) -> Any:
        return pkgutil.resolve_name(place)(*arguments, **named)

    return method


def kinds() -> list[RunKind]:
    """Returns all kinds of run; the default is the last."""
    names = sorted(registry.list_names("run_kind"), key=lambda name: (name == DEFAULT, name))
    return [registry.run_kind(name)() for name in names]


def kind_of(path: RunPaths) -> RunKind:
    """Returns the kind of a run, after opening the code that the run comes with.

    A folder without a readable `task.json` is of the default kind, whose reader reports the fault.

    Args:
      path: one or several; of several, the first that forms no ensembles decides.

    Raises:
      ArtifactError: a folder of exported weights was altered.
      CheckpointError, UsageError: see `run.code.open_code`.
    """
    from t2t_torch.run.code import open_code
    from t2t_torch.run.directory import RunDirectory

    if not isinstance(path, str | Path):
        if not path:
            raise UsageError("an ensemble of no models: name at least one run.")
        several = [kind_of(one) for one in path]
        return next((kind for kind in several if not kind.forms_ensembles), several[0])
    folder = resolve(path)
    if re.fullmatch(r"ckpt-\d+", folder.name):
        folder = folder.parent
    directory = RunDirectory(folder)
    try:
        record = directory.task()
    except CheckpointError:
        default: RunKind = registry.run_kind(DEFAULT)()
        return default
    if (folder / "signature.json").exists():  # verified before its code may be executed
        from t2t_torch.runtime.signature import Signature

        Signature.read(folder).check_files(folder)
    open_code(directory.path, record)
    if record.kind:  # of the user's, also from the run's copy of its code
        own: RunKind = registry.run_kind(record.kind)()
        return own
    *others, default = kinds()
    return next((kind for kind in others if kind.claims(record)), default)


def requested_kind(settings: TrainSettings | SearchSettings) -> RunKind:
    """Returns the kind of the run that settings start or resume, or of the runs of a search."""
    from t2t_torch.run.directory import RunDirectory

    *others, default = kinds()
    requested = next((kind for kind in others if kind.is_requested(settings)), None)
    if requested is None and settings.output_dir:
        directory = RunDirectory(settings.output_dir)
        if directory.exists:
            directory.task()  # reports damage
            return kind_of(directory.path)
    return requested or default


def check_read(kind: RunKind, workflow: str, settings: Settings, runs: Sequence[Any] = ()) -> None:
    """Checks that a workflow reads all given settings for runs of a kind.

    Args:
      kind: kind of the run.
      workflow: a key of `RunKind.unread`.
      settings: the settings.
      runs: the runs that the workflow reads.

    Raises:
      UsageError: it does not read some; lists all of them.
    """
    changed = [name for name in kind.unread.get(workflow, ()) if settings.is_changed(name)]
    named = [f"--{name}" for name in changed]
    if len(runs) > 1 and not kind.forms_ensembles:
        raise UsageError(
            f"several runs in --output_dir form an ensemble, which runs of {kind.title} do not: "
            "give one run."
        )
    if named:
        are, them = ("are", "them") if len(named) > 1 else ("is", "it")
        flags = sorted({kind.read_with[name] for name in changed if name in kind.read_with})
        other = f", or give {' or '.join(flags)}" if flags else ""
        raise UsageError(
            f"{', '.join(named)} {are} not read for a run of {kind.title}: leave {them} out{other}."
        )
