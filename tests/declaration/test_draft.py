"""`t2t-datagen --declare`: what it guesses, says and prints."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch import registry
from t2t_torch.bin.commands import datagen
from t2t_torch.data.manifest import Manifest
from t2t_torch.declaration.columns import FileColumns, Inspected
from t2t_torch.declaration.draft import draft, text_of
from t2t_torch.declaration.proposal import propose
from t2t_torch.errors import T2TError
from t2t_torch.features.audio import wav_of
from t2t_torch.readers.text_file import BadRecords

pytestmark = pytest.mark.usefixtures("own_registry")

WORDS = (
    "please help my order invoice was charged twice cannot log in password error shipping late "
    "item broken want refund buy more licences price quote"
).split()
QUEUES = ("billing", "technical", "sales")


def texts(seed: int, count: int = 400, length: int = 8) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=length)) for _ in range(count)]


def table(*columns: list[Any], head: str = "", delimiter: str = ",") -> str:
    rows = [delimiter.join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([head, *rows] if head else rows) + "\n"


def numbers(count: int = 400) -> list[float]:
    return [n / 7 for n in range(count)]


def cycle(values: Any, count: int = 400) -> list[Any]:
    return [values[n % len(values)] for n in range(count)]


def rows(**columns: list[Any]) -> str:
    together = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "".join(json.dumps(row) + "\n" for row in together)


def declare(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """Runs the command: the declaration that it prints, and what it says beside."""
    capsys.readouterr()
    code = datagen.main(["--declare", str(path)])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return json.loads(printed.out), printed.err


def check_it_generates(content: dict[str, Any], folder: Path, tmp_path: Path) -> Manifest:
    """Saves a declaration and generates its data, as the command says."""
    usr_dir = tmp_path / "saved"
    usr_dir.mkdir()
    (usr_dir / "it.json").write_text(json.dumps(content), "utf-8")
    arguments = [f"--t2t_usr_dir={usr_dir}", f"--tmp_dir={folder}", "--num_concurrent_processes=1"]
    arguments += [f"--problem={content['problem']}", f"--data_dir={tmp_path / 'data'}"]
    assert datagen.main([*arguments, "--max_cases=300"]) == 0
    return Manifest.load(tmp_path / "data", content["problem"])


LISTS = [text.split() for text in texts(3)]
TAGS = [cycle(["O", "B-x", "I-x"], len(words)) for words in LISTS]
TREES = [f"[IN:GO {a} [SL:TO {b} ] ]" for a, b in zip(texts(4), texts(5), strict=True)]
CONTEXTS = [f"In {1000 + n} {text}" for n, text in enumerate(texts(6))]

GUESSES: list[tuple[str, str, str, dict[str, Any]]] = [
    # The file's name, what it holds, the kind, and the fields.
    (
        "tickets.csv",
        table(texts(1), cycle(QUEUES), list(range(400)), head="body,queue,ticket_id"),
        "text2class",
        {"inputs": "body", "targets": "queue"},
    ),
    (
        "titles.csv",
        table(texts(1, 400, 3), texts(2), cycle(QUEUES), head="subject;body;queue", delimiter=";"),
        "text2class",
        {"inputs": ["subject", "body"], "targets": "queue"},
    ),
    (
        "bare.tsv",
        table(cycle("123"), texts(1), delimiter="\t"),
        "text2class",
        {"inputs": "1", "targets": "0"},
    ),
    (
        "pairs.tsv",
        table(texts(1), texts(2), cycle(QUEUES), head="one\ttwo\tjudgment", delimiter="\t"),
        "textpair2class",
        {"first": "one", "second": "two", "targets": "judgment"},
    ),
    (
        "alike.csv",
        table(texts(1), texts(2), numbers(), head="sentence_A,sentence_B,relatedness"),
        "textpair2real",
        {"first": "sentence_A", "second": "sentence_B", "targets": "relatedness"},
    ),
    (
        "asked.tsv",
        table(cycle("01"), cycle(texts(1, 40)), texts(2), delimiter="\t"),
        "queryrelevance",
        {"query": "1", "document": "2", "targets": "0"},
    ),
    (
        "ranked.csv",
        table(texts(1), texts(2), texts(3), head="query,positive,negative"),
        "pairranking",
        {"query": "query", "positive": "positive", "negative": "negative"},
    ),
    (
        "stars.csv",
        table(texts(1), numbers(), head="review,stars"),
        "text2real",
        {"inputs": "review", "targets": "stars"},
    ),
    (
        "many.csv",
        table(texts(1), cycle(["a|b", "b", "a|c", "c|b"]), head="text,tags"),
        "text2multilabel",
        {"inputs": "text", "targets": {"column": "tags", "split": "|"}},
    ),
    (
        "listed.jsonl",
        rows(text=texts(1), tags=cycle([["a", "b"], [], ["b"]])),
        "text2multilabel",
        {"inputs": "text", "targets": "tags"},
    ),
    (
        "tagged.jsonl",
        rows(tokens=LISTS, ner=TAGS),
        "text2tags",
        {"inputs": "tokens", "targets": "ner"},
    ),
    (
        "asking.jsonl",
        rows(tokens=LISTS, slots=TAGS, intent=cycle(QUEUES)),
        "intentslot",
        {"inputs": "tokens", "intent": "intent", "slots": "slots"},
    ),
    (
        "talks.jsonl",
        rows(turns=[[a, b] for a, b in zip(texts(1), texts(2), strict=True)], end=cycle(QUEUES)),
        "multiturn2class",
        {"inputs": "turns", "targets": "end"},
    ),
    (
        "parsed.tsv",
        table(texts(1), TREES, delimiter="\t"),
        "text2tree",
        {"targets": "-1"},
    ),
    (
        "questions.csv",
        table(texts(1), CONTEXTS, [c.split()[1] for c in CONTEXTS], head="question,context,answer"),
        "spanqa",
        {"question": "question", "context": "context", "answers": "answer"},
    ),
    (
        "answered.csv",
        table(texts(1), CONTEXTS, cycle(["yes it is", "no, never"]), head="question,context,answer")
        .replace("no, never", '"no, never"'),
        "questioncontext2text",
        {"inputs": "question", "context": "context", "targets": "answer"},
    ),
    (
        "both.csv",
        table(texts(1), texts(2), head="source,target"),
        "text2text",
        {"inputs": "source", "targets": "target"},
    ),
    ("plain.txt", "\n".join(texts(1)) + "\n", "text2self", {}),
    ("chunks.txt", "".join(f"Ann{n} NNP B-NP\nleft VBD B-VP\n\n" for n in range(300)), "text2tags",
     {"inputs": "0", "targets": "2"}),
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "text", "kind", "fields"), GUESSES, ids=[case[0] for case in GUESSES]
)
def test_the_kind_of_a_file_is_guessed_and_its_declaration_generates(
    name: str, text: str, kind: str, fields: dict[str, Any], tmp_path: Path, capsys
):
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / name).write_text(text, "utf-8")
    content, said = declare(folder / name, capsys)
    assert (content["kind"], content.get("fields", {})) == (kind, fields)
    rows = content["files"]["eval"]["rows"]
    assert content["files"] == {"train": name, "eval": {"rows": rows}} and rows > 0
    manifest = check_it_generates(content, folder, tmp_path)
    assert manifest.splits["train"].rows > 100
    said = " ".join(said.split())
    (held,) = {one.rows for split, one in manifest.splits.items() if split != "train"}
    assert f"{held:,} of the " in said
    assert ("with the same shares of the labels" in said) >= (kind in ("text2class", "text2tags"))
    assert ("with the same shares of the labels" in said) <= (
        kind not in ("text2text", "text2real")
    )


REAL = [
    ("atis", "intentslot", 3),
    ("ag_news/ag_news_train.txt.gz", "text2class", 3),
    ("ud_english_ewt", "text2tags", 3),
    ("conll2000", "text2tags", 3),
    ("sick", "textpair2class", 3),
    ("top", "text2tree", 3),
    ("xquad/xquad.en.json.gz", "spanqa", 2),
    ("wikiqa", "queryrelevance", 3),
    ("multi30k/raw", "text2text", 3),
    ("ptb", "text2self", 3),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("where", "kind", "splits"), REAL, ids=[case[0] for case in REAL])
def test_the_kind_of_real_data_is_guessed_and_its_declaration_generates(
    where: str, kind: str, splits: int, shared_data: Path, tmp_path: Path, capsys
):
    path = shared_data / where
    content, _ = declare(path, capsys)
    assert (content["kind"], len(content["files"])) == (kind, splits)
    folder = path if path.is_dir() else path.parent
    assert len(check_it_generates(content, folder, tmp_path).splits) == splits


def test_it_says_what_was_parsed_and_what_it_is_not_sure_of(tmp_path: Path, capsys):
    columns = texts(1), cycle(QUEUES), list(range(400)), ["x"] * 400, numbers()
    path = tmp_path / "tickets.csv"
    path.write_text(table(*columns, head="body,queue,id,source,price"), "utf-8")
    _, said = declare(path, capsys)
    parsed = re.findall(r"inputs: '(.*)'", said)
    assert len(parsed) == 2
    assert set(parsed) <= set(texts(1))
    assert "'id' (all values differ)" in said
    assert "'source' ('x' in every row)" in said
    assert "'price' (numbers; " in said
    assert "no evaluation file was found" in said
    assert f"t2t-datagen --t2t_usr_dir={tmp_path} --problem=tickets --data_dir=data" in said


def test_parallel_files_have_as_many_lines(tmp_path: Path, capsys):
    for name, count in {"train.en": 400, "train.de": 400, "train.md": 7}.items():
        (tmp_path / name).write_text("\n".join(texts(1, count)) + "\n", "utf-8")
    content, said = declare(tmp_path / "train.en", capsys)
    assert content["files"]["train"] == {"inputs": "train.en", "targets": "train.de"}
    assert "train.md has 7 lines and train.en 400" in said


def test_a_split_without_the_other_language_is_left_out(tmp_path: Path, capsys):
    for name in ("train.en", "train.de", "dev.en", "test.en", "test.de"):
        (tmp_path / name).write_text("\n".join(texts(len(name))) + "\n", "utf-8")
    content, said = declare(tmp_path / "train.en", capsys)
    assert content["files"]["test"] == {"inputs": "test.en", "targets": "test.de"}
    assert content["files"]["eval"].keys() == {"rows"}
    assert "not read: dev.en" in said


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("url", [f"https://example.org/{n}" for n in range(400)], "unused columns: 'url'"),
        ("author", [f"Ann{n} Smith" for n in range(400)], "metadata of the row, by its name"),
        ("paid", [f"$ {n % 90 + 1},{n % 1000:03}" for n in range(400)], "not plain numbers"),
        ("when", [f"{n % 28 + 1} Mar 20{n % 20:02}" for n in range(400)], "(dates)"),
        ("price", [9000 + 7 * n % 400 for n in range(400)], '"kind": "text2real"'),
        ("stock", [9000 + 7 * n % 400 for n in range(400)], '"targets": "stock" of "text2real"'),
    ],
)
def test_a_column_beside_text_and_label_is_no_second_text(name, values, told, tmp_path, capsys):
    path = tmp_path / "posts.csv"
    shown = [f'"{value}"' for value in values]
    path.write_text(table(texts(1), shown, cycle(QUEUES), head=f"body,{name},queue"), "utf-8")
    content, said = declare(path, capsys)
    assert content["kind"] == "text2class"
    assert content["fields"] == {"inputs": "body", "targets": "queue"}
    assert told in said


SQUAD = {
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": f"In {1000 + n} {text}",
                    "qas": [
                        {
                            "id": str(n),
                            "question": f"when {n}?",
                            "answers": [{"text": str(1000 + n), "answer_start": 3}],
                        }
                    ],
                }
                for n, text in enumerate(texts(9))
            ],
        }
    ]
}


def test_the_advised_file_is_never_one_that_exists(tmp_path: Path, capsys):
    path = tmp_path / "faq_squad.json"
    path.write_text(json.dumps(SQUAD), "utf-8")
    _, said = declare(path, capsys)
    advised = re.findall(r"\S+\.json", said.split("Save it:")[1])
    assert [str(path), f"--declare_to={tmp_path / 'faq_squad_problem.json'}"] == [
        advised[0].removeprefix("--declare="),
        advised[1],
    ]
    (tmp_path / "faq_squad_problem.json").write_text("{}", "utf-8")
    assert f"--declare_to={tmp_path / 'faq_squad_2.json'}" in declare(path, capsys)[1]


def test_declare_to_writes_a_new_file_and_says_the_next_command(tmp_path: Path, capsys):
    path = tmp_path / "raw" / "faq_squad.json"
    path.parent.mkdir()
    path.write_text(json.dumps(SQUAD), "utf-8")
    content, _ = declare(path, capsys)
    target = tmp_path / "new" / "faq.json"
    assert datagen.main([f"--declare={path}", f"--declare_to={target}"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert json.loads(target.read_text("utf-8")) == content
    command = printed.err.rstrip().splitlines()[-1].split()
    assert command[0] == "t2t-datagen"
    assert f"--tmp_dir={path.parent}" in command
    assert datagen.main([*command[1:-2], command[-1], f"--data_dir={tmp_path / 'data'}"]) == 0


@pytest.mark.parametrize("name", ["raw.json", "link.json", "folder", "folder.json", "x/y.json"])
def test_declare_to_refuses_what_exists_and_leaves_it_alone(name: str, tmp_path: Path, capsys):
    raw = json.dumps(SQUAD)
    (tmp_path / "raw.json").write_text(raw, "utf-8")
    (tmp_path / "link.json").symlink_to(tmp_path / "absent")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "x").write_text("a file")
    before = sorted(tmp_path.rglob("*"))
    target = tmp_path / name
    assert datagen.main([f"--declare={tmp_path / 'raw.json'}", f"--declare_to={target}"]) == 2
    said = capsys.readouterr().err
    assert f"--declare_to={target}" in said
    if name in ("raw.json", "link.json", "folder.json"):
        assert f"such as --declare_to={tmp_path / f'{target.stem}_2.json'}" in said
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "raw.json").read_text("utf-8") == raw


def test_declare_to_needs_the_data(tmp_path: Path, capsys):
    assert datagen.main([f"--declare_to={tmp_path / 'a.json'}"]) == 2
    assert "--declare=FILE" in capsys.readouterr().err


def test_it_says_which_rows_cannot_be_read(tmp_path: Path, capsys):
    path = tmp_path / "tickets.csv"
    path.write_text(table(texts(1), cycle(QUEUES), head="body,queue") + "one,two,three\n", "utf-8")
    _, said = declare(path, capsys)
    assert "rows that cannot be read: 1, the first:" in said
    assert "tickets.csv, line 402" in said


def test_the_files_of_other_splits_are_found(tmp_path: Path, capsys):
    for name in ("train", "dev", "test"):
        (tmp_path / f"my.{name}.csv").write_text(
            table(texts(1), cycle(QUEUES), head="body,queue"), "utf-8"
        )
    expected = {"train": "my.train.csv", "eval": "my.dev.csv", "test": "my.test.csv"}
    assert declare(tmp_path / "my.train.csv", capsys)[0]["files"] == expected
    assert declare(tmp_path, capsys)[0]["files"] == expected


def test_quotes_that_enclose_nothing_are_characters(tmp_path: Path, capsys):
    odd = [f'"{text}' if n % 3 else text for n, text in enumerate(texts(1))]
    path = tmp_path / "odd.tsv"
    path.write_text(table(odd, cycle(QUEUES), head="body\tqueue", delimiter="\t"), "utf-8")
    assert "options" not in declare(path, capsys)[0]
    enclosed = [f'"{text}, ""so"" it is"' for text in texts(1)]
    path.write_text(table(enclosed, cycle(QUEUES), head="body\tqueue", delimiter="\t"), "utf-8")
    assert declare(path, capsys)[0]["options"] == {"quoting": True}


def test_a_name_that_is_taken_is_not_proposed(tmp_path: Path, capsys):
    taken = registry.list_names("problem")[0]
    path = tmp_path / f"{taken}.txt"
    path.write_text("\n".join(texts(1)), "utf-8")
    assert declare(path, capsys)[0]["problem"] == f"my_{taken}"


@pytest.mark.parametrize(
    ("name", "raw", "told"),
    [
        ("x.txt", b"\0\n\0\n", "is no text"),
        ("x.csv", b"", "is empty"),
        ("x.json", b'{"a":\n {"0": 1}\n}', "one object on each line"),
        ("x.csv", b"a,b\n" + b"1.5,2.5\n" * 50, "no column of texts"),
    ],
)
def test_what_nothing_can_be_made_of_is_told(name: str, raw: bytes, told: str, tmp_path, capsys):
    (tmp_path / name).write_bytes(raw)
    assert datagen.main([f"--declare={tmp_path / name}"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.sample(1)
@pytest.mark.parametrize("written", [repr, json.dumps], ids=["Python", "JSON"])
def test_lists_written_in_cells_are_several_labels(written, tmp_path: Path, capsys):
    held = cycle([["a b", "c"], ["c"], ["d, e", "a b"], []])
    cells = ['"' + written(one).replace('"', '""') + '"' for one in held]
    path = tmp_path / "many.csv"
    path.write_text(table(texts(1), cells, head="text,tags"), "utf-8")
    content, said = declare(path, capsys)
    assert content["kind"] == "text2multilabel"
    assert content["fields"]["targets"] == {"column": "tags", "split": "[]"}
    assert "targets: ['c']" in said
    check_it_generates(content, tmp_path, tmp_path)
    labels = (tmp_path / "data" / "labels.many.targets.txt").read_text("utf-8").splitlines()
    assert sorted(labels) == ["a b", "c", "d, e"]


def test_a_first_line_for_spreadsheets_is_to_be_deleted(tmp_path: Path, capsys):
    path = tmp_path / "x.csv"
    held = table(texts(1), cycle(QUEUES), head="text;queue", delimiter=";")
    path.write_text(f"sep=;\n{held}", "utf-8")
    assert datagen.main([f"--declare={path}"]) == 2
    assert "first line, sep=;, is for spreadsheets" in capsys.readouterr().err


@pytest.mark.sample(1)
@pytest.mark.parametrize("delimiter", [",", ";", "|"])
def test_a_table_whose_ending_is_that_of_text_is_a_table(delimiter, tmp_path: Path, capsys):
    path = tmp_path / "x.txt"
    quoted = [f'"{text}{delimiter} {text}"' for text in texts(1)]
    path.write_text(table(quoted, cycle(QUEUES), head=f"text{delimiter}queue", delimiter=delimiter))
    content, _ = declare(path, capsys)
    assert (content["kind"], content["format"]) == ("text2class", "csv")
    assert content["fields"] == {"inputs": "text", "targets": "queue"}
    check_it_generates(content, tmp_path, tmp_path)
    path.write_text("\n".join(f"{text}, {text}" for text in texts(1)))
    assert declare(path, capsys)[0]["kind"] == "text2self"


def test_records_in_one_object_are_rows_with_their_keys(tmp_path: Path, capsys):
    path = tmp_path / "x.json"
    held = {f"r{n}": {"text": text, "label": "ab"[n % 2]} for n, text in enumerate(texts(1))}
    path.write_text(json.dumps(held), "utf-8")
    assert datagen.main([f"--declare={path}"]) == 0
    said = capsys.readouterr().err
    assert "read as a table" in said and "'index' (all values differ)" in said


PIECES = (
    b'a~some words~1.5~7~,~\t~;~|~"~\n~\r\n~\n\n~#~\0~\xe9~\xef\xbb\xbf~\xe2\x80\xa8~(S (A b))~'
    b'[IN:A b ]~(~[~{"a": 1}~{"text": "x", "l": ["y"]}~{~id,text~label~-DOCSTART-'
).split(b"~")


@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=60),
    ending=st.sampled_from(["csv", "tsv", "txt", "jsonl", "json", "conll", "mrg", "conllu", "xyz"]),
)
@settings(max_examples=300, deadline=None)
def test_whatever_a_file_holds_it_is_first_without_a_crash(
    tmp_path_factory, pieces: list[bytes], ending: str
):
    path = tmp_path_factory.mktemp("any") / f"any.{ending}"
    path.write_bytes(b"".join(pieces))
    try:
        drafted = draft(path)
    except T2TError as error:
        assert str(error)
    else:
        assert json.loads(text_of(drafted.content)) == drafted.content


def test_a_folder_that_is_not_clear_and_a_missing_file_are_told(tmp_path: Path, capsys):
    assert datagen.main([f"--declare={tmp_path / 'absent.csv'}"]) == 2
    assert "There is no" in capsys.readouterr().err
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "b.tsv").write_text("a\tb\n")
    assert datagen.main([f"--declare={tmp_path}"]) == 2
    assert "holds a.csv, b.tsv; it is not clear" in capsys.readouterr().err


def _tar(name: str, text: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return made.getvalue()


def _zip(name: str, text: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, text)
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("data.tar.gz", lambda text: gzip.compress(_tar("a.csv", text))),
        ("train.csv", lambda text: gzip.compress(_tar("a.csv", text))),
        ("data.tar", lambda text: _tar("a.csv", text)),
        ("data.zip", lambda text: _zip("a.csv", text)),
        ("train.csv.bz2", bz2.compress),
        ("train.csv.xz", lzma.compress),
    ],
)
def test_archives_are_unpacked_beside_them_and_compressed_files_read(
    name: str, pack, tmp_path: Path, capsys
):
    (tmp_path / "data.en").write_text("beside it\n")
    (tmp_path / name).write_bytes(pack(b"text,label\na b,x\nc d,y\n" * 50))
    content, said = declare(tmp_path / name, capsys)
    assert content["fields"] == {"inputs": "text", "targets": "label"}
    is_archive = not name.endswith((".bz2", ".xz"))
    assert (f"{name} was unpacked" in said) is is_archive
    assert bool(list(tmp_path.glob("*_unpacked/a.csv"))) is is_archive
    if is_archive:
        assert "is not unpacked again" in declare(tmp_path / name, capsys)[1]


def test_a_folder_with_nothing_but_an_archive_is_the_archive(tmp_path: Path, capsys):
    (tmp_path / "data.zip").write_bytes(_zip("a.csv", b"text,label\na b,x\nc d,y\n" * 50))
    (tmp_path / "README.md").write_text("about it")
    for message in ("data.zip was unpacked", "is not unpacked again"):
        content, said = declare(tmp_path, capsys)
        assert content["files"]["train"] == "a.csv" and message in said


@pytest.mark.parametrize("member", ["../outside.csv", "/tmp/outside_of_tar.csv"])
def test_an_archive_writes_nothing_outside_of_its_folder(member: str, tmp_path: Path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data.tar").write_bytes(_tar(member, b"text,label\na b,x\n" * 50))
    assert datagen.main([f"--declare={tmp_path / 'in' / 'data.tar'}"]) == 2
    assert "would write outside" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["data.tar"]
    assert not (tmp_path / "outside.csv").exists() and not Path(member).is_file()


@pytest.mark.parametrize("name", ["notes.docx", "weights.npz"])
def test_a_document_or_program_is_no_archive(name: str, tmp_path: Path, capsys):
    (tmp_path / name).write_bytes(_zip("word/document.xml", b"<w:t>text</w:t>"))
    assert datagen.main([f"--declare={tmp_path / name}"]) == 2
    assert f"{Path(name).suffix} files are documents or programs" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_tagged_words_of_windows_are_declared_with_their_encoding(tmp_path: Path, capsys):
    words, tags = "zum café in köln\n" * 60, "O O O B-CITY\n" * 60
    for name, text in (("seq.in", words), ("seq.out", tags), ("label", "travel\n" * 60)):
        (tmp_path / name).write_bytes(text.encode("cp1252"))
    content, said = declare(tmp_path, capsys)
    assert content["options"] == {"encoding": "cp1252"}
    assert "seq.in is not UTF-8" in said


def test_a_workbook_that_is_damaged_is_named(tmp_path: Path, capsys):
    pytest.importorskip("openpyxl")
    (tmp_path / "table.xlsx").write_bytes(_zip("a.xml", b"text"))
    assert datagen.main([f"--declare={tmp_path / 'table.xlsx'}"]) == 2
    assert "is no workbook of Excel" in capsys.readouterr().err


def test_a_missing_library_for_workbooks_is_named(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "table.xlsx").write_bytes(_zip("a.xml", b"text"))
    assert datagen.main([f"--declare={tmp_path / 'table.xlsx'}"]) == 2
    assert ".[excel]'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.txt"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_carriage_returns_alone_end_lines(name: str, encoding: str, tmp_path: Path):
    mark = "\t" if name == "train.tsv" else ","
    rows = [["text", "label"], *([f"a caf\u00e9 for {n} of us", "xy"[n % 2]] for n in range(40))]
    lines = "".join(mark.join(row) + "\r" for row in rows)
    (tmp_path / name).write_bytes(lines.encode(encoding))
    made = draft(tmp_path / name)
    assert made.content["fields"] == {"inputs": "text", "targets": "label"}
    assert made.samples[1] == {"inputs": "a caf\u00e9 for 1 of us", "targets": "y"}


def test_answers_are_looked_for_in_the_context_of_their_own_row(tmp_path):
    rows = ["question,context,answer", "who is it?,,"]
    rows += [f"who is {n}?,this is the text of {n} here,text of {n}" for n in range(100, 140)]
    rows.insert(1, "what is it?,a text without an answer,")
    (tmp_path / "train.csv").write_text("\n".join(rows) + "\n")
    assert draft(tmp_path / "train.csv").content["kind"] == "spanqa"


def test_tags_are_counted_in_their_own_rows():
    words, tags = [["a", "b"], ["c"], ["d"]], [["B", "O"], ["B"], ["O"]]
    even = {"words": Inspected("words", words), "tags": Inspected("tags", tags)}
    assert propose(FileColumns(even, 3, BadRecords()))[0].kind == "text2tags"
    odd = {"words": Inspected("words", [*words, None]), "tags": Inspected("tags", [None, *tags])}
    assert not propose(FileColumns(odd, 4, BadRecords()))


@pytest.mark.parametrize(
    ("words", "tokenizer"),
    [
        ("Mr state-of-the-art don't , 3.5 .", "words"),
        ("I do n't like Germany 's car .", None),  # "n't" is split by all
        ("Germany 's car , Rome 's car .", "clitics"),
        ("don ' t , state - of .", "words"),
        ("I saw New York.", None),
    ],
)
def test_tags_have_characters_and_the_tokenizer_of_their_words(
    words: str, tokenizer: str | None, tmp_path: Path
):
    lines = [f"{word} {'XY'[n % 2]}" for n, word in enumerate(words.split())]
    sentences = ("\n".join([*lines, f"{n} X"]) for n in range(40))
    (tmp_path / "tags.conll").write_text("\n\n".join(sentences), "utf-8")
    content = draft(tmp_path / "tags.conll").content
    assert content["features"] == {"characters": 12, "shape": True}
    assert content.get("settings", {}).get("tokenizer") == tokenizer


def test_texts_with_spans_have_the_tokenizer_of_their_reader(tmp_path: Path):
    row = {"text": "I saw New York-based Ann.", "spans": [{"start": 6, "end": 14, "label": "city"}]}
    rows = [json.dumps({**row, "text": f"{row['text']} {n}"}) for n in range(40)]
    (tmp_path / "spans.jsonl").write_text("\n".join(rows), "utf-8")
    content = draft(tmp_path / "spans.jsonl").content
    assert content["settings"] == {"tokenizer": "punctuation"}


def test_foreign_files_in_a_class_folder_are_left_out(tmp_path, capsys):
    pictures = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for n in range(20):
            pictures.new("RGB", (9, 7), (n, 9, 200)).save(tmp_path / "pets" / name / f"{n}.tif")
    cats = tmp_path / "pets" / "cat"
    (cats / "Thumbs.db").write_bytes(b"of Windows")
    (cats / "zero.png").write_bytes(b"")
    (cats / "README.md").write_text("two words", "utf-8")
    (cats / "more").mkdir()
    content, printed = declare(tmp_path / "pets", capsys)
    assert content["labels"] == ["cat", "dog"]
    assert "cat/README.md, cat/more: left out, not of the kind of the other files." in printed
    assert "Thumbs.db" not in printed
    assert "--on_bad_record=skip" in printed  # zero.png


def test_a_list_of_sounds_with_texts_is_speech(tmp_path, capsys):
    lines = [f"wavs/{n}.wav\tnumber {n} of a few\t{n % 3}" for n in range(30)]
    (tmp_path / "said.tsv").write_text("\n".join(["path\tsentence\tvotes", *lines]), "utf-8")
    (tmp_path / "wavs").mkdir()
    for n in range(30):
        (tmp_path / "wavs" / f"{n}.wav").write_bytes(wav_of(np.zeros(4000, np.int16), 8000))
    content, _ = declare(tmp_path / "said.tsv", capsys)
    assert content["kind"] == "speech2text"
    assert content["fields"] == {"inputs": "path", "targets": "sentence"}
    assert content["settings"] == {"sample_rate": 8000, "resample": True}
    check_it_generates(content, tmp_path, tmp_path)


def test_pictures_of_several_sizes_are_stored_as_files(tmp_path, capsys):
    pictures = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for n in range(20):
            pictures.new("RGB", (90 + n, 70), (n, 9, 200)).save(
                tmp_path / "pets" / name / f"{n}.jpg"
            )
    content, printed = declare(tmp_path / "pets", capsys)
    assert content["options"] == {"encoded": True}
    assert content["settings"] == {"height": 64, "width": 64, "channels": 3}
    assert "stored as files" in printed
    check_it_generates(content, tmp_path, tmp_path)
    suggested = "--hparams_set=resnet_cifar_fast --train_steps=4000 --hparams=initial_stride=2"
    assert suggested in capsys.readouterr().out
    for name in ("cat", "dog"):  # grey, though stored with three channels
        for n in range(20):
            grey = pictures.new("RGB", (30 + n, 20), (n, n, n))
            grey.save(tmp_path / "pets" / name / f"{n}.png")
            (tmp_path / "pets" / name / f"{n}.jpg").unlink()
    content, _ = declare(tmp_path / "pets", capsys)
    assert content["settings"] == {"height": 30, "width": 30, "channels": 1}
