"""Generation of the vocabulary, shards and manifest of a problem."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pydantic
from absl import logging

from t2t_torch import registry
from t2t_torch.atomic_files import sync, write_text
from t2t_torch.data import encoding, publish, raw_file, vocabulary_builder
from t2t_torch.data.manifest import Manifest, RawFileEntry, StoredEntry, datagen_command, fault_of
from t2t_torch.data.raw_file import exclusive
from t2t_torch.data.shuffle import Shuffle, merged
from t2t_torch.errors import DataError, UsageError
from t2t_torch.executor import Executor, map_ranks
from t2t_torch.files import copy_regular, read_text
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import Policy

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.problem import Problem


class Plan(StoredEntry):
    """Settings that all tasks agree on.

    Attributes:
      settings: all settings that change the bytes of the data set.
      num_tasks: number of tasks.
      raw_files: raw files of the samples.
      vocab_files: files of the vocabulary by name.
      vocab_in_folder: True if they are in the data folder because none is learnt.
      identity: identifier of this plan, different for each plan with the same settings.
    """

    settings: Mapping[str, Any]
    num_tasks: int
    raw_files: Mapping[str, RawFileEntry]
    vocab_files: Mapping[str, RawFileEntry]
    vocab_in_folder: bool
    identity: str = pydantic.Field(default_factory=lambda: uuid.uuid4().hex)


class RunEntry(StoredEntry):
    """A file of sorted rows: its path below the part's folder, and its size in bytes."""

    file: str
    bytes: int


class TaskReport(StoredEntry):
    """Tasks of a plan that have reported the state of the data set; kept after the plan is removed.

    Attributes:
      identity: identity of the plan.
      num_tasks: number of tasks of the plan.
      reported: tasks that have reported, ascending.
      published: True if the data set of the plan was published.
    """

    identity: str
    num_tasks: int
    reported: Sequence[int] = ()
    published: bool = False


class PartEntry(StoredEntry):
    """Contents of a task's part: statistics and files by split."""

    splits: Mapping[str, encoding.ShareEntry]
    runs: Mapping[str, Sequence[RunEntry]]


_Kind = TypeVar("_Kind", bound=StoredEntry)


def _read(kind: type[_Kind], path: Path) -> _Kind | None:
    """Returns the entry in a file; None if the file is missing or malformed."""
    with contextlib.suppress(OSError, ValueError):
        return kind.model_validate_json(read_text(path))
    return None


