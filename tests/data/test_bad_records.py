"""What becomes of records that cannot be read, and of samples that cannot be encoded."""

from __future__ import annotations

import pytest

from t2t_torch.data import encoding as chunks
from t2t_torch.data.generate import generate_data, run_task
from t2t_torch.data.manifest import Manifest
from t2t_torch.errors import DataError, UsageError
from t2t_torch.mode import Split

from .counting import counting, files, numbers

BAD = {"unreadable": (3, 8, 50), "unfit": (0, 9, 40, 99)}


def generate(problem, tmp_path, name="data", **options):
    return generate_data(problem, tmp_path / name, tmp_path / "raw", progress=False, **options)


def skipped(tmp_path, name="data"):
    path = tmp_path / name / "counting.skipped.txt"
    return path.read_text().splitlines() if path.exists() else None


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"unreadable": (3,)}, r"raw/raw.txt, line 4, column 1: no number"),
        ({"unfit": (3,)}, "'counting' train, sample 3, 'targets' is None, which cannot be encoded"),
    ],
)
def test_a_bad_record_ends_the_generation_with_its_place(tmp_path, attributes, told):
    with pytest.raises(DataError, match=told):
        generate(counting(**attributes), tmp_path)
    assert files(tmp_path / "data") == {}


def test_skipped_records_are_counted_once_and_listed_by_split(tmp_path):
    manifest = generate(counting(**BAD), tmp_path, on_bad_record="skip")
    assert sorted(numbers(tmp_path / "data")) == sorted(
        {*range(100)} - {*BAD["unreadable"], *BAD["unfit"]}
    )
    assert {key: split.skipped for key, split in manifest.splits.items()} == {"train": 7, "dev": 4}
    assert manifest.splits["train"].rows == 93
    assert Manifest.load(tmp_path / "data", "counting") == manifest
    lines = skipped(tmp_path)
    assert lines is not None and len(lines) == 11
    assert lines[:3] == [
        f"train: raw.txt, line {number + 1}, column 1: no number" for number in (3, 8, 50)
    ]
    # Samples are counted as they are given: two unreadable numbers come before number 9.
    assert lines[4].startswith("train: 'counting' train, sample 7, 'targets' is None")
    assert lines[7] == "dev: raw.txt, line 4, column 1: no number"


@pytest.mark.parametrize("block", [1, 4, 1000])
def test_what_is_skipped_does_not_depend_on_processes_chunks_or_tasks(tmp_path, monkeypatch, block):
    generate(counting(**BAD), tmp_path, "one", on_bad_record="skip")
    monkeypatch.setattr(chunks, "CHUNK_ROWS", block)
    generate(counting(**BAD), tmp_path, "chunks", on_bad_record="skip")
    for number in range(3):
        run_task(
            counting(**BAD),
            tmp_path / "tasks",
            tmp_path / "raw",
            task_id=number,
            num_tasks=3,
            on_bad_record="skip",
            progress=False,
        )
    expected = files(tmp_path / "one")
    assert "counting.skipped.txt" in expected
    assert files(tmp_path / "chunks") == files(tmp_path / "tasks") == expected


def test_workers_skip_what_they_cannot_encode(tmp_path, monkeypatch):
    from t2t_torch.data import encoding
    from t2t_torch.features import Features, Text
    from t2t_torch.text.encoder import ByteEncoder

    features = Features({}, {"targets": Text(ByteEncoder())})
    samples = [{"targets": text} for text in ("a", None, "b\ud800", "c")]

    def encoded(num_processes):
        make = _MakeFeatures()
        with encoding.Encoder(features, make, num_processes, skip_unfit=True) as encoder:
            (one,) = encoder.encode(chunks.Chunks(samples, ["targets"], "here"))
            assert (encoder._pool is not None) is (num_processes > 1)
        return one.numbers.tolist(), one.rows["targets"].values.tolist(), list(one.unfit)

    found, values, unfit = encoded(2)
    assert (found, values, unfit) == encoded(1)
    assert (found, values) == ([0, 3], [99, 1, 101, 1])
    assert [number for number, _ in unfit] == [1, 2]
    assert unfit[1][1].startswith("here, sample 2, 'targets' is 'b\\ud800'")


class _MakeFeatures:
    """What a worker makes its features with."""

    def __call__(self):
        from t2t_torch.features import Features, Text
        from t2t_torch.text.encoder import ByteEncoder

        return Features({}, {"targets": Text(ByteEncoder())})


def test_without_bad_records_the_policy_changes_nothing_but_the_settings(tmp_path):
    generate(counting(), tmp_path, "fail")
    generate(counting(), tmp_path, "skip", on_bad_record="skip")
    fail, skip = files(tmp_path / "fail"), files(tmp_path / "skip")
    assert "on_bad_record" not in fail.pop("counting.json").decode()
    assert '"on_bad_record": "skip"' in skip.pop("counting.json").decode()
    assert fail == skip
    with pytest.raises(DataError, match="on_bad_record: there None, requested 'skip'"):
        generate(counting(), tmp_path, "fail", on_bad_record="skip")


def test_the_list_goes_when_nothing_is_skipped_any_more(tmp_path):
    generate(counting(**BAD), tmp_path, on_bad_record="skip")
    assert skipped(tmp_path)
    generate(counting(), tmp_path, on_bad_record="skip", overwrite=True)
    assert skipped(tmp_path) is None


def test_no_more_than_a_thousand_of_each_kind_are_listed(tmp_path):
    bad = {"unreadable": tuple(range(1500)), "unfit": tuple(range(2000, 3100))}
    problem = counting(count=3200, shards={Split.TRAIN: 1}, **bad)
    manifest = generate(problem, tmp_path, on_bad_record="skip")
    assert manifest.splits["train"].skipped == 2600
    lines = skipped(tmp_path)
    assert lines is not None and len(lines) == 2001
    assert lines[-1] == "train: and 600 more"


def test_a_split_of_which_nothing_is_left_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"'counting' train: .* gave no sample; 100 were skipped"):
        generate(counting(unreadable=tuple(range(100))), tmp_path, on_bad_record="skip")


def test_an_unknown_policy_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"mend.*fail, skip"):
        generate(counting(), tmp_path, on_bad_record="mend")
