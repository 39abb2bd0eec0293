from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.readers.formats import open_records


def test_columns_without_names_are_numbered(read: Any) -> None:
    (record,), _ = read("a X\nb Y\n", "conll")
    assert record.values == {"0": ["a", "b"], "1": ["X", "Y"]}


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
