"""A data set made by several tasks: the jobs of an array, on one machine or on many.

All tasks run the same command with another number and share the data folder.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.data import raw_files
from t2t_torch.data.chunks import Share
from t2t_torch.data.encoding import Encoder, MakeFeatures
from t2t_torch.data.lock import exclusive
from t2t_torch.data.manifest import Manifest, datagen_command, fault_of
from t2t_torch.data.parts import PartEntry, Parts, Plan
from t2t_torch.data.publish import Publication
from t2t_torch.data.request import Request
from t2t_torch.data.share import encode_share, whole
from t2t_torch.data.shuffle import Shuffle, merged
from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.bad_records import Policy

if TYPE_CHECKING:
    from t2t_torch.problem import Problem


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What is there after a task.

    Attributes:
      missing: the numbers of the tasks that have not ended yet.
      manifest: of the data set, once nothing is missing.
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
    seed: int | None = None,
    max_cases: int = 0,
    on_bad_record: Policy = "fail",
    overwrite: bool = False,
    progress: bool = True,
) -> Outcome:
    """Makes one task's share of a data set; the last task to end merges all and publishes.

    Every task gives the same arguments but `task_id`.  It generates all samples and encodes every
    `num_tasks`-th block of them.  The shards are those that `generate_data` makes, byte for byte.
    A task that was killed is run again; one that has ended is not made again.

    Args:
      problem: what to generate.
      data_dir: where to; shared by all tasks.
      tmp_dir: the raw files; shared or not.
      task_id: from 0 to num_tasks - 1.
      num_tasks: how many tasks there are.
      num_processes: how many processes of this task encode; None takes all CPUs for large data.
      seed: as for `generate_data`.
      max_cases: as for `generate_data`.
      on_bad_record: as for `generate_data`.
      overwrite: make the data anew, whatever is there.  A task that finds the parts of others goes
        on with them; one that was cut off before it could tell that the data was done, tells it.
      progress: show a progress bar on stderr.

    Raises:
      UsageError: there is no such task.
      DataError: as `generate_data`; or the tasks differ in their settings, their number, their raw
        files or their samples.
    """
    if not 0 <= task_id < num_tasks:
        raise UsageError(
            f"task {task_id} of {num_tasks} is not there; --task_id counts from 0 to "
            f"--num_tasks - 1, here {num_tasks - 1}."
        )
    request = Request.of(
        problem,
        data_dir,
        tmp_dir,
        seed=seed,
        max_cases=max_cases,
        on_bad_record=on_bad_record,
    )
    tasks = Tasks(request, num_tasks)
    plan, manifest = tasks.begin(task_id, overwrite=overwrite)
    if plan is None:
        return Outcome(manifest=manifest)
    tasks.run(plan, task_id, num_processes, progress=progress)
    return tasks.finish(plan, task_id)


class Tasks:
    """The tasks that make one data set, as one of their processes sees them.

    Args:
      request: the data set.
      num_tasks: how many tasks there are, the same for all.

    Raises:
      UsageError: that is less than one.
    """

    def __init__(self, request: Request, num_tasks: int) -> None:
        if num_tasks < 1:
            raise UsageError(f"{num_tasks} tasks make nothing; --num_tasks counts from 1.")
        self._request = request
        self._num_tasks = num_tasks
        self._parts = Parts(request.folder, request.name)

    def begin(
        self, task: int | None = None, *, overwrite: bool = False, anew: bool = False
    ) -> tuple[Plan | None, Manifest | None]:
        """Makes the plan and the vocabulary, or finds them made.

        Args:
          task: whose beginning this is; None for what begins all of them.
          overwrite: replace data, and parts of other settings.  Parts of these settings are kept,
            since every task of an array says the same, and so is data that this array has made
            and this task has not told yet.
          anew: replace everything.

        Returns:
          The plan, or the manifest if nothing is left to do.

        Raises:
          DataError: there is data, or there are parts, of other settings or other raw files; or a
            task is at work on what is to be replaced.
        """
        request = self._request
        with request.lock():
            plan = self._parts.plan()
            manifest = None
            if not anew and (not overwrite or self._only_tells(plan, task)):
                manifest = self._complete(overwrite=overwrite)
            if manifest is not None:
                if not overwrite:
                    request.tell_complete()
                if task is not None:
                    self._parts.tell_again(task)
                self._parts.clear()
                return None, manifest
            faults = self._faults(plan) if plan else []
            if faults and not overwrite:
                raise self._refusal(faults)
            if plan is None or faults or anew:
                return self._make_plan(), None
        request.prepare()  # on this machine, if the folder of raw files is its own
        if changes := raw_files.changes(request.problem, request.raw_folder, plan.raw_files):
            if not overwrite:
                raise self._refusal(changes)
            with request.lock():
                if self._parts.plan() == plan:
                    plan = self._make_plan()
        return plan, None

    def run(
        self, plan: Plan, task: int, num_processes: int | None = None, *, progress: bool
    ) -> None:
        """Encodes a task's share, unless that is done, or the plan is no longer what is made here.

        A second process with the same number waits for the first, and then finds it done.

        Args:
          plan: what `begin` returned, here or elsewhere.
          task: its number, from 0.
          num_processes: how many processes encode; None takes all CPUs when the data is large.
          progress: show a progress bar on stderr.

        Raises:
          DataError: a raw file is malformed or a sample cannot be encoded.
        """
        with exclusive(self._parts.lock(task), f"encoding task {task} of {self._request.name!r}"):
            if self._parts.plan() == plan and self._parts.part(task) is None:
                self._encode(plan, task, num_processes, progress=progress)

    def finish(self, plan: Plan, task: int | None = None) -> Outcome:
        """Merges and publishes, if all parts are there.

        Args:
          plan: what `begin` returned, here or elsewhere.
          task: the one that ends; None for what waits for all of them.

        Raises:
          DataError: the parts do not fit together, or another command makes other data here.
        """
        with self._request.lock():
            if self._parts.plan() != plan:
                manifest = self._request.complete(thorough=False)  # another task has published it
                if manifest is None:
                    raise DataError(
                        f"The data of {self._request.name!r} in {self._request.folder} is being "
                        "made otherwise by another command. Run this task again."
                    )
                if task is not None:
                    self._parts.tell_again(task)
                self._parts.clear()
                return Outcome(manifest=manifest)
            self._parts.tell(plan, task)
            parts = [self._parts.part(task) for task in range(plan.num_tasks)]
            missing = [task for task, part in enumerate(parts) if part is None]
            if missing:
                return Outcome(missing=missing)
            manifest = self._merge(plan, [part for part in parts if part is not None])
            self._parts.tell(plan, published=True)
            self._parts.clear()
            return Outcome(manifest=manifest)

    def _only_tells(self, plan: Plan | None, task: int | None) -> bool:
        """Whether a task that says --overwrite belongs to the array that made what is there."""
        if plan is not None or task is None:
            return False
        return self._parts.has_to_tell(task, self._num_tasks)

    def _complete(self, *, overwrite: bool) -> Manifest | None:
        try:
            return self._request.complete(thorough=False)
        except DataError:
            if not overwrite:
                raise
            return None

    def _make_plan(self) -> Plan:
        """The first task makes the vocabulary; the plan is written when it is there."""
        parts = self._parts
        parts.clear(or_refuse=True)
        parts.vocab.mkdir(parents=True)
        made_from, vocab_folder = self._request.learn(parts.vocab)
        plan = Plan(
            settings=self._request.settings,
            num_tasks=self._num_tasks,
            raw_files=made_from,
            vocab_files={
                file: raw_files.entry(vocab_folder / file)
                for file in self._request.problem.vocab_files_in(vocab_folder)
            },
            vocab_in_folder=vocab_folder != parts.vocab,
        )
        parts.save_plan(plan)
        return plan

    def _vocab_folder(self, plan: Plan) -> Path:
        return self._request.folder if plan.vocab_in_folder else self._parts.vocab

    def _encode(self, plan: Plan, task: int, num_processes: int | None, *, progress: bool) -> None:
        request, problem = self._request, self._request.problem
        place = self._parts.place(task)
        shutil.rmtree(place, ignore_errors=True)  # of a task that was killed
        place.mkdir()
        vocab_folder = self._vocab_folder(plan)
        features = problem.stored_features(vocab_folder)
        make_features = MakeFeatures(problem, vocab_folder, registry.usr_dirs())
        skip_unfit = request.on_bad_record == "skip"
        splits, runs = {}, {}
        with Encoder(features, make_features, num_processes, skip_unfit=skip_unfit) as encoder:
            for split in problem.shards:
                shuffle = Shuffle(
                    f"{request.seed}:{split.value}",
                    place / split.value,
                    keeps_order=problem.keeps_order,
                )
                splits[split.value] = encode_share(
                    request,
                    split,
                    features,
                    encoder,
                    shuffle,
                    share=Share(task, plan.num_tasks),
                    progress=progress,
                )
                runs[split.value] = shuffle.spill()
        self._parts.save_part(task, splits, runs)

    def _merge(self, plan: Plan, parts: Sequence[PartEntry]) -> Manifest:
        """Writes the shards; what a killed merge leaves is made again from the parts."""
        if faults := self._vocab_faults(plan):
            raise self._refusal(faults)
        request = self._request
        staging = self._parts.folder / "shards"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        vocab_folder = self._vocab_folder(plan)
        if not plan.vocab_in_folder:  # copied, since publishing moves it
            for path in vocab_folder.iterdir():
                shutil.copyfile(path, staging / path.name)
            vocab_folder = staging
        features = request.problem.stored_features(vocab_folder)
        publication = Publication(request, features, staging)
        for split in request.problem.shards:
            entry = whole([part.splits[split.value] for part in parts], request.where(split))
            publication.write(split, entry, merged(self._parts.runs(split, parts)))
        return publication.publish(plan.raw_files, vocab_folder)

    def _faults(self, plan: Plan) -> list[str]:
        """How the plan differs from what is asked for."""
        faults = self._request.differences(plan.settings)
        if plan.num_tasks != self._num_tasks:
            faults.append(f"num_tasks: there {plan.num_tasks}, asked {self._num_tasks}")
        return faults + self._vocab_faults(plan)

    def _vocab_faults(self, plan: Plan) -> list[str]:
        """How the vocabulary differs from what it was when the plan was made."""
        folder = self._vocab_folder(plan)
        found = (fault_of(folder / file, entry) for file, entry in plan.vocab_files.items())
        return [fault for fault in found if fault]

    def _refusal(self, faults: Sequence[str]) -> DataError:
        name, folder = self._request.name, self._request.folder
        return DataError(
            f"{folder} has parts of {name!r} that tasks made otherwise:\n  "
            + "\n  ".join(faults)
            + "\nRun the missing tasks as these were run, or replace them:  "
            + f"{datagen_command(name, folder)} --num_tasks={self._num_tasks} --task_id=... "
            + "--overwrite"
        )