class Parts:
    """Files of the tasks that generate one data set together.

        plan.json        the agreed settings; written after the vocabulary
        vocab/           the vocabulary of all tasks
        part-00003/      a task's part of each split, encoded and sorted: train/run-00000 ...
        part-00003.json  written when the part is complete
        part-00003.lock  locked by the process that creates the part

    The file `.NAME.tasks.done` next to the folder lists the tasks of the latest plan that have
    reported the state of the data set.

    Args:
      data_dir: data folder.
      name: name of the data set.

    Attributes:
      folder: `.NAME.tasks` in the data folder.
      vocab: folder of the vocabulary.
      done: file of the report.
    """

    def __init__(self, data_dir: Path, name: str) -> None:
        self.folder = data_dir / f".{name}.tasks"
        self.vocab = self.folder / "vocab"
        self.done = data_dir / f".{name}.tasks.done"

    def plan(self) -> Plan | None:
        """Returns the plan; None if it is missing or malformed."""
        return _read(Plan, self.folder / "plan.json")

    def save_plan(self, plan: Plan) -> None:
        """Writes the plan, after the vocabulary is complete."""
        for path in (*self.vocab.iterdir(), self.vocab):
            sync(path)
        write_text(self.folder / "plan.json", plan.model_dump_json())

    def report(self) -> TaskReport | None:
        """Returns the report of the latest plan; None if it is missing or malformed."""
        return _read(TaskReport, self.done)

    def record(
        self, plan: Plan | None, task: int | None = None, *, published: bool = False
    ) -> None:
        """Records that a task of a plan has finished, or that its data set is published.

        The caller holds the lock of the data set.

        Args:
          plan: the plan; None: that of the report, which was published.
          task: the task, if one has finished.
          published: True if the data set is published now.
        """
        report = self.report()
        if plan is not None and (report is None or report.identity != plan.identity):
            report = TaskReport(identity=plan.identity, num_tasks=plan.num_tasks)
        if report is not None:
            reported = sorted({*report.reported, *(() if task is None else (task,))})
            changes = {"reported": reported, "published": report.published or published}
            write_text(self.done, report.model_copy(update=changes).model_dump_json())

    def is_unrecorded(self, task: int | None, num_tasks: int) -> bool:
        """Returns True if so many tasks published the data set, and this one has not reported."""
        report = self.report()
        return (
            task is not None
            and report is not None
            and report.published
            and report.num_tasks == num_tasks
            and task not in report.reported
        )

    def place(self, task: int) -> Path:
        """Returns the folder of a task's part."""
        return self.folder / f"part-{task:05d}"

    def part(self, task: int) -> PartEntry | None:
        """Returns a task's part; None if it is incomplete or one of its files is missing."""
        place = self.place(task)
        part = _read(PartEntry, place.with_suffix(".json"))
        runs = [] if part is None else [run for entries in part.runs.values() for run in entries]
        with contextlib.suppress(OSError, ValueError):  # ValueError: a name with a NUL character
            if all((place / run.file).stat().st_size == run.bytes for run in runs):
                return part
        return None

    def save_part(
        self,
        task: int,
        splits: Mapping[str, encoding.ShareEntry],
        runs: Mapping[str, Sequence[Path]],
    ) -> None:
        """Marks a part as complete.

        Args:
          task: index of the task.
          splits: statistics by split.
          runs: files by split, all in the folder of the part.
        """
        place = self.place(task)
        for path in (*place.rglob("*"), place):
            sync(path)
        entries = {
            split: [
                RunEntry(file=path.relative_to(place).as_posix(), bytes=path.stat().st_size)
                for path in paths
            ]
            for split, paths in runs.items()
        }
        part = PartEntry(splits=splits, runs=entries)
        write_text(place.with_suffix(".json"), part.model_dump_json())

    def runs(self, split: Split, parts: Sequence[PartEntry]) -> list[Path]:
        """Returns the files of a split, of all tasks."""
        return [
            self.place(task) / run.file
            for task, part in enumerate(parts)
            for run in part.runs[split.value]
        ]

    def clear(self, *, or_refuse: bool = False) -> None:
        """Removes the folder unless a task is creating a part; the caller holds the lock.

        Raises:
          DataError: a task is creating a part, and `or_refuse` is set.
        """
        if not self.folder.exists():
            return
        with contextlib.ExitStack() as stack:
            for lock in sorted(self.folder.glob("part-*.lock")):
                try:
                    fcntl.flock(stack.enter_context(lock.open("r+")), fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not or_refuse:
                        return
                    raise DataError(
                        f"A task is at work in {self.folder} on data with other settings. "
                        "End it, or choose another --data_dir."
                    ) from None
            removed = self.folder.with_name(f"{self.folder.name}.removed")
            shutil.rmtree(removed, ignore_errors=True)
            self.folder.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)


