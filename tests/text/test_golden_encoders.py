"""The encoders against tensor2tensor 1.15.7 (golden/text/encoders.json).

`decoded_strip_extraneous` is tensor2tensor's text without trailing reserved ids.  Ours ends at the
first EOS and skips PAD anywhere, so decodings of ids with reserved ones inside are left out, and so
is the text "<EOS>", which tensor2tensor's token encoder takes for the end of the sequence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import (
    EOS,
    PAD,
    RESERVED_TOKENS,
    ByteEncoder,
    ClassLabelEncoder,
    IntegerEncoder,
    TokenEncoder,
)

FOLDER = Path(__file__).parents[1] / "golden" / "text"
GOLDEN = json.loads((FOLDER / "encoders.json").read_text(encoding="utf-8"))


def _reserved_only_at_the_end(case: dict[str, Any]) -> bool:
    ids = list(case["ids"])
    while ids and ids[-1] in (PAD, EOS):
        ids.pop()
    return not {PAD, EOS} & set(ids)


def _token_cases() -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in GOLDEN["token"]["cases"]]


def test_the_byte_encoder_has_tensor2tensors_ids() -> None:
    encoder = ByteEncoder()
    cases = GOLDEN["byte"]["encode"]
    assert encoder.vocab_size == GOLDEN["byte"]["vocab_size"]
    assert [encoder.encode(case["text"]) for case in cases] == [case["ids"] for case in cases]
    assert [encoder.decode(case["ids"]) for case in cases] == [case["decoded"] for case in cases]


def test_the_byte_encoder_decodes_any_ids_as_tensor2tensor_does() -> None:
    cases = [case for case in GOLDEN["byte"]["decode"] if _reserved_only_at_the_end(case)]
    assert len(cases) > 45
    for case in cases:
        assert ByteEncoder().decode(case["ids"]) == case["decoded_strip_extraneous"]


def test_the_integer_encoder_has_tensor2tensors_ids() -> None:
    encoder = IntegerEncoder(100)
    encoded = [case for case in GOLDEN["text_encoder_base"]["encode"] if "-" not in case["text"]]
    assert [encoder.encode(case["text"]) for case in encoded] == [case["ids"] for case in encoded]
    for case in filter(_reserved_only_at_the_end, GOLDEN["text_encoder_base"]["decode"]):
        assert encoder.decode(case["ids"]) == case["decoded_strip_extraneous"]


@pytest.mark.parametrize("case", _token_cases())
def test_the_token_encoder_has_tensor2tensors_ids(case: dict[str, Any]) -> None:
    options = {"replace_oov": case["replace_oov"], "reverse": case["reverse"]}
    if case["name"].startswith("file"):
        encoder = TokenEncoder.load(FOLDER / GOLDEN["token"]["file"], **options)
    else:
        encoder = TokenEncoder(GOLDEN["token"]["vocab_list"], **options)
    assert encoder.vocab_size == case["vocab_size"]
    for example in case["encode"]:
        if set(example["text"].split()) & set(RESERVED_TOKENS):
            continue
        if isinstance(example["ids"], list):
            assert encoder.encode(example["text"]) == example["ids"]
        else:
            with pytest.raises(DataError):
                encoder.encode(example["text"])
    for example in case["decode"]:
        words = [word for word in example["decoded"].split() if word not in RESERVED_TOKENS]
        assert encoder.decode(example["ids"]) == " ".join(words)


def test_the_class_label_encoder_has_tensor2tensors_ids() -> None:
    golden = GOLDEN["class_label"]
    for encoder in (
        ClassLabelEncoder(golden["labels"]),
        ClassLabelEncoder.load(FOLDER / "labels.txt"),
    ):
        assert encoder.vocab_size == golden["vocab_size"]
        for case in golden["encode"]:
            assert encoder.encode(case["label"]) == case["id"]
        for case in golden["decode"]:
            assert encoder.decode(case["id"]) == case["label"]
