"""What in a census is worth a second look."""

from __future__ import annotations

import math
from collections.abc import Iterator

from t2t_torch.census.census import Census, FeatureCensus, Figures
from t2t_torch.mode import Split
from t2t_torch.report.section import counted, percent

# From here on a finding is told.  They are our own measures, not anybody's rule.
_UNKNOWN_WORDS = 0.02
_BYTE_FALLBACK = 0.05
_ONE_LABEL = 0.9
_PADDING = 0.2
_SHOWN_LABELS = 5


def findings(census: Census) -> list[str]:
    """Returns a sentence for each."""
    found = [*_of_rows(census), *_of_overlaps(census)]
    for feature in census.features:
        for split, figures in feature.splits.items():
            found += _of_texts(feature, split, figures)
            if not all(math.isfinite(one.mean) for one in figures.numbers):
                told = f"{feature.name} of {split} has numbers that are infinite, or none"
                found.append(f"{told}: mend the raw data and run t2t-datagen again.")
        found += _of_labels(feature)
    return found + list(_of_batches(census))


def _of_rows(census: Census) -> Iterator[str]:
    for split, count in census.skipped.items():
        if count:
            verb = "was" if count == 1 else "were"
            yield f"{counted(count, 'bad record')} of {split} {verb} left out by t2t-datagen."
    for split, repeats in census.repeats.items():
        if repeats.rows:
            share = percent(repeats.rows / census.rows[split])
            verb = "repeats" if repeats.rows == 1 else "repeat"
            yield f"{counted(repeats.rows, 'row')} of {split} ({share}) {verb} an earlier row."
        if repeats.contradictions:
            yield (
                f"{counted(repeats.contradictions, 'row')} of {split} have inputs that are there "
                "with other targets too."
            )


def _of_overlaps(census: Census) -> Iterator[str]:
    for overlap in census.overlaps:
        split, other, size = overlap.split, overlap.other, census.rows[overlap.split]
        if overlap.rows:
            verb = "is" if overlap.rows == 1 else "are"
            share = percent(overlap.rows / size)
            yield f"{counted(overlap.rows, 'row')} of {split} ({share}) {verb} also in {other}."
        more = 0 if overlap.inputs is None else overlap.inputs - overlap.rows
        if more:
            verb = "has" if more == 1 else "have"
            yield (
                f"{counted(more, 'row')} of {split} ({percent(more / size)}) {verb} inputs that "
                f"are in {other} with other targets."
            )


def _of_texts(feature: FeatureCensus, split: str, figures: Figures) -> Iterator[str]:
    if figures.lengths and figures.lengths.empty:
        verb = "has" if figures.lengths.empty == 1 else "have"
        empty = counted(figures.lengths.empty, "row")
        yield f"{empty} of {split} {verb} nothing in {feature.name}."
    unknowns = figures.unknowns
    if unknowns is None:
        return
    bound = _BYTE_FALLBACK if unknowns.noun == "byte fallback" else _UNKNOWN_WORDS
    if unknowns.share >= bound:
        yield (
            f"{unknowns.noun.capitalize()} makes up {percent(unknowns.share)} of the tokens of "
            f"{feature.name} in {split}."
            if unknowns.noun == "byte fallback"
            else f"{percent(unknowns.share)} of the tokens of {feature.name} in {split} are "
            f"{unknowns.noun}."
        )


def _of_labels(feature: FeatureCensus) -> Iterator[str]:
    if feature.kind == "Choice":  # the right one may stand at the same place in every row
        return
    train = feature.splits.get(Split.TRAIN.value)
    if train is not None and train.labels is not None:
        labels = train.labels
        if absent := labels.absent:
            shown = ", ".join(absent[:_SHOWN_LABELS])
            more = f" and {len(absent) - _SHOWN_LABELS} more" if len(absent) > _SHOWN_LABELS else ""
            what = counted(len(absent), "label")
            verb = "is" if len(absent) == 1 else "are"
            yield f"{what} of {feature.name} {verb} never in training: {shown}{more}."
        label, count = labels.most_frequent(1)[0]
        if len(labels.labels) > 1 and count > _ONE_LABEL * labels.total:
            share = percent(count / labels.total)
            yield f"{share} of the labels of {feature.name} in training are {label}."
    for split, figures in feature.splits.items():
        if figures.labels and figures.labels.unknown:
            verb = "is" if figures.labels.unknown == 1 else "are"
            unknown = counted(figures.labels.unknown, "label")
            yield f"{unknown} of {feature.name} in {split} {verb} unknown to training."


def _of_batches(census: Census) -> Iterator[str]:
    table = census.buckets
    if table is None:
        return
    if table.left_out:
        verb = "is" if table.left_out == 1 else "are"
        rows = counted(table.left_out, "row")
        yield f"{rows} of training {verb} too long or too short, and left out of every epoch."
    if table.padding > _PADDING:
        yield f"{percent(table.padding)} of the positions of training batches are padding."