def generate_data(
    problem: Problem,
    data_dir: str | Path,
    tmp_dir: str | Path,
    *,
    num_processes: int | None = None,
    seed: int | None = None,
    max_cases: int = 0,
    on_bad_record: Policy = "fail",
    overwrite: bool = False,
    progress: bool = True,
) -> Manifest:
    """Generates the vocabulary, shards and manifest of a problem, or verifies existing ones.

    Samples are encoded, shuffled with bounded memory and written to a folder `.NAME.incomplete`;
    then the shards are renamed and the manifest is written.  An interrupted call leaves nothing
    that looks complete.  The bytes depend only on the settings of the problem, its raw files and
    `seed`.  A learnt vocabulary is part of the data set; a shared one or the user's own
    (`kept_vocab_files`) is used as it is.  A second call for the same data set waits for the first.

    Args:
      problem: problem to generate; a `_rev` or `_copy` problem shares the data of its base.
      data_dir: output folder; created if missing.
      tmp_dir: folder of raw files and downloads; created if missing.
      num_processes: number of encoding processes; None uses all CPUs if the data is large.
      seed: seed of the shuffle and of Python's and numpy's global generators; None is that of the
        problem.
      max_cases: maximum number of samples of each split; 0 for all.
      on_bad_record: "skip" skips unreadable records and samples that cannot be encoded, counts them
        in the manifest and lists them in `NAME.skipped.txt`.
      overwrite: True to replace existing data, also with different settings.
      progress: True to show a progress bar on stderr.

    Raises:
      DataError: raw files are missing or malformed, a sample cannot be encoded, a split is empty,
        the data set exists with different settings, raw files or user vocabulary, or a directory
        cannot be created.
    """
    settings: Any = {"seed": seed, "max_cases": max_cases, "on_bad_record": on_bad_record}
    request = publish.DatasetRequest.of(problem, data_dir, tmp_dir, **settings)

    def write(staging: Path) -> Manifest:
        made_from, vocab_folder = request.learn(staging)
        features = problem.stored_features(vocab_folder)
        publication = publish.Publication(request, features, staging)
        with _encoded_splits(
            request, features, vocab_folder, staging / "spill", num_processes, progress=progress
        ) as encoded:
            for split, share, shuffle in encoded:
                where = request.where(split)
                entry = encoding.whole([share], where)
                logging.info("%s: %s rows encoded; writing the shards", where, f"{entry.rows:,}")
                publication.write(split, entry, shuffle.drain())
        Parts(request.folder, request.name).done.unlink(missing_ok=True)  # of data that goes now
        return publication.publish(made_from, vocab_folder)

    return request.fulfil(write, overwrite=overwrite)


@contextlib.contextmanager
def _encoded_splits(
    request: publish.DatasetRequest,
    features: Features,
    vocab_folder: Path,
    folder: Path,
    num_processes: int | None,
    part: encoding.TaskSlice | None = None,
    *,
    progress: bool,
) -> Iterator[Iterator[tuple[Split, encoding.ShareEntry, Shuffle]]]:
    """Context manager with an iterator that encodes and shuffles one split after the other.

    Args:
      request: description of the data set.
      features: stored features of the problem.
      vocab_folder: folder of the vocabulary.
      folder: folder of the shuffles' files, in a folder for each split.
      num_processes: number of encoding processes; None uses all CPUs if the data is large.
      part: the task's part of the samples; None for all.
      progress: True to show a progress bar on stderr.
    """
    problem = request.problem
    make_features = encoding.MakeFeatures(problem, vocab_folder, registry.usr_dirs())
    skip_unfit = request.on_bad_record == "skip"

    def encode(split: Split) -> tuple[Split, encoding.ShareEntry, Shuffle]:
        seed = f"{request.seed}:{split.value}"
        shuffle = Shuffle(seed, folder / split.value, keeps_order=problem.keeps_order)
        share = encoding.encode_share(
            request, split, features, encoder, shuffle, share=part, progress=progress
        )
        return split, share, shuffle

    with encoding.Encoder(features, make_features, num_processes, skip_unfit=skip_unfit) as encoder:
        yield map(encode, problem.shards)


@dataclasses.dataclass(frozen=True)
class TaskOutcome:
    """State of the data set after a task.

    Attributes:
      missing: indices of the tasks that have not finished yet.
      manifest: manifest of the data set, if no task is missing.
    """

    missing: Sequence[int] = ()
    manifest: Manifest | None = None


