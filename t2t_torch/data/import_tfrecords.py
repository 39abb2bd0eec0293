"""Import of tensor2tensor's data sets with their ids and vocabularies."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from absl import logging

from t2t_torch import registry
from t2t_torch.data import encoding, publish, raw_file, vocabulary_builder
from t2t_torch.data.manifest import Manifest, SplitEntry, fault_of, sha256_of
from t2t_torch.data.shards import Ragged, Rows, num_rows, value_dtype
from t2t_torch.data.tfrecord import ExampleValues, Records, parse_example, read_records
from t2t_torch.errors import DataError, listed
from t2t_torch.files import MAX_VOCABULARY, read_bytes
from t2t_torch.mode import Split
from t2t_torch.registry import parse_problem_name
from t2t_torch.text.encoder import ByteEncoder

if TYPE_CHECKING:
    from tqdm import tqdm

    from t2t_torch.features import Feature
    from t2t_torch.problem import Problem


_MAX_NAMED = 10


def find_shards(folder: Path, name: str) -> Mapping[Split, Sequence[Path]]:
    """Returns the shards of each existing split of a data set, in order.

    Their names are `NAME-train-00000-of-00100`, `NAME-dev-...` and `NAME-test-...`.  Shards that
    are not shuffled yet, `NAME-unshuffled-...`, are of an interrupted run of tensor2tensor.

    Raises:
      DataError: training data or a shard is missing, or there are two sets of shards.
    """
    names, shards = _entries(folder), {}
    for split in Split:
        stem = f"{name}-{split.value}"
        pattern = re.compile(rf"{re.escape(stem)}-\d{{5}}-of-(\d{{5}})")
        found = {entry: match[1] for entry in names if (match := pattern.fullmatch(entry))}
        counts = sorted(set(found.values()))
        if len(counts) > 1:
            sets = " and ".join(f"{stem}-...-of-{count}" for count in counts)
            raise DataError(f"{folder} has shards of two data sets, {sets}. Move one set away.")
        for count in counts:
            files = [f"{stem}-{index:05d}-of-{count}" for index in range(int(count))]
            if missing := [file for file in files if file not in found]:
                raise DataError(
                    f"{folder} has {len(found)} of {len(files)} shards {stem}; missing: "
                    f"{listed(missing, _MAX_NAMED)}. Copy them there too."
                )
            shards[split] = [folder / file for file in files]
    if Split.TRAIN not in shards:
        unfinished = (f"{name}-unshuffled-", f"{name}-train-unshuffled-")
        count = sum(entry.startswith(unfinished) for entry in names)
        hint = f" There are {count} unshuffled ones, of a t2t-datagen that was not finished."
        shard = re.compile(r"(.+?)(-unshuffled)?-(train|dev|test)-\d{5}-of-\d{5}")
        known = sorted({match[1] for entry in names if (match := shard.fullmatch(entry))})
        raise DataError(
            f"{folder} has no files {name}-train-00000-of-..., as tensor2tensor writes them."
            f"{hint if count else ''} There is data of: {', '.join(known) or 'none'}. Name the "
            "folder or the problem that was meant."
        )
    return shards


def vocabularies(folder: Path) -> list[str]:
    """Returns the names of the vocabulary files in a folder."""
    return sorted(entry for entry in _entries(folder) if entry.startswith("vocab."))


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise DataError(
            f"Cannot read the folder of TFRecords, {folder}: {error.strerror}."
        ) from None


SUFFIX = "_segmentation"
"""Suffix of the names of features with segment numbers."""


def separate(rows: Rows, segments: Mapping[str, Ragged]) -> Rows:
    """Returns the examples of packed rows in order.

    tensor2tensor's packed problems store several examples in one: `targets` holds them one after
    another, and `targets_segmentation` says of each id to which it belongs: 1, 2, ..., 0 between
    them.

    Args:
      rows: rows by feature.
      segments: number of the example of each value by feature; 0 is padding.

    Raises:
      ValueError: a feature has another number of values than segment numbers, its segment numbers
        decrease, or the features have different examples.
    """
    apart: dict[str, Ragged] = {}
    examples: npt.NDArray[np.int64] | None = None
    for name, row in rows.items():
        apart[name], numbers = _apart(name, row, segments[name])
        if examples is not None and not np.array_equal(numbers, examples):
            raise ValueError(f"the features {', '.join(rows)} are not packed of the same examples")
        examples = numbers
    return apart


def _apart(name: str, row: Ragged, segment: Ragged) -> tuple[Ragged, npt.NDArray[np.int64]]:
    """Returns the examples of a feature, and row and number of each, combined to one number."""
    if not np.array_equal(row.lengths, segment.lengths):
        raise ValueError(f"{name!r} and {name + SUFFIX!r} have different lengths")
    positions = np.flatnonzero(segment.values)
    most = int(segment.values.max(initial=0)) + 1
    number = np.repeat(np.arange(len(row)), row.lengths) * most + segment.values
    number = number[positions]  # rises from row to row
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    if (np.diff(number) < 0).any() or segment.values.min(initial=0) < 0:
        raise ValueError(f"the numbers in {name + SUFFIX!r} fall")
    offsets = np.append(starts, len(positions)).astype(np.int64)
    # `most` differs between features: what is compared does not depend on it.
    identity = (number[starts] // most) << 32 | (number[starts] % most)
    return Ragged(row.values[positions], offsets), identity


_MAX_READ = 10_000  # records of each split
_TARGETS = ("targets", "label")
_NO_INPUTS = [0]  # what tensor2tensor stores as the inputs of a language model, when it packs


@functools.singledispatch
def known_vocab_files(problem: Problem, directory: Path) -> Mapping[str, str]:
    """Returns the contents of those `vocab_files` that follow from the problem alone.

    Data and runs of another library do not have these files.

    Args:
      problem: the problem.
      directory: data folder.
    """
    return {}


def vocabulary_contents(
    problem: Problem, folders: Sequence[Path]
) -> tuple[dict[str, bytes], list[str]]:
    """Returns the contents of a problem's vocabulary files, and the names of missing files.

    Args:
      problem: the problem.
      folders: folders of tensor2tensor's vocabularies.
    """
    first = folders[0] if folders else Path()
    known = known_vocab_files(problem, first)
    contents, missing = {}, []
    for file in vocabulary_builder.vocab_files_in(problem, first):
        # Newer versions of tensor2tensor leave the size out for words.
        names = (file, re.sub(r"\.\d+(?=\.tokens$)", "", file))
        paths = (folder / name for folder in folders for name in names)
        path = next((path for path in paths if path.is_file()), None)
        if file in known:
            contents[file] = known[file].encode()
        elif path is not None:
            contents[file] = read_bytes(path, max_bytes=MAX_VOCABULARY)
        else:
            missing.append(file)
    return contents, missing


def declaration_of(source: Path, name: str) -> str:
    """Returns a JSON declaration that fits the records of a data set.

    Raises:
      DataError: there are no such records, or their content cannot be declared.
    """
    shards = find_shards(source, name)
    examples = [example for files in shards.values() for example in _first_examples(files)]
    names = set().union(*examples)
    key = next((key for key in _TARGETS if key in names), None)
    if not examples or key is None or any(name.startswith("image/") for name in names):
        available = ", ".join(sorted(names)) or "nothing"
        raise DataError(
            f"The records of {name!r} in {source} hold {available}; only those with inputs of ids, "
            "and 'targets' or 'label', can be imported. Generate the data again with t2t-datagen."
        )
    targets = [example[key] for example in examples if key in example]
    has_inputs = any(
        list(values.items) != _NO_INPUTS
        for example in examples
        if (values := example.get("inputs"))
    )
    declared = {"problem": name, **_kind(targets, names, has_inputs=has_inputs)}
    ending = ".txt" if declared["kind"] == "text2self" else ".jsonl"
    files = {split.name.lower(): split.value + ending for split in shards}
    declared["files"] = {"train": "", "eval": f"dev{ending}", **files}
    declared |= _vocabulary(source, name, examples)
    return json.dumps(declared, indent=2, ensure_ascii=False)


def _first_examples(files: Sequence[Path]) -> list[dict[str, ExampleValues]]:
    examples: list[dict[str, ExampleValues]] = []
    for file in files:
        for records in read_records(file):
            for index, content in enumerate(records.contents):
                try:
                    examples.append(parse_example(content))
                except ValueError as error:
                    raise DataError(f"{records.place(index)}: {error}.") from None
            if len(examples) >= _MAX_READ:
                return examples
    return examples


def _kind(targets: Sequence[ExampleValues], names: set[str], *, has_inputs: bool) -> dict[str, Any]:
    if not has_inputs:
        return {"kind": "text2self"}
    if targets[0].kind == "float":
        size = len(targets[0].items)
        return {"kind": "text2real", **({"settings": {"target_size": size}} if size > 1 else {})}
    if "context" in names:
        return {"kind": "questioncontext2text"}
    rows = [values.items for values in targets]
    is_number = targets[0].kind == "int64" and all(len(row) == 1 for row in rows)
    if is_number and f"targets{SUFFIX}" not in names:
        labels = [str(number) for number in range(max(row[0] for row in rows) + 1)]
        return {"kind": "text2class", "labels": labels}
    return {"kind": "text2text"}


def _vocabulary(
    source: Path, name: str, examples: Sequence[Mapping[str, ExampleValues]]
) -> dict[str, Any]:
    """Returns the declaration of the vocabulary that matches the existing file."""
    kinds = {"subwords": "subword", "tokens": "token"}
    others = []
    for file in vocabularies(source):
        if match := re.fullmatch(r"vocab\.(.+?)(?:\.(\d+))?\.(subwords|tokens)", file):
            if match[1] == name:
                size = {"vocab_size": int(match[2])} if match[2] else {}
                return {"vocab_type": kinds[match[3]], **size}
            others.append(match[1])
    ids = [
        max(values.items)
        for example in examples
        for key, values in example.items()
        if key in ("inputs", "targets") and values.kind == "int64" and values.items
    ]
    if max(ids, default=0) < ByteEncoder().vocab_size:
        return {"vocab_type": "character"}
    return {"use_vocab_from_other_problem": others[0]} if others else {}


_OTHER_NAMES = {"targets": ("label",)}
"""Alternative names of features in tensor2tensor's records."""

