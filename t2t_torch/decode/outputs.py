"""Outputs of decoding: file names, lines, JSON, tables, records, progress, shards of inputs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, TextIO, TypeVar

from tqdm import tqdm

import t2t_torch
from t2t_torch.decode.hparam import OF_SHARDS, OF_WRITING, DecodeHParams
from t2t_torch.decode.journal import (
    Journal,
    digest_of_hparams,
    digest_of_weights,
    journal_of,
    journal_path,
)
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import DataError, UsageError
from t2t_torch.features import Feature, Features
from t2t_torch.files import goes_to_stdout, is_replaced, open_target
from t2t_torch.reporter import current, message, output
from t2t_torch.runtime.prediction import (
    BEST,
    Prediction,
    prediction_record,
    span_records,
    value_record,
    words_record,
)

# Tables of rows as text: tab-separated, one row per line.
#
# A cell is the result of `cell`.  Its tabs, line breaks, carriage returns and backslashes are
# written as `\t`, `\n`, `\r` and `\\`, so a row is always one line; a cell with a quotation mark is
# quoted as in CSV.  pandas reads the table with `read_csv(path, sep="\t",
# keep_default_na=False)`.


_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def write_table(stream: TextIO, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Writes a header and rows, one per line; returns the number of rows.

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


# Predictions as records for JSON and tables.


__all__ = [
    "BEST",
    "answer_record",
    "prediction_record",
    "span_records",
    "target_record",
]


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
    record = {}
    for name, feature in features.targets.items():
        of = feature.aligned_to
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
      words: the tagged words, or the text.
      best: number of labels whose probabilities are written.
      tokenizer: see `words_record`.
    """
    record = value_record(prediction, name, best)
    if feature.aligned_to is not None and words is not None:
        record |= words_record(record["value"], words, feature.labels, tokenizer)
    return record


# Sharded decoding by several processes, and joining of the shards.
#
# tensor2tensor's `shards` (utils/decoding.py): part n of the outputs is a file whose name ends in
# its number.  Each part has a journal (`journal.py`), which is kept until all parts are joined.


T = TypeVar("T")