def run_task(
    problem: Problem,
    data_dir: str | Path,
    tmp_dir: str | Path,
    *,
    task_id: int,
    num_tasks: int,
    num_processes: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Any,
) -> TaskOutcome:
    """Generates one task's slice of a data set; the last task merges and publishes all slices.

    All arguments except `task_id` are the same for every task.  A task generates all samples and
    encodes every `num_tasks`-th block.  The shards are byte-identical to those of `generate_data`.
    A killed task can be run again; a finished one is not repeated.

    Args:
      problem: problem to generate.
      data_dir: output folder, shared by all tasks.
      tmp_dir: folder of raw files, shared or not.
      task_id: index of the task, from 0 to num_tasks - 1.
      num_tasks: number of tasks.
      num_processes: number of encoding processes; None uses all CPUs if the data is large.
      overwrite: True to replace existing data.  Parts of other tasks with the same settings are
        used.
      progress: True to show a progress bar on stderr.
      settings: `seed`, `max_cases` and `on_bad_record`, as for `generate_data`.

    Raises:
      UsageError: `task_id` or `num_tasks` is out of range.
      DataError: as `generate_data`; or the tasks differ in settings, number, raw files or samples.
    """
    if not 0 <= task_id < num_tasks:
        raise UsageError(
            f"--task_id={task_id}: with --num_tasks={num_tasks} the last is {num_tasks - 1}."
        )
    tasks = Tasks(publish.DatasetRequest.of(problem, data_dir, tmp_dir, **settings), num_tasks)
    plan, manifest = tasks.begin(task_id, overwrite=overwrite)
    if plan is None:
        return TaskOutcome(manifest=manifest)
    tasks.run(plan, task_id, num_processes, progress=progress)
    return tasks.finish(plan, task_id)


