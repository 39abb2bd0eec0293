"""Raw files of a data set: search, download, unpacking, verification and reading of samples."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gzip
import http.client
import itertools
import lzma
import os
import random
import re
import shutil
import stat
import tarfile
import traceback
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from absl import logging

from t2t_torch.atomic_files import STAGED_SUFFIX, file_lock, named_errors, remove_leftovers, staged
from t2t_torch.data.manifest import RawFileEntry, fault_of, sha256_of
from t2t_torch.errors import DataError, T2TError
from t2t_torch.files import check_regular, open_bytes, open_regular, open_zip
from t2t_torch.mode import Split
from t2t_torch.reporter import bar

if TYPE_CHECKING:
    from t2t_torch.problem import Problem


def exclusive(path: Path, purpose: str) -> contextlib.AbstractContextManager[None]:
    """Returns the context of a lock, which logs a message if it must wait; see `file_lock`.

    Args:
      path: lock file, created with its folders if missing.
      purpose: purpose of the lock, for the message.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "Waiting for %s, which is %s (%s)."
    return file_lock(path, lambda holder: logging.warning(text, holder, purpose, path))


_TIMEOUT_SECONDS = 60.0  # without a byte
_BLOCK_BYTES = 1 << 18
# Some servers answer Python's own name with 403.
_HEADERS = {"User-Agent": "t2t_torch", "Accept-Encoding": "identity"}


def fetch(
    urls: str | Sequence[str],
    tmp_dir: str | Path,
    *,
    filename: str | None = None,
    sha256: str | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> Path:
    """Returns a raw file from `tmp_dir`, or downloads it from the first working mirror.

    An existing file is used unchanged; a warning is logged if it does not match `sha256`.  A
    download gets its final name only if it is complete and its checksum is correct.

    Args:
      urls: URL of the file, or mirrors in the order of attempts.
      tmp_dir: folder of raw files, created if missing.
      filename: name of the file; by default the last part of the first URL's path.
      sha256: checksum of the file in hex.
      timeout_seconds: timeout for a server that sends nothing.

    Raises:
      DataError: all mirrors failed (contains their errors), or the name is invalid.
    """
    mirrors = [urls] if isinstance(urls, str) else list(urls)
    name = filename or Path(urlsplit(mirrors[0]).path).name
    if not name or Path(name).name != name:
        raise DataError(f"{name!r} is not a plain file name; pass filename= for {mirrors}.")
    path = Path(tmp_dir) / name
    if path.exists():
        return _as_it_is(path, sha256)
    with exclusive(path.with_name(f".{name}.lock"), f"downloading {name!r}"):
        if path.exists():  # another process has downloaded it while this one waited
            return _as_it_is(path, sha256)
        remove_leftovers(path)
        failures = []
        for url in mirrors:
            try:
                with staged(path) as temporary:
                    _download(url, temporary, name, timeout_seconds)
                    _check(temporary, sha256)
                return path
            except (OSError, ValueError, DataError) as error:
                failures.append(f"{url}: {str(error) or type(error).__name__}")
    raise DataError(
        f"{name} could not be downloaded:\n  "
        + "\n  ".join(failures)
        + f"\nTry again, or get the file by other means and put it at {path}."
    )


def _download(url: str, path: Path, name: str, timeout_seconds: float) -> None:
    request = urllib.request.Request(url, headers=_HEADERS)
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as response:
            length = response.headers.get("Content-Length")
            expected, size = int(length) if length else None, 0
            with (
                path.open("wb") as file,
                bar(
                    desc=name, total=expected, unit="B", unit_scale=True, unit_divisor=1024
                ) as shown,
            ):
                while block := response.read(_BLOCK_BYTES):
                    size += file.write(block)
                    shown.update(len(block))
    except NETWORK_ERRORS as error:  # or of the disk
        raise DataError(network_fault(error)) from None
    if expected is not None and size != expected:
        raise DataError(f"the connection ended after {size} of {expected} bytes")


NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, OSError)
"""Errors of `urllib.request.urlopen` and of reading from it."""


