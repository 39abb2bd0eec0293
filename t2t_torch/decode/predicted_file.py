"""The rows of a file with the predictions of a run or an artifact; files of them.

An artifact is read without torch.  Rows are read, predicted and written in blocks, or all at once.
"""

from __future__ import annotations

import codecs
import csv
import functools
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeAlias, cast

from t2t_torch.atomic_files import staged
from t2t_torch.errors import DataError, DecodeError, UsageError
from t2t_torch.files import open_regular, open_target, without_packing
from t2t_torch.reporter import bar

if TYPE_CHECKING:
    from t2t_torch.features import InputSpec, OutputSpec
    from t2t_torch.readers.text_file import Place, Record
    from t2t_torch.runtime.prediction import InputColumns, Prediction

CONLL = (".conll", ".bio", ".iob", ".conllu")
"""Endings of files that are written back with a tag for each word."""

TABLES = (".csv", ".tsv", ".tab", ".jsonl")
"""Endings of other files that are written row by row."""

WHOLE_TABLES = (".xlsx", ".parquet")
"""Endings of files that are written at once."""


class PredictedRow(NamedTuple):
    """A row of a file with its prediction.

    Attributes:
      place: where it starts.
      values: its own columns; None if the reader refused it.
      fault: the reason why it has no prediction; "" if it has one.
      sample: the input of the model, by field.
      prediction: the prediction; None if there is none.
      records: by target, what is written: its `value`, and any `probability`, `score`, `spans`.
    """

    place: Place
    values: Mapping[str, Any] | None
    fault: str = ""
    sample: Mapping[str, Any] = {}
    prediction: Prediction | None = None
    records: Mapping[str, Mapping[str, Any]] = {}


_Lines: TypeAlias = Sequence[tuple[int, Mapping[str, Any]]]  # numbers and values by column
_BLOCK = 1024  # rows that are predicted together
_MOST_LISTED = 10  # faults


