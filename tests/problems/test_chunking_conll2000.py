from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.mode import Split


def write_raw_files(tmp_dir: Path) -> None:
    folder = tmp_dir / "conll2000"
    folder.mkdir()
    for part, count in (("train", 20), ("test", 3)):
        text = "".join(f"Dog{i} NN B-NP\nread VBP B-VP\n. . O\n\n" for i in range(count))
        (folder / f"{part}.txt").write_text(text, "utf-8")


def test_the_last_tenth_of_the_training_sentences_is_for_development(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    assert samples("chunking_conll2000", tmp_path, Split.EVAL) == [
        {"inputs": [f"Dog{i}", "read", "."], "targets": ["B-NP", "B-VP", "O"]} for i in (18, 19)
    ]
    assert rows("chunking_conll2000", tmp_path) == {"train": 18, "dev": 2, "test": 3}


def test_parts_of_speech_are_an_input_where_they_are_asked_for(tmp_path, samples):
    write_raw_files(tmp_path)
    (first, *_) = samples("chunking_conll2000_pos", tmp_path, Split.TEST)
    assert first["pos"] == ["NN", "VBP", "."]
    problem = registry.problem("chunking_conll2000_pos")
    problem.build_vocab(tmp_path, tmp_path)
    feature = problem.features(tmp_path).inputs["inputs_pos"]
    assert feature.decode(feature.encode(first["pos"])) == first["pos"]
    assert feature.aligned_to == "inputs"


@pytest.mark.slow
def test_the_real_sentences_are_all_there(real, samples, rows):
    tmp_dir = real("conll2000")
    first = samples("chunking_conll2000", tmp_dir, Split.TRAIN)[0]
    assert first["inputs"][:3] == ["Confidence", "in", "the"]
    assert first["targets"][:3] == ["B-NP", "B-PP", "B-NP"]
    counts = rows("chunking_conll2000", tmp_dir)
    assert counts == {"train": 8042, "dev": 894, "test": 2012}
    assert counts["train"] + counts["dev"] == 8936
