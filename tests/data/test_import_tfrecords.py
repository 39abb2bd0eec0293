"""tensor2tensor's data sets (golden/tfrecords), taken over by the command that users type."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfrecord_writer import write_example, write_records

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import datagen, trainer
from t2t_torch.data import import_tfrecords as segments
from t2t_torch.data.import_tfrecords import import_tfrecords
from t2t_torch.data.manifest import Manifest
from t2t_torch.data.shards import Ragged, Shards
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "golden" / "tfrecords"
EXPECTED = json.loads((FOLDER / "expected.json").read_text("utf-8"))
EOS = "<EOS>"

FILES = {"files": {"train": "train.jsonl", "eval": "dev.jsonl"}}
DECLARED: dict[str, dict[str, Any]] = {
    "golden_pairs": {"kind": "text2text", "vocab_type": "subword", "vocab_size": 512},
    "golden_labels": {
        "kind": "text2class",
        "vocab_type": "character",
        "labels": ["low", "mid", "high"],
    },
    "golden_lm_packed": {"kind": "text2self", "use_vocab_from_other_problem": "golden_pairs"},
    "numbers": {"kind": "text2real", "vocab_type": "character", "settings": {"target_size": 2}},
    "pictures": {"kind": "image2class", "labels": ["a"], "settings": {"height": 2, "width": 2}},
    "learnt_labels": {"kind": "text2class", "vocab_type": "character"},
    "packed_pairs": {"kind": "text2text", "vocab_type": "character"},
}

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def usr_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "my_problems"
    folder.mkdir()
    for name, said in DECLARED.items():
        (folder / f"{name}.json").write_text(json.dumps({"problem": name, **said, **FILES}))
    return folder


@pytest.fixture
def problem(usr_dir: Path) -> Problem:
    registry.import_usr_dir(usr_dir)
    return registry.problem("golden_pairs")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of tensor2tensor's folder that a test may spoil."""
    return Path(shutil.copytree(FOLDER, tmp_path / "old"))


def take_over(source: Path, usr_dir: Path, name: str, *more: str) -> int:
    return datagen.main(
        [
            f"--import_tfrecords={source}",
            f"--problem={name}",
            f"--data_dir={source.parent / 'data'}",
            f"--t2t_usr_dir={usr_dir}",
            *more,
        ]
    )


def rows(folder: Path, name: str, split: Split, feature: str) -> list[list[Any]]:
    return [
        values[a:b].tolist()
        for values, offsets in Shards.open(folder, name, split).column(feature)
        for a, b in itertools.pairwise(offsets)
    ]


def records(name: str, split: Split) -> list[dict[str, Any]]:
    shards = EXPECTED["problems"][name]["shards"]
    files = sorted(file for file in shards if f"{name}-{split.value}-" in file)
    return [record for file in files for record in shards[file]]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


def write(folder: Path, name: str, examples: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-train-00000-of-00001"
    write_records(path, map(write_example, examples))
    return path


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["golden_pairs", "golden_labels"])
@pytest.mark.parametrize("split", [Split.TRAIN, Split.EVAL])
def test_ids_order_and_shards_stay_and_decode_to_the_same_text(source, usr_dir, name, split):
    assert take_over(source, usr_dir, name) == 0
    data = source.parent / "data"
    expected = records(name, split)
    features = registry.problem(name).features(data).all
    for feature in ("inputs", "targets"):
        found = rows(data, name, split, feature)
        assert found == [record["features"][feature] for record in expected]
        decoded = [features[feature].decode(ids) for ids in found]
        assert decoded == [record["decoded"][feature].removesuffix(EOS) for record in expected]
    shards = EXPECTED["problems"][name]["shards"]
    manifest = Manifest.load(data, name)
    told = [(shard.file, shard.rows) for shard in manifest.splits[split.value].shards]
    of_split = [file for file in sorted(shards) if f"-{split.value}-" in file]
    assert told == [(f"{file}.arrow", len(shards[file])) for file in of_split]


def test_the_text_of_the_training_shards_is_what_tensor2tensor_was_given(source, usr_dir):
    take_over(source, usr_dir, "golden_pairs")
    data = source.parent / "data"
    encoder = SubtokenEncoder.load(data / "vocab.golden_pairs.512.subwords")
    sides = [
        map(encoder.decode, rows(data, "golden_pairs", Split.TRAIN, name))
        for name in ("inputs", "targets")
    ]
    given = [
        (pair["inputs"], pair["targets"])
        for pair in EXPECTED["source_text_of_golden_pairs"]["train"]
    ]
    assert sorted(zip(*sides, strict=True)) == sorted(given)


