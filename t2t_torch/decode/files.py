"""Decoding of files and data sets, for texts and labels."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from t2t_torch import errors, files, mode, reporter
from t2t_torch.data.shards import Shards
from t2t_torch.decode import outputs
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.journal import (
    Journal,
    Shard,
    digest,
    journal_of,
    journal_path,
    journal_record,
    made_of,
    prediction_of,
    shard_of,
)
from t2t_torch.decode.label_predictor import EncodedInput, LabelPredictor
from t2t_torch.decode.predicted_file import TABLES, WHOLE_TABLES, PredictedFile
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.tree_predictor import TreePredictor
from t2t_torch.reports.column_statistics import StoredColumn
from t2t_torch.runtime.prediction import Input, InputError, Prediction, prediction_record

_READ_AS_TABLES = (".csv", ".tsv", ".tab", ".xlsx", ".xlsm", ".parquet")


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
    if not outputs.holds_json(path):
        return read_inputs(path, hparams.separator)
    hparams.check_of_json(path)
    field = predictor.field
    texts: list[Any] = []
    for number, line in enumerate(files.read_lines(path), start=1):
        record = outputs.read_json(line, f"{path}, line {number}")
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
    predictor: Predictor | LabelPredictor,
    inputs: Sequence[Any],
    hparams: DecodeHParams,
    journal: Journal,
) -> Decoded:
    """Decodes inputs, with a display of the number of completed ones and the time left.

    Args:
      predictor: predictor to use.
      inputs: the encoded inputs.
      hparams: decoding settings.
      journal: journal with earlier predictions; records each batch.
    """
    start = time.perf_counter()
    parts = inputs
    if isinstance(predictor, LabelPredictor):
        parts = [part for one in inputs for part in one.parts]
    target = next(iter(predictor.features.targets))
    stored = journal.predictions.items()
    decoded = {number: prediction_of(target, record) for number, record in stored}
    before = len(decoded)
    with outputs.decode_progress(len(parts), before=before, journal=journal.path) as advance:
        for batch in predictor.predict_batches(parts, hparams, decoded.keys()):
            journal.add([(number, journal_record(prediction)) for number, prediction in batch])
            decoded.update(batch)
            advance(len(batch))
    predictions = [decoded[index] for index in range(len(parts))]
    if isinstance(predictor, LabelPredictor):
        predictions = predictor.answers(inputs, predictions)
    before = before if len(parts) == len(inputs) else 0
    return Decoded(predictions, time.perf_counter() - start, before)


def output_name(
    predictor: Predictor | LabelPredictor,
    source: Path,
    target: Path | None,
    hparams: DecodeHParams,
    shard: Shard,
) -> Path:
    """Returns the file of the outputs of a part, or of all; see `decode_file`."""
    if target is not None:
        return shard.name(target, hparams)
    if isinstance(predictor, Predictor):
        return outputs.decodes_name(source, predictor, hparams, shard)
    return Path(f"{shard.name(source, hparams)}.labels")


def decode_file(
    predictor: Predictor | LabelPredictor, source: Path, target: Path | None, hparams: DecodeHParams
) -> Decoded:
    """Writes one output for each input of a file, in order.

    The target is written atomically; see `open_target`.  Until then predictions are kept in a
    journal, and predictions in a matching journal are not computed again.  With `shard_id` the part
    is decoded to its own file; see `Shard.name`.

    Args:
      predictor: predictor to use.
      source: input file.  A line of a model of labels is read by `input_of`.
      target: output file; None: named by `decodes_name`, or for labels as the source, with
        ".labels".
      hparams: decoding settings; for labels only those in `READ_BY_LABELS`.

    Raises:
      DataError: the source cannot be read, or an input has no ids in the vocabulary.
      DecodeError: the journal cannot be written.
      HParamsError: a setting is changed that is not read.
      UsageError: the target cannot be written, is the source, or is in use by another process.
    """
    name_of = functools.partial(output_name, predictor, source, target, hparams)
    files.check_target(name_of(shard_of(hparams)), source)
    table = _table_of(source, predictor, hparams)
    rows = list(table.read()) if table is not None else []
    given: Sequence[Any] = [row.sample for row in rows]
    if isinstance(predictor, LabelPredictor):
        hparams.check_of_labels()
        if table is None:
            is_json = outputs.holds_json(source)
            given = [
                input_of(predictor, line, f"{source}, line {number}", is_json=is_json)
                for number, line in enumerate(files.read_lines(source), start=1)
            ]
        encoded: Sequence[Any] = _encoded_labels(predictor, given, source)
    else:
        if table is None:
            given = read_texts(source, predictor, hparams)
        elif len(predictor.columns.kinds) == 1:
            given = [next(iter(one.values())) for one in given]
        encoded = _encode(predictor, given, source, hparams)

    def write(path: Path, part: slice, predictions: list[Prediction]) -> None:
        form = target or path
        if table is not None and form.suffix.lower() in (*TABLES, *WHOLE_TABLES):
            records = [
                _table_record(predictor, record_of(predictor, *pair, hparams)["output"])
                for pair in zip(given[part], predictions, strict=True)
            ]
            pairs = zip(rows[part], records, strict=True)
            table.write_table(path, [row._replace(records=one) for row, one in pairs], form)
        else:
            if hparams.log_results and isinstance(predictor, Predictor):
                texts = [outputs.text_of(one, predictor.field) for one in given[part]]
                _log(texts, predictions, hparams)
            write_predictions(path, predictor, given[part], predictions, hparams)

    return _Decoding(predictor, hparams, given, encoded, name_of, write).run()


def output_lines(
    predictor: Predictor | LabelPredictor, predictions: Sequence[Prediction], hparams: DecodeHParams
) -> list[str]:
    """Returns the values of predictions alone, one line each, for any format of the output."""
    if isinstance(predictor, Predictor):
        return [outputs.one_line(prediction, hparams) for prediction in predictions]
    written = form_of(predictor)
    return [written(prediction.value) for prediction in predictions]


def _table_of(
    path: Path, predictor: Predictor | LabelPredictor, hparams: DecodeHParams
) -> PredictedFile | None:
    """Returns the table of a file; None for a file of lines, or of JSON by field.

    Raises:
      UsageError: settings ask for another form than that of a table.
    """
    columns = predictor.columns
    if outputs.holds_json(path):
        first = next(filter(None, map(str.strip, files.read_lines(path))), "")
        row = outputs.read_json(first, f"{path}, line 1")
        known = {**row, **columns.sample(row)} if isinstance(row, dict) else {}
        if not known or columns.kinds.keys() <= row.keys() or columns.kinds.keys() - known:
            return None
    elif not files.without_packing(path.name.lower()).endswith(_READ_AS_TABLES):
        return None
    if hparams.output_format != "text" or hparams.writes_several:
        raise errors.UsageError(
            f"{path} is a table, which is written back with one answer a row, in the format of "
            "--decode_to_file. Leave output_format, return_beams and write_beam_scores out."
        )
    return PredictedFile(predictor, path, is_strict=True)


def _table_record(
    predictor: Predictor | LabelPredictor, output: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Returns what a table has of an output, by target: the value, and any probability."""
    record: dict[str, dict[str, Any]] = {}
    for name, feature in predictor.features.targets.items():
        found = output[name]
        record[name] = {key: found[key] for key in ("value", "probability") if key in found}
        record[name]["value"] = outputs.table_value(feature, found["value"])
    return record


