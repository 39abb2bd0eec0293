from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name.replace('_', '.')}.txt").write_text(text, encoding="utf-8")


def test_the_users_files_are_the_samples(tmp_path: Path) -> None:
    _write(tmp_path, inputs_train="a\nb\n", targets_train="A\nB\n")
    _write(tmp_path, inputs_eval="c\n", targets_eval="C\n")
    problem = registry.problem("text2text_tmpdir")
    problem.prepare(tmp_path)
    assert list(problem.generate_samples(tmp_path, Split.TRAIN)) == [
        {"inputs": "a", "targets": "A"},
        {"inputs": "b", "targets": "B"},
    ]
    assert list(problem.generate_samples(tmp_path, Split.EVAL)) == [{"inputs": "c", "targets": "C"}]


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    _write(tmp_path, inputs_train="a\n", targets_eval="C\n")
    with pytest.raises(DataError, match=r"missing in .*: targets\.train\.txt, inputs\.eval\.txt\."):
        registry.problem("text2text_tmpdir").prepare(tmp_path)


def test_the_words_of_vocab_txt_are_the_vocabulary(tmp_path: Path) -> None:
    _write(tmp_path, inputs_train="a b\n", targets_train="c a\n")
    _write(tmp_path, inputs_eval="c\n", targets_eval="C\n", vocab="b\na\n<EOS>\nb\n")
    problem = registry.problem("text2text_tmpdir_tokens")
    problem.prepare(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    problem.build_vocab(data, tmp_path)
    (file,) = problem.vocab_files
    assert (data / file).read_text("utf-8").split() == ["<pad>", "<EOS>", "<UNK>", "b", "a"]
    inputs = problem.features(data).inputs["inputs"]
    assert list(inputs.encode("a b c")) == [4, 3, 2, 1]


def test_a_missing_vocab_txt_is_named(tmp_path: Path) -> None:
    _write(tmp_path, inputs_train="a\n", targets_train="A\n")
    _write(tmp_path, inputs_eval="c\n", targets_eval="C\n")
    with pytest.raises(DataError, match=r"missing in .*: vocab\.txt\. Put them there"):
        registry.problem("text2text_tmpdir_tokens").prepare(tmp_path)