@pytest.mark.slow
def test_the_vocabulary_can_be_learnt_again_from_the_text(tmp_path):
    given = EXPECTED["source_text_of_golden_pairs"]["train"]
    texts = [text for pair in given for text in (pair["inputs"], pair["targets"])]
    SubtokenEncoder.train(texts, 512, tmp_path / "vocab")
    old = FOLDER / "vocab.golden_pairs.512.subwords"
    assert (tmp_path / "vocab").read_bytes() == old.read_bytes()


def test_packed_examples_come_apart(source, usr_dir):
    for name in ("golden_pairs", "golden_lm_packed"):
        assert take_over(source, usr_dir, name) == 0
    for split in (Split.TRAIN, Split.EVAL):
        expected = []
        for record in records("golden_lm_packed", split):
            ids, numbers = (record["features"][k] for k in ("targets", "targets_segmentation"))
            for number, group in itertools.groupby(zip(numbers, ids, strict=True), lambda x: x[0]):
                expected += [[i for _, i in group]] if number else []
        assert rows(source.parent / "data", "golden_lm_packed", split, "targets") == expected
        assert len(expected) > len(records("golden_lm_packed", split))


def test_packed_pairs_come_apart_together(tmp_path, usr_dir):
    packed = {
        "inputs": [5, 1, 0, 0, 6, 6, 1],
        "inputs_segmentation": [1, 1, 0, 0, 2, 2, 2],
        "inputs_position": [0, 1, 0, 0, 0, 1, 2],
        "targets": [7, 7, 1, 0, 0, 1],
        "targets_segmentation": [1, 1, 1, 0, 0, 2],
        "targets_position": [0, 1, 2, 0, 0, 0],
    }
    alone = {
        f"{k}{s}": v for k in ("inputs", "targets") for s, v in (("", [9]), (segments.SUFFIX, [1]))
    }
    source = write(tmp_path / "old", "packed_pairs", [packed, alone, packed]).parent
    assert take_over(source, usr_dir, "packed_pairs") == 0
    data = tmp_path / "data"
    assert rows(data, "packed_pairs", Split.TRAIN, "inputs") == [
        [5, 1], [6, 6, 1], [9], [5, 1], [6, 6, 1],
    ]  # fmt: skip
    assert rows(data, "packed_pairs", Split.TRAIN, "targets") == [
        [7, 7, 1], [1], [9], [7, 7, 1], [1],
    ]  # fmt: skip


def test_segments_that_do_not_fit_are_refused() -> None:
    def ragged(*lists: list[int]) -> Ragged:
        return Ragged.from_lists(lists, np.int64)

    ids = {"inputs": ragged([5, 6]), "targets": ragged([7, 8])}
    for other, told in (
        (ragged([1]), "different lengths"),
        (ragged([2, 1]), "fall"),
        (ragged([1, 3]), "same examples"),
    ):
        with pytest.raises(ValueError, match=told):
            segments.separate(ids, {"inputs": ragged([1, 2]), "targets": other})


def test_floats_are_taken_over_and_the_old_name_of_targets_is_known(tmp_path, usr_dir):
    examples = [{"inputs": [70 + i, 1], "label": [i / 2, -1.5], "template": [i]} for i in range(3)]
    source = write(tmp_path / "old", "numbers", examples).parent
    assert take_over(source, usr_dir, "numbers") == 0
    data = tmp_path / "data"
    found = rows(data, "numbers", Split.TRAIN, "targets")
    assert found == [example["label"] for example in examples]


def test_what_is_finished_is_left_alone_and_what_differs_is_refused(source, problem, tmp_path):
    data = tmp_path / "data"
    first = import_tfrecords(problem, source, data, progress=False)
    before = {path: path.stat().st_mtime_ns for path in data.glob("golden*")}
    assert import_tfrecords(problem, source, data, progress=False) == first
    assert {path: path.stat().st_mtime_ns for path in data.glob("golden*")} == before
    expected = files(data)
    write_records(source / "golden_pairs-dev-00000-of-00001", [write_example({"inputs": [2]})])
    with pytest.raises(DataError, match=r"(?s)made from other records.*dev-00000-of-00001"):
        import_tfrecords(problem, source, data, progress=False)
    (source / "golden_pairs-dev-00000-of-00001").unlink()
    with pytest.raises(
        DataError, match=r"shards: there \{'train': 2, 'dev': 1\}, requested \{'train'"
    ):
        import_tfrecords(problem, source, data, progress=False)
    assert files(data) == expected
    import_tfrecords(problem, source, data, overwrite=True, progress=False)
    assert sorted(expected.keys() - files(data)) == ["golden_pairs-dev-00000-of-00001.arrow"]


