from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import UsageError
from t2t_torch.readers.conll import COLUMNS
from t2t_torch.readers.formats import open_records

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


def test_columns_without_names_are_numbered(read: Any) -> None:
    (record,), _ = read("a X\nb Y\n", "conll")
    assert record.values == {"0": ["a", "b"], "1": ["X", "Y"]}


@pytest.mark.parametrize(
    ("row", "column", "count"), [("bä", 3, 1), ("b Y Z", 5, 3), ("b  Y Z", 5, 3)]
)
def test_a_word_with_too_few_or_many_columns_spoils_its_sentence(
    read: Any, row: str, column: int, count: int
) -> None:
    records, bad = read(f"a X\n\na X\n{row}\nc X\n\nd X\n", "conll", columns=["word", "tag"])
    assert [(r.place.line, r.values["word"]) for r in records] == [(1, ["a"]), (7, ["d"])]
    expected = f"line 4, column {column}: {count} columns, where 2 were expected (word, tag)"
    assert bad.count == 1
    assert bad.listed[0].endswith(expected)


def test_columns_may_hold_spaces_where_tabs_delimit(read: Any) -> None:
    (record,), _ = read("New York\tLOC\n", "conll", delimiter="\t")
    assert record.values == {"0": ["New York"], "1": ["LOC"]}


def test_document_starts_are_sentences_unless_told_otherwise(read: Any) -> None:
    text = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n\n"
    records, _ = read(text, "conll", skip_docstart=True)
    assert [r.values["0"] for r in records] == [["EU"]]
    assert [r.values["0"] for r in read(text, "conll")[0]] == [["-DOCSTART-"], ["EU"]]


def test_the_dashes_between_the_texts_of_conll2002_are_no_sentences(read: Any) -> None:
    text = "- Fg O\n\nEl DA O\n- Fg O\n\n- Fg O\n"
    records, _ = read(text, "conll", skip_docstart=True)
    assert [r.values["0"] for r in records] == [["El", "-"]]
    assert len(list(read(text, "conll")[0])) == 3


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["1\ta" + "\t_" * 7], "line 3, column 18: 9 columns with tabs between, where 10"),
        (["1\ta" + "\t_" * 9], "line 3, column 21: 11 columns"),
        (["1\t\t_" + "\t_" * 7], "line 3, column 3: nothing in the column form"),
        (["1\ta" + "\t_" * 8, "3\tb" + "\t_" * 8], "line 4, column 1: word '3', where word 2"),
        (["1\ta" + "\t_" * 8, "1\tb" + "\t_" * 8], "line 4, column 1: word '1', where word 2"),
        (["x\ta" + "\t_" * 8], "line 3, column 1: word 'x', where word 1"),
    ],
)
def test_a_bad_line_spoils_its_sentence_of_universal_dependencies(
    read: Any, rows: list[str], told: str
) -> None:
    good = "1\tgood" + "\t_" * 8 + "\n\n"
    records, bad = read(good + "\n".join(rows) + "\n\n" + good, "conllu")
    assert [r.values["form"] for r in records] == [["good"], ["good"]]
    assert bad.count == 1
    assert told in bad.listed[0]


@pytest.mark.parametrize(
    "options", [{"columns": ["a", "a"]}, {"columns": [""]}, {"delimiter": ",,"}]
)
def test_options_that_make_no_sense_are_refused_at_once(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        open_records(tmp_path / "x.conll", options=options)


def test_a_space_in_a_word_of_universal_dependencies_is_a_no_break_space(read: Any) -> None:
    line = "\t".join(["1", "10 000", "10 000", "NUM", *"_" * 6])
    (record,), bad = read(f"{line}\n", "conllu")
    assert not bad.listed
    assert record.values["form"] == record.values["lemma"] == ["10\u00a0000"]


def test_comments_stand_before_the_first_word_of_a_sentence(read: Any) -> None:
    text = "# id 1\n# of two\n# O\nup B\n\n#again O\n# O\n"
    records, bad = read(text.replace("# O\nup", "#x O\nup"), "conll", comments=True)
    assert not bad.listed
    assert [record.values["0"] for record in records] == [["#x", "up"], ["#again", "#"]]
