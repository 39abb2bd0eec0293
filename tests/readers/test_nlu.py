"""JSON of Rasa, LUIS, Dialogflow and Snips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

LUIS = {
    "luis_schema_version": "7.0.0", "utterances": [
        {"text": "fly to New Haven", "intent": "fly", "entities": [
            {"entity": "to city", "startPos": 7, "endPos": 15}]},
        {"text": "fly", "intent": "fly", "entities": [{"entity": "x", "startPos": 0, "endPos": 9}]},
        {"text": 3, "intent": "fly", "entities": []},
    ],
}  # fmt: skip
ENTITIES = [{"start": 7, "end": 16, "value": "NH", "entity": "to"}]
EXAMPLE: dict[str, Any] = {"text": "fly to New Haven", "intent": "fly", "entities": ENTITIES}
WIT = {"utterances": [{**EXAMPLE, "traits": []}, {"text": "no intent"}]}
RASA = {"rasa_nlu_data": {"common_examples": [EXAMPLE, {"intent": "fly"}], "entity_synonyms": []}}
PARTS = [{"text": " fly to "}, {"text": "New Haven", "entity": "city", "slot_name": "to"}]
SNIPS = {"language": "en", "intents": {"fly": {"utterances": [{"data": PARTS}]}}, "entities": {}}
BENCHMARK = {"fly": [{"data": PARTS}, {"data": [{"no": "text"}]}]}
USERSAYS = [{"id": "1", "data": [{"text": "fly to "}, {"text": "New Haven", "alias": "to"}]}]


def read(path: Path, bad: BadRecords) -> list[dict[str, Any]]:
    return [one.values for one in open_records(path, format="nlu", bad=bad)]


@pytest.mark.parametrize(
    ("name", "content", "count_bad"),
    [
        ("nlu.json", RASA, 1),
        ("utterances-1.json", WIT, 0),
        ("app.json", LUIS, 2),
        ("dataset.json", SNIPS, 0),
        ("train_fly.json", BENCHMARK, 1),
        ("fly_usersays_en.json", USERSAYS, 0),
    ],
)
def test_utterances_have_an_intent_and_tags(
    name: str, content: Any, count_bad: int, match: Any, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(content))
    bad = BadRecords("skip")
    (values,) = read(path, bad)
    assert (values["intent"], values["text"]) == ("fly", "fly to New Haven")
    assert [tag[:1] for tag in values["tags"]] == ["O", "O", "B", "I"]
    assert bad.count == count_bad
    assert match("nlu", path).confidence == 1.0


def test_an_export_of_dialogflow_is_a_folder(match: Any, tmp_path: Path) -> None:
    assert match("nlu", tmp_path) is None
    (tmp_path / "intents").mkdir()
    (tmp_path / "intents" / "fly_usersays_en.json").write_text(json.dumps(USERSAYS))
    (tmp_path / "intents" / "fly.json").write_text('{"name": "fly", "responses": []}')
    assert match("nlu", tmp_path).doubts == ()
    assert len(read(tmp_path, BadRecords())) == 1
    (tmp_path / "intents" / "fly_usersays_es.json").write_text(json.dumps(USERSAYS))
    assert match("nlu", tmp_path).doubts == ["utterances of 2 languages are read: en, es."]


@pytest.mark.parametrize(
    "content", ["{}", "[]", '{"data": [{"text": "x"}]}', '{"x": {"data": []}}']
)
def test_other_json_is_refused(content: str, match: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    assert match("nlu", path) is None
    with pytest.raises(DataError, match="no utterances"):
        read(path, BadRecords())
