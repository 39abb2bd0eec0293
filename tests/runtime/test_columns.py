"""Tables as inputs: rows by the declared columns, of models, artifacts, the decoder, a server."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import openpyxl
import pandas
import pyarrow
import pytest

import t2t_torch as t2t
from t2t_torch.bin.commands import decoder
from t2t_torch.decode.predicted_file import PredictedFile
from t2t_torch.errors import DecodeError
from t2t_torch.features import InputSpec, Text
from t2t_torch.readers.formats import open_records
from t2t_torch.runtime.prediction import InputColumns
from t2t_torch.runtime.signature import Signature
from t2t_torch.text.encoder import ByteEncoder

READS = InputColumns("reviews", {"inputs": "text"}, {"inputs": "title + body"})
ROWS = [{"id": 7, "title": "Good", "body": "a fine film"}, {"id": 8, "title": "", "body": "poor"}]
TEXTS = ["Good a fine film", "poor"]


@pytest.mark.parametrize(
    "table",
    [
        ROWS,
        pandas.DataFrame(ROWS),
        pyarrow.Table.from_pylist(ROWS),
        {name: [row[name] for row in ROWS] for name in ROWS[0]},
        [{"title + body": text} for text in TEXTS],  # as the server's page writes it
        [{"inputs": text} for text in TEXTS],
    ],
    ids=["dicts", "pandas", "pyarrow", "lists", "joined", "fields"],
)
def test_the_declared_columns_are_the_input_whatever_holds_them(table: Any) -> None:
    assert [row["inputs"] for row in READS.samples(table)] == TEXTS


@pytest.mark.parametrize("value", [[0.5, -0.5], np.zeros(4, np.int16), Path("a.wav"), b"RIFF"])
def test_the_value_of_the_only_field_may_be_of_any_kind_as_over_http(value: Any) -> None:
    reads = InputColumns("speech", {"inputs": "audio"}, {})
    (sample,) = reads.whole_samples([value])
    assert sample["inputs"] is value
    two = InputColumns("two", {"inputs": "audio", "more": "text"}, {})
    with pytest.raises(DecodeError, match=r"where a text or a mapping with the fields|has no more"):
        two.whole_samples([value])


def test_a_cell_without_a_value_is_an_empty_text_in_its_place() -> None:
    frame = pandas.DataFrame({"title": [None, float("nan"), "x"], "body": ["", None, 5]})
    assert [row["inputs"] for row in READS.samples(frame)] == ["", "", "x 5"]


@pytest.mark.parametrize("kind", ["string", "Int64", "datetime64[ns]", "object"])
def test_a_cell_without_a_value_of_any_kind_of_column_is_an_empty_text(kind: Any) -> None:
    frame = pandas.DataFrame({"title": pandas.array([None], kind), "body": ["x"]})
    assert [row["inputs"] for row in READS.samples(frame)] == ["x"]


@pytest.mark.parametrize(
    ("names", "given"),
    [
        ({"inputs": "question", "context": "inputs"}, {"inputs": "q", "context": "c"}),
        ({"inputs": "text"}, {"inputs": "q", "context": "c", "text": "metadata"}),
        ({"inputs": "question", "context": "inputs"}, {"question": "q", "inputs": "c"}),
        ({"inputs": "inputs + more"}, {"inputs": "q", "more": "r", "context": "c"}),
    ],
)
def test_a_mapping_with_all_fields_is_by_field_and_read_once(
    names: dict[str, str], given: dict[str, str]
) -> None:
    columns = InputColumns("pair", {"inputs": "text", "context": "text"}, names)
    once = columns.sample(given)
    assert columns.sample(once) == once
    (sample,) = columns.whole_samples([given])
    assert (sample["inputs"], sample["context"]) == ("q r" if "more" in given else "q", "c")
    if "text" in given:  # a row of a table has columns
        assert columns.sample(given, is_row=True)["inputs"] == "metadata"


def test_other_columns_are_refused_with_those_expected_and_got() -> None:
    frame = pandas.DataFrame({"Title": ["a"], "text": ["b"]})
    with pytest.raises(DecodeError, match="'Title', 'text'; 'reviews' takes 'title', 'body'"):
        READS.samples(frame)
    with pytest.raises(DecodeError, match="several columns 'title'"):
        READS.samples(pandas.DataFrame([["a", "b"]], columns=["title", "title"]))
    with pytest.raises(DecodeError, match="equally long lists"):
        READS.samples({"title": "one text", "body": "no list"})


def test_each_kind_of_field_is_read_as_its_column_is_declared() -> None:
    reads = InputColumns(
        "tags",
        {"words": "words", "dense": "numbers", "turns": "value"},
        {"words": "tokens", "dense": "age + height"},
        {"turns": {"column": ["turns"], "join": " ", "split": "[]"}},
    )
    frame = pandas.DataFrame(
        {"tokens": ["to Oslo", None], "age": [3, 4], "height": ["0.5", 1], "turns": ["['a']", "[]"]}
    )
    first, second = reads.samples(frame)
    assert first == {**frame.iloc[0], "words": "to Oslo", "dense": [3.0, 0.5], "turns": ["a"]}
    assert (second["words"], second["dense"], second["turns"]) == ("", [4.0, 1.0], [])
    with pytest.raises(DecodeError, match=r"input 0, column 'age': .* are no numbers"):
        reads.samples(frame.assign(age=[None, 1]))


WORDS = {"good": ("great", "fine"), "bad": ("awful", "poor")}
TRAINING = pandas.DataFrame(
    [
        {"title": mood, "body": f"the {thing} was {mood}", "stars": n}
        for n, moods in enumerate(WORDS.values())
        for mood in moods
        for thing in ("film", "book", "meal", "bed", "tea", "walk")
    ]
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, module_registry: None) -> Path:
    folder = tmp_path_factory.mktemp("stars")
    declared = {
        "problem": "stars",
        "kind": "text2class",
        "files": {"train": TRAINING, "eval": TRAINING.iloc[::5]},
        "fields": {"inputs": {"column": ["title", "body"], "join": ": "}, "targets": "stars"},
        "vocab_type": "word",
    }
    t2t.train(
        declared, "fasttext", "fasttext_tiny", data_dir=folder / "data", output_dir=folder / "run",
        train_steps=60,
    )  # fmt: skip
    return folder / "run"


@pytest.fixture(scope="module")
def artifact(run: Path) -> Path:
    t2t.export(run, run.parent / "artifact")
    return run.parent / "artifact"


def test_a_run_and_its_artifact_answer_the_rows_of_a_data_frame(run: Path, artifact: Path) -> None:
    joined = [f"{row.title}: {row.body}" for row in TRAINING.itertuples()]
    expected = t2t.load(run)(joined)
    assert len(set(expected)) == 2
    for model in (t2t.load(run), t2t.load(artifact)):
        assert model(TRAINING) == model(TRAINING.to_dict("records")) == expected
        with pytest.raises(DecodeError, match="takes 'title', 'body'"):
            model(TRAINING[["body"]])
    assert Signature.read(artifact).column_forms["inputs"]["join"] == ": "
    with t2t.serve(artifact, port=0) as server:
        answers = server.predict(json.loads(TRAINING[:3].to_json(orient="records")))
    assert [one["targets"]["value"] for one in answers] == expected[:3]


NEW = pandas.DataFrame(
    {
        "id": [1, 2, 3],
        "body": ['a "great" film,\nsaid Ann', None, "an awful tea"],
        "stars_then": [0.5, 1e-9, 3.0],
        "title": ["great", "", "awful"],
    }
)


def decoded(run: Path, source: Path, name: str) -> Path:
    target = source.with_name(name)
    flags = [f"--decode_from_file={source}", f"--decode_to_file={target}"]
    assert decoder.main([f"--output_dir={run}", *flags]) == 0
    return target


def test_the_decoder_gives_tables_back_with_the_answers_added(run: Path, tmp_path: Path) -> None:
    cells = NEW.fillna("")
    expected = t2t.load(run)([f"{one.title}: {one.body}".strip(": ") for one in cells.itertuples()])
    NEW.to_csv(tmp_path / "new.csv", index=False)
    NEW.to_parquet(tmp_path / "new.parquet")
    NEW.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    NEW.to_excel(tmp_path / "new.xlsx", index=False)
    for source in ("new.csv", "new.parquet", "new.jsonl", "new.xlsx"):
        for ending in ("csv", "parquet", "jsonl", "xlsx"):
            found = read(decoded(run, tmp_path / source, f"to.{ending}"))
            assert list(found)[:4] == list(NEW), (source, ending)
            assert list(found["predicted_stars"].astype(str)) == expected, (source, ending)
            assert found["predicted_stars_probability"].between(0.3, 1).all()
            before = found[list(NEW)].astype(NEW.dtypes).fillna("")
            pandas.testing.assert_frame_equal(before, cells)
    plain = decoded(run, tmp_path / "new.csv", "to.txt").read_text()
    assert plain.splitlines() == expected


def read(path: Path) -> pandas.DataFrame:
    readers: dict[str, Any] = {
        ".csv": pandas.read_csv,
        ".parquet": pandas.read_parquet,
        ".jsonl": lambda file: pandas.read_json(file, lines=True),
        ".xlsx": pandas.read_excel,
    }
    return readers[path.suffix](path)


def test_rows_stay_where_they_are_and_as_they_are(run: Path, tmp_path: Path) -> None:
    source = tmp_path / "new.tsv"
    source.write_text('id\ttitle\tbody\n007\t"great\tfilm\n\n1e3\tawful\t\n')
    lines = decoded(run, source, "to.tsv").read_text().split("\n")
    assert [line.rsplit("\t", 2)[0] for line in lines] == [
        "id\ttitle\tbody", '007\t"great\tfilm', "1e3\tawful\t", "",
    ]  # fmt: skip


def test_a_blank_line_is_an_empty_cell_of_one_column_and_no_row_of_several(tmp_path: Path) -> None:
    for header, expected in (("a", ["x", "", "y"]), ("a,b", ["x", "y"])):
        more = "," if "," in header else ""
        (tmp_path / "t.csv").write_text(f"{header}\nx{more}\n\ny{more}\n")
        rows = open_records(tmp_path / "t.csv", options={"blank_rows": True})
        assert [row.values["a"] for row in rows] == expected


def test_answers_of_a_sheet_stand_beside_their_rows_wherever_it_begins(
    run: Path, tmp_path: Path
) -> None:
    book = openpyxl.Workbook()
    for place, row in {3: ("title", "body"), 4: ("great", "a film"), 6: ("awful", "tea")}.items():
        for column, value in enumerate(row, 1):
            book.active.cell(place, column, value)
    book.save(tmp_path / "new.xlsx")
    sheet = openpyxl.load_workbook(decoded(run, tmp_path / "new.xlsx", "to.xlsx")).active
    filled = {cell.row for cell in sheet["C"] if cell.value is not None}
    assert sheet["C3"].value == "predicted_stars" and filled == {3, 4, 6}


def test_a_table_without_rows_keeps_its_header(run: Path, tmp_path: Path) -> None:
    NEW[:0].to_csv(tmp_path / "new.csv", index=False)
    NEW[:0].to_parquet(tmp_path / "new.parquet")
    NEW[:0].to_excel(tmp_path / "new.xlsx", index=False)
    for source in ("new.csv", "new.parquet", "new.xlsx"):
        for ending in ("csv", "parquet", "xlsx"):
            found = read(decoded(run, tmp_path / source, f"to.{ending}"))
            assert list(found) == [*NEW, "predicted_stars"], (source, ending)
    (tmp_path / "new.csv").write_text("title\n")
    flags = [f"--decode_from_file={tmp_path / 'new.csv'}", f"--decode_to_file={tmp_path}/o.csv"]
    assert decoder.main([f"--output_dir={run}", *flags]) != 0


def test_a_column_of_later_rows_is_kept(run: Path, tmp_path: Path) -> None:
    rows = [{"title": "great", "body": "x"}, {"title": "awful", "body": "y", "note": "z"}]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read(decoded(run, tmp_path / "new.jsonl", "to.parquet"))
    assert list(found)[:3] == ["title", "body", "note"]


def test_texts_are_no_formulas_of_a_workbook(run: Path, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    texts = {"title": "=1+1", "body": "great\x0bfilm", "id": "#N/A"}
    (tmp_path / "new.jsonl").write_text(json.dumps(texts) + "\n")
    written = decoded(run, tmp_path / "new.jsonl", "to.xlsx")
    _, line = openpyxl.load_workbook(written).active.iter_rows()
    assert [cell.value for cell in line[:3]] == ["=1+1", "great\ufffdfilm", "#N/A"]
    assert [cell.data_type for cell in line[:3]] == ["s"] * 3


def test_an_answer_is_no_formula_of_a_workbook(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    problem = SimpleNamespace(column_names={})
    features = SimpleNamespace(targets={"targets": Text(ByteEncoder())})
    columns = InputColumns("a problem", {"inputs": "text"}, {"inputs": "text"}, {})
    spec = InputSpec("inputs", "text")
    model = SimpleNamespace(problem=problem, features=features, columns=columns, spec=spec)
    pandas.DataFrame({"inputs": ["a"]}).to_excel(tmp_path / "new.xlsx", index=False)
    table = PredictedFile(model, tmp_path / "new.xlsx", is_strict=True)
    (row,) = table.read()
    row = row._replace(records={"targets": {"value": '=HYPERLINK("x")'}})
    for file in (tmp_path / "to.xlsx", tmp_path / "new.xlsx"):
        table.write_table(file, [row])
        cell = openpyxl.load_workbook(file).active["B2"]
        assert (cell.value, cell.data_type) == ('=HYPERLINK("x")', "s")


def test_nested_values_of_json_lines_come_back_nested(run: Path, tmp_path: Path) -> None:
    row = {"user": {"id": 3, "of.x": {}}, "body": "fine", "title": "fine", "day.x": 1}
    (tmp_path / "new.jsonl").write_text(json.dumps(row) + "\n")
    found = json.loads(decoded(run, tmp_path / "new.jsonl", "to.jsonl").read_text())
    assert list(found)[:4] == list(row) and {**found, **row} == found


def test_a_table_without_the_columns_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, why in (
        ("great film,0\nawful,1\n", "are 'great film', '0'; 'stars' takes 'title', 'body'"),
        ("title,body,predicted_stars\na,b,c\n", "has a column 'predicted_stars'"),
        ("title,body\na\n", "1 field, where 2 were expected"),
    ):
        (tmp_path / "new.csv").write_text(text)
        flags = [f"--decode_from_file={tmp_path / 'new.csv'}", f"--decode_to_file={tmp_path}/o.csv"]
        assert decoder.main([f"--output_dir={run}", *flags]) != 0
        printed = capsys.readouterr().err
        assert why in printed and "--on_bad_record" not in printed  # no flag of t2t-decoder
        assert not (tmp_path / "o.csv").exists()


def test_texts_are_written_beside_the_rows_that_they_come_from(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"en": ["one", "two"] * 9, "de": ["eins", "zwei"] * 9})
    fields = {"inputs": "en", "targets": "de"}
    files = {"train": frame, "eval": frame[:2]}
    declared = {"problem": "pairs", "kind": "text2text", "files": files, "fields": fields}
    model = t2t.train(
        declared, "transformer", "transformer_tiny", train_steps=20,
        data_dir=tmp_path / "data", output_dir=tmp_path / "run",
    )  # fmt: skip
    new = pandas.DataFrame({"n": [1, 2, 3], "en": ["two", None, "one"]})
    expected = model(["two", "", "one"])
    assert model(new) == model(new.to_dict("list")) == expected
    assert t2t.load(tmp_path / "run", problem=None)(new) == expected
    new.to_csv(tmp_path / "new.csv", index=False)
    found = read(decoded(tmp_path / "run", tmp_path / "new.csv", "to.csv"))
    assert list(found) == ["n", "en", "predicted_de"]
    assert list(found["predicted_de"].fillna("")) == expected
    with pytest.raises(DecodeError, match="takes 'en'"):
        model(new[["n"]])
