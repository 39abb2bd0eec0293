"""The folder in which the tasks of one data set put their parts, until all have ended.

plan.json        what is made, by how many tasks; written when the vocabulary is there
vocab/           the vocabulary that all tasks use
part-00003/      a task's share of each split, encoded and sorted: train/run-00000 ...
part-00003.json  says that it is whole
part-00003.lock  is held by the process that makes it

Beside the folder, `.NAME.tasks.done` says which tasks of the latest plan have told what is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

from t2t_torch.data.manifest import RawFileEntry
from t2t_torch.data.share import ShareEntry
from t2t_torch.data.staging import staged, sync
from t2t_torch.errors import DataError
from t2t_torch.mode import Split


class _Entry(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Plan(_Entry):
    """What all tasks agree on.

    Attributes:
      settings: everything that changes the bytes.
      num_tasks: how many shares there are.
      raw_files: that the samples are read from.
      vocab_files: of the vocabulary, by their names.
      vocab_in_folder: whether they are in the data folder, as none is learnt.
      identity: of this plan and no other, even of the same settings.
    """

    settings: Mapping[str, Any]
    num_tasks: int
    raw_files: Mapping[str, RawFileEntry]
    vocab_files: Mapping[str, RawFileEntry]
    vocab_in_folder: bool
    identity: str = pydantic.Field(default_factory=lambda: uuid.uuid4().hex)


class RunEntry(_Entry):
    """A file of sorted rows: its path below the part's folder, its size in bytes."""

    file: str
    bytes: int


class Report(_Entry):
    """Which tasks of a plan have told what is there; it outlives the plan.

    Attributes:
      identity: of the plan.
      num_tasks: of the plan.
      told: the tasks that have, rising.
      published: whether the plan's data has been.
    """

    identity: str
    num_tasks: int
    told: Sequence[int] = ()
    published: bool = False


class PartEntry(_Entry):
    """What a task has made: by split what it holds, and its files."""

    splits: Mapping[str, ShareEntry]
    runs: Mapping[str, Sequence[RunEntry]]


class Parts:
    """The parts of one data set.

    Attributes:
      folder: `.NAME.tasks` in the data folder.
      vocab: the folder of the vocabulary.
      done: the file of the report.
    """

    def __init__(self, data_dir: Path, name: str) -> None:
        """Makes nothing yet."""
        self.folder = data_dir / f".{name}.tasks"
        self.vocab = self.folder / "vocab"
        self.done = data_dir / f".{name}.tasks.done"

    def plan(self) -> Plan | None:
        """The plan there is; None if there is none, or none that can be read."""
        try:
            return Plan.model_validate_json((self.folder / "plan.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def save_plan(self, plan: Plan) -> None:
        """Writes the plan, when all of the vocabulary is there."""
        for path in self.vocab.iterdir():
            sync(path)
        sync(self.vocab)
        with staged(self.folder / "plan.json") as temporary:
            temporary.write_text(plan.model_dump_json(indent=2), encoding="utf-8")

    def report(self) -> Report | None:
        """The report of the latest plan; None if there is none, or none that can be read."""
        try:
            return Report.model_validate_json(self.done.read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def tell(self, plan: Plan, task: int | None = None, *, published: bool = False) -> None:
        """Notes in the report that a task of a plan has ended, or that its data is published.

        The caller holds the data set's lock.
        """
        report = self.report()
        if report is None or report.identity != plan.identity:
            report = Report(identity=plan.identity, num_tasks=plan.num_tasks)
        told = {*report.told, *(() if task is None else (task,))}
        self._save_report(report, told, published=report.published or published)

    def tell_again(self, task: int) -> None:
        """Notes that a task of the plan that was published has told so."""
        report = self.report()
        if report is not None:
            self._save_report(report, {*report.told, task}, published=report.published)

    def _save_report(self, report: Report, told: Iterable[int], *, published: bool) -> None:
        changes = {"told": sorted(told), "published": published}
        with staged(self.done) as temporary:
            temporary.write_text(report.model_copy(update=changes).model_dump_json(), "utf-8")

    def has_to_tell(self, task: int, num_tasks: int) -> bool:
        """Whether the data there is that of so many tasks, of which this one has not told yet."""
        report = self.report()
        return (
            report is not None
            and report.published
            and report.num_tasks == num_tasks
            and task not in report.told
        )

    def place(self, task: int) -> Path:
        """The folder of a task's files."""
        return self.folder / f"part-{task:05d}"

    def lock(self, task: int) -> Path:
        """The file that is locked by the process that makes a part."""
        return self.folder / f"part-{task:05d}.lock"

    def part(self, task: int) -> PartEntry | None:
        """What a task has made; None if it has not ended, or a file of it is gone."""
        place = self.place(task)
        try:
            part = PartEntry.model_validate_json(place.with_suffix(".json").read_text("utf-8"))
            runs = [run for entries in part.runs.values() for run in entries]
            good = all((place / run.file).stat().st_size == run.bytes for run in runs)
        except (OSError, ValueError):
            return None
        return part if good else None

    def save_part(
        self, task: int, splits: Mapping[str, ShareEntry], runs: Mapping[str, Sequence[Path]]
    ) -> None:
        """Says that a part is whole.

        Args:
          task: whose part.
          splits: what it holds.
          runs: by split, its files; all are in its folder.
        """
        place = self.place(task)
        for path in (path for paths in runs.values() for path in paths):
            sync(path)
        for path in (*place.iterdir(), place):
            sync(path)
        entries = {
            split: [
                RunEntry(file=path.relative_to(place).as_posix(), bytes=path.stat().st_size)
                for path in paths
            ]
            for split, paths in runs.items()
        }
        with staged(place.with_suffix(".json")) as temporary:
            text = PartEntry(splits=splits, runs=entries).model_dump_json()
            temporary.write_text(text, encoding="utf-8")

    def runs(self, split: Split, parts: Sequence[PartEntry]) -> list[Path]:
        """The files of a split, of all tasks."""
        return [
            self.place(task) / run.file
            for task, part in enumerate(parts)
            for run in part.runs[split.value]
        ]

    def clear(self, *, or_refuse: bool = False) -> None:
        """Removes all, unless a task is at work on a part; the caller holds the data set's lock.

        Raises:
          DataError: a task is at work, and `or_refuse` is set.
        """
        if not self.folder.exists():
            return
        with contextlib.ExitStack() as held:
            for lock in sorted(self.folder.glob("part-*.lock")):
                if held.enter_context(_held(lock)):
                    continue
                if not or_refuse:
                    return
                raise DataError(
                    f"A task is at work in {self.folder} on data that was asked for otherwise. "
                    "End it, or choose another --data_dir."
                )
            removed = self.folder.with_name(f"{self.folder.name}.removed")
            shutil.rmtree(removed, ignore_errors=True)
            self.folder.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[bool]:
    """Tries to take a lock without waiting; says whether it is taken."""
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
