"""Files of a data set and its splits, by their names and content; archives are unpacked."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from t2t_torch.atomic_files import staged_folder
from t2t_torch.data.raw_file import DAMAGED_ARCHIVE, unpack_into
from t2t_torch.errors import DataError, listed
from t2t_torch.files import read_raw_lines, without_packing
from t2t_torch.readers import idx
from t2t_torch.readers.conll import FILES
from t2t_torch.readers.detection import DetectedFormat, detect_format, rank_formats
from t2t_torch.readers.formats import open_records, usual_format_of
from t2t_torch.readers.head import Head, encoding_of
from t2t_torch.readers.text_file import BadRecords

_SPLITS = {
    "train": ("train", "training"),
    "eval": tuple("dev valid validation val eval trial devel development heldout held_out".split()),
    "test": ("test", "testing", "t10k", "holdout", "hold_out"),
}
_LETTERED = {"testa": "eval", "testb": "test"}  # of CoNLL-2003
_WORDS = (*_LETTERED, *itertools.chain.from_iterable(_SPLITS.values()))
_SPLIT = re.compile(  # also in sampleTest and MailTrainingSet
    r"(?:(?<![A-Za-z0-9])|(?-i:(?<=[a-z])(?=[A-Z])))"
    rf"({'|'.join(sorted(_WORDS, key=len, reverse=True))})(?:_?sets?)?"
    r"(?![A-Za-z])",
    re.IGNORECASE,
)
_NO_NAMES = ("data", "input", "inputs", "raw", "tok", "tmp", "dataset", "file", "files", "part")
_NO_DATA = re.compile(
    r"(?:readme|licen[cs]e|copying|citation|changelog|authors|notice|makefile|dataset_infos)\b.*"
    r"|.*\.(?:md|rst|py|sh|ipynb|lock|yaml|yml|toml|cfg|vocab|ids)",
    re.IGNORECASE,
)
_COUNTED = 200_000  # maximum lines counted
_INSPECTED = 200  # files whose forms are compared
_FEWEST_LINES = 10  # of a class
_LIKELY = 0.6  # confidence in the format of a file of data
_NO_LANGUAGE = "pos|neg|tar|zip|bin|dat|log|out|bak|pdf|doc|wav|mp3|png|jpg|npz|pkl"
_LANGUAGE = re.compile(rf"\.(?!{_NO_LANGUAGE})([a-z]{{2,3}})(?:[-_][A-Za-z]{{2,4}})?")
_PAIR_OF_LANGUAGES = re.compile(r"(?<![A-Za-z])([a-z]{2,3})[-_]([a-z]{2,3})(?![A-Za-z])")
_MARKUP_LINE = re.compile(r"\s*<(url|talkid|keywords|speaker|reviewer|translator|doc)\b[^>]*>.*")


@dataclass(frozen=True)
class DetectedFiles:
    """Files of a data set.

    Attributes:
      folder: their folder.
      files: by "train", "eval" and "test", their JSON form in a declaration: a name in the folder,
        one with the values of a column, or by field several parallel files.
      name: suggested name of the data set.
      doubts: warnings about uncertain results, as sentences.
      format: the format, if the files say it.
    """

    folder: Path
    files: Mapping[str, str | dict[str, Any]]
    name: str
    doubts: list[str] = field(default_factory=list)
    format: DetectedFormat | None = None

    def file(self, split: str) -> Path:
        """Returns the file of a split to inspect: of parallel files, or of a pattern, the first."""
        name = self.files[split]
        name = name if isinstance(name, str) else next(iter(name.values()))
        path = self.folder / name
        return path if path.exists() else next(iter(sorted(self.folder.glob(name))), path)

    @property
    def is_parallel(self) -> bool:
        """True for several files whose lines belong together."""
        train = self.files["train"]
        return not isinstance(train, str) and "where" not in train


def detect_files(path: Path) -> DetectedFiles:
    """Detects the files of a data set from one of its files or its folder.

    Raises:
      DataError: there is no file, or a folder has several files but none for training.
    """
    if not path.exists():
        raise DataError(f"There is no {path}.")
    if not path.is_file() and not path.is_dir():
        raise DataError(f"{path} is no file: it is a pipe or a device. Write its data to a file.")
    path = path if path.name else path.resolve()
    if without_packing(path.name) in FILES.values() and _is_data(path.resolve().parent):
        made = detect_files(path.resolve().parent)
        names = ", ".join(one.name for one in visible(path.resolve().parent))
        message = f"{path.name} is one file of a data set, so the whole folder is read: {names}."
        return replace(made, doubts=[message, *made.doubts])
    if path.is_dir() and not _is_data(path):
        made = _inside(path)
        unread = _unread(made, path)
    else:
        made = _beside(path, visible(path.parent))
        is_like = split_of(path.name) and _parts(path)[0]
        unread = [one for one in _unread(made, path.parent) if split_of(one.name)]
        unread = [one for one in unread if _parts(one)[0] == is_like]
    doubts = [f"not read: {listed(one.name for one in unread)}."] if unread else []
    return replace(made, doubts=[*made.doubts, *doubts])


def _unread(made: DetectedFiles, folder: Path) -> list[Path]:
    """Returns the entries of a folder of which nothing is read, without those that are no data."""
    named = made.files.values()
    names = [one for v in named for one in ([v] if isinstance(v, str) else v.values())]
    found = {(made.folder / name).resolve() for name in names}
    found |= {one.resolve() for name in names for one in made.folder.glob(name)}
    read = found | {above for one in found for above in one.parents}
    return [
        one
        for one in visible(folder)
        if (real := one.resolve()) not in read and found.isdisjoint(real.parents)
        if not _NO_DATA.fullmatch(one.name) and "-ubyte" not in one.name
        if idx.kind_of(one) not in ("audio", "image")
    ]


def _inside(folder: Path) -> DetectedFiles:
    media = [one for one in visible(folder) if idx.kind_of(one) in ("audio", "image")]
    others = (one for one in visible(folder) if one not in media)
    there = [one for one in others if not _NO_DATA.fullmatch(one.name)]
    by_language = [one for one in there if one.is_file() and _language(one)]
    known = list(filter(_is_data, there)) or by_language
    inside = {} if known else _in_subfolders(folder)
    known = known or [files[0] for files in inside.values() if len(files) == 1]
    if not known and (made := _of_split_folders(folder, inside)):
        return made
    above = (folder.resolve(), *folder.resolve().parents)
    folders = [one for one in there if one.is_dir() and one.resolve() not in above]
    if folders and not known and (len(folders) == 1 or not inside):
        return detect_files(max(folders, key=_size))
    is_named = bool(known)
    known = known or [one for one in there if one.is_file() and _form(one)[0] == "lines"]
    splits = [_split_of_path(one, folder) for one in known]
    train = [one for one, split in zip(known, splits, strict=True) if split == "train"]
    train = train or [one for one in by_language if split_of(one.name) == "train"]
    are_alike = len(set(map(_ending, known))) == 1 < len(known) == len(set(splits))
    if are_alike and not train:
        named = dict(zip(splits, known, strict=True))
        columns = set().union(*(_form(one)[1] for split, one in named.items() if split))
        if None in named and columns.isdisjoint(_form(named[None])[1]):
            del named[None]  # a table of something else
        first = named.pop(None, None) or named.pop("eval", None) or named.pop("test")
        files = {"train": first} | {str(split): one for split, one in named.items()}
        message = f"{first.name} is read for training, beside files that are named as splits."
        relative = {split: _relative(one, folder) for split, one in files.items()}
        return DetectedFiles(folder, relative, _name(first), [message])
    chosen = train or known
    parallel = len(chosen) > 1 and len({_stem(one) for one in chosen}) == 1
    parallel = parallel and all(map(_language, chosen))
    if len(train) == 2 and not parallel and (made := _of_two_columns(folder, known, train)):
        return made
    if chosen and (len(chosen) == 1 or parallel or all("-ubyte" in one.name for one in chosen)):
        return _beside(chosen[0], known if chosen[0].parent != folder else visible(folder), folder)
    if train and is_named and (made := _of_most_splits(folder, known)):
        return made
    if not any(splits) and (made := _of_lines(folder, known)):
        return made
    plain = [one for one, split in zip(known, splits, strict=True) if not split]
    most = 2 * sum(map(_size, plain)) > sum(map(_size, known))  # and the splits of other data
    if plain and most and (made := _of_one_form(folder, plain)):
        return made
    names = ", ".join(one.name for one in visible(folder)[:10]) or "nothing"
    if media:
        raise DataError(
            f"{folder} holds {len(media):,} sounds or pictures ({names}) without classes or texts. "
            "Put them into a subfolder for each class; for sounds a CSV file with the columns path "
            "and label, or path and text, is read, too."
        )
    raise DataError(
        f"{folder} holds {names}; it is not clear what is to be learnt from. Give the file of the "
        "training data:  t2t-datagen --declare=FILE"
    )


def _in_subfolders(folder: Path) -> dict[str, list[Path]]:
    """Returns the files of data of each subfolder that is named as a split."""
    return {
        inner.name: [
            one for one in visible(inner) if not _NO_DATA.fullmatch(one.name) and _is_data(one)
        ]
        for inner in visible(folder)
        if inner.is_dir() and split_of(inner.name)
    }


def _of_split_folders(folder: Path, inside: Mapping[str, Sequence[Path]]) -> DetectedFiles | None:
    """Returns the tables in the folder of each split, or files of a class each; None for other
    files, or without a folder for training.
    """
    by_split = {str(split_of(name)): name for name, own in sorted(inside.items()) if own}
    files = list(itertools.chain.from_iterable(inside.values()))
    if "train" not in by_split or len({_ending(one) for one in files}) != 1:
        return None
    if all(usual_format_of(one) not in (None, "lines") for one in files):
        patterns = {split: f"{name}/*{_ending(files[0])}" for split, name in by_split.items()}
        message = f"all files of {', '.join(inside)} are read."
        return DetectedFiles(folder, {**patterns}, _name(folder / "part"), [message])
    train = by_split["train"]
    are_alike = len({tuple(one.name for one in inside[name]) for name in by_split.values()}) == 1
    made = _of_lines(folder / train, inside[train]) if are_alike else None
    if made is None or made.format is None:
        return None
    return replace(made, folder=folder, files={**by_split}, name=_name(folder / "part"))


def _beside(path: Path, there: Sequence[Path], folder: Path | None = None) -> DetectedFiles:
    """Returns the files of a data set with a training file.

    Args:
      path: the training file.
      there: the other files that are known.
      folder: the folder of the data set, if not that of the file.
    """
    folder = folder or path.parent
    files: dict[str, str | dict[str, str]] = {"train": _relative(path, folder)}
    partners, doubts = _partners(path, there)
    made = DetectedFormat("lines") if partners else None
    if partners:
        second = partners[0].name
        files["train"] = {"inputs": path.name, "targets": second}
        doubts.append(f"{second} is used as the texts to generate from the lines of {path.name}.")
        if partners[1:]:
            names = " or ".join(one.name for one in partners[1:])
            doubts.append(f'"targets" could also be {names}: a declaration is of two of them.')
        lines = map(_MARKUP_LINE.match, Head(path).full_lines)  # as in IWSLT's train.tags
        if marks := dict.fromkeys(mark[1] for mark in lines if mark):
            made = DetectedFormat("lines", {"talks": True})
            doubts.append(
                f"lines of {path.name} are markup ({', '.join(f'<{one}>' for one in marks)}) and "
                "are left out; titles and descriptions are kept as texts."
            )
    for split in ("eval", "test") if _split_of_path(path, folder) == "train" else ():
        matching = [one for one in there if _is_other_split(path, one, split, folder)]
        if not matching:
            continue
        other = min(matching, key=lambda one: _distance(path, one))
        if not partners:
            files[split] = _relative(other, folder)
            continue
        ends = _stem(other), _ending(partners[0])
        if found := next((one for one in there if (_stem(one), _ending(one)) == ends), None):
            files[split] = {"inputs": other.name, "targets": found.name}
    return DetectedFiles(folder, files, _name(path), doubts, made)


def _of_most_splits(folder: Path, known: Sequence[Path]) -> DetectedFiles | None:
    """Returns the files that differ in their splits and in numbers alone, of those of which there
    are the most splits; of as many, structured ones before plain texts and short names first.
    Those of less than a tenth of the largest are samples.
    """
    forms: dict[tuple[str, str], dict[str, list[Path]]] = {}
    for one in known:
        if split := _split_of_path(one, folder):
            before, after = _parts(one)
            form = forms.setdefault((before, re.sub(r"\d+", "*", after)), {})
            form.setdefault(split, []).append(one)
    sizes = {
        form: sum(one.stat().st_size for own in held.values() for one in own)
        for form, held in forms.items()
    }
    (_, after), best = max(
        forms.items(),
        key=lambda one: (
            sizes[one[0]] * 10 >= max(sizes.values()),
            len(one[1]),
            all(usual_format_of(own[0]) != "lines" for own in one[1].values()),
            -len("".join(one[0])),
        ),
    )
    if "train" not in best:
        return None
    made = {}
    for split, own in best.items():
        name = _relative(own[0], folder)
        made[split] = name if len(own) == 1 else name.removesuffix(_parts(own[0])[1]) + after
    return DetectedFiles(folder, made, _name(best["train"][0]))


def _of_lines(folder: Path, known: Sequence[Path]) -> DetectedFiles | None:
    """Returns two files of two columns, or files of a class each, by their names; None if a file is
    no plain text, or their names differ in numbers alone.
    """
    names = {re.sub(r"[\d_.-]+", "", one.name) for one in known[:_INSPECTED]}
    if len(known) != len(names) or any(_form(one)[0] != "lines" for one in known):
        return None
    lines = {one: Head(one).full_lines for one in known}
    known = [one for one in known if len(lines[one]) >= _FEWEST_LINES]
    if len(known) == 2 and (made := _of_two_columns(folder, known, known)):
        return made
    files = Counter(itertools.chain.from_iterable(map(set, lines.values())))
    known = [one for one in known if any(files[line] == 1 for line in lines[one])]  # no all.txt
    stems = [one.name.partition(".")[0] for one in known]
    labels = stems if len(set(stems)) == len(known) else [_ending(one)[1:] for one in known]
    if not 1 < len(known) == len(set(labels)):
        return None
    by_label = {label: one.name for label, one in zip(labels, known, strict=True)}
    doubt = f"each line of {listed(by_label.values())} is a text of the class of its file."
    encoding, doubts = encoding_of(b"\n".join(Head(one).start for one in known), folder)
    options = {"files": by_label, **({"encoding": encoding} if encoding else {})}
    format = DetectedFormat("class_files", options)
    name, folder = _name(folder / "part"), folder.resolve()
    return DetectedFiles(folder.parent, {"train": folder.name}, name, [doubt, *doubts], format)


_ALIKE = dict.fromkeys(("json", "jsonl"), 0.6)  # least part of the keys that two files share


def _form(path: Path) -> tuple[str, frozenset[str]]:
    """Returns the format of a file, and the columns of its first row."""
    try:
        found = detect_format(path)
        rows = open_records(
            path, format=found.format, bad=BadRecords("skip"), options=found.options
        )
        return found.format, frozenset(next((row.values for row in rows), ()))
    except DataError:
        return "", frozenset()


def _of_one_form(folder: Path, known: Sequence[Path]) -> DetectedFiles | None:
    """Returns the files of one format and with the same columns; of several forms the largest file
    alone, a table if there is one.  None for plain texts of several endings.
    """
    forms = {one: _form(one) for one in known[:: 1 + len(known) // _INSPECTED]}
    tables = [one for one, form in forms.items() if form[0] not in ("", "lines")]
    if not tables and len(set(map(_ending, known))) > 1:
        return None
    largest = max(tables or forms, key=_size)
    format_name, columns = forms[largest]
    are_alike = all(
        form[0] == format_name
        and len(form[1] & columns) >= _ALIKE.get(format_name, 1) * len(form[1] | columns)
        for form in forms.values()
    )
    pattern, name = f"*{_ending(largest)}", _name(folder / "part")
    if are_alike and len([*folder.glob(pattern)]) == len(known) > 1:
        message = f"all {len(known)} files are read: {pattern}."
        return DetectedFiles(folder, {"train": pattern}, name, [message])
    message = f"{largest.name} is the largest file of those that could be read."
    return DetectedFiles(folder, {"train": largest.name}, name, [message])


_CORRELATED = 0.3  # least correlation of the lengths of corresponding lines
_SURE = 3  # standard deviations of the correlation of lines that do not correspond


def _of_two_columns(
    folder: Path, known: Sequence[Path], train: Sequence[Path]
) -> DetectedFiles | None:
    """Returns the files of two columns, such as train_text.txt and train_labels.txt, or
    train.en.txt and train.fr.txt; None if their numbers of lines differ, or neither few lines of
    one differ, which are labels, nor long ones stand beside long ones.
    """
    are_lines = all(_form(one)[0] in ("lines", "labelled") for one in train)
    if not are_lines or len(set(map(_count_lines, train))) > 1:
        return None
    texts, labels = sorted(train, key=lambda one: -len(set(Head(one).lines)))
    if len(set(Head(labels).lines)) * 3 > len(Head(labels).lines):
        texts, labels = train
        pairs = zip(*(map(len, Head(one).lines) for one in train), strict=False)
        lengths = [*zip(*pairs, strict=True)]
        vary = bool(lengths) and min(len(set(own)) for own in lengths) > 1
        least = max(_CORRELATED, _SURE / math.sqrt(len(lengths[0]))) if vary else 0
        if not vary or statistics.correlation(*lengths) < least:
            return None
    files: dict[str, str | dict[str, Any]] = {}
    ends = [_parts(one)[1] or one.name for one in (texts, labels)]
    for split in ("train", "eval", "test"):
        of_split = (one for one in known if (_split_of_path(one, folder) or "train") == split)
        held = {_parts(one)[1] or one.name: one.name for one in of_split}
        if {*ends} <= held.keys():
            files[split] = {"inputs": held[ends[0]], "targets": held[ends[1]]}
    doubts = [f"line n of {labels.name} is the target of line n of {texts.name}."]
    return DetectedFiles(folder, files, _name(texts), doubts)


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name


def _split_of_path(path: Path, folder: Path) -> str | None:
    """Returns the split of a file by its name, or by its subfolder's."""
    return split_of(path.name if path.parent == folder else _relative(path, folder))


