"""Manifest of a generated data set: a JSON file in the folder of its shards."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pydantic

from t2t_torch import registry
from t2t_torch.atomic_files import write_text
from t2t_torch.errors import DataError
from t2t_torch.files import open_regular, read_bytes, read_json
from t2t_torch.mode import Split
from t2t_torch.remote import fetch, url_of

# A file may change once more within the tick of its file system's clock, and then looks as it did.
# Two seconds is the longest tick there is, that of FAT.
_TICK_NANOSECONDS = 2_000_000_000


def remember(data_dir: Path, name: str, shards: Iterable[ShardEntry]) -> None:
    """Records that the shards match the manifest.

    The record has their size, times of modification and of change, and inode.  In a read-only
    folder nothing is recorded.

    Args:
      data_dir: folder of the shards.
      name: name of the data set.
      shards: shards that were just hashed or written.
    """
    with contextlib.suppress(OSError):
        states = {shard.file: [shard.sha256, *_state(data_dir / shard.file)] for shard in shards}
        path = _path(data_dir, name)
        earlier = _read(path)
        states = {file: earlier[file] for file in earlier if (data_dir / file).exists()} | states
        write_text(path, json.dumps(states))


def unchanged(data_dir: Path, name: str, shards: Iterable[ShardEntry]) -> set[str]:
    """Returns the files of recorded shards that have not changed since.

    Args:
      data_dir: folder of the shards.
      name: name of the data set.
      shards: entries of the manifest.
    """
    path = _path(data_dir, name)
    try:
        states, noted_at = _read(path), path.stat().st_mtime_ns
    except OSError:
        return set()
    files = set()
    for shard in shards:
        with contextlib.suppress(OSError):
            state = _state(data_dir / shard.file)
            settled = state[1] + _TICK_NANOSECONDS <= noted_at
            if settled and states.get(shard.file) == [shard.sha256, *state]:
                files.add(shard.file)
    return files


def _path(data_dir: Path, name: str) -> Path:
    return data_dir / f".{name}.verified.json"


def _state(path: Path) -> tuple[int, int, int, int]:
    """Returns size, time of modification, inode, and time of change, which cannot be reset."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns


def _read(path: Path) -> Mapping[str, Any]:
    try:
        states = read_json(path)
    except (OSError, ValueError):
        return {}
    return states if isinstance(states, dict) else {}


_CHECKSUM = "checksum"

MAX_UNKNOWN_LABELS = 5
"""Maximum labels of a split, by feature, that are named because training does not have them."""