class PredictedFile:
    """The rows of a file with the predictions of a model.

    Args:
      model: a predictor or an artifact.
      source: the file.
      is_strict: True if a row that cannot be read is an error, and one without a text is not.

    Attributes:
      targets: targets of the model.
      count: number of rows read so far.
      faults: the first rows without predictions, with the reasons.
      num_faults: number of such rows.
    """

    def __init__(self, model: Any, source: Path, *, is_strict: bool = False) -> None:
        from t2t_torch.readers.detection import fitting_format
        from t2t_torch.readers.formats import FORMATS

        self._model, self._source, self._is_strict = model, source, is_strict
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
                is_changed = problem.was_reversed or problem.was_copy or is_strict
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
        read = self.read()
        with bar(unit=" rows", desc="predicting") as progress:
            while block := list(itertools.islice(read, _BLOCK)):
                good = [row for row in block if not row.fault]
                answers = iter(self._answers([row.sample for row in good]))
                for row in block:
                    answer = row.fault or next(answers)
                    if isinstance(answer, str):
                        row = row._replace(fault=answer)
                    else:
                        row = row._replace(prediction=answer, records=self._records(row, answer))
                    self._num_read += row.values is not None
                    if row.fault:
                        self.num_faults += 1
                        if len(self.faults) < _MOST_LISTED:
                            self.faults.append(f"{row.place}: {row.fault}")
                    yield row
                progress.update(len(block))
        if self.count and not self._num_read:
            raise DataError(f"no row can be read, and nothing is written: {self.faults[0]}")

    def read(self) -> Iterator[PredictedRow]:
        """Yields the rows with their inputs; the others with their faults, unless `is_strict`.

        Raises:
          DataError, DecodeError: a row cannot be read, and `is_strict`.
        """
        from t2t_torch.readers.formats import open_records
        from t2t_torch.readers.text_file import BadRecords

        refused: list[PredictedRow] = []

        class InPlace(BadRecords):
            def report(self, place: Place, why: str) -> None:
                super().report(place, why)
                refused.append(PredictedRow(place, None, why))

        bad = BadRecords(advice="Fix it.") if self._is_strict else InPlace("skip")
        is_first = True
        for record in open_records(
            self._source, format=self._format, bad=bad, options=self._options
        ):
            yield from refused
            self.count += 1 + len(refused)
            refused.clear()
            if is_first:
                self._check_columns(record.values)
                is_first = False
            try:
                sample, why = self._sample(record), ""
            except (DataError, DecodeError) as error:
                if self._is_strict:
                    raise type(error)(f"{record.place}: {error}") from None
                sample, why = {}, str(error)
            values = record.values
            own = {  # without values of nested objects, which readers add as "a.b"
                name: values[name]
                for name in values
                if "." not in name or not isinstance(values.get(name.split(".")[0]), dict)
            }
            yield PredictedRow(record.place, own, why, sample)
        self.count += len(refused)
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
            made: dict[str, Any] = self._maker.sample(record.values, self._fields)
            self._maker.find_sounds(made, record)
            return made
        row = self._columns.sample(
            self._named(self._format, record.values), "this row", is_row=True
        )
        sample = {name: row[name] for name in self._columns.kinds}
        is_empty = not any(str(one).strip() for one in sample.values() if one not in (None, []))
        if is_empty and not self._is_strict:
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

    def write_table(
        self, target: Path, rows: Iterable[PredictedRow], form: Path | None = None
    ) -> None:
        """Writes rows as CSV, TSV, JSON lines, Excel or Parquet, atomically.

        A row that its reader refused has its text in the first column.  A file without rows keeps
        its header.

        Args:
          target: file to write.
          rows: the rows; a list is looked at as a whole.
          form: name whose ending is that of the format; None: `target`.

        Raises:
          DataError: a row has a column that none of the first rows has, and the output is a table;
            no row can be read; or a value cannot be written in this format.
        """
        from t2t_torch.readers.formats import header_of

        form = form or target
        ending = form.suffix.lower()
        rest = iter(rows)
        is_whole = isinstance(rows, list) or ending in WHOLE_TABLES
        first = list(itertools.islice(rest, None if is_whole else _BLOCK))
        own = list(dict.fromkeys(name for row in first for name in row.values or ()))
        if not own:
            own = [*header_of(self._source, self._format, self._options)]
            if own and not self.count:
                self._check_columns(dict.fromkeys(own))
            own = own or ["text"] * bool(first)
        added = dict.fromkeys(name for row in first for name in self._cells(row))
        added |= dict.fromkeys(self._names.values())  # where no row has a prediction
        merged = self._merged(itertools.chain(first, rest), own[:1], added)
        if ending in WHOLE_TABLES:
            write_all = self._write_parquet if ending == ".parquet" else self._write_excel
            lines = [(row.place.line, values) for row, values in merged]
            is_own = ending == self._source.suffix.lower()
            try:
                with staged(Path(os.path.realpath(target))) as temporary:
                    write_all(temporary, lines, own, list(added), is_own=is_own)
            except (ValueError, TypeError) as error:  # of pyarrow and openpyxl, too
                fault = f"{target}: this table cannot be written so: {error}"
                raise DataError(fault) from None
            return
        with open_target(target) as stream:
            is_json = ending == ".jsonl"
            # Bytes that are no UTF-8 are written as they were; JSON cannot hold them.
            errors = "replace" if is_json else "surrogateescape"
            cast("Any", stream).reconfigure(errors=errors)
            write = None if is_json else self._table_writer(stream, ending, [*own, *added])
            for row, values in merged:
                if write is None:
                    stream.write(json.dumps(values, ensure_ascii=False, default=str) + "\n")
                elif others := values.keys() - {*own, *added}:
                    raise DataError(
                        f"{row.place}: the first rows have no column {min(others)!r}, and a table "
                        "has the same columns in each row. Give --output=FILE.jsonl."
                    )
                else:
                    write([_text(values.get(name), name in added) for name in (*own, *added)])

    def _merged(
        self, rows: Iterable[PredictedRow], own: Sequence[str], added: Iterable[str]
    ) -> Iterator[tuple[PredictedRow, dict[str, Any]]]:
        """Yields rows with their values and predictions by column.

        Args:
          rows: the rows.
          own: column of the text of a row that its reader refused.
          added: columns of predictions.
        """
        texts, last, text = self._texts(), 0, ""
        for row in rows:
            values = row.values
            if values is None:
                while last < row.place.line and row.place.unit == "line":
                    last, text = next(texts, (row.place.line, ""))
                values = dict.fromkeys(own, text)
            cells = self._cells(row)
            yield row, {**values, **{name: cells.get(name) for name in added}}

    def _table_writer(
        self, stream: TextIO, ending: str, header: Sequence[str]
    ) -> Callable[[list[str]], object]:
        """Writes the header of a table; returns the function that writes a row."""
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
        if self._is_strict:  # all columns stay as they are
            quoted = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
            special = {delimiter, "\r", "\n"}
            return lambda cells: (
                quoted if any(special & {*cell} for cell in cells) else writer
            ).writerow(cells)
        return lambda cells: writer.writerow(
            [" ".join(cell.replace(delimiter, " ").splitlines()) for cell in cells]
        )

    def _write_parquet(
        self, path: Path, lines: _Lines, own: list[str], added: list[str], *, is_own: bool
    ) -> None:
        """Writes rows as Parquet; those of such a file keep its types."""
        import pyarrow
        from pyarrow import parquet

        columns = {name: [row.get(name) for _, row in lines] for name in (*own, *added)}
        if not is_own:
            table = pyarrow.table(columns)
        else:
            places = pyarrow.array([number - 1 for number, _ in lines], pyarrow.int64())
            with open_regular(self._source) as file:
                table = parquet.read_table(file).take(places)
            for name in added:
                table = table.append_column(name, pyarrow.array(columns[name]))
        parquet.write_table(table, path)

    def _write_excel(
        self, path: Path, lines: _Lines, own: list[str], added: list[str], *, is_own: bool
    ) -> None:
        """Writes rows as a workbook; all those of a workbook into a copy of it."""
        import openpyxl

        from t2t_torch.readers.tables import sheet_of

        header, before = [*own, *added], 0
        head = dict(zip(header, header, strict=True))
        numbers = [number for number, _ in lines]
        if is_own and len(lines) == self.count and numbers == sorted(numbers):
            name, whole = sheet_of(self._source, self._options.get("sheet", ""))
            with open_regular(self._source) as file:
                book = openpyxl.load_workbook(file)
            sheet, header, before = book[name], added, book[name].max_column
            head = head if self._options.get("header", True) else {}
            lines = [(whole[0][0], head), *lines]
        else:
            book = openpyxl.Workbook()
            sheet = book.active
            lines = list(enumerate([head, *(values for _, values in lines)], 1))
        for number, values in lines:
            for place, title in enumerate(header, before + 1):
                _fill(sheet, number, place, values.get(title))
        with path.open("wb") as file:
            book.save(file)

    def _cells(self, row: PredictedRow) -> dict[str, Any]:
        """Returns what is written of a row by column; empty if it has no prediction."""
        cells: dict[str, Any] = {}
        for target, record in row.records.items():
            name = self._names[target]
            cells[name] = record["value"]
            parts = ("probability", "score", "spans")
            cells |= {f"{name}_{part}": record[part] for part in parts if part in record}
        return cells

    def _records(self, row: PredictedRow, prediction: Prediction) -> dict[str, dict[str, Any]]:
        """Returns what is written of a prediction, by target."""
        from t2t_torch.runtime.prediction import value_record, words_record

        records = {}
        for target in self.targets:
            record = records[target.name] = value_record(prediction, target.name)
            value = record["value"]
            if prediction.hypotheses:
                record["score"] = prediction.hypotheses[0].score
            elif target.kind == "tags":
                tokenizer = self._fields[target.of].tokenizer
                record |= words_record(value, row.sample[target.of], target.labels, tokenizer)
            elif target.kind == "numbers" and len(value) == 1:
                (record["value"],) = value
        return records

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


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # characters that no workbook may hold


def _fill(sheet: Any, row: int, column: int, value: Any) -> None:
    """Puts a value into a cell of a workbook; a text is no formula, whatever it begins with."""
    if isinstance(value, str | list | dict):
        text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _text(value, False))
        cell = sheet.cell(row, column, text)
        cell.data_type = "s"
    else:
        sheet.cell(row, column, value)


def _text(value: Any, is_prediction: bool) -> str:
    """Returns a value as the text of a cell; predicted names without blanks are joined."""
    from t2t_torch.runtime.prediction import text_of_cell

    if isinstance(value, list | dict):
        names = [one or "?" for one in value if one is None or isinstance(one, str)]
        if is_prediction and len(names) == len(value) and not any(" " in one for one in names):
            return " ".join(names)
        return json.dumps(value, ensure_ascii=False, default=str)
    return text_of_cell(value) if isinstance(value, str | bool | float | None) else str(value)
