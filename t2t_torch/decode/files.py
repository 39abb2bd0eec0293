"""Decoding of files and data sets, for texts and labels."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from absl import logging

from t2t_torch import errors, files, mode, reporter
from t2t_torch.data.shards import Shards
from t2t_torch.declaration.problem import DeclaredProblem, format_like
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.journal import (
    Decoding,
    Journal,
    Shard,
    digest,
    journal_record,
    made_of,
    name_of_shard,
    prediction_of,
    rows_of_shard,
    shard_of,
)
from t2t_torch.decode.label_predictor import EncodedInput, LabelPredictor
from t2t_torch.decode.outputs import (
    DecodeProgress,
    answer_record,
    decodes_name,
    from_line,
    holds_json,
    one_line,
    read_json,
    report_file,
    table_cells,
    table_columns,
    table_value,
    text_of,
    value_line,
    without_breaks,
    write_outputs,
    write_predictions,
    write_table,
)
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.tree_predictor import TreePredictor
from t2t_torch.problem import Problem
from t2t_torch.readers.formats import format_of, header_of, open_records
from t2t_torch.readers.tables import sheet_of
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.runtime.prediction import (
    BEST,
    Input,
    InputColumns,
    InputError,
    Prediction,
    text_of_cell,
)


class Decoded(NamedTuple):
    """Decoded predictions with timing.

    Attributes:
      predictions: one per input, in order.
      seconds: wall time, without loading.
      before: number of predictions read from a journal.
    """

    predictions: list[Prediction]
    seconds: float
    before: int = 0

    def __str__(self) -> str:
        count = len(self.predictions) - self.before
        rate = count / max(self.seconds, 1e-9)
        more = f"{self.before:,} more were there before; " if self.before else ""
        return f"{more}{count:,} inputs in {self.seconds:.1f} seconds ({rate:,.1f} per second)"


def read_inputs(path: Path, delimiter: str = "\n") -> list[str]:
    r"""Reads the inputs of a file, optionally compressed with gzip.

    An empty line is an input like any other, but empty text after the last delimiter is not.  White
    space around an input, including the "\r" of a Windows line, is removed, as in tensor2tensor.

    Raises:
      DataError: the file does not exist, or is not UTF-8.
    """
    lines: Iterator[str] | list[str] = files.read_lines(path)
    if delimiter != "\n":
        lines = "\n".join(lines).split(delimiter)
        if not lines[-1].strip():
            lines.pop()
    return [line.strip() for line in lines]


def read_texts(path: Path, predictor: Predictor, hparams: DecodeHParams) -> list[str]:
    """Reads the inputs of a file like `read_inputs`, or the JSON objects of a .jsonl file.

    Args:
      path: input file.
      predictor: predictor for the inputs.  An object has a text under the name of the predictor's
        input, or of a language model's target; a JSON string, or an empty line, is that text.
        Objects are kept whole for constraints on outputs and for fields to copy to the output.
      hparams: settings, with the delimiter of files other than JSON.

    Raises:
      DataError: see `read_inputs`; or a line is not such JSON; the message names it.
    """
    if not holds_json(path):
        return read_inputs(path, hparams.separator)
    field = predictor.field
    texts: list[Any] = []
    for number, line in enumerate(files.read_lines(path), start=1):
        record = read_json(line, f"{path}, line {number}")
        if isinstance(predictor, TreePredictor) and isinstance(record, dict):
            texts.append(record)  # has its own message for missing fields
            continue
        text = record.get(field) if isinstance(record, dict) else record
        if not isinstance(text, str):
            raise errors.DataError(
                f"{path}, line {number}: expected a JSON object with a text, "
                f'{{"{field}": "..."}}, but it is {line[:80]}'
            )
        is_whole = isinstance(record, dict)
        texts.append({**record, field: text.strip()} if is_whole else text.strip())
    return texts


def decode(
    predictor: Predictor, inputs: Sequence[Sequence[int]], hparams: DecodeHParams, journal: Journal
) -> Decoded:
    """Decodes ids, with a display of the number of completed inputs and the time left.

    Args:
      predictor: predictor to use.
      inputs: ids of each input.
      hparams: decoding settings.
      journal: journal with earlier predictions; records each batch.
    """
    start = time.perf_counter()
    stored = journal.predictions.items()
    decoded = {number: prediction_of(predictor.target, record) for number, record in stored}
    before = len(decoded)
    with DecodeProgress(len(inputs), before=before, journal=journal.path) as progress:
        for batch in predictor.predict_batches(inputs, hparams, decoded.keys()):
            journal.add([(number, journal_record(prediction)) for number, prediction in batch])
            decoded.update(batch)
            progress.advance(len(batch))
    predictions = [decoded[index] for index in range(len(inputs))]
    return Decoded(predictions, time.perf_counter() - start, before)


def decode_file(
    predictor: Predictor, source: Path, target: Path | None, hparams: DecodeHParams
) -> Decoded:
    """Writes one output for each input of a file, in order.

    The target is written atomically; see `open_target`.  Until then predictions are kept in a
    journal, and predictions in a matching journal are not computed again.  With `shard_id` the part
    is decoded to its own file; see `Shard.name`.

    Args:
      predictor: predictor to use.
      source: input file.
      target: output file; None: named by `decodes_name`.
      hparams: decoding settings.

    Raises:
      DataError: the source cannot be read, or an input has no ids in the vocabulary.
      DecodeError: the journal cannot be written.
      HParamsError: a delimiter is set that is not read.
      UsageError: the target cannot be written, is the source, or is in use by another process.
    """

    def name_of(shard: Shard | None) -> Path:
        if target is None:
            return decodes_name(source, predictor, hparams, shard)
        return name_of_shard(target, hparams, shard)

    files.check_target(name_of(shard_of(hparams)), source)
    if holds_json(source):
        hparams.check_of_json(source)
    table = InputTable.of(source, predictor, hparams)
    if table is None:
        texts: Sequence[Any] = read_texts(source, predictor, hparams)
    else:
        alone = len(predictor.columns.kinds) == 1
        texts = [next(iter(one.values())) if alone else one for one in table.samples]
    inputs = _encode(predictor, texts, source, hparams)

    def write(path: Path, rows: slice, predictions: list[Prediction]) -> None:
        answers = [{predictor.target: one.hypotheses[0].text} for one in predictions]
        if table is not None and table.write(path, target or path, rows, answers):
            return
        if hparams.log_results:
            _log([text_of(one, predictor.field) for one in texts[rows]], predictions, hparams)
        write_predictions(path, predictor, texts[rows], predictions, hparams)

    return _decode_all(predictor, inputs, texts, hparams, name_of, write)


def _decode_all(
    predictor: Predictor,
    inputs: Sequence[Sequence[int]],
    texts: Sequence[Any],
    hparams: DecodeHParams,
    name_of: Callable[[Shard | None], Path],
    write: Callable[[Path, slice, list[Prediction]], None],
) -> Decoded:
    """Decodes and writes inputs, or the requested part of them; see `Decoding`."""
    spent: list[Decoded] = []

    def find(rows: slice, journal: Journal) -> list[Prediction]:
        spent.append(decode(predictor, inputs[rows], hparams, journal))
        return spent[-1].predictions

    def digest_of(rows: slice) -> str:
        return digest((inputs[rows], texts[rows]))

    def common() -> Mapping[str, Any]:
        return made_of(predictor, hparams)

    predictions = Decoding(len(inputs), hparams, name_of, common, digest_of, find, write).run()
    return Decoded(predictions, sum(d.seconds for d in spent), sum(d.before for d in spent))


def _encode(
    predictor: Predictor, texts: Sequence[str], source: Path, hparams: DecodeHParams
) -> list[list[int]]:
    """Returns the ids of a file's inputs.  Errors name the line of an input without ids."""
    values = [predictor.value_of(text, source.parent) for text in texts]
    try:
        return predictor.encode(values, hparams)
    except errors.DataError:
        for number, text in enumerate(values, start=1):
            try:
                predictor.encode([text], hparams)
            except errors.DataError as error:
                place = f"{number}" if hparams.separator == "\n" else f" input {number}"
                raise errors.DataError(f"{source}:{place}: {error}") from None
        raise