class StoredEntry(pydantic.BaseModel):
    """Base class of what is stored as JSON with data: immutable, without unknown fields."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class FeatureEntry(StoredEntry):
    """A stored feature: its role in the model, its Arrow type and its number of ids."""

    role: Literal["inputs", "targets", "notes", "kept"]
    type: str
    vocab_size: int | None


class ShardEntry(StoredEntry):
    """A shard: file name in the data folder, number of rows, size in bytes, sha256."""

    file: str
    rows: int
    bytes: int
    sha256: str

    @pydantic.field_validator("file")
    @classmethod
    def _is_in_the_folder(cls, file: str) -> str:
        if Path(file).name != file:
            raise ValueError(f"{file!r} is not a plain file name")
        return file


class RawFileEntry(StoredEntry):
    """A raw file that the data was made from: size in bytes, sha256."""

    bytes: int
    sha256: str


class SplitEntry(StoredEntry):
    """A split: its shards in order; sum and maximum of the row lengths by feature.

    `index` is the file of the lengths of a large split (`data/length_index.py`), `skipped` the
    number of bad records and invalid samples, `unknown` the number of labels by feature that are
    not in the training data, `unknown_labels` the first of them.
    """

    rows: int
    tokens: Mapping[str, int]
    max_length: Mapping[str, int]
    shards: Sequence[ShardEntry]
    skipped: int = 0
    unknown: Mapping[str, int] = {}
    unknown_labels: Mapping[str, Sequence[str]] = {}
    index: ShardEntry | None = None

    @property
    def files(self) -> list[ShardEntry]:
        """The shards, and the index if there is one."""
        return [*self.shards, *([] if self.index is None else [self.index])]


class Manifest(StoredEntry):
    """Manifest of a data set.  It is written last; if it exists, the data set is complete.

    It has no times, machines or versions: the same settings give the same bytes.  The file has an
    additional field, `checksum`, over all others, to detect damage.

    Attributes:
      problem: name of the data set, the prefix of its file names.
      settings: settings of the problem and the caller that determine the generated bytes.
      features: features by name, in the order of the columns.
      vocab_files: sha256 of each vocabulary file in the data folder.
      splits: splits by `Split.value`.
      raw_files: raw files of the problem, by path in their folder.
    """

    format: Literal[1] = 1
    problem: str
    settings: Mapping[str, Any]
    features: Mapping[str, FeatureEntry]
    vocab_files: Mapping[str, str]
    splits: Mapping[str, SplitEntry]
    raw_files: Mapping[str, RawFileEntry] = {}

    @staticmethod
    def path(data_dir: Path, name: str) -> Path:
        """Returns the path of the manifest of the data set `name`."""
        return data_dir / f"{name}.json"

    @classmethod
    def load(cls, data_dir: Path, name: str) -> Manifest:
        """Reads a manifest.

        Raises:
          DataError: it is missing, unreadable or altered, or belongs to another data set.
        """
        path = cls.path(data_dir, name)
        try:
            content = json.loads(read_bytes(path))
            # Manifests of earlier versions have no checksum.
            expected = content.pop(_CHECKSUM, None) if isinstance(content, dict) else None
            manifest = cls.model_validate(content)
            if expected is not None and _checksum(content) != expected:
                raise ValueError("it was altered or damaged: its checksum does not fit its content")
        except FileNotFoundError:
            raise DataError(
                f"No data of {name!r} in {data_dir}. Make it:  {datagen_command(name, data_dir)}"
            ) from None
        except OSError as error:
            raise DataError(
                f"Cannot read the data of {name!r}, {path}: {error.strerror}. Is --data_dir right?"
            ) from None
        except ValueError as error:
            raise DataError(
                f"{path} is not a manifest that this version can read: {_format_error(error)}. "
                f"Generate it again:  {datagen_command(name, data_dir)} --overwrite"
            ) from None
        if manifest.problem != name:
            raise DataError(
                f"{path} is the manifest of {manifest.problem!r}, not of {name!r}. "
                f"Generate it again:  {datagen_command(name, data_dir)} --overwrite"
            )
        return manifest

    def save(self, data_dir: Path) -> None:
        """Writes the manifest and its checksum atomically."""
        content = self.model_dump(mode="json")
        for entry in content["splits"].values():
            for key in ("unknown_labels", "index"):  # as in manifests of earlier versions
                if not entry[key]:
                    del entry[key]
        text = json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=2)
        write_text(self.path(data_dir, self.problem), text + "\n")

    def split(self, split: Split, data_dir: Path) -> SplitEntry:
        """Returns the entry of a split; DataError if the data set does not have it."""
        try:
            return self.splits[split.value]
        except KeyError:
            available = ", ".join(self.splits) or "none"
            raise DataError(
                f"{self.problem!r} in {data_dir} has no {split.value!r} split; it has: "
                f"{available}. Choose one of these, or add the split to the problem's `shards` and "
                f"run  {self.command(data_dir)} --overwrite"
            ) from None

    def verify(
        self, data_dir: Path, splits: Sequence[Split] | None = None, *, thorough: bool = False
    ) -> None:
        """Compares sizes and checksums of the vocabulary files and shards with the manifest.

        Verified shards are recorded in `.NAME.verified.json`.  A shard with the recorded size,
        times of modification and of change, and inode is not hashed again, so only a thorough
        verification detects bytes changed by a failing disk.

        Args:
          data_dir: folder of the data set.
          splits: splits to verify; None for all.
          thorough: True to hash all files.

        Raises:
          DataError: files are missing or differ; the message names them and the command to fix it.
        """
        chosen = self.splits if splits is None else {split.value for split in splits}
        shards = [shard for key in self.splits if key in chosen for shard in self.splits[key].files]
        known = set() if thorough else unchanged(data_dir, self.problem, shards)
        if url_of(data_dir) and not thorough:  # the others are compared when they are fetched
            known |= {shard.file for shard in shards if not (data_dir / shard.file).exists()}
        hashed = [shard for shard in shards if shard.file not in known]
        checks: list[tuple[str, int | None, str]] = [
            *((file, None, sha256) for file, sha256 in self.vocab_files.items()),
            *((shard.file, shard.bytes, shard.sha256) for shard in hashed),
        ]
        # Threads, since hashlib releases the GIL.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            results = pool.map(lambda check: _fault(data_dir / check[0], *check[1:]), checks)
            faults = [fault for fault in results if fault]
        if faults:
            raise DataError(
                f"The data of {self.problem!r} is damaged:\n  "
                + "\n  ".join(faults)
                + f"\nGenerate it again:  {self.command(data_dir)}"
            )
        if hashed:
            remember(data_dir, self.problem, hashed)

    def command(self, data_dir: Path) -> str:
        """Returns the t2t-datagen command that generates or imports this data again."""
        command = datagen_command(self.problem, data_dir)
        if "imported_from" not in self.settings:
            return command
        return command.replace("--tmp_dir=RAW_FILES", "--import_tfrecords=TENSOR2TENSORS_FOLDER")

    def fingerprint(self, split: Split) -> str:
        """Returns 16 hex digits that depend on the content of a split and its vocabulary."""
        part = {
            "features": {name: entry.model_dump() for name, entry in self.features.items()},
            "vocab": sorted(self.vocab_files.values()),
            "shards": [[s.rows, s.sha256] for s in self.splits[split.value].shards],
        }
        return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16]


def datagen_command(name: str, data_dir: Path) -> str:
    """Returns the command that generates a data set, for messages, with users' directories."""
    words = ["t2t-datagen", f"--problem={name}", f"--data_dir={data_dir}", "--tmp_dir=RAW_FILES"]
    return shlex.join([*words, *(f"--t2t_usr_dir={folder}" for folder in registry.usr_dirs())])


def sha256_of(path: Path) -> str:
    """Returns the sha256 of a file, in hex."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fault_of(path: Path, entry: RawFileEntry) -> str | None:
    """Returns the difference between a file and its entry, or None."""
    return _fault(path, entry.bytes, entry.sha256)


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _format_error(error: ValueError) -> str:
    """Returns the first validation error of a manifest."""
    if not isinstance(error, pydantic.ValidationError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(str(key) for key in first["loc"]) or "the file"
    return f"{place}: {first['msg']}"


def _fault(path: Path, num_bytes: int | None, sha256: str) -> str | None:
    """Returns the error of a file, or None."""
    try:
        fetch(path)
        found_bytes = path.stat().st_size
        if num_bytes is not None and found_bytes != num_bytes:
            return f"{path}: expected {num_bytes} bytes, found {found_bytes}"
        actual = sha256_of(path)
    except FileNotFoundError:
        return f"{path}: missing"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return None if actual == sha256 else f"{path}: expected sha256 {sha256}, found {actual}"
