"""Detection of a file's format from its extension and content."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.files import open_bytes, read_raw_lines
from t2t_torch.readers.conll import DOCUMENT_START, FILES
from t2t_torch.readers.formats import format_of, open_records
from t2t_torch.readers.jsonl import load_json
from t2t_torch.readers.tables import CONVERT_RETURNS, UNNAMED
from t2t_torch.readers.text_file import BadRecords, TextFile, split_at_blanks, without_end

_LINES = 1000  # maximum lines inspected
_DELIMITERS = (",", "\t", ";", "|")
_NAMES = re.compile(r"[^\W\d][\w .()/#-]{0,39}")
_TREE = re.compile(r"\s*(\(\s*\(?\S|\[(IN|SL):)")
_LABEL = re.compile(r"[^\W\d]\w*:\w+|\d")
_USUAL_NAMES = frozenset(
    "answer body category class content context description document domain id intent judgment "
    "label language line message name query question rating review score sentence sentiment source "
    "split subject summary tag target text title tokens topic translation tree type utterance "
    "words".split()
)
_FOR_SPREADSHEETS = re.compile(r"sep=.")
_TAR_MARK = slice(257, 262)
_PACKED = {
    b"PK\x03\x04": ("a zip archive (so is a table of a spreadsheet: save it as CSV)", "unzip"),
    b"PK\x05\x06": ("an empty zip archive", "unzip"),
    b"BZh": ("packed with bzip2", "bunzip2 --keep"),
    b"\xfd7zXZ\x00": ("packed with xz", "unxz --keep"),
    b"\x28\xb5\x2f\xfd": ("packed with zstd", "unzstd"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x"),
}
"""File types by magic number, with the command that unpacks them."""
_CONLLU_COLUMNS = 10
_GZ = ("", ".gz")
_WITHOUT_INTENT = ("words", "tags")
_MAX_LABELS = 200
_FASTTEXT = "__label__"
_SURE = 0.9  # minimum fraction of the inspected values that must agree


@dataclass(frozen=True)
class Sniffed:
    """Detected format of a file.

    Attributes:
      format: the format's name.
      options: format options that differ from the defaults.
      doubts: warnings about uncertain results, as sentences.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    doubts: Sequence[str] = ()


def sniff(path: Path) -> Sniffed:
    """Detects the format of a file or folder.

    Raises:
      DataError: it cannot be read, or the format is unknown.
    """
    check_unpacked(path)
    by_ending = _by_ending(path)
    if by_ending in ("csv", "tsv"):
        return _table(path, _DELIMITERS if by_ending == "csv" else ("\t",))
    if by_ending == "conll":
        return _conll(_first_lines(path))
    if by_ending in ("lines", "squad", "") and path.is_file():
        return _by_content(path, by_ending)
    if by_ending == "bio" and not any((path / f"{FILES['label']}{end}").exists() for end in _GZ):
        return Sniffed("bio", {"files": {role: _in(path, FILES[role]) for role in _WITHOUT_INTENT}})
    return Sniffed(by_ending)


def _in(folder: Path, name: str) -> str:
    """Returns the name of a file in a folder, with .gz if only that exists."""
    return next((f"{name}{end}" for end in _GZ if (folder / f"{name}{end}").exists()), name)