def decode_dataset(
    predictor: Predictor, data_dir: Path, split: mode.Split, base: Path, hparams: DecodeHParams
) -> tuple[Decoded, list[str]]:
    """Decodes a split; writes `.decodes`, `.targets` and `.inputs` next to each other.

    Args:
      predictor: predictor of a problem with inputs.
      data_dir: directory of the generated data.
      split: split to decode.
      base: beginning of the file names; see `decodes_name` and `Shard.name`.
      hparams: decoding settings.

    Returns:
      The predictions, and the targets as written.

    Raises:
      DataError: the data does not exist.
      DecodeError: the problem has no inputs.
      UsageError: a file cannot be written.
    """
    features = predictor.features
    if not features.has_inputs:
        raise errors.DecodeError(
            f"problem {predictor.problem.full_name!r} is a language model: its data has no "
            "inputs to decode. Give it beginnings, one per line, with --decode_from_file."
        )
    sides = [next(iter(side)) for side in (features.inputs, features.targets)]
    inputs, targets = (_rows_of_all(predictor, data_dir, split, side, hparams) for side in sides)
    if isinstance(predictor, TreePredictor):
        names = [*predictor.given, *_annotation_columns(predictor, data_dir, split)]
        columns = [_rows_of_all(predictor, data_dir, split, n, hparams) for n in names]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        inputs = [predictor.stored(row) for row in rows]
    own = rows_of_shard(hparams, len(inputs))
    shard = shard_of(hparams)

    def name_of(shard: Shard | None) -> Path:
        return decodes_name(base, predictor, hparams, shard)

    for kind in ("decodes", "targets", "inputs"):
        files.check_target(name_of(shard).with_suffix(f".{kind}"))
    fewer = "" if hparams.num_samples >= 0 else "; for the first N: --decode_hparams=num_samples=N"
    reporter.message(f"decoding {own.stop - own.start:,} examples of {split.value}{fewer}")
    texts = _data_texts(predictor, inputs, targets, hparams)

    def write(path: Path, rows: slice, predictions: list[Prediction]) -> None:
        for kind, lines in texts.items():
            write_outputs(path.with_suffix(f".{kind}"), lines[rows], hparams)
        if hparams.log_results:
            _log(texts["inputs"][rows], predictions, hparams)
        write_predictions(path, predictor, texts["inputs"][rows], predictions, hparams)

    cut = [predictor.cut(ids, hparams) for ids in inputs]
    decoded = _decode_all(predictor, cut, texts["inputs"], hparams, name_of, write)
    return decoded, texts["targets"][own]


