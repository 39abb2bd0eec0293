"""Data sets of the Hugging Face library `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError, UsageError, install_extra
from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.jsonl import with_dotted

MARKS = ("dataset_info.json", "dataset_dict.json")
"""Files that a data set, or a dictionary of them, that was saved on disk has."""


_BATCH_ROWS = 256


def read_huggingface(
    path: Path, bad: BadRecords, *, split: str = "", hub: str = "", config: str = ""
) -> Iterator[Record]:
    """Yields the rows of a data set, by column.

    What is nested in a column is there too, by names such as "a.b", as in `read_jsonl`.  Class
    numbers are given as the names of the classes (None for -1, "no label"), pictures as uint8
    arrays [height, width, channels].  A place has the number of the row, from 1.

    Args:
      path: the folder that `save_to_disk` wrote; not read if `hub` is given.
      bad: what becomes of rows that the library cannot decode.
      split: the name of one of several data sets, such as "train"; for the hub also a part of it,
        such as "train[:10%]".
      hub: the name of a data set at huggingface.co, to be downloaded.
      config: the name of one of its configurations.

    Raises:
      DataError: the library is not installed, or the data set or split is not there.
      UsageError: `config` is given without `hub`.
    """
    if config and not hub:
        raise UsageError("The option config is for the option hub, which is not given.")
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"{hub or path} is read with the library datasets:  {install_extra('hf')}"
        ) from None
    if hub:
        return _rows(Path(hub), _from_hub(datasets, hub, config, split), bad)
    return _rows(path, _from_disk(datasets, path, split), bad)


def _from_hub(datasets: Any, hub: str, config: str, split: str) -> Any:
    if not split:
        raise UsageError(f"{hub}: name one of its splits with the option split, such as train.")
    try:
        return datasets.load_dataset(hub, config or None, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"Cannot load {hub} ({config or 'default'}, {split}): {error}") from None


def _from_disk(datasets: Any, path: Path, split: str) -> Any:
    if not any((path / mark).exists() for mark in MARKS):
        raise DataError(
            f"{path} is no folder that save_to_disk wrote. To download a data set from "
            "huggingface.co, give its name with the option hub."
        )
    try:
        loaded = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"Cannot load {path}: {error}") from None
    if isinstance(loaded, datasets.DatasetDict):
        if split not in loaded:
            raise DataError(
                f"{path} holds {', '.join(loaded)}, and the option split says {split!r}. Name one "
                "that is there."
            )
        return loaded[split]
    if split and str(loaded.split) not in ("None", split):
        raise DataError(f"{path} is the split {loaded.split}, and the option split says {split}.")
    return loaded


def _rows(path: Path, rows: Any, bad: BadRecords) -> Iterator[Record]:
    plain = _plain_columns(rows.features)
    for start in range(0, len(rows), _BATCH_ROWS):
        taken = range(start, min(start + _BATCH_ROWS, len(rows)))
        for number, row in enumerate(_decoded(rows, taken), start + 1):
            place = Place(path, number, unit="row")
            if isinstance(row, Exception):
                bad.report(place, f"cannot be decoded: {row}")
                continue
            for name, kind in rows.features.items():
                if name not in plain:
                    row[name] = _value(kind, row[name])
            yield Record(place, with_dotted(row))


def _plain_columns(features: Any) -> set[str]:
    """Returns the columns of numbers and texts alone, whose values are as they are."""
    described = {name: repr(kind) for name, kind in features.items()}
    return {
        name for name, of in described.items() if "ClassLabel(" not in of and "Image(" not in of
    }


def _value(kind: Any, value: Any) -> Any:
    """Returns a value with names in place of class numbers, and arrays in place of pictures."""
    import datasets

    if value is None:
        return None
    if isinstance(kind, datasets.ClassLabel):
        return kind.int2str(value) if value >= 0 else None
    if isinstance(kind, datasets.Image):
        import numpy as np

        picture = value if value.mode in ("L", "RGB") else value.convert("RGB")
        return np.asarray(picture).reshape(picture.height, picture.width, -1)
    if isinstance(kind, dict):
        return {name: _value(kind[name], inner) for name, inner in value.items()}
    inner = kind[0] if isinstance(kind, list) else getattr(kind, "feature", None)
    if isinstance(value, list) and inner is not None:
        return [_value(inner, item) for item in value]
    if isinstance(value, dict) and isinstance(inner, dict):
        # The library stores a sequence of objects as an object of sequences.
        return {name: [_value(inner[name], item) for item in held] for name, held in value.items()}
    return value


def _decoded(rows: Any, taken: range) -> list[dict[str, Any] | Exception]:
    """Returns rows, or in place of one why it cannot be decoded."""
    try:
        columns = rows[taken.start : taken.stop]
    except (OSError, ValueError):
        return [_row(rows, i) for i in taken]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _row(rows: Any, i: int) -> dict[str, Any] | Exception:
    try:
        return dict(rows[i])
    except (OSError, ValueError) as error:
        return error