def network_fault(error: BaseException) -> str:
    """Returns the reason of one of `NETWORK_ERRORS`, in words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code} {error.reason}"
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason) or type(error).__name__


def _check(path: Path, sha256: str | None) -> None:
    actual = sha256_of(path) if sha256 else None
    if actual != sha256:
        raise DataError(f"expected sha256 {sha256}, found {actual}")


def _as_it_is(path: Path, sha256: str | None) -> Path:
    try:
        _check(path, sha256)
    except DataError as error:
        logging.warning("%s is used as it is, but it is not the known file: %s.", path, error)
    return path


_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar", ".zip", ".gz")
_MAX_RATIO = 200  # of what comes out to the archive; text packs to a tenth, zeros to a thousandth
_ALWAYS_ALLOWED = 1 << 28  # bytes
_PIECE = 1 << 20
DAMAGED_ARCHIVE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
)


def unpack(archive: str | Path, directory: str | Path | None = None) -> Path:
    """Unpacks a tar archive (also gz, bz2, xz), a zip archive or a single gzip file.

    Nothing is written outside `directory`.  An existing result is used unchanged.

    Args:
      archive: path of the archive; the suffix determines its format.
      directory: folder for the contents; by default the archive's path without its suffix.  For a
        single gzip file, the folder of the unpacked file; by default the archive's folder.

    Returns:
      The folder; for a single gzip file, the unpacked file.

    Raises:
      DataError: the archive is damaged, has an unknown format, or would write or link outside of
        the folder.
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
            with staged(target) as temporary, gzip.open(check_regular(path)) as source:
                _Writer(path).write(source, temporary)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = emptied(target.with_name(f".{target.name}{STAGED_SUFFIX}"))
        try:
            unpack_into(path, staging, is_zip=suffix == ".zip")
            os.sync()  # an archive may hold 100,000 files; to sync each would take minutes
            staging.rename(target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except DAMAGED_ARCHIVE as error:
        raise DataError(
            f"{path} cannot be unpacked: {error or type(error).__name__}. It seems damaged: delete "
            "it, so that it is downloaded again, or replace it."
        ) from error


def emptied(folder: Path) -> Path:
    """Returns a folder, new or without the files of a process that was killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def unpack_into(path: Path, folder: Path, *, is_zip: bool) -> None:
    """Unpacks a zip archive, or a tar archive, compressed or not, into an empty folder.

    Raises:
      DataError: it would write or link outside of the folder, or is a decompression bomb.
      OSError, or one of `DAMAGED_ARCHIVE`: it is damaged.
    """
    (_unpack_zip if is_zip else _unpack_tar)(path, folder)


def _unpack_tar(path: Path, root: Path) -> None:
    links, writer = [], _Writer(path)
    # Not by tarfile's own detection, which takes zeros for an endless xz file.
    with open_bytes(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
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
    """Raises DataError if a link leads outside of the folder, possibly through another link."""
    if not Path(os.path.realpath(place)).is_relative_to(root.resolve()):
        raise DataError(_escape(archive, f"{member.name} -> {member.linkname}"))


def _unpack_zip(path: Path, root: Path) -> None:
    writer = _Writer(path)
    with open_regular(path) as file, open_zip(file) as archive:
        writer.check(sum(member.file_size for member in archive.infolist()))
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
    """Returns the path of a member; raises DataError if it is not below `root`."""
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
    """Writes the members of an archive; detects decompression bombs.

    Args:
      archive: path of the archive.
    """

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._left = self._most = max(_ALWAYS_ALLOWED, _MAX_RATIO * archive.stat().st_size)

    def write(self, source: IO[bytes] | gzip.GzipFile, place: Path) -> None:
        """Writes a member; raises DataError if all members are too large for the archive."""
        place.parent.mkdir(parents=True, exist_ok=True)
        with named_errors(place), place.open("wb") as file:
            while piece := source.read(_PIECE):
                self.check(len(piece))
                self._left -= len(piece)
                file.write(piece)

    def check(self, size: int) -> None:
        """Raises DataError if this many more bytes are too many for the archive."""
        if size > self._left:
            raise DataError(
                f"{self._archive} holds more than {self._most:,} bytes, over {_MAX_RATIO} times "
                "its own size, as decompression bombs do. It was not unpacked; if it is to be "
                "trusted, unpack it by hand into its folder."
            )


@dataclass(frozen=True)
class RawFile:
    """A file that samples are read from.

    Attributes:
      name: name without ".gz"; the full name for an archive.
      folders: possible folders below `--tmp_dir`; "" is that folder itself.  Downloads are saved in
        the first.
      urls: mirrors in the order of attempts; if the first ends in ".gz", all are compressed.
      sha256: checksum of the downloaded file in hex.
      archive: archive that contains the file, if it is not found by itself.
      inside: possible folders in that archive.
      other_names: alternative names.
    """

    name: str
    folders: Sequence[str] = ("",)
    urls: Sequence[str] = ()
    sha256: str | None = None
    archive: RawFile | None = None
    inside: Sequence[str] = ("",)
    other_names: Sequence[str] = ()

    def find(self, tmp_dir: Path) -> Path | None:
        """Returns the path of the file or of its archive; None if neither exists."""
        path = self.itself(tmp_dir)
        return self.archive.find(tmp_dir) if path is None and self.archive is not None else path

    def get(self, tmp_dir: Path) -> Path:
        """Returns the path of the file, unpacked or downloaded if necessary.

        Raises:
          DataError: the file is missing and cannot be downloaded; says where to put it.
        """
        path = self.itself(tmp_dir)
        if path is not None:
            return path
        if self.archive is None:
            if not self.urls:
                raise DataError(_missing(self.name, tmp_dir, self.folders))
            folder = tmp_dir / self.folders[0]
            return fetch(self.urls, folder, filename=self.download, sha256=self.sha256)
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
        """The name of the downloaded file, to which `sha256` applies."""
        packed = bool(self.urls) and urlsplit(self.urls[0]).path.endswith(".gz")
        return f"{self.name}.gz" if packed and not self.name.endswith(".gz") else self.name

    def itself(self, tmp_dir: Path) -> Path | None:
        """Returns the path of the file itself, not of its archive; None if it is missing."""
        paths = (
            find(name, tmp_dir, folders=self.folders) for name in (self.name, *self.other_names)
        )
        return next(filter(None, paths), None)


def find(name: str, tmp_dir: Path, *, folders: Sequence[str] = ("",)) -> Path | None:
    """Returns the path of a file, possibly compressed with gzip; None if it is missing.

    Args:
      name: name without ".gz".
      tmp_dir: folder of raw files.
      folders: folders below it to search; "" is the folder itself.
    """
    for folder in folders:
        for path in (tmp_dir / folder / f"{name}.gz", tmp_dir / folder / name):
            if path.is_file():
                return path
    return None


def sources_of(problem: Problem, split: Split | None = None) -> list[RawFile]:
    """Returns the `sources` of a problem; of one split, if they are given by split."""
    if not isinstance(problem.sources, Mapping):
        return list(problem.sources)
    groups = [problem.sources[split]] if split else problem.sources.values()
    return [file for group in groups for file in ([group] if isinstance(group, RawFile) else group)]


def existing_files(files: Iterable[RawFile], tmp_dir: Path) -> list[Path]:
    """Returns the paths of existing files, each archive once; for `raw_files`."""
    return list(dict.fromkeys([path for file in files if (path := file.find(tmp_dir)) is not None]))


def get_all(files: Iterable[RawFile], tmp_dir: Path) -> None:
    """Downloads or unpacks files where necessary, each archive once.

    Raises:
      DataError: files are missing and cannot be downloaded; says where to put them.
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
        raise DataError("\n".join([*failures.values(), *unknown_files(files, tmp_dir)]))


def unknown_files(files: Iterable[RawFile], tmp_dir: Path) -> list[str]:
    """Returns a message for each existing file with another sha256 than expected."""
    owners: dict[Path, str] = {}
    both = itertools.chain.from_iterable((file, file.archive) for file in files)
    for file in filter(None, both):
        path = file.itself(tmp_dir)
        # Packed in another way than it can be downloaded, its bytes are others.
        if path is None or path in owners or file.sha256 is None or path.name != file.download:
            continue
        if sha256_of(path) != file.sha256:
            remedy = "Remove it, and it is fetched again." if file.urls else "Get it again."
            owners[path] = (
                f"{path} is not the file that is expected (sha256 {file.sha256}): perhaps it is "
                f"damaged. {remedy}"
            )
    return list(owners.values())


def published(folder: str, *urls: str, sha256: str | None = None) -> RawFile:
    """Returns the file at URLs, mirrors of it, of which the first ends in its name.

    Args:
      folder: its folder below `--tmp_dir`, where it is saved; it may be in `--tmp_dir` itself.
      urls: mirrors, see `RawFile`.
      sha256: checksum.
    """
    return RawFile(urls[0].rpartition("/")[2], (folder, ""), urls, sha256)


def both_schemes(address: str) -> tuple[str, str]:
    """Returns the URLs of an address with https and, for hosts and proxies without, http."""
    return f"https://{address}", f"http://{address}"


def on_github(path: str) -> tuple[str, str]:
    """Returns the URLs of a file, or of a folder that ends with "/": owner/repository/ref/path."""
    owner, repository, rest = path.split("/", 2)
    raw = f"https://github.com/{owner}/{repository}/raw/{rest}"
    return f"https://raw.githubusercontent.com/{path}", raw


def mirrored(
    mirrors: Iterable[str], checksums: Mapping[str, str | None], *folders: str
) -> list[RawFile]:
    """Returns files of the same names on several hosts.

    Args:
      mirrors: URLs of the folders, each ending with "/".
      checksums: file name, possibly with ".gz" -> sha256; see `RawFile`.
      folders: folders below `--tmp_dir`; see `RawFile`.
    """
    return [
        RawFile(name.removesuffix(".gz"), folders, [mirror + name for mirror in mirrors], sha256)
        for name, sha256 in checksums.items()
    ]


def member(archive: RawFile, path: str) -> RawFile:
    """Returns a file of an archive.

    The file may also exist unpacked, at its path below a folder of the archive or below the folder
    with the archive's name without suffix.

    Args:
      archive: archive of the file.
      path: path in the archive, without ".gz".
    """
    folder, _, name = path.rpartition("/")
    stem = re.sub(r"(\.tar)?\.[^.]+$", "", archive.name)
    places = (f"{place}/{inner}" for place in archive.folders for inner in (".", stem))
    folders = tuple(str(PurePath(place.lstrip("/"), folder)) for place in places)
    return RawFile(name, folders=folders, archive=archive, inside=(folder,))


def matching(archive: RawFile, tmp_dir: Path, pattern: str) -> list[Path]:
    """Returns the files of an archive that match a pattern, unpacked, in the order of their paths.

    Args:
      archive: archive of the files.
      tmp_dir: folder of raw files.
      pattern: of the path in the archive or of its end, with `*` for any part of a name.

    Raises:
      DataError: the archive is missing, damaged, or has no such file.
    """
    path = archive.get(tmp_dir)
    unpacked = unpack(path)
    paths = sorted(path for path in unpacked.rglob(pattern) if path.is_file())
    if not paths:
        raise DataError(
            f"{path} holds no {pattern}, so it is not the archive that was expected; or "
            f"{unpacked}, which was taken for what comes out of it, is something else or not "
            f"whole. Delete {unpacked}, and get the archive again."
        )
    return paths


def _missing(name: str, tmp_dir: Path, folders: Sequence[str]) -> str:
    places = " or ".join(str(tmp_dir / folder) for folder in folders)
    return f"{name} is not there. Put it, packed with gzip or not, in {places}."


def entries(problem: Problem, tmp_dir: Path) -> Mapping[str, RawFileEntry]:
    """Returns the existing raw files of a problem by their path below `tmp_dir`."""
    files = _raw_files(problem, tmp_dir)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(files, pool.map(entry, files.values()), strict=True))


