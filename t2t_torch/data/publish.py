"""Publication of a data set: the request, its vocabulary files, shards and manifest."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from absl import logging

from t2t_torch.data import manifest as verified
from t2t_torch.data import raw_file, shards
from t2t_torch.data.encoding import ShareEntry
from t2t_torch.data.manifest import (
    FeatureEntry,
    Manifest,
    RawFileEntry,
    SplitEntry,
    datagen_command,
    sha256_of,
)
from t2t_torch.data.raw_file import exclusive, seeded
from t2t_torch.data.shards import Rows, ShardWriter, schema_of, shard_name
from t2t_torch.errors import DataError
from t2t_torch.files import copy_regular, sync, write_text
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import BadRecords, Policy

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.problem import Problem


# Vocabulary files of a data set: learnt ones, and existing ones that are only read.


def make(problem: Problem, folder: Path, tmp_dir: Path, staging: Path) -> Path:
    """Creates the vocabulary files; returns the folder of all of them.

    Learnt files are always learnt again, in `staging`: existing ones may be of a failed run or of
    other raw files.  Those of `kept_vocab_files_in(folder)`, and those that `build_vocab` does not
    write, are taken from `folder`.

    Args:
      problem: problem of the vocabulary.
      folder: data folder.
      tmp_dir: folder of the raw files; `prepare` has been called.
      staging: an empty folder.

    Returns:
      `staging`, from which `publish` moves the files, or `folder` if none is learnt.
    """
    kept = problem.kept_vocab_files_in(folder)
    existing = [file for file in kept if (folder / file).is_file()]
    if set(existing) == set(problem.vocab_files):
        problem.build_vocab(folder, tmp_dir)
        return folder
    for file in existing:
        copy_regular(folder / file, staging / file)
    problem.build_vocab(staging, tmp_dir)
    for file in problem.vocab_files:
        if not (staging / file).exists() and (folder / file).is_file():
            copy_regular(folder / file, staging / file)
    return staging


def publish(vocab_files: Mapping[str, str], staging: Path, folder: Path) -> None:
    """Moves new and changed vocabulary files from the staging folder to the data folder.

    Args:
      vocab_files: sha256 of the files by name.
      staging: folder returned by `make`.
      folder: data folder.
    """
    for file, sha256 in vocab_files.items():
        path = folder / file
        if path.is_file():
            if sha256_of(path) == sha256:
                continue
            logging.warning(
                "%s was learned again and differs from the previous file; generate other data "
                "that uses it again, too.",
                path,
            )
        (staging / file).replace(path)


def check_kept(problem: Problem, folder: Path, vocab_files: Mapping[str, str]) -> None:
    """Checks that the vocabulary files that are not learnt match the manifest.

    Args:
      problem: problem of the vocabulary.
      folder: data folder.
      vocab_files: sha256 of the files by name, from the manifest.

    Raises:
      DataError: a file differs.
    """
    changed = [
        str(folder / file)
        for file in problem.kept_vocab_files_in(folder)
        if (folder / file).is_file()
        and file in vocab_files
        and sha256_of(folder / file) != vocab_files[file]
    ]
    if changed:
        name = problem.dataset_name
        raise DataError(
            f"The data of {name!r} in {folder} was made with another vocabulary than is there now: "
            f"{', '.join(changed)}. Put the earlier one back, or make the data with this one:  "
            f"{datagen_command(name, folder)} --overwrite"
        )


_FLAGS = {"max_cases": "max_cases", "on_bad_record": "on_bad_record", "shuffle_seed": "random_seed"}
"""Flags of t2t-datagen by setting."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Description of a data set to generate; created by `Request.of`.

    Attributes:
      problem: problem of the data set.
      folder: data folder.
      raw_folder: folder of the raw files.
      settings: all settings that change the bytes of the data set, as JSON values.
    """

    problem: Problem
    folder: Path
    raw_folder: Path
    settings: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        problem: Problem,
        data_dir: str | Path,
        tmp_dir: str | Path,
        *,
        seed: int | None,
        max_cases: int,
        on_bad_record: Policy,
    ) -> Request:
        """Checks the settings and creates missing folders.

        Raises:
          DataError: a folder cannot be created, or the number of shards is out of range.
          UsageError: `on_bad_record` is unknown.
        """
        BadRecords(on_bad_record)
        folder, raw_folder = Path(data_dir), Path(tmp_dir)
        _make_directory(folder, "the data (--data_dir)")
        _make_directory(raw_folder, "the raw files (--tmp_dir)")
        settings = {
            **problem.settings(),
            "shuffle_seed": problem.shuffle_seed if seed is None else seed,
            "max_cases": max_cases,
        }
        if on_bad_record != get_args(Policy)[0]:
            settings["on_bad_record"] = on_bad_record
        for split, count in problem.shards.items():
            if not 1 <= count <= 99999:  # five digits in a shard's name
                raise DataError(
                    f"{problem.dataset_name!r} sets {count} {split.value} shards, not 1 to "
                    "99999. Fix the problem's `shards`."
                )
        return cls(problem, folder, raw_folder, json.loads(json.dumps(settings)))

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self.problem.dataset_name

    @property
    def seed(self) -> int:
        """The seed of the shuffle and of the global generators."""
        return int(self.settings["shuffle_seed"])

    @property
    def max_cases(self) -> int:
        """The maximum number of samples of each split; 0 for all."""
        return int(self.settings["max_cases"])

    @property
    def on_bad_record(self) -> Policy:
        """The policy for bad records and samples that cannot be encoded."""
        policy: Policy = self.settings.get("on_bad_record", get_args(Policy)[0])
        return policy

    def where(self, split: Split) -> str:
        """Returns the name of the data set and a split, for messages."""
        return f"{self.name!r} {split.value}"

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Returns the lock for changes of the data set."""
        return exclusive(self.folder / f".{self.name}.lock", f"generating {self.name!r}")

    def prepare(self) -> Mapping[str, RawFileEntry]:
        """Fetches and returns the raw files."""
        with seeded(self.seed, "prepare"):
            return self._fetch()

    def learn(self, staging: Path) -> tuple[Mapping[str, RawFileEntry], Path]:
        """Fetches the raw files and creates the vocabulary files.

        Args:
          staging: an empty folder for learnt files.

        Returns:
          The raw files, and the folder of all vocabulary files: the data folder if none is learnt.
        """
        # Reading for the vocabulary counts no bad record: each split's own reading does.
        self.problem.bad_records = BadRecords(self.on_bad_record)
        with seeded(self.seed, "prepare"):
            made_from = self._fetch()
            return made_from, make(self.problem, self.folder, self.raw_folder, staging)

    def _fetch(self) -> Mapping[str, RawFileEntry]:
        self.problem.prepare(self.raw_folder)
        return raw_file.entries(self.problem, self.raw_folder)

    def differences(self, settings: Mapping[str, Any]) -> list[str]:
        """Returns the differences between given settings and those of this request."""
        return different_settings(settings, self.settings)

    def complete(self, *, thorough: bool) -> Manifest | None:
        """Returns the manifest of the existing data set if it is complete and matches; else None.

        Args:
          thorough: True to hash also files that have not changed since they were last verified.

        Raises:
          DataError: a different data set with this name exists.
        """
        if not Manifest.path(self.folder, self.name).exists():
            return None
        manifest = Manifest.load(self.folder, self.name)
        if differences := self.differences(manifest.settings):
            raise self.refusal("with other settings", differences, self._flags(manifest.settings))
        if changes := raw_file.changes(self.problem, self.raw_folder, manifest.raw_files):
            raise self.refusal("from other raw files", changes)
        check_kept(self.problem, self.folder, manifest.vocab_files)
        try:
            manifest.verify(self.folder, thorough=thorough)
        except DataError as error:
            logging.warning("%s\nIt is generated again now.", str(error).rpartition("\n")[0])
            return None
        return manifest

    def log_complete(self) -> None:
        """Logs that the data set is complete."""
        logging.info("%s: complete in %s (--overwrite generates it again)", self.name, self.folder)

    def _flags(self, settings: Mapping[str, Any]) -> str:
        """Returns the flags that match the existing data; "" if there are no such flags."""
        usual = {"on_bad_record": get_args(Policy)[0]}
        stored, requested = {**usual, **settings}, {**usual, **self.settings}
        differing = [key for key in stored | requested if stored.get(key) != requested.get(key)]
        if not all(key in _FLAGS and key in stored for key in differing):
            return ""
        return " ".join(f"--{_FLAGS[key]}={stored[key]}" for key in differing)

    def refusal(self, how: str, differences: Sequence[str], flags: str = "") -> DataError:
        """Returns the error for existing data that differs from the request."""
        taken = f"Take it as it is, by  {flags}\nOr keep" if flags else "Keep"
        return DataError(
            f"{self.folder} has data of {self.name!r} that was made {how}:\n  "
            + "\n  ".join(differences)
            + f"\n{taken} it and choose another --data_dir, or replace it:  "
            + f"{datagen_command(self.name, self.folder)} --overwrite"
        )