def check_unpacked(path: Path) -> None:
    """Checks that a file is neither a pipe nor an archive, and uses no compression but gzip.

    Raises:
      DataError: it does; the message says how to unpack it.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(f"{path} is no file: it is a pipe or a device. Write its data to a file.")
    if not path.is_file():
        return
    try:
        with open_bytes(path) as file:
            start = file.read(_TAR_MARK.stop)
    except (OSError, EOFError, zlib.error):
        return  # its reader reports the problem
    what, command = next(
        (told for mark, told in _PACKED.items() if start.startswith(mark)), ("", "")
    )
    if start[_TAR_MARK] == b"ustar":
        what, command = "a tar archive", "tar xf"
    if what:
        raise DataError(
            f"{path} is {what}. Unpack it, and give a file, or the folder, that comes out:  "
            f"{command} {shlex.quote(str(path))}"
        )


def _by_ending(path: Path) -> str:
    if not path.exists():
        raise DataError(f"There is no {path} to look at.")
    try:
        return format_of(path)
    except DataError:
        if path.is_dir():
            raise
        return ""


def _first_lines(path: Path) -> list[str]:
    bad = BadRecords("skip")
    read = itertools.islice(TextFile(path, bad), _LINES)
    lines = [without_end(line) for _, line in read if line is not None]
    if bad.count * 2 > len(lines):
        raise DataError(f"{path} is no text: {bad.listed[0]}")
    if len(lines) == 1 and "\r" in lines[0]:
        raise DataError(f"{path} holds carriage returns; {CONVERT_RETURNS}")
    return lines


def _by_content(path: Path, by_ending: str) -> Sniffed:
    lines = _first_lines(path)
    full = [line for line in lines if line.strip()]
    if not full:
        raise DataError(f"{path} is empty, or is no text; there is nothing to look at.")
    if full[0].lstrip().startswith(("{", "[")) and not _TREE.match(full[0]):
        return _json(path, full)
    if _TREE.match(full[0]):
        return Sniffed("trees")
    words = [line for line in full if not line.startswith("#")]
    if words and all(line.count("\t") == _CONLLU_COLUMNS - 1 for line in words):
        return Sniffed("conllu")
    widths = {len(split_at_blanks(line)) for line in full}
    if len(full) < len(lines) and len(widths) == 1 and min(widths) > 1:
        return _conll(lines)
    if _steady(full, "\t"):
        return _table(path, ("\t",))
    labelled = _labelled(full)
    if labelled is not None:
        return labelled
    for mark in _DELIMITERS:
        if _is_table(path, full, mark):
            return _table(path, (mark,))
    doubt = f"{path.name} is taken for plain text, one text on each line."
    return Sniffed("lines", doubts=() if by_ending == "lines" else (doubt,))


def _labelled(full: Sequence[str]) -> Sniffed | None:
    """Detects lines that begin with labels: fastText's, TREC's LABEL:fine, or small integers."""
    words = [line.split(None, 1) for line in full]
    firsts = [first for first, *rest in words if rest]
    if sum(first.startswith(_FASTTEXT) for first in firsts) >= _SURE * len(full):
        return Sniffed("labelled", {"prefix": _FASTTEXT})
    kinds = {first for first in firsts if _LABEL.fullmatch(first)}
    many = sum(first in kinds for first in firsts) >= _SURE * len(full)
    if not many or not 2 <= len(kinds) <= _MAX_LABELS or len(kinds) * 2 > len(full):
        return None
    return Sniffed("labelled", doubts=["the first word of each line is taken for its label."])


def _json(path: Path, full: Sequence[str]) -> Sniffed:
    try:
        first = json.loads(full[0])
    except ValueError:
        first = None
    one = isinstance(first, dict) and len(full) == 1 and len(first) > 1
    several = one and all(isinstance(value, dict) for value in first.values())
    if isinstance(first, dict) and "data" not in first and not several:
        return Sniffed("jsonl")
    if '"paragraphs"' in "".join(full[:_LINES]):
        return Sniffed("squad")
    if full[0].lstrip().startswith("[") and isinstance(load_json(path), list):
        return Sniffed("json")
    raise DataError(
        f"{path} is JSON, but neither of SQuAD's form, nor an array of objects, nor one object on "
        "each line. Write one object on each line, as data frames do:  "
        "to_json(..., orient='records', lines=True)"
    )


def _conll(lines: Sequence[str]) -> Sniffed:
    starts = any(line.startswith(DOCUMENT_START) for line in lines)
    return Sniffed("conll", {"skip_docstart": True} if starts else {})


def _steady(lines: Sequence[str], delimiter: str) -> bool:
    """Returns whether nearly all lines have the same number, at least one, of a delimiter."""
    counts = [line.count(delimiter) for line in lines]
    usual = max(set(counts), key=counts.count)
    return usual > 0 and counts.count(usual) >= _SURE * len(counts)


def _table(path: Path, delimiters: Sequence[str]) -> Sniffed:
    lines = _first_lines(path)
    if not any(line.strip() for line in lines):
        raise DataError(f"{path} is empty; there is nothing to look at.")
    if "\r" in next(filter(str.strip, lines)):
        raise DataError(f"{path}: the header holds carriage returns; {CONVERT_RETURNS}")
    if _FOR_SPREADSHEETS.fullmatch(lines[0]):
        raise DataError(
            f"{path}: its first line, {lines[0]}, is for spreadsheets. Delete it:  tail -n +2"
        )
    doubts: list[str] = []
    delimiter = max(delimiters, key=lambda mark: _width(path, mark, quoting=mark != "\t"))
    quoting = _quoted(lines, delimiter)
    options: dict[str, Any] = {}
    format_name = "tsv" if delimiter == "\t" else "csv"
    if delimiter not in (",", "\t"):
        options["delimiter"] = delimiter
    if quoting is not (format_name == "csv"):
        if quoting:
            options["quoting"] = True
        elif any('"' in line for line in lines):
            options["quoting"] = False
            doubts.append("quotes are taken for characters like others: some have no end.")
    rows = _rows(path, format_name, {**options, "header": False})
    if not rows:
        raise DataError(f"{path} has no row that can be read as {format_name}.")
    if len([line for line in lines if line.strip()]) == 1:
        raise DataError(
            f"{path} has no row but the first, which is taken for the names of its columns "
            f"({', '.join(rows[0])})."
        )
    _check_named(path, rows)
    header, why = _header(rows)
    if not header:
        options["header"] = False
        doubts.append(f"the first row is taken for data, not for names of columns: {why}.")
    elif not any(map(_is_usual, rows[0])):
        told = ", ".join(rows[0])
        doubts.append(
            f"the first row is taken for the names of the columns ({told}); if it is data, write "
            '"options": {"header": false}.'
        )
    return Sniffed(format_name, options, doubts)


def _rows(path: Path, format_name: str, options: Mapping[str, Any]) -> list[list[str]]:
    bad = BadRecords("skip")
    records = open_records(path, format=format_name, bad=bad, options=options)
    return [list(record.values.values()) for record in itertools.islice(records, _LINES)]


def _width(path: Path, delimiter: str, *, quoting: bool) -> tuple[bool, int, int]:
    """Returns the rank of a delimiter: has several columns, good rows, columns."""
    options = {"delimiter": delimiter, "quoting": quoting, "header": False}
    rows = _rows(path, "csv", options)
    width = len(rows[0]) if rows else 0
    return width > 1, len(rows) if width > 1 else 0, width


def _quoted(lines: Sequence[str], delimiter: str) -> bool:
    """Returns whether quotes enclose fields: nearly all opened ones are closed, on any line."""
    text = "\n".join(lines)
    mark = re.escape(delimiter)
    begins = re.compile(f'(?:^|(?<={mark}))"', re.MULTILINE)
    whole = re.compile(f'"[^"]*(?:""[^"]*)*"(?={mark}|\\s*$)', re.MULTILINE)
    opened = closed = position = 0
    while start := begins.search(text, position):
        field = whole.match(text, start.start())
        position = field.end() if field else start.end()
        if field is None and len(lines) == _LINES and text.find('"', position) < 0:
            break  # it may be closed below the inspected lines
        opened += 1
        closed += field is not None
    if not opened:
        return delimiter != "\t"
    return closed >= _SURE * opened or (delimiter != "\t" and closed * 2 >= opened)


def _is_table(path: Path, full: Sequence[str], delimiter: str) -> bool:
    """Returns whether the first line seems a header, and nearly all others are rows of it."""
    names = [name.strip() for name in full[0].split(delimiter)]
    if len(names) < 2 or not all(map(_NAMES.fullmatch, names)) or not any(map(_is_usual, names)):
        return False
    rows = _rows(path, "csv", {"delimiter": delimiter, "quoting": True, "header": False})
    return len(rows) >= max(3, _SURE * len(full))


def _check_named(path: Path, rows: Sequence[list[str]]) -> None:
    """Raises DataError if the first row seems a header with duplicate or missing names."""
    first, rest = [name.strip() for name in rows[0]], rows[1:]
    named = [name for name in first if name]
    twice = [name for name, count in Counter(named).items() if count > 1]
    without = [str(place) for place, name in enumerate(first, 1) if not name]
    if not twice and len(without) < 2:
        return
    if not all(_NAMES.fullmatch(name) for name in named) or not any(map(_is_usual, named)):
        return
    if any(
        name in (row[place].strip() for row in rest) for place, name in enumerate(first) if name
    ):
        return
    what = f"names {twice[0]!r} twice" if twice else f"does not name columns {', '.join(without)}"
    raise DataError(
        f"{path}: the first row {what} ({', '.join(first)}). Give each column a name of its own; "
        'if the row is data, write the declaration by hand, with "options": {"header": false}.'
    )


def _is_usual(name: str) -> bool:
    """Returns whether a word of a name is a common column name."""
    return not _USUAL_NAMES.isdisjoint(re.split(r"[\W_\d]+", name.lower()))


def _header(rows: Sequence[list[str]]) -> tuple[bool, str]:
    """Returns whether the first row is a header, and the reason if not."""
    first, rest = rows[0], rows[1:]
    if len(first) > 1 and first.count("") == 1:  # the index of a data frame
        first = [name or UNNAMED for name in first]
    for place, name in enumerate(first):
        if not _NAMES.fullmatch(name.strip()) and name != UNNAMED:
            return False, f"{name[:40]!r} is no name"
        if any(row[place] == name for row in rest):
            return False, f"{name!r} is in other rows of the column too"
    if len(set(first)) < len(first):
        return False, "two of its fields are equal"
    if len(rest) and all(len(name) > 25 for name in first):
        return False, "its fields are long for names"
    return True, ""


# Related files: other splits and parallel files.


_SPLITS = {
    "train": ("train", "training"),
    "eval": ("dev", "valid", "validation", "val", "eval", "trial", "devel", "development"),
    "test": ("test", "testing", "t10k"),
}
_NO_NAMES = ("data", "input", "inputs", "raw", "tok", "tmp", "dataset", "file", "files", "part")
_COUNTED = 200_000  # maximum lines counted
_PARALLEL_ENDING = re.compile(r"\.[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")


@dataclass(frozen=True)
class Neighbours:
    """Files of a data set.

    Attributes:
      folder: their folder.
      files: by "train", "eval" and "test", a name in the folder, or by field several parallel
        files.
      name: suggested name of the data set.
      doubts: warnings about uncertain results, as sentences.
    """

    folder: Path
    files: Mapping[str, str | dict[str, str]]
    name: str
    doubts: list[str] = field(default_factory=list)

    @property
    def train(self) -> Path:
        """The training file to inspect."""
        train = self.files["train"]
        return self.folder / (train if isinstance(train, str) else next(iter(train.values())))


def neighbours(path: Path) -> Neighbours:
    """Detects the files of a data set from one of its files or its folder.

    Raises:
      DataError: there is no file, or a folder has several files but none for training.
    """
    if not path.exists():
        raise DataError(f"There is no {path} to look at.")
    path = path if path.name else path.resolve()
    if path.name.removesuffix(".gz") in FILES.values() and _is_data_set(path.resolve().parent):
        made = neighbours(path.resolve().parent)
        names = ", ".join(one.name for one in _visible(path.resolve().parent))
        told = f"{path.name} is one file of a data set, so the whole folder is read: {names}."
        return replace(made, doubts=[told, *made.doubts])
    if path.is_dir() and not _is_data_set(path):
        return _inside(path)
    return _beside(path, list(_visible(path.parent)))


def _inside(folder: Path) -> Neighbours:
    there = list(_visible(folder))
    known = [one for one in there if one.is_file() or _is_data_set(one)]
    train = [one for one in known if _split_of(one.name) == "train"]
    chosen = train or known
    endings = {_ending(one) for one in chosen}
    parallel = len(chosen) > 1 and all(map(_ends_in_language, chosen))
    parallel = parallel and len({_stem(one) for one in chosen}) == 1
    if chosen and (len(chosen) == 1 or parallel or _pictures(chosen)):
        return _beside(chosen[0], there)
    if chosen and len(endings) == 1 and not train:
        pattern = f"*{next(iter(endings))}"
        told = f"all {len(chosen)} files are read: {pattern}."
        return Neighbours(folder, {"train": pattern}, _name(folder / "part"), [told])
    names = ", ".join(one.name for one in there[:10]) or "nothing"
    raise DataError(
        f"{folder} holds {names}; it is not clear what is to be learnt from. Give the file of the "
        "training data:  t2t-datagen --declare=FILE"
    )


def _beside(path: Path, there: list[Path]) -> Neighbours:
    files: dict[str, str | dict[str, str]] = {"train": path.name}
    partners, doubts = _partners(path, there)
    if partners:
        second = partners[0].name
        files["train"] = {"inputs": path.name, "targets": second}
        doubts.append(f"{second} is taken for what is to be written for the lines of {path.name}.")
        if partners[1:]:
            names = " or ".join(one.name for one in partners[1:])
            doubts.append(f'"targets" could also be {names}: a declaration is of two of them.')
    if _split_of(path.name) == "train":
        for split in ("eval", "test"):
            matching = [one for one in there if _is_other_split(path, one, split)]
            if not matching:
                continue
            other = min(matching, key=lambda one: (len(one.name), one.name))
            files[split] = other.name
            if partners:
                found = next((one for one in there if _is_beside(other, one, partners[0])), None)
                if found is None:
                    doubts.append(f"{other.name} has no file beside it as {partners[0].name} is.")
                    del files[split]
                    continue
                files[split] = {"inputs": other.name, "targets": found.name}
            if len(matching) > 1:
                names = ", ".join(one.name for one in matching if one is not other)
                doubts.append(f'{other.name} is taken for "{split}"; there is {names} too.')
    return Neighbours(path.parent, files, _name(path), doubts)


def _partners(path: Path, there: list[Path]) -> tuple[list[Path], list[str]]:
    """Returns the parallel files in other languages, one per language, and warnings."""
    if not _ends_in_language(path):
        return [], []
    others = {_ending(one): one for one in there if _stem(one) == _stem(path)}
    others = {end: one for end, one in others.items() if end != _ending(path)}
    partners, doubts = [], []
    count = _count_lines(path)
    for one in filter(_ends_in_language, others.values()):
        counted = _count_lines(one)
        if counted == count:
            partners.append(one)
        else:
            doubts.append(
                f"{one.name} has {counted:,} lines and {path.name} {count:,}, so they are not "
                "taken for parallel files."
            )
    return partners, doubts


def _count_lines(path: Path) -> int:
    """Returns the number of lines, at most `_COUNTED`."""
    return sum(1 for _ in itertools.islice(read_raw_lines(path), _COUNTED))


def _is_beside(first: Path, one: Path, partner: Path) -> bool:
    """Returns whether a file is parallel to a split's first file as `partner` is in training."""
    return _stem(one) == _stem(first) and _ending(one) == _ending(partner)


