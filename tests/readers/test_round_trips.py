"""What is written is read back, in every format of text."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.readers.conll import COLUMNS
from t2t_torch.readers.formats import open_records
from t2t_torch.text.tree import Tree

_NO_TEXT = st.characters(codec="utf-8", exclude_characters="\0")


_AWKWARD = st.text(st.sampled_from('",;\t\n\r \u2028\u0085\ufeffaß')) | st.text(_NO_TEXT)


def _rows(min_width: int = 1) -> st.SearchStrategy[list[list[str]]]:
    widths = st.integers(min_width, 4)
    return widths.flatmap(
        lambda n: st.lists(st.lists(_AWKWARD, min_size=n, max_size=n), min_size=1, max_size=8)
    )


@settings(deadline=None)
@given(_rows(), st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_pythons_csv_writes_is_read_back(
    read: Any, rows: list[list[str]], delimiter: str, end: str, everything: bool
) -> None:
    file = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if everything else csv.QUOTE_MINIMAL
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
    if end == "\n" and not everything:  # that writer leaves a "\r" at the end of a line bare
        rows = [[field.replace("\r", " ") for field in row] for row in rows]
    names = [f"c{i}" for i in range(len(rows[0]))]
    writer.writerows([names, *rows])
    text = file.getvalue()
    records, bad = read(text, "csv", delimiter=delimiter)
    assert not bad.listed
    assert [list(record.values.values()) for record in records] == rows
    assert all(list(record.values) == names for record in records)


@settings(deadline=None)
@given(_rows(2), st.booleans())
def test_rows_of_tabs_are_read_back(read: Any, rows: list[list[str]], header: bool) -> None:
    cut = str.maketrans("\t\n\r", "   ")
    rows = [[field.translate(cut) for field in row] for row in rows]
    names = (
        [f"c{i}" for i in range(len(rows[0]))] if header else list(map(str, range(len(rows[0]))))
    )
    lines = ["\t".join(row) + "\n" for row in ([names, *rows] if header else rows)]
    if not header and lines[0].startswith("\ufeff"):
        lines[0] = "\ufeff" + lines[0]  # the first is no part of the text
    records, bad = read("".join(lines), "tsv", header=header)
    assert not bad.listed
    assert [record.values for record in records] == [
        dict(zip(names, row, strict=True)) for row in rows
    ]


_LINE = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"))


_WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r\t "), min_size=1),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(st.lists(_LINE))
def test_lines_are_read_back(read: Any, lines: list[str]) -> None:
    records, bad = read("\ufeff" + "".join(f"{line}\n" for line in lines), "lines")
    assert not bad.listed
    if lines:
        assert [record.values for record in records] == [{"text": line} for line in lines]


@settings(deadline=None)
@given(st.lists(st.tuples(_LINE, _LINE, _LINE), min_size=1))
def test_parallel_lines_are_read_back(folder: Path, rows: list[tuple[str, str, str]]) -> None:
    names = ("inputs", "targets", "third")
    for column, name in enumerate(names):
        text = "\ufeff" + "".join(f"{row[column]}\n" for row in rows)
        (folder / name).write_bytes(text.encode() if column else gzip.compress(text.encode()))
    options = {"files": {name: name for name in names}}
    records = list(open_records(folder, format="parallel", options=options))
    assert [tuple(record.values.values()) for record in records] == rows
    assert all(tuple(record.values) == names for record in records)


@settings(deadline=None)
@given(st.lists(st.tuples(_WORDS, _LINE.map(str.strip).filter(bool)), min_size=1))
def test_utterances_in_three_files_are_read_back(
    folder: Path, rows: list[tuple[list[str], str]]
) -> None:
    def put(name: str, lines: list[str]) -> None:
        (folder / name).write_text("\ufeff" + "".join(f"{line}\n" for line in lines), "utf-8")

    put("seq.in", [" ".join(words) for words, _ in rows])
    put("seq.out", ["\t".join(reversed(words)) for words, _ in rows])
    put("label", [label for _, label in rows])
    records = list(open_records(folder, format="bio"))
    assert [record.values for record in records] == [
        {"words": words, "tags": words[::-1], "label": label} for words, label in rows
    ]


_WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0 \t\r\n"), min_size=1)


_FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\0\t\r\n"), min_size=1)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(_WORD, _WORD), min_size=1, max_size=4), min_size=1),
    st.sampled_from([" ", "\t", "  ", " \t "]),
    st.sampled_from(["\n", "\r\n", " \n\n"]),
)
def test_sentences_of_columns_are_read_back(
    read: Any, sentences: list[list[tuple[str, str]]], between: str, blank: str
) -> None:
    text = blank.join("".join(f"{a}{between}{b}\n" for a, b in rows) for rows in sentences)
    records, bad = read(f"\ufeff{text}", "conll", columns=["word", "tag"])
    assert not bad.listed
    assert [list(zip(r.values["word"], r.values["tag"], strict=True)) for r in records] == sentences


@settings(deadline=None)
@given(st.lists(st.lists(_FIELD, min_size=1, max_size=4), min_size=1))
def test_sentences_of_universal_dependencies_are_read_back(
    read: Any, sentences: list[list[str]]
) -> None:
    def rows(words: list[str]) -> str:
        lines = ["\t".join([str(i), word, *"_" * 8]) + "\n" for i, word in enumerate(words, 1)]
        lines.insert(1, "\t".join(["1.1", "empty", *"_" * 8]) + "\n")
        return "".join(["# text = x\n", "\t".join(["1-2", "range", *"_" * 8]) + "\n", *lines])

    records, bad = read("\n".join(map(rows, sentences)), "conllu")
    assert not bad.listed
    told = [[word.replace(" ", "\u00a0") for word in words] for words in sentences]
    assert [record.values["form"] for record in records] == told
    assert all(tuple(record.values) == COLUMNS for record in records)
    assert [r.values["id"] for r in records] == [
        [str(n) for n in range(1, len(words) + 1)] for words in sentences
    ]


_LABEL = st.text(st.sampled_from("SNPV:-_$|."), min_size=1)


_LEAF = st.text(st.characters(codec="utf-8", exclude_characters="\0 \t\r\n"), min_size=1).filter(
    lambda word: "-LSB-" not in word and "-RSB-" not in word and "RB-" not in word
)


_TREES = st.recursive(
    st.builds(lambda label, word: Tree(label, (word,)), _LABEL, _LEAF),
    lambda inner: st.builds(
        lambda label, children: Tree(label, tuple(children)),
        _LABEL,
        st.lists(inner | _LEAF, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(_TREES, min_size=1), st.sampled_from(["\n", "\n\n", " ", "\r\n"]))
def test_trees_are_read_back(read: Any, trees: list[Tree], between: str) -> None:
    for form in (Tree.__str__, Tree.to_round):
        records, bad = read(between.join(map(form, trees)), "trees")
        assert not bad.listed
        assert [record.values for record in records] == [
            {"tree": form(tree), "words": tree.words} for tree in trees
        ]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(_TREES, min_size=1), st.sampled_from(["\n ", "\n\t", "\r\n  ", "\n\n "]))
def test_trees_over_several_lines_are_read_back(read: Any, trees: list[Tree], between: str) -> None:
    text = "\n".join(tree.to_round().replace(" ", between) for tree in trees)
    records, bad = read(text, "trees")
    assert not bad.listed
    assert [record.values["tree"] for record in records] == [tree.to_round() for tree in trees]


_TEXT = st.text(st.characters(codec="utf-8"))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.dictionaries(_TEXT, _VALUES, max_size=4)), st.booleans())
def test_what_pythons_json_writes_is_read_back(
    read: Any, rows: list[dict[str, Any]], ascii_only: bool
) -> None:
    lines = [json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows]
    records, bad = read("".join(lines), "jsonl")
    assert not bad.listed
    assert [record.values for record in records] == rows
    assert [record.place.line for record in records] == list(range(1, len(rows) + 1))


@settings(deadline=None)
@given(st.lists(st.tuples(_TEXT, _TEXT, _TEXT, st.booleans()), max_size=4), st.booleans())
def test_questions_are_read_back(read: Any, rows: list[Any], ascii_only: bool) -> None:
    articles = []
    for i, (title, question, before, answered) in enumerate(rows):
        answer = {"text": "answer", "answer_start": len(before)}
        entry = {"id": str(i), "question": question, "answers": [answer] * answered,
                 "is_impossible": not answered}  # fmt: skip
        paragraph = {"context": f"{before}answer", "qas": [entry]}
        articles.append({"title": title, "paragraphs": [paragraph]})
    text = json.dumps({"version": "v2.0", "data": articles}, ensure_ascii=ascii_only)
    records, bad = read("\ufeff" + text, "squad")
    assert not bad.listed
    assert [record.values for record in records] == [
        {
            "id": str(i),
            "title": title,
            "question": question,
            "context": f"{before}answer",
            "answers": [{"text": "answer", "start": len(before)}] * answered,
            "is_impossible": not answered,
        }
        for i, (title, question, before, answered) in enumerate(rows)
    ]
