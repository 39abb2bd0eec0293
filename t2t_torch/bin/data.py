"""Inspects generated data: counts, samples, labels, unknown tokens, duplicates, batches.

    t2t-data --problem=translate_multi30k_ende --data_dir=data --report=report.html

Reads the shards written by t2t-datagen, prints statistics, and points out likely defects.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.bin import flags as shared
from t2t_torch.errors import DataError, UsageError
from t2t_torch.mode import Split
from t2t_torch.settings import Settings, hp

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.problem import Problem
    from t2t_torch.reports.column_statistics import BucketTable
    from t2t_torch.reports.statistics import DatasetStatistics


class DataOptions(Settings):
    """Flags of `t2t-data`."""

    hparams_set: str | None = hp(None, "Hparams set whose training batches are shown.")
    num_samples: int = hp(3, "Number of rows shown per split.", low=0)
    report: str | None = hp(None, "HTML file of the report, with plots.", path=True)
    json_: str | None = hp(None, "JSON file of the statistics.", path=True)


FLAGS = shared.CommandFlags(
    "t2t-data",
    DataOptions,
    common=("problem", "hparams_set", "hparams", "data_dir", "t2t_usr_dir", "registry_help"),
)
_flag = FLAGS.value_of


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(_run, FLAGS, __doc__, argv)


def _run() -> int:
    shared.require(FLAGS, "problem", "data_dir")
    if FLAGS["hparams"].present and not _flag("hparams_set"):
        raise UsageError("--hparams changes a set: name it with --hparams_set=NAME.")
    from t2t_torch.reports.data_report import findings, plain_text, sections_of
    from t2t_torch.reports.page import page
    from t2t_torch.reports.plots import INSTALL, can_draw, draw

    problem = registry.problem(_flag("problem"))
    json_file, report = (shared.file_to_write(FLAGS, name) for name in ("json", "report"))
    data_dir = Path(_flag("data_dir"))
    statistics = statistics_of(problem, data_dir, num_samples=_flag("num_samples"))
    if _flag("hparams_set"):
        statistics = dataclasses.replace(statistics, buckets=_buckets(problem, data_dir))
    sections, remarks = sections_of(statistics), findings(statistics)
    print(plain_text(f"{statistics.problem} in {statistics.data_dir}", sections, remarks))
    if json_file is not None:
        text = json.dumps({**statistics.plain(), "findings": remarks}, ensure_ascii=False)
        _write(json_file, text + "\n")
    if report is not None:
        plots = draw(statistics) if can_draw() else None
        _write(report, page(statistics, sections, remarks, plots))
        if plots is None:
            print(INSTALL, file=sys.stderr)
    return 0


def _write(file: Path, text: str) -> None:
    from t2t_torch.files import open_target

    try:
        with open_target(file) as stream:
            stream.write(text.encode("utf-8", "backslashreplace").decode())
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}.") from None
    print(f"\nWritten: {file}")


def statistics_of(problem: Problem, data_dir: Path, *, num_samples: int) -> DatasetStatistics:
    """Returns the statistics of a problem's data.

    Raises:
      DataError: the data is missing or has no rows.
      UsageError: the problem is a mixture.
    """
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.reports.statistics import Reader

    if list(problem.components) != [problem]:
        names = ", ".join(one.full_name for one in problem.components)
        raise UsageError(
            f"{problem.full_name!r} is a mixture and has no data of its own. Look at each of the "
            f"problems that it mixes: {names}."
        )
    manifest = Manifest.load(data_dir, problem.dataset_name)
    shards = _shards(problem, data_dir)
    if not any(shards.values()):
        raise DataError(f"The data of {problem.full_name!r} in {data_dir} has no rows.")
    reader = Reader(problem.features(data_dir), shards)
    statistics = reader.take(problem.full_name, str(data_dir), num_samples)
    skipped = {split: manifest.splits[split].skipped for split in shards}
    return dataclasses.replace(statistics, skipped=skipped)


def _shards(problem: Problem, data_dir: Path) -> dict[str, Shards]:
    """Returns the generated splits."""
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.data.shards import Shards

    splits = Manifest.load(data_dir, problem.dataset_name).splits
    return {
        split.value: Shards.open(data_dir, problem.dataset_name, split)
        for split in Split
        if split.value in splits
    }


def _buckets(problem: Problem, data_dir: Path) -> BucketTable:
    """Returns the batches of a training epoch."""
    from t2t_torch.pipeline.plan import Batching, EpochPlan
    from t2t_torch.pipeline.reader import LengthLimits
    from t2t_torch.reports.column_statistics import bucket_table

    changes = _flag("hparams")
    hparams = registry.hparams(_flag("hparams_set")).parse(changes)
    if hparams.pack_dataset or hparams.pad_batch or problem.split_length(hparams):
        raise UsageError(
            "the table of batches is of whole rows, padded to the longest; what pack_dataset, "
            "pad_batch and split_to_length make of them is shown by  t2t-trainer --dry_run"
        )
    features, train = problem.features(data_dir), _shards(problem, data_dir).get(Split.TRAIN.value)
    if not train:
        raise DataError("There is no training split, so there are no batches to show.")
    scheme = Batching.of(problem, hparams).training
    limits = LengthLimits.of(features, hparams)
    lengths = limits.lengths(train, features.all, features.columns)
    plan = EpochPlan(lengths, scheme, source=train.fingerprint)
    return bucket_table(
        f"{_flag('hparams_set')} and {changes}" if changes else _flag("hparams_set"),
        lengths,
        plan.in_order(),
        scheme.boundaries,
        scheme.batch_sizes,
    )


if __name__ == "__main__":
    sys.exit(main())