def _data_texts(
    predictor: Predictor,
    inputs: Sequence[list[int]],
    targets: Sequence[list[int]],
    hparams: DecodeHParams,
) -> dict[str, list[str]]:
    """Returns the lines of the targets and of the inputs of generated data."""
    features = predictor.features
    texts = {}
    for kind, side, rows in (
        ("targets", features.targets, targets),
        ("inputs", features.inputs, inputs),
    ):
        feature = next(iter(side.values()))
        if not isinstance(predictor, TreePredictor):
            values = [feature.decode(ids) for ids in rows]
            lines = [v if isinstance(v, str) else value_line(feature, v) or str(v) for v in values]
            texts[kind] = [without_breaks(line, hparams) for line in lines]
        else:
            texts[kind] = predictor.written(inputs, rows if kind == "targets" else None)
    return texts


def _annotation_columns(predictor: Predictor, data_dir: Path, split: mode.Split) -> list[str]:
    """Returns the columns without a feature that the data of all problems has."""
    names = [one.dataset_name for one in predictor.problem.components]
    columns = [Shards.open(data_dir, name, split).features for name in names]
    return [name for name in predictor.features.kept if all(name in one for one in columns)]


def _rows_of_all(
    predictor: Predictor, data_dir: Path, split: mode.Split, side: str, hparams: DecodeHParams
) -> list[list[int]]:
    """Returns the ids of a feature's rows; for a mixture, those of its problems in turn."""
    rows: list[list[int]] = []
    for problem in predictor.problem.components:
        mixed = problem is not predictor.problem
        features = problem.features(data_dir) if mixed else predictor.features
        shards = Shards.open(data_dir, problem.dataset_name, split)
        left = hparams.num_samples - len(rows) if hparams.num_samples >= 0 else -1
        rows += rows_of(shards, features.columns.get(side, side), left)
    return rows


def rows_of(shards: Shards, column: str, limit: int = -1) -> list[Any]:
    """Returns the ids of a column's rows, limited to the first `limit` if it is not negative.

    Samples of sounds are arrays.
    """
    rows: list[Any] = []
    for values, offsets in shards.column(column):
        for start, end in itertools.pairwise(offsets):
            if 0 <= limit <= len(rows):
                return rows
            row = values[start:end]
            rows.append(row if row.dtype == np.int16 else row.tolist())
    return rows


