"""Labels for the lines of a file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.artifact.answer import Answer, Input, InputError
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.input_example import example_of
from t2t_torch.decode.journal import Journal, digest
from t2t_torch.decode.json_line import holds_json, read_json
from t2t_torch.decode.label_predictor import EncodedInput, LabelPredictor
from t2t_torch.decode.record import BEST, answer_record, cells_of, columns_of, readable
from t2t_torch.decode.shards import Decoding, Shard, made_of, name_of_shard, shard_of
from t2t_torch.decode.table import write_table
from t2t_torch.decode.target import check_target, goes_to_stdout, open_target
from t2t_torch.errors import DataError
from t2t_torch.features import Choice, ClassLabel, Span, Tags
from t2t_torch.text.lines import read_lines


def label_file(
    predictor: LabelPredictor,
    source: Path,
    target: str | None,
    hparams: DecodeHParams | None = None,
) -> list[str]:
    """Writes what is found for each line of a file, a line for each, and says how long it took.

    A line is read as `input_of` says, and written as `form_of` says, or as `output_format` does.

    Args:
      predictor: of a model that labels.
      source: one input a line.
      target: appears whole or not at all; by default the source's name and ".labels".  What is
        found is kept in a journal until then.
      hparams: `READ_BY_LABELS`.

    Returns:
      the values alone, a line each as `form_of` writes them, whatever the format.

    Raises:
      DataError: a line cannot be read or encoded; names it.
      DecodeError: the journal cannot be written.
      HParamsError: hparams are set that only models of texts read.
      UsageError: the target cannot be written, or is the source, or another process decodes to it.
    """
    how = hparams or DecodeHParams()
    how.check_of_labels()

    def name_of(shard: Shard | None) -> Path:
        if target is None:
            return Path(f"{name_of_shard(source, how, shard)}.labels")
        return name_of_shard(Path(target), how, shard)

    path = name_of(shard_of(how))
    check_target(path, source)
    start = time.perf_counter()
    inputs, encoded = _read(predictor, source)

    def find(rows: slice, journal: Journal) -> list[Answer]:
        return predictor.predict_encoded(encoded[rows], journal)

    def write(file: Path, rows: slice, found: list[Answer]) -> None:
        _write(file, predictor, inputs[rows], found, how)

    def digest_of(rows: slice) -> str:
        return digest(inputs[rows])

    def common() -> Mapping[str, Any]:
        return made_of(predictor, how)

    answers = Decoding(len(inputs), how, name_of, common, digest_of, find, write).run()
    seconds = time.perf_counter() - start
    report = sys.stderr if goes_to_stdout(path) else sys.stdout
    rate = len(answers) / max(seconds, 1e-9)
    told = f"{len(answers):,} inputs in {seconds:.1f} seconds ({rate:,.1f} per second)"
    print(f"{told}: {path}", file=report)
    written = form_of(predictor)
    return [written(answer.value) for answer in answers]


def _read(
    predictor: LabelPredictor, source: Path
) -> tuple[Sequence[Input], Sequence[EncodedInput]]:
    """Returns the inputs of a file, and how the model reads them; names a line that cannot be."""
    is_json = holds_json(source)
    inputs = [
        input_of(predictor, line, f"{source}, line {number}", is_json=is_json)
        for number, line in enumerate(read_lines(source), start=1)
    ]
    try:
        return inputs, predictor.encode(inputs)
    except InputError as error:
        place = f"{source}, line {error.number + 1}"
        raise DataError(f"{place}: {error.why} {how_to_write(predictor)}") from None


def _write(
    path: Path,
    predictor: LabelPredictor,
    inputs: Sequence[Input],
    answers: Sequence[Answer],
    hparams: DecodeHParams,
) -> None:
    """Writes answers in the form of `output_format`."""
    best, written = hparams.num_labels, form_of(predictor)
    with open_target(path) as stream:
        if hparams.output_format == "tsv":
            write_table(stream, *table_of(predictor, inputs, answers, best))
        elif hparams.output_format == "jsonl":
            for given, answer in zip(inputs, answers, strict=True):
                record = record_of(predictor, given, answer, best)
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            stream.writelines(f"{written(answer.value)}\n" for answer in answers)


def input_of(predictor: LabelPredictor, line: str, place: str, *, is_json: bool = False) -> Input:
    """Returns the input that a line gives.

    It is a JSON object of all fields.  Where there is one field alone it may also be its text as it
    is, or, of a field that is a list, a JSON list.

    Args:
      predictor: whose input it is.
      line: without its end.
      place: of the line, for errors.
      is_json: whether each line is JSON, as in a file called .jsonl: a text is then a JSON string,
        or an empty line.

    Raises:
      DataError: it is neither.
    """
    alone = predictor.fields[0] if len(predictor.fields) == 1 else None
    given = read_json(line, place) if is_json else _json(line)
    if isinstance(given, dict):
        missing = [field for field in predictor.fields if field not in given]
        if missing:
            raise DataError(
                f"{place}: the JSON object has no {', '.join(missing)}, but "
                f"{', '.join(given) or 'nothing'}. {how_to_write(predictor)}"
            )
        return given
    if alone is None:
        raise DataError(f"{place} is no JSON object. {how_to_write(predictor)}")
    if alone in predictor.lists and isinstance(given, list):
        return {alone: given}
    if not is_json:
        return line
    if not isinstance(given, str):
        raise DataError(f"{place} is no JSON object: {line[:80]}. {how_to_write(predictor)}")
    return given


def record_of(
    predictor: LabelPredictor, given: Input, answer: Answer, best: int = BEST
) -> dict[str, Any]:
    """Returns what `jsonl` says of an input: `input`, all its fields, and `output` by target.

    Args:
      predictor: whose answer it is.
      given: the input.
      answer: what was found for it.
      best: labels that are told with their probabilities.
    """
    sample = predictor.sample_of(given)
    found = answer_record(predictor.features, sample, answer, best)
    return {"input": dict(sample), "output": found}


def table_of(
    predictor: LabelPredictor, inputs: Sequence[Input], answers: Sequence[Answer], best: int = BEST
) -> tuple[list[str], list[list[Any]]]:
    """Returns what `tsv` says of inputs: the names of its columns, and the rows.

    Args:
      predictor: whose answers they are.
      inputs: as they were given; fields that the problem does not read are no columns.
      answers: as many.
      best: labels that are told with their probabilities.
    """
    targets = predictor.features.targets
    header = list(predictor.fields)
    for name, feature in targets.items():
        header += columns_of(name, feature)
    rows = []
    for given, answer in zip(inputs, answers, strict=True):
        record = record_of(predictor, given, answer, best)
        inputs_of = predictor.features.inputs
        row = [readable(inputs_of.get(f), record["input"][f]) for f in predictor.fields]
        for name, feature in targets.items():
            row += cells_of(feature, record["output"][name])
        rows.append(row)
    return header, rows


def form_of(predictor: LabelPredictor) -> Callable[[Any], str]:
    """Returns what writes a value as a line, in the same form for all values of the target.

    A label and a part of a text are written as they are, a line break in them as a space; tags are
    joined by spaces, unless some tag has one in it; all else, and several targets, is JSON.
    """
    targets = list(predictor.features.targets.values())
    if len(targets) > 1:
        return _as_json
    if isinstance(targets[0], ClassLabel | Choice | Span):
        return _as_text
    if isinstance(targets[0], Tags) and not any(" " in tag for tag in targets[0].encoder.labels):
        return _joined
    return _as_json


def _json(line: str) -> Any:
    """What a line is in JSON; None if it is no object and no list."""
    if not line.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def how_to_write(predictor: LabelPredictor) -> str:
    """Returns what a line should be, with an example."""
    return f"Write a line as a JSON object such as {example_line(predictor)}."


def example_line(predictor: LabelPredictor) -> str:
    """Returns an input as JSON, and what its fields mean where their names do not tell."""
    asked = predictor.problem.asked
    example = example_of(predictor.kinds, predictor.lists)
    known = {field: its for field, its in asked.items() if field in example}
    example |= {field: its.example for field, its in known.items()}
    meanings = "".join(f", where {field} is {its.meaning}" for field, its in known.items())
    return json.dumps(example, ensure_ascii=False) + meanings


def _as_text(value: Any) -> str:
    return " ".join(str(value).splitlines())


def _joined(value: Sequence[str]) -> str:
    return " ".join(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
