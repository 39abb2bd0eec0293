"""Reader of images and labels in two idx files, as for MNIST.  yann.lecun.com/exdb/mnist."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.files import open_bytes
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.registry import register_reader

_UNSIGNED_BYTE = 0x08  # the third byte of the magic number; the fourth counts dimensions
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


@register_reader("idx", endings=(".idx", "-ubyte", ".idx3", ".idx4"))
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
        pictures = _Idx(path, (3, 4), stack)
        labels = _Idx(label_path, (1,), stack)
        if pictures.shape[0] != labels.shape[0]:
            raise DataError(
                f"{path} has {pictures.shape[0]:,} pictures and {label_path} "
                f"{labels.shape[0]:,} labels; both should have the same number."
            )
        shape = (*pictures.shape[1:], 1)[:3]
        for number in range(1, pictures.shape[0] + 1):
            image = np.frombuffer(pictures.next_item(), np.uint8).reshape(shape)
            values = {"image": image, "label": str(labels.next_item()[0])}
            yield Record(Place(path, number, unit="picture"), values)
        pictures.check_end()
        labels.check_end()


class _Idx:
    """An idx file of bytes, read item by item.

    Attributes:
      shape: the number of items, and the shape of each.
    """

    def __init__(self, path: Path, dimensions: tuple[int, ...], stack: ExitStack) -> None:
        self._path = path
        try:
            self._file: io.BufferedIOBase = stack.enter_context(open_bytes(path))
        except OSError as error:
            raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None
        magic = self._take(4)
        if magic[:3] != bytes((0, 0, _UNSIGNED_BYTE)) or magic[3] not in dimensions:
            wanted = " or ".join(map(str, dimensions))
            raise DataError(
                f"{path} starts with the bytes {magic.hex()}; an idx file of bytes with {wanted} "
                f"dimensions starts with 00000803 (the last digit counts the dimensions)."
            )
        self.shape = struct.unpack(f">{magic[3]}I", self._take(4 * magic[3]))
        self._size = math.prod(self.shape[1:])

    def next_item(self) -> bytes:
        """Returns the bytes of the next item."""
        return self._take(self._size)

    def check_end(self) -> None:
        """Raises DataError if there is data after the last item."""
        if self._read(1):
            raise DataError(
                f"{self._path} goes on after the {self.shape[0]:,} records it tells of."
            )

    def _take(self, size: int) -> bytes:
        taken = self._read(size)
        if len(taken) < size:
            raise DataError(f"{self._path} is cut off: it is shorter than it says. Fetch it again.")
        return taken

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except _DAMAGED as error:
            raise DataError(f"{self._path} is damaged: {error}. Fetch it again.") from None
        except OSError as error:
            raise DataError(f"Cannot read {self._path}: {error.strerror or error}.") from None
