"""Checkpoints of the models of tensor2tensor's zoo, imported by `t2t-import`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorflow_writer import write_checkpoint

import t2t_torch as t2t
from t2t_torch.interop.tensor2tensor_weights import FAMILIES, convert_weights

ZOO = Path(__file__).parent.parent / "golden" / "zoo"
VARIANTS = sorted(path.name for path in ZOO.iterdir())

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.mark.sample(6)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_checkpoint_of_a_zoo_model_becomes_a_run(variant: str, tmp_path: Path) -> None:
    record = json.loads((ZOO / variant / "hparams.json").read_text())
    variables = dict(np.load(ZOO / variant / "variables.npz"))
    assert record["model"] in FAMILIES
    old = tmp_path / "old"
    old.mkdir()
    write_checkpoint(old / "model.ckpt-5", {**variables, "global_step": np.array(5)})
    (old / "hparams.json").write_text(json.dumps(record["hparams"]))
    (old / "flags_t2t.txt").write_text(f"--model={record['model']}\n--problem=zoo_of_names\n")
    sizes = record["problem_hparams"]["vocab_size"]
    words = ["<pad>", "<EOS>"]
    words += [f"w{number}" for number in range(len(words), max(sizes.values()))]
    (old / "vocab.zoo_of_names.tokens").write_text("\n".join(words))
    t2t.import_run(old, tmp_path / "run")
    found = load_file(tmp_path / "run" / "ckpt-5" / "model.safetensors")
    expected = convert_weights(record["model"], variables)
    for name in found.keys() & expected.keys():
        assert torch.equal(found[name], expected[name]), name
    assert len(found.keys() & expected.keys()) > 5
