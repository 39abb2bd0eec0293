"""The files that a declaration names."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.bin.commands import datagen
from t2t_torch.data.manifest import Manifest
from t2t_torch.declaration.schema import Rows
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.mode import Split

pytestmark = pytest.mark.usefixtures("own_registry")

BIO = {"seq.in": "go home\n" * 4, "seq.out": "O B-to\n" * 4, "label": "walk\n" * 4}
PICTURES = {
    "images": bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2)) + bytes(range(8)),
    "numbers": bytes((0, 0, 8, 1, 0, 0, 0, 2, 3, 4)),
}
SEVERAL: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {f"{part}.{side}": f"{side} text\n" * 4 for part in ("tr", "dev") for side in ("en", "de")},
        {
            "kind": "text2text",
            "vocab_type": "character",
            "files": {
                "train": {"inputs": "tr.en", "targets": "tr.de"},
                "eval": {"inputs": "dev.en", "targets": "dev.de"},
            },
        },
    ),
    (
        {f"{part}/{name}": text for part in ("tr", "dev") for name, text in BIO.items()},
        {"kind": "intentslot", "files": {"train": "tr", "eval": "dev"}},
    ),
    (
        {f"{part}/{name}": text for part in ("tr", "dev") for name, text in PICTURES.items()},
        {
            "kind": "image2class",
            "format": "idx",
            "options": {"labels": "numbers"},
            "labels": ["3", "4"],
            "settings": {"height": 2, "width": 2, "channels": 1},
            "files": {"train": "tr/images", "eval": "dev/images"},
        },
    ),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("beside", [False, True], ids=["in tmp_dir", "beside the declaration"])
@pytest.mark.parametrize(("files", "keys"), SEVERAL, ids=["parallel", "bio", "idx"])
def test_relative_folders_are_as_good_as_absolute_ones(
    files: dict[str, Any], keys: dict[str, Any], beside: bool, declare, tmp_path: Path, monkeypatch
):
    folder = "" if beside else "raw/"
    declare({f"{folder}{name}": text for name, text in files.items()}, **keys)
    usr_dir = tmp_path / "usr"
    usr_dir.mkdir()
    (tmp_path / "mine.json").rename(usr_dir / "mine.json")
    if beside:
        for top in {Path(name).parts[0] for name in files}:
            (tmp_path / top).rename(usr_dir / top)
    monkeypatch.chdir(tmp_path)
    flags = ["--t2t_usr_dir=usr", "--problem=mine", "--data_dir=data", "--tmp_dir=raw"]
    assert datagen.main(flags) == 0
    made = Manifest.load(Path("data"), "mine")
    assert made.splits["train"].rows == made.splits["dev"].rows > 0
    expected = {Path(name).name for name in files}
    assert {Path(name).name for name in made.raw_files} == expected
    assert len(made.raw_files) == len(files)


def pairs(declare, **patterns: str) -> Any:
    files = {f"part-{n}.{side}": f"{side}{n}\n" for n in (2, 0, 1) for side in ("en", "de")}
    files |= {"dev.en": "x\n", "dev.de": "y\n", "odd.en": "z\n"}
    held_out = {"inputs": "dev.en", "targets": "dev.de"}
    return declare(files, kind="text2text", files={"train": patterns, "eval": held_out})


def test_patterns_of_parallel_files_are_read_whole(declare, samples, tmp_path):
    problem = pairs(declare, inputs="part-*.en", targets="part-*.de")
    assert samples(problem, Split.TRAIN) == [
        {"inputs": f"en{n}", "targets": f"de{n}"} for n in range(3)
    ]
    names = {path.name for path in problem.raw_files(tmp_path)}
    assert names == {
        f"{part}.{s}" for part in ("part-0", "part-1", "part-2", "dev") for s in ("en", "de")
    }


def test_patterns_that_fit_unequal_numbers_of_files_are_refused(declare, samples):
    problem = pairs(declare, inputs="[po]*.en", targets="part-*.de")
    with pytest.raises(RegistryError, match=r'mine\.json:\d+: "files\.train": .*4 for \'inputs\''):
        samples(problem, Split.TRAIN)


@pytest.mark.parametrize("name", ["a**b.csv", "~nobody-of-this-name/a.csv"])
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python 3.13 reads ** as *")
def test_a_name_that_is_no_path_is_told_with_its_key(name: str, declare, samples):
    with pytest.raises(RegistryError, match=r'mine\.json:\d+: "files\.train": .* is no path'):
        samples(declare(files={"train": name}), Split.TRAIN)


def test_a_file_of_two_splits_is_refused(declare, tmp_path):
    files = dict.fromkeys(("a.csv", "dev.csv"), "inputs,targets\na,b\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    for train, held_out, told in (
        ("*.csv", "dev.csv", "dev.csv"),
        ("a.csv", "link.csv", "link.csv"),
        ({"path": "a.csv", "where": {"inputs": "a"}}, "link.csv", "link.csv"),
        (["a.csv", "dev.csv"], "a.csv", "a.csv"),
    ):
        problem = declare(files, files={"train": train, "eval": held_out})
        with pytest.raises(
            RegistryError, match=rf'"files\.eval": .*{told} is read for \'train\' too'
        ):
            problem.prepare(tmp_path)


def test_data_is_good_when_its_raw_files_are_gone(declare, tmp_path):
    files, keys = SEVERAL[2]
    problem = declare(files, **keys)
    for name in files:
        (tmp_path / name).unlink()
    assert {path.name for path in problem.raw_files(tmp_path)} == {"images"}


def test_rows_of_packed_parallel_files_beside_each_other(declare, samples):
    files = {"a.en.gz": gzip.compress(b"one\n"), "b/a.de": "eins\n", "dev.csv": "inputs,targets\n"}
    named = {"inputs": "a.en.gz", "targets": "b/a.de"}
    problem = declare(files, kind="text2text", files={"train": named, "eval": 0.01})
    assert samples(problem, Split.TRAIN) == [{"inputs": "one", "targets": "eins"}]


def test_missing_parallel_files_are_told(declare, tmp_path):
    problem = declare(kind="text2text", files={"train": {"inputs": "a*.en", "targets": "b.de"}})
    with pytest.raises(DataError, match=r"(?s)a\*\.en.*b\.de"):
        problem.prepare(tmp_path)


def test_rows_are_chosen_by_the_values_of_a_column(declare, samples, tmp_path):
    rows = "inputs,targets,fold\n" + "".join(f"a{n},b,{n % 4}\n" for n in range(12))
    files = {
        "train": {"path": ["a.csv"], "where": {"fold": [0, 1], "targets": "b"}},
        "eval": {"path": "a.csv", "where": {"fold": 2}},
    }
    problem = declare({"a.csv": rows}, files=files)
    problem.prepare(tmp_path)
    made = {
        split: [one["inputs"] for one in samples(problem, split)]
        for split in (Split.TRAIN, Split.EVAL)
    }
    assert made[Split.TRAIN] == ["a0", "a1", "a4", "a5", "a8", "a9"]
    assert made[Split.EVAL] == ["a2", "a6", "a10"]
    files["eval"] = {"path": "a.csv", "where": {"fold": 7}}
    with pytest.raises(DataError, match="eval"):
        samples(declare({"a.csv": rows}, files=files), Split.EVAL)


@pytest.mark.parametrize(
    "train",
    [
        *({"path": "a.csv", "where": one} for one in ({}, "fold", {"fold": []}, {"fold": {}})),
        {"path": "a.csv", "where": {"fold": float("nan")}},
        {"path": [], "where": {"fold": 1}},
        {"path": "", "where": {"fold": 1}},
        {"path": "a.csv"},
    ],
)
def test_a_choice_of_rows_that_is_none_is_refused(train: Any, declare):
    with pytest.raises(RegistryError, match=r"files\.train"):
        declare({}, files={"train": train, "eval": 0.1})


def test_a_column_that_is_not_there_is_told_with_its_split(declare, tmp_path):
    files = {"train": "a.csv", "eval": {"path": "b.csv", "where": {"splt": "dev"}}}
    rows = "inputs,targets,split\na,b,dev\n"
    with pytest.raises(RegistryError, match=r"files\.eval.*no column 'splt'.*'split'"):
        declare({"a.csv": rows, "b.csv": rows}, files=files).prepare(tmp_path)


@pytest.mark.parametrize(
    ("value", "held"), [(1, 1.0), ("1", 1), (True, "true"), ("true", True), (2.5, "2.5")]
)
def test_values_are_compared_as_a_table_has_them(value: Any, held: Any):
    rows = Rows.model_validate({"path": "a.csv", "where": {"x": value}})
    assert rows.holds({"x": held})
    assert not rows.holds({"x": None}) and not rows.holds({})