class Shard(NamedTuple):
    """A part of the inputs.

    Attributes:
      number: number of the part, from 0.
      parts: number of parts.
    """

    number: int
    parts: int

    def rows(self, total: int) -> slice:
        """Returns the inputs of this part: parts are contiguous and of similar size."""
        first, after = (total * number // self.parts for number in (self.number, self.number + 1))
        return slice(first, after)

    def name(self, path: Path, hparams: DecodeHParams) -> Path:
        """Returns the file name of this part, as in tensor2tensor.

        A dot separates the number from a name that ends in a digit.
        """
        end = f".{self.number:03d}" if path.name[-1:].isdigit() else f"{self.number:03d}"
        if hparams.shard_google_format:
            end = f"-{self.number:05d}-of-{self.parts:05d}"
        return path.with_name(path.name + end)


def shard_of(hparams: DecodeHParams) -> Shard | None:
    """Returns the requested part; None if all inputs are requested."""
    if hparams.shards == 1 or hparams.shard_id < 0:
        return None
    return Shard(hparams.shard_id + hparams.shards_start_offset, hparams.shards)


def rows_of_shard(hparams: DecodeHParams, total: int) -> slice:
    """Returns the requested rows among `total` inputs."""
    shard = shard_of(hparams)
    return slice(0, total) if shard is None else shard.rows(total)


def name_of_shard(path: Path, hparams: DecodeHParams, shard: Shard | None) -> Path:
    """Returns the file name of a part; the file's own name for no part."""
    return path if shard is None else shard.name(path, hparams)


def part_of(path: Path, hparams: DecodeHParams) -> Path:
    """Returns the file of an input part that was split before, as in tensor2tensor; else the path.

    For example, in.txt002 is read for shard_id=2 if in.txt does not exist.
    """
    part = name_of_shard(path, hparams, shard_of(hparams))
    return part if not path.exists() and part.exists() else path


@dataclass(frozen=True)
class Decoding(Generic[T]):
    """Decoding of inputs to a file, in parts or at once.

    Attributes:
      total: number of inputs.
      hparams: decoding settings, including the part.
      name_of: returns the output file of a part, or of all without a part.
      made_of: everything except the inputs that the outputs depend on; see `made_of` below.
      digest_of: returns a checksum of the given inputs.
      find: decodes the given inputs, except those in the journal.
      write: writes the predictions of the given inputs.
    """

    total: int
    hparams: DecodeHParams
    name_of: Callable[[Shard | None], Path]
    made_of: Callable[[], Mapping[str, Any]]
    digest_of: Callable[[slice], str]
    find: Callable[[slice, Journal], list[T]]
    write: Callable[[Path, slice, list[T]], None]

    def run(self) -> list[T]:
        """Decodes and writes the requested inputs; returns their results.

        For all parts, decodes those that are missing and writes the joined outputs.

        Raises:
          DecodeError: the journal cannot be written.
          UsageError: another process decodes to the same file; or an existing part was decoded with
            other settings, or has no file to be written to.
        """
        target, shard = self.name_of(None), shard_of(self.hparams)
        is_file = is_replaced(target)
        if self.hparams.shards > 1 and not is_file:
            raise UsageError(
                f"{target} is no regular file, and shards={self.hparams.shards} decodes to several "
                "files. Name one with --decode_to_file, or leave the shards out."
            )
        if shard is None and self.hparams.shards > 1:
            return self._join()
        rows = slice(0, self.total) if shard is None else shard.rows(self.total)
        file, keep = self.name_of(shard), shard is not None
        made_of = self._made_of(rows, shard, self.made_of()) if is_file else {}
        with journal_of(file if is_file else None, made_of, keep=keep) as journal:
            predictions = self.find(rows, journal)
            self.write(file, rows, predictions)
        return predictions

    def _join(self) -> list[T]:
        """Decodes the missing parts, and writes the joined outputs."""
        shards = [Shard(number, self.hparams.shards) for number in range(self.hparams.shards)]
        files = [self.name_of(shard) for shard in shards]
        each, common = [shard.rows(self.total) for shard in shards], self.made_of()
        parts = [self._made_of(*pair, common) for pair in zip(each, shards, strict=True)]
        for file, made_of in zip(files, parts, strict=True):
            if journal_path(file).exists():  # Check this before decoding.
                with journal_of(file, made_of, keep=True, same=True):
                    pass
        predictions = []
        for file, made_of, rows in zip(files, parts, each, strict=True):
            with journal_of(file, made_of, keep=True, same=True) as journal:
                predictions += self.find(rows, journal)
        self.write(self.name_of(None), slice(0, self.total), predictions)
        for file in files:
            journal_path(file).unlink(missing_ok=True)
        return predictions

    def _made_of(
        self, rows: slice, shard: Shard | None, common: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        part = {} if shard is None else {"shard": f"{shard.number} of {shard.parts}"}
        return {"inputs": self.digest_of(rows), **common, **part}


def made_of(predictor: Any, hparams: DecodeHParams) -> dict[str, Any]:
    """Returns everything except the inputs that a predictor's outputs depend on, by name.

    Args:
      predictor: predictor of texts or labels.
      hparams: decoding settings.
    """
    left_out = {*OF_WRITING, *OF_SHARDS}
    values = {name: getattr(hparams, name) for name in DecodeHParams.model_fields}
    return {
        "weights": digest_of_weights(predictor.model),
        "problem": predictor.problem.full_name,
        "hparams": digest_of_hparams(predictor.model),
        "step": predictor.run.step if predictor.run is not None else None,
        "t2t_torch": t2t_torch.__version__,
        **{name: value for name, value in values.items() if name not in left_out},
    }


# Characters that many readers treat as the end of a line.
_LINE_BREAKS = str.maketrans({"\n": " ", "\r": " "})


def decodes_name(
    base: Path, predictor: Predictor, hparams: DecodeHParams, shard: Shard | None = None
) -> Path:
    """Returns the name `<base>.<model>.<hparams_set>.<problem>.beam4.alpha0.6.decodes`.

    The name is tensor2tensor's.  The number of a part follows the base; see `Shard.name`.
    """
    base = name_of_shard(base, hparams, shard)
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


def write_predictions(
    path: Path,
    predictor: Predictor,
    inputs: Sequence[Any],
    predictions: Sequence[Prediction],
    hparams: DecodeHParams,
) -> None:
    """Writes predictions in the format `output_format`, atomically.

    Args:
      path: output file.
      predictor: the predictor that produced them.
      inputs: texts, or mappings of a text and other fields; JSON contains them all, a table only
        the text.
      predictions: one per input.
      hparams: output settings.
    """
    if hparams.output_format == "text":
        write_outputs(path, [one_line(one, hparams) for one in predictions], hparams)
        return
    target = next(iter(predictor.features.targets))
    ids, alignments = hparams.identity_output, hparams.write_alignments
    records = [prediction_record(one, ids=ids, alignments=alignments) for one in predictions]
    with open_target(path) as stream:
        if hparams.output_format == "jsonl":
            for text, record in zip(inputs, records, strict=True):
                given = text if isinstance(text, dict) else {predictor.field: text}
                whole = {"input": given, "output": {target: record}}
                stream.write(json.dumps(whole, ensure_ascii=False) + "\n")
            return
        more = {"ids": ids, "alignment": alignments}
        fields = ("value", "score", *(name for name, is_written in more.items() if is_written))
        names = ["" if name == "value" else f"_{name}" for name in fields]
        places = max((len(one.hypotheses) for one in predictions), default=1)
        after = ["", *(f"_{place}" for place in range(2, places + 1))]
        input_ = "prompt" if predictor.field == target else predictor.field
        header = [input_, *(f"{target}{name}{place}" for place in after for name in names)]
        write_table(
            stream,
            header,
            (
                [
                    text_of(text, predictor.field),
                    *_cells(record.get("hypotheses", [record]), fields, places),
                ]
                for text, record in zip(inputs, records, strict=True)
            ),
        )


def text_of(value: Any, field: str) -> Any:
    """Returns the text of an input; for a list of words, the words joined by spaces.

    Args:
      value: the text, or a mapping that contains it.
      field: name of the text in the mapping.
    """
    text = value.get(field, value) if isinstance(value, Mapping) else value
    return " ".join(map(str, text)) if isinstance(text, list) else text


def _cells(hypotheses: Sequence[Mapping[str, Any]], names: Sequence[str], places: int) -> list[Any]:
    """Returns the cells of hypotheses, empty if there are fewer than `places`.

    An alignment is written in the format of word aligners, "0-0 1-2".
    """
    cells = [
        " ".join(f"{i}-{j}" for i, j in hypothesis[name])
        if name == "alignment"
        else hypothesis[name]
        for hypothesis in hypotheses
        for name in names
    ]
    return cells + [None] * (places * len(names) - len(cells))


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


# JSON lines.


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


# Progress display for the decoding of many inputs.


_SECONDS = 30.0
"""Interval between progress lines without a terminal."""


class DecodeProgress:
    """Progress bar on a terminal, else a line every 30 seconds: completed inputs, rate, time left.

    A context manager.  On an exception (including a signal) it reports what happens to the
    completed
    work: outputs are written when all are complete, in the order of the inputs, which differs from
      the
    order of decoding; until then a journal keeps them.

    Args:
      total: number of inputs.
      before: number of inputs that were decoded before.
      journal: the journal file; None if there is none.
      clock: returns seconds.
    """

    def __init__(
        self,
        total: int,
        *,
        before: int = 0,
        journal: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._before = before
        self._journal = journal
        self._clock = clock
        self._done = before
        self._started = self._reported = clock()
        self._bar: tqdm[object] | None = None

    def __enter__(self) -> DecodeProgress:
        if self._before:
            where = f" in {self._journal}" if self._journal is not None else ""
            message(f"{self._before:,} of {self._total:,} inputs were there{where}")
        self._bar = current().bar(
            total=self._total, initial=self._before, unit=" inputs", desc="decode"
        )
        return self

    def advance(self, count: int = 1) -> None:
        """Advances the display."""
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
            return
        now = self._clock()
        if now - self._reported < _SECONDS or self._done == self._total:
            return
        self._reported = now
        rate = (self._done - self._before) / (now - self._started)
        left = tqdm.format_interval((self._total - self._done) / rate)
        message(f"decoded {self._done:,} of {self._total:,} inputs  {rate:,.1f}/s  {left} left")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is not None:
            done = f"{self._done:,} of {self._total:,} inputs"
            resume_hint = "nothing of it is written"
            if self._journal is not None and self._done:
                resume_hint = f"{self._journal} keeps them, and the same command resumes there"
            message(f"decoding ended after {done}: {resume_hint}")
