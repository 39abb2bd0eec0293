from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import TokenEncoder


def test_reserved_words_in_a_text_never_become_reserved_ids() -> None:
    encoder = TokenEncoder(["cat", "<unk>"], replace_oov="<unk>")
    assert encoder.encode("cat <EOS> <pad>") == [2, 3, 3]


def test_a_file_without_the_reserved_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.tokens"
    path.write_text("password=tiger\ncat\n")  # it may be a link to a file of another kind
    with pytest.raises(DataError, match=r"vocab\.tokens: lines 1 and 2 are not <pad>") as refused:
        TokenEncoder.load(path)
    assert "tiger" not in str(refused.value)


def test_a_word_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.tokens"
    path.write_text("<pad>\n<EOS>\nthe\ncat\nthe\n")
    with pytest.raises(DataError, match=r"vocab\.tokens: .*'the' twice"):
        TokenEncoder.load(path)


def test_an_unknown_word_is_named() -> None:
    with pytest.raises(DataError, match="no 'dog', which is in 'cat dog'"):
        TokenEncoder(["cat"]).encode("cat dog")
    with pytest.raises(DataError, match="'<unk>', is not in the vocabulary"):
        TokenEncoder(["cat"], replace_oov="<unk>")


def test_words_can_be_looked_up_in_lower_case():
    encoder = TokenEncoder(["the", "<UNK>"], replace_oov="<UNK>", lower_case=True)
    assert encoder.encode("THE The the") == [2, 2, 2]
    assert encoder.encode_words(["The", "Dog"]) == [[2], [3]]
