"""Archives, unpacked without trusting what is in them."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from t2t_torch.data.lock import exclusive
from t2t_torch.data.staging import STAGED_SUFFIX, named_errors, staged
from t2t_torch.errors import DataError

_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar", ".zip", ".gz")
_MAX_RATIO = 200  # of what comes out to the archive; text packs to a tenth, zeros to a thousandth
_ALWAYS_ALLOWED = 1 << 28  # bytes
_PIECE = 1 << 20
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
)


def unpack(archive: str | Path, directory: str | Path | None = None) -> Path:
    """Unpacks a tar archive (also gz, bz2, xz), a zip archive or a single gzip file.

    Nothing is written outside `directory`, whatever the archive says.  What is there already was
    unpacked before, or put there by the user, and is used as it is.

    Args:
      archive: the file; its suffix says what it is.
      directory: a folder of its own for what comes out; by default the archive's path without its
        suffix.  For a single gzip file, the folder of the one file that comes out; by default the
        archive's folder.

    Returns:
      The folder, or for a single gzip file, the file.

    Raises:
      DataError: the archive is damaged, of an unknown kind, or would write or link outside.
    """
    path = Path(archive)
    suffix = next((end for end in _SUFFIXES if path.name.lower().endswith(end)), None)
    if suffix is None:
        raise DataError(f"{path} is no archive known here; known are {', '.join(_SUFFIXES)}.")
    if not path.is_file():
        raise DataError(f"{path}: no such file. Put it there, or let it be downloaded again.")
    stem = path.name[: -len(suffix)]
    if not stem:
        raise DataError(f"{path} has no name before its suffix. Rename it.")
    if suffix == ".gz":
        target = (path.parent if directory is None else Path(directory)) / stem
    else:
        target = path.parent / stem if directory is None else Path(directory)
        if path.resolve().is_relative_to(target.resolve()):
            raise DataError(f"{path} lies in {target}; unpack it into a folder of its own.")
    if not target.exists():
        with exclusive(target.with_name(f".{target.name}.lock"), f"unpacking {path.name!r}"):
            if not target.exists():  # another process may have done it meanwhile
                _unpack(path, suffix, target)
    return target


def _unpack(path: Path, suffix: str, target: Path) -> None:
    try:
        if suffix == ".gz":
            with staged(target) as temporary, gzip.open(path) as source:
                _Writer(path).write(source, temporary)
            return
        staging = target.with_name(f".{target.name}{STAGED_SUFFIX}")
        shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
        staging.mkdir(parents=True)
        try:
            if suffix == ".zip":
                _unpack_zip(path, staging)
            else:
                _unpack_tar(path, staging)
            os.sync()  # an archive may hold 100,000 files; to sync each would take minutes
            staging.rename(target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except _DAMAGED as error:
        raise DataError(
            f"{path} cannot be unpacked: {error or type(error).__name__}. It seems damaged: delete "
            "it, so that it is downloaded again, or replace it."
        ) from error


def _unpack_tar(path: Path, root: Path) -> None:
    links, writer = [], _Writer(path)
    with tarfile.open(path) as archive:
        for member in archive:
            place = _inside(root, member.name, path)
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
            elif member.issym():
                links.append((place, member))
            elif member.isfile() or member.islnk():
                if member.islnk():
                    _inside(root, member.linkname, path)
                try:
                    source = archive.extractfile(member)  # of a hard link, the file it means
                except KeyError:
                    source = None
                if source is None:
                    raise DataError(f"{path}: {member.name!r} links to nothing in the archive.")
                with source:
                    writer.write(source, place)
            else:
                raise DataError(f"{path}: {member.name!r} is neither file, folder nor link.")
    # Links are made last, so that no file can be written through one.
    for place, member in links:
        _inside(root, str(PurePosixPath(member.name).parent / member.linkname), path)
        _check_real(root, place.parent, member, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() or place.is_symlink():
            raise DataError(f"{path}: {member.name!r} is a link and something else at once.")
        place.symlink_to(member.linkname)
    for place, member in links:
        _check_real(root, place, member, path)


def _check_real(root: Path, place: Path, member: tarfile.TarInfo, archive: Path) -> None:
    """A link over another link may lead out although neither does by its text."""
    if not Path(os.path.realpath(place)).is_relative_to(root.resolve()):
        raise DataError(_escape(archive, f"{member.name} -> {member.linkname}"))


def _unpack_zip(path: Path, root: Path) -> None:
    writer = _Writer(path)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            place = _inside(root, member.filename, path)
            if stat.S_ISLNK(member.external_attr >> 16):
                raise DataError(f"{path}: {member.filename!r} is a link; zip links are refused.")
            if member.is_dir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            try:
                source = archive.open(member)
            except (RuntimeError, NotImplementedError) as error:  # a password, a compression
                raise DataError(f"{path} cannot be unpacked: {error}.") from error
            with source:
                writer.write(source, place)


def _inside(root: Path, name: str, archive: Path) -> Path:
    """Where a member goes; DataError if that is not below `root` by its text."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    outside = bool(parts) and (parts[0].startswith("/") or parts[0][1:] == ":")  # also C:
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        outside |= depth < 0
    if outside:
        raise DataError(_escape(archive, name))
    return root / os.path.normpath("/".join(parts) or ".")


def _escape(archive: Path, name: str) -> str:
    return (
        f"{archive} would write outside its folder: {name!r}. It was not unpacked; it is not to be "
        "trusted. Get it from another source."
    )


class _Writer:
    """Writes the members of an archive, as far as they are no decompression bomb.

    Args:
      archive: the file.
    """

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._left = self._most = max(_ALWAYS_ALLOWED, _MAX_RATIO * archive.stat().st_size)

    def write(self, source: IO[bytes] | gzip.GzipFile, place: Path) -> None:
        """Writes one member; DataError if all together are too large for the archive."""
        place.parent.mkdir(parents=True, exist_ok=True)
        with named_errors(place), place.open("wb") as file:
            while piece := source.read(_PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise DataError(
                        f"{self._archive} holds more than {self._most:,} bytes, over {_MAX_RATIO} "
                        "times its own size, as decompression bombs do. It was not unpacked; if it "
                        "is to be trusted, unpack it by hand into its folder."
                    )
                file.write(piece)
