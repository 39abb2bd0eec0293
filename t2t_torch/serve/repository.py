"""Model repository with versions and reloading, and the batching queue of each model."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from t2t_torch.errors import ArtifactError, T2TError, UsageError
from t2t_torch.files import path_inside, read_text
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.runtime.session import CancellationToken, Stopped
from t2t_torch.runtime.signature import EXPORTS, FILE, LATEST, MODEL
from t2t_torch.serve.limits import NotFound, ServerLimits, Unavailable
from t2t_torch.serve.middleware import ServerMetrics
from t2t_torch.serve.model import Sample, ServedModel, extent_of
from t2t_torch.serve.server import log_event

Predict: TypeAlias = Callable[[Sequence[Sample], CancellationToken], Sequence[Prediction]]
"""Function that returns the predictions for inputs in order, unless it is cancelled."""

_Result: TypeAlias = "Sequence[Prediction] | Exception"

_WAITING = 1.0  # seconds between looks for the first artifact of a folder
STOPPING = 2.0
"""Seconds that all models together have to stop at shutdown."""


class Job:
    """A queued request.

    Attributes:
      samples: inputs.
      predict: function that computes the predictions.
      tokens: approximate number of tokens of all inputs.
      longest: tokens of the longest input.
      arrived: arrival time by the monotonic clock.
      answers: future of the predictions in the order of the inputs; fails with `InputError` and the
        index, from 0, of an invalid input, or with `Stopped` if the model is closed.
      is_dropped: True if the request was abandoned and is left out of batches.
    """

    def __init__(
        self, samples: Sequence[Sample], predict: Predict, on_abandon: Callable[[], None]
    ) -> None:
        self.samples = samples
        self.predict = predict
        tokens = [extent_of(sample).tokens for sample in samples]
        self.tokens, self.longest = sum(tokens), max(tokens)
        self.arrived = time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.answers: asyncio.Future[Sequence[Prediction]] = self.loop.create_future()
        self.is_dropped = False
        self._on_abandon = on_abandon

    def drop(self) -> None:
        """Marks the request as abandoned by its client."""
        self.is_dropped = True
        self.answers.cancel()
        self._on_abandon()


class _RunningBatch(NamedTuple):
    """The requests that the model computes now, and their cancellation token."""

    jobs: Sequence[Job]
    stop: CancellationToken


class Retired(Exception):
    """The model was replaced by another version and accepts no more requests."""


class Batcher:
    """Request queue of a model with its worker threads.

    If a thread is idle, a request is computed immediately.  Requests that arrive while all threads
    are busy wait, the oldest at most `batch_delay_ms` after a thread becomes free, and form a
    batch.  Within a batch, requests with the same function run together, and each group gets its
    results before a slower one begins.  If all requests of a computation are abandoned, it is
    cancelled.  Inputs longer than a batch are never computed concurrently, because they need much
    memory.

    Args:
      predict: the model; called in the threads.
      limits: limits of the queue and of a batch.
      observe: called in the threads for each batch with (inputs, waiting time of its oldest request
        in seconds).
      name: name of the threads.
      threads: number of concurrent batches.
    """

    def __init__(
        self,
        predict: Predict,
        limits: ServerLimits,
        observe: Callable[[int, float], None] = lambda inputs, seconds: None,
        name: str = "batcher",
        threads: int = 1,
    ) -> None:
        self._predict = predict
        self._limits = limits
        self._observe = observe
        self._queue: deque[Job] = deque()
        self._lock = threading.Lock()
        self._changed = [threading.Condition(self._lock) for _ in range(threads)]  # by thread
        self._idle: list[int] = []  # threads; the most recently busy one, with warm caches, is last
        self._is_closed = False
        self._is_stopped = False
        self._running: list[_RunningBatch | None] = [None] * threads
        self._with_long: int | None = None  # the thread that computes a long input
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=name, daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Returns the number of waiting requests."""
        return len(self._queue)

    def submit(self, samples: Sequence[Sample], predict: Predict | None = None) -> Job:
        """Adds a request to the queue.

        Args:
          samples: inputs, at least one.
          predict: function that computes the predictions in a thread, instead of the default one.

        Raises:
          HTTPError: the queue is full.
          Retired: the batcher was closed.
        """
        job = Job(samples, predict or self._predict, self._stop_if_abandoned)
        with self._lock:
            if self._is_closed:
                raise Retired
            if len(self._queue) >= self._limits.max_queue:
                self._forget_dropped()
            if len(self._queue) >= self._limits.max_queue:
                raise Unavailable(
                    f"{len(self._queue)} requests wait for this model, as many as may. Try again "
                    "later."
                )
            self._queue.append(job)
            if self._idle:
                self._changed[self._idle.pop()].notify()
            elif self._is_full():
                self._notify_all()
        return job

    def close(self, timeout: float | None = None) -> None:
        """Completes the waiting requests and ends the threads; see `close_all`."""
        close_all([self], timeout)

    def _end(self) -> None:
        """Stops accepting requests; each thread ends when the queue is empty."""
        with self._lock:
            self._is_closed = True
            self._notify_all()

    def _stop(self) -> None:
        """Cancels running computations and drops the waiting requests."""
        with self._lock:
            self._is_stopped = True
            self._queue.clear()
            self._notify_all()
        for running in self._running:
            if running is not None:
                running.stop.set()

    def _notify_all(self) -> None:
        for changed in self._changed:
            changed.notify()

    def _run(self, number: int) -> None:
        while jobs := self._next(number):
            self._observe(sum(len(job.samples) for job in jobs), time.monotonic() - jobs[0].arrived)
            alike: dict[Predict, list[Job]] = {self._predict: []}  # which is the first
            for job in jobs:
                alike.setdefault(job.predict, []).append(job)
            for together in filter(None, alike.values()):
                self._complete(number, together)

    def _next(self, number: int) -> list[Job]:
        """Returns a thread's next batch; an empty list if closed and the queue is empty."""
        changed, was_busy = self._changed[number], True
        with self._lock:
            if self._with_long == number:
                self._with_long = None
            while True:
                self._forget_dropped()
                if any(map(self._may_begin, self._queue)):
                    if was_busy:
                        self._wait_for_more(changed)
                    if jobs := self._take(number):  # unless another thread has taken all
                        return jobs
                elif self._is_closed:
                    return []
                else:
                    was_busy = False
                    self._idle.append(number)
                    changed.wait()
                    if number in self._idle:
                        self._idle.remove(number)

    def _wait_for_more(self, changed: threading.Condition) -> None:
        end = self._queue[0].arrived + self._limits.batch_delay_ms / 1e3
        while self._queue and not (self._is_full() or self._is_closed):
            left = end - time.monotonic()
            if left <= 0:
                break
            changed.wait(left)

    def _take(self, number: int) -> list[Job]:
        """Removes from the queue and returns the oldest requests that fit into a batch."""
        self._forget_dropped()  # dropped during the wait
        jobs: list[Job] = []
        inputs = tokens = 0
        for job in filter(self._may_begin, self._queue):
            inputs, tokens = inputs + len(job.samples), tokens + job.tokens
            if jobs and not self._fits(inputs, tokens):
                break
            jobs.append(job)
        if any(map(self._is_long, jobs)):
            self._with_long = number
        taken = set(jobs)
        self._queue = deque(job for job in self._queue if job not in taken)
        return jobs

    def _is_long(self, job: Job) -> bool:
        return job.longest > self._limits.max_batch_tokens

    def _may_begin(self, job: Job) -> bool:
        return self._with_long is None or not self._is_long(job)

    def _is_full(self) -> bool:
        """Returns True if no further request would fit into the waiting batch."""
        self._forget_dropped()
        inputs = sum(len(job.samples) for job in self._queue)
        tokens = sum(job.tokens for job in self._queue)
        return not self._fits(inputs + 1, tokens + 1)  # 1: the minimum of a request

    def _fits(self, inputs: int, tokens: int) -> bool:
        return inputs <= self._limits.max_batch_inputs and tokens <= self._limits.max_batch_tokens

    def _forget_dropped(self) -> None:
        if any(job.is_dropped for job in self._queue):
            self._queue = deque(job for job in self._queue if not job.is_dropped)

    def _stop_if_abandoned(self) -> None:
        """Cancels computations whose requests are all abandoned."""
        for running in self._running:
            if running is not None and all(job.is_dropped for job in running.jobs):
                running.stop.set()

    def _compute(self, number: int, jobs: Sequence[Job]) -> list[Sequence[Prediction]]:
        """Returns the predictions of requests with the same function, computed together.

        Raises:
          Stopped: all requests were abandoned, or the batcher was stopped.
        """
        running = self._running[number] = _RunningBatch(jobs, CancellationToken())
        try:
            # Another thread first drops a request and then checks the running computations.
            self._stop_if_abandoned()
            if self._is_stopped:
                running.stop.set()
            running.stop.check()
            samples = [sample for job in jobs for sample in job.samples]
            predictions = iter(jobs[0].predict(samples, running.stop))
            return [list(itertools.islice(predictions, len(job.samples))) for job in jobs]
        finally:
            self._running[number] = None

    def _complete(self, number: int, jobs: Sequence[Job]) -> None:
        """Completes requests with the same function; an error affects only its own request."""
        results: Sequence[_Result]
        try:
            results = self._compute(number, jobs)
        except Stopped as error:
            results = [error] * len(jobs)
        except Exception as error:  # any error of the model belongs to the requests
            if len(jobs) > 1:
                for job in jobs:
                    self._complete(number, [job])
                return
            results = [error]
        for job, result in zip(jobs, results, strict=True):
            with contextlib.suppress(RuntimeError):  # the loop is closed: no client waits
                job.loop.call_soon_threadsafe(_deliver, job.answers, result)


