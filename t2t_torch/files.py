"""Files: regular files opened safely, lines of texts, targets of outputs, values of inputs."""

from __future__ import annotations

import base64
import bz2
import codecs
import contextlib
import errno
import functools
import gzip
import io
import json
import lzma
import os
import re
import reprlib
import shutil
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, TextIO, cast

from t2t_torch.atomic_files import STAGED_SUFFIX, staged
from t2t_torch.errors import DataError, UsageError
from t2t_torch.remote import fetch

MAX_CONTENT = 1 << 30
"""Bytes of a file that is read into memory, if its reader sets no limit."""
MAX_VOCABULARY = 1 << 26
"""Bytes of the file of a vocabulary or a tokenizer; the largest published ones have 33 million."""
_MAX_ENTRIES = 1 << 21
_MAX_JSON = 1 << 24  # bytes; metadata of runs and artifacts has at most a few megabytes
_MAX_CONTAINERS = 1 << 20  # lists and objects of a JSON file; each takes at least 64 bytes
_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


class UnreadableFileError(DataError, OSError):
    """A path that is not a regular file, or a file larger than its reader accepts."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be read: {self.strerror}."


@functools.cache
def _kernel_folders() -> tuple[str, ...]:
    """Returns /proc, /sys, /dev, and where else /proc and /sys are mounted, each with a "/"."""
    folders = {"/proc", "/sys", "/dev"}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines():
            folders |= {part[1] for part in [line.split(" ")] if part[2] in ("proc", "sysfs")}
    return tuple(f"{folder}/" for folder in sorted(folders))


def is_of_kernel(path: Path | str) -> bool:
    """Returns True if a path, links resolved, is in /proc, /sys or /dev (/dev/shm aside)."""
    real = f"{os.path.realpath(path)}/"
    return real.startswith(_kernel_folders()) and not real.startswith("/dev/shm/")


def passes_kernel(path: Path, links: int = 40) -> bool:
    """Returns True if a path leads through files of the kernel, as /proc/self/cwd does.

    Where such a path leads depends on the process that follows it.

    Args:
      path: absolute or relative to the current folder.
      links: how many links are followed; the kernel follows as many.
    """
    for part in (*reversed(path.parents), path):
        if is_of_kernel(part) and part != Path("/dev"):  # /dev/shm is below
            return True
        if part.is_symlink():
            rest = path.relative_to(part)
            return links == 0 or passes_kernel(part.parent / part.readlink() / rest, links - 1)
    return False


def open_regular(path: Path | str, *, max_bytes: int | None = None) -> io.BufferedReader:
    """Opens a regular file for reading, without ever waiting for a writer.

    Each path that comes from a user, a run, a manifest, a declaration or a network is opened here.

    Args:
      path: the file; links are followed.
      max_bytes: largest size of the file; None: any.

    Raises:
      UnreadableFileError: the path is a named pipe, a socket, a device or a file of the kernel, or
        the file is larger than `max_bytes`.
      OSError: the file cannot be opened.
    """

    def check(status: os.stat_result) -> None:
        mode, fault = stat.S_IFMT(status.st_mode), ""
        if mode not in (stat.S_IFREG, stat.S_IFDIR):  # open() refuses folders
            fault = f"it is {_KINDS.get(mode, 'a device')}, and only regular files are read"
        elif is_of_kernel(path):
            fault = "it is a file of the kernel, and only regular files are read"
        elif mode == stat.S_IFREG and max_bytes is not None and status.st_size > max_bytes:
            fault = f"it has {status.st_size:,} bytes; at most {max_bytes:,} were expected"
        if fault:
            raise UnreadableFileError(errno.EINVAL, fault, str(path))

    def opener(name: str, flags: int) -> int:
        check(os.stat(name))  # noqa: PTH116
        descriptor = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            check(os.fstat(descriptor))  # the path may have been replaced
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    try:
        return open(path, "rb", opener=opener)
    except FileNotFoundError:
        if not fetch(Path(path)):
            raise
        return open(path, "rb", opener=opener)


def path_inside(folder: Path, name: str) -> Path:
    """Returns the path of a file that a record of a folder names, which must be below the folder.

    Raises:
      UnreadableFileError: it is elsewhere.
    """
    if os.path.isabs(name) or f"{os.path.normpath(name)}/".startswith("../"):  # noqa: PTH117
        fault = f"it is outside of {folder}, where the file that names it is"
        raise UnreadableFileError(errno.EINVAL, fault, name)
    return folder / name


def check_regular(path: Path | str) -> str:
    """Returns a path for a library that opens it itself, if `open_regular` would open it."""
    open_regular(path).close()
    return str(path)


def copy_regular(source: Path | str, target: Path | str) -> None:
    """Copies the content of a regular file; see `open_regular`."""
    with open_regular(source) as content, Path(target).open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)


def read_bytes(path: Path | str, *, max_bytes: int = MAX_CONTENT) -> bytes:
    """Returns the content of a regular file; see `open_regular`."""
    with open_regular(path, max_bytes=max_bytes) as file:
        return file.read()


def read_text(path: Path | str, *, max_bytes: int = MAX_CONTENT, errors: str = "strict") -> str:
    """Returns the text of a regular UTF-8 file, without a byte order mark; see `open_regular`."""
    return read_bytes(path, max_bytes=max_bytes).decode("utf-8-sig", errors)


class RepeatedKeyError(ValueError):
    """A key is repeated in a JSON object; `args[0]` is the key."""

    def __str__(self) -> str:
        return f"the key {self.args[0]!r} is there twice"


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object, for `object_pairs_hook`; RepeatedKeyError if a key is repeated."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return made


def read_json(
    path: Path | str,
    *,
    max_bytes: int = _MAX_JSON,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Returns the content of a JSON file; see `open_regular`.

    Raises:
      OSError: the file cannot be read, or is not a regular file.
      ValueError: it is no JSON, or has too many or too deeply nested lists and objects.
    """
    content = read_bytes(path, max_bytes=max_bytes)
    if content.count(b"[") + content.count(b"{") > _MAX_CONTAINERS:
        raise ValueError(f"more than {_MAX_CONTAINERS:,} lists and objects")
    try:
        return json.loads(content, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None


def replace_if_other(path: Path, content: bytes) -> None:
    """Writes a file unless it has this content already; a link becomes a file."""
    if path.is_symlink() or not path.exists() or read_bytes(path) != content:
        with staged(path) as part:
            part.write_bytes(content)


def check_tree(
    value: Any, children: Callable[[Any], Collection[Any]], *, most_nodes: int, most_depth: int
) -> int:
    """Returns how many parts a structure has, each counted as often as it occurs.

    Parts that occur in several places, as the aliases of YAML do, make a small file a structure
    that grows exponentially for a reader that walks through it.

    Raises:
      ValueError: there are more than `most_nodes`, or they are nested deeper than `most_depth`.
    """
    count, pending = 1, [(value, 0)]
    while pending:
        one, depth = pending.pop()
        parts = children(one)
        count += len(parts)
        if count > most_nodes:
            raise ValueError(f"it has more than {most_nodes:,} parts")
        if parts and depth >= most_depth:
            raise ValueError(f"it is nested deeper than {most_depth}")
        pending += [(part, depth + 1) for part in parts]
    return count


def read_entries(path: Path) -> list[str]:
    """Returns the lines of a vocabulary.

    Raises:
      DataError: it is too large for a vocabulary, or `read_lines` fails.
    """
    with contextlib.suppress(*DAMAGED, OSError), open_bytes(path) as file:  # read_lines reports it
        start = file.read(MAX_VOCABULARY + 1)
        if len(start) > MAX_VOCABULARY or start.count(b"\n") > _MAX_ENTRIES:
            raise DataError(
                f"{path} has more than {_MAX_ENTRIES:,} lines or {MAX_VOCABULARY:,} bytes, too "
                "many for a vocabulary. Name the right file."
            )
    return list(read_lines(path))


def open_zip(file: IO[bytes], *, max_members: int = 1 << 22) -> zipfile.ZipFile:
    """Opens a zip file; the size of its list of members, which is kept in memory, is checked first.

    Raises:
      zipfile.BadZipFile: it is no zip file, or has too many members.
    """
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    members, size = end[4:6] if end else (0, 0)
    if members > max_members or size > max_members << 8:
        raise zipfile.BadZipFile(f"it has more than {max_members:,} members")
    return zipfile.ZipFile(file)


_MAGIC: Mapping[re.Pattern[bytes], Callable[..., Any]] = {
    re.compile(rb"\x1f\x8b"): gzip.open,  # RFC 1952; no UTF-8 text starts with it
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): bz2.open,
    re.compile(rb"\xfd7zXZ\x00"): lzma.open,
}
_MAGIC_SIZE = 10
_LONGEST_LINE = 1 << 26  # bytes of a line in a compressed file
_LONGEST_PLAIN = 1 << 27  # the text of the data set text8 is one line of 10**8
_MAX_RATIO = 500  # greatest compression ratio
_MAX_WHOLE_RATIO = 100  # of a file that is kept in memory
_ALWAYS_ALLOWED = 1 << 32  # bytes of text in a compressed file


DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
"""Errors of damaged compressed files."""


def read_raw_lines(path: Path, *, whole: bool = False) -> Iterator[bytes]:
    r"""Yields the lines of a plain or compressed file as bytes, each with its "\n".

    Args:
      path: the file.
      whole: True if the caller keeps all lines: they may as well be one, and a compressed file may
        unpack to 64 MB or 100 times its size, no more.

    Raises:
      DataError: the file cannot be read, or a compressed file is damaged.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            packed = not isinstance(file, io.BufferedReader)
            long = packed or (not whole and path.stat().st_size > _LONGEST_PLAIN)
            lines = _limited(file, path, packed, whole) if long else file
            for number, line in enumerate(lines, 1):  # noqa: B007  the errors below name it
                yield line
    except DAMAGED as error:
        fault = f"is damaged after line {number}" if number else "is not a gzip file, or is damaged"
        raise DataError(f"{path} {fault}: {error}. Remove it and fetch it again.") from None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


def _limited(file: io.BufferedIOBase, path: Path, packed: bool, whole: bool) -> Iterator[bytes]:
    """Yields the lines of a file; DataError if one is too long, or it is a decompression bomb."""
    most = max(_ALWAYS_ALLOWED, (_MAX_RATIO if packed else 1) * path.stat().st_size)
    longest = _LONGEST_LINE if packed else _LONGEST_PLAIN
    if whole:
        most = longest = max(_LONGEST_LINE, _MAX_WHOLE_RATIO * path.stat().st_size)
    total = 0
    while line := file.readline(longest + 1):
        total += len(line)
        if len(line) > longest or total > most:
            what = f"a line of more than {longest:,}" if total <= most else f"{total:,}"
            if not packed:
                raise DataError(f"{path} has {what} bytes. Expected lines of text.")
            raise DataError(
                f"{path} unpacks to {what} bytes, as decompression bombs do. If it is to be "
                "trusted, unpack it by hand:  gunzip"
            )
        yield line


def read_lines(path: Path) -> Iterator[str]:
    r"""Yields the lines of a plain or gzip-compressed UTF-8 file without their "\n" or "\r\n".

    Only "\n" ends a line: other carriage returns, form feeds, U+0085, U+2028 and the like are part
    of the line, which keeps parallel files parallel.  A "\r" before the "\n" and a byte order mark
    at the start of the file, as written by Windows editors, are removed.

    Raises:
      DataError: there is no such file, it is not UTF-8 (the message has line and byte), or a
        compressed file is damaged.
    """
    start = 0
    number = 0
    try:
        for line in read_raw_lines(path):
            number += 1
            if number == 1 and line.startswith(codecs.BOM_UTF8):
                start = len(codecs.BOM_UTF8)
                line = line[start:]
            yield (line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")).decode()
            start += len(line)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: byte {error.start + 1} of the line (byte "
            f"{start + error.start + 1} of the text) is 0x{error.object[error.start]:02x}, "
            "which is not UTF-8 there "
            f"({error.reason}). Convert the file:  iconv -f ITS_ENCODING -t UTF-8"
        ) from None


def read_parallel(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    """Yields the pairs of lines of two files.

    Raises:
      DataError: the files have different numbers of lines (raised after all pairs), or
        `read_lines` fails for one of them.
    """
    counts = [0, 0]
    for pair in zip_longest(read_lines(first), read_lines(second)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if pair[0] is not None and pair[1] is not None:
            yield pair[0], pair[1]
    if counts[0] != counts[1]:
        raise DataError(
            f"{first} has {counts[0]:,} lines and {second} has {counts[1]:,}; line n of the one "
            "belongs to line n of the other. Make them parallel."
        )


def open_bytes(path: Path) -> io.BufferedIOBase:
    """Opens a file for reading; one compressed with gzip, bzip2 or xz is decompressed."""
    with open_regular(path) as file:
        start = file.read(_MAGIC_SIZE)
    for magic, unpack in _MAGIC.items():
        if magic.match(start):
            return cast("io.BufferedIOBase", unpack(path, "rb"))
    return open_regular(path)


def without_packing(name: str) -> str:
    """Returns a file's name without ".gz", ".bz2" or ".xz"."""
    return re.sub(r"\.(gz|bz2|xz)$", "", name, flags=re.IGNORECASE)


