"""tensor2tensor's data sets, taken over with their ids and vocabularies."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging
from tqdm import tqdm

from t2t_torch import registry
from t2t_torch.data import ragged
from t2t_torch.data.manifest import Manifest, RawFileEntry, SplitEntry, fault_of, sha256_of
from t2t_torch.data.publish import Publication
from t2t_torch.data.ragged import Rows
from t2t_torch.data.request import Request
from t2t_torch.data.shards import ShardWriter, schema_of, shard_name
from t2t_torch.data.staging import STAGED_SUFFIX
from t2t_torch.data.tf_declaration import declaration_of
from t2t_torch.data.tf_rows import TfRows, refuse_pictures
from t2t_torch.data.tf_shards import find_shards, vocabularies
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem_name import parse_problem_name

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.problem import Problem

_ORIGIN = "tensor2tensor's TFRecords"


def import_tfrecords(
    problem: Problem,
    source: str | Path,
    data_dir: str | Path,
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> Manifest:
    """Writes the data set of a problem from tensor2tensor's records, or verifies that it is there.

    The ids stay as they are, and so do the order of the rows and the number of the shards; only
    packed examples come apart.  The vocabulary files are copied.  As with `generate_data`, nothing
    looks finished before it is, what is finished is left alone, and a second call waits for the
    first.

    Args:
      problem: what the data is of; its `dataset_name` is what the records' names start with.
      source: tensor2tensor's data folder: `NAME-train-00000-of-00010` ... and vocabulary files.
      data_dir: where to; made if absent.
      overwrite: replace a data set that is there under this name.
      progress: show a progress bar on stderr.

    Raises:
      DataError: shards or vocabulary files are missing, a record is damaged or has not what the
        problem's features need, or another data set or vocabulary is there.
    """
    source = Path(source)
    shards = find_shards(source, problem.dataset_name)
    request = _request(problem, source, data_dir, shards)
    with request.lock():
        if not overwrite:
            manifest = _complete(request, source)
            if manifest is not None:
                return manifest
            _check_vocabularies(request)
        return _Import(request, shards).make(progress=progress)


def import_named(
    name: str, source: str | Path, data_dir: str | Path, *, overwrite: bool = False
) -> Manifest:
    """Looks a problem up by name, and takes its data over as `import_tfrecords` does.

    Raises:
      DataError: there is no such problem yet, and a declaration that fits the records is told; or
        `import_tfrecords` refuses them.
    """
    base = parse_problem_name(name).base_name
    if base not in registry.list_names("problem"):
        declared = declaration_of(Path(source), base)
        raise DataError(
            f"There is no problem {base!r} yet. This fits the records; save it as {base}.json in a "
            "folder that you name with --t2t_usr_dir, after a look at the kind, and the names of "
            f"the labels if it has any. The files need not be there.\n{declared}"
        )
    return import_tfrecords(registry.problem(base), source, data_dir, overwrite=overwrite)


def _request(
    problem: Problem, source: Path, data_dir: str | Path, shards: Mapping[Split, Sequence[Path]]
) -> Request:
    """What is asked for; `raw_folder` is that of the records."""
    made = Request.of(problem, data_dir, source, seed=None, max_cases=0, on_bad_record="fail")
    settings = {
        **problem.settings(),
        "shards": {split.value: len(files) for split, files in shards.items()},
        "imported_from": _ORIGIN,
    }
    return Request(problem, made.folder, source, json.loads(json.dumps(settings)))


def _complete(request: Request, source: Path) -> Manifest | None:
    """The manifest of what is there, if it is what is asked for and whole; else None."""
    name, folder = request.name, request.folder
    if not Manifest.path(folder, name).exists():
        return None
    manifest = Manifest.load(folder, name)
    differences = request.differences(manifest.settings)
    if not differences:
        faults = [fault_of(source / file, entry) for file, entry in manifest.raw_files.items()]
        differences += [fault for fault in faults if fault]
        for file, sha256 in manifest.vocab_files.items():
            if (source / file).is_file() and sha256_of(source / file) != sha256:
                differences.append(f"{source / file}: another vocabulary")
    if differences:
        raise DataError(
            f"{folder} has data of {name!r} that is not what these records give:\n  "
            + "\n  ".join(differences)
            + "\nKeep it and choose another --data_dir, or replace it with --overwrite."
        )
    try:
        manifest.verify(folder, thorough=True)
    except DataError as error:
        logging.warning("%s\nIt is taken over anew now.", str(error).rpartition("\n")[0])
        return None
    logging.info("%r in %s is complete (--overwrite takes it over anew).", name, folder)
    return manifest


def _check_vocabularies(request: Request) -> None:
    """Raises DataError if taking the vocabulary over would spoil other data in the folder."""
    for file in request.problem.vocab_files:
        there, given = request.folder / file, request.raw_folder / file
        if there.is_file() and given.is_file() and sha256_of(there) != sha256_of(given):
            raise DataError(
                f"{there} is another vocabulary than {given}, and other data may have been made "
                "with it. Choose another --data_dir, or replace it with --overwrite."
            )


class _Import:
    """One data set on its way; the caller holds the lock."""

    def __init__(self, request: Request, shards: Mapping[Split, Sequence[Path]]) -> None:
        self._request = request
        self._shards = shards
        self._staging = request.folder / f".{request.name}{STAGED_SUFFIX}"

    def make(self, *, progress: bool) -> Manifest:
        """Writes and publishes everything."""
        request, staging = self._request, self._staging
        shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
        staging.mkdir()
        try:
            refuse_pictures(self._shards[Split.TRAIN][0])
            self._copy_vocabularies()
            # tensor2tensor's files have ids alone.
            features = dataclasses.replace(request.problem.stored_features(staging), kept={})
            rows = TfRows(features.all)
            publication = Publication(request, features, staging)
            for split, files in self._shards.items():
                with _bar(request.where(split), show=progress) as bar:
                    publication.add(split, self._write(split, files, features, rows, bar))
            if rows.ignored:
                told = ", ".join(sorted(rows.ignored))
                logging.info("Not taken over, as %r has none such: %s.", request.name, told)
            made_from = {
                file.name: RawFileEntry(bytes=file.stat().st_size, sha256=sha256_of(file))
                for files in self._shards.values()
                for file in files
            }
            return publication.publish(made_from, staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _copy_vocabularies(self) -> None:
        source, name = self._request.raw_folder, self._request.name
        files = self._request.problem.vocab_files_in(source)
        missing = [file for file in files if not (source / file).is_file()]
        if not missing:
            for file in files:
                shutil.copyfile(source / file, self._staging / file)
            return
        told = f"{name!r} has the files {', '.join(missing)}, and {source} has no such."
        if any(file.startswith("labels.") for file in missing):
            told += (
                " tensor2tensor keeps no file of labels: give their names, in the order of their "
                'numbers, as `class_labels` of the problem (in JSON "labels").'
            )
        if any(file.startswith("vocab.") for file in missing):
            told += (
                f" It has the vocabularies: {', '.join(vocabularies(source)) or 'none'}. If one of "
                "these is the one, copy it there under the name above; or set "
                '`approx_vocab_size` of the problem (in JSON "vocab_size") to the number in its '
                "name."
            )
        raise DataError(told)

    def _write(
        self, split: Split, files: Sequence[Path], features: Features, rows: TfRows, bar: tqdm[Any]
    ) -> SplitEntry:
        """Writes a shard for each file."""
        schema = schema_of({name: f.arrow_type for name, f in features.all.items()})
        tokens = dict.fromkeys(schema.names, 0)
        longest = dict.fromkeys(schema.names, 0)
        shards = []
        for index, file in enumerate(files):
            name = shard_name(self._request.name, split, index, len(files))
            writer = ShardWriter(self._staging / name, schema)
            for piece in _nonempty(rows.read(file)):
                writer.append(piece)
                bar.update(ragged.num_rows(piece))
                for column, row in piece.items():
                    tokens[column] += len(row.values)
                    longest[column] = max(longest[column], int(row.lengths.max()))
            shards.append(writer.close())
        total = sum(shard.rows for shard in shards)
        if not total:
            raise DataError(
                f"{self._request.where(split)}: the files hold no record. Move them away, or "
                "copy whole ones there."
            )
        return SplitEntry(rows=total, tokens=tokens, max_length=longest, shards=shards)


def _nonempty(pieces: Iterator[Rows]) -> Iterator[Rows]:
    return (piece for piece in pieces if ragged.num_rows(piece))


def _bar(where: str, *, show: bool) -> tqdm[Any]:
    # disable=None: only on a terminal.
    return tqdm(desc=where, unit=" rows", unit_scale=True, disable=None if show else True)
