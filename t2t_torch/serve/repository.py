"""The models of a server by name and version; what changes on disk is loaded beside the old."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from t2t_torch.errors import ArtifactError, T2TError, UsageError
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.runtime.session import CancellationToken, Stopped
from t2t_torch.runtime.signature import FILE, MODEL
from t2t_torch.serve.limits import NOT_FOUND, HTTPError, Limits, unavailable
from t2t_torch.serve.middleware import Metrics
from t2t_torch.serve.model import Sample, ServedModel, tokens_of
from t2t_torch.serve.server import tell

# Requests put together: what comes while a model is busy is answered at once when it is free.


Ask: TypeAlias = Callable[[Sequence[Sample], CancellationToken], Sequence[Prediction]]
"""Returns what is found for inputs, in their order, unless it is stopped."""

_Result: TypeAlias = "Sequence[Prediction] | Exception"

STOPPING = 2.0
"""Seconds that all models together have to stop at the end."""


class Job:
    """A request that waits for its answers.

    Attributes:
      samples: its inputs.
      ask: what finds its answers.
      tokens: of all of them, about.
      longest: tokens of the longest of them.
      arrived: when, by the monotonic clock.
      answers: what is found, in the order of the inputs; or `InputError` with the number of the
        input, from 0, that cannot be answered; or `Stopped`, if the model ends.
      is_dropped: whether nobody waits for it any more: it is left out of batches.
    """

    def __init__(self, samples: Sequence[Sample], ask: Ask, on_drop: Callable[[], None]) -> None:
        self.samples = samples
        self.ask = ask
        tokens = [tokens_of(sample) for sample in samples]
        self.tokens, self.longest = sum(tokens), max(tokens)
        self.arrived = time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.answers: asyncio.Future[Sequence[Prediction]] = self.loop.create_future()
        self.is_dropped = False
        self._on_drop = on_drop

    def drop(self) -> None:
        """Says that nobody waits for it any more."""
        self.is_dropped = True
        self.answers.cancel()
        self._on_drop()


class _Asked(NamedTuple):
    """What the model computes now, and what ends it."""

    jobs: Sequence[Job]
    stop: CancellationToken


class Retired(Exception):
    """This model answers no more: another has taken its place."""


class Batcher:
    """A queue of requests, and the threads that ask the model.

    A request that finds a thread idle is answered at once.  Those that come while all are busy
    wait, the oldest no longer than `Limits.delay` after one is free, and are asked together; those
    that ask the same, and of these each is answered before what takes longer begins.  When nobody
    waits any more for what the model computes, it is told to stop.  An input that is longer than a
    batch may be is not computed beside another one: it needs much memory.

    Args:
      ask: the model; called in the threads.
      limits: of the queue and of a batch.
      observe: called for each batch with (inputs, seconds that its oldest request has waited); in
        the threads, too.
      name: of the threads.
      threads: how many batches are computed at once.
    """

    def __init__(
        self,
        ask: Ask,
        limits: Limits,
        observe: Callable[[int, float], None] = lambda inputs, seconds: None,
        name: str = "batcher",
        threads: int = 1,
    ) -> None:
        self._ask = ask
        self._limits = limits
        self._observe = observe
        self._queue: deque[Job] = deque()
        self._lock = threading.Lock()
        self._changed = [threading.Condition(self._lock) for _ in range(threads)]  # by thread
        self._idle: list[int] = []  # threads; the last one was busy last: its caches are warm
        self._is_closed = False
        self._is_stopped = False
        self._asked: list[_Asked | None] = [None] * threads
        self._with_long: int | None = None  # the thread that computes a long input
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=name, daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Returns how many requests wait."""
        return len(self._queue)

    def submit(self, samples: Sequence[Sample], ask: Ask | None = None) -> Job:
        """Puts a request into the queue.

        Args:
          samples: at least one.
          ask: what finds its answers in one of the threads, in place of the model as usual.

        Raises:
          HTTPError: the queue is full.
          Retired: the batcher was closed.
        """
        job = Job(samples, ask or self._ask, self._stop_if_unwanted)
        with self._lock:
            if self._is_closed:
                raise Retired
            if len(self._queue) >= self._limits.queue:
                self._forget_dropped()
            if len(self._queue) >= self._limits.queue:
                raise unavailable(
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
        """Answers what waits, and ends the threads; see `close_all`."""
        close_all([self], timeout)

    def _end(self) -> None:
        """Takes no more requests; each thread ends when none waits."""
        with self._lock:
            self._is_closed = True
            self._notify_all()

    def _stop(self) -> None:
        """Stops what is computed, and forgets what waits."""
        with self._lock:
            self._is_stopped = True
            self._queue.clear()
            self._notify_all()
        for asked in self._asked:
            if asked is not None:
                asked.stop.set()

    def _notify_all(self) -> None:
        for changed in self._changed:
            changed.notify()

    def _run(self, number: int) -> None:
        while jobs := self._next(number):
            samples = sum(len(job.samples) for job in jobs)
            self._observe(samples, time.monotonic() - jobs[0].arrived)
            for together in self._alike(jobs):
                self._answer(number, together)

    def _alike(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Returns the requests that ask the same together; first those that ask as usual."""
        alike: dict[Ask, list[Job]] = {self._ask: []}
        for job in jobs:
            alike.setdefault(job.ask, []).append(job)
        return [its for its in alike.values() if its]

    def _next(self, number: int) -> list[Job]:
        """Returns a thread's next batch; nothing when the batcher was closed and all is asked."""
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
        end = self._queue[0].arrived + self._limits.delay
        while self._queue and not (self._is_full() or self._is_closed):
            left = end - time.monotonic()
            if left <= 0:
                break
            changed.wait(left)

    def _take(self, number: int) -> list[Job]:
        """Takes the oldest requests that may begin and fit into a batch; at least one."""
        self._forget_dropped()  # while others were waited for
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
        return job.longest > self._limits.batch_tokens

    def _may_begin(self, job: Job) -> bool:
        return self._with_long is None or not self._is_long(job)

    def _is_full(self) -> bool:
        """Whether no request more would fit into the batch that waits."""
        inputs, tokens = 1, 1  # the least that a request has
        self._forget_dropped()
        for job in self._queue:
            inputs, tokens = inputs + len(job.samples), tokens + job.tokens
            if not self._fits(inputs, tokens):
                return True
        return False

    def _fits(self, inputs: int, tokens: int) -> bool:
        return inputs <= self._limits.batch_inputs and tokens <= self._limits.batch_tokens

    def _forget_dropped(self) -> None:
        if any(job.is_dropped for job in self._queue):
            self._queue = deque(job for job in self._queue if not job.is_dropped)

    def _stop_if_unwanted(self) -> None:
        """Lets the model stop if nobody waits for what it computes."""
        for asked in self._asked:
            if asked is not None and all(job.is_dropped for job in asked.jobs):
                asked.stop.set()

    def _asked_together(self, number: int, jobs: Sequence[Job]) -> list[Sequence[Prediction]]:
        """Returns what is found for requests that ask the same, which a thread asks together.

        Raises:
          Stopped: nobody waits for them any more, or the batcher ends.
        """
        asked = self._asked[number] = _Asked(jobs, CancellationToken())
        try:
            # Another thread first drops a request and then looks what is asked.
            self._stop_if_unwanted()
            if self._is_stopped:
                asked.stop.set()
            asked.stop.check()
            samples = [sample for job in jobs for sample in job.samples]
            found = iter(jobs[0].ask(samples, asked.stop))
            return [list(itertools.islice(found, len(job.samples))) for job in jobs]
        finally:
            self._asked[number] = None

    def _answer(self, number: int, jobs: Sequence[Job]) -> None:
        """Answers requests that ask the same; a fault of one is its own."""
        results: Sequence[_Result]
        try:
            results = self._asked_together(number, jobs)
        except Stopped as error:
            results = [error] * len(jobs)
        except Exception as error:  # of whatever computes: all it can raise is a request's
            if len(jobs) > 1:
                for job in jobs:
                    self._answer(number, [job])
                return
            results = [error]
        _send(list(zip(jobs, results, strict=True)))


def close_all(batchers: Sequence[Batcher], timeout: float | None = None) -> None:
    """Answers what waits for batchers, and ends their threads, all of them at once.

    Args:
      batchers: not closed one after another: the waits would add up.
      timeout: seconds after which models that still compute are stopped and the requests in the
        queues dropped; a thread that is still alive `STOPPING` seconds later is abandoned.  None:
        until all requests are answered.
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


def _send(results: Sequence[tuple[Job, _Result]]) -> None:
    """Delivers results, each in its request's loop."""
    for loop in {job.loop for job, _ in results}:
        mine = [(job, its) for job, its in results if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_deliver, mine)
        except RuntimeError:  # the loop was closed: nobody waits any more
            continue


def _deliver(results: Sequence[tuple[Job, _Result]]) -> None:
    for job, result in results:
        if job.answers.done():
            continue
        if isinstance(result, Exception):
            job.answers.set_exception(result)
        else:
            job.answers.set_result(result)


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
    load: Callable[[str, str, Path], ServedModel]
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

    model: ServedModel
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
            learner=model.architecture,
        )
        threads = self._limits.batches if model.is_shared else 1
        named = f"{name} {model.version}"
        return Served(model, Batcher(model.predict, self._limits, observe, named, threads))

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
          HTTPError: there is no such model.
        """
        served = self._served.get(name)
        if not served:
            raise HTTPError(
                NOT_FOUND, f"there is no model {name!r}; there are: {', '.join(self._served)}."
            )
        return dict(sorted(served.items(), key=lambda one: int(one[0])))

    def get(self, name: str | None, version: str | None = None) -> Served:
        """Returns a model.

        Args:
          name: of it; None if there is but one.
          version: of it; None is the highest.

        Raises:
          HTTPError: there is no such model or version.
        """
        if name is None:
            if len(self._sources) > 1:
                raise HTTPError(
                    NOT_FOUND,
                    f"there are several models: {', '.join(self._served)}. Ask one of them, at "
                    "/models/NAME/predict.",
                )
            name = next(iter(self._sources))
        versions = self.versions(name)
        if version is None:
            return list(versions.values())[-1]
        if version not in versions:
            raise HTTPError(
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
