"""`t2t-predict`: files written back with predictions, and rows to label next."""

from __future__ import annotations

import csv
import json

import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.decode.predicted_file import _tagged
from t2t_torch.errors import DataError, DecodeError, UsageError

ROWS = [{"text": f"{word} {n} x", "label": word[0]} for word in ("good", "bad") for n in range(40)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two classes that one word tells apart."""
    folder, roots = tmp_path_factory.mktemp("predict"), registry._STATE.roots[:]
    content = {
        "problem": "good_or_bad",
        "kind": "text2class",
        "files": {"train": ROWS, "eval": 0.2},
        "fields": {"inputs": "text", "targets": "label"},
        "vocab_type": "word",
    }
    t2t.train(
        content,
        "fasttext",
        "fasttext_tiny",
        data_dir=folder / "data",
        output_dir=folder / "run",
        train_steps=60,
        hparams={"learning_rate_constant": 0.05, "batch_size": 64},
    )
    yield t2t.Run(folder / "run")
    registry._STATE.roots[:] = roots


def _rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_a_table_keeps_its_columns_and_its_bad_rows_in_place(run, tmp_path, capsys):
    file = tmp_path / "new.csv"
    file.write_text('id,text,"a ""b"""\n7,good 1,"x\ny"\n8,too,many,cells\n9,,z\n10,bad 2,\n')
    written = run.predict_file(file)
    assert written == tmp_path / "new_predicted.csv"
    header, *rows = _rows(written)
    assert header == ["id", "text", 'a "b"', "predicted_label", "predicted_label_probability"]
    assert [row[:4] for row in rows] == [
        ["7", "good 1", "x\ny", "g"],
        ["8,too,many,cells", "", "", ""],
        ["9", "", "z", ""],
        ["10", "bad 2", "", "b"],
    ]
    assert 0.5 < float(rows[0][4]) <= 1
    said = capsys.readouterr().err
    assert "2 of 4 rows have no prediction" in said and "line 4" in said and "line 5" in said


def test_a_table_without_good_rows_loses_nothing(run, tmp_path):
    file = tmp_path / "new.csv"
    file.write_text("id,text\n")
    header = ["id", "text", "predicted_label"]
    assert _rows(run.predict_file(file)) == [header]
    file.write_text("id,text\n" + "too,many,cells\n" * 1025 + "1,good 1\n")
    rows = _rows(run.predict_file(file, overwrite=True))
    assert rows[0] == header and rows[1][0] == "too,many,cells" and rows[-1] == ["1", "good 1", "g"]
    target = tmp_path / "never.csv"
    file.write_text("id,text\ntoo,many,cells\n")
    with pytest.raises(DataError, match="no row can be read"):
        run.predict_file(file, output=str(target))
    assert not target.exists()
    file.write_bytes(b"id,text\n1,good 1\n2,bad \xc3\xb1\n3,bad \xf1\n")
    assert b'"3,bad \xf1"' in run.predict_file(file, overwrite=True).read_bytes()


def test_a_file_is_replaced_only_if_it_is_said_and_none_is_left_half(run, tmp_path, monkeypatch):
    file, target = tmp_path / "new.csv", tmp_path / "new_predicted.csv"
    file.write_text("text\ngood 1\n")
    target.write_text("mine")
    with pytest.raises(UsageError, match="overwrite"):
        run.predict_file(file)
    assert target.read_text() == "mine"
    run.predict_file(file, overwrite=True)
    assert _rows(target)[1][1] == "g"
    other = tmp_path / "other.csv"
    other.write_text("words\ngood 1\n")
    with pytest.raises(DecodeError, match="'text'"):
        run.predict_file(other)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "new.csv", "new_predicted.csv", "other.csv"
    ]  # fmt: skip


def test_other_formats_and_an_artifact(run, tmp_path):
    file = tmp_path / "new.jsonl"
    file.write_text('{"a": {"b": 1}, "text": "bad 3"}\n{"text": ""}\n')
    first, second = map(json.loads, run.predict_file(file).read_text().splitlines())
    assert list(first) == ["a", "text", "predicted_label", "predicted_label_probability"]
    assert first["a"] == {"b": 1} and first["predicted_label"] == "b"
    assert second == {
        "text": "", "predicted_label": None, "predicted_label_probability": None
    }  # fmt: skip
    artifact = run.export(tmp_path / "artifact").path
    again = t2t.Run(artifact).predict_file(file, output=str(tmp_path / "again.tsv"))
    assert again.read_text().splitlines()[1].split("\t")[:3] == ['{"b": 1}', "bad 3", "b"]


