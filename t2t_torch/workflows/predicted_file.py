"""The rows of a file with the predictions of a run or an artifact; files of them.

An artifact is read without torch.  Rows are read, predicted and written in blocks.
"""

from __future__ import annotations

import codecs
import csv
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

from t2t_torch.errors import DataError, DecodeError, UsageError
from t2t_torch.files import open_target, without_packing
from t2t_torch.reporter import bar

if TYPE_CHECKING:
    from t2t_torch.features import InputSpec, OutputSpec
    from t2t_torch.readers.text_file import Place, Record
    from t2t_torch.runtime.prediction import InputColumns, Prediction

CONLL = (".conll", ".bio", ".iob", ".conllu")
"""Endings of files that are written back with a tag for each word."""

TABLES = (".csv", ".tsv", ".tab", ".jsonl")
"""Endings of other files that are written."""


class PredictedRow(NamedTuple):
    """A row of a file with its prediction.

    Attributes:
      place: where it starts.
      values: its own columns; None if the reader refused it.
      fault: the reason why it has no prediction; "" if it has one.
      sample: the input of the model, by field.
      prediction: the prediction; None if there is none.
    """

    place: Place
    values: Mapping[str, Any] | None
    fault: str = ""
    sample: Mapping[str, Any] = {}
    prediction: Prediction | None = None


_BLOCK = 1024  # rows that are predicted together
_MOST_LISTED = 10  # faults


