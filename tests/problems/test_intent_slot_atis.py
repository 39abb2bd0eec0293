from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import BadRecords

WORDS = ["flights from rome to oslo", "what does a ticket to rome cost", "flights to oslo please"]
TAGS = ["O O B-from O B-to", "O O O O O B-to O", "O O B-to O"]
INTENTS = ["flight", "fare", "flight#fare"]


def write_raw_files(tmp_dir: Path) -> None:
    for part in ("train", "valid", "test"):
        folder = tmp_dir / "atis" / part
        folder.mkdir(parents=True)
        for name, lines in (("seq.in", WORDS), ("seq.out", TAGS), ("label", INTENTS)):
            (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


def test_a_request_has_words_an_intent_and_a_slot_for_each_word(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    assert samples("intent_slot_atis", tmp_path, Split.TEST)[0] == {
        "inputs": ["flights", "from", "rome", "to", "oslo"],
        "intent": "flight",
        "slots": ["O", "O", "B-from", "O", "B-to"],
    }
    assert rows("intent_slot_atis", tmp_path) == {"train": 3, "dev": 3, "test": 3}


def test_the_files_may_lie_in_the_folder_itself(tmp_path, samples):
    write_raw_files(tmp_path)
    assert len(samples("intent_slot_atis", tmp_path / "atis", Split.TRAIN)) == 3


def test_a_request_with_a_slot_too_few_is_bad(tmp_path):
    write_raw_files(tmp_path)
    (tmp_path / "atis" / "train" / "seq.out").write_text("\n".join(["O O", *TAGS[1:], ""]), "utf-8")
    problem = registry.problem("intent_slot_atis")
    with pytest.raises(DataError, match=r"seq\.in, line 1, column 14: 5 words, but 2 tags"):
        list(problem.generate_samples(tmp_path, Split.TRAIN))
    problem.bad_records = BadRecords("skip")
    assert len(list(problem.generate_samples(tmp_path, Split.TRAIN))) == 2
    assert problem.bad_records.count == 1


@pytest.mark.slow
def test_the_real_requests_are_all_there(real, samples, rows):
    tmp_dir = real("atis")
    first = samples("intent_slot_atis", tmp_dir, Split.TRAIN)[0]
    assert " ".join(first["inputs"]) == "i want to fly from baltimore to dallas round trip"
    assert (first["intent"], first["slots"][5]) == ("atis_flight", "B-fromloc.city_name")
    assert rows("intent_slot_atis", tmp_dir) == {"train": 4478, "dev": 500, "test": 893}