def changes(problem: Problem, tmp_dir: Path, recorded: Mapping[str, RawFileEntry]) -> list[str]:
    """Returns the differences of existing raw files to the recorded ones.

    A missing file is not a difference, because raw files may be deleted after generation.  A
    renamed file with the same content is not a difference either.

    Args:
      problem: problem of the files.
      tmp_dir: folder of the files.
      recorded: result of `entries` when the data was generated; empty if unknown.
    """
    if not recorded:
        return []
    files = _raw_files(problem, tmp_dir)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        faults = pool.map(lambda name: _change(name, files[name], recorded), files)
        return [change for change in faults if change]


def _raw_files(problem: Problem, tmp_dir: Path) -> dict[str, Path]:
    paths = sorted(path for path in problem.raw_files(tmp_dir) if path.is_file())
    # Files elsewhere, as beside a declaration: train/label and test/label are different files.
    above = [path.parent for path in paths if not path.is_relative_to(tmp_dir)]
    root = Path(os.path.commonpath(above)) if above else tmp_dir
    return {
        path.relative_to(tmp_dir if path.is_relative_to(tmp_dir) else root).as_posix(): path
        for path in paths
    }


def entry(path: Path) -> RawFileEntry:
    """Returns size and checksum of a file."""
    return RawFileEntry(bytes=path.stat().st_size, sha256=sha256_of(path))


