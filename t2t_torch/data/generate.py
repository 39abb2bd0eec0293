"""From a problem to its vocabulary, shards and manifest."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging
from tqdm import tqdm

from t2t_torch import registry
from t2t_torch.data import ragged, raw_files, vocabulary
from t2t_torch.data.encoding import Encoder, MakeFeatures, chunks_of
from t2t_torch.data.lock import exclusive
from t2t_torch.data.manifest import (
    FeatureEntry,
    Manifest,
    ShardEntry,
    SplitEntry,
    datagen_command,
    sha256_of,
)
from t2t_torch.data.ragged import Rows
from t2t_torch.data.samples import samples_of
from t2t_torch.data.shards import ShardWriter, schema_of, shard_name
from t2t_torch.data.shuffle import Shuffle
from t2t_torch.data.staging import STAGED_SUFFIX, sync
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.problem import Problem


def generate_data(
    problem: Problem,
    data_dir: str | Path,
    tmp_dir: str | Path,
    *,
    num_processes: int | None = None,
    seed: int | None = None,
    max_cases: int = 0,
    overwrite: bool = False,
    progress: bool = True,
) -> Manifest:
    """Generates a problem's vocabulary, shards and manifest, or verifies that they are there.

    Samples are encoded as they come, shuffled with bounded memory and written to a folder
    `.NAME.incomplete`; when all is written the shards are moved to their names and the manifest is
    written.  Whatever happens before leaves nothing that looks finished.  The bytes depend on the
    problem's settings, its raw files and `seed` alone.  A vocabulary that the problem learns is
    part of the data set: learnt with it and published with it; one that is borrowed or the user's
    own (`kept_vocab_files`) is used as it is.  A second call for the same data set waits for the
    first.

    Args:
      problem: what to generate; a `_rev` or `_copy` problem shares the data of its base.
      data_dir: where to; made if absent.
      tmp_dir: where the raw files are or are downloaded to; made if absent.
      num_processes: how many processes encode; None takes all CPUs when the data is large.
      seed: of the shuffle and of Python's and numpy's global generators; None is the problem's own.
      max_cases: at most so many samples of each split; 0 is all.
      overwrite: replace a data set that was made with other settings, or make it again.
      progress: show a progress bar on stderr.

    Raises:
      DataError: raw files are missing or malformed, a sample cannot be encoded, a split is empty,
        or the data set is there with other settings, raw files or vocabulary of the user's; or
        a directory cannot be made.
    """
    name, folder, raw_folder = problem.dataset_name, Path(data_dir), Path(tmp_dir)
    _make_directory(folder, "the data (--data_dir)")
    _make_directory(raw_folder, "the raw files (--tmp_dir)")
    settings = _settings(problem, problem.shuffle_seed if seed is None else seed, max_cases)
    with exclusive(folder / f".{name}.lock", f"generating {name!r}"):
        if not overwrite:
            manifest = _complete(problem, folder, raw_folder, settings)
            if manifest is not None:
                return manifest
        return _make(problem, folder, raw_folder, settings, num_processes, progress=progress)


def _make(
    problem: Problem,
    folder: Path,
    raw_folder: Path,
    settings: Mapping[str, Any],
    num_processes: int | None,
    *,
    progress: bool,
) -> Manifest:
    """Generates everything; the caller holds the lock."""
    seed, max_cases = settings["shuffle_seed"], settings["max_cases"]
    staging = folder / f".{problem.dataset_name}{STAGED_SUFFIX}"
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    staging.mkdir()
    try:
        with _seeded(seed, "prepare"):
            problem.prepare(raw_folder)
            made_from = raw_files.entries(problem, raw_folder)
            vocab_folder = vocabulary.make(problem, folder, raw_folder, staging)
        features = problem.stored_features(vocab_folder)
        make_features = MakeFeatures(problem, vocab_folder, registry.usr_dirs())
        with Encoder(features, make_features, num_processes) as encoder:
            generation = _Generation(problem, features, encoder, staging, seed)
            splits = {
                split.value: generation.write(split, raw_folder, max_cases, progress=progress)
                for split in problem.shards
            }
        manifest = Manifest(
            problem=problem.dataset_name,
            settings=settings,
            features=_feature_entries(features),
            vocab_files={file: sha256_of(vocab_folder / file) for file in problem.vocab_files},
            splits=splits,
            raw_files=made_from,
        )
        _publish(manifest, staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


class _Generation:
    """What all splits of one data set are generated with."""

    def __init__(
        self, problem: Problem, features: Features, encoder: Encoder, staging: Path, seed: int
    ) -> None:
        self._problem = problem
        self._encoder = encoder
        self._staging = staging
        self._seed = seed
        self._fields = list(features.sources.values())
        self._schema = schema_of({name: f.arrow_type for name, f in features.all.items()})

    def write(
        self, split: Split, raw_folder: Path, max_cases: int, *, progress: bool
    ) -> SplitEntry:
        """Generates, encodes, shuffles and writes one split to the staging folder."""
        where = f"{self._problem.dataset_name!r} {split.value}"
        spill = self._staging / f"spill-{split.value}"
        shuffle = Shuffle(f"{self._seed}:{split.value}", spill)
        tokens = dict.fromkeys(self._schema.names, 0)
        longest = dict.fromkeys(self._schema.names, 0)
        with _seeded(self._seed, split.value), _bar(where, show=progress) as bar:
            samples = samples_of(self._problem, raw_folder, split)
            limited = itertools.islice(samples, max_cases or None)
            for rows in self._encoder.encode(chunks_of(limited, self._fields, where)):
                for name, column in rows.items():
                    tokens[name] += len(column.values)
                    longest[name] = max(longest[name], int(column.lengths.max()))
                shuffle.add(rows)
                bar.update(ragged.num_rows(rows))
        if shuffle.num_rows == 0:
            raise DataError(
                f"{where}: generate_samples gave no sample, and at least one was expected. Look at "
                f"the raw files in {raw_folder}, or take the split out of the problem's `shards`."
            )
        logging.info("%s: %d rows encoded, writing the shards.", where, shuffle.num_rows)
        shards = self._write_shards(split, shuffle)
        return SplitEntry(rows=shuffle.num_rows, tokens=tokens, max_length=longest, shards=shards)

    def _write_shards(self, split: Split, shuffle: Shuffle) -> list[ShardEntry]:
        """Deals the shuffled rows to the shards, consecutive rows to each, as evenly as can be."""
        count = self._problem.shards[split]
        edges = [shuffle.num_rows * index // count for index in range(count + 1)]
        pieces = _Pieces(shuffle.drain())
        entries = []
        for index in range(count):
            file = shard_name(self._problem.dataset_name, split, index, count)
            writer = ShardWriter(self._staging / file, self._schema)
            for rows in pieces.next(edges[index + 1] - edges[index]):
                writer.append(rows)
            entries.append(writer.close())
        return entries


class _Pieces:
    """Takes an exact number of rows at a time from pieces of any size."""

    def __init__(self, pieces: Iterator[Rows]) -> None:
        self._pieces = pieces
        self._rest: Rows = {}

    def next(self, count: int) -> Iterator[Rows]:
        while count > 0:
            if ragged.num_rows(self._rest) == 0:
                self._rest = next(self._pieces)
            available = ragged.num_rows(self._rest)
            taken = min(count, available)
            yield ragged.between(self._rest, 0, taken)
            self._rest = ragged.between(self._rest, taken, available)
            count -= taken


def _settings(problem: Problem, seed: int, max_cases: int) -> Mapping[str, Any]:
    """Everything that changes the bytes, as JSON gives it back."""
    settings = {**problem.settings(), "shuffle_seed": seed, "max_cases": max_cases}
    for split, count in problem.shards.items():
        if not 1 <= count <= 99999:  # five digits in a shard's name
            raise DataError(
                f"{problem.dataset_name!r} asks for {count} {split.value} shards, not 1 to 99999. "
                "Mend the problem's `shards`."
            )
    loaded: Mapping[str, Any] = json.loads(json.dumps(settings))
    return loaded


def _make_directory(path: Path, purpose: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"The directory for {purpose}, {path}, cannot be made: {error.strerror}. "
            "Choose another."
        ) from None


def _complete(
    problem: Problem, folder: Path, raw_folder: Path, settings: Mapping[str, Any]
) -> Manifest | None:
    """The manifest of a whole data set with these settings; None if it must be generated."""
    name = problem.dataset_name
    if not Manifest.path(folder, name).exists():
        return None
    manifest = Manifest.load(folder, name)
    if manifest.settings != settings:
        keys = sorted(manifest.settings.keys() | settings.keys())
        differences = [
            f"{key}: there {manifest.settings.get(key)!r}, asked {settings.get(key)!r}"
            for key in keys
            if manifest.settings.get(key) != settings.get(key)
        ]
        raise _other(name, folder, "with other settings", differences)
    if changes := raw_files.changes(problem, raw_folder, manifest.raw_files):
        raise _other(name, folder, "from other raw files", changes)
    vocabulary.check_kept(problem, folder, manifest.vocab_files)
    try:
        manifest.verify(folder)
    except DataError as error:
        logging.warning("%s\nIt is made anew now.", str(error).rpartition("\n")[0])
        return None
    logging.info("%r in %s is complete (--overwrite makes it anew).", name, folder)
    return manifest


def _other(name: str, folder: Path, how: str, differences: Sequence[str]) -> DataError:
    """Says that the data that is there is not what is asked for."""
    return DataError(
        f"{folder} has data of {name!r} that was made {how}:\n  "
        + "\n  ".join(differences)
        + "\nKeep it and choose another --data_dir, or replace it:  "
        + f"{datagen_command(name, folder)} --overwrite"
    )


def _publish(manifest: Manifest, staging: Path, folder: Path) -> None:
    """Moves vocabulary and shards to their names, then writes the manifest that declares all."""
    name = manifest.problem
    Manifest.path(folder, name).unlink(missing_ok=True)
    shards = [shard.file for split in manifest.splits.values() for shard in split.shards]
    for stale in _shard_files(folder, name, manifest.splits):
        stale.unlink()
    sync(staging)
    vocabulary.publish(manifest.vocab_files, staging, folder)
    for file in shards:
        (staging / file).rename(folder / file)
    sync(folder)
    manifest.save(folder)


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
            role="inputs" if name in features.inputs else "targets",
            type=feature.arrow_type,
            vocab_size=feature.vocab_size or None,
        )
        for name, feature in features.all.items()
    }


@contextlib.contextmanager
def _seeded(seed: int, purpose: str) -> Iterator[None]:
    """Seeds the global generators, as tensor2tensor's datagen does, and puts them back after."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(f"{seed}:{purpose}")
    np.random.seed(random.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _bar(where: str, *, show: bool) -> tqdm[Any]:
    # disable=None: only on a terminal.
    return tqdm(desc=where, unit=" rows", unit_scale=True, disable=None if show else True)