class PredictedFile:
    """The rows of a file with the predictions of a model.

    Args:
      model: a predictor or an artifact.
      source: the file.

    Attributes:
      targets: targets of the model.
      count: number of rows read so far.
      faults: the first rows without predictions, with the reasons.
      num_faults: number of such rows.
    """

    def __init__(self, model: Any, source: Path) -> None:
        from t2t_torch.readers.detection import fitting_format
        from t2t_torch.readers.formats import FORMATS

        self._model, self._source = model, source
        self._maker: Any = None
        find_format: Callable[..., Any] = functools.partial(fitting_format, declared=None)
        self.targets: Sequence[OutputSpec]
        if hasattr(model, "signature"):
            fields, self.targets = model.signature.fields, model.signature.targets
            names = model.signature.column_names
        elif hasattr(model, "columns"):  # of a run, and with pydantic
            from t2t_torch.declaration.problem import DeclaredProblem, format_like

            problem, features = model.problem, model.features
            fields = model.specs.values() if hasattr(model, "specs") else (model.spec,)
            self.targets = [one.output_spec(n, features) for n, one in features.targets.items()]
            names = problem.column_names
            if isinstance(problem, DeclaredProblem):
                find_format = functools.partial(format_like, problem)
                is_changed = problem.was_reversed or problem.was_copy
                self._maker = None if is_changed else problem.sample_maker
        else:
            raise UsageError("a trial has no columns: t2t-decoder decodes its arrays.")
        self._columns: InputColumns = model.columns
        self._fields: Mapping[str, InputSpec] = {field.name: field for field in fields}
        self._format, self._options = find_format(source, fits=self._fits)
        if "blank_rows" in FORMATS[self._format].options:
            self._options["blank_rows"] = True
        self._names = {
            one.name: f"predicted_{names.get(one.name, one.name)}" for one in self.targets
        }
        self.count = self.num_faults = self._num_read = 0
        self.faults: list[str] = []

    def rows(self) -> Iterator[PredictedRow]:
        """Yields the rows in their order.

        Raises:
          DataError: at the end: there are rows, and none can be read.
        """
        read = self._read()
        with bar(unit=" rows", desc="predicting") as progress:
            while block := list(itertools.islice(read, _BLOCK)):
                good = [row for row in block if not row.fault]
                answers = iter(self._answers([row.sample for row in good]))
                for row in block:
                    answer = row.fault or next(answers)
                    if isinstance(answer, str):
                        row = row._replace(fault=answer)
                    else:
                        row = row._replace(prediction=answer)
                    self.count += 1
                    self._num_read += row.values is not None
                    if row.fault:
                        self.num_faults += 1
                        if len(self.faults) < _MOST_LISTED:
                            self.faults.append(f"{row.place}: {row.fault}")
                    yield row
                progress.update(len(block))
        if self.count and not self._num_read:
            raise DataError(f"no row can be read, and nothing is written: {self.faults[0]}")

    def _read(self) -> Iterator[PredictedRow]:
        """Yields the rows with their inputs."""
        from t2t_torch.readers.formats import open_records
        from t2t_torch.readers.text_file import BadRecords

        refused: list[PredictedRow] = []

        class InPlace(BadRecords):
            def report(self, place: Place, why: str) -> None:
                super().report(place, why)
                refused.append(PredictedRow(place, None, why))

        bad, is_first = InPlace("skip"), True
        for record in open_records(
            self._source, format=self._format, bad=bad, options=self._options
        ):
            yield from refused
            refused.clear()
            if is_first:
                self._check_columns(record.values)
                is_first = False
            try:
                sample, why = self._sample(record), ""
            except (DataError, DecodeError) as error:
                sample, why = {}, str(error)
            yield PredictedRow(record.place, _own(record.values), why, sample)
        yield from refused

    def _check_columns(self, values: Mapping[str, Any]) -> None:
        """Checks the columns of the first row, and whether they are those of the declaration.

        Raises:
          DecodeError: the file lacks a column of an input.
          UsageError: it has a column of the name of a prediction.
        """
        if taken := {*self._names.values()} & values.keys():
            raise UsageError(f"{self._source} has a column {min(taken)!r} already. Rename it.")
        if not self._is_declared(values):
            self._maker = None
            if self._columns.lacks(self._named(self._format, values)):
                raise DecodeError(f"{self._source}: {self._columns.expected(values)}")

    def _is_declared(self, values: Mapping[str, Any]) -> bool:
        """Returns whether a row has the columns that the declaration gives the inputs."""
        columns = self._maker.columns if self._maker is not None else {}
        there = {*values, *map(str, range(-len(values), 0))}
        declared = [columns[name] for name in self._fields if name in columns]
        return bool(columns) and not any({*one.column} - there for one in declared)

    def _fits(self, format: str, values: Mapping[str, Any]) -> bool:
        """Returns whether a row of a format has the columns of the inputs."""
        return self._is_declared(values) or not self._columns.lacks(self._named(format, values))

    def _named(self, format: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns a row; a line of plain text with the name of the only field."""
        is_line = format == "lines" and len(self._fields) == 1
        return {next(iter(self._fields)): values["text"]} if is_line else values

    def _sample(self, record: Record) -> Mapping[str, Any]:
        """Returns the input of a row, by field."""
        if self._maker is not None:
            made: dict[str, Any] = self._maker.inputs(record.values, self._fields)
            self._maker.find_sounds(made, record)
            return made
        row = self._columns.sample(
            self._named(self._format, record.values), "this row", is_row=True
        )
        sample = {name: row[name] for name in self._fields}
        if not any(str(one).strip() for one in sample.values() if one not in (None, [])):
            raise DataError("an empty text.")
        return sample

    def _answers(self, samples: Sequence[Mapping[str, Any]]) -> list[Prediction | str]:
        """Returns the prediction of each input, or the reason why there is none."""
        if not samples:
            return []
        try:
            return list(self._model.predict(samples))
        except (DataError, DecodeError) as error:
            if len(samples) == 1:
                return [str(getattr(error, "why", error))]
        half = len(samples) // 2  # the others are predicted together
        return [*self._answers(samples[:half]), *self._answers(samples[half:])]

    def write(self, target: Path) -> None:
        """Writes the rows in the format of a name, atomically."""
        if target.suffix.lower() in CONLL:
            self._write_conll(target)
        else:
            self.write_table(target, self.rows())

    def write_table(self, target: Path, rows: Iterator[PredictedRow]) -> None:
        """Writes rows as CSV, TSV or JSON lines, atomically.

        A row that its reader refused has its text in the first column.  A file without rows keeps
        its header.

        Raises:
          DataError: a row has a column that none of the first rows has, and the output is a table;
            or no row can be read.
        """
        from t2t_torch.readers.formats import header_of

        first = list(itertools.islice(rows, _BLOCK))
        own = list(dict.fromkeys(name for row in first for name in row.values or ()))
        if not own:
            own = [*header_of(self._source, self._format, self._options)]
            if own and not self.count:
                self._check_columns(dict.fromkeys(own))
            own = own or ["text"] * bool(first)
        added = dict.fromkeys(name for row in first for name in self._cells(row))
        added |= dict.fromkeys(self._names.values())  # where no row has a prediction
        texts, last, text = self._texts(), 0, ""
        with open_target(target) as stream:
            is_json = target.suffix.lower() == ".jsonl"
            # Bytes that are no UTF-8 are written as they were; JSON cannot hold them.
            errors = "replace" if is_json else "surrogateescape"
            cast("Any", stream).reconfigure(errors=errors)
            write = None if is_json else self._table_writer(stream, target, [*own, *added])
            for row in itertools.chain(first, rows):
                values = row.values
                if values is None:
                    while last < row.place.line and row.place.unit == "line":
                        last, text = next(texts, (row.place.line, ""))
                    values = {own[0]: text}
                cells = self._cells(row)
                merged = {**values, **{name: cells.get(name) for name in added}}
                if write is None:
                    stream.write(json.dumps(merged, ensure_ascii=False, default=str) + "\n")
                elif others := values.keys() - set(own):
                    raise DataError(
                        f"{row.place}: the first rows have no column {min(others)!r}, and a table "
                        "has the same columns in each row. Give --output=FILE.jsonl."
                    )
                else:
                    write([_text(merged.get(name), name in added) for name in (*own, *added)])

    def _table_writer(
        self, stream: TextIO, target: Path, header: Sequence[str]
    ) -> Callable[[list[str]], object]:
        """Writes the header of a table; returns the function that writes a row."""
        ending = target.suffix.lower()
        is_own = ending == Path(without_packing(self._source.name)).suffix.lower()
        options = self._options if is_own else {}
        is_csv = ending == ".csv"
        if is_own and self._format in ("csv", "tsv"):
            is_csv = self._format == "csv"
        delimiter = options.get("delimiter", "," if is_csv else "\t")
        quotes = options.get("quoting", is_csv)  # else its readers take them as they are
        how: dict[str, Any] = {} if quotes else {"quoting": csv.QUOTE_NONE, "quotechar": None}
        writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n", **how)
        if options.get("header", True) and not options.get("columns"):
            writer.writerow(header)
        if quotes:
            return writer.writerow
        return lambda cells: writer.writerow(
            [" ".join(cell.replace(delimiter, " ").splitlines()) for cell in cells]
        )

    def _cells(self, row: PredictedRow) -> dict[str, Any]:
        """Returns the prediction of a row by column; empty if it has none."""
        from t2t_torch.runtime.prediction import value_record, words_record

        cells: dict[str, Any] = {}
        if row.prediction is None:
            return cells
        for target in self.targets:
            name, record = self._names[target.name], value_record(row.prediction, target.name)
            value = record["value"]
            if row.prediction.hypotheses:
                record["score"] = row.prediction.hypotheses[0].score
            elif target.kind == "tags":
                tokenizer = self._fields[target.of].tokenizer
                record |= words_record(value, row.sample[target.of], target.labels, tokenizer)
            is_number = target.kind == "numbers" and len(value) == 1
            cells[name] = value[0] if is_number else value
            parts = ("probability", "score", "spans")
            cells |= {f"{name}_{part}": record[part] for part in parts if part in record}
        return cells

    def _write_conll(self, target: Path) -> None:
        """Writes the lines of the file with the predicted tag at the end of each word's line.

        Comments, and the lines of sentences without a prediction, are as they were; so are the
        encoding and the ends of lines.
        """
        from t2t_torch.readers.text_file import known_encoding

        tagged = [one.name for one in self.targets if one.kind == "tags"]
        if not tagged or self._format not in ("conll", "conllu"):
            raise UsageError(
                f"{target} is written for a model of tags and a file in CoNLL form. Give "
                "--output=FILE.csv or .jsonl."
            )
        encoding = known_encoding(self._source, self._options.get("encoding", ""))
        encoder = codecs.getincrementalencoder(encoding or "utf-8")("surrogateescape")
        rows = ((row, row.prediction) for row in self.rows() if row.prediction is not None)
        with open_target(target) as stream:
            row, prediction = next(rows, (None, None))
            for _, group in itertools.groupby(self._lines(), lambda pair: bool(pair[1].strip())):
                numbers, block = zip(*group, strict=True)
                lines = [line.rstrip("\r\n") for line in block]
                ends = [line[len(kept) :] for line, kept in zip(block, lines, strict=True)]
                if row is not None and prediction is not None and row.place.line in numbers:
                    lines = list(_tagged(lines, prediction.values[tagged[0]]))
                    row, prediction = next(rows, (None, None))
                try:
                    written = [encoder.encode(a + b) for a, b in zip(lines, ends, strict=True)]
                except UnicodeEncodeError as error:
                    raise DataError(
                        f"{target}: a tag is not in the file's encoding: {error}."
                    ) from None
                cast("Any", stream).buffer.writelines(written)

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yields the numbers and lines, with ends; bytes that are no UTF-8 are lone surrogates."""
        from t2t_torch.readers.text_file import raw_lines

        lines = raw_lines(self._source, self._options.get("encoding", ""))
        return ((n, line.decode(errors="surrogateescape")) for n, line in enumerate(lines, 1))

    def _texts(self) -> Iterator[tuple[int, str]]:
        """Yields the last line's number, and the text, of each sentence in CoNLL form, or line."""
        lines = self._lines() if self._source.is_file() else iter(())
        stripped = ((number, line.rstrip("\r\n")) for number, line in lines)
        if self._format not in ("conll", "conllu"):
            yield from stripped
        for _, group in itertools.groupby(stripped, lambda pair: bool(pair[1].strip())):
            numbers, block = zip(*group, strict=True)
            yield numbers[-1], "\n".join(block)


def _tagged(block: Sequence[str], tags: Sequence[str | None]) -> Iterator[str]:
    """Yields the lines of a sentence with a tag at the end of each word's line.

    Where there are more lines than tags, comments and starts of documents have none, and ranges and
    empty nodes of CoNLL-U have "_".
    """
    from t2t_torch.readers.conll import DOCUMENT_START

    left, all_words = iter(tags), len(block) == len(tags)
    for line in block:
        if not all_words and line.startswith(("#", DOCUMENT_START)):
            yield line
            continue
        between = "\t" if "\t" in line else " "
        is_word = all_words or not re.match(r"[0-9]+[-.][0-9]+\t", line)
        yield f"{line}{between}{next(left, None) or '_' if is_word else '_'}"


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a row without values of nested objects, which readers add as "a.b"."""
    return {
        name: values[name]
        for name in values
        if "." not in name or not isinstance(values.get(name.split(".")[0]), dict)
    }


def _text(value: Any, is_prediction: bool) -> str:
    """Returns a value as the text of a cell; predicted names without blanks are joined."""
    from t2t_torch.runtime.prediction import text_of_cell

    if isinstance(value, list | dict):
        names = [one or "?" for one in value if one is None or isinstance(one, str)]
        if is_prediction and len(names) == len(value) and not any(" " in one for one in names):
            return " ".join(names)
        return json.dumps(value, ensure_ascii=False, default=str)
    return text_of_cell(value) if isinstance(value, str | bool | float | None) else str(value)
