"""A decoding that was ended goes on where it was, and its file is that of one that was not."""

from __future__ import annotations

import dataclasses
import gzip
import os
import threading
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.decode.files import decode_dataset, decode_file
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.journal import journal_path
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import DataError, UsageError
from t2t_torch.mode import Split

SMALL = "extra_length=4,beam_size=2,batch_size=2"
FORMS = [
    SMALL,
    f"{SMALL},return_beams=true,write_beam_scores=true",
    f"{SMALL},output_format=tsv,return_beams=true,identity_output=true",
    f"{SMALL},output_format=jsonl,return_beams=true,write_alignments=true",
    "extra_length=4,batch_size=2,sampling_method=random,num_decodes=2,output_format=jsonl",
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in.txt"
    file.write_text("1 2 3 4\n5\n\n6 7\n8 9 10\n3 3\n2\n")
    return file


class EndedError(Exception):
    """What a signal is to a process, as far as the process sees it."""


def end_in_batch(predictor: Predictor, number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ends the next decoding at the beginning of a batch; returns a list of the batches begun."""
    begun: list[int] = []

    def before() -> None:
        begun.append(1)
        if len(begun) == number:
            raise EndedError

    monkeypatch.setattr(predictor, "before_batch", before)
    return begun


@pytest.mark.sample(2)
@pytest.mark.parametrize("settings", FORMS)
def test_what_was_ended_goes_on_to_the_same_file(
    predictor: Predictor, source: Path, tmp_path: Path, monkeypatch, capsys, settings: str
) -> None:
    hparams = parse_decode_hparams(settings)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    decode_file(predictor, source, whole, hparams)
    for number in (2, 2):  # each time another batch is found
        end_in_batch(predictor, number, monkeypatch)
        with pytest.raises(EndedError):
            decode_file(predictor, source, resumed, hparams)
        assert not resumed.exists()
    begun = end_in_batch(predictor, 0, monkeypatch)
    capsys.readouterr()
    decoded = decode_file(predictor, source, resumed, hparams)
    assert len(begun) == 2  # of four
    assert decoded.before == 4 and "4 more were there before; 3 inputs in" in str(decoded)
    assert f"4 of 7 inputs were there in {resumed}.part\n" in capsys.readouterr().err
    assert resumed.read_bytes() == whole.read_bytes()
    assert not journal_path(resumed).exists()


@pytest.mark.parametrize("change", ["beam_size=3", "alpha=1.0", "batch_size=3", "inputs"])
def test_nothing_of_another_decoding_is_taken(
    predictor: Predictor, source: Path, tmp_path: Path, monkeypatch, change: str
) -> None:
    hparams = parse_decode_hparams(SMALL)
    target, expected = tmp_path / "out", tmp_path / "expected"
    end_in_batch(predictor, 3, monkeypatch)
    with pytest.raises(EndedError):
        decode_file(predictor, source, target, hparams)
    if change == "inputs":
        source.write_text(source.read_text().replace("8 9", "9 8"))
    else:
        hparams = hparams.parse(change, "test")
    begun = end_in_batch(predictor, 0, monkeypatch)
    assert decode_file(predictor, source, target, hparams).before == 0
    assert begun
    decode_file(predictor, source, expected, hparams)
    assert target.read_bytes() == expected.read_bytes()


def test_another_form_of_the_same_is_written_of_what_was_there(
    predictor: Predictor, source: Path, tmp_path: Path, monkeypatch
) -> None:
    target = tmp_path / "out"
    end_in_batch(predictor, 4, monkeypatch)
    with pytest.raises(EndedError):
        decode_file(predictor, source, target, parse_decode_hparams(SMALL))
    end_in_batch(predictor, 0, monkeypatch)
    hparams = parse_decode_hparams(f"{SMALL},output_format=jsonl")
    assert decode_file(predictor, source, target, hparams).before == 6
    assert target.read_text().count('"score"') == 7


def test_other_weights_begin_anew(
    predictor: Predictor, source: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    target, hparams = tmp_path / "out", parse_decode_hparams(SMALL)
    end_in_batch(predictor, 3, monkeypatch)
    with pytest.raises(EndedError):
        decode_file(predictor, source, target, hparams)
    end_in_batch(predictor, 0, monkeypatch)
    weight = next(predictor.model.parameters())
    before = weight.data.clone()
    try:
        weight.data.mul_(0.5)
        assert decode_file(predictor, source, target, hparams).before == 0
    finally:
        weight.data.copy_(before)
    assert "out.part is of other weights: all inputs are decoded again" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["problem", "hparams"])
def test_another_model_of_the_same_weights_restarts(
    predictor: Predictor, source: Path, tmp_path: Path, monkeypatch, capsys, change: str
) -> None:
    target, hparams = tmp_path / "out", parse_decode_hparams(SMALL)
    end_in_batch(predictor, 3, monkeypatch)
    with pytest.raises(EndedError):
        decode_file(predictor, source, target, hparams)
    end_in_batch(predictor, 0, monkeypatch)
    if change == "problem":
        monkeypatch.setattr(predictor, "problem", registry.problem("dates_to_iso"))
    else:
        features = dataclasses.replace(predictor.model.features, target_space_id=9)
        monkeypatch.setattr(predictor.model, "features", features)
    assert decode_file(predictor, source, target, hparams).before == 0
    told = {"problem": "problem=tiny_algo (now dates_to_iso)", "hparams": "other hparams"}
    assert f"out.part is of {told[change]}: all inputs are decoded again" in capsys.readouterr().err


def test_other_wishes_of_the_same_inputs_begin_anew(
    predictor: Predictor, tmp_path: Path, monkeypatch
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out"
    hparams = parse_decode_hparams(SMALL)
    lines = ['{"inputs": "1 2", "forbidden": ["3"]}\n', '{"inputs": "4"}\n', '{"inputs": "5"}\n']
    source.write_text("".join(lines))
    end_in_batch(predictor, 2, monkeypatch)
    with pytest.raises(EndedError):
        decode_file(predictor, source, target, hparams)
    end_in_batch(predictor, 0, monkeypatch)
    source.write_text("".join(lines).replace('["3"]', '["6"]'))
    assert decode_file(predictor, source, target, hparams).before == 0


def test_two_at_once_to_one_file_are_refused(
    predictor: Predictor, source: Path, tmp_path: Path, monkeypatch
) -> None:
    target, hparams = tmp_path / "out", parse_decode_hparams(SMALL)
    refused: list[str] = []

    def second() -> None:
        monkeypatch.setattr(predictor, "before_batch", lambda: None)
        with pytest.raises(UsageError) as error:
            decode_file(predictor, source, target, hparams)
        refused.append(str(error.value))

    monkeypatch.setattr(predictor, "before_batch", second)
    decode_file(predictor, source, target, hparams)
    assert "another process (process " in refused[0] and f"decodes to {target}" in refused[0]
    assert len(target.read_text().splitlines()) == 7


def test_a_pipe_is_written_and_nothing_is_kept_beside_it(
    predictor: Predictor, source: Path, tmp_path: Path
) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    hparams = parse_decode_hparams(SMALL)
    decode_file(predictor, source, pipe, hparams)
    reader.join()
    decode_file(predictor, source, file, hparams)
    assert read == [file.read_bytes()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "in.txt", "pipe"]
    with pytest.raises(UsageError, match="pipe is no regular file, and shards=2"):
        decode_file(predictor, source, pipe, hparams.replace(shards=2, shard_id=0))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"1 2\r\n3\r\n", 2),
        (gzip.compress(b"1 2\n3\n"), 2),
        (b"", 0),
        (b"1 2\n3", 2),
        (b"4", 1),
        (b"\xef\xbb\xbf4\n", 1),
    ],
    ids=["CRLF", "gzip", "empty", "no last newline", "one line", "byte order mark"],
)
def test_whatever_the_file_there_is_a_line_for_each(
    predictor: Predictor, tmp_path: Path, content: bytes, lines: int
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "new" / "folder" / "out.txt"
    source.write_bytes(content)
    decode_file(predictor, source, target, parse_decode_hparams(SMALL))
    assert target.read_bytes().count(b"\n") == lines
    assert [path.name for path in target.parent.iterdir()] == ["out.txt"]


def test_bytes_that_are_no_text_are_told_by_line_and_nothing_is_left(
    predictor: Predictor, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"1 2\n3 \xff\n")
    with pytest.raises(DataError, match=r"in\.txt, line 2: byte 3 of the line .* is 0xff"):
        decode_file(predictor, source, target, parse_decode_hparams(SMALL))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_data_set_goes_on_where_it_was(
    predictor: Predictor, reverse_data: Path, tmp_path: Path, monkeypatch
) -> None:
    hparams = parse_decode_hparams(f"{SMALL},num_samples=5")
    end_in_batch(predictor, 3, monkeypatch)
    with pytest.raises(EndedError):
        decode_dataset(predictor, reverse_data, Split.EVAL, tmp_path / "dev", hparams)
    begun = end_in_batch(predictor, 0, monkeypatch)
    decoded, _ = decode_dataset(predictor, reverse_data, Split.EVAL, tmp_path / "dev", hparams)
    assert decoded.before == 4 and len(begun) == 1
    whole = decode_dataset(predictor, reverse_data, Split.EVAL, tmp_path / "all", hparams)[0]
    assert decoded.predictions == whole.predictions
