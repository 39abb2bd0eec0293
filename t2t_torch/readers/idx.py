"""Readers of classified files: idx files of images and labels, and folders by class.

The idx format is MNIST's, yann.lecun.com/exdb/mnist.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.errors import DataError, UsageError, listed
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
    name = re.sub(r"images([-.])idx[34]", r"labels\1idx1", path.name)
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


@contextlib.contextmanager
def _named_faults(path: Path) -> Iterator[None]:
    """Raises DataError, with the path, where a file cannot be read."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(f"{path} is damaged: {error}. Fetch it again.") from None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


def _items(
    path: Path, dimensions: tuple[int, ...], stack: ExitStack
) -> tuple[tuple[int, ...], Iterator[bytes]]:
    """Returns the shape of an idx file of bytes, the number of its items first, and the items."""
    with _named_faults(path):
        file = stack.enter_context(open_bytes(path))

    def take(size: int, *, may_end: bool = False) -> bytes:
        with _named_faults(path):
            taken = file.read(size)
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


def _match_class_folders(head: Head) -> Match | None:
    path, held = head.path, class_folders(head.path)
    if len(held) < 2:
        return None
    kinds = {kind_of(one.files[0]) for one in held.values()}
    options: dict[str, Any] = {}
    left_out = [name for name in held if name.lower() in _UNLABELLED]
    classes = [name for name in held if name not in left_out]
    doubt = f"each subfolder is a class: {', '.join(classes[:10])}"
    if left_out:
        options["classes"] = classes
        doubt += f"; {', '.join(left_out)} is left out, as its texts have no class"
    doubts = [f"{doubt}."]
    if foreign := [entry for one in held.values() for entry in one.foreign]:
        named = listed(one.relative_to(path) for one in foreign)
        doubts.append(f"{named}: left out, not of the kind of the other files.")
    files = [file for name in classes for file in held[name].files[:_INSPECTED_FILES]]
    if kinds == {"text"}:
        encoding, warnings = encoding_of(b"\n".join(Head(file).start for file in files), path)
        options |= {"encoding": encoding} if encoding else {}
        doubts += warnings
    if kinds == {"image"}:
        shapes = set()
        for file in files:
            with contextlib.suppress(DataError):  # reported when the data is generated
                shapes.add(picture_of(file).shape)
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
    held = class_folders(path)
    by_class = {name: held[name] for name in classes or held if name in held}
    for entry in (entry for one in by_class.values() for entry in one.foreign):
        bad.report(Place(entry, 1, unit="entry"), "is not of the kind of the other files")
    if (missing := [name for name in classes if name not in held]) or not by_class:
        raise DataError(f"{path} has no files in subfolders ({', '.join(missing) or 'no names'}).")
    pixels = tuple(map(int, scaled.groups())) if scaled else None
    encoding = known_encoding(path, encoding) or "utf-8-sig"
    files = {name: one.files for name, one in by_class.items()}
    return _class_records(files, bad, pixels, encoding, encoded=encoded)


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
        content: Any = file
        try:
            if kind == "text":
                with open_bytes(file) as opened:
                    raw = opened.read(_MAX_BYTES + 1)
                if len(raw) > _MAX_BYTES:
                    bad.report(place, f"a text of more than {_MAX_BYTES:,} bytes")
                    continue
                content = raw.decode(encoding)
            elif kind == "image" and encoded:
                content = file_content(file, "picture")
                decoded(content, 3)
            elif kind == "image":
                content = picture_of(file, size)
                content = content.repeat(3, axis=2) if size and content.shape[2] == 1 else content
                shape = shape or content.shape
                if content.shape != shape:
                    how = 'give the option "encoded": true, which scales pictures, or "size"'
                    bad.report(place, f"it is {content.shape}, not {shape}: {how}")
                    continue
        except UnicodeDecodeError as error:
            bad.report(place, f"byte 0x{error.object[error.start]:02x} is not {encoding} there")
        except (OSError, ValueError, DataError, *DAMAGED) as error:
            bad.report(place, f"cannot be read: {error}")
        else:
            yield Record(place, {kind: content, "label": label})


class ClassFolder(NamedTuple):
    """The folder of a class.

    Attributes:
      files: its files of the kind of most entries, at least one.
      foreign: entries of other kinds, which are left out.
    """

    files: list[Path]
    foreign: list[Path]


_OF_SYSTEMS = ("thumbs.db", "desktop.ini")
"""Files that a file manager writes; hidden ones are ignored, too."""


def class_folders(folder: Path) -> dict[str, ClassFolder]:
    """Returns the subfolders with texts, pictures or sounds, by name; none for a file.

    Most entries of each are of one kind, and no folders.
    """
    held = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        entries = sorted(path.iterdir()) if path.is_dir() and path.name[0] != "." else []
        entries = [one for one in entries if one.name[0] != "."]
        entries = [one for one in entries if one.name.lower() not in _OF_SYSTEMS]
        kinds = {one: "" if one.is_dir() else kind_of(one) for one in entries}
        kind, count = Counter(kinds.values()).most_common(1)[0] if kinds else ("", 0)
        if kind and 2 * count > len(entries):
            files = [one for one in entries if kinds[one] == kind]
            held[path.name] = ClassFolder(files, [one for one in entries if kinds[one] != kind])
    return held


def kind_of(path: Path) -> str:
    """Returns "text", "image" or "audio" from a file's extension; otherwise ""."""
    suffix = Path(without_packing(path.name)).suffix.lower()
    kinds = {"text": TEXTS, "image": PICTURES, "audio": AUDIO}
    return next((kind for kind, endings in kinds.items() if suffix in endings), "")
