"""Vocabularies of problems that were written for tensor2tensor."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen
from t2t_torch.errors import RegistryError
from t2t_torch.interop.tensor2tensor_problems import ByteTextEncoder, encoder_of
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


WORDS = """
@registry.register_problem
class WordPairs(text_problems.Text2TextProblem):
  is_generate_per_split = False
  dataset_splits = [{{"split": "train", "shards": 9}}, {{"split": "eval", "shards": 1}}]
  {settings}

  def pairs(self):
    for i in range(20):
      yield {{"inputs": "the word %d" % i, "targets": "das wort %d" % i}}
"""
TOKENS = "vocab_type = text_problems.VocabType.TOKEN"
LIST = "vocab_list=['the', 'word', 'das', 'wort', 'UNK'], replace_oov='UNK'"
BY_USER = {
    # the use that tensor2tensor's docstring of `vocab_type` names
    "a file that generate_samples copies": (
        f"{TOKENS}; oov_token = 'UNK'",
        """
  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    tf.gfile.Copy(os.path.join(tmp_dir, "mine.txt"),
                  os.path.join(data_dir, self.vocab_filename), overwrite=True)
    return self.pairs()
""",
    ),
    "a file that generate_samples writes": (
        f"{TOKENS}; oov_token = 'UNK'; vocab_filename = 'vocab.mine'",
        f"""
  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    encoder = text_encoder.TokenTextEncoder(None, {LIST})
    encoder.store_to_file(os.path.join(data_dir, self.vocab_filename))
    for pair in self.pairs():
      yield pair
""",
    ),
    "a file of get_or_create_vocab": (
        TOKENS,
        f"""
  def get_or_create_vocab(self, data_dir, tmp_dir, force_get=False):
    path = os.path.join(data_dir, self.vocab_filename)
    if not os.path.exists(path):
      text_encoder.TokenTextEncoder(None, {LIST}).store_to_file(path)
    return text_encoder.TokenTextEncoder(path, replace_oov="UNK")

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    return self.pairs()
""",
    ),
    "a list of get_or_create_vocab": (
        "",
        f"""
  def get_or_create_vocab(self, data_dir, tmp_dir, force_get=False):
    return text_encoder.TokenTextEncoder(None, {LIST})

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    return self.pairs()
""",
    ),
}


@pytest.mark.parametrize("way", BY_USER)
def test_words_that_the_users_code_writes(way, folder, generate, tmp_path):
    settings, code = BY_USER[way]
    usr = folder(WORDS.format(settings=settings) + code)
    mine = "<pad>\n<EOS>\nthe\nword\ndas\nwort\nUNK\n"
    data = generate("word_pairs", usr, mine__txt=mine)
    problem = registry.problem("word_pairs")
    assert (data / problem.vocab_filename).read_text() == mine
    encoder = problem.features(data).inputs["inputs"].encoder
    assert encoder.encode("the word 7") == [2, 3, 6]
    run = tmp_path / "run"  # which has the vocabulary alone
    run.mkdir()
    shutil.copy(data / problem.vocab_filename, run)
    assert problem.features(run).inputs["inputs"].encoder.encode("the word 7") == [2, 3, 6]


def test_subwords_of_get_or_create_vocab(folder, generate):
    usr = folder(
        WORDS.format(settings="approx_vocab_size = 100")
        + """
  def get_or_create_vocab(self, data_dir, tmp_dir, force_get=False):
    lines = (pair["inputs"] for pair in self.pairs())
    return generator_utils.get_or_generate_vocab_inner(
        data_dir, self.vocab_filename, self.approx_vocab_size, lines)

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    return self.pairs()
"""
    )
    data = generate("word_pairs", usr)
    encoder = registry.problem("word_pairs").features(data).inputs["inputs"].encoder
    assert encoder.decode(encoder.encode("the 3 ☃")) == "the 3 ☃"
    assert SubtokenEncoder.load(data / "vocab.word_pairs.100.subwords").vocab_size < 150


@pytest.mark.parametrize("settings", ["", "vocab_type = text_problems.VocabType.CHARACTER"])
def test_an_encoder_of_the_users_own_is_refused_by_name(settings, folder, tmp_path, capsys):
    usr = folder(
        WORDS.format(settings=settings)
        + """
  def get_or_create_vocab(self, data_dir, tmp_dir, force_get=False):
    return Letters()

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    return self.pairs()


class Letters(text_encoder.TextEncoder):
  vocab_size = 102
  def encode(self, s):
    return [ord(c) % 100 + 2 for c in s]
"""
    )
    flags = ["--problem=word_pairs", f"--data_dir={tmp_path}", f"--tmp_dir={tmp_path}"]
    assert datagen.main([*flags, f"--t2t_usr_dir={usr}"]) == 2
    assert "returns a Letters" in capsys.readouterr().err


class Reversed(ByteTextEncoder):
    def encode(self, s):
        return super().encode(s)[::-1]


def test_a_method_of_an_encoder_is_the_users_wherever_it_is_inherited_from():
    mixed = type("Mixed", (type("Turns", (), {"decode": len}), ByteTextEncoder), {})
    for kind in (Reversed, type("Child", (Reversed,), {}), mixed):
        with pytest.raises(RegistryError, match=f"returns a {kind.__name__}"):
            encoder_of(kind(), "zoo")
    named = type("Named", (ByteTextEncoder,), {"name": "bytes"})
    assert encoder_of(type("Child", (named,), {})(), "zoo").vocab_size == 258
