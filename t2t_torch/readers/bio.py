"""Utterances in three files: words, the tag of each, and the intent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from t2t_torch.errors import UsageError
from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.plain import aligned
from t2t_torch.readers.text_file import column_of_piece, split_at_blanks

FILES = {"words": "seq.in", "tags": "seq.out", "label": "label"}
"""The names of the files in a folder; those of Goo et al. 2018, github.com/MiuLab/SlotGated-SLU."""


def read_bio(path: Path, bad: BadRecords, *, files: Mapping[str, str] = {}) -> Iterator[Record]:
    """Yields {"words": list, "tags": list, "label": str} of each line of the files.

    Words and tags stand between spaces or tabs; other whitespace is part of them.  Bad are lines
    with different numbers of words and tags, or with no word or label.  Places are those of the
    file of words; a column is where the first word without a tag, or the first tag without a word,
    begins.

    Args:
      path: a folder with the `FILES`, packed with gzip (and ".gz" after their names) or not.
      bad: what becomes of bad lines.
      files: by the names in `FILES`, other paths, from the folder; "label" may be left out, and
        then records have none.

    Raises:
      DataError: a file cannot be read, or they have different numbers of lines.
      UsageError: `files` has other names.
    """
    if files and not {"words", "tags"} <= files.keys() <= FILES.keys():
        raise UsageError(
            f"{path}: the option files is for {', '.join(FILES)}; it has {', '.join(files)}."
        )
    folder = path if path.is_dir() or not path.exists() else path.parent
    if files:
        paths = {role: folder / name for role, name in files.items()}
    else:
        paths = {role: _found(folder, name) for role, name in FILES.items()}
    roles = [role for role in FILES if role in paths]
    return _rows({role: paths[role] for role in roles}, bad)


def _found(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.exists() and not (folder / name).exists() else folder / name


def _rows(paths: Mapping[str, Path], bad: BadRecords) -> Iterator[Record]:
    for number, lines in aligned(list(paths.values()), bad):
        words, tags = split_at_blanks(lines[0]), split_at_blanks(lines[1])
        if not words and not tags:
            bad.report(Place(paths["words"], number), "no words")
        elif len(words) != len(tags):
            longer = "words" if len(words) > len(tags) else "tags"
            line = lines[0] if longer == "words" else lines[1]
            column = column_of_piece(line, min(len(words), len(tags)))
            why = f"{len(words)} words, but {len(tags)} tags in {paths['tags'].name}"
            bad.report(Place(paths[longer], number, column), why)
        elif len(lines) == 2:
            yield Record(Place(paths["words"], number), {"words": words, "tags": tags})
        elif label := lines[2].strip(" \t"):
            values = {"words": words, "tags": tags, "label": label}
            yield Record(Place(paths["words"], number), values)
        else:
            bad.report(Place(paths["label"], number), "no label")
