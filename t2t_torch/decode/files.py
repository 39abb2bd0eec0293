"""Decoding from file to file, and from a data set."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from t2t_torch.artifact.prediction import Prediction
from t2t_torch.data.shards import Shards
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.json_line import holds_json, read_json
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.progress import DecodeProgress
from t2t_torch.decode.record import prediction_record
from t2t_torch.decode.table import write_table
from t2t_torch.decode.target import check_target, open_target
from t2t_torch.decode.tree_predictor import TreePredictor
from t2t_torch.errors import DataError, DecodeError
from t2t_torch.mode import Split
from t2t_torch.text.lines import read_lines

# What many readers of text files take for the end of a line, in an output that is one line.
_LINE_BREAKS = str.maketrans({"\n": " ", "\r": " "})


class Decoded(NamedTuple):
    """What was decoded, and how long it took.

    Attributes:
      predictions: one per input, in their order.
      seconds: of wall time, loading left out.
    """

    predictions: list[Prediction]
    seconds: float

    def __str__(self) -> str:
        count = len(self.predictions)
        rate = count / max(self.seconds, 1e-9)
        return f"{count:,} inputs in {self.seconds:.1f} seconds ({rate:,.1f} per second)"


def read_inputs(path: Path, delimiter: str = "\n") -> list[str]:
    r"""Reads the inputs of a file, gzip or not.

    What follows the last delimiter is an input unless it is empty; an empty line is an input like
    any other.  White space around an input, so also the "\r" of a line from Windows, is left
    out, as tensor2tensor does.

    Raises:
      DataError: there is no such file, or it is not UTF-8.
    """
    lines: Iterator[str] | list[str] = read_lines(path)
    if delimiter != "\n":
        lines = "\n".join(lines).split(delimiter)
        if not lines[-1].strip():
            lines.pop()
    return [line.strip() for line in lines]


def read_texts(path: Path, predictor: Predictor, hparams: DecodeHParams) -> list[str]:
    """Reads the inputs of a file as `read_inputs` does, or of one called .jsonl, JSON objects.

    Args:
      path: of the file.
      predictor: whose inputs they are: an object has a text under the name of its input, or of the
        target of a language model; a JSON string, or an empty line, is that text.  A parser is
        given objects whole.
      hparams: the delimiter of what is no JSON.

    Raises:
      DataError: as `read_inputs`, or a line is no such JSON; names it.
    """
    if not holds_json(path):
        return read_inputs(path, hparams.separator)
    field = predictor.field
    texts: list[Any] = []
    for number, line in enumerate(read_lines(path), start=1):
        given = read_json(line, f"{path}, line {number}")
        if isinstance(predictor, TreePredictor) and isinstance(given, dict):
            texts.append(given)  # it says itself what is missing
            continue
        text = given.get(field) if isinstance(given, dict) else given
        if not isinstance(text, str):
            raise DataError(
                f"{path}, line {number}: expected a JSON object with a text, "
                f'{{"{field}": "..."}}, but it is {line[:80]}'
            )
        texts.append(text.strip())
    return texts


def decode(
    predictor: Predictor, inputs: Sequence[Sequence[int]], hparams: DecodeHParams
) -> Decoded:
    """Decodes ids, showing how many inputs are done and the time left."""
    start = time.perf_counter()
    found: dict[int, Prediction] = {}
    with DecodeProgress(len(inputs)) as progress:
        for index, prediction in predictor.predict_ids(inputs, hparams):
            found[index] = prediction
            progress.advance()
    predictions = [found[index] for index in range(len(inputs))]
    return Decoded(predictions, time.perf_counter() - start)


def decode_file(
    predictor: Predictor, source: Path, target: Path, hparams: DecodeHParams
) -> Decoded:
    """Writes one output for each input of a file, in their order.

    The target appears whole or not at all; see `open_target`.

    Raises:
      DataError: the source cannot be read, or an input has no ids in the vocabulary.
      UsageError: the target cannot be written, or is the source.
    """
    check_target(target, source)
    texts = read_texts(source, predictor, hparams)
    decoded = decode(predictor, _encode(predictor, texts, source, hparams), hparams)
    if hparams.log_results:
        _log(texts, decoded.predictions, hparams)
    write_predictions(target, predictor, texts, decoded.predictions, hparams)
    return decoded


def _encode(
    predictor: Predictor, texts: Sequence[str], source: Path, hparams: DecodeHParams
) -> list[list[int]]:
    """The ids of a file's inputs.  An input without ids is named by its place in the file."""
    try:
        return predictor.encode(texts, hparams)
    except DataError:
        for number, text in enumerate(texts, start=1):
            try:
                predictor.encode([text], hparams)
            except DataError as error:
                place = f"{number}" if hparams.separator == "\n" else f" input {number}"
                raise DataError(f"{source}:{place}: {error}") from None
        raise


