"""Batches of a problem's data on disk: of one data set, or of a mixture of several."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_torch import reporter
from t2t_torch.data.manifest import Manifest, datagen_command
from t2t_torch.data.publish import data_settings, different_settings
from t2t_torch.data.shards import Ragged, Shards
from t2t_torch.data.vocabulary_builder import optional_vocab_files
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features.feature import count_positions, select_measured
from t2t_torch.hparam import EVERY_ROW
from t2t_torch.mode import Split
from t2t_torch.pipeline.loader import EvalBatches, MixedBatches, OnePass, TrainBatches
from t2t_torch.pipeline.plan import Batching
from t2t_torch.pipeline.reader import LengthLimits
from t2t_torch.pipeline.streams import EvalStreams
from t2t_torch.pipeline.training_split import TrainingSplit, component_seed, rows_of_fold
from t2t_torch.problem_types.mixture import MixingSchedule, first_schedule
from t2t_torch.reports.column_statistics import StoredColumn

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem


class ProblemData:
    """The data of a problem, or of all the problems of a mixture.

    Args:
      problem: the problem to train on.
      features: features of the problem.
      hparams: settings for batching.
      data_dir: directory of the generated shards.
      loader_workers: threads that prepare batches; 0 prepares each batch on demand.
      pin_memory: True to prepare batches in pinned memory for faster copies to a GPU.

    Raises:
      DataError: the mixing schedule is malformed, or the problems of a mixture differ in features
        or vocabularies.
    """

    def __init__(
        self,
        problem: Problem,
        features: Features,
        hparams: HParams,
        data_dir: Path,
        *,
        loader_workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self._problem = problem
        self._hparams = hparams
        self._data_dir = data_dir
        self._loading: dict[str, Any] = {"workers": loader_workers, "pin_memory": pin_memory}
        self._schedule = None
        self._parts = [(problem, features)]
        if problem.mixing_schedule is not None:
            parts = problem.components
            if callable(problem.preprocessing(hparams)):
                raise DataError(
                    f"{type(problem).__qualname__}.preprocess_example is never called: a mixture "
                    "has no examples of its own. Override it in the problems that it mixes."
                )
            self._schedule = schedule_of(problem, hparams, len(parts))
            # Their columns may differ, for example those of X and X_rev.
            self._parts = [(part, part.features(data_dir)) for part in parts]
            check_alike({part.full_name: own for part, own in self._parts})
            check_vocabularies(parts, data_dir)
        self._warned: set[Split] = set()

    def train(
        self, *, seed: int, start: int, rank: int, world_size: int, batches_per_step: int = 0
    ) -> MixedBatches:
        """Returns training batches from global batch `start` on, for one process."""
        accumulate = self._hparams.optimizer_multistep_accumulate_steps or 1
        of_step = batches_per_step or accumulate * world_size
        run = {"start": start, "rank": rank, "world_size": world_size, **self._loading}
        if self._schedule is None:
            part, features = self._parts[0]
            opened = self._to_train(part), features, Batching.of(part, self._hparams)
            with _telling(part, Split.TRAIN):
                return TrainBatches(*opened, seed=seed, batches_per_step=of_step, **run)
        if self._hparams.stream_length:
            raise HParamsError(
                "stream_length: a model would remember the text of one problem while it reads "
                "that of another. Set stream_length=0 for a mixture."
            )
        components = []
        for index, (part, features) in enumerate(self._parts):
            opened = self._to_train(part), features, Batching.of(part, self._hparams)
            with _telling(part, Split.TRAIN):
                components.append(TrainingSplit.of(*opened, seed=component_seed(seed, index)))
        return MixedBatches(components, self._schedule, seed=seed, batches_per_step=of_step, **run)

    def evaluate(self, split: Split, *, rank: int, world_size: int) -> OnePass:
        """Returns each example of a split once, problem after problem; reports truncation once.

        The process of rank r gets batches r, r + world_size, ... of all problems together: the
        first n batches are the same for any number of processes.  Before the first batch only
        lengths are read.

        Raises:
          DataError: a problem has no examples left.
        """
        passes: list[EvalBatches | EvalStreams] = []
        before = 0
        for part, features in self._parts:
            fold = self._hparams.fold if split is Split.EVAL and not self._trains_on_dev else ""
            shards = self._shards(part, Split.TRAIN if fold else split)
            longest = longest_row(shards.manifest, features, self._hparams)
            batching = Batching.of(part, self._hparams, longest_row=longest)
            share: dict[str, Any] = {"rank": (rank - before) % world_size, "world_size": world_size}
            batches: EvalBatches | EvalStreams
            with _telling(part, split):
                if self._hparams.stream_length:
                    batches = EvalStreams(shards, features, self._hparams, **share)
                else:
                    batches = EvalBatches(
                        shards,
                        features,
                        batching,
                        rows=rows_of_fold(shards, features, fold),
                        **share,
                        **self._loading,
                    )
            passes.append(batches)
            before += batches.total
            if batches.cut and rank == 0 and split not in self._warned:
                are = "is" if batches.cut == 1 else "are"
                reporter.message(
                    f"warning: {batches.cut:,} of {len(shards):,} examples of {part.full_name}, "
                    f"split {split.value}, {are} longer than {batching.bound} tokens and {are} cut "
                    "to that. More is kept with a larger --hparams=max_length=N."
                )
        if split is Split.EVAL and self._trains_on_dev and rank == 0 and split not in self._warned:
            reporter.message("warning: dev was trained on (fold=all); its figures say nothing.")
        self._warned.add(split)
        chained = functools.partial(itertools.chain.from_iterable, passes)
        return OnePass(sum(map(len, passes)), chained, total=before)

    def training_columns(self, target: str) -> Iterator[StoredColumn]:
        """Yields the stored rows of a target in the training split of each problem."""
        for part, features in self._parts:
            yield StoredColumn(self._training(part).column(features.columns[target]))

    def training_rows(self, name: str) -> Ragged:
        """Returns the stored rows of a feature in the training split of all problems, without those
        of `fold`.
        """
        columns = zip(self._parts, self.training_columns(name), strict=True)
        parts = []
        for (part, features), column in columns:
            rows = Ragged.concatenate([rows for _, rows in column.blocks()])
            fold = rows_of_fold(self._training(part), features, self._hparams.fold)
            parts.append(rows if fold is None else rows.select(~fold))
        return Ragged.concatenate(parts)

    def _shards(self, part: Problem, *splits: Split) -> Shards:
        return Shards.open(self._data_dir, part.dataset_name, *splits)

    @property
    def _trains_on_dev(self) -> bool:
        return bool(self._hparams.fold == EVERY_ROW)

    def _training(self, part: Problem) -> Shards:
        return self._shards(part, Split.TRAIN, *([Split.EVAL] if self._trains_on_dev else []))

    def _to_train(self, part: Problem) -> Shards:
        shards = self._training(part)
        check_cutters(part, shards.manifest, self._data_dir)
        return shards


FIRST_MIXING = (
    "multiproblem_mixing_schedule",
    "multiproblem_schedule_threshold",
    "multiproblem_schedule_max_examples",
    "multiproblem_per_task_threshold",
)
"""Hyperparameters of tensor2tensor's first kind of mixing."""