def close_all(batchers: Sequence[Batcher], timeout: float | None = None) -> None:
    """Completes the waiting requests of batchers and ends their threads, all concurrently.

    Args:
      batchers: batchers to close.
      timeout: seconds after which running computations are cancelled and waiting requests dropped;
        a thread that is still alive `STOPPING` seconds later is abandoned.  None waits until all
        requests are completed.
    """
    threads = [thread for one in batchers for thread in one._threads]
    for one in batchers:
        one._end()
    _join(threads, timeout)
    if not any(thread.is_alive() for thread in threads):
        return
    for one in batchers:
        one._stop()
    _join(threads, STOPPING)


def _join(threads: Sequence[threading.Thread], timeout: float | None) -> None:
    end = None if timeout is None else time.monotonic() + timeout
    for thread in threads:
        thread.join(None if end is None else max(0.0, end - time.monotonic()))


def _deliver(answers: asyncio.Future[Sequence[Prediction]], result: _Result) -> None:
    if answers.done():
        return
    if isinstance(result, Exception):
        answers.set_exception(result)
    else:
        answers.set_result(result)


_Fingerprint: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Fingerprint of a folder to detect changes: name, size, time and inode of each file."""


class ModelSource(NamedTuple):
    """Location of a model.

    Attributes:
      name: name in requests.
      path: an artifact, a folder of artifacts with numbers as names, or a run directory.
      load: function that loads a model from (name, version, path).
      is_run: True for a run directory, which is loaded only once.
      is_watched: True for a folder of artifacts of which `latest` names the served one, or for a
        run with such a folder; it may have none yet.
    """

    name: str
    path: Path
    load: Callable[[str, str, Path], ServedModel]
    is_run: bool = False
    is_watched: bool = False

    def places(self) -> dict[str, Path]:
        """Returns the folders by version, newest first; a single artifact has the version ""."""
        path = self._latest() if self.is_watched else self.path
        if self.is_run or (path / FILE).exists() or (path / MODEL).exists():
            return {"": path}
        if self.is_watched or not self.path.is_dir():
            return {}
        folders = [one for one in self.path.iterdir() if one.name.isdecimal() and one.is_dir()]
        return {one.name: one for one in sorted(folders, key=lambda one: -int(one.name))}

    def _latest(self) -> Path:
        """Returns the artifact that `latest` names; the folder itself if it has no `latest`.

        Links are resolved once, so that no model is loaded from two artifacts.
        """
        for link in (self.path / LATEST, self.path / EXPORTS / LATEST):
            if link.is_file():
                return path_inside(link.parent, read_text(link).strip())
            if link.is_symlink():
                return link.resolve()
        return self.path.resolve()


class Served(NamedTuple):
    """A version of a model and its queue."""

    model: ServedModel
    batcher: Batcher


class _Version(NamedTuple):
    """A loaded or failed version and its fingerprint."""

    fingerprint: _Fingerprint
    served: Served | None


class Repository:
    """Served models, with a thread that watches for new versions.

    Args:
      sources: locations of the models; names are unique.
      limits: limits of each model's queue and batches.
      metrics: metrics of batches and loads.
      allow_other_problem: True to let a version of another problem take over a model's name.
    """

    def __init__(
        self,
        sources: Sequence[ModelSource],
        limits: ServerLimits,
        metrics: ServerMetrics,
        *,
        allow_other_problem: bool = False,
    ) -> None:
        self._allow_other_problem = allow_other_problem
        self._sources = {source.name: source for source in sources}
        self._limits = limits
        self._metrics = metrics
        self._known: dict[str, dict[str, _Version]] = {source.name: {} for source in sources}
        self._served: dict[str, dict[str, Served]] = {}
        self._removed: set[str] = set()  # models whose missing folder was logged
        self._end = threading.Event()
        self._watch: threading.Thread | None = None
        for name in self._sources:
            metrics.queue_length.labels(name).set_function(partial(self.queue_length, name))

    @property
    def names(self) -> Sequence[str]:
        """The names of all models in the order of the sources."""
        return list(self._sources)

    def load(self) -> None:
        """Loads all versions of all models.

        Raises:
          ArtifactError, CheckpointError, UsageError: no version of a model can be loaded; broken
            versions of other models are logged.
        """
        for source in self._sources.values():
            if source.is_watched and not source.places():
                log_event("waiting", model=source.name, path=str(source.path))
                while not (source.places() or self._end.wait(_WAITING)):
                    pass
            faults = self._refresh(source)
            if source.name not in self._served:
                if faults:
                    raise faults[0]
                raise UsageError(
                    f"'{source.path}' is no artifact: it has no {FILE}, and no folders 1, 2 ... of "
                    "artifacts. Give what t2t-exporter --export_dir wrote."
                )

    def watch(self, seconds: float) -> None:
        """Checks for changes every `seconds`, in a thread, until `close`."""

        def poll() -> None:
            while not self._end.wait(seconds):
                self.refresh()

        self._watch = threading.Thread(target=poll, name="repository", daemon=True)
        self._watch.start()

    def refresh(self) -> None:
        """Checks once for changed, new and removed versions."""
        for source in self._sources.values():
            if source.is_run:
                continue
            try:
                self._refresh(source)
            except Exception as error:  # the folder may change meanwhile: retried soon
                self._fault(source, source.path, error, False)

    def _refresh(self, source: ModelSource) -> list[T2TError]:
        """Returns the errors of versions that failed to load; previously loaded ones stay."""
        known, faults = self._known[source.name], []
        is_first = source.name not in self._served
        places = source.places()
        for version, path in places.items():
            before = known.get(version)
            try:
                fingerprint = _fingerprint(path)
            except OSError:  # moved meanwhile; handled by the next check
                continue
            if before is not None and before.fingerprint == fingerprint:
                continue
            served = before.served if before is not None else None
            try:
                served = self._load(source, version, path)
                if not is_first:
                    self._metrics.loads.labels(source.name, "loaded").inc()
            except Exception as error:  # also of a file that changes while it is read
                fault = ArtifactError(f"'{path}' cannot be loaded: {error!r}.")
                faults.append(error if isinstance(error, T2TError) else fault)
                self._fault(source, path, error, is_first)
            known[version] = _Version(fingerprint, served)
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

    def _fault(self, source: ModelSource, path: Path, error: Exception, is_first: bool) -> None:
        if not is_first:
            self._metrics.loads.labels(source.name, "failed").inc()
        log_event("not loaded", 40, model=source.name, path=str(path), why=str(error))

    def _load(self, source: ModelSource, version: str, path: Path) -> Served:
        model = source.load(source.name, version, path)
        name = source.name
        if not self._allow_other_problem:
            self._check_compatible(source, model, path)

        def observe(inputs: int, seconds: float) -> None:
            self._metrics.batches.labels(name).observe(inputs)
            self._metrics.waits.labels(name).observe(seconds)

        log_event(
            "loaded",
            model=name,
            version=model.version,
            path=str(path),
            problem=model.problem,
            learner=model.architecture,
        )
        threads = self._limits.max_batches if model.is_shared else 1
        thread_name = f"{name} {model.version}"
        return Served(model, Batcher(model.predict, self._limits, observe, thread_name, threads))

    def _check_compatible(self, source: ModelSource, model: ServedModel, path: Path) -> None:
        """Checks that a version answers what clients of its name ask for.

        Raises:
          ArtifactError: it has another problem than those that are served; or, of a folder that is
            watched, other inputs, or an output less.
        """
        name = source.name
        loaded = [one.served for one in self._known[name].values() if one.served]
        served = [*self._served.get(name, {}).values(), *loaded]
        before = next((one.model for one in served), model)
        known, new = _forms(before), _forms(model)
        changed = [one for one in {**known, **new} if known.get(one) != new.get(one)]
        changed = [one for one in changed if one in known or one.startswith("input")]
        if before.problem != model.problem:
            fault = (
                f"is of problem {model.problem}, and the model that is served as {name!r} is of "
                f"{before.problem}, which is what its clients ask for"
            )
        elif source.is_watched and changed:
            fault = f"has another {', '.join(changed)} than the model that is served as {name!r}"
        else:
            return
        raise ArtifactError(
            f"'{path}' {fault}. Serve it under another name (--artifact=NAME=PATH), or start "
            "t2t-server with --allow_other_problem."
        )

    def _put(self, name: str) -> None:
        """Serves the loaded versions of a model and retires the removed ones."""
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
                served.batcher.close()  # completes its waiting requests
                if version not in now:
                    self._metrics.loaded.remove(name, version)
                    log_event("unloaded", model=name, version=version)
        for version, served in now.items():
            if before.get(version) is not served:
                self._metrics.loaded.labels(name, version).set_to_current_time()

    def versions(self, name: str) -> dict[str, Served]:
        """Returns the versions of a model, the default one last.

        Raises:
          HTTPError: there is no such model.
        """
        served = self._served.get(name)
        if not served:
            raise NotFound(f"there is no model {name!r}; there are: {', '.join(self._served)}.")
        return dict(sorted(served.items(), key=lambda one: int(one[0])))

    def get(self, name: str | None, version: str | None = None) -> Served:
        """Returns a version of a model.

        Args:
          name: name of the model; None for the only model.
          version: version; None for the highest.

        Raises:
          HTTPError: there is no such model or version.
        """
        if name is None:
            if len(self._sources) > 1:
                raise NotFound(
                    f"there are several models: {', '.join(self._served)}. Ask one of them, at "
                    "/models/NAME/predict."
                )
            name = next(iter(self._sources))
        versions = self.versions(name)
        if version is None:
            return list(versions.values())[-1]
        if version not in versions:
            raise NotFound(
                f"model {name!r} has no version {version!r}; there are: {', '.join(versions)}."
            )
        return versions[version]

    def queue_length(self, name: str) -> int:
        """Returns the number of waiting requests of a model, over all its versions."""
        return sum(len(one.batcher) for one in self._served.get(name, {}).values())

    def close(self, timeout: float | None = None) -> None:
        """Completes the waiting requests of all models and ends all threads.

        Args:
          timeout: see `close_all`; a load in progress at that time is abandoned.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._end.set()
        if self._watch is not None:
            self._watch.join(timeout)
        left = None if end is None else max(0.0, end - time.monotonic())
        served = [one for versions in self._served.values() for one in versions.values()]
        close_all([one.batcher for one in served], left)


def _forms(model: ServedModel) -> dict[str, tuple[object, ...]]:
    """Returns the inputs and outputs of a model as clients write and read them, by name."""
    inputs = {f"input {f.name!r}": (f.kind, f.dtype, f.size, *f.shape) for f in model.fields}
    outputs = {f"output {t.name!r}": (t.kind, t.dtype, *t.shape) for t in model.targets}
    return {**inputs, **outputs}


def _fingerprint(folder: Path) -> _Fingerprint:
    files = []
    for path in sorted(folder.iterdir()):
        try:
            about = path.stat()
        except OSError:  # missing, or a broken link
            continue
        files.append((path.name, about.st_size, about.st_mtime_ns, about.st_ino))
    return tuple(files)