def test_tags_are_written_into_a_file_of_words(tmp_path):
    words = tmp_path / "train.conll"
    words.write_text("\n\n".join("Ann B-PER\nsees O\nBob B-PER" for _ in range(20)) + "\n")
    content = {
        "problem": "persons",
        "kind": "text2tags",
        "files": {"train": str(words), "eval": {"rows": 5}},
        "fields": {"inputs": "0", "targets": "1"},
    }
    content["files"]["eval"] = str(words.with_name("dev.conll"))
    words.with_name("dev.conll").write_text("Ann B-PER\nsees O\n")
    t2t.train(
        content,
        "bilstm_tagger",
        "bilstm_tagger_tiny",
        data_dir=tmp_path / "data",
        output_dir=tmp_path / "run",
        train_steps=2,
    )
    new = tmp_path / "new.conll"
    new.write_text("# O\nAnn O\nsees O\n\nbad\nBob O O\n\nBob O\n")
    lines = t2t.Run(tmp_path / "run").predict_file(new).read_text().splitlines()
    assert [len(line.split()) for line in lines] == [3, 3, 3, 0, 1, 3, 0, 3]
    new.write_bytes("Bob O\r\n\r\nAnn O\r\nmañana O\r\n\r\nbad\r\nsees O\r\n".encode("cp1252"))
    written = t2t.Run(tmp_path / "run").predict_file(new, overwrite=True).read_bytes()
    assert b"\r\nma\xf1ana O" in written and written.endswith(b"\r\n\r\nbad\r\nsees O\r\n")
    table = t2t.Run(tmp_path / "run").predict_file(new, output=str(tmp_path / "new.csv"))
    assert b'\n"bad\nsees O",' in table.read_bytes()
    block = ["# text = ab c", "1-2\tab", "1\ta", "2\tb", "3\tc"]
    assert list(_tagged(block, "XYZ")) == [
        block[0], "1-2\tab\t_", "1\ta\tX", "2\tb\tY", "3\tc\tZ"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "delimiter"), [("cp1252", ","), ("cp1252", ";"), ("utf-16", ","), ("utf-8", "\t")]
)
def test_a_file_is_read_with_its_own_encoding_and_delimiter(run, tmp_path, encoding, delimiter):
    file = tmp_path / "new.csv"
    rows = [["label", "text"], *(["g", f"good mañana {n}"] for n in range(4)), ["b", "bad señor"]]
    file.write_text("".join(delimiter.join(row) + "\n" for row in rows), encoding)
    for model in (run, t2t.Run(run.export(tmp_path / "artifact").path)):
        header, *found = csv.reader(
            model.predict_file(file, overwrite=True).read_text().splitlines(), delimiter=delimiter
        )
        assert header[:3] == [*rows[0], "predicted_label"]
        assert [row[:3] for row in found] == [[*row, row[0]] for row in rows[1:]]
    assert run.evaluate(data=str(file))["accuracy"] == 1.0


def test_rows_to_label_are_uncertain_and_differ(run, tmp_path):
    pool = tmp_path / "pool.csv"
    rows = ["good 1 x"] * 30 + ["good bad a"] * 5 + ["bad good b", "bad 2 x"]
    pool.write_text("text\n" + "\n".join(rows) + "\n")
    chosen = run.predict_file(unlabelled=str(pool), rows=3)
    texts = [row[0] for row in _rows(chosen)[1:]]
    assert chosen.name == "pool_to_label.csv"
    assert len(set(texts)) == 3 and {"good bad a", "bad good b"} & set(texts[:2])


def test_a_labelled_file_is_evaluated_without_datagen(run, tmp_path, capsys):
    file = tmp_path / "labelled.csv"
    file.write_text("label,text\ng,good 1 x\nb,bad 2 x\nb,good 3 x\nnew,bad 4 x\nb\n")
    metrics = run.evaluate(data=str(file), output=str(tmp_path / "eval"))
    assert metrics["accuracy"] == 0.5  # an unknown label is wrong
    said = capsys.readouterr().out
    assert "4 rows, 1 skipped" in said and "never occurs in training: new" in said
    rows = [line.split("\t") for line in (tmp_path / "eval/rows.tsv").read_text().splitlines()]
    words = [row[1].split()[0] for row in rows[1:]]
    assert words == ["good", "bad", "good", "bad"]  # in the order of the file
    results = json.loads((tmp_path / "eval/results.json").read_text())
    assert results["data"] == str(file) and results["confusion"]["targets"]
    with pytest.raises(UsageError, match="data_dir"):
        run.evaluate(data=str(file), data_dir=str(tmp_path))
    assert run.evaluate()["accuracy"] == 1.0