def schedule_of(problem: Problem, hparams: HParams, parts: int) -> MixingSchedule:
    """Returns the mixing schedule of several problems: of hparams, else of the problem.

    Raises:
      DataError: the schedule is malformed.
      HParamsError: hparams have two schedules.
    """
    fields = type(hparams).model_fields
    is_set = any(getattr(hparams, name) != fields[name].default for name in FIRST_MIXING)
    first = ""
    if is_set:
        first = first_schedule(
            hparams.multiproblem_mixing_schedule,
            parts,
            threshold=hparams.multiproblem_schedule_threshold,
            max_examples=hparams.multiproblem_schedule_max_examples,
            per_task=hparams.multiproblem_per_task_threshold.strip("[]"),
        )
    if first and hparams.mixing_schedule:
        raise HParamsError(
            f"mixing_schedule={hparams.mixing_schedule} and one of {', '.join(FIRST_MIXING)} are "
            "both set. Leave out one."
        )
    text = hparams.mixing_schedule or first or problem.mixing_schedule or ""
    return MixingSchedule.parse(text, parts)


def longest_row(manifest: Manifest, features: Features, hparams: HParams) -> int:
    """Returns the length of the longest truncated training row; 0 if there is no such split."""
    entry = manifest.splits.get(Split.TRAIN.value)
    if entry is None:
        return 0
    limits = LengthLimits.of(features, hparams)
    longest = [0]
    for name, feature in select_measured(features.all).items():
        stored = np.asarray([entry.max_length[features.columns[name]]])
        longest.append(int(limits.cut(name, count_positions(feature, stored))[0]))
    return max(longest)


