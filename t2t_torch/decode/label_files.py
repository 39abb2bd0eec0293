"""Labels for the lines of a file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from t2t_torch.decode.label_predictor import Input, LabelPredictor
from t2t_torch.decode.target import check_target, goes_to_stdout, open_target
from t2t_torch.errors import DataError
from t2t_torch.text.lines import read_lines


def label_file(predictor: LabelPredictor, source: Path, target: str | None) -> None:
    """Writes what is found for each line of a file, a line for each, and says how long it took.

    A line is a text, or a JSON object of all fields where an input has several.  A label, or tags
    joined by spaces, are written as they are; all else as JSON.

    Args:
      predictor: of a model that labels.
      source: one input a line.
      target: appears whole or not at all; by default the source's name and ".labels".

    Raises:
      DataError: a line cannot be read or encoded; names it.
      UsageError: the target cannot be written, or is the source.
    """
    path = Path(target or f"{source}.labels")
    check_target(path, source)
    inputs = [
        _input(predictor, line, f"{source}, line {number}")
        for number, line in enumerate(read_lines(source), start=1)
    ]
    start = time.perf_counter()
    try:
        values = predictor(inputs)
    except DataError as error:
        raise DataError(f"{source}: {error} (counted from 0).") from None
    seconds = time.perf_counter() - start
    with open_target(path) as stream:
        stream.writelines(f"{_line(value)}\n" for value in values)
    report = sys.stderr if goes_to_stdout(path) else sys.stdout
    rate = len(values) / max(seconds, 1e-9)
    told = f"{len(values):,} inputs in {seconds:.1f} seconds ({rate:,.1f} per second)"
    print(f"{told}: {path}", file=report)


def _input(predictor: LabelPredictor, line: str, place: str) -> Input:
    if len(predictor.fields) == 1 and not line.startswith("{"):
        return line
    try:
        given = json.loads(line)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        if len(predictor.fields) == 1:
            return line
        example = json.dumps(dict.fromkeys(predictor.fields, "..."))
        raise DataError(f"{place}: expected a JSON object such as {example}")
    return given if set(predictor.fields) <= given.keys() or len(predictor.fields) > 1 else line


def _line(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("\n", " ")
    if isinstance(value, list) and all(isinstance(x, str) and " " not in x for x in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False)