class Tasks:
    """The tasks that generate a data set, from the view of one of their processes.

    Args:
      request: description of the data set.
      num_tasks: number of tasks, the same for all of them.
    """

    def __init__(self, request: publish.DatasetRequest, num_tasks: int) -> None:
        self._request = request
        self._num_tasks = num_tasks
        self._parts = Parts(request.folder, request.name)

    def begin(
        self, task: int | None = None, *, overwrite: bool = False, replace_all: bool = False
    ) -> tuple[Plan | None, Manifest | None]:
        """Creates the plan and the vocabulary, or returns the existing plan.

        Args:
          task: index of the task; None for the coordinator of all tasks.
          overwrite: True to replace data, and parts with other settings.  Parts with the same
            settings are kept, because all tasks of an array get the same flags; so is data that
            this array has published and this task has not reported yet.
          replace_all: True to replace everything.

        Returns:
          The plan, or the manifest if the data set is complete.

        Raises:
          DataError: the existing data or parts have other settings or raw files, or a task is
            creating a part that would be replaced.
        """
        request = self._request
        with request.lock():
            plan = self._parts.plan()
            manifest = None
            # With --overwrite, the data may be that of the array to which the task belongs.
            is_own = plan is None and self._parts.is_unrecorded(task, self._num_tasks)
            if not replace_all and (not overwrite or is_own):
                with contextlib.suppress(*([DataError] if overwrite else [])):
                    manifest = request.complete(thorough=False)
            if manifest is not None:
                if not overwrite:
                    request.log_complete()
                self._parts.record(None, task)
                self._parts.clear()
                return None, manifest
            faults = self._faults(plan) if plan else []
            if faults and not overwrite:
                raise self._refusal(faults)
            if plan is None or faults or replace_all:
                return self._make_plan(), None
        request.prepare()  # on this machine, if the folder of raw files is its own
        if changes := raw_file.changes(request.problem, request.raw_folder, plan.raw_files):
            if not overwrite:
                raise self._refusal(changes)
            with request.lock():
                if self._parts.plan() == plan:
                    plan = self._make_plan()
        return plan, None

    def run(
        self, plan: Plan, task: int, num_processes: int | None = None, *, progress: bool
    ) -> None:
        """Encodes a task's part, unless it is complete or the plan was replaced.

        A second process for the same task waits for the first.

        Args:
          plan: plan returned by `begin`, in any process.
          task: index of the task.
          num_processes: number of encoding processes; None uses all CPUs if the data is large.
          progress: True to show a progress bar on stderr.

        Raises:
          DataError: a raw file is malformed or a sample cannot be encoded.
        """
        lock = self._parts.place(task).with_suffix(".lock")
        with exclusive(lock, f"encoding task {task} of {self._request.name!r}"):
            if self._parts.plan() == plan and self._parts.part(task) is None:
                self._encode(plan, task, num_processes, progress=progress)

    def finish(self, plan: Plan, task: int | None = None) -> TaskOutcome:
        """Merges and publishes the parts if all are complete.

        Args:
          plan: plan returned by `begin`, in any process.
          task: index of the task that ends; None for the coordinator of all tasks.

        Raises:
          DataError: the parts do not match, or another command generates other data here.
        """
        with self._request.lock():
            if self._parts.plan() != plan:
                manifest = self._request.complete(thorough=False)  # another task has published it
                if manifest is None:
                    raise DataError(
                        f"The data of {self._request.name!r} in {self._request.folder} is being "
                        "made otherwise by another command. Run this task again."
                    )
                self._parts.record(None, task)
                self._parts.clear()
                return TaskOutcome(manifest=manifest)
            self._parts.record(plan, task)
            parts = [self._parts.part(task) for task in range(plan.num_tasks)]
            if missing := [task for task, part in enumerate(parts) if part is None]:
                return TaskOutcome(missing=missing)
            manifest = self._merge(plan, [part for part in parts if part is not None])
            self._parts.record(plan, published=True)
            self._parts.clear()
            return TaskOutcome(manifest=manifest)

    def _make_plan(self) -> Plan:
        """Creates the vocabulary, then the plan."""
        parts = self._parts
        parts.clear(or_refuse=True)
        parts.vocab.mkdir(parents=True)
        made_from, vocab_folder = self._request.learn(parts.vocab)
        plan = Plan(
            settings=self._request.settings,
            num_tasks=self._num_tasks,
            raw_files=made_from,
            vocab_files={
                file: raw_file.entry(vocab_folder / file)
                for file in vocabulary_builder.vocab_files_in(self._request.problem, vocab_folder)
            },
            vocab_in_folder=vocab_folder != parts.vocab,
        )
        parts.save_plan(plan)
        return plan

    def _vocab_folder(self, plan: Plan) -> Path:
        return self._request.folder if plan.vocab_in_folder else self._parts.vocab

    def _encode(self, plan: Plan, task: int, num_processes: int | None, *, progress: bool) -> None:
        request, problem = self._request, self._request.problem
        place = raw_file.emptied(self._parts.place(task))
        vocab_folder = self._vocab_folder(plan)
        features = problem.stored_features(vocab_folder)
        part = encoding.TaskSlice(task, plan.num_tasks)
        splits, runs = {}, {}
        with _encoded_splits(
            request, features, vocab_folder, place, num_processes, part, progress=progress
        ) as encoded:
            for split, share, shuffle in encoded:
                splits[split.value] = share
                runs[split.value] = shuffle.spill()
        self._parts.save_part(task, splits, runs)

    def _merge(self, plan: Plan, parts: Sequence[PartEntry]) -> Manifest:
        """Writes the shards; replaces the files of a killed merge."""
        if faults := self._vocab_faults(plan):
            raise self._refusal(faults)
        request = self._request
        staging = raw_file.emptied(self._parts.folder / "shards")
        vocab_folder = self._vocab_folder(plan)
        if not plan.vocab_in_folder:  # copied, since publishing moves it
            for path in vocab_folder.iterdir():
                copy_regular(path, staging / path.name)
            vocab_folder = staging
        features = request.problem.stored_features(vocab_folder)
        publication = publish.Publication(request, features, staging)
        for split in request.problem.shards:
            entry = encoding.whole(
                [part.splits[split.value] for part in parts], request.where(split)
            )
            publication.write(split, entry, merged(self._parts.runs(split, parts)))
        return publication.publish(plan.raw_files, vocab_folder)

    def _faults(self, plan: Plan) -> list[str]:
        """Returns the differences of the plan to the request."""
        faults = self._request.differences(plan.settings)
        if plan.num_tasks != self._num_tasks:
            faults.append(f"num_tasks: there {plan.num_tasks}, requested {self._num_tasks}")
        return faults + self._vocab_faults(plan)

    def _vocab_faults(self, plan: Plan) -> list[str]:
        """Returns the changes of the vocabulary since the plan was created."""
        folder = self._vocab_folder(plan)
        faults = (fault_of(folder / file, entry) for file, entry in plan.vocab_files.items())
        return [fault for fault in faults if fault]

    def _refusal(self, faults: Sequence[str]) -> DataError:
        name, folder = self._request.name, self._request.folder
        return DataError(
            f"{folder} has parts of {name!r} that tasks made otherwise:\n  "
            + "\n  ".join(faults)
            + "\nRun the missing tasks as these were run, or replace them:  "
            + f"{datagen_command(name, folder)} --num_tasks={self._num_tasks} --task_id=... "
            + "--overwrite"
        )


