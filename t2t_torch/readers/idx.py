"""Readers of classified files: idx files of images and labels, and folders by class.

The idx format is MNIST's, yann.lecun.com/exdb/mnist.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError, UsageError
from t2t_torch.features.picture import decoded
from t2t_torch.files import DAMAGED, file_content, open_bytes, without_packing
from t2t_torch.readers.head import Head, Match, encoding_of, starts_with
from t2t_torch.readers.tables import picture_of
from t2t_torch.readers.text_file import BadRecords, Place, Record, known_encoding
from t2t_torch.registry import register_reader

_MAX_BYTES = 1 << 26  # of a picture or a text
_UNSIGNED_BYTE = 0x08  # the third byte of the magic number; the fourth counts dimensions


@register_reader(
    "idx", matches=starts_with(rb"\0\0\x08[\3\4]"), endings=(".idx", "-ubyte", ".idx3", ".idx4")
)
def read_idx(path: Path, bad: BadRecords, *, labels: str = "") -> Iterator[Record]:
    """Yields {"image": uint8 array [height, width, channels], "label": the number, as a string}.

    A file of three dimensions has one channel.  Single records cannot be bad: a file inconsistent
    with its header raises an error.  A place holds the number of the image, from 1.

    Args:
      path: the file of images, gzip-compressed or not.
      bad: unused: there are no bad records.
      labels: the file of labels, relative to the folder of `path`.  By default the file with
        "labels-idx1" in its name in place of "images-idx3" (or idx4), with ".gz" or without.

    Raises:
      DataError: a file is missing, cannot be read, is not idx, does not have the size in its
        header, or the numbers of records differ.
    """
    return _records(path, labels_of(path, labels))


def labels_of(path: Path, labels: str = "") -> Path:
    """Returns the label file of an image file; the arguments are those of `read_idx`.

    Raises:
      DataError: no file is named, and none exists in the same folder.
    """
    if labels:
        return path.parent / labels
    name = path.name
    for dimensions in ("3", "4"):
        name = name.replace(f"images-idx{dimensions}", "labels-idx1")
        name = name.replace(f"images.idx{dimensions}", "labels.idx1")
    for candidate in (name, name.removesuffix(".gz"), f"{name}.gz"):
        if candidate != path.name and (path.parent / candidate).exists():
            return path.parent / candidate
    raise DataError(
        f"{path} has no file of labels beside it, where {name} was expected. Put it there, or name "
        "another with the option labels."
    )


def _records(path: Path, label_path: Path) -> Iterator[Record]:
    import numpy as np  # imported here to keep listing formats fast

    with ExitStack() as stack:
        shape, pictures = _items(path, (3, 4), stack)
        (count,), labels = _items(label_path, (1,), stack)
        if shape[0] != count:
            raise DataError(
                f"{path} has {shape[0]:,} pictures and {label_path} {count:,} labels; both should "
                "have the same number."
            )
        for number, (pixels, label) in enumerate(zip(pictures, labels, strict=True), 1):
            image = np.frombuffer(pixels, np.uint8).reshape((*shape[1:], 1)[:3])
            values = {"image": image, "label": str(label[0])}
            yield Record(Place(path, number, unit="picture"), values)


def _items(
    path: Path, dimensions: tuple[int, ...], stack: ExitStack
) -> tuple[tuple[int, ...], Iterator[bytes]]:
    """Returns the shape of an idx file of bytes, the number of its items first, and the items."""
    try:
        file = stack.enter_context(open_bytes(path))
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None

    def take(size: int, *, may_end: bool = False) -> bytes:
        try:
            taken = file.read(size)
        except DAMAGED as error:
            raise DataError(f"{path} is damaged: {error}. Fetch it again.") from None
        except OSError as error:
            raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None
        if len(taken) < size and not may_end:
            raise DataError(f"{path} is cut off: it is shorter than it says. Fetch it again.")
        return taken

    magic = take(4)
    if magic[:3] != bytes((0, 0, _UNSIGNED_BYTE)) or magic[3] not in dimensions:
        wanted = " or ".join(map(str, dimensions))
        raise DataError(
            f"{path} starts with the bytes {magic.hex()}; an idx file of bytes with {wanted} "
            f"dimensions starts with 00000803 (the last digit counts the dimensions)."
        )
    shape = struct.unpack(f">{magic[3]}I", take(4 * magic[3]))
    size = math.prod(shape[1:])
    if not 0 < size <= _MAX_BYTES:
        raise DataError(f"{path} states items of {size:,} bytes; expected 1 to {_MAX_BYTES:,}.")

    def items() -> Iterator[bytes]:
        yield from (take(size) for _ in range(shape[0]))
        if take(1, may_end=True):
            raise DataError(f"{path} is longer than the {shape[0]:,} records of its header.")

    return shape, items()


TEXTS = (".txt", ".text", ".md", "")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
AUDIO = (".wav", ".flac", ".mp3", ".ogg", ".m4a", ".aac", ".opus")


MAX_PIXELS = 64
"""Longest side of a picture that is not scaled."""

_UNLABELLED = ("unsup", "unlabeled", "unlabelled", "unknown")
_INSPECTED_FILES = 50
_SPLIT_NAMES = frozenset("train training dev valid validation val eval test testing".split())


def _match_class_folders(head: Head) -> Match | None:
    names = class_names(head.path) if head.is_folder else []
    if len(names) < 2 or not _SPLIT_NAMES.isdisjoint(name.lower() for name in names):
        return None
    path = head.path
    kinds = {kind_of(file) for name in names for file in files_of(path / name)[:1]}
    options: dict[str, Any] = {}
    left_out = [name for name in names if name.lower() in _UNLABELLED]
    classes = [name for name in names if name not in left_out]
    doubts = [f"each subfolder is a class: {', '.join(classes[:10])}."]
    if left_out:
        options["classes"] = classes
        doubts = [
            f"{doubts[0][:-1]}; {', '.join(left_out)} is left out, as its texts have no class."
        ]
    if foreign := [entry for name in names for entry in foreign_in(path / name)]:
        named = ", ".join(str(one.relative_to(path)) for one in foreign[:5])
        more = f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""
        doubts.append(f"{named}{more}: left out, not of the kind of the other files.")
    files = [file for name in classes for file in files_of(path / name)[:_INSPECTED_FILES]]
    if kinds == {"text"}:
        raw = b"\n".join(Head(file).start for file in files)
        encoding, warnings = encoding_of(raw, path)
        options |= {"encoding": encoding} if encoding else {}
        doubts += warnings
    if kinds == {"image"}:
        shapes = {shape for file in files if (shape := _shape_of(file))}
        if not shapes:
            why = f"{path}: none of {len(files)} inspected pictures can be read."
            return Match(0.9, refusal=why)
        if len(shapes) > 1 or max(max(shapes)[:2]) > MAX_PIXELS:
            options["encoded"] = True
            doubts.append(
                "the pictures are stored as files, and their centre is scaled when they are read: "
                '"settings" has the size.'
            )
    return Match(0.9, options, doubts)


def _shape_of(file: Path) -> tuple[int, int, int] | None:
    """Returns the shape of a picture; None if it cannot be read, which generating reports."""
    try:
        shape: tuple[int, int, int] = picture_of(file).shape
    except DataError:
        return None
    return shape


@register_reader("class_folders", matches=_match_class_folders)
def read_class_folders(
    path: Path,
    bad: BadRecords,
    *,
    classes: Sequence[str] = (),
    size: str = "",
    encoding: str = "",
    encoded: bool = False,
) -> Iterator[Record]:
    """Yields {"text", "image" or "audio", "label"} for the files of a folder's subfolders.

    The label is the subfolder's name; the subfolders take turns.  A picture is a uint8 array
    [height, width, channels], a sound the path of its file.  A place holds the file.

    Args:
      path: the folder.
      bad: policy for files that cannot be read, and pictures of other sizes than the first.
      classes: names of the subfolders to read; by default all.
      size: "WIDTHxHEIGHT" to which pictures are scaled, in RGB.
      encoding: of the texts, empty for UTF-8.
      encoded: True to yield the bytes of picture files of any size, checked but not changed.

    Raises:
      DataError: a subfolder is missing, or there are none.
      UsageError: `size` is not of this form.
    """
    scaled = re.fullmatch(r"(\d{1,5})x(\d{1,5})", size)
    if size and not scaled:
        raise UsageError(f"{size!r} is no size of a picture; expected one such as 64x64.")
    if encoded and size:
        raise UsageError("encoded pictures are not scaled here. Leave out size.")
    by_class = {name: files_of(path / name) for name in classes or class_names(path)}
    for name in by_class:
        for entry in foreign_in(path / name):
            bad.report(Place(entry, 1, unit="entry"), "is not of the kind of the other files")
    missing = [name for name, files in by_class.items() if not files]
    if missing or not by_class:
        raise DataError(f"{path} has no files in subfolders ({', '.join(missing) or 'no names'}).")
    pixels = tuple(map(int, scaled.groups())) if scaled else None
    encoding = known_encoding(path, encoding) or "utf-8-sig"
    return _class_records(by_class, bad, pixels, encoding, encoded=encoded)


def _class_records(
    by_class: dict[str, list[Path]], bad: BadRecords, size: Any, encoding: str, *, encoded: bool
) -> Iterator[Record]:
    """Yields the records of the files, the classes by turns."""
    shape = None
    rows = itertools.zip_longest(*by_class.values())
    files = (pair for row in rows for pair in zip(by_class, row, strict=True) if pair[1])
    for label, file in files:
        kind = kind_of(file)
        place = Place(file, 1, unit={"text": "line", "image": "picture"}.get(kind, "sound"))
        try:
            if kind == "audio":
                yield Record(place, {"audio": file, "label": label})
                continue
            if kind == "text":
                with open_bytes(file) as opened:
                    content = opened.read(_MAX_BYTES + 1)
                if len(content) > _MAX_BYTES:
                    bad.report(place, f"a text of more than {_MAX_BYTES:,} bytes")
                else:
                    yield Record(place, {"text": content.decode(encoding), "label": label})
                continue
            if encoded:
                content = file_content(file, "picture")
                decoded(content, 3)
                yield Record(place, {"image": content, "label": label})
                continue
            image = picture_of(file, size)
            image = image.repeat(3, axis=2) if size and image.shape[2] == 1 else image
        except UnicodeDecodeError as error:
            bad.report(place, f"byte 0x{error.object[error.start]:02x} is not {encoding} there")
            continue
        except (OSError, ValueError, DataError, *DAMAGED) as error:
            bad.report(place, f"cannot be read: {error}")
            continue
        shape = shape or image.shape
        if image.shape != shape:
            how = 'give the option "encoded": true, which scales pictures, or "size"'
            bad.report(place, f"it is {image.shape}, not {shape}: {how}")
            continue
        yield Record(place, {"image": image, "label": label})


def class_names(folder: Path) -> list[str]:
    """Returns the names of the subfolders with texts, pictures or audio."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    folders = (one for one in found if one.is_dir())
    return [one.name for one in folders if not one.name.startswith(".") and files_of(one)]


