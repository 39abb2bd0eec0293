"""Plain text, lines that begin with labels, and files whose lines belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.text_file import Numbered, TextFile, without_end


def read_plain(path: Path, bad: BadRecords) -> Iterator[Record]:
    r"""Yields the lines of a file, also blank ones, as {"text": line}.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of lines that are no text.

    Raises:
      DataError: the file cannot be read.
    """
    for number, line in TextFile(path, bad):
        if line is not None:
            yield Record(Place(path, number), {"text": without_end(line)})


def read_labelled(path: Path, bad: BadRecords, *, prefix: str = "") -> Iterator[Record]:
    """Yields {"label", "coarse", "labels", "text"} of lines that begin with labels.

    Without a prefix, the first word of a line is its label: `DESC:manner How do bees fly ?`, as in
    TREC (Li and Roth 2002). With one, all first words that have it are, as in fastText:
    `__label__bread __label__baking How long does dough rise?`. "label" is the first of "labels",
    "coarse" its part before the first colon. A blank line is no row. Bad is a line without a label
    or without a text.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad lines.
      prefix: of every label; it is left out.

    Raises:
      DataError: the file cannot be read.
    """
    for number, line in TextFile(path, bad):
        rest = (line or "").strip()
        if not rest:
            continue
        labels: list[str] = []
        while rest.startswith(prefix) and (prefix or not labels):
            label, *after = rest.split(None, 1)
            labels.append(label[len(prefix) :])
            rest = after[0] if after else ""
        if not rest or not labels or not all(labels):
            good = labels and all(labels)
            fault = "no text after the label" if good else f"no label: {prefix}LABEL was expected"
            bad.report(Place(path, number), fault)
            continue
        coarse = labels[0].partition(":")[0]
        values = {"label": labels[0], "coarse": coarse, "labels": labels, "text": rest}
        yield Record(Place(path, number), values)


def read_parallel(
    path: Path, bad: BadRecords, *, files: Mapping[str, str] = {}
) -> Iterator[Record]:
    """Yields the lines of several files that belong together, by the names of the files' roles.

    If a line is no text in one of the files, those of the other files are left out with it.  Places
    are those of the first file.

    Args:
      path: the folder of the files, or a file in it.
      bad: what becomes of lines that are no text.
      files: by role, such as "inputs" and "targets", the file's path from the folder.

    Raises:
      DataError: a file cannot be read; or, when the shortest ends, they have different numbers of
        lines, for then nobody knows which line is missing.
      UsageError: there are no files.
    """
    if not files:
        raise UsageError(
            f"{path}: parallel files are given by the option files, such as "
            '{"inputs": "train.en", "targets": "train.de"}.'
        )
    folder = path if path.is_dir() else path.parent
    return _rows({role: folder / name for role, name in files.items()}, bad)


def _rows(paths: Mapping[str, Path], bad: BadRecords) -> Iterator[Record]:
    first = next(iter(paths.values()))
    for number, lines in aligned(list(paths.values()), bad):
        yield Record(Place(first, number), dict(zip(paths, lines, strict=True)))


def aligned(
    paths: list[Path],
    bad: BadRecords,
    read: Callable[[Path, BadRecords], Iterator[Numbered]] = TextFile,
    unit: str = "lines",
) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the lines of files that belong together, without line ends.

    Args:
      paths: the files.
      bad: what becomes of lines that are no text.
      read: what reads a file; what it yields is taken for lines.
      unit: what it yields.

    Raises:
      DataError: a file cannot be read, or they have different numbers of lines.
    """
    files = [read(path, bad) for path in paths]
    for number, lines in enumerate(zip_longest(*files), 1):
        if None in lines:
            _refuse_unequal(paths, [line is not None for line in lines], number - 1, unit)
        texts = [without_end(line) for _, line in lines if line is not None]
        if len(texts) == len(paths):
            yield number, texts


def _refuse_unequal(paths: list[Path], going_on: list[bool], count: int, unit: str) -> None:
    ended = ", ".join(str(path) for path, on in zip(paths, going_on, strict=True) if not on)
    others = ", ".join(str(path) for path, on in zip(paths, going_on, strict=True) if on)
    raise DataError(
        f"{ended} ends after {count:,} {unit}, where {others} goes on; those of the same number "
        "belong together. Make the files parallel."
    )