def generate_by_ranks(
    problem: Problem,
    data_dir: str | Path,
    tmp_dir: str | Path,
    executor: Executor,
    *,
    num_tasks: int | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Manifest:
    """Generates a data set by the tasks of an array (`run_task`), each a rank of an executor.

    All machines need this library, and `data_dir` and the users' folders at the same paths.  The
    shards are byte-identical to those of `generate_data`.

    Args:
      problem: registered problem to generate; the ranks look it up by name.
      data_dir: output folder, shared by all machines.
      tmp_dir: folder of raw files, shared or not.
      executor: executor of the tasks.
      num_tasks: number of tasks; by default as many as the executor runs at once.
      overwrite: True to replace existing data, also with different settings.
      settings: `seed`, `max_cases` and `on_bad_record`, as for `generate_data`.

    Raises:
      UsageError: the executor is not installed, or `num_tasks` is needed.
      T2TError: as `run_task`, or a task died.
    """
    folder, raw_folder = Path(data_dir).resolve(), Path(tmp_dir).resolve()
    place = folder / f".{problem.dataset_name}.ranks"
    with executor:
        request = publish.DatasetRequest.of(problem, folder, raw_folder, **settings)
        count = num_tasks or executor.slots()
        if not count:
            raise UsageError("--runner needs --num_tasks, the number of its tasks.")
        tasks = Tasks(request, count)
        plan, manifest = tasks.begin(overwrite=overwrite, replace_all=overwrite)
        if plan is not None:
            logging.info("%s: %d tasks", request.name, count)
            options = {**settings, "data_dir": str(folder), "tmp_dir": str(raw_folder)}
            options |= {"overwrite": overwrite, "num_processes": 1, "progress": False}
            job = {"problem": problem.full_name, "plan": plan.identity, "options": options}
            map_ranks(executor, f"{__name__}:run_rank", job, count, place)
            manifest = tasks.finish(plan).manifest
    shutil.rmtree(place, ignore_errors=True)
    if manifest is None:
        raise DataError(f"Parts of {request.name!r} were removed meanwhile. Run again.")
    return manifest


def run_rank(settings: Mapping[str, Any], rank: int, count: int) -> None:
    """Generates a part in a process of an executor; see `generate_by_ranks`."""
    problem = registry.problem(settings["problem"])
    run_task(problem, task_id=rank, num_tasks=count, **settings["options"])
