"""Outputs of decoding: tables, lines and consoles by kind of feature, records, JSON, progress.

What an output does with a kind of feature is a `functools.singledispatch` function of the feature;
a user's kind registers its own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tqdm import tqdm

from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.errors import DataError
from t2t_torch.features import (
    Audio,
    Choice,
    ClassLabel,
    Feature,
    Features,
    Image,
    MultiLabel,
    Real,
    RowWeight,
    SoftLabel,
    Span,
    Tags,
    Text,
    TreeFeature,
    Words,
)
from t2t_torch.features.feature import find_alignments
from t2t_torch.features.word import OfWords
from t2t_torch.files import goes_to_stdout, open_target, path_of_line
from t2t_torch.reporter import current, message, output
from t2t_torch.reports import describe_value
from t2t_torch.runtime.prediction import BEST, Prediction, ranked, value_record, words_record

if TYPE_CHECKING:
    from t2t_torch.decode.journal import Shard
    from t2t_torch.decode.predictor import Predictor


_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def write_table(stream: TextIO, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Writes a header and rows, one per line; returns the number of rows.

    A cell is the result of `cell`.  Its tabs, line breaks, carriage returns and backslashes are
    written as `\\t`, `\\n`, `\\r` and `\\\\`, so a row is always one line; a cell with a quotation
    mark is quoted as in CSV.  pandas reads the table with `read_csv(path, sep="\\t",
    keep_default_na=False)`.

    Args:
      stream: stream to write to.
      header: names of the columns.
      rows: rows with one value per column.
    """
    stream.write(line(header))
    count = 0
    for row in rows:
        stream.write(line(row))
        count += 1
    return count


def line(values: Iterable[Any]) -> str:
    """Returns a row as a line, including its end."""
    return "\t".join(map(_quoted, values)) + "\n"


def cell(value: Any) -> str:
    """Returns a value as text: "" for None, 1 and 0 for booleans, numbers with six digits, lists
    and mappings as JSON.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return format(value, ".6g")
    if isinstance(value, str | int):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _quoted(value: Any) -> str:
    text = cell(value).translate(_ESCAPES)
    return '"' + text.replace('"', '""') + '"' if '"' in text else text


_LABEL_COLUMNS = ("", "_probability", "_probabilities")


@functools.singledispatch
def table_columns(feature: Feature) -> tuple[str, ...]:
    """Returns suffixes of a target's columns in a table, named after parts of its record."""
    return ("", "_probability")


table_columns.register(ClassLabel | MultiLabel | Choice, lambda feature: _LABEL_COLUMNS)
table_columns.register(Tags, lambda feature: (*_LABEL_COLUMNS, "_tagged"))
table_columns.register(SoftLabel | Real, lambda feature: ("",))
table_columns.register(Text, lambda feature: ("", "_score"))


def table_cells(feature: Feature, record: Mapping[str, Any]) -> list[Any]:
    """Returns the cells of `table_columns`.

    Args:
      feature: feature of a target.
      record: JSON record of its prediction, from `target_record`.
    """
    columns = table_columns(feature)
    cells = {**record, "value": table_value(feature, record["value"])}
    if "_tagged" in columns:
        cells["tagged"] = tagged(record["words"], record["value"])
    return [cells.get(column.removeprefix("_") or "value") for column in columns]


@functools.singledispatch
def table_value(feature: Feature, value: Any) -> Any:
    """Returns a value in the format of a table cell."""
    return value


@table_value.register
def _(feature: Words, value: Any) -> Any:
    return " ".join(value) if isinstance(value, list | tuple) else value


@table_value.register
def _(feature: Tags, value: Any) -> Any:
    if isinstance(value, str) or value is None or _has_spaces(feature):
        return value
    return " ".join(tag or "?" for tag in value)


@table_value.register
def _(feature: Real, value: Any) -> Any:
    """Returns numbers with six digits; a single number without a list."""
    if not isinstance(value, list | tuple):
        return value
    numbers = [float(f"{number:.6g}") for number in value]
    return numbers[0] if len(numbers) == 1 else numbers


@functools.singledispatch
def is_in_table(feature: Feature) -> bool:
    """Returns whether the table of an evaluation has a column for the values of an input."""
    return feature.aligned_to is None


@is_in_table.register
def _(feature: Image | Audio | OfWords) -> bool:
    return False


@functools.singledispatch
def has_verdict(feature: Feature) -> bool:
    """Returns whether a prediction is either right or wrong; False for numbers."""
    return True


has_verdict.register(SoftLabel | Real | RowWeight | Audio, lambda feature: False)


@functools.singledispatch
def from_line(feature: Feature, text: str, folder: Path) -> Any:
    """Returns the value that a line of a file stands for: by default itself.

    Args:
      feature: feature of an input.
      text: the line.
      folder: folder of the file, for paths.
    """
    return text


