from __future__ import annotations

import pytest

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import IntegerEncoder


def test_integers_are_shifted_past_the_reserved_ids() -> None:
    encoder = IntegerEncoder(10)
    assert encoder.vocab_size == 12
    assert encoder.encode(" 0 9\t3 ") == [2, 11, 5]
    assert encoder.decode([2, 11, 5, 1, 7]) == "0 9 3"


@pytest.mark.parametrize("word", ["10", "-1", "x", "1.5"])
def test_what_is_no_symbol_is_refused(word: str) -> None:
    with pytest.raises(DataError, match=f"'{word}' is not an integer from 0 to 9"):
        IntegerEncoder(10).encode(f"1 {word}")
