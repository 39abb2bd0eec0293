"""A raw file of a data set: where users keep it, else from the network."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from t2t_torch.data.download import fetch
from t2t_torch.data.manifest import sha256_of
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
        path = self.itself(tmp_dir)
        return self.archive.find(tmp_dir) if path is None and self.archive is not None else path

    def get(self, tmp_dir: Path) -> Path:
        """Returns it, after unpacking or downloading if need be.

        Raises:
          DataError: it is neither there nor to be had; says where to put it.
        """
        path = self.itself(tmp_dir)
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

    @property
    def download(self) -> str:
        """What it is called as it is downloaded, in the bytes that `sha256` is of."""
        return _download(self.name, self.urls)

    def itself(self, tmp_dir: Path) -> Path | None:
        """Returns where it lies, not what it could be unpacked from; None if nowhere."""
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
    return fetch(urls, tmp_dir / folders[0], filename=_download(name, urls), sha256=sha256)


def found(files: Iterable[RawFile], tmp_dir: Path) -> list[Path]:
    """Returns the paths of those files that are there, an archive once: for `raw_files`."""
    paths = [path for file in files if (path := file.find(tmp_dir)) is not None]
    return list(dict.fromkeys(paths))


def get_all(files: Iterable[RawFile], tmp_dir: Path) -> None:
    """Gets files, an archive once.

    Raises:
      DataError: some are neither there nor to be had; says of each where to put it.
    """
    files = list(files)
    failures: dict[str, str] = {}
    for file in files:
        origin = file.name if file.archive is None else file.archive.name
        if origin in failures:
            continue
        try:
            file.get(tmp_dir)
        except DataError as error:
            failures[origin] = str(error)
    if failures:
        raise DataError("\n".join([*failures.values(), *strangers(files, tmp_dir)]))


def strangers(files: Iterable[RawFile], tmp_dir: Path) -> list[str]:
    """Tells which files that are there have not the sha256 that is known; reads them whole."""
    told: dict[Path, str] = {}
    both = itertools.chain.from_iterable((file, file.archive) for file in files)
    for file in filter(None, both):
        path = file.itself(tmp_dir)
        # Packed in another way than it can be downloaded, its bytes are others.
        if path is None or path in told or file.sha256 is None or path.name != file.download:
            continue
        if sha256_of(path) != file.sha256:
            remedy = "Remove it, and it is fetched again." if file.urls else "Get it again."
            told[path] = (
                f"{path} is not the file that is expected (sha256 {file.sha256}): perhaps it is "
                f"damaged. {remedy}"
            )
    return list(told.values())


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


def _download(name: str, urls: Sequence[str]) -> str:
    """The name that a download gets: with ".gz" if it comes packed and the name does not say so."""
    packed = bool(urls) and urlsplit(urls[0]).path.endswith(".gz") and not name.endswith(".gz")
    return f"{name}.gz" if packed else name


def _missing(name: str, tmp_dir: Path, folders: Sequence[str]) -> str:
    places = " or ".join(str(tmp_dir / folder) for folder in folders)
    return f"{name} is not there. Put it, packed with gzip or not, in {places}."
