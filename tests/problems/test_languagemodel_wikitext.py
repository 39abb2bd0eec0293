from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_raw_files

from t2t_torch import registry
from t2t_torch.mode import Split


def texts(problem: Any, folder: Path) -> list[str]:
    return [sample["targets"] for sample in problem.generate_samples(folder, Split.TRAIN)]


@pytest.mark.parametrize("number", [2, 103])
def test_words_are_the_files_with_one_unknown_word(number: int, tmp_path: Path) -> None:
    tiny_raw_files.write_wikitext(tmp_path)
    problem = registry.problem(f"languagemodel_wikitext{number}")
    # U+2028 is space between words to whoever cuts at whitespace, but it ends no line.
    assert texts(problem, tmp_path) == ["= Dogs =", "A <UNK> dog , it @-@ barks .", "It runs ."]


def test_characters_are_the_files_as_they_are(tmp_path: Path) -> None:
    tiny_raw_files.write_wikitext(tmp_path)
    problem = registry.problem("languagemodel_wikitext103_characters")
    assert texts(problem, tmp_path)[1] == "A <unk> dog , \u2028 it @-@ barks ."


def test_lines_are_joined_as_far_as_they_fit_and_longer_ones_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wikitext-103"
    folder.mkdir()
    lines = ["a b", "c", "d e f g h i j k", "l", "m n", "o"]
    (folder / "wiki.train.tokens").write_text("".join(f" {x} \n \n" for x in lines), "utf-8")
    problem = registry.problem("languagemodel_wikitext103_l4k")
    monkeypatch.setattr(type(problem), "sequence_length", 4)  # three words and the end
    assert texts(problem, tmp_path) == ["a b c", "d e f", "g h i", "j k l", "m n o"]


def test_texts_of_4096_ids_are_not_too_long_to_be_learnt() -> None:
    hparams = registry.hparams("transformer_tiny")
    assert registry.problem("languagemodel_wikitext103_l4k").max_length(hparams) == 4096
    assert registry.problem("languagemodel_wikitext103_l16k").max_length(hparams) == 16384
    shorter = hparams.replace(split_to_length=100)
    assert registry.problem("languagemodel_wikitext103_l16k").max_length(shorter) == 100