BLOCK_CHARACTERS = 1 << 16
"""How long a text is at least, the last one aside; what is chopped from it is much shorter."""


def blocks(lines: Iterable[str], *, characters: int = BLOCK_CHARACTERS) -> Iterator[str]:
    r"""Joins consecutive lines with "\n" to texts of at least `characters` characters."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line) + 1
        if size >= characters:
            yield "\n".join(held)
            held, size = [], 0
    if held:
        yield "\n".join(held)


def check_target(target: Path, *sources: Path, flag: str = "--decode_to_file") -> None:
    """Checks before a long computation that its outputs can be written.

    Creates the folder of the target.

    Args:
      target: path of the outputs; need not exist.
      sources: input files; none of them may be the target.
      flag: flag that sets the target, for errors.

    Raises:
      UsageError: the target is one of the sources, a folder, or cannot be written.
    """
    for source in sources:
        if _is_same(target, source):
            raise UsageError(
                f"the outputs would overwrite {source}, which is read: {target} is the same file. "
                f"Name another with {flag}."
            )
    try:
        _check_place(target, flag)
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror or error}. Expected a file in a folder that "
            f"can be written; name one with {flag}."
        ) from None


def _check_place(target: Path, flag: str) -> None:
    mode = _mode(target)
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageError(f"{target} is a folder. Expected a file:  {flag}={target / 'outputs.txt'}")
    if mode is not None and not stat.S_ISREG(mode):
        if not os.access(target, os.W_OK):
            raise PermissionError(0, "no permission")
        return
    file = Path(os.path.realpath(target))
    file.parent.mkdir(parents=True, exist_ok=True)
    # Create a temporary file like the later one: detects missing permissions, read-only disks and
    # names that are too long.
    probe = file.with_name(f".{file.name}.{os.getpid()}{STAGED_SUFFIX}")
    probe.touch()
    probe.unlink()


class ReportStream:
    """A standard stream for reports, which never end a command.

    Text is dropped from the first write on that finds no reader.

    Args:
      stream: the stream to write to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes or drops a text; returns its length."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream."""
        with self._dropping():
            self._stream.flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # what is buffered would fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextlib.contextmanager
