"""Vocabularies of problems that were written for tensor2tensor."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin import datagen
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder, holds_subtokens

VOCABULARY = (
    Path(__file__).parent.parent / "golden" / "t2t_runs" / "data" / "vocab.zoo_pairs.256.subwords"
)
PAIRS = """
@registry.register_problem
class ZooPairs(text_problems.Text2TextProblem):
  is_generate_per_split = False
  approx_vocab_size = {size}
  dataset_splits = [{{"split": "train", "shards": 9}}, {{"split": "eval", "shards": 1}}]

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(200):
      yield {{"inputs": "the %d word" % i, "targets": "das %d wort" % i}}
"""


@pytest.mark.parametrize("size", [2**8, 2**9])
def test_a_vocabulary_of_tensor2tensor_is_used_and_never_replaced(
    size, folder, generate, tmp_path, capsys
):
    usr = folder(PAIRS.format(size=size))
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / f"vocab.zoo_pairs.{size}.subwords"
    shutil.copy(VOCABULARY, file)
    data = generate("zoo_pairs", usr)
    assert file.read_bytes() == VOCABULARY.read_bytes()
    problem = registry.problem("zoo_pairs")
    encoder = problem.features(data).inputs["inputs"].encoder
    assert isinstance(encoder, SubtokenEncoder)
    flags = ["--problem=zoo_pairs", f"--data_dir={data}", f"--tmp_dir={tmp_path / 'raw'}"]
    assert datagen.main([*flags, f"--t2t_usr_dir={usr}", "--overwrite"]) == 0
    assert file.read_bytes() == VOCABULARY.read_bytes()
    file.write_bytes(VOCABULARY.read_bytes() + b"'zz'\n")  # another one than that of the data
    assert datagen.main([*flags, f"--t2t_usr_dir={usr}"]) == 2
    assert "with another vocabulary" in capsys.readouterr().err


@pytest.mark.parametrize(
    "texts",
    ["", "\n  def generate_text_for_vocab(self, d, t):\n    return [str(i) for i in range(99)]\n"],
)
def test_a_vocabulary_too_small_for_sentencepiece_is_learnt_as_in_tensor2tensor(
    texts, folder, generate
):
    data = generate("zoo_pairs", folder(PAIRS.format(size=2**7) + texts))
    assert holds_subtokens(data / "vocab.zoo_pairs.128.subwords")
    assert SubtokenEncoder.load(data / "vocab.zoo_pairs.128.subwords").vocab_size < 150
