from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.mode import Split


def write_raw_files(tmp_dir: Path) -> None:
    folder = tmp_dir / "ptb"
    folder.mkdir()
    for part in ("train", "valid", "test"):
        text = " the <unk> of N dogs \n they do n't read \n"
        (folder / f"ptb.{part}.txt").write_text(text * 5, "utf-8")


def test_the_unknown_word_of_the_files_is_that_of_the_vocabulary(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    assert samples("languagemodel_ptb10k", tmp_path, Split.EVAL)[:2] == [
        {"targets": "the <UNK> of N dogs"},
        {"targets": "they do n't read"},
    ]
    assert rows("languagemodel_ptb10k", tmp_path) == {"train": 10, "dev": 10, "test": 10}
    vocabulary = tmp_path / "data" / "vocab.languagemodel_ptb10k.10001.words"
    assert "<unk>" not in vocabulary.read_text("utf-8").splitlines()


def test_characters_are_those_of_the_file(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    first = samples("languagemodel_ptb_characters", tmp_path, Split.TRAIN)[0]
    assert first == {"targets": "the <unk> of N dogs"}
    assert rows("languagemodel_ptb_characters", tmp_path)["train"] == 10


@pytest.mark.slow
def test_the_real_tokens_are_those_of_the_published_count(real, samples, rows, tmp_path):
    tmp_dir = real("ptb")
    assert rows("languagemodel_ptb10k", tmp_dir) == {"train": 42068, "dev": 3370, "test": 3761}
    targets = registry.problem("languagemodel_ptb10k").features(tmp_path / "data").targets
    encoder = targets["targets"]
    assert encoder.vocab_size == 10_001
    ends_counted = {Split.TRAIN: 929_589, Split.EVAL: 73_760, Split.TEST: 82_430}
    for split, count in ends_counted.items():
        found = samples("languagemodel_ptb10k", tmp_dir, split)
        assert sum(len(sample["targets"].split(" ")) + 1 for sample in found) == count
    first = samples("languagemodel_ptb_characters", tmp_dir, Split.EVAL)[0]["targets"]
    assert first.startswith("consumers may want to move their telephones")
