from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from t2t_torch import registry
from t2t_torch.data import encoding
from t2t_torch.data.generate import generate_data
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError
from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import ByteEncoder


class Toy(Problem):
    """Numbers in digits; what a test wants to happen, happens in `before`, at each sample."""

    name = "toy"
    shards: ClassVar[dict[Split, int]] = {Split.TRAIN: 3, Split.EVAL: 1}
    count = 100
    before: Callable[[int], object] = staticmethod(lambda number: None)

    def stored_features(self, directory) -> Features:
        return Features({"inputs": Text(ByteEncoder())}, {"targets": Text(ByteEncoder())})

    def generate_samples(self, tmp_dir, split) -> Iterator[dict[str, Any]]:
        for number in range(self.count if split is Split.TRAIN else 10):
            self.before(number)
            yield {"inputs": str(number), "targets": f"{number}!"}


def toy(before: Callable[[int], object] | None = None, **attributes: Any) -> Toy:
    problem = Toy()
    for name, value in attributes.items():
        setattr(problem, name, value)
    if before:
        problem.before = before  # type: ignore[method-assign]
    return problem


def files(folder):
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")
    }


def texts(folder, split=Split.TRAIN, feature="inputs"):
    shards = Shards.open(folder, "toy", split)
    encoder = ByteEncoder()
    return [
        encoder.decode(values[a:b])
        for values, offsets in shards.column(feature)
        for a, b in itertools.pairwise(offsets)
    ]


def generate(problem, tmp_path, name="data", **options):
    return generate_data(problem, tmp_path / name, tmp_path / "raw", progress=False, **options)


def test_every_sample_is_stored_once_paired_and_shuffled(tmp_path):
    manifest = generate(toy(), tmp_path)
    inputs, targets = texts(tmp_path / "data"), texts(tmp_path / "data", feature="targets")
    assert sorted(inputs, key=int) == [str(number) for number in range(100)]
    assert inputs != sorted(inputs, key=int)
    assert targets == [f"{text}!" for text in inputs]
    assert [shard.rows for shard in manifest.splits["train"].shards] == [33, 33, 34]
    assert manifest.splits["dev"].rows == 10


def test_the_manifest_counts_tokens_with_eos(tmp_path):
    entry = generate(toy(), tmp_path).splits["train"]
    digits = 10 + 2 * 90
    assert entry.tokens == {"inputs": digits + 100, "targets": digits + 200}
    assert entry.max_length == {"inputs": 3, "targets": 4}


