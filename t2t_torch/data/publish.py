"""Publication of a data set: the request, its vocabulary files, shards and manifest."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
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
from t2t_torch.files import staged, sync
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import BadRecords, Policy

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.problem import Problem


# The vocabulary files of a data set: which are learnt for it, which are only used.


def make(problem: Problem, folder: Path, tmp_dir: Path, staging: Path) -> Path:
    """Makes the vocabulary files; returns the folder in which all of them are.

    What the problem learns is learnt anew, in `staging`, whatever `folder` holds: a file there may
    be of a run that failed, or of other raw files.  A file that is kept (`kept_vocab_files`), or
    that `build_vocab` does not write, is the one of `folder`.

    Args:
      problem: whose vocabulary.
      folder: the data folder.
      tmp_dir: holds the raw files; `prepare` has been called.
      staging: an empty folder.

    Returns:
      `staging`, from which `publish` moves the files, or `folder` if none is learnt.
    """
    existing = [file for file in problem.kept_vocab_files if (folder / file).is_file()]
    if set(existing) == set(problem.vocab_files):
        problem.build_vocab(folder, tmp_dir)
        return folder
    for file in existing:
        shutil.copyfile(folder / file, staging / file)
    problem.build_vocab(staging, tmp_dir)
    for file in problem.vocab_files:
        if not (staging / file).exists() and (folder / file).is_file():
            shutil.copyfile(folder / file, staging / file)
    return staging


def publish(vocab_files: Mapping[str, str], staging: Path, folder: Path) -> None:
    """Moves the vocabulary files that differ, or are not there, from staging to the data folder.

    Args:
      vocab_files: their sha256, by name.
      staging: where `make` left them.
      folder: the data folder.
    """
    for file, sha256 in vocab_files.items():
        path = folder / file
        if path.is_file():
            if sha256_of(path) == sha256:
                continue
            logging.warning(
                "%s is learnt anew and differs from what was there; other data that was made with "
                "it has to be made anew too.",
                path,
            )
        (staging / file).replace(path)


def check_kept(problem: Problem, folder: Path, vocab_files: Mapping[str, str]) -> None:
    """Checks that the vocabulary files that are not learnt are those of the manifest.

    Args:
      problem: whose vocabulary.
      folder: the data folder.
      vocab_files: what the manifest says: their sha256, by name.

    Raises:
      DataError: one differs.
    """
    changed = [
        str(folder / file)
        for file in problem.kept_vocab_files
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
"""By setting, the flag of t2t-datagen that gives it."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A data set that is asked for.  Make one with `Request.of`.

    Attributes:
      problem: whose.
      folder: where to.
      raw_folder: where its raw files are.
      settings: everything that changes the bytes, as JSON gives it back.
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
        """Checks what is asked for, and makes the folders that are not there.

        Raises:
          DataError: a folder cannot be made, or the number of shards is impossible.
          UsageError: there is no such policy.
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
                    f"{problem.dataset_name!r} asks for {count} {split.value} shards, not 1 to "
                    "99999. Mend the problem's `shards`."
                )
        return cls(problem, folder, raw_folder, json.loads(json.dumps(settings)))

    @property
    def name(self) -> str:
        """The data set's name."""
        return self.problem.dataset_name

    @property
    def seed(self) -> int:
        """Of the shuffle and of the global generators."""
        return int(self.settings["shuffle_seed"])

    @property
    def max_cases(self) -> int:
        """At most so many samples of each split; 0 is all."""
        return int(self.settings["max_cases"])

    @property
    def on_bad_record(self) -> Policy:
        """What becomes of bad records, and of samples that cannot be encoded."""
        policy: Policy = self.settings.get("on_bad_record", get_args(Policy)[0])
        return policy

    def where(self, split: Split) -> str:
        """The data set and the split, for messages."""
        return f"{self.name!r} {split.value}"

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Who holds this lock may change the data set."""
        return exclusive(self.folder / f".{self.name}.lock", f"generating {self.name!r}")

    def prepare(self) -> Mapping[str, RawFileEntry]:
        """Fetches the raw files; returns which they are."""
        with seeded(self.seed, "prepare"):
            return self._fetch()

    def learn(self, staging: Path) -> tuple[Mapping[str, RawFileEntry], Path]:
        """Fetches the raw files and makes the vocabulary files.

        Args:
          staging: an empty folder for what is learnt.

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
        """Says of each setting how it differs from what is asked for."""
        return different_settings(settings, self.settings)

    def complete(self, *, thorough: bool) -> Manifest | None:
        """The manifest of what is there, if it is whole and what is asked for; else None.

        Args:
          thorough: hash every byte also of files that did not change since that was last done.

        Raises:
          DataError: something else is there under this name.
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
            logging.warning("%s\nIt is made anew now.", str(error).rpartition("\n")[0])
            return None
        return manifest

    def log_complete(self) -> None:
        """Logs that there is nothing to do."""
        logging.info("%r in %s is complete (--overwrite makes it anew).", self.name, self.folder)

    def _flags(self, settings: Mapping[str, Any]) -> str:
        """The flags that ask for what is there; "" if it differs in what no flag says."""
        usual = {"on_bad_record": get_args(Policy)[0]}
        stored, requested = {**usual, **settings}, {**usual, **self.settings}
        differing = [key for key in stored | requested if stored.get(key) != requested.get(key)]
        if not all(key in _FLAGS and key in stored for key in differing):
            return ""
        return " ".join(f"--{_FLAGS[key]}={stored[key]}" for key in differing)

    def refusal(self, how: str, differences: Sequence[str], flags: str = "") -> DataError:
        """Says that the data that is there is not what is asked for, but for these flags."""
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
    """Says of each setting how what is there differs from what is asked for.

    Of texts that both cut into words it is said what differs in the cutters.

    Args:
      stored: as JSON gives them back.
      requested: likewise.
      within: stands before their names.
    """
    differences = []
    for key in sorted(stored.keys() | requested.keys()):
        one, other, name = stored.get(key), requested.get(key), f"{within}{key}"
        is_part = within or key == "cutters"
        if is_part and isinstance(one, Mapping) and isinstance(other, Mapping):
            differences += different_settings(one, other, f"{name}.")
        elif one != other:
            differences.append(f"{name}: there {one!r}, asked {other!r}")
    return differences


def _make_directory(path: Path, purpose: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"The directory for {purpose}, {path}, cannot be made: {error.strerror}. "
            "Choose another."
        ) from None


# From shuffled rows to shards under their names, and the manifest that declares them.


class Publication:
    """A data set on its way into its folder.

    Split after split is written to a staging folder; `publish` moves all to their names and writes
    the manifest.  Whatever happens before leaves nothing that looks finished.
    """

    def __init__(self, request: Request, features: Features, staging: Path) -> None:
        """Writes nothing yet; `staging` is a folder beside the data."""
        self._request = request
        self._features = features
        self._staging = staging
        self._schema = schema_of({name: f.arrow_type for name, f in features.stored.items()})
        self._splits: dict[str, SplitEntry] = {}
        self._skipped: list[str] = []

    def write(self, split: Split, entry: ShareEntry, pieces: Iterator[Rows]) -> None:
        """Deals shuffled rows to the shards, consecutive rows to each, as evenly as can be."""
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
        )
        self.add(split, added)

    def add(self, split: Split, entry: SplitEntry) -> None:
        """Takes a split whose shards are in the staging folder already."""
        self._splits[split.value] = entry

    def publish(self, made_from: Mapping[str, RawFileEntry], vocab_folder: Path) -> Manifest:
        """Moves vocabulary and shards to their names, then writes the manifest.

        Args:
          made_from: the raw files.
          vocab_folder: where the vocabulary is: the staging folder or the data folder.
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
        self._list_skipped(skipped_file(folder, name))
        sync(folder)
        verified.remember(folder, name, shards)
        manifest.save(folder)
        return manifest

    def _list_skipped(self, path: Path) -> None:
        if not self._skipped:
            path.unlink(missing_ok=True)
            return
        with staged(path) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in self._skipped), encoding="utf-8")


def skipped_file(data_dir: Path, name: str) -> Path:
    """Where the list is of what was left out of a data set."""
    return data_dir / f"{name}.skipped.txt"


class _Pieces:
    """Takes an exact number of rows at a time from pieces of any size."""

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
    """The shards of earlier generations, which may have been more than there are now."""
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
