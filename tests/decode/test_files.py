"""Decoding files and data sets."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from pathlib import Path

import pytest

from t2t_torch.decode.files import decode_dataset, decode_file, read_inputs, read_texts
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import load
from t2t_torch.decode.outputs import one_line
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import DataError, DecodeError, HParamsError, UsageError
from t2t_torch.mode import Split
from t2t_torch.runtime.prediction import Hypothesis, Prediction

SHORT = DecodeHParams(extra_length=4, beam_size=2)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("\na\n\n\nb", ["", "a", "", "", "b"]),
        ("\n", [""]),
        ("a\r\nb\r\n\r\n", ["a", "b", ""]),
        ("a\u2028b\x85c\x0bd\x0ce\n f \n", ["a\u2028b\x85c\x0bd\x0ce", "f"]),
    ],
)
def test_only_a_newline_ends_a_line_and_a_blank_line_is_an_input(
    tmp_path: Path, content: str, expected: list[str]
) -> None:
    plain, packed = tmp_path / "in.txt", tmp_path / "in.txt.gz"
    plain.write_bytes(content.encode())
    packed.write_bytes(gzip.compress(content.encode()))
    assert read_inputs(plain) == read_inputs(packed) == expected


def test_another_delimiter_separates_inputs_of_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("a\nb;;c;; ;;d;;\n")
    assert read_inputs(file, ";;") == ["a\nb", "c", "", "d"]


def test_there_is_one_output_line_for_each_input_line(run_dir: Path, tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = [
        "",
        " ",
        "\u2028",
        "x\ty",
        "emoji 🌍",
        *("".join(draw.choices("ab \r", k=n)) for n in range(9)),
    ]
    source, target = tmp_path / "in.txt", tmp_path / "out" / "out.txt"
    source.write_bytes("\n".join(texts).encode())
    predictor = load(run_dir)  # untrained: it makes every byte, line breaks too
    decode_file(predictor, source, target, SHORT)
    content = target.read_bytes().decode()
    assert content.endswith("\n")
    assert "\r" not in content
    lines = content[:-1].split("\n")
    alone = [one_line(predictor.predict([text.strip()], SHORT)[0], SHORT) for text in texts]
    assert lines == alone


def test_an_empty_file_gives_an_empty_file(predictor: Predictor, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.touch()
    decode_file(predictor, source, target, SHORT)
    assert target.read_bytes() == b""


def test_a_failed_decode_leaves_the_old_output(predictor: Predictor, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    target.write_text("old\n")
    source.write_text("1 2\nhouse\n")
    with pytest.raises(DataError, match="house"):
        decode_file(predictor, source, target, SHORT)
    assert target.read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


PREDICTION = Prediction.of_texts(
    "targets", (Hypothesis("a\nb\tc\r", (5, 6), -0.256), Hypothesis("d", (7,), -1.0))
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", "a b\tc "),
        ("identity_output=true", "5 6"),
        ("return_beams=true", "a b c \td"),
        ("return_beams=true,write_beam_scores=true", "a b c \t-0.26\td\t-1.00"),
        ("delimiter=b", "a  \tc "),
    ],
)
def test_an_output_is_written_on_one_line(settings: str, expected: str) -> None:
    prediction = PREDICTION
    hparams = DecodeHParams().parse(settings, "test")
    if not hparams.return_beams:
        prediction = Prediction.of_texts("targets", PREDICTION.hypotheses[:1])
    assert one_line(prediction, hparams) == expected


def test_a_data_set_is_decoded_to_three_parallel_files(
    predictor: Predictor, reverse_data: Path, tmp_path: Path
) -> None:
    hparams = SHORT.replace(num_samples=5)
    base = tmp_path / "decodes" / "dev"
    decoded, targets = decode_dataset(predictor, reverse_data, Split.EVAL, base, hparams)
    names = {path.suffix: path for path in base.parent.iterdir()}
    assert sorted(names) == [".decodes", ".inputs", ".targets"]
    assert names[".decodes"].name == "dev.tiny_algo.beam2.alpha0.6.decodes"
    lines = {suffix: path.read_text().splitlines() for suffix, path in names.items()}
    assert {len(found) for found in lines.values()} == {5}
    assert lines[".targets"] == lines[".inputs"] == targets  # tiny_algo is the identity
    assert lines[".decodes"] == [prediction.text for prediction in decoded.predictions]
    assert lines[".decodes"] == [
        prediction.text for prediction in predictor.predict(lines[".inputs"], SHORT)
    ]


def test_a_data_set_without_inputs_is_refused(
    language_model: Predictor, reverse_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(DecodeError, match="--decode_from_file"):
        decode_dataset(language_model, reverse_data, Split.EVAL, tmp_path / "dev", SHORT)


@pytest.mark.parametrize(("settings", "place"), [("", ":2:"), ("delimiter=;", ": input 2:")])
def test_an_input_outside_the_vocabulary_is_named_by_file_and_line(
    predictor: Predictor, tmp_path: Path, settings: str, place: str
) -> None:
    hparams = SHORT.parse(settings, "test")
    source = tmp_path / "in.txt"
    source.write_text(hparams.separator.join(["1 2", "house", "tree"]))
    with pytest.raises(DataError, match=rf"in\.txt{place}.*house"):
        decode_file(predictor, source, tmp_path / "out.txt", hparams)


def test_inputs_are_not_written_over(predictor: Predictor, tmp_path: Path) -> None:
    source, link = tmp_path / "in.txt", tmp_path / "link"
    source.write_text("1 2\n")
    link.symlink_to(source)
    with pytest.raises(UsageError, match="would overwrite"):
        decode_file(predictor, source, link, SHORT)
    assert source.read_text() == "1 2\n"


@pytest.mark.parametrize(("limit", "told"), [(5, ""), (-1, "; for the first N: --decode_hparams=")])
def test_how_many_there_are_is_said_before_they_are_decoded(
    predictor: Predictor,
    reverse_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    limit: int,
    told: str,
) -> None:
    asked: list[str] = []

    def decoded(predictor: Predictor, inputs: list[list[int]], *_: object) -> None:
        asked.append(f"decoding {len(inputs):,} examples of dev{told}")
        raise KeyboardInterrupt

    monkeypatch.setattr("t2t_torch.decode.files.decode", decoded)
    hparams = SHORT.replace(num_samples=limit)
    with pytest.raises(KeyboardInterrupt):
        decode_dataset(predictor, reverse_data, Split.EVAL, tmp_path / "dev", hparams)
    assert capsys.readouterr().err.startswith(asked[0])


def test_max_input_size_cuts_the_inputs_of_a_data_set(
    predictor: Predictor, reverse_data: Path, tmp_path: Path
) -> None:
    whole, cut = SHORT.replace(num_samples=5), SHORT.replace(num_samples=5, max_input_size=3)
    base = tmp_path / "decodes" / "dev"
    decoded, inputs = decode_dataset(predictor, reverse_data, Split.EVAL, base, cut)
    longer = decode_dataset(predictor, reverse_data, Split.EVAL, base, whole)[1]
    assert inputs == longer  # the files show the data as it is
    assert [found.text for found in decoded.predictions] == [
        found.text for found in predictor.predict(inputs, cut)
    ]
    assert max(len(text.split()) for text in inputs) > 2
    assert all(len(p.hypotheses[0].ids) <= 3 + 4 for p in decoded.predictions)


def test_no_examples_of_a_data_set_are_decoded_to_empty_files(
    predictor: Predictor, reverse_data: Path, tmp_path: Path
) -> None:
    none = SHORT.replace(num_samples=0)
    decoded, targets = decode_dataset(predictor, reverse_data, Split.EVAL, tmp_path / "dev", none)
    assert decoded.predictions == targets == []


def test_outputs_may_be_written_as_json_or_as_a_table(run_dir: Path, tmp_path: Path) -> None:
    predictor = load(run_dir, device="cpu")
    source, target = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("May 1\nMay 2\n")
    two = SHORT.replace(return_beams=True)
    expected = predictor.predict(["May 1", "May 2"], two)
    decode_file(predictor, source, target, two.replace(output_format="jsonl", identity_output=True))
    first, second = map(json.loads, target.read_text().splitlines())
    assert first["input"] == {"inputs": "May 1"}
    hypotheses = second["output"]["targets"]["hypotheses"]
    assert [one["value"] for one in hypotheses] == [h.text for h in expected[1].hypotheses]
    assert tuple(hypotheses[0]["ids"]) == expected[1].hypotheses[0].ids
    decode_file(predictor, source, target, two.replace(output_format="tsv"))
    header, row, _ = csv.reader(target.read_text().splitlines(), delimiter="\t")
    assert header == ["inputs", "targets", "targets_score", "targets_2", "targets_score_2"]
    assert row[0] == "May 1" and float(row[4]) == pytest.approx(
        expected[0].hypotheses[1].score, rel=1e-4
    )


def test_a_file_called_jsonl_holds_json(run_dir: Path, tmp_path: Path) -> None:
    predictor = load(run_dir, device="cpu")
    source = tmp_path / "in.jsonl"
    source.write_text('{"inputs": " May 1", "id": 3}\n"May\\n2"\n')
    assert read_texts(source, predictor, SHORT) == [{"inputs": "May 1", "id": 3}, "May\n2"]
    for wrong, told in (('{"text": "x"}', '{"inputs": "..."}'), ("May", "line 1 is no JSON")):
        source.write_text(wrong + "\n")
        with pytest.raises(DataError, match=re.escape(told)):
            read_texts(source, predictor, SHORT)


@pytest.mark.parametrize("form", ["jsonl", "tsv"])
def test_a_delimiter_is_refused_where_json_is_read_and_another_form_written(
    form: str, predictor: Predictor, tmp_path: Path
) -> None:
    hparams = SHORT.replace(delimiter=";", output_format=form)
    source, target = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_text('"5 6"\n"7"\n')
    with pytest.raises(HParamsError, match=r"in\.jsonl has JSON.* nothing reads delimiter"):
        decode_file(predictor, source, target, hparams)
    decode_file(predictor, source, target, hparams.replace(output_format="text"))
    assert target.read_text().count(";") == 2
    lines = tmp_path / "in.txt"
    lines.write_text("5 6;7")
    assert len(decode_file(predictor, lines, target, hparams).predictions) == 2


def test_json_keeps_the_other_keys_of_an_input_and_a_table_its_text(
    predictor: Predictor, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out"
    given = [{"inputs": "5 6", "id": 3}, {"inputs": "7", "forbidden": ["5"], "id": 4}]
    source.write_text("".join(json.dumps(one) + "\n" for one in given))
    decode_file(predictor, source, target, SHORT.replace(output_format="jsonl"))
    assert [json.loads(line)["input"] for line in target.read_text().splitlines()] == given
    decode_file(predictor, source, target, SHORT.replace(output_format="tsv"))
    _, *rows = csv.reader(target.read_text().splitlines(), delimiter="\t")
    assert [row[0] for row in rows] == ["5 6", "7"]
