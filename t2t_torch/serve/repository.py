"""The models of a server by name and version; what changes on disk is loaded beside the old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from t2t_torch.artifact.signature import FILE, MODEL
from t2t_torch.errors import ArtifactError, T2TError, UsageError
from t2t_torch.serve.batcher import Batcher, close_all
from t2t_torch.serve.limits import Limits
from t2t_torch.serve.log import tell
from t2t_torch.serve.metrics import Metrics
from t2t_torch.serve.model import Model
from t2t_torch.serve.refusal import NOT_FOUND, Refusal

_Print: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""What tells a folder from what it was: name, size, time and inode of each file."""


class Source(NamedTuple):
    """Where a model comes from.

    Attributes:
      name: what it is asked by.
      path: an artifact, a folder of artifacts whose names are numbers, or a run directory.
      load: makes a model of (name, version, path).
      is_run: whether it is a run directory, which is loaded once.
    """

    name: str
    path: Path
    load: Callable[[str, str, Path], Model]
    is_run: bool = False

    def places(self) -> dict[str, Path]:
        """Returns the folders of its versions; of an artifact by itself the version is ""."""
        if self.is_run or (self.path / FILE).exists() or (self.path / MODEL).exists():
            return {"": self.path}
        if not self.path.is_dir():
            return {}
        folders = [one for one in self.path.iterdir() if one.name.isdecimal() and one.is_dir()]
        return {one.name: one for one in sorted(folders, key=lambda one: int(one.name))}


class Served(NamedTuple):
    """A version of a model, and the queue before it."""

    model: Model
    batcher: Batcher


class _Known(NamedTuple):
    """What was found at a place."""

    print: _Print
    served: Served | None