def _log(texts: Sequence[str], predictions: Sequence[Prediction], hparams: DecodeHParams) -> None:
    for text, prediction in zip(texts, predictions, strict=True):
        logging.info("input:  %s", text)
        logging.info("output: %s", one_line(prediction, hparams))


_TABLES = (".csv", ".tsv", ".tab", ".xlsx", ".xlsm", ".parquet")


class InputTable:
    """A table of inputs: CSV, TSV, Excel, Parquet, or JSON lines with the declared columns.

    Args:
      path: the file.
      problem: the problem, whose declaration says how such a file is read.
      columns: columns of the fields of an input.
      targets: names of the targets.

    Attributes:
      rows: values by column.
      samples: values by field, of the fields alone.

    Raises:
      DataError: the file cannot be read, or a row is bad.
      DecodeError: it lacks a column.
      UsageError: it has a column of the name of an answer.
    """

    def __init__(
        self, path: Path, problem: Problem, columns: InputColumns, targets: Iterable[str]
    ) -> None:
        self._path = path
        own = problem.column_names
        self._names = {name: f"predicted_{own.get(name, name)}" for name in targets}
        name, options = format_of(path), dict[str, Any]()
        if isinstance(problem, DeclaredProblem):
            name, options = format_like(problem, path)
        if name in ("csv", "tsv"):
            options = {"blank_rows": True, **options}
        self._options = options
        bad = BadRecords(advice="Fix it.")
        records = list(open_records(path, format=name, bad=bad, options=options))
        self.rows = [record.values for record in records]
        self._lines = [record.place.line for record in records]
        heads = self.rows or [dict.fromkeys(header_of(path, name, options))]
        if missing := next((row for row in heads if columns.lacks(row)), None):
            raise errors.DecodeError(f"{path}: {columns.expected(missing)}")
        if taken := {*self._names.values()} & {name for row in heads for name in row}:
            raise errors.UsageError(
                f"{path} has a column {min(taken)!r}, which the answers would have. Rename it."
            )
        whole = [
            columns.sample(row, f"{path}, {record.place.unit} {record.place.line}", is_row=True)
            for row, record in zip(self.rows, records, strict=True)
        ]
        self.samples = [{field: row[field] for field in columns.kinds} for row in whole]
        self.rows = [  # without values of nested objects, which readers add as "a.b"
            {
                k: row[k]
                for k in row
                if "." not in k or not isinstance(row.get(k.split(".")[0]), dict)
            }
            for row in self.rows
        ]
        self._header = list(dict.fromkeys(name for row in self.rows or heads for name in row))

    @classmethod
    def of(
        cls, path: Path, predictor: Predictor | LabelPredictor, hparams: DecodeHParams
    ) -> InputTable | None:
        """Returns the table of a file; None for a file of lines, or of JSON by field.

        Raises:
          UsageError: settings ask for another form than that of a table; or see the class.
        """
        columns = predictor.columns
        if holds_json(path):
            first = next(filter(None, map(str.strip, files.read_lines(path))), "")
            row = read_json(first, f"{path}, line 1")
            known = {**row, **columns.sample(row)} if isinstance(row, dict) else {}
            if not known or columns.kinds.keys() <= row.keys() or columns.kinds.keys() - known:
                return None
        elif not files.without_packing(path.name.lower()).endswith(_TABLES):
            return None
        if hparams.output_format != "text" or hparams.writes_several:
            raise errors.UsageError(
                f"{path} is a table, which is written back with one answer a row, in the format of "
                "--decode_to_file. Leave output_format, return_beams and write_beam_scores out."
            )
        return cls(path, predictor.problem, columns, predictor.features.targets)

    def write(
        self, target: Path, form: Path, rows: slice, answers: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Writes rows with their answers in the format of a name; False if it names no table.

        Args:
          target: file to write.
          form: name whose ending is that of the format.
          rows: numbers of the rows.
          answers: cells of the answers of these rows, by target, or target and "_probability".

        Raises:
          DataError: a value cannot be written in this format.
        """
        ending = form.suffix.lower()
        if ending not in (*_TABLES, ".jsonl") or ending == ".xlsm":
            return False
        added: dict[str, list[Any]] = {name: [] for name in self._names.values() if not answers}
        for name in answers[0] if answers else ():
            cells = [answer[name] for answer in answers]
            if any(cell is not None for cell in cells):
                of = name.removesuffix("_probability")
                added[self._names[of] + name.removeprefix(of)] = cells
        try:
            if ending in (".csv", ".tsv", ".tab", ".jsonl"):
                with files.open_target(target) as stream:
                    self._write_text(stream, ending, rows, added)
            else:
                with files.staged(Path(os.path.realpath(target))) as temporary:
                    write = self._write_parquet if ending == ".parquet" else self._write_excel
                    write(temporary, ending == self._path.suffix.lower(), rows, added)
        except (ValueError, TypeError) as error:  # of pyarrow and openpyxl, too
            raise errors.DataError(f"{target}: this table cannot be written so: {error}") from None
        return True

    def _merged(self, rows: slice, added: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        return [
            {**row, **{name: cells[number] for name, cells in added.items()}}
            for number, row in enumerate(self.rows[rows])
        ]

    def _write_text(
        self, stream: TextIO, ending: str, rows: slice, added: Mapping[str, Sequence[Any]]
    ) -> None:
        merged = self._merged(rows, added)
        if ending == ".jsonl":
            for row in merged:
                stream.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
            return
        header = [*self._header, *added]
        lines = [[_text_cell(row.get(name)) for name in header] for row in merged]
        is_named = self._options.get("header", True) and not self._options.get("columns")
        head = [header] if is_named else []
        delimiter = self._options.get("delimiter", ",") if ending == ".csv" else "\t"
        if ending != ".csv" and not any(set("\t\n\r") & set(cell) for row in lines for cell in row):
            stream.writelines("\t".join(row) + "\n" for row in [*head, *lines])
        else:
            csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows([*head, *lines])

    def _write_parquet(
        self, path: Path, is_same: bool, rows: slice, added: Mapping[str, Sequence[Any]]
    ) -> None:
        import pyarrow
        from pyarrow import parquet

        if is_same:
            with files.open_regular(self._path) as file:
                table = parquet.read_table(file)[rows.start : rows.stop]
            for name, cells in added.items():
                table = table.append_column(name, pyarrow.array(cells))
        else:
            merged = self._merged(rows, added)
            columns = {name: [row.get(name) for row in merged] for name in (*self._header, *added)}
            table = pyarrow.table(columns)
        parquet.write_table(table, path)

    def _write_excel(
        self, path: Path, is_same: bool, rows: slice, added: Mapping[str, Sequence[Any]]
    ) -> None:
        import openpyxl

        if is_same and len(self.rows[rows]) == len(self.rows):
            name, whole = sheet_of(self._path, self._options.get("sheet", ""))
            with files.open_regular(self._path) as file:
                book = openpyxl.load_workbook(file)
            head = whole[0][0]
            for place, (title, cells) in enumerate(added.items(), book[name].max_column + 1):
                _fill(book[name], head, place, title if self._options.get("header", True) else None)
                for line, cell in zip(self._lines, cells, strict=True):
                    _fill(book[name], line, place, cell)
        else:
            book, merged = openpyxl.Workbook(), self._merged(rows, added)
            header = [*self._header, *added]
            lines: list[list[Any]] = [header, *([row.get(k) for k in header] for row in merged)]
            for number, row in enumerate(lines, 1):
                for place, value in enumerate(row, 1):
                    _fill(book.active, number, place, value)
        with path.open("wb") as file:
            book.save(file)


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # characters that no workbook may hold


def _fill(sheet: Any, row: int, column: int, value: Any) -> None:
    """Puts a value into a cell of a workbook; a text is no formula, whatever it begins with."""
    if isinstance(value, str | list | dict):
        cell = sheet.cell(row, column, _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _text_cell(value)))
        cell.data_type = "s"
    else:
        sheet.cell(row, column, value)


def _text_cell(value: Any) -> str:
    """Returns a value as the text of a cell, with all digits of a number."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return text_of_cell(value) if isinstance(value, str | bool | float | None) else str(value)


def _label_cells(predictor: LabelPredictor, input_: Input, answer: Prediction) -> Mapping[str, Any]:
    """Returns the cells of an answer for `InputTable.write`."""
    outputs, cells = record_of(predictor, input_, answer)["output"], {}
    for name, feature in predictor.features.targets.items():
        cells[name] = table_value(feature, outputs[name]["value"])
        cells[f"{name}_probability"] = outputs[name].get("probability")
    return cells


def label_file(
    predictor: LabelPredictor,
    source: Path,
    target: str | None,
    hparams: DecodeHParams | None = None,
) -> list[str]:
    """Writes the prediction for each line of a file, one per line, and reports the duration.

    A line is read by `input_of`, and written by `form_of` or in the format `output_format`.

    Args:
      predictor: predictor of labels.
      source: file with one input per line.
      target: output file, written atomically; by default the source's name and ".labels".  Until
        then predictions are kept in a journal.
      hparams: settings, only those in `READ_BY_LABELS`.

    Returns:
      The values alone, one line each as written by `form_of`, for any format.

    Raises:
      DataError: a line cannot be read or encoded; the message names it.
      DecodeError: the journal cannot be written.
      HParamsError: hparams are set that only models of texts read.
      UsageError: the target cannot be written, is the source, or is in use by another process.
    """
    how = hparams or DecodeHParams()
    how.check_of_labels()

    def name_of(shard: Shard | None) -> Path:
        if target is None:
            return Path(f"{name_of_shard(source, how, shard)}.labels")
        return name_of_shard(Path(target), how, shard)

    path = name_of(shard_of(how))
    files.check_target(path, source)
    start = time.perf_counter()
    table = InputTable.of(source, predictor, how)
    inputs, encoded = _read(predictor, source, table)

    def find(rows: slice, journal: Journal) -> list[Prediction]:
        return predictor.predict_encoded(encoded[rows], journal)

    def write(file: Path, rows: slice, predictions: list[Prediction]) -> None:
        if table is not None:
            pairs = zip(inputs[rows], predictions, strict=True)
            answers = [_label_cells(predictor, *pair) for pair in pairs]
            if table.write(file, Path(target or file), rows, answers):
                return
        _write(file, predictor, inputs[rows], predictions, how)

    common = functools.partial(made_of, predictor, how)
    answers = Decoding(
        len(inputs), how, name_of, common, lambda rows: digest(inputs[rows]), find, write
    ).run()
    report_file(f"{Decoded(answers, time.perf_counter() - start)}: {path}", path)
    written = form_of(predictor)
    return [written(answer.value) for answer in answers]


def _read(
    predictor: LabelPredictor, source: Path, table: InputTable | None
) -> tuple[Sequence[Input], Sequence[EncodedInput]]:
    """Returns the inputs of a file and their encodings; errors name the line."""
    is_json = holds_json(source)
    inputs: Sequence[Input] = (
        table.samples
        if table is not None
        else [
            input_of(predictor, line, f"{source}, line {number}", is_json=is_json)
            for number, line in enumerate(files.read_lines(source), start=1)
        ]
    )
    samples = [
        _with_files(predictor, one, source, f"{source}, line {number}")
        for number, one in enumerate(inputs, start=1)
    ]
    try:
        return inputs, predictor.encode(samples)
    except InputError as error:
        paths = [one for one in samples[error.number].values() if isinstance(one, Path)]
        advice = f"The file is {', '.join(map(str, paths))}." if paths else how_to_write(predictor)
        raise errors.DataError(f"{source}, line {error.number + 1}: {error.why} {advice}") from None


def _with_files(
    predictor: LabelPredictor, input_: Input, source: Path, place: str
) -> dict[str, Any]:
    """Returns an input with the paths of the files that its texts name; see `outputs.from_line`."""
    sample = predictor.columns.sample_of(input_)
    try:
        paths = {
            field: from_line(kind, sample[field], source.parent)
            for field, kind in predictor.kinds.items()
            if isinstance(sample[field], str)
        }
    except errors.DataError as error:
        raise errors.DataError(f"{place}: {error}") from None
    return {**sample, **paths}


def _write(
    path: Path,
    predictor: LabelPredictor,
    inputs: Sequence[Input],
    answers: Sequence[Prediction],
    hparams: DecodeHParams,
) -> None:
    """Writes predictions in the format `output_format`."""
    best, written = hparams.num_labels, form_of(predictor)
    with files.open_target(path) as stream:
        if hparams.output_format == "tsv":
            write_table(stream, *table_of(predictor, inputs, answers, best))
        elif hparams.output_format == "jsonl":
            for input_, answer in zip(inputs, answers, strict=True):
                record = record_of(predictor, input_, answer, best)
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            stream.writelines(f"{written(answer.value)}\n" for answer in answers)


def input_of(predictor: LabelPredictor, line: str, place: str, *, is_json: bool = False) -> Input:
    """Returns the input of a line.

    A line is a JSON object of all fields.  If there is only one field, it may also be the field's
    plain text or, for a list, a JSON list.

    Args:
      predictor: predictor for the input.
      line: the line without its end.
      place: location of the line, for errors.
      is_json: True if each line is JSON, as in a .jsonl file: a text is then a JSON string or an
        empty line.

    Raises:
      DataError: the line has none of these forms.
    """
    alone = predictor.fields[0] if len(predictor.fields) == 1 else None
    value = read_json(line, place) if is_json else _json(line)
    if isinstance(value, dict):
        value = predictor.columns.sample(value, place)
        missing = [field for field in predictor.fields if field not in value]
        if missing:
            raise errors.DataError(
                f"{place}: the JSON object has no {', '.join(missing)}, but "
                f"{', '.join(value) or 'nothing'}. {how_to_write(predictor)}"
            )
        return value
    if alone is None:
        raise errors.DataError(f"{place} is no JSON object. {how_to_write(predictor)}")
    if alone in predictor.lists and isinstance(value, list):
        return {alone: value}
    if not is_json:
        return line
    if not isinstance(value, str):
        raise errors.DataError(f"{place} is no JSON object: {line[:80]}. {how_to_write(predictor)}")
    return value


def record_of(
    predictor: LabelPredictor, input_: Input, answer: Prediction, best: int = BEST
) -> dict[str, Any]:
    """Returns the `jsonl` record of an input: `input`, all its fields, and `output` by target.

    Args:
      predictor: predictor of the answer.
      input_: the input.
      answer: prediction for the input.
      best: number of labels to report with their probabilities.
    """
    sample = predictor.columns.sample_of(input_)
    output = answer_record(predictor.features, sample, answer, best)
    return {"input": dict(sample), "output": output}


def table_of(
    predictor: LabelPredictor,
    inputs: Sequence[Input],
    answers: Sequence[Prediction],
    best: int = BEST,
) -> tuple[list[str], list[list[Any]]]:
    """Returns the `tsv` table of inputs: column names, and rows.

    Args:
      predictor: predictor of the answers.
      inputs: the given inputs; fields that the problem does not read are omitted.
      answers: one prediction per input.
      best: number of labels to report with their probabilities.
    """
    targets = predictor.features.targets
    header = list(predictor.fields)
    for name, feature in targets.items():
        header += [f"{name}{column}" for column in table_columns(feature)]
    rows = []
    for input_, answer in zip(inputs, answers, strict=True):
        record = record_of(predictor, input_, answer, best)
        inputs_of = predictor.features.inputs
        row = [
            table_value(inputs_of[field], value) if field in inputs_of else value
            for field, value in ((field, record["input"][field]) for field in predictor.fields)
        ]
        for name, feature in targets.items():
            row += table_cells(feature, record["output"][name])
        rows.append(row)
    return header, rows


def form_of(predictor: LabelPredictor) -> Callable[[Any], str]:
    """Returns the function that writes a value as a line, in one format for all values.

    A label and a part of a text are written unchanged, except for line breaks, which become spaces.
    Tags are joined by spaces unless some tag contains one.  Anything else, and several targets, are
    written as JSON.
    """
    targets = list(predictor.features.targets.values())

    def written(value: Any) -> str:
        line = value_line(targets[0], value) if len(targets) == 1 else None
        return json.dumps(value, ensure_ascii=False) if line is None else line

    return written


def _json(line: str) -> Any:
    """Returns the JSON value of a line; None if it is not an object or a list."""
    if not line.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def how_to_write(predictor: LabelPredictor) -> str:
    """Returns the expected format of a line, with an example."""
    return f"Write a line as a JSON object such as {example_line(predictor)}."


def example_line(predictor: LabelPredictor) -> str:
    """Returns an example input as JSON, and the meanings of fields with unclear names."""
    fields = predictor.problem.request_inputs
    example = {
        field: kind.example(as_list=field in predictor.lists)  # a list has two words
        for field, kind in predictor.kinds.items()
    }
    known = {field: spec for field, spec in fields.items() if field in example}
    example |= {field: spec.example for field, spec in known.items()}
    meanings = "".join(f", where {field} is {spec.meaning}" for field, spec in known.items())
    return json.dumps(example, ensure_ascii=False) + meanings
