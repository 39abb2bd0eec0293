from __future__ import annotations

import itertools
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.data.manifest import FeatureEntry, Manifest, SplitEntry, sha256_of
from t2t_torch.data.shards import Ragged, Shards, ShardWriter, schema_of, shard_name
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

INPUTS = [[5, 6, 1], [1], [7, 7, 7, 7, 1], [8, 1], [9, 9, 1], [2, 1]]
TARGETS = [[3, 1], [4, 4, 4, 1], [1], [6, 1], [2, 2, 1], [1]]
SCHEMA = schema_of({"inputs": "list<int32>", "targets": "list<int32>"})


def rows(start, stop):
    return {
        "inputs": Ragged.from_lists(INPUTS[start:stop], np.int32),
        "targets": Ragged.from_lists(TARGETS[start:stop], np.int32),
    }


def write(path, pieces, **options):
    writer = ShardWriter(path, SCHEMA, **options)
    for start, stop in pieces:
        writer.append(rows(start, stop))
    return writer.close()


@pytest.fixture
def data_dir(tmp_path):
    """Six rows in three shards, one of them empty, and a vocabulary file."""
    edges = [(0, 4), (4, 4), (4, 6)]
    shards = [
        write(tmp_path / shard_name("toy", Split.TRAIN, i, 3), [edge])
        for i, edge in enumerate(edges)
    ]
    (tmp_path / "vocab.toy").write_text("a\nb\n")
    entry = FeatureEntry(role="inputs", type="list<int32>", vocab_size=10)
    Manifest(
        problem="toy",
        settings={"max_cases": 0},
        features={"inputs": entry, "targets": entry.model_copy(update={"role": "targets"})},
        vocab_files={"vocab.toy": sha256_of(tmp_path / "vocab.toy")},
        splits={"train": SplitEntry(rows=6, tokens={}, max_length={}, shards=shards)},
    ).save(tmp_path)
    return tmp_path


def lists_of(shards, feature):
    return [
        values[a:b].tolist()
        for values, offsets in shards.column(feature)
        for a, b in itertools.pairwise(offsets)
    ]


def test_what_is_written_is_read(data_dir):
    shards = Shards.open(data_dir, "toy", Split.TRAIN)
    assert shards.num_rows == len(shards) == 6
    assert lists_of(shards, "inputs") == INPUTS
    assert lists_of(shards, "targets") == TARGETS
    assert shards.lengths["inputs"].tolist() == [len(row) for row in INPUTS]
    assert shards.lengths["targets"].tolist() == [len(row) for row in TARGETS]
    assert shards.lengths["inputs"].dtype == np.int32


def test_values_are_views_of_the_mapped_file(data_dir):
    before = pa.total_allocated_bytes()
    values, offsets = Shards.open(data_dir, "toy", Split.TRAIN).column("inputs")[0]
    assert pa.total_allocated_bytes() == before
    assert not values.flags.owndata and not values.flags.writeable
    assert not offsets.flags.owndata
    assert (values.dtype, offsets.dtype) == (np.int32, np.int32)


def test_shards_can_be_sent_to_another_process(data_dir):
    shards = Shards.open(data_dir, "toy", Split.TRAIN)
    shards._cache_gb = 2.5  # that of the flag, which the other process does not have
    payload = pickle.dumps(shards)
    copy = pickle.loads(payload)
    assert lists_of(copy, "inputs") == INPUTS
    assert copy.fingerprint == shards.fingerprint
    assert copy._cache_gb == 2.5


def test_arrow_readers_of_others_can_read_a_shard(data_dir):
    with pa.OSFile(str(data_dir / shard_name("toy", Split.TRAIN, 0, 3))) as file:
        table = pa.ipc.open_file(file).read_all()
    assert table.to_pydict() == {"inputs": INPUTS[:4], "targets": TARGETS[:4]}
    assert table.schema.field("inputs").type == pa.list_(pa.int32())


def test_bytes_depend_on_the_rows_and_not_on_the_pieces(tmp_path):
    for limit in (1, 5, 8, 1000):
        whole = write(tmp_path / "whole", [(0, 6)], values_per_batch=limit)
        cut = write(tmp_path / "cut", [(0, 1), (1, 1), (1, 4), (4, 6)], values_per_batch=limit)
        assert (whole.sha256, whole.rows, whole.bytes) == (cut.sha256, cut.rows, cut.bytes)


