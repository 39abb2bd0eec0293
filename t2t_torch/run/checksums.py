"""`SHA256SUMS` of a run directory: checksums of the files that t2t-trainer wrote there.

The file has the format of `sha256sum`.  A file with several lines may match any of them; a file
without a line is not checked.  Runs of earlier versions have no `SHA256SUMS`: their files are
compared with the copies in the newest checkpoint.  A flipped bit in `hparams.json`, for example,
is an error; to edit the file on purpose, add a line with its new checksum.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from t2t_torch.atomic_files import write_text
from t2t_torch.data.manifest import sha256_of
from t2t_torch.errors import CheckpointError
from t2t_torch.files import read_bytes, read_json, read_text
from t2t_torch.remote import push
from t2t_torch.run.storage import checkpoint_folders

FILE = "SHA256SUMS"
CODE = "code"
"""Folder of the copies of a run's code."""

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_SETTINGS = ("hparams.json", "experiment.json", "config.json")  # a line may have been deleted
_VOCABULARIES = ("vocab.*", "labels.*", "moments.*")  # named by problems
_TRIES = 3  # a trainer may write the file and its line between two reads

Sums = dict[str, list[str]]
"""The accepted sha256 of each file, by its path below the run directory."""


def read_checked(run: Path, name: str, known: Sums | None = None) -> bytes:
    """Reads a file of a run and compares it with its sha256.

    Args:
      run: the run directory.
      name: of the file.
      known: what `checksums_of` returned, if it was read before.

    Raises:
      CheckpointError: the file was changed.
      OSError: the file cannot be read.
    """
    for _ in range(_TRIES):
        content = read_bytes(run / name)
        expected = (checksums_of(run) if known is None else known).get(name, ())
        if not expected or hashlib.sha256(content).hexdigest() in expected:
            return content
        known = None
    listed = f"the one in {run / FILE}"
    if not (run / FILE).exists():
        listed = "that of the copy in the newest checkpoint"
    raise CheckpointError(
        f"{run / name} was altered since t2t-trainer wrote it: its sha256 is not "
        f"{listed}. {how_to_restore(run, name, expected)}\nIf you changed the "
        f"file on purpose, add its new checksum: (cd {run} && sha256sum {name} >> {FILE})"
    )


def check_files(run: Path, names: Iterable[str]) -> None:
    """Checks files of a run; a name that ends in "/" stands for all listed files of a folder.

    Raises:
      CheckpointError: a file was changed, or a listed file of a folder is missing.
    """
    known = checksums_of(run)
    for name in names:
        for one in [one for one in known if one.startswith(name)] if name[-1] == "/" else [name]:
            try:
                read_checked(run, one, known)
            except OSError as error:
                raise CheckpointError(
                    f"{run / one} cannot be read: {error.strerror}. {how_to_restore(run, one)}"
                ) from None


def how_to_restore(run: Path, name: str, expected: Iterable[str] = ()) -> str:
    """Returns how to restore a file: from the newest checkpoint that has a usable copy, if any.

    Args:
      run: the run directory.
      name: of the file.
      expected: the accepted sha256 of a copy; empty accepts any copy.
    """
    for folder in reversed(checkpoint_folders(run).values()):
        with contextlib.suppress(OSError):
            digest = hashlib.sha256(read_bytes(folder / name)).hexdigest()
            if not expected or digest in expected:
                return f"Restore it from a checkpoint: cp {folder / name} {run / name}"
    return "No checkpoint has a copy of it: restore it from a backup, or train in a new folder."


@contextlib.contextmanager
def renewed(run: Path, texts: Mapping[str, bytes], folders: Iterable[str] = ()) -> Iterator[None]:
    """Updates the checksums of files around a block that replaces these files.

    After a crash at any instant every file still matches one of its lines.

    Args:
      run: the run directory.
      texts: the new contents, by file name.
      folders: for example "code/"; its files that `texts` lacks lose their lines.
    """
    new = {name: [hashlib.sha256(text).hexdigest()] for name, text in texts.items()}
    before = _read(run)
    if before is None:
        before = {name: sums for name, sums in checksums_of(run).items() if name in new}
    for name in new:  # a file without a line is accepted as it is until it is replaced
        if name not in before and (run / name).is_file():
            before[name] = [hashlib.sha256(read_bytes(run / name)).hexdigest()]
    _write_checksums(
        run, {name: before.get(name, []) + new.get(name, []) for name in {**before, **new}}
    )
    push(run / FILE)  # a store gets both sums before the files, too
    yield
    push(run)
    kept = {name: sums for name, sums in before.items() if not name.startswith(tuple(folders))}
    _write_checksums(run, {**kept, **new})


def checksums_of(run: Path) -> Sums:
    """Returns the checksums of a run, or those of its newest checkpoint if it has none."""
    if (sums := _read(run)) is not None:
        return sums
    for folder in reversed(checkpoint_folders(run).values()):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            listed = read_json(folder / "MANIFEST.json")["files"]
            return {name: [entry["sha256"]] for name, entry in listed.items()}
    return {}


def settings_files(run: Path) -> list[str]:
    """Returns the JSON files that say what a run trains, without `task.json`, which names it.

    They are those with a checksum, as a kind of run may have its own, and those of `_SETTINGS`.
    """
    listed = [name for name in checksums_of(run) if name.endswith(".json") and "/" not in name]
    names = dict.fromkeys([*_SETTINGS, *listed])
    return [name for name in names if name != "task.json" and (run / name).is_file()]


@dataclasses.dataclass(frozen=True)
class Explanations:
    """Run metadata stored in a checkpoint.

    Attributes:
      copies: copied files, by name.
      vocabularies: sha256 of each vocabulary, by name.
    """

    copies: Mapping[str, bytes]
    vocabularies: Mapping[str, str]

    @classmethod
    def of(cls, run: Path) -> Explanations:
        """Reads the metadata of a run directory."""
        files = [run / name for name in ("task.json", *settings_files(run))]
        copies = {file.name: read_bytes(file) for file in files if file.exists()}
        vocabularies = [file for pattern in _VOCABULARIES for file in sorted(run.glob(pattern))]
        return cls(copies, {file.name: sha256_of(file) for file in vocabularies})


def _read(run: Path) -> Sums | None:
    """Returns the lines of `SHA256SUMS`; None if the file does not exist."""
    try:
        text = read_text(run / FILE, errors="replace")
    except OSError:
        return None
    sums: Sums = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line):
            sums.setdefault(match[2], []).append(match[1])
    return sums


def _write_checksums(run: Path, sums: Sums) -> None:
    lines = [f"{digest}  {name}\n" for name in sorted(sums) for digest in dict.fromkeys(sums[name])]
    write_text(run / FILE, "".join(lines))