@dataclasses.dataclass(frozen=True)
class _Decoding:
    """Decoding of inputs to a file, in parts or at once.

    Attributes:
      predictor: predictor to use.
      hparams: decoding settings, including the part.
      given: the inputs as they were given.
      encoded: the encoded inputs.
      name_of: returns the output file of a part.
      write: writes the predictions of the given inputs.
    """

    predictor: Predictor | LabelPredictor
    hparams: DecodeHParams
    given: Sequence[Any]
    encoded: Sequence[Any]
    name_of: Callable[[Shard], Path]
    write: Callable[[Path, slice, list[Prediction]], None]

    def run(self) -> Decoded:
        """Decodes and writes the requested inputs.

        For all parts, decodes those that are missing and writes the joined outputs.

        Raises:
          DecodeError: the journal cannot be written.
          UsageError: another process decodes to the same file; or an existing part was decoded with
            other settings, or has no file to be written to.
        """
        target, shard = self.name_of(Shard()), shard_of(self.hparams)
        is_file = files.is_replaced(target)
        if self.hparams.shards > 1 and not is_file:
            raise errors.UsageError(
                f"{target} is no regular file, and shards={self.hparams.shards} decodes to several "
                "files. Name one with --decode_to_file, or leave the shards out."
            )
        if shard.parts < self.hparams.shards:
            return self._join()
        rows, file = shard.rows(len(self.given)), self.name_of(shard)
        made = self._made_of(rows, shard, made_of(self.predictor, self.hparams)) if is_file else {}
        with journal_of(file if is_file else None, made, keep=shard.parts > 1) as journal:
            decoded = decode(self.predictor, self.encoded[rows], self.hparams, journal)
            self.write(file, rows, decoded.predictions)
        return decoded

    def _join(self) -> Decoded:
        """Decodes the missing parts, and writes the joined outputs."""
        shards = [Shard(number, self.hparams.shards) for number in range(self.hparams.shards)]
        total, common = len(self.given), made_of(self.predictor, self.hparams)
        parts = []
        for shard in shards:
            rows, file = shard.rows(total), self.name_of(shard)
            parts.append((file, rows, self._made_of(rows, shard, common)))
            if journal_path(file).exists():  # Check this before decoding.
                with journal_of(file, parts[-1][-1], keep=True, same=True):
                    pass
        done = []
        for file, rows, made in parts:
            with journal_of(file, made, keep=True, same=True) as journal:
                done.append(decode(self.predictor, self.encoded[rows], self.hparams, journal))
        predictions = [prediction for one in done for prediction in one.predictions]
        self.write(self.name_of(Shard()), slice(0, total), predictions)
        for file, _, _ in parts:
            journal_path(file).unlink(missing_ok=True)
        seconds = sum(one.seconds for one in done)
        return Decoded(predictions, seconds, sum(one.before for one in done))

    def _made_of(self, rows: slice, shard: Shard, common: Mapping[str, Any]) -> Mapping[str, Any]:
        is_label = isinstance(self.predictor, LabelPredictor)
        inputs = self.given[rows] if is_label else (self.encoded[rows], self.given[rows])
        part = {"shard": f"{shard.number} of {shard.parts}"} if shard.parts > 1 else {}
        return {"inputs": digest(inputs), **common, **part}


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
        parts = [one.dataset_name for one in predictor.problem.components]
        stored = [Shards.open(data_dir, name, split).features for name in parts]
        annotations = (n for n in features.kept if all(n in one for one in stored))
        names = [*predictor.given, *annotations]
        columns = [_rows_of_all(predictor, data_dir, split, n, hparams) for n in names]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        inputs = [predictor.stored(row) for row in rows]
    shard = shard_of(hparams)
    own = shard.rows(len(inputs))
    name_of = functools.partial(outputs.decodes_name, base, predictor, hparams)
    for kind in ("decodes", "targets", "inputs"):
        files.check_target(name_of(shard).with_suffix(f".{kind}"))
    fewer = "" if hparams.num_samples >= 0 else "; for the first N: --decode_hparams=num_samples=N"
    reporter.message(f"decoding {own.stop - own.start:,} examples of {split.value}{fewer}")
    texts = _data_texts(predictor, inputs, targets, hparams)

    def write(path: Path, rows: slice, predictions: list[Prediction]) -> None:
        for kind, lines in texts.items():
            outputs.write_outputs(path.with_suffix(f".{kind}"), lines[rows], hparams)
        if hparams.log_results:
            _log(texts["inputs"][rows], predictions, hparams)
        write_predictions(path, predictor, texts["inputs"][rows], predictions, hparams)

    cut = [predictor.cut(ids, hparams) for ids in inputs]
    decoded = _Decoding(predictor, hparams, texts["inputs"], cut, name_of, write).run()
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
            lines = [
                v if isinstance(v, str) else outputs.value_line(feature, v) or str(v)
                for v in values
            ]
            texts[kind] = [outputs.without_breaks(line, hparams) for line in lines]
        else:
            texts[kind] = predictor.written(inputs, rows if kind == "targets" else None)
    return texts