def test_a_record_batch_is_cut_before_it_exceeds_the_limit(tmp_path):
    write(tmp_path / "shard", [(0, 6)], values_per_batch=7)
    with pa.OSFile(str(tmp_path / "shard")) as file:
        reader = pa.ipc.open_file(file)
        counts = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
        table = reader.read_all()
    # Values of the rows over both features: 5, 5, 6, 4, 6, 3.
    assert counts == [1, 1, 1, 1, 1, 1]
    assert table["inputs"].to_pylist() == INPUTS
    write(tmp_path / "shard", [(0, 6)], values_per_batch=10)
    with pa.OSFile(str(tmp_path / "shard")) as file:
        reader = pa.ipc.open_file(file)
        counts = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
    assert counts == [2, 2, 2]


def damage_truncate(path):
    path.write_bytes(path.read_bytes()[:-8])


def damage_flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_empty(path):
    path.write_bytes(b"")


def damage_remove(path):
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (damage_truncate, "expected .* bytes, found"),
        (damage_flip, "expected sha256 .*, found"),
        (damage_empty, "expected .* bytes, found 0"),
        (damage_remove, "missing"),
    ],
)
@pytest.mark.parametrize("file", ["toy-train-00000-of-00003.arrow", "vocab.toy"])
def test_a_damaged_file_is_named_with_the_command_that_mends_it(data_dir, damage, told, file):
    damage(data_dir / file)
    if file == "vocab.toy" and damage is not damage_remove:
        told = "expected sha256 .*, found"
    with pytest.raises(DataError, match=f"(?s){file}: {told}.*t2t-datagen --problem=toy"):
        Shards.open(data_dir, "toy", Split.TRAIN)


def test_all_damaged_files_are_named_at_once(data_dir):
    damage_flip(data_dir / "toy-train-00000-of-00003.arrow")
    damage_remove(data_dir / "toy-train-00002-of-00003.arrow")
    with pytest.raises(DataError, match=r"(?s)00000-of.*00002-of"):
        Shards.open(data_dir, "toy", Split.TRAIN)


@pytest.mark.parametrize("damage", [damage_truncate, damage_empty, damage_remove])
def test_a_file_that_is_no_arrow_file_is_told_also_without_verification(data_dir, damage):
    damage(data_dir / "toy-train-00002-of-00003.arrow")
    with pytest.raises(DataError, match=r"00002-of-00003.*t2t-datagen"):
        Shards(data_dir, Manifest.load(data_dir, "toy"), Split.TRAIN)


def test_missing_data_is_answered_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(DataError, match=r"No data of 'toy' in .*t2t-datagen --problem=toy"):
        Shards.open(tmp_path, "toy", Split.TRAIN)


def test_a_missing_split_is_told_with_those_there_are(data_dir):
    with pytest.raises(DataError, match="has no 'test' split; it has: train"):
        Shards.open(data_dir, "toy", Split.TEST)


def test_a_missing_feature_is_told_with_those_there_are(data_dir):
    with pytest.raises(DataError, match="no feature 'label'; it has: inputs, targets"):
        Shards.open(data_dir, "toy", Split.TRAIN).column("label")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"rows": 4', '"rows": 5', "holds 4 rows"),
        ('"format": 1', '"format": 99', "format"),
        ('"toy-train-00000', '"../toy-train-00000', "not a plain file name"),
        ('"problem": "toy"', '"problem": "other"', "of 'other', not of 'toy'"),
        ("{", "", "not a manifest"),
    ],
)
def test_a_manifest_that_does_not_fit_is_told(data_dir, old, new, told):
    path = Manifest.path(data_dir, "toy")
    without_checksum = re.sub(r',\s*"checksum": "\w+"', "", path.read_text())
    path.write_text(without_checksum.replace(old, new, 1))
    with pytest.raises(DataError, match=f"(?s){told}.*t2t-datagen"):
        Shards.open(data_dir, "toy", Split.TRAIN)


def test_the_fingerprint_changes_with_the_vocabulary_but_not_with_settings(data_dir):
    manifest = Manifest.load(data_dir, "toy")
    first = manifest.fingerprint(Split.TRAIN)
    assert manifest.model_copy(update={"settings": {}}).fingerprint(Split.TRAIN) == first
    other = manifest.model_copy(update={"vocab_files": {"vocab.toy": "0"}})
    assert other.fingerprint(Split.TRAIN) != first


def test_shards_are_read_where_there_is_no_pandas(tmp_path: Path) -> None:
    generate_data(registry.problem("tiny_algo"), tmp_path, tmp_path, progress=False)
    script = (
        "import sys; sys.modules['pandas'] = None\n"
        "from t2t_torch.data.shards import Shards\n"
        "from t2t_torch.mode import Split\n"
        "shards = Shards.open(sys.argv[1], 'tiny_algo', Split.TRAIN)\n"
        "print(len(shards.lengths['inputs']), shards.column('inputs')[0][0].dtype)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["100", "int32"], done.stderr