def test_the_same_settings_give_the_same_bytes(tmp_path):
    generate(toy(), tmp_path, "a")
    generate(toy(), tmp_path, "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    generate(toy(), tmp_path, "c", seed=1)
    assert texts(tmp_path / "c") != texts(tmp_path / "a")
    assert sorted(texts(tmp_path / "c")) == sorted(texts(tmp_path / "a"))


def test_any_number_of_workers_and_any_chunks_give_the_same_bytes(tmp_path, monkeypatch):
    problem = registry.problem("algorithmic_reverse_binary40_test")
    generate(problem, tmp_path, "one", num_processes=1)
    monkeypatch.setattr(encoding, "CHUNK_ROWS", 100)
    generate(problem, tmp_path, "chunks", num_processes=1)
    generate(problem, tmp_path, "four", num_processes=4)
    monkeypatch.setattr(encoding, "_ROWS_BEFORE_POOL", 150)
    monkeypatch.setattr(encoding, "available_cpus", lambda: 2)
    generate(problem, tmp_path, "later")
    expected = files(tmp_path / "one")
    assert len(expected) == 3
    for name in ("chunks", "four", "later"):
        assert files(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("num_processes", "num_rows", "pool"), [(1, 500, False), (2, 5, True), (None, 100, False)]
)
def test_the_number_of_processes_asked_for_is_used(tmp_path, num_processes, num_rows, pool):
    problem = registry.problem("algorithmic_reverse_binary40_test")
    features = problem.stored_features(tmp_path)
    make_features = encoding.MakeFeatures(problem, tmp_path)
    samples = ({"inputs": "0 1", "targets": "1 0"} for _ in range(num_rows))
    with encoding.Encoder(features, make_features, num_processes) as encoder:
        pieces = encoding.Chunks(samples, ["inputs", "targets"], "x")
        rows = [encoded.rows for encoded in encoder.encode(pieces)]
        assert (encoder._pool is not None) is pool
    assert sum(len(piece["inputs"]) for piece in rows) == num_rows
    assert rows[0]["inputs"].values[:3].tolist() == [2, 3, 1]


def test_a_problem_that_cannot_be_pickled_is_encoded_by_one_process(tmp_path):
    generate(toy(before=lambda number: None), tmp_path, num_processes=2)
    assert len(texts(tmp_path / "data")) == 100


def test_global_generators_are_seeded_for_the_problem_and_put_back(tmp_path):
    drawn: list[float] = []
    problem = toy(before=lambda number: drawn.extend((random.random(), np.random.random())))
    random.seed(5)
    expected = random.Random(5).random()
    generate(problem, tmp_path, "a")
    assert random.random() == expected
    first = list(drawn)
    drawn.clear()
    generate(problem, tmp_path, "b")
    assert drawn == first
    drawn.clear()
    generate(problem, tmp_path, "c", seed=1)
    assert drawn != first


def test_at_most_max_cases_of_each_split_are_taken(tmp_path):
    asked: list[int] = []
    manifest = generate(toy(before=asked.append), tmp_path, max_cases=7)
    assert [entry.rows for entry in manifest.splits.values()] == [7, 7]
    assert asked == [*range(7), *range(7)], "no sample beyond them is generated"


def test_more_shards_than_rows_leave_some_empty(tmp_path):
    manifest = generate(toy(count=2), tmp_path)
    assert [shard.rows for shard in manifest.splits["train"].shards] == [0, 1, 1]
    assert sorted(texts(tmp_path / "data")) == ["0", "1"]


def test_what_is_complete_is_not_made_again(tmp_path):
    first = generate(toy(), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").glob("toy*")}
    asked: list[int] = []
    assert generate(toy(before=asked.append), tmp_path) == first
    assert asked == []
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").glob("toy*")} == before
    generate(toy(before=asked.append), tmp_path, overwrite=True)
    assert len(asked) == 110


@pytest.mark.parametrize("damage", ["truncate", "remove", "flip"])
def test_what_is_damaged_is_made_again_with_the_same_bytes(tmp_path, damage):
    generate(toy(), tmp_path)
    expected = files(tmp_path / "data")
    path = next((tmp_path / "data").glob("*-00001-of-00003.arrow"))
    content = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if damage == "truncate" else content[:-1] + b"x")
    generate(toy(), tmp_path)
    assert files(tmp_path / "data") == expected


def test_other_settings_are_refused_with_what_differs_and_replaced_if_asked(tmp_path):
    generate(toy(), tmp_path)
    expected = files(tmp_path / "data")
    with pytest.raises(DataError) as error:
        generate(toy(shards={Split.TRAIN: 2, Split.EVAL: 1}), tmp_path, seed=7)
    told = str(error.value)
    assert "shuffle_seed: there 429459, requested 7" in told
    assert "shards: there {'train': 3, 'dev': 1}, requested {'train': 2, 'dev': 1}" in told
    assert "max_cases" not in told
    assert "--overwrite" in told
    assert files(tmp_path / "data") == expected
    generate(toy(shards={Split.TRAIN: 2, Split.EVAL: 1}), tmp_path, overwrite=True)
    names = sorted(files(tmp_path / "data"))
    assert names == [
        "toy-dev-00000-of-00001.arrow",
        "toy-train-00000-of-00002.arrow",
        "toy-train-00001-of-00002.arrow",
        "toy.json",
    ], "the shards of the earlier generation are gone"


@pytest.mark.parametrize("at", [0, 50, 99])
def test_a_generator_that_raises_is_told_with_its_place_and_leaves_nothing(tmp_path, at):
    def fail(number: int) -> None:
        if number == at:
            raise RuntimeError("the disk of the corpus is gone")

    with pytest.raises(DataError, match="the disk of the corpus is gone") as told:
        generate(toy(before=fail), tmp_path)
    assert str(told.value).startswith(f"'toy' train: generate_samples failed at sample {at},")
    assert "in generate_samples" in str(told.value)
    assert isinstance(told.value.__cause__, RuntimeError)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".toy.lock"]
    generate(toy(), tmp_path)
    generate(toy(), tmp_path, "clean")
    assert files(tmp_path / "data") == files(tmp_path / "clean")


def test_a_failed_replacement_leaves_the_old_data(tmp_path):
    generate(toy(), tmp_path)
    expected = files(tmp_path / "data")

    def fail(number: int) -> None:
        raise RuntimeError("no")

    with pytest.raises(DataError, match="no"):
        generate(toy(before=fail), tmp_path, overwrite=True)
    assert files(tmp_path / "data") == expected


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        ({"inputs": "a"}, "sample 5 has inputs; the problem's features need inputs, targets"),
        ({"inputs": "a", "targets": "b", "label": 1}, "sample 5 has inputs, targets, label"),
        ({"inputs": "a\ud800", "targets": "b"}, r"sample 5, 'inputs' is 'a\\ud800'"),
        ({"inputs": "a", "targets": None}, "sample 5, 'targets' is None"),
    ],
)
def test_a_sample_that_does_not_fit_is_named(tmp_path, sample, told):
    problem = toy()
    good = {"inputs": "a", "targets": "b"}
    problem.generate_samples = lambda *_: iter([good] * 5 + [sample])  # type: ignore[assignment]
    with pytest.raises(DataError, match=f"'toy' train.*{told}"):
        generate(problem, tmp_path)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".toy.lock"]


def test_ids_outside_the_vocabulary_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ByteEncoder, "vocab_size", property(lambda self: 50))
    with pytest.raises(DataError, match="its vocabulary has 50"):
        generate(toy(), tmp_path)


def test_a_split_without_samples_is_refused(tmp_path):
    with pytest.raises(DataError, match="'toy' train: generate_samples gave no sample"):
        generate(toy(count=0), tmp_path)


@pytest.mark.parametrize("count", [0, 100_000])
def test_an_impossible_number_of_shards_is_refused(tmp_path, count):
    with pytest.raises(DataError, match="train shards, not 1 to 99999"):
        generate(toy(shards={Split.TRAIN: count}), tmp_path)


def test_many_chunks_are_cut_by_their_size_too(monkeypatch):
    monkeypatch.setattr(encoding, "_CHUNK_BYTES", 10)
    samples = [{"inputs": "x" * size} for size in (4, 4, 4, 30, 1, 1)]
    cut = list(encoding.Chunks(samples, ["inputs"], "x"))
    assert [len(chunk.columns["inputs"]) for chunk in cut] == [3, 1, 2]
    assert [chunk.first for chunk in cut] == [0, 3, 4]