def test_damaged_shards_are_made_again_and_datagen_does_not_take_them_for_its_own(
    source, problem, usr_dir, tmp_path, capsys
):
    data = tmp_path / "data"
    import_tfrecords(problem, source, data, progress=False)
    expected = files(data)
    path = data / "golden_pairs-train-00001-of-00002.arrow"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"(?s)damaged.*--import_tfrecords=\S+") as damage:
        Shards.open(data, "golden_pairs", Split.TRAIN)
    assert "--tmp_dir" not in str(damage.value)
    import_tfrecords(problem, source, data, progress=False)
    assert files(data) == expected
    arguments = [f"--data_dir={data}", f"--tmp_dir={tmp_path}", f"--t2t_usr_dir={usr_dir}"]
    assert datagen.main(["--problem=golden_pairs", *arguments]) == 2
    assert 'imported_from: there "tensor2tensor\'s TFRecords", requested None' in (
        capsys.readouterr().err.replace("\\'", "'")
    )


def test_another_vocabulary_in_the_data_folder_is_not_replaced(source, problem, tmp_path):
    path = tmp_path / "data" / "vocab.golden_pairs.512.subwords"
    path.parent.mkdir()
    path.write_text("of other data")
    with pytest.raises(DataError, match=r"another vocabulary.*Choose another --data_dir"):
        import_tfrecords(problem, source, path.parent, progress=False)
    assert list(files(path.parent)) == [path.name]
    import_tfrecords(problem, source, path.parent, overwrite=True, progress=False)
    assert path.read_bytes() == (FOLDER / path.name).read_bytes()


def test_missing_shards_are_named(source, problem, tmp_path):
    (source / "golden_pairs-train-00000-of-00002").unlink()
    with pytest.raises(DataError, match=r"1 of 2 shards.*: golden_pairs-train-00000-of-00002\. "):
        import_tfrecords(problem, source, tmp_path / "data")
    (source / "golden_pairs-train-00000-of-00001").write_bytes(b"")
    with pytest.raises(DataError, match="two data sets"):
        import_tfrecords(problem, source, tmp_path / "data")
    for path in source.glob("golden_pairs-train-*"):
        path.rename(source / path.name.replace("-train", "-unshuffled-train"))
    with pytest.raises(DataError, match=r"2 unshuffled ones.*There is data of: golden_labels, "):
        import_tfrecords(problem, source, tmp_path / "data")
    with pytest.raises(DataError, match=r"Cannot read the folder .*absent"):
        import_tfrecords(problem, source / "absent", tmp_path / "data")


def test_a_missing_vocabulary_is_named_with_those_that_are_there(source, problem, tmp_path):
    old = source / "vocab.golden_pairs.512.subwords"
    old.rename(source / "vocab.golden_pairs.8192.subwords")
    with pytest.raises(DataError, match=r"512\.subwords.*: vocab\.golden_pairs\.8192.*vocab_size"):
        import_tfrecords(problem, source, tmp_path / "data")
    write(source, "learnt_labels", [{"inputs": [5, 1], "targets": [0]}])
    with pytest.raises(DataError, match=r'labels\.learnt_labels.*`class_labels`.*"labels"'):
        import_tfrecords(registry.problem("learnt_labels"), source, tmp_path / "data")


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ({"inputs": [5, 1]}, "it has no 'targets', which the problem needs; it has: inputs"),
        ({"inputs": [5, 505], "targets": [1]}, "'inputs' holds the id 505.*505: 0 to 504"),
        ({"inputs": [5, -1], "targets": [1]}, "'inputs' holds the id -1"),
        ({"inputs": [5, 1 << 40], "targets": [1]}, "'inputs' holds the id 1099511627776"),
        ({"inputs": [b"text"], "targets": [1]}, "'inputs' holds bytes, where int64"),
        ({"inputs": [0.5], "targets": [1]}, "'inputs' holds float, where int64"),
    ],
)
def test_a_record_that_does_not_fit_is_named_and_nothing_stays(example, told, problem, tmp_path):
    good = {"inputs": [5, 1], "targets": [6, 1]}
    source = write(tmp_path / "old", "golden_pairs", [good, good, example, good]).parent
    shutil.copy(FOLDER / "vocab.golden_pairs.512.subwords", source)
    with pytest.raises(DataError, match=rf"of-00001, record 3 \(from byte \d+\): .*{told}"):
        import_tfrecords(problem, source, tmp_path / "data", progress=False)
    assert files(tmp_path / "data") == {}
    assert not list((tmp_path / "data").glob("*.incomplete"))