def _partners(path: Path, there: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Returns the parallel files in other languages, one per language, and warnings."""
    if not _language(path):
        return [], []
    others = {_ending(one): one for one in there if _stem(one) == _stem(path)}
    others = {end: one for end, one in others.items() if end != _ending(path)}
    partners, doubts = [], []
    count = _count_lines(path)
    for one in filter(_language, others.values()):
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


def _language(path: Path) -> str:
    """Returns the language that a file's extension may name, as in train.en; "" if it is none.

    A stem with two codes, such as Books.nl-pt, names the only ones that there are.
    """
    found = _LANGUAGE.fullmatch(_ending(path))
    if not found or usual_format_of(path) or split_of(found[1]):
        return ""
    pair = _PAIR_OF_LANGUAGES.search(_stem(path))
    return found[1] if not pair or found[1] in pair.groups() else ""


def _is_other_split(path: Path, other: Path, split: str, folder: Path) -> bool:
    """Returns whether a file belongs to another split of a training file, by its name."""
    if other.is_dir() is not path.is_dir() or _split_of_path(other, folder) != split:
        return False
    if _ending(other) != _ending(path):
        return False
    if path.parent != folder:
        return True
    return _parts(other)[0].startswith(_parts(path)[0]) and (
        not path.name.endswith(("-ubyte", "-ubyte.gz")) or "images" in other.name
    )


def _distance(path: Path, other: Path) -> tuple[bool, bool, int, str]:
    """Returns the order of the files of a split: like the training file in name, and short."""
    rest = _parts(other)[1]
    return "mismatched" in rest, rest != _parts(path)[1], len(other.name), other.name


def _parts(path: Path) -> tuple[str, str]:
    """Returns the text before and after the split's name in a file name."""
    match = _SPLIT.search(path.name)
    return (path.name[: match.start()], path.name[match.end() :]) if match else (path.name, "")


def split_of(name: str, *, whole: bool = False) -> str | None:
    """Returns the split that a file name says, "train", "eval" or "test"; None if it says none.

    Args:
      name: the name.
      whole: it has to say nothing else.
    """
    match = _SPLIT.fullmatch(name.strip()) if whole else _SPLIT.search(name)
    if match is None:
        return None
    word = match[1].lower()
    return _LETTERED.get(word) or next(split for split, held in _SPLITS.items() if word in held)


def _name(path: Path) -> str:
    match = _SPLIT.search(path.name)
    name = without_packing(path.name)
    name = name[: match.start()] if match else name.partition(".")[0]
    above = [folder.name for folder in path.resolve().parents]
    words = (re.sub(r"\W+", "_", one, flags=re.ASCII).strip("_").lower() for one in [name, *above])
    return next((word for word in words if word and word not in _NO_NAMES), "mine")


def _stem(path: Path) -> str:
    """Returns the name without its extension and ".gz"."""
    return without_packing(path.name).rpartition(".")[0]


def _ending(path: Path) -> str:
    """Returns the extension; none of folders, and none if it names the split, as in x.testa."""
    name = without_packing(path.name)
    ending = f".{name.rpartition('.')[2]}" if "." in name and path.is_file() else ""
    return "" if ending and _SPLIT.fullmatch(ending[1:]) else ending


def _is_data(path: Path) -> bool:
    """Returns whether a file or folder is read as a whole by a reader.

    A folder of several data sets or splits is not one itself: each subfolder is.
    """
    inner = [one for one in visible(path) if one.is_dir()] if path.is_dir() else []
    if (path / "dataset_dict.json").exists() or any(split_of(one.name) for one in inner):
        return False
    if path.is_file() and ((known := usual_format_of(path)) or _language(path)):
        return bool(known)
    try:
        return any(one.format and one.score >= _LIKELY for one in rank_formats(Head(path)))
    except DataError:
        return path.is_file()  # the error is raised again when the file is read


def _size(path: Path) -> int:
    """Returns the number of bytes of a file, or of the files in a folder."""
    return sum(one.stat().st_size for one in [path, *path.rglob("*")] if one.is_file())


def visible(folder: Path) -> list[Path]:
    """Returns the entries of a folder that are not hidden, sorted."""
    return sorted(one for one in folder.iterdir() if not one.name.startswith("."))


_UNPACKED = "_unpacked"
_ZIPPED_DOCUMENTS = frozenset(".docx .pptx .odt .ods .odp .epub .jar .npz .pt .pth .apk".split())


def single_archive(path: Path) -> Path:
    """Returns the archive of a folder that holds nothing else but what came out of it; otherwise
    the path.
    """
    if not path.is_dir():
        return path
    names = [one for one in visible(path) if not _NO_DATA.fullmatch(one.name)]
    held = [one for one in names if not one.name.endswith(_UNPACKED)]
    return held[0] if len(held) == 1 and held[0].is_file() and _archive(held[0]) else path


def _archive(path: Path) -> str:
    """Returns "zip" or "tar"; "" for other files."""
    start = Head(path).start
    if start.startswith(b"PK\x03\x04"):
        return "" if path.suffix.lower() in (".xlsx", ".xlsm") or b"xl/work" in start else "zip"
    return "tar" if start[257:262] == b"ustar" else ""


def unpacked(path: Path) -> tuple[Path, list[str]]:
    """Unpacks a zip or tar archive beside it; returns its file or folder, and what was done.

    Other files are returned as they are.

    Raises:
      DataError: the archive is damaged or unsafe, or cannot be unpacked there.
    """
    path = single_archive(path)
    kind = _archive(path) if path.is_file() else ""
    if not kind:
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
                unpack_into(path, temporary, is_zip=kind == "zip")
        except (*DAMAGED_ARCHIVE, OSError) as error:
            raise DataError(
                f"{path} cannot be unpacked to {folder}: {error}. Unpack it by hand, and give the "
                "file or the folder that comes out."
            ) from None
    inner = [one for one in visible(folder) if one.name != "__MACOSX"]
    while len(inner) == 1 and inner[0].is_dir() and split_of(inner[0].name) is None:
        folder = inner[0]
        inner = [one for one in visible(folder) if one.name != "__MACOSX"]
    return (inner[0] if len(inner) == 1 else folder), done