def _change(name: str, path: Path, recorded: Mapping[str, RawFileEntry]) -> str | None:
    if name in recorded:
        return fault_of(path, recorded[name])
    if entry(path).sha256 in {entry.sha256 for entry in recorded.values()}:
        return None
    return f"{path}: not among the files it was made from ({', '.join(recorded)})"


def samples_of(problem: Problem, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
    """Yields the examples of all samples of a problem.

    Raises:
      DataError: the problem's code raised an exception other than T2TError (the message names
        problem, split and sample and ends with the problem's part of the traceback), or there are
        no samples.  The message also names raw files with unexpected checksums.
    """
    number = 0
    try:
        for sample in problem.generate_samples(tmp_dir, split):
            yield from problem.examples_of(sample)
            number += 1
    except T2TError as error:
        strange = unknown_files(sources_of(problem), tmp_dir)
        if not strange:
            raise
        raise DataError("\n".join([str(error), *strange])) from error
    except Exception as error:
        frames = error.__traceback__
        frames = frames.tb_next or frames if frames else None  # without this function's own
        message = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        at = f"{problem.dataset_name!r} {split.value}: generate_samples failed at sample {number}"
        strange = unknown_files(sources_of(problem), tmp_dir)
        raise DataError("\n".join([f"{at}, counted from 0:\n{message}", *strange])) from error
    if not number:
        strange, files = unknown_files(sources_of(problem), tmp_dir), problem.raw_files(tmp_dir)
        if strange or (files and split is Split.TRAIN):
            read = ", ".join(map(str, files)) or "the raw files"
            message = f"{problem.dataset_name!r} {split.value}: there is no sample in {read}."
            raise DataError("\n".join([message, *strange]))


@contextlib.contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Context manager that seeds the global generators and restores their states."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(f"{seed}:{purpose}")
    np.random.seed(random.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