def test_numbers_of_another_size_records_that_are_none_and_empty_files_are_refused(
    tmp_path, usr_dir, problem
):
    numbers = registry.problem("numbers")
    source = write(tmp_path / "old", "numbers", [{"inputs": [5], "targets": [0.5]}]).parent
    with pytest.raises(DataError, match="'targets' has 1 values, where 2 was expected"):
        import_tfrecords(numbers, source, tmp_path / "data", progress=False)
    write_records(source / "numbers-train-00000-of-00001", [b"\x0a"])
    with pytest.raises(DataError, match=r"record 1 \(from byte 0\): it is no Example"):
        import_tfrecords(numbers, source, tmp_path / "data", progress=False)
    write_records(source / "numbers-train-00000-of-00001", [])
    with pytest.raises(DataError, match=r"'numbers' train: the files hold no record"):
        import_tfrecords(numbers, source, tmp_path / "data", progress=False)


def test_pictures_are_refused_by_name(tmp_path, usr_dir, capsys):
    picture = {"image/encoded": [b"PNG"], "image/class/label": [1]}
    source = write(tmp_path / "old", "pictures", [picture]).parent
    assert take_over(source, usr_dir, "pictures") == 2
    told = capsys.readouterr().err
    assert "holds image/class/label, image/encoded, and pictures are not taken over" in told
    write(source, "unknown", [picture])
    assert take_over(source, usr_dir, "unknown") == 2
    assert "Generate the data again" in capsys.readouterr().err


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["golden_pairs", "golden_labels", "golden_lm_packed"])
def test_a_problem_that_is_not_declared_is_guessed_and_the_guess_works(
    name, source, tmp_path, capsys
):
    usr_dir = tmp_path / "guesses"
    usr_dir.mkdir()
    for guessed in ("golden_pairs", name):
        if guessed == name or "lm" in name:
            assert take_over(source, usr_dir, guessed) == 2
            told = capsys.readouterr().err
            assert f"no problem '{guessed}' yet" in told
            (usr_dir / f"{guessed}.json").write_text(told[told.index("{") :])
    registry._STATE.forget_index()
    assert take_over(source, usr_dir, name) == 0
    guess = json.loads((usr_dir / f"{name}.json").read_text())
    assert guess["kind"] == DECLARED[name]["kind"]
    assert len(guess.get("labels", [])) == len(DECLARED[name].get("labels", []))


@pytest.mark.parametrize(
    ("examples", "kind"),
    [
        ([{"inputs": [5], "targets": [0.5]}], {"kind": "text2real"}),
        ([{"inputs": [5], "targets": [0.5, 1.0]}], {"settings": {"target_size": 2}}),
        ([{"inputs": [5], "context": [5], "targets": [5]}], {"kind": "questioncontext2text"}),
        ([{"inputs": [5], "label": [1]}] * 2, {"kind": "text2class", "labels": ["0", "1"]}),
        ([{"inputs": [0], "targets": [5, 1]}], {"kind": "text2self", "vocab_type": "character"}),
    ],
)
def test_other_kinds_are_guessed_from_what_the_records_hold(
    examples, kind, tmp_path, usr_dir, capsys
):
    source = write(tmp_path / "old", "unknown", examples).parent
    assert take_over(source, usr_dir, "unknown") == 2
    told = capsys.readouterr().err
    guess = json.loads(told[told.index("{") :])
    assert kind.items() <= guess.items()


def test_flags_that_nothing_would_read_are_refused(source, usr_dir, capsys):
    assert take_over(source, usr_dir, "golden_pairs", "--max_cases=3") == 2
    assert "--max_cases does not go with --import_tfrecords" in capsys.readouterr().err
    assert not (source.parent / "data").exists()