def _ends_in_language(path: Path) -> bool:
    """Returns whether a file's extension may be a language code, as in train.en."""
    return bool(_PARALLEL_ENDING.fullmatch(_ending(path))) and not _known(path)


def _is_other_split(path: Path, other: Path, split: str) -> bool:
    """Returns whether a file belongs to another split, by its name."""
    if other.is_dir() is not path.is_dir() or _split_of(other.name) != split:
        return False
    if _ending(other) != _ending(path):
        return False
    return _words(other)[0].startswith(_words(path)[0]) and (
        not path.name.endswith(("-ubyte", "-ubyte.gz")) or "images" in other.name
    )


def _words(path: Path) -> tuple[str, str]:
    """Returns the text before and after the split's name in a file name."""
    match = _split_match(path.name)
    return (path.name[: match.start()], path.name[match.end() :]) if match else (path.name, "")


def _split_match(name: str) -> re.Match[str] | None:
    words = "|".join(word for held in _SPLITS.values() for word in held)
    return re.search(rf"(?<![A-Za-z0-9])({words})(?![A-Za-z])", name, re.IGNORECASE) or re.match(
        r"(t10k)", name
    )


def _split_of(name: str) -> str | None:
    match = _split_match(name)
    if match is None:
        return None
    return next(split for split, held in _SPLITS.items() if match[1].lower() in held)


def _name(path: Path) -> str:
    match = _split_match(path.name)
    name = path.name.removesuffix(".gz")
    name = name[: match.start()] if match else name.partition(".")[0]
    above = [folder.name for folder in path.resolve().parents]
    words = (re.sub(r"\W+", "_", one, flags=re.ASCII).strip("_").lower() for one in [name, *above])
    return next((word for word in words if word and word not in _NO_NAMES), "mine")


def _stem(path: Path) -> str:
    """Returns the name without its extension and ".gz"."""
    return path.name.removesuffix(".gz").rpartition(".")[0]


def _ending(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return f".{name.rpartition('.')[2]}" if "." in name and path.is_file() else ""


def _known(path: Path) -> bool:
    try:
        format_of(path)
    except DataError:
        return False
    return True


def _is_data_set(path: Path) -> bool:
    # A folder of several data sets is not one itself: each subfolder is.
    return path.is_dir() and _known(path) and not (path / "dataset_dict.json").exists()


def _pictures(chosen: list[Path]) -> bool:
    return all("-ubyte" in one.name for one in chosen)


def _visible(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if not one.name.startswith("."))
