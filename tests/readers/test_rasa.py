"""Rasa's training data in YAML and Markdown."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

YAML = """version: "3.1"
nlu:
- intent: book
  examples: |
    - a room in [New Haven](city) for [two]{"entity": "number", "role": "guests"}
    - hi [there]{"value": "x"}
- intent: greet
  examples:
  - text: |
      hello
- synonym: New Haven
  examples: |
    - NH
"""
MARKDOWN = "## intent:book\n- a room in [NH](city:New Haven)\n\n## synonym:x\n- NH\n"


def read(path: Path, content: str) -> tuple[list[Any], BadRecords]:
    path.write_text(content)
    bad = BadRecords("skip")
    return list(open_records(path, format="rasa", bad=bad)), bad


def test_examples_of_intents_are_read_and_entities_become_tags(tmp_path: Path) -> None:
    records, bad = read(tmp_path / "nlu.yml", YAML)
    assert [(r.place.line, r.values["intent"]) for r in records] == [(1, "book"), (3, "greet")]
    assert records[0].values["text"] == "a room in New Haven for two"
    assert records[0].values["tags"] == ["O", "O", "O", "B-city", "I-city", "O", "B-number"]
    assert bad.listed == [
        f'{tmp_path / "nlu.yml"}, example 2: an entity that cannot be read: [there]{{"value": "x"}}'
    ]
    (record,), _ = read(tmp_path / "nlu.md", MARKDOWN)
    assert (record.values["words"][-1], record.values["tags"][-1]) == ("NH", "B-city")


def test_a_packed_file_is_of_the_kind_below_its_packing(tmp_path: Path) -> None:
    (tmp_path / "nlu.md.gz").write_bytes(gzip.compress(MARKDOWN.encode()))
    (tmp_path / "nlu.yml.gz").write_bytes(gzip.compress(YAML.encode()))
    for path, count in ((tmp_path / "nlu.md.gz", 1), (tmp_path, 3)):
        assert len(list(open_records(path, format="rasa", bad=BadRecords("skip")))) == count


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("nlu.yml", "nlu:\n- intent: [x\n", "line 3, column 1: no YAML"),
        ("nlu.yml", "nlu:\n- &a [1, 1]\n- &b [*a, *a]\n" + "- " + "[" * 99, "no YAML"),
        ("stories.yml", "stories:\n- story: x\n", "no examples of intents"),
    ],
)
def test_a_file_without_examples_is_refused(
    name: str, content: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=why):
        read(tmp_path / name, content)


def test_it_matches_files_and_folders_with_examples(match: Any, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text("rules:\n- rule: hi\n  steps:\n  - intent: greet\n")
    (tmp_path / "readme.md").write_text("## Usage:\n- x\n")
    assert not any(match("rasa", path) for path in (tmp_path, *tmp_path.iterdir()))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.yml").write_text(YAML)
    (tmp_path / "data" / "b.md").write_text(MARKDOWN)
    assert all(match("rasa", path) for path in (tmp_path, *(tmp_path / "data").iterdir()))
    assert len(list(open_records(tmp_path, format="rasa", bad=BadRecords("skip")))) == 3