from_line.register(Image, lambda feature, text, folder: path_of_line(text, folder, "picture"))
from_line.register(Audio, lambda feature, text, folder: path_of_line(text, folder, "sound"))


@functools.singledispatch
def value_line(feature: Feature, value: Any) -> str | None:
    """Returns a value as a line of a text file; None to write it as JSON."""
    return " ".join(value.splitlines()) if isinstance(value, str) else None


@value_line.register
def _(feature: ClassLabel | Choice | Span, value: Any) -> str | None:
    return " ".join(str(value).splitlines())


value_line.register(Tags, lambda feature, value: None if _has_spaces(feature) else " ".join(value))
value_line.register(Audio, lambda feature, value: describe_value(feature, value))


@functools.singledispatch
def console_lines(feature: Feature, record: Mapping[str, Any]) -> list[str]:
    """Returns the lines that an interactive session prints for the record of a prediction."""
    scores = record.get("probabilities")
    if isinstance(scores, Mapping):
        return [f"{score:8.4f}  {label}" for label, score in scores.items()]
    value = " ".join(str(record["value"]).splitlines())
    return [f"{record['probability']:8.4f}  {value}" if "probability" in record else value]


@console_lines.register
def _(feature: Tags, record: Mapping[str, Any]) -> list[str]:
    """Returns the words with their tags, and a line for each span that the tags mark."""
    spans = [f"  {span['kind']}: {span['text']}" for span in record.get("spans", [])]
    return [tagged(record["words"], record["value"]), *spans]


@functools.singledispatch
def named_scores(
    feature: Feature, scores: Sequence[float]
) -> Mapping[str, float] | Sequence[float]:
    """Returns the scores of a prediction for users: by label, highest first."""
    return scores


@named_scores.register
def _(
    feature: ClassLabel | MultiLabel | Choice, scores: Sequence[float]
) -> Mapping[str, float] | Sequence[float]:
    return ranked(feature.labels, scores)


@functools.singledispatch
def spell(feature: Feature, value: Any, words: Sequence[str] | str) -> Any:
    """Returns a value for users, with words in place of their positions.

    Args:
      feature: feature of a target.
      value: a decoded value.
      words: words of the feature that it refers to.
    """
    return value


@spell.register
def _(feature: Span, value: Any, words: Sequence[str] | str) -> Any:
    return "" if value is None else " ".join(words[value[0] : value[1] + 1])


@functools.singledispatch
def search_settings(feature: Feature) -> tuple[str, ...]:
    """Returns decoding settings that only the search for this target reads."""
    return ()


search_settings.register(TreeFeature, lambda feature: ("valid_trees", "max_open_constituents"))


def tagged(words: Sequence[str], tags: Sequence[str | None]) -> str:
    """Returns words with their tags, as in "to/O new/B-city york/I-city"."""
    return " ".join(f"{word}/{tag or '?'}" for word, tag in zip(words, tags, strict=True))


def _has_spaces(feature: Tags) -> bool:
    return any(" " in label for label in feature.labels)


def answer_record(
    features: Features, sample: Mapping[str, Any], prediction: Prediction, best: int = BEST
) -> dict[str, Any]:
    """Returns the prediction of one input by target, in JSON form; see `target_record`.

    Args:
      features: features of the problem.
      sample: fields of the input.
      prediction: prediction for the input.
      best: number of labels whose probabilities are written.
    """
    record, words_of = {}, find_alignments(features.targets)
    for name, feature in features.targets.items():
        of = words_of.get(name)
        value, tokenizer = None, ""
        if of is not None:
            value = sample[features.sources[of]]
            tokenizer = features.all[of].input_spec(of, features).tokenizer
        record[name] = target_record(name, feature, prediction, value, best, tokenizer)
    return record


def target_record(
    name: str,
    feature: Feature,
    prediction: Prediction,
    words: str | Sequence[str] | None = None,
    best: int = BEST,
    tokenizer: str = "",
) -> dict[str, Any]:
    """Returns the prediction of a target in JSON form; see `value_record`.

    Tags have their `words`.  If they mark spans (for example B-city), they also have `spans`:
    `kind`, `first` and `last` word, counted from 0, and `text`.  For a text that the problem's
    tokenizer splits, there are character offsets; see `words_record`.

    Args:
      name: name of the target.
      feature: feature of the target.
      prediction: prediction for an input.
      words: the tagged words, or the text; None unless the target has an entry for each word.
      best: number of labels whose probabilities are written.
      tokenizer: see `words_record`.
    """
    record = value_record(prediction, name, best)
    if words is not None:
        record |= words_record(record["value"], words, feature.labels, tokenizer)
    return record


# Characters that many readers treat as the end of a line.
_LINE_BREAKS = str.maketrans({"\n": " ", "\r": " "})


