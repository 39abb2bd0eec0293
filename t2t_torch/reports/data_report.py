"""Dataset statistics as the sections of a report."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t2t_torch.data.shards import Shards
from t2t_torch.errors import listed
from t2t_torch.features import Feature
from t2t_torch.features.feature import select_labels
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.reports.column_statistics import LabelCounts, StoredColumn
from t2t_torch.reports.section import (
    Bar,
    Block,
    Cell,
    Note,
    Plot,
    Section,
    Table,
    aligned,
    counted,
    cut,
    label_text,
    number,
    pad,
    percent,
    subject,
    visible,
    width,
)
from t2t_torch.reports.statistics import (
    AlignedWords,
    DatasetStatistics,
    FeatureStats,
    SampleRow,
    SplitFeatureStats,
)
from t2t_torch.text.near_duplicates import spellings

_TOP_LABELS = 20
_FIRST_TWO = frozenset({0, 1})


def sections_of(statistics: DatasetStatistics) -> list[Section]:
    """Returns the sections; those that do not apply to the data are left out."""
    meaning = (
        "Rows from the middle of equal parts of each split.  Below each text are its ids; … shows "
        "that something is cut.  Rows count from 0, in the order of the shards."
    )
    sections = [
        _lengths(statistics),
        _unknowns(statistics),
        _labels(statistics),
        _numbers(statistics),
        Section("samples", "Samples", meaning, statistics.samples),
        _extremes(statistics),
        _duplicates(statistics),
        _buckets(statistics),
    ]
    return [section for section in sections if section.blocks]


def _each(statistics: DatasetStatistics) -> Iterator[tuple[str, FeatureStats, SplitFeatureStats]]:
    """Yields every feature of every split, split by split."""
    for split in statistics.rows:
        for feature in statistics.features:
            if split in feature.splits:
                yield split, feature, feature.splits[split]


def _lengths(statistics: DatasetStatistics) -> Section:
    head = ("split", "rows", "feature", "kind", "tokens", "mean", "median", "95 %", "longest")
    rows: list[list[Cell]] = []
    last = ""
    for split, feature, figures in _each(statistics):
        first = [split, number(statistics.rows[split])] if split != last else ["", ""]
        last = split
        cells = [""] * 5
        if figures.lengths is not None:
            one = figures.lengths
            cells = [f"{one.mean:.1f}", number(one.median), number(one.p95), number(one.longest)]
            cells = [number(one.total), *cells]
        rows.append([*first, feature.name, feature.kind, *cells, number(figures.distinct)])
    blocks: list[Block] = [Table((*head, "different"), rows, frozenset({0, 2, 3}))]
    for feature in statistics.features:
        if feature.histogram is not None and feature.shape[:1] == (None,):
            blocks.append(Plot(f"histogram-{feature.name}", f"Rows by length of {feature.name}"))
    for pair in statistics.pairs:
        first_name, second = pair.names
        blocks.append(
            Plot(f"pair-{second}", f"Rows by the lengths of {first_name} and of {second}")
        )
        correlation = "" if pair.correlation is None else f", correlation {pair.correlation:.2f}"
        split = next(iter(statistics.rows))
        ratio = f"{pair.ratio:.2f} tokens of {second} for one of {first_name}"
        blocks.append(Note(f"In {split}: {ratio}{correlation} of their lengths."))
    meaning = (
        "Lengths are in tokens, the end of a text counted, or in words where a feature has one "
        "entry a word.  95 %: so many rows are as long at most.  Different: rows with another "
        "value than all earlier ones."
    )
    return Section("lengths", "Rows and lengths", meaning, blocks)


def _unknowns(statistics: DatasetStatistics) -> Section:
    head = ("split", "feature", "vocabulary", "in use", "unknown as", "tokens", "share", "rows")
    rows: list[list[Cell]] = []
    for split, feature, figures in _each(statistics):
        one = figures.unknowns
        if one is None:
            continue
        often = ", ".join(f"“{what}” {count:,}" for what, count in one.most_frequent)
        start = statistics.starts.get(split, {}).get(one.first_row, {}).get(feature.name, "")
        rows.append(
            [
                split,
                feature.name,
                number(feature.vocab_size),
                number(one.used),
                one.noun,
                number(one.unknown),
                Bar(percent(one.share), one.share),
                number(one.rows),
                often or (f"row {one.first_row}: {start}" if start else ""),
            ]
        )
    meaning = (
        "What has no id of its own: words that a vocabulary does not hold, or characters without a "
        "piece, which subwords spell as bytes.  In use: different ids that are there.  Share: of "
        "all tokens but ends.  Last: the most frequent of them or, where their spelling is not "
        "stored, the first row that has one."
    )
    table = Table((*head, "most frequent, or where"), rows, frozenset({0, 1, 4, 8}))
    return Section("unknowns", "Vocabulary and what is unknown", meaning, [table] if rows else [])


def _labels(statistics: DatasetStatistics) -> Section:
    blocks: list[Block] = []
    for feature in statistics.features:
        if splits := {split: one.labels for split, one in feature.splits.items() if one.labels}:
            blocks += [_label_table(feature, splits), *_label_notes(feature)]
    meaning = (
        "How often each label is there, the most frequent of the first split first.  Share: of all "
        "labels of the split."
    )
    return Section("labels", "Labels", meaning, blocks)


def _label_table(feature: FeatureStats, splits: Mapping[str, LabelCounts]) -> Table:
    first = next(iter(splits.values()))
    top = sorted(range(len(first.labels)), key=lambda i: -first.counts[i])[:_TOP_LABELS]
    most = max(max(one.counts) / max(1, one.total) for one in splits.values())
    rows: list[list[Cell]] = []
    for i in top:
        row: list[Cell] = [label_text(first.labels[i])]
        for labels in splits.values():
            share = labels.counts[i] / max(1, labels.total)
            row += [number(labels.counts[i]), Bar(percent(share), share / (most or 1))]
        rows.append(row)
    if more := len(first.labels) - len(top):
        row = [f"({more:,} more)"]
        for labels in splits.values():
            count = sum(labels.counts) - sum(labels.counts[i] for i in top)
            row += [number(count), percent(count / max(1, labels.total))]
        rows.append(row)
    head = ["label", *(name for split in splits for name in (split, "share"))]
    title = f"{feature.name}: {counted(len(first.labels), 'label')}"
    return Table(head, rows, frozenset({0}), title)


def _label_notes(feature: FeatureStats) -> Iterator[Note]:
    for split, figures in feature.splits.items():
        labels = figures.labels
        if labels is None:
            continue
        if split == Split.TRAIN.value and labels.absent:
            names = listed(labels.absent, _TOP_LABELS)
            yield Note(f"Never in training ({len(labels.absent):,}): {names}")
        if labels.unknown:
            share = percent(labels.unknown / labels.total)
            yield Note(f"Unknown to training, in {split}: {labels.unknown:,} ({share}).")
        if labels.none:
            yield Note(f"Without any label, in {split}: {counted(labels.none, 'row')}.")


def _numbers(statistics: DatasetStatistics) -> Section:
    rows: list[list[Cell]] = []
    pictures: list[list[Cell]] = []
    spans: list[list[Cell]] = []
    summaries: list[list[Cell]] = []
    for split, feature, figures in _each(statistics):
        for place, one in enumerate(figures.numbers):
            cells = [number(round(x, 6)) for x in (one.mean, one.std, one.low, one.high)]
            if feature.kind == "Image":
                size = " x ".join(map(str, feature.shape[:2]))
                pictures.append([split, feature.name, size, str(place), *cells])
            else:
                rows.append([split, feature.name, str(place), *cells])
        if figures.spans is not None:
            span = figures.spans
            share = span.without / max(1, statistics.rows[split])
            cells = [number(span.without), percent(share), f"{span.mean_words:.1f}"]
            spans.append([split, feature.name, *cells, number(span.most_words)])
        for name, value in figures.summary.items():
            text = value if isinstance(value, str) else number(round(value, 6))
            summaries.append([split, feature.name, name, text])
    first, last = ("split", "feature"), ("mean", "std", "least", "greatest")
    tables = (
        Table((*first, "place", *last), rows, _FIRST_TWO, "Numbers"),
        Table((*first, "pixels", "channel", *last), pictures, _FIRST_TWO, "Pictures, 0 to 255"),
        Table(
            (*first, "no answer", "share", "mean words", "most words"), spans, _FIRST_TWO, "Answers"
        ),
        Table((*first, "statistic", "value"), summaries, frozenset({0, 1, 2}), "Other statistics"),
    )
    blocks: list[Block] = [table for table in tables if table.rows]
    blocks += [
        Plot(f"histogram-{feature.name}", f"Rows by value of {feature.name}")
        for feature in statistics.features
        if feature.histogram is not None and feature.shape[:1] != (None,)
    ]
    meaning = "Numbers are as they were before they were standardized.  std: standard deviation."
    return Section("numbers", "Numbers, pictures, answers", meaning, blocks)


def _extremes(statistics: DatasetStatistics) -> Section:
    blocks: list[Block] = []
    for title, attribute in (("Longest", "longest"), ("Shortest", "shortest")):
        rows: list[list[Cell]] = []
        for split, feature, figures in _each(statistics):
            for one in getattr(figures, attribute):
                text = statistics.starts[split][one.row].get(feature.name, "")
                cells = [split, feature.name, number(one.row), number(one.length)]
                rows.append([*cells, text or "(empty)"])
        if rows:
            head = ("split", "feature", "row", "length", "begins with")
            blocks.append(Table(head, rows, frozenset({0, 1, 4}), title))
    return Section("extremes", "The longest and the shortest", "Lengths are in tokens.", blocks)


def _duplicates(statistics: DatasetStatistics) -> Section:
    rows: list[list[Cell]] = []
    for split, one in statistics.repeats.items():
        counts = (one.rows, one.inputs, one.contradictions, one.most_times)
        cells = ["" if count is None else number(count) for count in counts]
        rows.append([split, number(statistics.rows[split]), *cells])
    head = ("split", "rows", "same row", "same inputs", "other targets", "most times")
    crossed: list[list[Cell]] = []
    for cross in statistics.overlaps:
        size = max(1, statistics.rows[cross.split])
        shares: list[Cell] = [number(cross.rows), percent(cross.rows / size)]
        if cross.inputs is not None:
            shares += [number(cross.inputs), percent(cross.inputs / size)]
        crossed.append([cross.split, cross.other, *shares, "", ""][:6])
    near: list[list[Cell]] = [
        [one.split, one.other, number(one.rows), percent(one.rows / statistics.rows[one.split])]
        for one in statistics.near
        if one.rows
    ]
    across = ("rows of", "also in", "same row", "share", "same inputs", "share")
    among = ("rows of", "nearly in", "rows", "share")
    columns = ("what", "split", "row", "begins with")
    tables = (
        Table(head, rows, frozenset({0}), "Within a split"),
        Table(across, crossed, _FIRST_TWO, "Across splits"),
        Table(among, near, _FIRST_TWO, "Near-duplicates"),
        Table(columns, list(_duplicate_examples(statistics)), frozenset({0, 1, 3}), "Examples"),
    )
    blocks = [table for table in tables if table.rows]
    meaning = (
        "Same row: it equals an earlier one in every feature.  Same inputs: these equal an "
        "earlier row's, whatever the targets.  Other targets: rows whose inputs are there with "
        "other targets too.  Rows are compared by their ids, so all unknown words are alike.  "
        "Near-duplicates: input texts that are equal but for case and punctuation, or that share "
        "80 % of their pairs of words, with an earlier row or a row of the other split."
    )
    return Section("duplicates", "Duplicates", meaning, blocks)


def _duplicate_examples(statistics: DatasetStatistics) -> Iterator[Sequence[Cell]]:
    """Yields two rows of a table for each pair; the second contains only the differences."""
    for what, first, second, pair in statistics.pairs_of_rows:
        first_texts = statistics.starts[first][pair.first]
        second_texts = statistics.starts[second][pair.second]
        yield what, first, number(pair.first), " → ".join(first_texts.values())
        others = [text for name, text in second_texts.items() if text != first_texts[name]]
        yield "", second, number(pair.second), " → ".join(others) or "(the same)"


def _buckets(statistics: DatasetStatistics) -> Section:
    table = statistics.buckets
    if table is None:
        return Section("buckets", "Buckets and padding", "")
    rows: list[list[Cell]] = []
    for one in table.buckets:
        lengths = str(one.low) if one.low == one.high else f"{one.low} - {one.high}"
        if one.high is None:
            lengths = f"{one.low} and more"
        cells = [number(one.batch_size), number(one.rows), number(one.batches), number(one.tokens)]
        rows.append([lengths, *cells, Bar(percent(one.padding), one.padding)])
    total = [number(table.rows), number(table.batches), number(table.tokens)]
    rows.append(["all", "", *total, Bar(percent(table.padding), table.padding)])
    head = ("longest in batch", "batch size", "rows", "batches", "tokens", "padding")
    blocks: list[Block] = [Table(head, rows, frozenset({0}))]
    blocks.append(Plot("buckets", "Rows and padding of each bucket of training batches"))
    if table.left_out:
        blocks.append(Note(f"Left out, too long or too short: {counted(table.left_out, 'row')}."))
    meaning = (
        f"An epoch of training on one process with {table.hparams}.  A batch belongs to the bucket "
        "of its longest row; what a bucket has left over goes up into the next.  Padding is "
        "the share of all positions, of all features, that hold none of the tokens."
    )
    return Section("buckets", "Buckets and padding", meaning, blocks)


# Thresholds of findings; they are our own, not an established rule.
_UNKNOWN_WORDS = 0.02
_BYTE_FALLBACK = 0.05
_ONE_LABEL = 0.9
_PADDING = 0.2
_RARE = 10  # times in training
_MAJORITY = 0.8  # share of one label
_IMBALANCE = 20  # ratio of the most frequent label to the least frequent one that is not rare


def findings(statistics: DatasetStatistics) -> list[str]:
    """Returns a sentence for each finding.

    Findings are unusual statistics that deserve a second look.
    """
    result = [*_of_rows(statistics), *_of_overlaps(statistics)]
    result += _of_near_duplicates(statistics)
    for feature in statistics.features:
        for split, figures in feature.splits.items():
            result += _of_texts(feature, split, figures)
            if not all(math.isfinite(one.mean) for one in figures.numbers):
                problem = f"{feature.name} of {split} has numbers that are infinite, or none"
                result.append(f"{problem}: fix the raw data and run t2t-datagen again.")
        result += _of_labels(feature)
    return result + list(_of_batches(statistics))


def _of_rows(statistics: DatasetStatistics) -> Iterator[str]:
    for split, count in statistics.skipped.items():
        if count:
            yield f"{subject(count, 'bad record', split, 'was')} left out by t2t-datagen."
    for split, repeats in statistics.repeats.items():
        if repeats.rows:
            of = f"{split} ({percent(repeats.rows / statistics.rows[split])})"
            yield f"{subject(repeats.rows, 'row', of, 'repeats')} an earlier row."
        if repeats.contradictions:
            what = subject(repeats.contradictions, "row", split, "has")
            yield f"{what} inputs that are there with other targets too."


def _of_overlaps(statistics: DatasetStatistics) -> Iterator[str]:
    for overlap in statistics.overlaps:
        split, other, size = overlap.split, overlap.other, statistics.rows[overlap.split]
        if overlap.rows:
            of = f"{split} ({percent(overlap.rows / size)})"
            yield f"{subject(overlap.rows, 'row', of, 'is')} also in {other}."
        more = 0 if overlap.inputs is None else overlap.inputs - overlap.rows
        if more:
            what = subject(more, "row", f"{split} ({percent(more / size)})", "has")
            yield f"{what} inputs that are in {other} with other targets."


def _of_near_duplicates(statistics: DatasetStatistics) -> Iterator[str]:
    known = {(one.split, one.other): one.inputs or one.rows for one in statistics.overlaps}
    known |= {(split, split): one.inputs or 0 for split, one in statistics.repeats.items()}
    for near in statistics.near:
        if (more := near.rows - known.get((near.split, near.other), near.rows)) > 0:
            where = f"of {near.other}" if near.split != near.other else "before them"
            of = f"{near.split} ({percent(more / statistics.rows[near.split])}) nearly"
            yield f"{subject(more, 'more row', of, 'repeats')} the inputs of a row {where}."


def _of_texts(feature: FeatureStats, split: str, figures: SplitFeatureStats) -> Iterator[str]:
    if figures.lengths and figures.lengths.empty:
        yield f"{subject(figures.lengths.empty, 'row', split, 'has')} nothing in {feature.name}."
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


def _of_labels(feature: FeatureStats) -> Iterator[str]:
    if feature.kind == "Choice":  # the right one may stand at the same place in every row
        return
    if (train := feature.splits.get(Split.TRAIN.value)) is not None and train.labels is not None:
        yield from label_findings(feature.name, train.labels, is_class=feature.kind == "ClassLabel")
    for split, figures in feature.splits.items():
        if figures.labels and figures.labels.unknown:
            of = f"{feature.name} in {split}"
            yield f"{subject(figures.labels.unknown, 'label', of, 'is')} unknown to training."


def label_findings(name: str, labels: LabelCounts, *, is_class: bool) -> Iterator[str]:
    """Yields a sentence for each unusual fact about the labels of the training data.

    Args:
      name: name of the target.
      labels: counts of its labels in the training data.
      is_class: True if a row has one label.
    """
    if absent := labels.absent:
        what = subject(len(absent), "label", name, "is")
        yield f"{what} never in training: {listed(absent)}."
    ranked = labels.most_frequent()
    label, count = label_text(ranked[0][0]), ranked[0][1]
    if len(ranked) > 1 and count > _ONE_LABEL * labels.total:
        yield f"{percent(count / labels.total)} of the labels of {name} in training are {label}."
    if rare := [f"{label_text(one)} ({number(n)})" for one, n in ranked if 0 < n < _RARE]:
        what = subject(len(rare), "label", name, "occurs")
        yield f"{what} fewer than {_RARE} times in training: {listed(rare)}."
    least = _least(labels)
    if is_class and is_imbalanced(labels):
        other = f", {label_text(least[0])} in {number(least[1])}" if least is not None else ""
        yield (
            f"The labels of {name} are imbalanced: {label} is in {number(count)} rows{other}"
            f" of {number(labels.total)}. Accuracy hides the rare ones: look at f1_macro."
        )
    if twice := [" = ".join(map(repr, names)) for names in spellings(labels.labels)]:
        mend = "t2t-datagen --merge_labels merges them"
        yield f"Labels of {name} differ only by case or blanks: {listed(twice)}; {mend}."


def is_imbalanced(labels: LabelCounts) -> bool:
    """Returns whether accuracy says little: four of five rows, or twenty times as many as of the
    least frequent label that is not rare, have the most frequent label.
    """
    count, least = labels.most_frequent(1)[0][1], _least(labels)
    return count >= _RARE and (
        (least is not None and count > _IMBALANCE * least[1])
        or _MAJORITY * labels.total <= count < labels.total
    )


def _least(labels: LabelCounts) -> tuple[str, float] | None:
    """Returns the least frequent label that is not rare, and its count; not the most frequent."""
    known = [one for one in labels.most_frequent()[1:] if one[1] >= _RARE]
    return known[-1] if known else None


def labels_in_training(
    problem: Problem, data_dir: Path
) -> Iterator[tuple[str, Feature, StoredColumn]]:
    """Yields name, feature and stored labels of each target of labels; of none of a mixture.

    Raises:
      DataError: the data is missing or damaged.
    """
    if problem.mixing_schedule is not None:
        return
    features = problem.features(data_dir)
    classes = select_labels(features.targets)
    for target, feature in features.targets.items():
        is_multilabel = feature.output_spec(target, features).kind == "multilabel"
        if feature.labels and (target in classes or is_multilabel):
            shards = Shards.open(data_dir, problem.dataset_name, Split.TRAIN)
            yield target, feature, StoredColumn(shards.column(features.columns[target]))


def _of_batches(statistics: DatasetStatistics) -> Iterator[str]:
    table = statistics.buckets
    if table is None:
        return
    if table.left_out:
        what = subject(table.left_out, "row", "training", "is")
        yield f"{what} too long or too short, and left out of every epoch."
    if table.padding > _PADDING:
        yield f"{percent(table.padding)} of the positions of training batches are padding."


_COLUMNS = 110
_LEAST_TEXT = 40  # of a table's last column, if it holds words


def plain_text(title: str, sections: Sequence[Section], findings: Sequence[str] | None) -> str:
    """Returns the report as plain text, with the findings, if they were looked for, at its end."""
    title = visible(title)
    lines = [title, "=" * width(title), ""]
    for section in sections:
        lines += [section.title, "-" * width(section.title), *_wrapped(section.meaning), ""]
        for block in section.blocks:
            if block_lines := list(_lines(block)):
                lines += [*block_lines, ""]
    if findings is None:
        return "\n".join(lines).rstrip()
    lines += ["Worth a look", "------------"]
    for finding in findings or ["Nothing odd was found."]:
        lines += textwrap.wrap(
            visible(finding), _COLUMNS, initial_indent="- ", subsequent_indent="  "
        )
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(visible(text), _COLUMNS, break_on_hyphens=False)


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Note):
        yield from _wrapped(block.text)
    elif isinstance(block, SampleRow):
        yield from _sample(block)


def _table(table: Table) -> Iterator[str]:
    rows = [
        [visible(cell.text if isinstance(cell, Bar) else cell) for cell in row]
        for row in (table.head, *table.rows)
    ]
    if len(table.head) - 1 in table.words:
        others = zip(*(row[:-1] for row in rows), strict=True)
        left = _COLUMNS - sum(max(map(width, column)) + 2 for column in others)
        rows = [[*row[:-1], cut(row[-1], max(left, _LEAST_TEXT))] for row in rows]
    if table.title:
        yield f"{visible(table.title)}:"
    yield from aligned(rows, table.words)


def _sample(sample: SampleRow) -> Iterator[str]:
    yield f"{sample.split}, row {sample.row:,}"
    aligned = {name for words in sample.aligned for name in words.names}
    names = max(len(value.name) for value in sample.values)
    margin = " " * (names + 4)
    for words in sample.aligned:
        yield from _columns(words, names)
    for value in sample.values:
        lines = []
        if value.name not in aligned:
            lines += textwrap.wrap(visible(value.text), _COLUMNS - len(margin)) or ["(empty)"]
        if value.ids:
            lines += textwrap.wrap(f"[{value.ids_text}]", _COLUMNS - len(margin))
        for place, line in enumerate(lines):
            yield (f"  {value.name.ljust(names)}  " if place == 0 else margin) + line


def _columns(aligned: AlignedWords, names: int) -> Iterator[str]:
    """Yields lines of words with the others' entries under them, as many to a line as fit."""
    words = [[visible(entry) for entry in word] for word in aligned.words]
    if aligned.left_out:
        words.append(["…"] * len(aligned.names))
    line: list[tuple[list[str], int]] = []
    for word in [*words, None]:
        wide = max(map(width, word)) if word is not None else 0
        if word is None or (line and names + 4 + sum(one + 2 for _, one in line) + wide > _COLUMNS):
            for place, name in enumerate(aligned.names):
                entries = "  ".join(pad(column[place], one) for column, one in line)
                yield f"  {name.ljust(names)}  {entries}".rstrip()
            line = []
        if word is not None:
            line.append((word, wide))