_PICTURES = "image/"
_POSITION = "_position"


class TfRows:
    """Reads records as rows of features with unchanged ids; unpacks packed examples.

    Attributes:
      ignored: names in the records without a feature.

    Args:
      features: features by name.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self.ignored: set[str] = set()
        self._features = features

    def read(self, path: Path) -> Iterator[Rows]:
        """Yields the rows of a file in order.

        Raises:
          DataError: the file is damaged, or a record does not fit the features; names the record.
        """
        for records in read_records(path):
            try:
                rows = self._rows(records.contents)
            except ValueError as error:
                raise self._located(records, error) from error
            yield rows

    def _rows(self, contents: Sequence[bytes]) -> Rows:
        """Returns the rows of records; raises ValueError if a record does not fit the features."""
        examples = [parse_example(content) for content in contents]
        names = set().union(*examples)
        packed = any(name.endswith(SUFFIX) for name in names)
        rows = {}
        numbers = {}
        for name, feature in self._features.items():
            others = (name, *_OTHER_NAMES.get(name, ()))
            key = next((key for key in others if key in names), name)
            rows[name] = _column(examples, key, feature)
            if packed:
                numbers[name] = _rows(examples, key + SUFFIX, "int64")
            names -= {key, key + SUFFIX, key + _POSITION}
        self.ignored |= names
        return separate(rows, numbers) if packed else rows

    def _located(self, records: Records, error: ValueError) -> DataError:
        """Returns the error with the place of the first record that causes it."""
        place = f"{records.path}, records from {records.first} on"
        for index, content in enumerate(records.contents):
            try:
                self._rows([content])
            except ValueError as first_error:
                place, error = records.place(index), first_error
                break
        return DataError(f"{place}: {error}.")


def refuse_pictures(path: Path) -> None:
    """Raises DataError if the first record of a file holds a picture."""
    for records in read_records(path):
        try:
            names = sorted(parse_example(records.contents[0]))
        except ValueError:
            return  # said when it is read
        if pictures := [name for name in names if name.startswith(_PICTURES)]:
            raise DataError(
                f"{records.place(0)}: it holds {', '.join(pictures)}, and pictures are not taken "
                "over. Generate the data again with t2t-datagen."
            )
        return


def _column(examples: Sequence[Mapping[str, ExampleValues]], key: str, feature: Feature) -> Ragged:
    """Returns the checked values of a feature."""
    dtype = value_dtype(feature.arrow_type)
    if dtype.kind == "f":
        rows = _rows(examples, key, "float")
    else:
        rows = _rows(examples, key, "int64")
        _check_ids(rows, key, feature, dtype)
    _check_lengths(rows, key, feature)
    return Ragged(rows.values.astype(dtype), rows.offsets)


def _rows(examples: Sequence[Mapping[str, ExampleValues]], key: str, kind: str) -> Ragged:
    """Returns the values of a name; raises ValueError if an example lacks them."""
    lists = []
    for example in examples:
        values = example.get(key)
        if values is None or not values.items:
            available = ", ".join(sorted(example)) or "nothing"
            raise ValueError(f"it has no {key!r}, which the problem needs; it has: {available}")
        if values.kind != kind:
            raise ValueError(f"{key!r} holds {values.kind}, where {kind} was expected")
        lists.append(values.items)
    return Ragged.from_lists(lists, np.float32 if kind == "float" else np.int64)


def _check_ids(rows: Ragged, key: str, feature: Feature, dtype: np.dtype[Any]) -> None:
    size, low = feature.vocab_size, encoding.lowest_id(feature)
    high = size - 1
    if not size:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if len(rows.values) and not low <= rows.values.min() <= rows.values.max() <= high:
        wrong = rows.values[(rows.values < low) | (rows.values > high)][0]
        of = f"the vocabulary has {size:,}" if size else f"{dtype} holds"
        raise ValueError(
            f"{key!r} holds the id {wrong}, and {of}: {low} to {high}. Is it the vocabulary that "
            "the records were made with?"
        )


def _check_lengths(rows: Ragged, key: str, feature: Feature) -> None:
    shape = feature.shape
    width = int(np.prod([size for size in shape if size is not None], dtype=np.int64))
    wrong = rows.lengths % width != 0 if None in shape else rows.lengths != width
    if wrong.any():
        expected = f"a multiple of {width}" if None in shape else f"{width}"
        raise ValueError(
            f"{key!r} has {rows.lengths[wrong][0]} values, where {expected} was expected"
        )


_ORIGIN = "tensor2tensor's TFRecords"


def import_tfrecords(
    problem: Problem,
    source: str | Path,
    data_dir: str | Path,
    *,
    overwrite: bool = False,
    progress: bool = True,
) -> Manifest:
    """Imports the data set of a problem from tensor2tensor's records, or verifies an existing one.

    Ids, the order of the rows and the number of shards are unchanged; packed examples are unpacked.
    The vocabulary files are copied.  As with `generate_data`, an interrupted call leaves nothing
    that looks complete, a complete data set is not written again, and a second call waits for the
    first.

    Args:
      problem: problem of the data; the names of the records start with its `dataset_name`.
      source: tensor2tensor's data folder: `NAME-train-00000-of-00010` ... and vocabulary files.
      data_dir: output folder, created if missing.
      overwrite: True to replace an existing data set.
      progress: True to show a progress bar on stderr.

    Raises:
      DataError: shards or vocabulary files are missing, a record is damaged or does not fit the
        problem's features, or another data set or vocabulary exists.
    """
    source = Path(source)
    shards = find_shards(source, problem.dataset_name)
    request = _ImportRequest.of(problem, data_dir, source)
    settings = {
        **publish.data_settings(problem),
        "shards": {split.value: len(files) for split, files in shards.items()},
        "imported_from": _ORIGIN,
    }
    request = dataclasses.replace(request, settings=json.loads(json.dumps(settings)))

    def write(staging: Path) -> Manifest:
        return _write(request, shards, staging, progress=progress)

    return request.fulfil(write, overwrite=overwrite)


def import_named(
    name: str, source: str | Path, data_dir: str | Path, *, overwrite: bool = False
) -> Manifest:
    """Imports the data of a problem given by name; see `import_tfrecords`.

    Raises:
      DataError: there is no such problem (the message contains a declaration that fits the
        records), or see `import_tfrecords`.
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