class Repository:
    """Models that answer, and the thread that looks for new ones.

    Args:
      sources: where they come from; names are all different.
      limits: of each model's queue and batches.
      metrics: are told of batches and loads.
    """

    def __init__(self, sources: Sequence[Source], limits: Limits, metrics: Metrics) -> None:
        self._sources = {source.name: source for source in sources}
        self._limits = limits
        self._metrics = metrics
        self._known: dict[str, dict[str, _Known]] = {source.name: {} for source in sources}
        self._served: dict[str, dict[str, Served]] = {}
        self._removed: set[str] = set()  # models whose folder is gone, which was logged
        self._end = threading.Event()
        self._watch: threading.Thread | None = None
        metrics.queue_lengths = self.queue_lengths

    @property
    def names(self) -> Sequence[str]:
        """The names of all models, in the order in which they were given."""
        return list(self._sources)

    def load(self) -> None:
        """Loads all that is there.

        Raises:
          ArtifactError, CheckpointError, UsageError: a model has no version that can be loaded; the
            broken versions of others are logged.
        """
        for source in self._sources.values():
            faults = self._refresh(source)
            if source.name not in self._served:
                if faults:
                    raise faults[0]
                raise UsageError(
                    f"'{source.path}' is no artifact: it has no {FILE}, and no folders 1, 2 ... of "
                    "artifacts. Give what t2t-exporter --export_dir wrote."
                )

    def watch(self, seconds: float) -> None:
        """Looks for changes so often, in a thread, until `close`."""
        self._watch = threading.Thread(
            target=self._look, args=(seconds,), name="repository", daemon=True
        )
        self._watch.start()

    def _look(self, seconds: float) -> None:
        while not self._end.wait(seconds):
            self.refresh()

    def refresh(self) -> None:
        """Looks once for what was changed, has appeared, or is gone."""
        for source in self._sources.values():
            if source.is_run:
                continue
            try:
                self._refresh(source)
            except Exception as error:  # of a folder that changes meanwhile: the next look is soon
                self._fault(source, source.path, error, False)

    def _refresh(self, source: Source) -> list[T2TError]:
        """Returns why versions could not be loaded; those that were there before stay."""
        known, faults = self._known[source.name], []
        is_first = source.name not in self._served
        places = source.places()
        for version, path in places.items():
            before = known.get(version)
            try:
                print_ = _print(path)
            except OSError:  # it was moved away meanwhile; the next look sees what has come
                continue
            if before is not None and before.print == print_:
                continue
            served = before.served if before is not None else None
            try:
                served = self._load(source, version, path)
                if not is_first:
                    self._metrics.reload(source.name, "loaded")
            except T2TError as error:
                faults.append(error)
                self._fault(source, path, error, is_first)
            except Exception as error:  # of a file that changes while it is read
                faults.append(ArtifactError(f"'{path}' cannot be loaded: {error!r}."))
                self._fault(source, path, error, is_first)
            known[version] = _Known(print_, served)
        if places:
            self._removed.discard(source.name)
        elif known and source.name not in self._removed:
            self._removed.add(source.name)
            why = ArtifactError("its folder is gone; the loaded versions still answer")
            self._fault(source, source.path, why, is_first)
        for version in [one for one in known if one not in places and places]:
            del known[version]
        self._put(source.name)
        return faults

    def _fault(self, source: Source, path: Path, error: Exception, is_first: bool) -> None:
        if not is_first:
            self._metrics.reload(source.name, "failed")
        tell("not loaded", 40, model=source.name, path=str(path), why=str(error))

    def _load(self, source: Source, version: str, path: Path) -> Served:
        model = source.load(source.name, version, path)
        name = source.name

        def observe(inputs: int, seconds: float) -> None:
            self._metrics.batch(name, inputs, seconds)

        tell(
            "loaded",
            model=name,
            version=model.version,
            path=str(path),
            problem=model.problem,
            learner=model.learner,
        )
        threads = self._limits.batches if model.is_shared else 1
        named = f"{name} {model.version}"
        return Served(model, Batcher(model.ask, self._limits, observe, named, threads))

    def _put(self, name: str) -> None:
        """Serves what is known, and retires what is not any more."""
        before = self._served.get(name, {})
        now = {
            one.served.model.version: one.served
            for one in self._known[name].values()
            if one.served is not None
        }
        if now:
            self._served = {**self._served, name: now}
        for version, served in before.items():
            if now.get(version) is not served:
                served.batcher.close()  # answers what waits before it
                if version not in now:
                    self._metrics.unloaded(name, version)
                    tell("unloaded", model=name, version=version)
        for version, served in now.items():
            if before.get(version) is not served:
                self._metrics.loaded(name, version)

    def versions(self, name: str) -> dict[str, Served]:
        """Returns the versions of a model, the one that answers by default last.

        Raises:
          Refusal: there is no such model.
        """
        served = self._served.get(name)
        if not served:
            raise Refusal(
                NOT_FOUND, f"there is no model {name!r}; there are: {', '.join(self._served)}."
            )
        return dict(sorted(served.items(), key=lambda one: int(one[0])))

    def get(self, name: str | None, version: str | None = None) -> Served:
        """Returns a model.

        Args:
          name: of it; None if there is but one.
          version: of it; None is the highest.

        Raises:
          Refusal: there is no such model or version.
        """
        if name is None:
            if len(self._sources) > 1:
                raise Refusal(
                    NOT_FOUND,
                    f"there are several models: {', '.join(self._served)}. Ask one of them, at "
                    "/models/NAME/predict.",
                )
            name = next(iter(self._sources))
        versions = self.versions(name)
        if version is None:
            return list(versions.values())[-1]
        if version not in versions:
            raise Refusal(
                NOT_FOUND,
                f"model {name!r} has no version {version!r}; there are: {', '.join(versions)}.",
            )
        return versions[version]

    def queue_lengths(self) -> Mapping[str, int]:
        """Returns how many requests wait for each model, of all its versions."""
        return {
            name: sum(len(one.batcher) for one in versions.values())
            for name, versions in self._served.items()
        }

    def close(self, timeout: float | None = None) -> None:
        """Answers what waits for all models, and ends all threads.

        Args:
          timeout: see `close_all`; a load that is under way then is abandoned.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._end.set()
        if self._watch is not None:
            self._watch.join(timeout)
        left = None if end is None else max(0.0, end - time.monotonic())
        served = [one for versions in self._served.values() for one in versions.values()]
        close_all([one.batcher for one in served], left)


def _print(folder: Path) -> _Print:
    found = []
    for path in sorted(folder.iterdir()):
        try:
            about = path.stat()
        except OSError:  # it is gone, or a link that leads nowhere
            continue
        found.append((path.name, about.st_size, about.st_mtime_ns, about.st_ino))
    return tuple(found)