def _rows_of_all(
    predictor: Predictor, data_dir: Path, split: mode.Split, side: str, hparams: DecodeHParams
) -> list[Any]:
    """Returns the ids of a feature's first `num_samples` rows; for a mixture, of its problems in
    turn.  Samples of sounds are arrays.
    """
    rows: list[Any] = []
    for problem in predictor.problem.components:
        mixed = problem is not predictor.problem
        features = problem.features(data_dir) if mixed else predictor.features
        shards = Shards.open(data_dir, problem.dataset_name, split)
        stored = StoredColumn(shards.column(features.columns.get(side, side)))
        left = len(stored) if hparams.num_samples < 0 else hparams.num_samples - len(rows)
        found = map(stored.row, range(min(left, len(stored))))
        rows += [row if row.dtype == np.int16 else row.tolist() for row in found]
    return rows


def _log(texts: Sequence[str], predictions: Sequence[Prediction], hparams: DecodeHParams) -> None:
    for text, prediction in zip(texts, predictions, strict=True):
        logging.info("input:  %s", text)
        logging.info("output: %s", outputs.one_line(prediction, hparams))


def _encoded_labels(
    predictor: LabelPredictor, inputs: Sequence[Input], source: Path
) -> list[EncodedInput]:
    """Returns the encodings of the inputs of a file; errors name the line."""
    samples = [
        _with_files(predictor, one, source, f"{source}, line {number}")
        for number, one in enumerate(inputs, start=1)
    ]
    try:
        return predictor.encode(samples)
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
            field: outputs.from_line(kind, sample[field], source.parent)
            for field, kind in predictor.kinds.items()
            if isinstance(sample[field], str)
        }
    except errors.DataError as error:
        raise errors.DataError(f"{place}: {error}") from None
    return {**sample, **paths}