def report_streams() -> Iterator[None]:
    """Makes standard output and error of this process `ReportStream`s.

    A standard stream that was closed when the process started is the null device from then on: the
    next file to be opened would else take its number, and get what is printed.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    stdout, stderr = ReportStream(sys.stdout), ReportStream(sys.stderr)
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        yield


def goes_to_stdout(target: Path) -> bool:
    """Returns True if the target is the standard output of this process."""
    return is_open_as(target, 1)


@contextlib.contextmanager
def open_target(target: Path) -> Iterator[TextIO]:
    """Opens an output file for an atomic write.

    A symbolic link is kept: the file that it points to is replaced.  A target that is not a regular
    file (a pipe, a terminal), and standard output or error, is written directly.
    """
    mode = _mode(target)
    for descriptor in (1, 2):
        if is_open_as(target, descriptor):
            # Not reopened: that would overwrite earlier output.
            (sys.stdout if descriptor == 1 else sys.stderr).flush()
            with os.fdopen(os.dup(descriptor), "w", encoding="utf-8", newline="") as stream:
                yield stream
            return
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        return
    file = Path(os.path.realpath(target))
    file.parent.mkdir(parents=True, exist_ok=True)
    with staged(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        yield stream


def is_replaced(target: Path) -> bool:
    """Returns True if the target is written atomically: it is a regular file or missing."""
    mode = _mode(target)
    return (mode is None or stat.S_ISREG(mode)) and not any(is_open_as(target, n) for n in (1, 2))


def is_stream(target: Path) -> bool:
    """Returns True if the target exists and is neither a regular file nor a folder."""
    try:
        mode = _mode(target)
    except OSError:
        return False
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _mode(path: Path) -> int | None:
    """Returns the mode of a path, following links; None if it does not exist."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def is_open_as(path: Path, descriptor: int) -> bool:
    """Returns True if a path is the file that a descriptor of this process refers to."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def path_of_line(text: str, folder: Path, kind: str) -> Path:
    """Returns the path that a line of a list names, absolute or relative to the list's folder.

    Args:
      text: the line; "~" is the home directory.
      folder: folder of the list.
      kind: what the file is, for errors: "picture" or "sound".

    Raises:
      DataError: the line is empty, or there is no such file.
    """
    if not text.strip():
        raise DataError(f"an empty line; the path of a {kind} file was expected.")
    try:
        path = folder / Path(text).expanduser()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # raised by pathlib for invalid names
        raise DataError(f"{reprlib.repr(text)} is no path: {error}.") from None
    if not is_file:
        raise DataError(f"{path} is not there, or is no file.")
    return path


def file_content(value: str | bytes | Path, kind: str) -> bytes:
    """Returns the content of a file.

    Args:
      value: its path, its content, or its content in base64: with line breaks or without, in the
        alphabet for URLs or not, also after `data:...;base64,`.
      kind: see `path_of_line`.

    Raises:
      DataError: the file cannot be read, or the text is no base64.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, Path):
        try:
            return read_bytes(value)
        except OSError as error:
            raise DataError(f"'{value}' cannot be read: {error.strerror}.") from None
    text = re.sub(r"[\r\n]", "", value.rpartition(",")[2]).rstrip("=")
    text = text.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise DataError(
            f"{reprlib.repr(value)} is no {kind}: expected the content of a {kind} file in base64. "
            "In Python a file is given as pathlib.Path(...)."
        ) from None