@contextlib.contextmanager
def _telling(part: Problem, split: Split) -> Iterator[None]:
    """Prefixes data errors with the problem and the split."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{part.full_name}, split {split.value}: {error}") from error


def check_cutters(problem: Problem, manifest: Manifest, data_dir: Path) -> None:
    """Checks that the data has the cutters and the tokenizer that are used for inference.

    Raises:
      DataError: the data was generated with others.
    """
    stored, requested = (
        {"cutters": settings.get("cutters", {}), "tokenizer": settings.get("tokenizer", "")}
        for settings in (manifest.settings, json.loads(json.dumps(data_settings(problem))))
    )
    if faults := different_settings(stored, requested):
        raise DataError(
            f"the texts of {problem.dataset_name!r} in {data_dir} were cut into words in another "
            "way than the inputs of a trained model are:\n  "
            + "\n  ".join(faults)
            + "\nGenerate the data again:  "
            + f"{datagen_command(manifest.problem, data_dir)} --overwrite"
        )


def check_alike(features: Mapping[str, Features]) -> None:
    """Checks that the problems of a mixture have the same features.

    Args:
      features: features of each problem, by its name.

    Raises:
      DataError: a problem has other features; the message lists both.
    """
    (first, expected), *others = ((name, _describe(own)) for name, own in features.items())
    for name, own in others:
        if own != expected:
            raise DataError(
                f"a mixture is of problems with the same features, but {first} has "
                f"{expected} and {name} has {own}."
            )


def check_vocabularies(problems: Sequence[Problem], data_dir: Path) -> None:
    """Checks that the problems of a mixture were encoded with the same vocabularies.

    Raises:
      DataError: a problem has other vocabularies, or was not generated.
    """
    hashes = {
        part.full_name: sorted(Manifest.load(data_dir, part.dataset_name).vocab_files.values())
        for part in problems
    }
    first = next(iter(hashes))
    for name, own in hashes.items():
        if own != hashes[first]:
            raise DataError(
                f"the ids of {name} mean other things than those of {first}: their vocabulary "
                f"files in {data_dir} differ. Let one use the other's (its class attribute "
                "use_vocab_from_other_problem), and generate it again with t2t-datagen."
                + (
                    " Numbers of each are standardized by its own statistics: set raw_targets=True "
                    "in all, so that they stay as they are."
                    if any(optional_vocab_files(part) for part in problems)
                    else ""
                )
            )


def _describe(features: Features) -> str:
    kinds = {
        name: f"{type(one).__name__}{f' of {one.vocab_size} ids' if one.vocab_size else ''}"
        for name, one in features.all.items()
    }
    parts = {"inputs": features.inputs, "targets": features.targets, "notes": features.notes}
    return "; ".join(
        f"{role}: {', '.join(f'{name} ({kinds[name]})' for name in group)}"
        for role, group in parts.items()
        if group
    )