def write_predictions(
    path: Path,
    predictor: Predictor | LabelPredictor,
    inputs: Sequence[Any],
    predictions: Sequence[Prediction],
    hparams: DecodeHParams,
) -> None:
    """Writes predictions in the format `output_format`, atomically.

    Args:
      path: output file.
      predictor: the predictor that produced them.
      inputs: the given inputs; JSON contains all of their fields, a table those that are read.
      predictions: one per input.
      hparams: output settings.
    """
    if hparams.output_format == "text":
        outputs.write_outputs(path, output_lines(predictor, predictions, hparams), hparams)
        return
    pairs = zip(inputs, predictions, strict=True)
    records = [record_of(predictor, *pair, hparams) for pair in pairs]
    with files.open_target(path) as stream:
        if hparams.output_format == "jsonl":
            stream.writelines(f"{json.dumps(one, ensure_ascii=False)}\n" for one in records)
        elif isinstance(predictor, LabelPredictor):
            outputs.write_table(stream, *table_of(predictor, records))
        else:
            most = max((len(one.hypotheses) for one in predictions), default=1)
            outputs.write_table(stream, *_table_of_texts(predictor, records, most, hparams))


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
    value = outputs.read_json(line, place) if is_json else _json(line)
    if isinstance(value, dict):
        value = predictor.columns.sample(value, place)
        if missing := [field for field in predictor.fields if field not in value]:
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
    predictor: Predictor | LabelPredictor, input_: Any, answer: Prediction, hparams: DecodeHParams
) -> dict[str, Any]:
    """Returns the `jsonl` record of an input: `input`, all its fields, and `output` by target.

    Args:
      predictor: predictor of the answer.
      input_: the input.
      answer: prediction for the input.
      hparams: output settings.
    """
    if isinstance(predictor, LabelPredictor):
        sample = predictor.columns.sample_of(input_)
        output = outputs.answer_record(predictor.features, sample, answer, hparams.num_labels)
        return {"input": dict(sample), "output": output}
    ids, alignments = hparams.identity_output, hparams.write_alignments
    record = prediction_record(answer, ids=ids, alignments=alignments)
    given = input_ if isinstance(input_, dict) else {predictor.field: input_}
    return {"input": given, "output": {predictor.target: record}}


def table_of(
    predictor: LabelPredictor, records: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[list[Any]]]:
    """Returns the `tsv` table of the records of labels: column names, and rows.

    Fields of inputs that the problem does not read are omitted.
    """
    targets, inputs_of = predictor.features.targets, predictor.features.inputs
    header = list(predictor.fields)
    for name, feature in targets.items():
        header += [f"{name}{column}" for column in outputs.table_columns(feature)]
    rows = []
    for record in records:
        row = [
            outputs.table_value(inputs_of[field], value) if field in inputs_of else value
            for field, value in ((field, record["input"][field]) for field in predictor.fields)
        ]
        for name, feature in targets.items():
            row += outputs.table_cells(feature, record["output"][name])
        rows.append(row)
    return header, rows


def _table_of_texts(
    predictor: Predictor, records: Sequence[Mapping[str, Any]], most: int, hparams: DecodeHParams
) -> tuple[list[str], list[list[Any]]]:
    """Returns the `tsv` table of the records of texts with at most `most` hypotheses.

    An alignment is written in the format of word aligners, "0-0 1-2".
    """
    field, target = predictor.field, predictor.target
    more = {"ids": hparams.identity_output, "alignment": hparams.write_alignments}
    fields = ("value", "score", *(name for name, is_written in more.items() if is_written))
    names = ["" if name == "value" else f"_{name}" for name in fields]
    after = ["", *(f"_{place}" for place in range(2, most + 1))]
    header = ["prompt" if field == target else field]
    header += [f"{target}{name}{place}" for place in after for name in names]
    rows = []
    for record in records:
        row, output = [outputs.text_of(record["input"], field)], record["output"][target]
        for hypothesis in output.get("hypotheses", [output]):
            if "alignment" in hypothesis:
                pairs = " ".join(f"{i}-{j}" for i, j in hypothesis["alignment"])
                hypothesis = {**hypothesis, "alignment": pairs}
            row += [hypothesis[name] for name in fields]
        rows.append(row + [None] * (len(header) - len(row)))
    return header, rows


def form_of(predictor: LabelPredictor) -> Callable[[Any], str]:
    """Returns the function that writes a value as a line, in one format for all values.

    A label and a part of a text are written unchanged, except for line breaks, which become spaces.
    Tags are joined by spaces unless some tag contains one.  Anything else, and several targets, are
    written as JSON.
    """
    targets = list(predictor.features.targets.values())

    def written(value: Any) -> str:
        line = outputs.value_line(targets[0], value) if len(targets) == 1 else None
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