def test_more_data_is_made_with_the_old_vocabulary(source, usr_dir, tmp_path):
    take_over(source, usr_dir, "golden_pairs")
    texts = ["the way — down 漢", "word up, <EOS> \\ _ 12"]
    said = {
        "problem": "more_pairs",
        "kind": "text2text",
        "use_vocab_from_other_problem": "golden_pairs",
        "files": {"train": "more.jsonl", "eval": "more_dev.jsonl"},
        "shards": {"train": 1},
    }
    (usr_dir / "more_pairs.json").write_text(json.dumps(said))
    lines = [json.dumps({"inputs": text, "targets": text[::-1]}) for text in texts]
    for name in ("more", "more_dev"):
        (usr_dir / f"{name}.jsonl").write_text("\n".join(lines))
    registry._STATE.forget_index()
    data = tmp_path / "data"
    arguments = [f"--data_dir={data}", f"--tmp_dir={tmp_path}", f"--t2t_usr_dir={usr_dir}"]
    assert datagen.main(["--problem=more_pairs", *arguments]) == 0
    old = SubtokenEncoder.load(FOLDER / "vocab.golden_pairs.512.subwords")
    found = rows(data, "more_pairs", Split.TRAIN, "inputs")
    assert sorted(found) == sorted([*old.encode(text), 1] for text in texts)
    name = "vocab.golden_pairs.512.subwords"
    assert (data / name).read_bytes() == (FOLDER / name).read_bytes()


def test_old_data_is_trained_on_and_decoded_with_its_own_vocabulary(source, usr_dir, tmp_path):
    take_over(source, usr_dir, "golden_pairs")
    arguments = [
        "--problem=golden_pairs_rev",
        f"--data_dir={tmp_path / 'data'}",
        f"--output_dir={tmp_path / 'run'}",
        f"--t2t_usr_dir={usr_dir}",
        "--model=transformer",
        "--hparams_set=transformer_tiny",
        "--hparams=hidden_size=16,num_hidden_layers=1,batch_size=256",
        "--train_steps=2",
        "--eval_steps=1",
        "--worker_gpu=0",
    ]
    assert trainer.main(arguments) == 0
    shutil.rmtree(tmp_path / "data")
    outputs = t2t_torch.load(tmp_path / "run")(["Mina ☃ word", "way down"])
    assert [type(output) for output in outputs] == [str, str]
    name = "vocab.golden_pairs.512.subwords"
    assert (tmp_path / "run" / name).read_bytes() == (FOLDER / name).read_bytes()


def test_what_the_page_says_runs(source, usr_dir, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "how_to" / "from_tensor2tensor.md").read_text("utf-8")
    section = page.split("\n## Bring your data\n")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    source.rename("old_data")
    command = re.search(r"^t2t-datagen (.*)$", section, re.M)
    assert command is not None
    arguments = command[1].replace("NAME", "golden_labels").split()
    assert datagen.main([*arguments, f"--t2t_usr_dir={usr_dir}"]) == 0
    assert len(rows(tmp_path / "data", "golden_labels", Split.TRAIN, "targets")) == 34
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    exec(code, {})
    assert Path("vocab.mine.8192.subwords").stat().st_size > 100


KILLED_AT = """
import os, pathlib, signal, sys

count = 0

def deadly(function):
    def call(*arguments, **options):
        global count
        count += 1
        if count == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

os.fsync = deadly(os.fsync)
pathlib.Path.rename = deadly(pathlib.Path.rename)
pathlib.Path.replace = deadly(pathlib.Path.replace)
from t2t_torch.bin.commands import datagen
sys.exit(datagen.main(sys.argv[2:]))
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("moment", [1, 3, 5, 7, 9])
def test_a_killed_import_leaves_nothing_that_looks_finished(moment, source, usr_dir):
    data = source.parent / "data"
    arguments = [
        f"--import_tfrecords={source}",
        "--problem=golden_pairs",
        f"--data_dir={data}",
        f"--t2t_usr_dir={usr_dir}",
    ]
    command = [sys.executable, "-c", KILLED_AT, str(moment), *arguments]
    done = subprocess.run(command, capture_output=True, check=False, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (data / "golden_pairs.json").exists()
    with pytest.raises(DataError, match="No data of 'golden_pairs'"):
        Shards.open(data, "golden_pairs", Split.TRAIN)
    assert take_over(source, usr_dir, "golden_pairs") == 0
    assert len(rows(data, "golden_pairs", Split.TRAIN, "inputs")) == 301
    assert not list(data.glob("*.incomplete"))
