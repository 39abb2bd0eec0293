"""The files beside a file: those of other splits, and those that are parallel to it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.readers.bio import FILES
from t2t_torch.readers.formats import format_of
from t2t_torch.text.lines import read_raw_lines

_SPLITS = {
    "train": ("train", "training"),
    "eval": ("dev", "valid", "validation", "val", "eval", "trial", "devel", "development"),
    "test": ("test", "testing", "t10k"),
}
_NO_NAMES = ("data", "input", "inputs", "raw", "tok", "tmp", "dataset", "file", "files", "part")
_COUNTED = 200_000  # lines
_PARALLEL_ENDING = re.compile(r"\.[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")


@dataclass(frozen=True)
class Neighbours:
    """The files that make a data set.

    Attributes:
      folder: where they are.
      files: by "train", "eval" and "test", a name in the folder, or by field several that are
        parallel.
      name: what the data set may be called.
      doubts: what is not sure, as sentences.
    """

    folder: Path
    files: Mapping[str, str | dict[str, str]]
    name: str
    doubts: list[str] = field(default_factory=list)

    @property
    def train(self) -> Path:
        """The file to look at."""
        train = self.files["train"]
        return self.folder / (train if isinstance(train, str) else next(iter(train.values())))


def neighbours(path: Path) -> Neighbours:
    """Finds what belongs to a file or is in a folder.

    Raises:
      DataError: there is nothing, or a folder with several things of which none is for training.
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
    """The files with the lines in other languages, one of each, and doubts."""
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
    """The number of lines, of a long file no more than `_COUNTED`."""
    return sum(1 for _ in itertools.islice(read_raw_lines(path), _COUNTED))


def _is_beside(first: Path, one: Path, partner: Path) -> bool:
    """Whether a file is to the first of a split as the partner is to the file of training."""
    return _stem(one) == _stem(first) and _ending(one) == _ending(partner)


def _ends_in_language(path: Path) -> bool:
    """Whether a file's ending may be a language's, as in train.en."""
    return bool(_PARALLEL_ENDING.fullmatch(_ending(path))) and not _known(path)


def _is_other_split(path: Path, other: Path, split: str) -> bool:
    """Whether a file is that of another split, by its name."""
    if other.is_dir() is not path.is_dir() or _split_of(other.name) != split:
        return False
    if _ending(other) != _ending(path):
        return False
    return _words(other)[0].startswith(_words(path)[0]) and (
        not path.name.endswith(("-ubyte", "-ubyte.gz")) or "images" in other.name
    )


def _words(path: Path) -> tuple[str, str]:
    """What stands before and after the word for a split in a name."""
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
    """The name without what comes from its last dot on; ".gz" does not count."""
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
    # A folder of several data sets is looked into: each has one of its own.
    return path.is_dir() and _known(path) and not (path / "dataset_dict.json").exists()


def _pictures(chosen: list[Path]) -> bool:
    return all("-ubyte" in one.name for one in chosen)


def _visible(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if not one.name.startswith("."))