class _ImportRequest(publish.DatasetRequest):
    """Description of a data set to import; `raw_folder` is the folder of the records."""

    def complete(self, *, thorough: bool) -> Manifest | None:
        """See `DatasetRequest.complete`.

        Raises:
          DataError: a different data set, or a vocabulary that may be of other data, exists.
        """
        manifest = super().complete(thorough=thorough)
        for file in self.problem.vocab_files if manifest is None else ():
            existing, imported = self.folder / file, self.raw_folder / file
            both = existing.is_file() and imported.is_file()
            if both and sha256_of(existing) != sha256_of(imported):
                raise DataError(
                    f"{existing} is another vocabulary than {imported}, and other data may have "
                    "been made with it. Choose another --data_dir, or replace it with --overwrite."
                )
        return manifest

    def check_same(self, manifest: Manifest) -> None:
        """Raises DataError if an existing data set is not what the records give."""
        differences = self.differences(manifest.settings)
        if not differences:
            files = manifest.raw_files.items()
            faults = [fault_of(self.raw_folder / file, entry) for file, entry in files]
            differences += [fault for fault in faults if fault]
            for file, sha256 in manifest.vocab_files.items():
                path = self.raw_folder / file
                if path.is_file() and sha256_of(path) != sha256:
                    differences.append(f"{path}: another vocabulary")
        if differences:
            raise self._refusal("from other records", differences)


