"""Files that the safetensors package reads."""

from __future__ import annotations

import pytest
import safetensors
import torch
from safetensors.torch import load_file

from t2t_torch.run.tensors import _NAMES, chunks_of


def written(file, tensors, metadata=None):
    file.write_bytes(b"".join(bytes(chunk) for chunk in chunks_of(tensors, metadata)))
    return file


@pytest.mark.parametrize("dtype", _NAMES, ids=str)
def test_every_type_is_read_back_bit_by_bit(tmp_path, dtype):
    raw = torch.randint(0, 2, (6, 16), dtype=torch.uint8, generator=torch.Generator())
    tensor = raw.view(dtype) if dtype != torch.bool else raw.bool()
    file = written(tmp_path / "t", {"a": tensor})
    result = load_file(file)["a"]
    assert (result.dtype, result.shape) == (tensor.dtype, tensor.shape)
    assert result.view(torch.uint8).equal(tensor.view(torch.uint8))


def test_scalars_empty_ones_and_mixed_types_keep_name_shape_and_metadata(tmp_path):
    tensors = {
        "bool": torch.tensor([True, False, True]),
        "none": torch.zeros(0, 3),
        "scalar": torch.tensor(1.5, dtype=torch.float64),
        "ü/half": torch.ones(3, dtype=torch.bfloat16),
        "matrix": torch.arange(6.0).reshape(2, 3),
    }
    file = written(tmp_path / "t", tensors, {"said": "so"})
    result = load_file(file)
    assert result.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert result[name].equal(tensor), name
        assert result[name].dtype == tensor.dtype
    with safetensors.safe_open(file, framework="pt") as opened:
        assert opened.metadata() == {"said": "so"}


def test_nothing_is_a_file_too(tmp_path):
    assert load_file(written(tmp_path / "t", {})) == {}


def test_a_type_that_the_format_does_not_know_is_refused_by_name():
    with pytest.raises(TypeError, match=r"slot is of torch.complex128"):
        list(chunks_of({"slot": torch.zeros(1, dtype=torch.complex128)}))
