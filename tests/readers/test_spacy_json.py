"""JSON of spaCy 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head
from t2t_torch.readers.text_file import BadRecords

TOKENS = [
    {"id": 0, "orth": "Ana", "tag": "NNP", "ner": "U-PER", "head": 0, "dep": "ROOT"},
    {"id": 1, "orth": "flew", "tag": "VBD", "ner": "O"},
]
CATEGORIES = [{"label": "travel", "value": 1.0}, {"label": "food", "value": 0.0}]
PARAGRAPHS = [
    {"raw": "Ana flew", "sentences": [{"tokens": TOKENS}], "cats": CATEGORIES},
    {"sentences": [{"tokens": [{"orth": "Ana"}]}, {"tokens": [{"orth": "flew"}]}]},
    {"sentences": [{"tokens": [{"orth": " "}]}]},
    {"sentences": [{"words": []}]},
]


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_sentences_have_the_columns_of_their_tokens(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [{"id": 0, "paragraphs": PARAGRAPHS}])
    bad = BadRecords("skip")
    made = [one.values for one in open_records(path, format="spacy_json", bad=bad)]
    assert made == [
        {"words": ["Ana", "flew"], "tags": ["U-PER", "O"], "pos": ["NNP", "VBD"],
         "labels": ["travel"]},
        {"words": ["Ana"]},
        {"words": ["flew"]},
    ]  # fmt: skip
    assert bad.count == 2


@pytest.mark.parametrize("content", [{}, [], [1], [{"paragraphs": [{"context": "", "qas": []}]}]])
def test_other_json_is_refused(content: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not of spaCy's form"):
        list(open_records(write(tmp_path / "a.json", content), format="spacy_json"))


def test_it_matches_its_own_form_only(tmp_path: Path) -> None:
    matches = FORMATS["spacy_json"].matches
    assert matches is not None
    squad = {"data": [{"paragraphs": [{"context": "tokens", "qas": []}]}]}
    assert matches(Head(write(tmp_path / "a.json", squad))) is None
    assert matches(Head(write(tmp_path / "b.json", [{"tokens": ["a"], "paragraphs": 1}]))) is None
    assert matches(Head(write(tmp_path / "c.json", [{"id": 0, "paragraphs": PARAGRAPHS}])))
