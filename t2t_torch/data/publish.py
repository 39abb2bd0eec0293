"""From shuffled rows to shards under their names, and the manifest that declares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.data import ragged, verified, vocabulary
from t2t_torch.data.manifest import FeatureEntry, Manifest, RawFileEntry, SplitEntry, sha256_of
from t2t_torch.data.ragged import Rows
from t2t_torch.data.shards import ShardWriter, schema_of, shard_name
from t2t_torch.data.share import ShareEntry
from t2t_torch.data.staging import staged, sync
from t2t_torch.mode import Split

if TYPE_CHECKING:
    from t2t_torch.data.request import Request
    from t2t_torch.features import Features


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
        vocabulary.publish(manifest.vocab_files, vocab_folder, folder)
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
            if ragged.num_rows(self._rest) == 0:
                self._rest = next(self._pieces)
            available = ragged.num_rows(self._rest)
            taken = min(count, available)
            yield ragged.between(self._rest, 0, taken)
            self._rest = ragged.between(self._rest, taken, available)
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
