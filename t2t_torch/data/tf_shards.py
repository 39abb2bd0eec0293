"""Which of tensor2tensor's files a folder holds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.mode import Split

_MAX_NAMED = 10


def find_shards(folder: Path, name: str) -> Mapping[Split, Sequence[Path]]:
    """Returns the shards of each split of a data set that is there, in order.

    They are called `NAME-train-00000-of-00100`, `NAME-dev-...` and `NAME-test-...`.  Those that
    tensor2tensor had not shuffled, `NAME-unshuffled-...`, are of a run that was not finished.

    Raises:
      DataError: there is no training data, a shard is missing, or there are two sets of shards.
    """
    found: dict[Split, dict[int, set[int]]] = {split: defaultdict(set) for split in Split}
    pattern = re.compile(rf"{re.escape(name)}-(train|dev|test)-(\d{{5}})-of-(\d{{5}})")
    unfinished = 0
    for entry in _entries(folder):
        if match := pattern.fullmatch(entry):
            found[Split(match[1])][int(match[3])].add(int(match[2]))
        unfinished += entry.startswith((f"{name}-unshuffled-", f"{name}-train-unshuffled-"))
    if not found[Split.TRAIN]:
        hint = ""
        if unfinished:
            hint = (
                f" There are {unfinished} unshuffled ones, of a t2t-datagen that was not finished."
            )
        raise DataError(
            f"{folder} has no files {name}-train-00000-of-..., as tensor2tensor writes them.{hint} "
            f"{_names(folder)}"
        )
    shards = {}
    for split, counts in found.items():
        if len(counts) > 1:
            told = " and ".join(f"{name}-{split.value}-...-of-{count:05d}" for count in counts)
            raise DataError(f"{folder} has shards of two data sets, {told}. Move one set away.")
        for count, numbers in counts.items():
            shards[split] = _complete(folder, f"{name}-{split.value}", count, numbers)
    return shards


def vocabularies(folder: Path) -> list[str]:
    """The names of the vocabulary files in a folder."""
    return sorted(entry for entry in _entries(folder) if entry.startswith("vocab."))


def _complete(folder: Path, stem: str, count: int, numbers: set[int]) -> list[Path]:
    files = [folder / f"{stem}-{index:05d}-of-{count:05d}" for index in range(count)]
    missing = [file.name for index, file in enumerate(files) if index not in numbers]
    if missing:
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        raise DataError(
            f"{folder} has {count - len(missing)} of {count} shards {stem}; missing: "
            f"{', '.join(missing[:_MAX_NAMED])}{more}. Copy them there too."
        )
    return files


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise DataError(
            f"Cannot read the folder of TFRecords, {folder}: {error.strerror}."
        ) from None


def _names(folder: Path) -> str:
    """Says which data sets there are."""
    shard = re.compile(r"(.+?)(-unshuffled)?-(train|dev|test)-\d{5}-of-\d{5}")
    names = {match[1] for entry in _entries(folder) if (match := shard.fullmatch(entry))}
    there = ", ".join(sorted(names)) or "none"
    return f"There is data of: {there}. Name the folder or the problem that was meant."