def decode_dataset(
    predictor: Predictor, data_dir: Path, split: Split, base: Path, hparams: DecodeHParams
) -> tuple[Decoded, list[str]]:
    """Decodes a split; writes `.decodes`, `.targets` and `.inputs` beside each other.

    Args:
      predictor: of a problem with inputs.
      data_dir: where t2t-datagen wrote the data.
      split: which part of it.
      base: what the files' names begin with; see `decodes_name`.
      hparams: how to decode.

    Returns:
      What was decoded, and the targets as they were written.

    Raises:
      DataError: there is no such data.
      DecodeError: the problem has no inputs.
      UsageError: a file cannot be written.
    """
    features = predictor.features
    if not features.has_inputs:
        raise DecodeError(
            f"problem {predictor.problem.full_name!r} is a language model: its data has no "
            "inputs to decode. Give it beginnings, one per line, with --decode_from_file."
        )
    sides = [next(iter(side)) for side in (features.inputs, features.targets)]
    inputs, targets = (_rows_of_all(predictor, data_dir, split, side, hparams) for side in sides)
    if isinstance(predictor, TreePredictor):
        columns = [_rows_of_all(predictor, data_dir, split, n, hparams) for n in predictor.given]
        rows = (dict(zip(predictor.given, row, strict=True)) for row in zip(*columns, strict=True))
        inputs = [predictor.stored(row) for row in rows]
    name = decodes_name(base, predictor, hparams)
    for kind in ("decodes", "targets", "inputs"):
        check_target(name.with_suffix(f".{kind}"))
    fewer = "" if hparams.num_samples >= 0 else "; for the first N: --decode_hparams=num_samples=N"
    told = f"decoding {len(inputs):,} examples of {split.value}{fewer}"
    print(told, file=sys.stderr, flush=True)
    decoded = decode(predictor, [predictor.cut(ids, hparams) for ids in inputs], hparams)
    texts = {}
    for kind, side, rows in (
        ("targets", features.targets, targets),
        ("inputs", features.inputs, inputs),
    ):
        feature = next(iter(side.values()))
        if not isinstance(predictor, TreePredictor):
            texts[kind] = [_without_breaks(feature.decode(ids), hparams) for ids in rows]
        else:
            texts[kind] = predictor.written(inputs, rows if kind == "targets" else None)
        write_outputs(name.with_suffix(f".{kind}"), texts[kind], hparams)
    if hparams.log_results:
        _log(texts["inputs"], decoded.predictions, hparams)
    write_predictions(name, predictor, texts["inputs"], decoded.predictions, hparams)
    return decoded, texts["targets"]


def _rows_of_all(
    predictor: Predictor, data_dir: Path, split: Split, side: str, hparams: DecodeHParams
) -> list[list[int]]:
    """The ids of a feature's rows; of a mixture those of its problems, one after another."""
    rows: list[list[int]] = []
    for problem in predictor.problem.components:
        mixed = problem is not predictor.problem
        features = problem.features(data_dir) if mixed else predictor.features
        shards = Shards.open(data_dir, problem.dataset_name, split)
        left = hparams.num_samples - len(rows) if hparams.num_samples >= 0 else -1
        rows += rows_of(shards, features.columns[side], left)
    return rows