def files_of(folder: Path) -> list[Path]:
    """Returns the files of a class; none if most entries are of other kinds, or are folders."""
    return _divided(folder)[0]


def foreign_in(folder: Path) -> list[Path]:
    """Returns what is left out in the folder of a class: entries that are not of its kind."""
    return _divided(folder)[1]


_OF_SYSTEMS = ("thumbs.db", "desktop.ini")
"""Files that a file manager writes; hidden ones are ignored, too."""


def _divided(folder: Path) -> tuple[list[Path], list[Path]]:
    if not folder.is_dir():
        return [], []
    found = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    found = [one for one in found if one.name.lower() not in _OF_SYSTEMS]
    kinds = {one: "" if one.is_dir() else kind_of(one) for one in found}
    kind, count = Counter(kinds.values()).most_common(1)[0] if kinds else ("", 0)
    if not kind or count <= len(found) / 2:
        return [], []
    return [one for one in found if kinds[one] == kind], [
        one for one in found if kinds[one] != kind
    ]


def kind_of(path: Path) -> str:
    """Returns "text", "image" or "audio" from a file's extension; otherwise ""."""
    suffix = Path(without_packing(path.name)).suffix.lower()
    kinds = {"text": TEXTS, "image": PICTURES, "audio": AUDIO}
    return next((kind for kind, endings in kinds.items() if suffix in endings), "")