def decodes_name(base: Path, predictor: Predictor, hparams: DecodeHParams, shard: Shard) -> Path:
    """Returns the name `<base>.<model>.<hparams_set>.<problem>.beam4.alpha0.6.decodes`.

    The name is tensor2tensor's.  The number of a part follows the base; see `Shard.name`.
    """
    base = shard.name(base, hparams)
    how = f"beam{hparams.beam_size}.alpha{hparams.alpha}.decodes"
    if hparams.draws:
        how = f"random{hparams.random_seed}.temp{hparams.sampling_temp}.decodes"
    if how in base.name:
        return base
    what = [base.name]
    if predictor.run is not None:
        what += [predictor.run.task.model, predictor.run.task.hparams_set]
    return base.with_name(".".join([*what, predictor.problem.full_name, how]))


def one_line(prediction: Prediction, hparams: DecodeHParams) -> str:
    """Returns the prediction for an input on one line, in tensor2tensor's format.

    Line breaks and delimiters in an output become spaces; with `return_beams`, which separates
    hypotheses by tabs, tabs do, too.
    """
    cells = []
    for hypothesis in prediction.hypotheses:
        text = hypothesis.text
        if hparams.identity_output:
            text = " ".join(map(str, hypothesis.ids))
        text = without_breaks(text, hparams)
        cells.append(text.replace("\t", " ") if hparams.writes_several else text)
        if hparams.write_beam_scores:
            cells.append(f"{hypothesis.score:.2f}")
    return "\t".join(cells)


def text_of(value: Any, field: str) -> Any:
    """Returns the text of an input; for a list of words, the words joined by spaces.

    Args:
      value: the text, or a mapping that contains it.
      field: name of the text in the mapping.
    """
    text = value.get(field, value) if isinstance(value, Mapping) else value
    return " ".join(map(str, text)) if isinstance(text, list) else text


def write_outputs(path: Path, outputs: Sequence[str], hparams: DecodeHParams) -> None:
    """Writes outputs, each followed by the delimiter, atomically."""
    with open_target(path) as stream:
        stream.writelines(output + hparams.separator for output in outputs)


def report_file(text: str, path: Path) -> None:
    """Reports a file of outputs; by a message if the file is the standard output."""
    (message if goes_to_stdout(path) else output)(text)


def without_breaks(text: str, hparams: DecodeHParams) -> str:
    """Returns a text on one line: line breaks and delimiters become spaces."""
    return text.translate(_LINE_BREAKS).replace(hparams.separator, " ")


def holds_json(path: Path) -> bool:
    """Returns True for the names of JSON lines files: .jsonl, also compressed, .jsonl.gz."""
    return ".jsonl" in path.suffixes[-2:]


def read_json(line: str, place: str) -> Any:
    """Returns the JSON value of a line of such a file; an empty text for an empty line.

    Args:
      line: the line without its end.
      place: location of the line, for errors.

    Raises:
      DataError: the line is not valid JSON, or contains an unpaired surrogate.
    """
    if not line.strip():
        return ""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place} is no JSON, at character {error.colno}: {line[:80]}") from None
    except (ValueError, RecursionError):  # too many digits or brackets
        raise DataError(f"{place} is no JSON that can be read: {line[:80]}") from None
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{place} has half a character, an escape from \\ud800 to \\udfff without its other "
            f"half: {line[:80]}"
        ) from None
    return value


_SECONDS = 30.0
"""Interval between progress lines without a terminal."""


@contextlib.contextmanager
def decode_progress(
    total: int,
    *,
    before: int = 0,
    journal: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[int], None]]:
    """Progress bar on a terminal, else a line every 30 seconds: completed inputs, rate, time left.

    On an exception (including a signal) it reports what happens to the completed work: outputs are
    written when all are complete, in the order of the inputs, which differs from the order of
    decoding; until then a journal keeps them.

    Args:
      total: number of inputs.
      before: number of inputs that were decoded before.
      journal: the journal file; None if there is none.
      clock: returns seconds.

    Yields:
      A function that advances the display by a number of inputs.
    """
    if before:
        where = f" in {journal}" if journal is not None else ""
        message(f"{before:,} of {total:,} inputs were there{where}")
    done, started = before, clock()
    reported = started
    bar = current().bar(total=total, initial=before, unit=" inputs", desc="decode")

    def advance(count: int) -> None:
        nonlocal done, reported
        done += count
        now = clock()
        if bar is not None:
            bar.update(count)
        elif now - reported >= _SECONDS and done < total:
            reported, rate = now, (done - before) / (now - started)
            left = tqdm.format_interval((total - done) / rate)
            message(f"decoded {done:,} of {total:,} inputs  {rate:,.1f}/s  {left} left")

    try:
        with contextlib.nullcontext() if bar is None else contextlib.closing(bar):
            yield advance
    except BaseException:
        fate = "nothing of it is written"
        if journal is not None and done:
            fate = f"{journal} keeps them, and the same command resumes there"
        message(f"decoding ended after {done:,} of {total:,} inputs: {fate}")
        raise