def rows_of(shards: Shards, column: str, limit: int = -1) -> list[list[int]]:
    """Returns the ids of a column's rows, the first `limit` of them if it is not negative."""
    rows: list[list[int]] = []
    for values, offsets in shards.column(column):
        for start, end in itertools.pairwise(offsets):
            if 0 <= limit <= len(rows):
                return rows
            rows.append(values[start:end].tolist())
    return rows


def decodes_name(base: Path, predictor: Predictor, hparams: DecodeHParams) -> Path:
    """tensor2tensor's name: `<base>.<model>.<hparams_set>.<problem>.beam4.alpha0.6.decodes`."""
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
    """Writes what was found for an input as tensor2tensor does, on one line.

    A line break in an output becomes a space, and so does the delimiter; with `return_beams`, which
    puts tabs between hypotheses, a tab too.
    """
    cells = []
    for hypothesis in prediction.hypotheses:
        text = hypothesis.text
        if hparams.identity_output:
            text = " ".join(map(str, hypothesis.ids))
        text = _without_breaks(text, hparams)
        cells.append(text.replace("\t", " ") if hparams.writes_several else text)
        if hparams.write_beam_scores:
            cells.append(f"{hypothesis.score:.2f}")
    return "\t".join(cells)


def write_predictions(
    path: Path,
    predictor: Predictor,
    inputs: Sequence[str],
    predictions: Sequence[Prediction],
    hparams: DecodeHParams,
) -> None:
    """Writes what was found in the form of `output_format`; whole or not at all.

    Args:
      path: of the file.
      predictor: that found it.
      inputs: texts.
      predictions: as many.
      hparams: how to write.
    """
    if hparams.output_format == "text":
        write_outputs(path, [one_line(found, hparams) for found in predictions], hparams)
        return
    target = next(iter(predictor.features.targets))
    records = [prediction_record(found, ids=hparams.identity_output) for found in predictions]
    with open_target(path) as stream:
        if hparams.output_format == "jsonl":
            for text, record in zip(inputs, records, strict=True):
                given = text if isinstance(text, dict) else {predictor.field: text}
                whole = {"input": given, "output": {target: record}}
                stream.write(json.dumps(whole, ensure_ascii=False) + "\n")
            return
        told = ("value", "score", *(("ids",) if hparams.identity_output else ()))
        names = ["" if name == "value" else f"_{name}" for name in told]
        places = max((len(found.hypotheses) for found in predictions), default=1)
        after = ["", *(f"_{place}" for place in range(2, places + 1))]
        given = "prompt" if predictor.field == target else predictor.field
        header = [given, *(f"{target}{name}{place}" for place in after for name in names)]
        write_table(
            stream,
            header,
            (
                [text, *_cells(record.get("hypotheses", [record]), told, places)]
                for text, record in zip(inputs, records, strict=True)
            ),
        )


def _cells(hypotheses: Sequence[Mapping[str, Any]], told: Sequence[str], places: int) -> list[Any]:
    """Returns the cells of hypotheses, empty ones where there are fewer than places."""
    cells = [hypothesis[name] for hypothesis in hypotheses for name in told]
    return cells + [None] * (places * len(told) - len(cells))


def write_outputs(path: Path, outputs: Sequence[str], hparams: DecodeHParams) -> None:
    """Writes outputs, the delimiter after each; the file appears whole or not at all."""
    with open_target(path) as stream:
        stream.writelines(output + hparams.separator for output in outputs)


def _without_breaks(text: str, hparams: DecodeHParams) -> str:
    return text.translate(_LINE_BREAKS).replace(hparams.separator, " ")


def _log(texts: Sequence[str], predictions: Sequence[Prediction], hparams: DecodeHParams) -> None:
    for text, prediction in zip(texts, predictions, strict=True):
        logging.info("input:  %s", text)
        logging.info("output: %s", one_line(prediction, hparams))