def _write(
    request: _ImportRequest,
    shards: Mapping[Split, Sequence[Path]],
    staging: Path,
    *,
    progress: bool,
) -> Manifest:
    """Writes and publishes everything, a shard for each file; see `DatasetRequest.fulfil`."""
    refuse_pictures(shards[Split.TRAIN][0])
    _copy_vocabularies(request, staging)
    # tensor2tensor's files have ids alone.
    features = dataclasses.replace(request.problem.stored_features(staging), kept={})
    rows = TfRows(features.all)
    publication = publish.Publication(request, features, staging)
    for split, files in shards.items():
        lengths = encoding.RowLengths(features.all)
        with encoding.row_bar(request.where(split), show=progress) as bar:

            def counted(
                file: Path, bar: tqdm[Any] = bar, lengths: encoding.RowLengths = lengths
            ) -> Iterator[Rows]:
                for piece in rows.read(file):
                    if count := num_rows(piece):
                        bar.update(count)
                        lengths.add(piece)
                        yield piece

            written = publication.write_shards(split, list(map(counted, files)))
        total = sum(shard.rows for shard in written)
        if not total:
            raise DataError(
                f"{request.where(split)}: the files hold no record. Move them away, or copy whole "
                "ones there."
            )
        entry = SplitEntry(
            rows=total, tokens=lengths.total, max_length=lengths.longest, shards=written
        )
        publication.add(split, entry)
    if rows.ignored:
        ignored = ", ".join(sorted(rows.ignored))
        logging.info("%s: features that were not imported: %s", request.name, ignored)
    made_from = {file.name: raw_file.entry(file) for files in shards.values() for file in files}
    return publication.publish(made_from, staging)


def _copy_vocabularies(request: _ImportRequest, staging: Path) -> None:
    """Copies the vocabulary files, and writes those that follow from the problem.

    Raises:
      DataError: files are missing.
    """
    source, name = request.raw_folder, request.name
    contents, missing = vocabulary_contents(request.problem, [source])
    for file, content in contents.items():
        (staging / file).write_bytes(content)
    if not missing:
        return
    message = f"{name!r} has the files {', '.join(missing)}, and {source} has no such."
    if any(file.startswith("labels.") for file in missing):
        message += (
            " tensor2tensor keeps no file of labels: give their names, in the order of their "
            'numbers, as `class_labels` of the problem (in JSON "labels").'
        )
    if any(file.startswith("vocab.") for file in missing):
        message += (
            f" It has the vocabularies: {', '.join(vocabularies(source)) or 'none'}. If one of "
            "these is the one, copy it there under the name above; or set `approx_vocab_size` of "
            'the problem (in JSON "vocab_size") to the number in its name.'
        )
    raise DataError(message)
