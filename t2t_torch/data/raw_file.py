"""A raw file of a data set: where users keep it, else from the network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from t2t_torch.data.download import fetch
from t2t_torch.data.unpack import unpack
from t2t_torch.errors import DataError


@dataclass(frozen=True)
class RawFile:
    """One file that samples are read from.

    Attributes:
      name: without ".gz", should it be packed with gzip; of an archive the whole name.
      folders: below `--tmp_dir`, where it may lie; "" is that folder itself.  A download goes to
        the first.
      urls: where it can be had, mirrors in the order to try them; if the first ends in ".gz", all
        give it packed.
      sha256: of the bytes that the addresses give, in hex.
      archive: what it can be unpacked from, if it does not lie there by itself.
      inside: its folders in that archive, of which one is there.
      other_names: what it may be called too, where it lies.
    """

    name: str
    folders: Sequence[str] = ("",)
    urls: Sequence[str] = ()
    sha256: str | None = None
    archive: RawFile | None = None
    inside: Sequence[str] = ("",)
    other_names: Sequence[str] = ()

    def find(self, tmp_dir: Path) -> Path | None:
        """Returns where it, or what it can be unpacked from, lies; None if nowhere."""
        path = self._itself(tmp_dir)
        return self.archive.find(tmp_dir) if path is None and self.archive is not None else path

    def get(self, tmp_dir: Path) -> Path:
        """Returns it, after unpacking or downloading if need be.

        Raises:
          DataError: it is neither there nor to be had; says where to put it.
        """
        path = self._itself(tmp_dir)
        if path is not None:
            return path
        if self.archive is None:
            return find_or_fetch(
                self.name, tmp_dir, folders=self.folders, urls=self.urls, sha256=self.sha256
            )
        archive = self.archive.get(tmp_dir)
        unpacked = unpack(archive)
        path = find(self.name, unpacked, folders=self.inside)
        if path is None:
            folders = " or ".join(folder or "its top folder" for folder in self.inside)
            raise DataError(
                f"{archive} holds no {self.name} in {folders}, so it is not the archive that was "
                f"expected; or {unpacked}, which was taken for what comes out of it, is something "
                f"else or not whole. {_missing(self.name, tmp_dir, self.folders)}"
            )
        return path

    def _itself(self, tmp_dir: Path) -> Path | None:
        paths = (
            find(name, tmp_dir, folders=self.folders) for name in (self.name, *self.other_names)
        )
        return next(filter(None, paths), None)


def find(name: str, tmp_dir: Path, *, folders: Sequence[str] = ("",)) -> Path | None:
    """Returns the path of a file, or of the same packed with gzip; None if it is in no folder.

    Args:
      name: without ".gz".
      tmp_dir: the folder of raw files.
      folders: those below it to look in; "" is itself.
    """
    for folder in folders:
        for path in (tmp_dir / folder / f"{name}.gz", tmp_dir / folder / name):
            if path.is_file():
                return path
    return None


def find_or_fetch(
    name: str,
    tmp_dir: Path,
    *,
    folders: Sequence[str] = ("",),
    urls: Sequence[str] = (),
    sha256: str | None = None,
) -> Path:
    """Returns a raw file, packed with gzip or not: what `find` finds, else what `fetch` fetches.

    A file that is there is used as it is.  The arguments are those of `RawFile`.

    Raises:
      DataError: it is neither there nor to be had; says where to put it.
    """
    path = find(name, tmp_dir, folders=folders)
    if path is not None:
        return path
    if not urls:
        raise DataError(_missing(name, tmp_dir, folders))
    packed = urlsplit(urls[0]).path.endswith(".gz") and not name.endswith(".gz")
    filename = f"{name}.gz" if packed else name
    return fetch(urls, tmp_dir / folders[0], filename=filename, sha256=sha256)


def found(files: Iterable[RawFile], tmp_dir: Path) -> list[Path]:
    """Returns the paths of those files that are there, an archive once: for `raw_files`."""
    paths = [path for file in files if (path := file.find(tmp_dir)) is not None]
    return list(dict.fromkeys(paths))


def member(archive: RawFile, path: str) -> RawFile:
    """Returns a file of an archive by its path there.

    It may also lie unpacked: at that path below a folder where the archive may lie, or below one
    there that has the archive's name without its ending.

    Args:
      archive: what it is packed in.
      path: in the archive, without ".gz" should it be packed with gzip there.
    """
    folder, _, name = path.rpartition("/")
    stem = re.sub(r"(\.tar)?\.[^.]+$", "", archive.name)
    places = (f"{place}/{inner}" for place in archive.folders for inner in (".", stem))
    folders = tuple(str(PurePath(place.lstrip("/"), folder)) for place in places)
    return RawFile(name, folders=folders, archive=archive, inside=(folder,))


def _missing(name: str, tmp_dir: Path, folders: Sequence[str]) -> str:
    places = " or ".join(str(tmp_dir / folder) for folder in folders)
    return f"{name} is not there. Put it, packed with gzip or not, in {places}."
