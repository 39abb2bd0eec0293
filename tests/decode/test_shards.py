"""Inputs that are decoded in parts are joined to what is decoded at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.decode.files import decode_dataset, decode_file
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.journal import Shard, journal_of, journal_path, part_of
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.mode import Split

SMALL = "extra_length=4,beam_size=2,batch_size=1"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in.txt"
    file.write_text("1 2 3 4\n5\n\n6 7\n8 9 10\n3 3\n2\n")
    return file


@pytest.mark.parametrize(("total", "count"), [(7, 3), (2, 5), (0, 2), (6, 3), (1, 1)])
def test_parts_are_of_like_sizes_and_one_after_another(total: int, count: int) -> None:
    rows = list(range(total))
    parts = [rows[Shard(number, count).rows(total)] for number in range(count)]
    assert [row for part in parts for row in part] == rows
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        ("shards=4", "out.txt", "out.txt002"),
        ("shards=4", "dev-1000", "dev-1000.002"),
        ("shards=4,shard_google_format=true", "out.txt", "out.txt-00002-of-00004"),
    ],
)
def test_a_part_is_named_as_tensor2tensor_names_it(settings: str, name: str, expected: str) -> None:
    hparams = parse_decode_hparams(settings.replace("shards=4", "shards=4,shard_id=2"))
    assert Shard(2, 4).name(Path("a") / name, hparams) == Path("a") / expected


@pytest.mark.parametrize("form", ["text", "tsv", "jsonl"])
def test_the_parts_that_are_not_there_are_decoded_and_all_are_joined(
    predictor: Predictor, source: Path, tmp_path: Path, monkeypatch, form: str
) -> None:
    settings = f"{SMALL},output_format={form},return_beams=true"
    whole, target = tmp_path / "whole", tmp_path / "out"
    decode_file(predictor, source, whole, parse_decode_hparams(settings))
    begun: list[int] = []
    monkeypatch.setattr(predictor, "before_batch", lambda: begun.append(1))
    for number in (2, 0):
        hparams = parse_decode_hparams(f"{settings},shards=3,shard_id={number}")
        decoded = decode_file(predictor, source, target, hparams)
        assert len(decoded.predictions) == (2, 2, 3)[number]
    assert sorted(path.name for path in tmp_path.glob("out*")) == [
        *("out000", "out000.part", "out002", "out002.part")
    ]
    begun.clear()
    decode_file(predictor, source, target, parse_decode_hparams(f"{settings},shards=3"))
    assert len(begun) == 2  # the part that was not there
    assert target.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out", "out000", "out002"]
    if form != "tsv":  # which has a header in each part
        first = (tmp_path / "out000").read_bytes()
        assert whole.read_bytes().startswith(first) and first.count(b"\n") == 2


def test_a_part_of_other_settings_is_not_joined_nor_thrown_away(
    predictor: Predictor, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    one = parse_decode_hparams(f"{SMALL},shards=2,shard_id=1")
    decode_file(predictor, source, target, one)
    before = journal_path(tmp_path / "out001").read_bytes()
    for change, told in (("alpha=1.0", r"alpha=0\.6 \(now 1\.0\)"), ("shards=3", "other inputs")):
        both = parse_decode_hparams(f"{SMALL},shards=2").parse(change, "test")
        with pytest.raises(UsageError, match=rf"out001\.part is of .*{told}"):
            decode_file(predictor, source, target, both)
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out001", "out001.part"]
    assert journal_path(tmp_path / "out001").read_bytes() == before


def test_a_part_that_another_process_decodes_is_waited_for_by_the_user(
    predictor: Predictor, source: Path, tmp_path: Path
) -> None:
    with journal_of(tmp_path / "out001", {}), pytest.raises(UsageError, match="another process"):
        decode_file(predictor, source, tmp_path / "out", parse_decode_hparams(f"{SMALL},shards=2"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_numbers_of_processes_begin_at_an_offset(
    predictor: Predictor, source: Path, tmp_path: Path
) -> None:
    hparams = parse_decode_hparams(f"{SMALL},shards=7,shard_id=1,shards_start_offset=4")
    decoded = decode_file(predictor, source, None, hparams)
    assert decoded.predictions == predictor.predict(["3 3"], hparams)
    assert (tmp_path / "in.txt005.tiny_algo.beam2.alpha0.6.decodes").exists()


def test_a_data_set_is_decoded_in_parts(
    predictor: Predictor, reverse_data: Path, tmp_path: Path
) -> None:
    settings, base = f"{SMALL},num_samples=5", tmp_path / "decodes" / "dev"
    for number in range(2):
        hparams = parse_decode_hparams(f"{settings},shards=2,shard_id={number}")
        part, targets = decode_dataset(predictor, reverse_data, Split.EVAL, base, hparams)
        assert len(part.predictions) == len(targets) == 2 + number
    hparams = parse_decode_hparams(f"{settings},shards=2")
    decoded, targets = decode_dataset(predictor, reverse_data, Split.EVAL, base, hparams)
    assert decoded.before == len(targets) == 5
    for kind in ("decodes", "targets", "inputs"):
        ends = ("000", "001", "")
        names = [f"dev{end}.tiny_algo.beam2.alpha0.6.{kind}" for end in ends]
        first, second, whole = ((base.parent / name).read_text() for name in names)
        assert whole == first + second and whole.count("\n") == 5


def test_a_file_that_was_cut_before_is_found_by_its_number(tmp_path: Path) -> None:
    hparams = parse_decode_hparams("shards=4,shard_id=2")
    whole, part = tmp_path / "in.txt", tmp_path / "in.txt002"
    assert part_of(whole, hparams) == whole
    part.touch()
    assert part_of(whole, hparams) == part
    whole.touch()
    assert part_of(whole, hparams) == whole


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("shard_id=1", "does not read shard_id. Expected shards"),
        ("shard_google_format=true", "does not read shard_google_format. Expected shards"),
        ("shards=2,shards_start_offset=1", "not read shards_start_offset. Expected shard_id"),
        ("shards=2,shard_id=2", "there is no shard 2 of 2"),
        ("shards=3,shard_id=2,shards_start_offset=1", "there is no shard 3 of 3"),
        ("shards=0", "shards"),
    ],
)
def test_parts_that_cannot_be_are_refused(settings: str, told: str) -> None:
    with pytest.raises(HParamsError, match=told):
        parse_decode_hparams(settings)