def different_settings(
    stored: Mapping[str, Any], requested: Mapping[str, Any], within: str = ""
) -> list[str]:
    """Returns the differences between stored and requested settings.

    For texts that are split into words in both, the settings of the word cutters are compared.

    Args:
      stored: stored settings as JSON values.
      requested: requested settings as JSON values.
      within: prefix of the names.
    """
    differences = []
    for key in sorted(stored.keys() | requested.keys()):
        one, other, name = stored.get(key), requested.get(key), f"{within}{key}"
        is_part = within or key == "cutters"
        if is_part and isinstance(one, Mapping) and isinstance(other, Mapping):
            differences += different_settings(one, other, f"{name}.")
        elif one != other:
            differences.append(f"{name}: there {one!r}, requested {other!r}")
    return differences


def _make_directory(path: Path, purpose: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"The directory for {purpose}, {path}, cannot be made: {error.strerror}. "
            "Choose another."
        ) from None


# Publication of shuffled rows as shards with a manifest.


class Publication:
    """Writes and publishes a data set.

    Splits are written to a staging folder; `publish` moves all files to the data folder and writes
    the manifest.  An interruption before that leaves nothing that looks complete.

    Args:
      request: description of the data set.
      features: stored features of the problem.
      staging: a folder in the data folder.
    """

    def __init__(self, request: Request, features: Features, staging: Path) -> None:
        self._request = request
        self._features = features
        self._staging = staging
        self._schema = schema_of({name: f.arrow_type for name, f in features.stored.items()})
        self._splits: dict[str, SplitEntry] = {}
        self._skipped: list[str] = []

    def write(self, split: Split, entry: ShareEntry, pieces: Iterator[Rows]) -> None:
        """Writes shuffled rows to shards of similar size, consecutive rows to each."""
        count = self._request.problem.shards[split]
        edges = [entry.rows * index // count for index in range(count + 1)]
        rows = _Pieces(pieces)
        shards = []
        for index in range(count):
            file = shard_name(self._request.name, split, index, count)
            writer = ShardWriter(self._staging / file, self._schema)
            for piece in rows.next(edges[index + 1] - edges[index]):
                writer.append(piece)
            shards.append(writer.close())
        self._skipped += [f"{split.value}: {line}" for line in entry.lines()]
        added = SplitEntry(
            rows=entry.rows,
            tokens=entry.tokens,
            max_length=entry.max_length,
            shards=shards,
            skipped=entry.skipped,
            unknown=entry.unknown,
            unknown_labels=entry.unknown_labels,
        )
        self.add(split, added)

    def add(self, split: Split, entry: SplitEntry) -> None:
        """Adds a split whose shards are already in the staging folder."""
        self._splits[split.value] = entry

    def publish(self, made_from: Mapping[str, RawFileEntry], vocab_folder: Path) -> Manifest:
        """Moves vocabulary and shards to the data folder, then writes the manifest.

        Args:
          made_from: the raw files.
          vocab_folder: folder of the vocabulary: the staging folder or the data folder.
        """
        request, staging = self._request, self._staging
        folder, name = request.folder, request.name
        vocab_files = request.problem.vocab_files_in(vocab_folder)
        manifest = Manifest(
            problem=name,
            settings=request.settings,
            features=_feature_entries(self._features),
            vocab_files={file: sha256_of(vocab_folder / file) for file in vocab_files},
            splits=self._splits,
            raw_files=made_from,
        )
        Manifest.path(folder, name).unlink(missing_ok=True)
        for stale in _shard_files(folder, name, manifest.splits):
            stale.unlink()
        for file in set(request.problem.optional_vocab_files).difference(vocab_files):
            (folder / file).unlink(missing_ok=True)  # of data that was made in another way
        sync(staging)
        publish(manifest.vocab_files, vocab_folder, folder)
        shards = [shard for split in manifest.splits.values() for shard in split.shards]
        for shard in shards:
            (staging / shard.file).rename(folder / shard.file)
        self._list_skipped(folder / f"{name}.skipped.txt")
        sync(folder)
        verified.remember(folder, name, shards)
        manifest.save(folder)
        return manifest

    def _list_skipped(self, path: Path) -> None:
        if not self._skipped:
            path.unlink(missing_ok=True)
            return
        write_text(path, "".join(f"{line}\n" for line in self._skipped))


class _Pieces:
    """Reads exact numbers of rows from pieces of any size."""

    def __init__(self, pieces: Iterator[Rows]) -> None:
        self._pieces = pieces
        self._rest: Rows = {}

    def next(self, count: int) -> Iterator[Rows]:
        while count > 0:
            if shards.num_rows(self._rest) == 0:
                self._rest = next(self._pieces)
            available = shards.num_rows(self._rest)
            taken = min(count, available)
            yield shards.between(self._rest, 0, taken)
            self._rest = shards.between(self._rest, taken, available)
            count -= taken


def _shard_files(folder: Path, name: str, splits: Mapping[str, Any]) -> Sequence[Path]:
    """Returns the existing shards, whose number may differ from the current one."""
    known = {split.value for split in Split} | set(splits)
    number = "[0-9]" * 5
    return [
        file
        for split in known
        for file in folder.glob(f"{name}-{split}-{number}-of-{number}.arrow")
    ]


def _feature_entries(features: Features) -> dict[str, FeatureEntry]:
    return {
        name: FeatureEntry(
            role=features.role(name),
            type=feature.arrow_type,
            vocab_size=feature.vocab_size or None,
        )
        for name, feature in features.stored.items()
    }
