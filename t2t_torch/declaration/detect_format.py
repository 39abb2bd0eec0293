"""Detection of a file's format from its extension and content."""

from __future__ import annotations

import codecs
import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from t2t_torch.data.raw_file import DAMAGED_ARCHIVE, unpack_into
from t2t_torch.errors import DataError
from t2t_torch.files import DAMAGED, open_bytes, read_raw_lines, staged_folder, without_packing
from t2t_torch.readers import formats, idx, jsonl, text_file
from t2t_torch.readers.conll import DOCUMENT_START, FILES
from t2t_torch.readers.spans import annotated, raw_rows
from t2t_torch.readers.tables import COMMA_NUMBER, CONVERT_RETURNS, UNNAMED, picture_of, sheet_of

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
    b"PK\x03\x04": ("a zip archive", "unzip"),
    b"\xd0\xcf\x11\xe0": (
        "a workbook of an old Excel (save it as .xlsx)",
        "soffice --convert-to xlsx",
    ),
    b"PK\x05\x06": ("an empty zip archive", "unzip"),
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
class DetectedFormat:
    """Detected format of a file.

    Attributes:
      format: the format's name.
      options: format options that differ from the defaults.
      doubts: warnings about uncertain results, as sentences.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    doubts: Sequence[str] = ()


def detect_format(path: Path) -> DetectedFormat:
    """Detects the format of a file or folder.

    Raises:
      DataError: it cannot be read, or the format is unknown.
    """
    if path.is_dir() and idx.class_names(path):
        return _class_folders(path)
    check_unpacked(path)
    by_ending = _by_ending(path)
    if by_ending == "excel":
        return _excel(path)
    text = path / _in(path, FILES["words"]) if by_ending == "bio" else path
    encoding, doubts = _encoding(text) if text.is_file() else ("", [])
    made = _detect(path, by_ending, encoding)
    if not encoding:
        return made
    if "encoding" not in formats.FORMATS[made.format].options:
        raise DataError(
            f"{path} has the encoding {encoding}, which the format {made.format} does not read. "
            f"Convert it:  iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > NEW"
        )
    options = {**made.options, "encoding": encoding}
    return DetectedFormat(made.format, options, [*doubts, *made.doubts])


def _detect(path: Path, by_ending: str, encoding: str) -> DetectedFormat:
    if by_ending in ("csv", "tsv"):
        return _table(path, _DELIMITERS if by_ending == "csv" else ("\t",), encoding)
    if by_ending == "conll":
        return _conll(_first_lines(path, encoding))
    if by_ending == "jsonl":
        return _annotated(path, {}, encoding) or DetectedFormat("jsonl")
    if by_ending in ("lines", "squad", "") and path.is_file():
        return _by_content(path, by_ending, encoding)
    if by_ending == "bio" and not any((path / f"{FILES['label']}{end}").exists() for end in _GZ):
        return DetectedFormat(
            "bio", {"files": {role: _in(path, FILES[role]) for role in _WITHOUT_INTENT}}
        )
    return DetectedFormat(by_ending)


_ENCODED = 1 << 24  # bytes read to infer the encoding
_NOT_IN_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MAX_FOREIGN = 0.3  # maximum fraction of letters with accents in Western European text


def _encoding(path: Path) -> tuple[str, list[str]]:
    """Returns the encoding of a text file, empty for UTF-8, and warnings.

    Raises:
      DataError: it is a text of an encoding that cannot be inferred.
    """
    try:
        with open_bytes(path) as file:
            raw = file.read(_ENCODED)
    except (*DAMAGED, OSError):
        return "", []  # its reader reports the problem
    even, odd = raw[:2000:2].count(0), raw[1:2000:2].count(0)
    encoding = ""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif max(even, odd) * 4 > len(raw[:2000:2]) and min(even, odd) * 20 < max(even, odd):
        encoding = "utf-16-le" if odd > even else "utf-16-be"
    if encoding:
        return encoding, [f'{path.name} is UTF-16, so "encoding" is {encoding!r}.']
    marked = [line for line in raw.split(b"\n") if not line.isascii()]
    if len(raw) == _ENCODED:
        marked = marked[:-1]
    if _NOT_IN_TEXT.search(raw) or sum(map(_is_utf8, marked)) * 2 >= len(marked):
        return "", []
    text = raw.decode("cp1252", "replace")
    letters = [one for one in text if one.isalpha()]
    foreign = sum(not one.isascii() for one in letters)
    if "\ufffd" in text or foreign > _MAX_FOREIGN * len(letters):
        raise DataError(
            f"{path} is text, but neither UTF-8 nor Western European (cp1252); its encoding is not "
            "clear. Convert it with the right one, such as cp1251 (Cyrillic), GB18030 or "
            f"SHIFT-JIS:  iconv -f cp1251 -t UTF-8 {shlex.quote(str(path))} > NEW"
        )
    shown = next(line for line in text.splitlines() if not line.isascii())
    at = next(place for place, one in enumerate(shown) if not one.isascii())
    message = (
        f"{path.name} is not UTF-8. It is read as cp1252 (Windows Latin-1), where it says "
        f'{shown[max(0, at - 20) : at + 20]!r}; if that is wrong, change "encoding".'
    )
    return "cp1252", [message]


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _excel(path: Path) -> DetectedFormat:
    name, rows = sheet_of(path)
    filled = [value for value in rows[0][1] if value not in (None, "")]
    header = all(isinstance(value, str) for value in filled)
    doubts = [f"the sheet {name!r} is read, the first that is not empty."]
    options: dict[str, Any] = {"sheet": name}
    if not header or not all(_NAMES.fullmatch(str(value).strip()) for value in filled):
        options["header"] = False
        doubts.append("the first row is read as data, not as column names.")
    return DetectedFormat("excel", options, doubts)


_UNLABELLED = ("unsup", "unlabeled", "unlabelled", "unknown")
_INSPECTED_FILES = 50
MAX_PIXELS = 64  # longest side of a picture that is not scaled


def _class_folders(path: Path) -> DetectedFormat:
    names = idx.class_names(path)
    kinds = {idx.kind_of(file) for name in names for file in idx.files_of(path / name)[:1]}
    if kinds == {"audio"}:
        raise DataError(
            f"{path} holds sounds by class ({', '.join(names[:5])}), which no kind of problem "
            "classifies. Supported are folders of texts (.txt) and of pictures (.png, .jpg) by "
            "class. Speech is transcribed by the kind speech2text, from a list with the columns "
            "path and text: docs/how_to/speech.md."
        )
    options: dict[str, Any] = {}
    doubts = [f"each subfolder is a class: {', '.join(names[:10])}."]
    left_out = [name for name in names if name.lower() in _UNLABELLED]
    if left_out:
        options["classes"] = [name for name in names if name not in left_out]
        doubts = [
            f"each subfolder is a class: {', '.join(options['classes'])}; {', '.join(left_out)} is "
            "left out, as its texts have no class."
        ]
    if foreign := [entry for name in names for entry in idx.foreign_in(path / name)]:
        named = ", ".join(str(one.relative_to(path)) for one in foreign[:5])
        more = f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""
        doubts.append(f"{named}{more}: left out, not of the kind of the other files.")
    if kinds == {"image"}:
        files = [file for name in names for file in idx.files_of(path / name)[:_INSPECTED_FILES]]
        shapes = {shape for file in files if (shape := _shape_of(file))}
        if not shapes:
            raise DataError(f"{path}: none of {len(files)} inspected pictures can be read.")
        height, width, _ = max(shapes)
        if len(shapes) > 1 or max(height, width) > MAX_PIXELS:
            options["encoded"] = True
            doubts.append(
                "the pictures are stored as files, and their centre is scaled when they are read: "
                '"settings" has the size.'
            )
    return DetectedFormat("class_folders", options, doubts)


def _shape_of(file: Path) -> tuple[int, int, int] | None:
    """Returns the shape of a picture; None if it cannot be read, which generating reports."""
    try:
        shape: tuple[int, int, int] = picture_of(file).shape
    except DataError:
        return None
    return shape


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
    if not path.is_file() or without_packing(path.name).lower().endswith((".xlsx", ".xlsm")):
        return
    start = _start(path)
    what, command = next(
        (message for mark, message in _PACKED.items() if start.startswith(mark)), ("", "")
    )
    if start[_TAR_MARK] == b"ustar":
        what, command = "a tar archive", "tar xf"
    if what:
        raise DataError(
            f"{path} is {what}. Unpack it, and give a file, or the folder, that comes out:  "
            f"{command} {shlex.quote(str(path))}"
        )


def _start(path: Path) -> bytes:
    try:
        with open_bytes(path) as file:
            return file.read(_TAR_MARK.stop)
    except (*DAMAGED, OSError):
        return b""  # its reader reports the problem


_UNPACKED = "_unpacked"
_ZIPPED_DOCUMENTS = frozenset(".docx .pptx .odt .ods .odp .epub .jar .npz .pt .pth .apk".split())


def unpacked(path: Path) -> tuple[Path, list[str]]:
    """Unpacks a zip or tar archive beside it; returns its file or folder, and what was done.

    Other files are returned as they are.

    Raises:
      DataError: the archive is damaged or unsafe, or cannot be unpacked there.
    """
    if not path.is_file() or path.suffix.lower() in (".xlsx", ".xlsm"):
        return path, []
    start = _start(path)
    is_zip, is_tar = start.startswith(b"PK\x03\x04"), start[_TAR_MARK] == b"ustar"
    if not is_zip and not is_tar:
        return path, []
    if path.suffix.lower() in _ZIPPED_DOCUMENTS:
        raise DataError(
            f"{path} is not data that can be read: {path.suffix} files are documents or programs. "
            "Save its text or table as CSV, JSON or .txt."
        )
    stem = re.sub(r"\.(zip|tar|tgz|tbz2|txz)$", "", without_packing(path.name), flags=re.IGNORECASE)
    folder = path.with_name(f"{stem}{_UNPACKED}")
    done = [f"{path.name} was unpacked to {folder.name}, which the declaration reads."]
    if folder.exists():
        done = [f"{folder.name} is there, so {path.name} is not unpacked again."]
    else:
        try:
            with staged_folder(folder) as temporary:
                unpack_into(path, temporary, is_zip=is_zip)
        except (*DAMAGED_ARCHIVE, OSError) as error:
            raise DataError(
                f"{path} cannot be unpacked to {folder}: {error}. Unpack it by hand, and give the "
                "file or the folder that comes out."
            ) from None
    inner = [one for one in _visible(folder) if one.name != "__MACOSX"]
    while len(inner) == 1 and inner[0].is_dir() and _split_of(inner[0].name) is None:
        folder = inner[0]
        inner = [one for one in _visible(folder) if one.name != "__MACOSX"]
    return (inner[0] if len(inner) == 1 else folder), done


def _by_ending(path: Path) -> str:
    if not path.exists():
        raise DataError(f"There is no {path}.")
    try:
        return formats.format_of(path)
    except DataError:
        if path.is_dir():
            raise
        return ""


def _first_lines(path: Path, encoding: str = "") -> list[str]:
    bad = text_file.BadRecords("skip")
    read = itertools.islice(text_file.TextFile(path, bad, encoding), _LINES)
    lines = [text_file.without_end(line) for _, line in read if line is not None]
    if bad.count * 2 > len(lines):
        raise DataError(f"{path} is no text: {bad.listed[0]}")
    if len(lines) == 1 and "\r" in lines[0]:
        raise DataError(f"{path} holds carriage returns; {CONVERT_RETURNS}")
    return lines


def _by_content(path: Path, by_ending: str, encoding: str) -> DetectedFormat:
    lines = _first_lines(path, encoding)
    full = [line for line in lines if line.strip()]
    if not full:
        raise DataError(f"{path} is empty, or is no text; there is nothing to inspect.")
    if full[0].lstrip().startswith(("{", "[")) and not _TREE.match(full[0]):
        return _json(path, full, encoding)
    if _TREE.match(full[0]):
        return DetectedFormat("trees")
    words = [line for line in full if not line.startswith("#")]
    if words and all(line.count("\t") == _CONLLU_COLUMNS - 1 for line in words):
        return DetectedFormat("conllu")
    widths = {len(text_file.split_at_blanks(line)) for line in full}
    if len(full) < len(lines) and len(widths) == 1 and min(widths) > 1:
        return _conll(lines)
    if _steady(full, "\t"):
        return _table(path, ("\t",), encoding)
    labelled = _labelled(full)
    if labelled is not None:
        return labelled
    for mark in _DELIMITERS:
        if _is_table(path, full, mark, encoding):
            return _table(path, (mark,), encoding)
    doubt = f"{path.name} is taken for plain text, one text on each line."
    return DetectedFormat("lines", doubts=() if by_ending == "lines" else (doubt,))


def _labelled(full: Sequence[str]) -> DetectedFormat | None:
    """Detects lines that begin with labels: fastText's, TREC's LABEL:fine, or small integers."""
    words = [line.split(None, 1) for line in full]
    firsts = [first for first, *rest in words if rest]
    if sum(first.startswith(_FASTTEXT) for first in firsts) >= _SURE * len(full):
        return DetectedFormat("labelled", {"prefix": _FASTTEXT})
    kinds = {first for first in firsts if _LABEL.fullmatch(first)}
    many = sum(first in kinds for first in firsts) >= _SURE * len(full)
    if not many or not 2 <= len(kinds) <= _MAX_LABELS or len(kinds) * 2 > len(full):
        return None
    return DetectedFormat("labelled", doubts=["the first word of each line is used as its label."])


def _json(path: Path, full: Sequence[str], encoding: str) -> DetectedFormat:
    try:
        first = json.loads(full[0])
    except ValueError:
        first = None
    if isinstance(first, dict) and (len(full) > 1 or annotated(first) is not None):
        return _annotated(path, {}, encoding) or DetectedFormat("jsonl")
    if isinstance(first, list) and len(full) > 1:  # a list on each line
        lines = _annotated(path, {}, encoding)
        if lines is not None:
            return lines
    if '"paragraphs"' in "".join(full[:_LINES]):
        return DetectedFormat("squad")
    loaded = jsonl.load_json(path, encoding)
    records, rows = _array_in(loaded)
    if rows:
        options = {"records": records} if records else {}
        message = [f"the rows are the array at the key {records!r}."] if records else []
        made = _annotated(path, options, encoding)
        if made is None and all(isinstance(row, dict) for row in rows[:_LINES]):
            made = DetectedFormat("json", options)
        if made is not None:
            return DetectedFormat(made.format, made.options, [*message, *made.doubts])
    if jsonl.rows_of_table(loaded):
        return DetectedFormat("json", doubts=["the file is read as a table, not as an array."])
    values = list(loaded.values()) if isinstance(loaded, dict) else [{}]
    if len(full) == 1 and not all(isinstance(value, dict) for value in values):
        return DetectedFormat("jsonl")  # one row
    raise DataError(
        f"{path} is JSON, but neither of SQuAD's form, nor an array of objects, nor one object on "
        "each line. Write one object on each line, as data frames do:  "
        "to_json(..., orient='records', lines=True)"
    )


_DEEPEST = 3  # objects around an array of rows


def _array_in(loaded: Any, depth: int = 0) -> tuple[str, list[Any]]:
    """Returns the longest array of objects, or of annotated texts, and the keys that lead to it."""
    if isinstance(loaded, list):
        good = sum(isinstance(row, dict) or annotated(row) is not None for row in loaded)
        return "", loaded if loaded and good >= _SURE * len(loaded) else []
    best: tuple[str, list[Any]] = ("", [])
    if isinstance(loaded, dict) and depth < _DEEPEST:
        for key, value in loaded.items():
            inner, rows = _array_in(value, depth + 1)
            if len(rows) > max(1, len(best[1])) and "." not in key:
                best = f"{key}.{inner}" if inner else key, rows
    return best


def _annotated(path: Path, options: Mapping[str, Any], encoding: str) -> DetectedFormat | None:
    """Detects texts with spans, or with choices of Label Studio."""
    bad = text_file.BadRecords("skip")
    records = options.get("records", "")
    rows = [row for _, row in itertools.islice(raw_rows(path, bad, records, encoding), _LINES)]
    made = [one for one in map(annotated, rows) if one is not None]
    if len(made) < _SURE * len(rows) or not any(one.spans or one.choices for one in made):
        return None
    left_out = sum(not one.accepted for one in made)
    message = f"{left_out} of {len(made)} texts are left out: their answer is not 'accept'."
    return DetectedFormat("spans", options, [message] if left_out else [])


def _conll(lines: Sequence[str]) -> DetectedFormat:
    starts = any(line.startswith(DOCUMENT_START) for line in lines)
    if not starts:  # the separators of CoNLL-2002: sentences of a dash
        blanks = ["", *(line.strip() for line in lines), ""]
        alone = [
            line
            for before, line, after in zip(blanks, blanks[1:], blanks[2:], strict=False)
            if line and not before and not after
        ]
        starts = sum(line.split()[0] == "-" for line in alone) > 1
    return DetectedFormat("conll", {"skip_docstart": True} if starts else {})


def _steady(lines: Sequence[str], delimiter: str) -> bool:
    """Returns whether nearly all lines have the same number, at least one, of a delimiter."""
    counts = [line.count(delimiter) for line in lines]
    usual = max(set(counts), key=counts.count)
    return usual > 0 and counts.count(usual) >= _SURE * len(counts)


def _table(path: Path, delimiters: Sequence[str], encoding: str) -> DetectedFormat:
    lines = _first_lines(path, encoding)
    if not any(line.strip() for line in lines):
        raise DataError(f"{path} is empty; there is nothing to inspect.")
    if "\r" in next(filter(str.strip, lines)):
        raise DataError(f"{path}: the header holds carriage returns; {CONVERT_RETURNS}")
    if _FOR_SPREADSHEETS.fullmatch(lines[0]):
        raise DataError(
            f"{path}: its first line, {lines[0]}, is for spreadsheets. Delete it:  tail -n +2"
        )
    doubts: list[str] = []
    delimiter = max(delimiters, key=lambda mark: _width(path, mark, encoding, quoting=mark != "\t"))
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
            doubts.append("quotes are read as ordinary characters, because some are not closed.")
    rows = _rows(path, format_name, {**options, "header": False, "encoding": encoding})
    if not rows:
        raise DataError(f"{path} has no row that can be read as {format_name}.")
    if len([line for line in lines if line.strip()]) == 1:
        raise DataError(
            f"{path} has no row but the first, which is taken for the names of its columns "
            f"({', '.join(rows[0])})."
        )
    doubts += _repeated(rows)
    _check_named(path, rows)
    header, why = _header(rows)
    if not header:
        options["header"] = False
        doubts.append(f"the first row is read as data, not as column names: {why}.")
    elif not any(map(_is_usual, rows[0])):
        names = ", ".join(rows[0])
        doubts.append(
            f"the first row is read as the column names ({names}); if it is data, write "
            '"options": {"header": false}.'
        )
    number = _decimal_comma(rows)
    if number:
        options["decimal"] = ","
        doubts.append(f'numbers such as {number!r} are read with a decimal comma ("decimal").')
    return DetectedFormat(format_name, options, doubts)


def _repeated(rows: list[list[str]]) -> list[str]:
    """Removes rows that repeat a header; returns warnings."""
    first = rows[0]
    if first not in rows[1:] or not all(_NAMES.fullmatch(name.strip()) for name in first if name):
        return []
    if not any(map(_is_usual, first)) or len(first) < 2:
        return []
    count = len(rows)
    rows[1:] = [row for row in rows[1:] if row != first]
    return [f"the header is repeated in {count - len(rows)} rows, which are bad and left out."]


def _decimal_comma(rows: Sequence[list[str]]) -> str:
    """Returns a number with a decimal comma if a column has such numbers; otherwise ""."""
    width = len(rows[0])
    for place in range(width):
        held = [row[place] for row in rows[1:] if len(row) == width and row[place].strip()]
        commas = [value for value in held if "," in value]
        decimals = [value for value in commas if len(value.strip().rpartition(",")[2]) != 3]
        if len(commas) * 2 > len(held) and decimals and all(map(COMMA_NUMBER.fullmatch, held)):
            return decimals[0]
    return ""


def _rows(path: Path, format_name: str, options: Mapping[str, Any]) -> list[list[str]]:
    bad = text_file.BadRecords("skip")
    records = formats.open_records(path, format=format_name, bad=bad, options=options)
    return [list(record.values.values()) for record in itertools.islice(records, _LINES)]


def _width(path: Path, delimiter: str, encoding: str, *, quoting: bool) -> tuple[bool, int, int]:
    """Returns the rank of a delimiter: has several columns, good rows, columns."""
    options = {"delimiter": delimiter, "quoting": quoting, "header": False, "encoding": encoding}
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


def _is_table(path: Path, full: Sequence[str], delimiter: str, encoding: str) -> bool:
    """Returns whether the first line seems a header, and nearly all others are rows of it."""
    names = [name.strip() for name in full[0].split(delimiter)]
    if len(names) < 2 or not all(map(_NAMES.fullmatch, names)) or not any(map(_is_usual, names)):
        return False
    options = {"delimiter": delimiter, "quoting": True, "header": False, "encoding": encoding}
    rows = _rows(path, "csv", options)
    return len(rows) >= max(3, _SURE * len(full))


def _check_named(path: Path, rows: Sequence[list[str]]) -> None:
    """Raises DataError if the first row seems a header with duplicate names."""
    first, rest = [name.strip() for name in rows[0]], rows[1:]
    named = [name for name in first if name]
    twice = [name for name, count in Counter(named).items() if count > 1]
    if not twice:
        return
    if not all(_NAMES.fullmatch(name) for name in named) or not any(map(_is_usual, named)):
        return
    if any(
        name in (row[place].strip() for row in rest) for place, name in enumerate(first) if name
    ):
        return
    raise DataError(
        f"{path}: the first row names {twice[0]!r} twice ({', '.join(first)}). Give "
        "each column a name of its own; "
        'if the row is data, write the declaration by hand, with "options": {"header": false}.'
    )


def _is_usual(name: str) -> bool:
    """Returns whether a word of a name is a common column name."""
    return not _USUAL_NAMES.isdisjoint(re.split(r"[\W_\d]+", name.lower()))


def _header(rows: Sequence[list[str]]) -> tuple[bool, str]:
    """Returns whether the first row is a header, and the reason if not."""
    first, rest = rows[0], rows[1:]
    if any(first):  # columns without names, such as the index of a data frame
        first = [name or f"{UNNAMED}{place}" for place, name in enumerate(first)]
    for place, name in enumerate(first):
        if not rows[0][place]:
            continue
        if not _NAMES.fullmatch(name.strip()):
            return False, f"{name[:40]!r} is no name"
        if any(row[place] == name for row in rest):
            return False, f"{name!r} is in other rows of the column too"
    if len(set(first)) < len(first):
        return False, "two of its fields are equal"
    if len(rest) and all(len(name) > 25 for name in first):
        return False, "its fields are long for names"
    return True, ""


_SPLITS = {
    "train": ("train", "training"),
    "eval": ("dev", "valid", "validation", "val", "eval", "trial", "devel", "development"),
    "test": ("test", "testing", "t10k"),
}
_NO_NAMES = ("data", "input", "inputs", "raw", "tok", "tmp", "dataset", "file", "files", "part")
_COUNTED = 200_000  # maximum lines counted
_PARALLEL_ENDING = re.compile(r"\.[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")


@dataclass(frozen=True)
class DetectedFiles:
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


def detect_files(path: Path) -> DetectedFiles:
    """Detects the files of a data set from one of its files or its folder.

    Raises:
      DataError: there is no file, or a folder has several files but none for training.
    """
    if not path.exists():
        raise DataError(f"There is no {path}.")
    path = path if path.name else path.resolve()
    if without_packing(path.name) in FILES.values() and _is_data_set(path.resolve().parent):
        made = detect_files(path.resolve().parent)
        names = ", ".join(one.name for one in _visible(path.resolve().parent))
        message = f"{path.name} is one file of a data set, so the whole folder is read: {names}."
        return replace(made, doubts=[message, *made.doubts])
    if path.is_dir() and not _is_data_set(path):
        return _inside(path)
    return _beside(path, list(_visible(path.parent)))


def _inside(folder: Path) -> DetectedFiles:
    there = list(_visible(folder))
    shards = _parquet_shards(folder)
    if shards:
        return DetectedFiles(folder, shards, _name(folder / "part"))
    known = [one for one in there if one.is_file() or _is_data_set(one)]
    train = [one for one in known if _split_of(one.name) == "train"]
    chosen = train or known
    endings = {_ending(one) for one in chosen}
    parallel = len(chosen) > 1 and all(map(_ends_in_language, chosen))
    parallel = parallel and len({_stem(one) for one in chosen}) == 1
    if chosen and (len(chosen) == 1 or parallel or all("-ubyte" in one.name for one in chosen)):
        return _beside(chosen[0], there)
    if chosen and len(endings) == 1 and not train:
        pattern = f"*{next(iter(endings))}"
        message = f"all {len(chosen)} files are read: {pattern}."
        return DetectedFiles(folder, {"train": pattern}, _name(folder / "part"), [message])
    classes = idx.class_names(folder)
    if len(classes) == 1 and not known:
        raise DataError(
            f"{folder} has one class, {classes[0]!r}; at least two are needed, a subfolder each."
        )
    names = ", ".join(one.name for one in there[:10]) or "nothing"
    raise DataError(
        f"{folder} holds {names}; it is not clear what is to be learnt from. Give the file of the "
        "training data:  t2t-datagen --declare=FILE"
    )


def _parquet_shards(folder: Path) -> dict[str, str | dict[str, str]]:
    """Returns the files of a checkout of huggingface.co, as data/train-00000-of-00004.parquet."""
    for inner in (folder, *(one for one in _visible(folder) if one.is_dir())):
        by_split: dict[str, list[str]] = {}
        for one in sorted(inner.glob("*-of-*.parquet")):
            by_split.setdefault(one.name.partition("-")[0], []).append(one.name)
        splits = {split: name for name in by_split if (split := _split_of(name)) is not None}
        if "train" in splits:
            at = "" if inner == folder else f"{inner.name}/"
            named = {split: by_split[name] for split, name in splits.items()}
            return {
                split: f"{at}{names[0]}" if len(names) == 1 else f"{at}{splits[split]}-*.parquet"
                for split, names in named.items()
            }
    return {}


def _beside(path: Path, there: list[Path]) -> DetectedFiles:
    files: dict[str, str | dict[str, str]] = {"train": path.name}
    partners, doubts = _partners(path, there)
    if partners:
        second = partners[0].name
        files["train"] = {"inputs": path.name, "targets": second}
        doubts.append(f"{second} is used as the texts to generate from the lines of {path.name}.")
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
                doubts.append(f'{other.name} is used as "{split}"; {names} exists, too.')
    return DetectedFiles(path.parent, files, _name(path), doubts)


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
    name = without_packing(path.name)
    name = name[: match.start()] if match else name.partition(".")[0]
    above = [folder.name for folder in path.resolve().parents]
    words = (re.sub(r"\W+", "_", one, flags=re.ASCII).strip("_").lower() for one in [name, *above])
    return next((word for word in words if word and word not in _NO_NAMES), "mine")


def _stem(path: Path) -> str:
    """Returns the name without its extension and ".gz"."""
    return without_packing(path.name).rpartition(".")[0]


def _ending(path: Path) -> str:
    name = without_packing(path.name)
    return f".{name.rpartition('.')[2]}" if "." in name and path.is_file() else ""


def _known(path: Path) -> bool:
    try:
        formats.format_of(path)
    except DataError:
        return False
    return True


def _is_data_set(path: Path) -> bool:
    # A folder of several data sets is not one itself: each subfolder is.
    if not path.is_dir() or (path / "dataset_dict.json").exists():
        return False
    names = idx.class_names(path)
    return _known(path) or (len(names) > 1 and not any(map(_split_of, names)))


def _visible(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if not one.name.startswith("."))
