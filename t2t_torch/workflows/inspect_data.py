"""Inspection of generated data: counts, samples, labels, duplicates, batches."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch import errors, mode, registry, reporter, trust
from t2t_torch.settings import hp, hp_path, require
from t2t_torch.workflows.context import DATA_DIR, HPARAMS, PROBLEM, file_to_write

if TYPE_CHECKING:
    from t2t_torch.pipeline.block_plan import BlockPlan
    from t2t_torch.pipeline.plan import EpochPlan
    from t2t_torch.problem import Problem
    from t2t_torch.reports.column_statistics import BucketTable


class DataSettings(trust.UsrDirSettings):
    """Inspects generated data: counts, samples, labels, unknown tokens, duplicates, batches.

        t2t-data --problem=translate_multi30k_ende --data_dir=data --report=report.html
        t2t-data --problem=topic_ag_news --data_dir=data --label_errors=label_errors.tsv

    Reads the shards written by t2t-datagen, prints statistics, and points out likely defects.
    """

    problem: str | None = PROBLEM
    hparams_set: str | None = hp(None, "Hparams set whose training batches are shown.")
    hparams: str = HPARAMS
    data_dir: str | None = DATA_DIR
    num_samples: int = hp(3, "Number of rows shown per split.", low=0)
    report: str | None = hp_path("HTML file of the report, with plots.")
    json_: str | None = hp_path("JSON file of the statistics.")
    label_errors: str | None = hp_path(
        "File (.tsv) of the training rows whose labels are probably wrong, the most suspicious "
        "first; up to a minute for 10,000 rows."
    )


@trust.workflow
def inspect_data(settings: DataSettings) -> None:
    """Reports statistics of a problem's data; writes the requested files."""
    require(settings, "problem", "data_dir")
    if "hparams" in settings.given and not settings.hparams_set:
        raise errors.UsageError("--hparams changes a set: name it with --hparams_set=NAME.")
    from t2t_torch.reports.data_report import findings, plain_text, sections_of
    from t2t_torch.reports.page import page
    from t2t_torch.reports.statistics import statistics_of

    problem = registry.problem(str(settings.problem))
    names = ("json", "report", "label_errors")
    json_file, report, suspicious = (file_to_write(settings, name) for name in names)
    data_dir = Path(str(settings.data_dir))
    statistics = statistics_of(problem, data_dir, num_samples=settings.num_samples)
    if settings.hparams_set:
        statistics = dataclasses.replace(statistics, buckets=_buckets(settings, problem, data_dir))
    sections, remarks = sections_of(statistics), findings(statistics)
    if suspicious is not None:
        from t2t_torch.reports.label_errors import write_label_errors

        added = write_label_errors(problem, data_dir, suspicious)
        if not added:
            raise errors.UsageError(
                "--label_errors: there are no texts with classes. Leave it out."
            )
        sections += added
    reporter.output(plain_text(f"{statistics.problem} in {statistics.data_dir}", sections, remarks))
    if json_file is not None:
        text = json.dumps({**statistics.plain(), "findings": remarks}, ensure_ascii=False)
        _write(json_file, text + "\n")
    if report is not None:
        _write(report, page(statistics, sections, remarks))


def _write(file: Path, text: str) -> None:
    from t2t_torch.files import open_target

    with open_target(file) as stream:
        stream.write(text.encode("utf-8", "backslashreplace").decode())
    reporter.output(f"\nWritten: {file}")


def _buckets(settings: DataSettings, problem: Problem, data_dir: Path) -> BucketTable:
    """Returns the batches of a training epoch."""
    from t2t_torch.data.shards import Shards
    from t2t_torch.pipeline.block_plan import BlockLengths, BlockPlan
    from t2t_torch.pipeline.plan import Batching, EpochPlan
    from t2t_torch.pipeline.reader import LengthLimits

    name, changes = str(settings.hparams_set), settings.hparams
    hparams = registry.hparams(name).parse(changes)
    split_length = hparams.split_to_length or problem.chop_length
    if hparams.pack_dataset or hparams.pad_batch or split_length:
        raise errors.UsageError(
            "the table of batches is of whole rows, padded to the longest; what pack_dataset, "
            "pad_batch and split_to_length make of them is shown by  t2t-trainer --dry_run"
        )
    features = problem.features(data_dir)
    train = Shards.open(data_dir, problem.dataset_name, mode.Split.TRAIN)
    batching = Batching.of(problem, hparams)
    plan: EpochPlan | BlockPlan
    if (blocks := BlockLengths.of(train, features, batching)) is not None:
        plan = BlockPlan(blocks, batching.training)
    else:
        limits = LengthLimits.of(features, hparams)
        lengths = limits.lengths(train.lengths, features.all, features.columns)
        plan = EpochPlan(lengths, batching.training)
    return bucket_table(f"{name} and {changes}" if changes else name, plan)


def bucket_table(hparams: str, plan: EpochPlan | BlockPlan) -> BucketTable:
    """Returns the batches of an epoch by bucket.

    Args:
      hparams: description of the hparams.
      plan: plan of whole rows.
    """
    from t2t_torch.reports.column_statistics import BucketTable

    report = plan.report
    return BucketTable(
        hparams=hparams,
        buckets=tuple(plan.buckets),
        rows=report.kept,
        left_out=report.too_long + report.too_short,
        batches=report.batches,
        tokens=report.tokens,
        padding=report.padding_fraction,
    )
