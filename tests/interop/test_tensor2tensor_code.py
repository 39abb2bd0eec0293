"""Problems and hyperparameters that were written for tensor2tensor, run as they are.

The shapes of the files are those of public folders of its users:

- one file of pairs, dealt to the splits (july1997/japanese_talk_api_transformer,
  Drunkar/japanese_talk_api_transformer, mojtaba-sabbagh/t2t, whose raw files are in the data
  directory);
- a language model of lines (sanswons/Software-Bug-Prediction);
- translation from archives (prasastoadi/tensor2tensor-paperspace);
- words of a file (awsm-research/tensor2tensor_tutorial, jjuraska/slug2slug);
- classes of texts and of pairs of texts (tensor2tensor's own cola.py, rte.py and quora_qpairs.py).
"""

from __future__ import annotations

import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import trainer
from t2t_torch.errors import HParamsError, RegistryError
from t2t_torch.interop import tensor2tensor_problems as problems
from t2t_torch.interop.tensor2tensor_problems import MEMBERS
from t2t_torch.interop.tensor2tensor_registry import T2THParams
from t2t_torch.mode import Split
from t2t_torch.pipeline.loader import Dataset

DEALT = """
@registry.register_problem
class LinesOfPoems(text_problems.Text2TextProblem):
  \"\"\"Predicts the next line.\"\"\"

  @property
  def approx_vocab_size(self):
    return 2**9

  @property
  def is_generate_per_split(self):
    return False

  @property
  def dataset_splits(self):
    return [{"split": problem.DatasetSplit.TRAIN, "shards": 9},
            {"split": problem.DatasetSplit.EVAL, "shards": 1}]

  def eval_metrics(self):
    return [metrics.Metrics.ACC, metrics.Metrics.APPROX_BLEU]

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    del dataset_split
    with tf.gfile.GFile(os.path.join(tmp_dir, "poems.txt")) as f:
      lines = [line.strip() for line in f]
    tf.logging.info("%d lines", len(lines))
    for i in range(len(lines) - 1):
      yield {"inputs": lines[i], "targets": lines[i + 1]}
"""


def texts(problem: str, data: Path, split: Split) -> list[dict[str, str]]:
    return [dict(row) for row in Dataset(problem, data, split)]


LINES = "".join(f"line {number} of the poem\n" for number in range(101))


def test_samples_of_one_call_are_dealt_to_the_splits(folder, generate):
    usr = folder(DEALT)
    data = generate("lines_of_poems", usr, poems__txt=LINES)
    dev = texts("lines_of_poems", data, Split.EVAL)
    # tensor2tensor writes sample k to shard k mod 10; the tenth is the one of the dev split.
    assert sorted(row["inputs"] for row in dev) == sorted(
        f"line {number} of the poem" for number in range(9, 100, 10)
    )
    assert len(texts("lines_of_poems", data, Split.TRAIN)) == 90
    assert registry.problem("lines_of_poems").metrics == ("accuracy", "approx_bleu_score")


def test_modules_of_tensorflow_are_not_left_to_other_libraries(folder):
    folder(DEALT.replace("LinesOfPoems", "OtherLines"))
    registry.problem("other_lines")
    assert "tensorflow" not in sys.modules
    assert "six.moves" not in sys.modules or find_spec("six")  # six itself, where it is installed
    with pytest.raises(ImportError):
        import tensorflow  # noqa: F401
    with pytest.raises(ImportError):
        import tensor2tensor  # noqa: F401


def test_a_language_model_reads_raw_files_of_the_data_directory(folder, generate, tmp_path):
    usr = folder(
        """
@registry.register_problem("code_lines")
class Lines(text_problems.Text2SelfProblem):
  @property
  def vocab_type(self):
    return text_problems.VocabType.CHARACTER

  def is_generate_per_split(self):  # a method: always true in tensor2tensor
    return False

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    with open(os.path.join(data_dir, "raw.txt")) as f:
      for line in f:
        yield {"targets": dataset_split + ": " + line.strip()}
"""
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "raw.txt").write_text("def a(): pass\n" * 5)
    data = generate("code_lines", usr)
    assert {row["targets"] for row in texts("code_lines", data, Split.EVAL)} == {
        "eval: def a(): pass"
    }


CLASSES = """
@registry.register_problem
class KindOfText(text_problems.Text2ClassProblem):
  @property
  def is_generate_per_split(self):
    return True

  @property
  def approx_vocab_size(self):
    return 300

  @property
  def num_classes(self):
    return 3

  def class_labels(self, data_dir):
    return ["wool", "cotton", "silk"]

  def hparams(self, defaults, unused_model_hparams):
    p = defaults
    p.modality = {"inputs": modalities.ModalityType.SYMBOL}

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(30):
      yield {"inputs": "text number %d" % i, "label": i % 3}


@registry.register_problem
class KindOfPair(text_problems.TextConcat2ClassProblem):
  @property
  def is_generate_per_split(self):
    return True

  @property
  def approx_vocab_size(self):
    return 300

  @property
  def num_classes(self):
    return 2

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(30):
      yield {"inputs": ["first %d" % i, "second %d" % i], "label": i % 2}
"""


def test_classes_keep_their_numbers(folder, generate):
    usr = folder(CLASSES)
    data = generate("kind_of_text", usr)
    assert (data / "labels.kind_of_text.targets.txt").read_text() == "wool\ncotton\nsilk\n"
    found = {row["inputs"]: row["targets"] for row in texts("kind_of_text", data, Split.EVAL)}
    assert found["text number 7"] == "cotton"
    data = generate("kind_of_pair", usr)
    row = min(texts("kind_of_pair", data, Split.EVAL), key=lambda row: row["first"])
    assert row == {"first": "first 0", "second": "second 0", "targets": "ID_0"}


def test_translation_reads_archives(folder, generate, tmp_path):
    usr = folder(
        """
_TRAIN = [["https://example.com/corpus.tgz", ("train.en", "train.id")]]
_DEV = [["https://example.com/dev.tgz", ("dev.en", "dev.id")]]


@registry.register_problem
class TranslateEnid(translate.TranslateProblem):
  @property
  def approx_vocab_size(self):
    return 2**9

  @property
  def vocab_filename(self):
    return "vocab.enid.%d" % self.approx_vocab_size

  @property
  def input_space_id(self):
    return problem.SpaceID.EN_TOK

  def source_data_files(self, dataset_split):
    return _TRAIN if dataset_split == problem.DatasetSplit.TRAIN else _DEV
"""
    )
    raw = tmp_path / "raw"
    raw.mkdir()
    for archive, split in (("corpus", "train"), ("dev", "dev")):
        with tarfile.open(raw / f"{archive}.tgz", "w:gz") as packed:
            for language in ("en", "id"):
                file = tmp_path / "text"
                file.write_text("".join(f"{language} {split} line {i}\n" for i in range(40)))
                packed.add(file, f"{split}.{language}")
    data = generate("translate_enid", usr)
    assert {"inputs": "en dev line 3", "targets": "id dev line 3"} in texts(
        "translate_enid", data, Split.EVAL
    )
    assert (data / "vocab.enid.512").exists()
    assert registry.problem("translate_enid_rev").target_space_id == 3


def test_words_of_a_file_and_pairs_of_the_raw_folder(folder, generate, tmp_path):
    usr = folder(
        """
@registry.register_problem
class WordsToWords(text_problems.Text2textTmpdirTokens):
  @property
  def vocab_filename(self):
    return "vocab.words.tokens"

  @property
  def oov_token(self):
    return "UNK"
"""
    )
    data = tmp_path / "data"
    data.mkdir()
    (data / "vocab.words.tokens").write_text("<pad>\n<EOS>\nUNK\na\nb\n")
    pairs = {f"{side}__{split}__txt": "a b c\n" for side in ("inputs", "targets")
             for split in ("train", "eval")}  # fmt: skip
    assert generate("words_to_words", usr, **pairs) == data
    assert texts("words_to_words", data, Split.TRAIN)[0]["inputs"] == "a b UNK"


def test_lists_are_parsed_whole_and_what_changes_nothing_is_left_out():
    hparams = T2THParams(registry.model("text_cnn").HParams())
    parsed = hparams.parse("kernel_sizes=[3,5],num_filters=10, daisy_chain_variables=True")
    assert parsed.kernel_sizes == (3, 5) and parsed.num_filters == 10
    assert parsed.changed == {"kernel_sizes", "num_filters"}
    assert parsed.ours().kernel_sizes == (3, 5)


SETS = """
@registry.register_hparams
def transformer_small_poems():
  hparams = transformer.transformer_base()
  hparams.num_hidden_layers = 2
  hparams.hidden_size = 128
  hparams.optimizer = "Adam"
  hparams.attention_key_channels = 0
  hparams.daisy_chain_variables = False
  hparams.parse("num_heads=4,filter_size=512")
  hparams.add_hparam("my_own_value", 3)
  return hparams


@registry.register_hparams("from_nothing")
def own():
  from tensor2tensor.layers import common_hparams
  hp = common_hparams.basic_params1()
  hp.num_hidden_layers = 2
  hp.add_hparam("filter_size", 2048)
  return hp


@registry.register_hparams
def with_experts():
  hparams = transformer.transformer_base()
  hparams.ffn_layer = "local_moe_tpu"
  return hparams


@registry.register_hparams
def lstm_poems():
  hparams = lstm.lstm_luong_attention()
  hparams.hidden_size = 64
  return hparams


@registry.register_ranged_hparams
def poems_range(rhp):
  rhp.set_float("learning_rate", 0.05, 0.25, scale=rhp.LOG_SCALE)
  rhp.set_int("num_hidden_layers", 2, 4)
"""


def test_sets_of_hyperparameters(folder):
    folder(SETS)
    made = registry.hparams("transformer_small_poems")
    assert (made.hidden_size, made.num_heads, made.filter_size) == (128, 4, 512)
    assert made.optimizer == "adam" and made.learning_rate_constant == 2.0
    assert made.provenance["hidden_size"] == "transformer_small_poems"
    assert registry.hparams("from_nothing").filter_size == 2048
    assert registry.hparams("lstm_poems").attention_mechanism == "luong"
    with pytest.raises(HParamsError, match="ffn_layer=local_moe_tpu"):
        registry.hparams("with_experts")
    assert list(registry.ranged_hparams("poems_range").ranges) == [
        "learning_rate",
        "num_hidden_layers",
    ]


REFUSED = {
    "own_encoders": (
        """
@registry.register_problem
class OwnEncoders(text_problems.Text2TextProblem):
  is_generate_per_split = True
  def feature_encoders(self, data_dir):
    return {"inputs": text_encoder.ByteTextEncoder()}
""",
        "defines feature_encoders",
    ),
    "old_style": (
        """
@registry.register_problem
class OldStyle(text_problems.Text2TextProblem):
  is_generate_per_split = True
  def generator(self, data_dir, tmp_dir, is_training):
    yield {}
""",
        "before 1.4",
    ),
    "pictures": (
        """
from tensor2tensor.data_generators import image_utils
@registry.register_problem
class Pictures(image_utils.Image2ClassProblem):
  pass
""",
        "tensor2tensor.data_generators.image_utils.Image2ClassProblem is not in t2t_torch",
    ),
    "calls_tensorflow": (
        """
@registry.register_problem
class CallsTensorflow(text_problems.Text2TextProblem):
  SIZE = tf.shape([1])
""",
        "tensorflow.shape is not in t2t_torch",
    ),
    "changes_examples": (
        """
@registry.register_problem
class ChangesExamples(text_problems.Text2TextProblem):
  is_generate_per_split = True
  def preprocess_example(self, example, mode, hparams):
    example["inputs"] = example["inputs"][:hparams.max_length]
    return example
""",
        "defines preprocess_example",
    ),
    "of_the_base": (
        """
@registry.register_problem
class OfTheBase(problem.Problem):
  pass
""",
        "Text2TextProblem",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_here_is_refused_by_name(name, folder):
    source, said = REFUSED[name]
    folder(source)
    with pytest.raises(RegistryError, match=said):
        registry.problem(name)


def test_a_model_of_tensorflow_is_refused_by_name(folder):
    folder(
        """
@registry.register_model
class MyNet(t2t_model.T2TModel):
  def body(self, features):
    return tf.layers.dense(features["inputs"], 3)


@registry.register_model("other_net")
class Other(transformer.Transformer):
  pass
"""
    )
    for name in ("my_net", "other_net"):
        with pytest.raises(RegistryError, match=f"model '{name}' is a model of TensorFlow"):
            registry.model(name)(None, None)


def test_a_base_class_that_is_not_here_refuses_its_problems_alone(folder, generate):
    usr = folder(
        """
from tensor2tensor.data_generators import image_utils, wiki_lm


class Base(wiki_lm.LanguagemodelEnWiki64k, text_problems.Text2SelfProblem):
  pass


@registry.register_problem
class OnWikipedia(Base):
  pass


@registry.register_problem
class WithItsVocabulary(text_problems.Text2TextProblem):
  is_generate_per_split = False

  @property
  def use_vocab_from_other_problem(self):
    return wiki_lm.LanguagemodelEnWiki64k()
"""
        + DEALT
    )
    named = "wiki_lm.LanguagemodelEnWiki64k is not in t2t_torch"
    for name in ("on_wikipedia", "with_its_vocabulary"):
        with pytest.raises(RegistryError, match=named):
            registry.problem(name)
    generate("lines_of_poems", usr, poems__txt=LINES)


def test_methods_that_call_those_of_the_base_class(folder):
    folder(
        """
@registry.register_problem
class Delegates(text_problems.Text2TextProblem):
  is_generate_per_split = True

  def eval_metrics(self):
    return super(Delegates, self).eval_metrics() + [metrics.Metrics.ROUGE_2_F]

  def preprocess_example(self, example, mode, hparams):
    del mode
    return problem.Problem.preprocess_example(self, example, "train", hparams)

  @property
  def oov_token(self):
    return generator_utils.text_encoder.to_unicode(b"UNK")
"""
    )
    assert registry.problem("delegates").metrics[-1] == "rouge_2_fscore"
    assert registry.problem("delegates").oov_token == "UNK"


def test_a_problem_of_the_user_replaces_ours_of_the_same_name(
    folder, generate, caplog, monkeypatch
):
    ours = registry.problem("translate_ende_wmt32k")
    known = registry._STATE.objects["problem"]
    monkeypatch.setitem(known, ours.name, known[ours.name])  # for the tests that follow
    caplog.set_level("INFO")
    usr = folder(
        """
@registry.register_problem
class TranslateEndeWmt32k(text_problems.Text2TextProblem):
  is_generate_per_split = False
  vocab_type = text_problems.VocabType.CHARACTER
  dataset_splits = [{"split": "train", "shards": 1}, {"split": "eval", "shards": 1}]

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(20):
      yield {"inputs": "number %d" % i, "targets": "Zahl %d" % i}
"""
    )
    assert f"'translate_ende_wmt32k' is that of {usr / 'own.py'}" in caplog.text
    data = generate("translate_ende_wmt32k", usr)
    assert len(texts("translate_ende_wmt32k", data, Split.TRAIN)) == 10
    assert type(registry.problem("translate_ende_wmt32k")) is not type(ours)
    assert registry.problem("translate_ende_wmt8k").name == "translate_ende_wmt8k"


def test_spaces_have_tensor2tensors_numbers(folder):
    folder(
        """
@registry.register_problem
class CzechFromGerman(text_problems.Text2TextProblem):
  is_generate_per_split = True
  input_space_id = problem.SpaceID.DE_TOK
  target_space_id = problem.SpaceID.CS_TOK
"""
    )
    found = registry.problem("czech_from_german")
    assert (found.input_space_id, found.target_space_id) == (8, 21)


def test_questions_with_a_context_and_a_subclass_of_the_reviews(folder, generate):
    usr = folder(
        """
from tensor2tensor.data_generators import imdb


@registry.register_problem
class Answers(text_problems.QuestionAndContext2TextProblem):
  is_generate_per_split = True
  approx_vocab_size = 100

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(200):
      yield {"inputs": "which %d?" % i, "context": "it is %d." % i, "targets": str(i)}


@registry.register_problem
class Reviews(imdb.SentimentIMDB):
  approx_vocab_size = 100

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(20):
      yield {"inputs": "review %d" % i, "label": i % 2 == 0}
"""
    )
    data = generate("answers", usr)
    row = {"inputs": "which 7?", "context": "it is 7.", "targets": "7"}
    assert row in texts("answers", data, Split.EVAL)
    data = generate("reviews", usr)
    assert {"inputs": "review 2", "targets": "pos"} in texts("reviews", data, Split.EVAL)


CLASSIFIER = """
from tensor2tensor.models.transformer import transformer_base


@registry.register_problem
class LastLetter(text_problems.Text2ClassProblem):
  is_generate_per_split = True
  vocab_type = text_problems.VocabType.CHARACTER
  num_classes = 4
  dataset_splits = [{"split": "train", "shards": 1}, {"split": "eval", "shards": 1}]

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(40):
      yield {"inputs": "ACGT"[i % 3] + "ACGT"[i % 4], "label": i % 4}


@registry.register_hparams
def transformer_base_h32():
  hparams = transformer_base()
  hparams.hidden_size = 32
  hparams.batch_size = 256
  hparams.num_heads = 2
  hparams.num_encoder_layers = 1
  hparams.num_decoder_layers = 2
  hparams.filter_size = 64
  return hparams
"""


def test_a_classifier_trains_with_a_set_of_the_transformer(folder, generate, tmp_path, capsys):
    usr = folder(CLASSIFIER)
    data = generate("last_letter", usr)
    flags = ["--problem=last_letter", "--model=transformer_encoder", f"--data_dir={data}"]
    flags += [
        f"--t2t_usr_dir={usr}",
        "--train_steps=2",
        "--worker_gpu=0",
        "--hparams=summary=first",
    ]
    run = tmp_path / "run"
    assert trainer.main([*flags, "--hparams_set=transformer_base_h32", f"--output_dir={run}"]) == 0
    said = capsys.readouterr().err
    assert "model 'transformer_encoder' does not read num_decoder_layers=2\n" in said
    model = t2t_torch.load(run).model
    assert len(model.encoder) == 1 and model.hparams.hidden_size == 32


MEMBERS_OF_1_15_7 = {
    line.split()[1]
    for line in (Path(__file__).parent.parent / "golden" / "tensor2tensor_members.txt")
    .read_text("utf-8")
    .splitlines()[1:]
}
OF_OTHER_VERSIONS = {"input_space_id", "target_space_id", "global_task_id", "generator"}


def test_every_member_of_tensor2tensors_problems_is_honoured_or_refused_by_name():
    assert set(MEMBERS) == MEMBERS_OF_1_15_7 | OF_OTHER_VERSIONS
    page = Path(__file__).parents[2] / "docs" / "how_to" / "from_tensor2tensor.md"
    lines = page.read_text("utf-8").splitlines()
    for name, (rule, text) in MEMBERS.items():
        assert f"| `{name}` | {rule} | {text} |" in lines


def test_what_the_base_classes_define_is_in_the_table():
    known = set(MEMBERS) | {"name", "__module__", "__doc__", "__dict__", "__weakref__"}
    for kind in (*vars(problems).values(),):
        if isinstance(kind, type) and issubclass(kind, problems.T2TProblem):
            assert {name for name in vars(kind) if not name.startswith("__")} <= known


KINDS = {
    "class_labels": "Text2ClassProblem",
    "num_classes": "Text2ClassProblem",
    "CONCAT_TOKEN": "TextConcat2ClassProblem",
    "ntasks": "Text2RealProblem",
    "QUESTION_SEPARATOR": "QuestionAndContext2TextProblem",
    "QUESTION_SEPARATOR_ID": "QuestionAndContext2TextProblem",
}
OTHER_VALUES = {  # of members that have to be what the base class has
    "example_reading_spec": "def {}(self): return {{'inputs': 0, 'targets': 0, 'scores': 0}}, None",
    "preprocess_example": "def {}(self, example, mode, hparams): return dict(example, inputs=[])",
}
SAME_VALUES = {
    "example_reading_spec": "def {}(self):\n"
    "    fields = {{'inputs': tf.VarLenFeature(tf.int64), 'targets': tf.VarLenFeature(tf.int64)}}\n"
    "    return fields, None",
    "preprocess_example": "def {}(self, example, mode, hparams):\n"
    "    return problem.preprocess_example_common(example, mode, hparams)",
    "decode_hooks": "{} = []",
    "multiprocess_generate": "{} = False",
    "packed_length": "{} = None",
    "datatypes_to_clean": "@property\ndef {}(self): return None",
    "CONCAT_TOKEN": "{} = '$'",
    "QUESTION_SEPARATOR": "{} = '<EOQ>'",
    "QUESTION_SEPARATOR_ID": "{} = 2",
}


def named(rule: str) -> list[str]:
    return sorted(name for name, member in MEMBERS.items() if member.rule == rule)


def class_of(member: str, source: str, number: int) -> str:
    kind = KINDS.get(member, "Text2TextProblem")
    lines = source.format(member).replace("\n", "\n  ")
    base = "translate.TranslateProblem" if member == "datatypes_to_clean" else kind
    base = base if "." in base else f"text_problems.{base}"
    return (
        f"@registry.register_problem('own_{member.lower().strip('_')}_{number}')\n"
        f"class Own{number}_{member}({base}):\n  is_generate_per_split = True\n  {lines}\n"
    )


def test_overrides_that_are_not_used_are_refused_and_those_of_the_same_value_are_not(folder):
    sources = [class_of(name, "def {}(self, *a, **k): return 1", 0) for name in named("refused")]
    sources += [class_of(n, OTHER_VALUES.get(n, "{} = 9"), 1) for n in named("default")]
    sources += [class_of(n, SAME_VALUES[n], 2) for n in named("default")]
    sources += [class_of(n, "def {}(self, *a, **k): return 1", 3) for n in named("unread")]
    folder(*sources)
    for number, rule in ((0, "refused"), (1, "default")):
        for name in named(rule):
            with pytest.raises(RegistryError, match=f"defines {name}: it {MEMBERS[name].text[:9]}"):
                registry.problem(f"own_{name.lower().strip('_')}_{number}")
    for number, rule in ((2, "default"), (3, "unread")):
        for name in named(rule):
            registry.problem(f"own_{name.lower().strip('_')}_{number}")


HONOURED = """
from collections import Counter


def rows(split):
  return 60 if split == problem.DatasetSplit.TRAIN else 5


@registry.register_problem
class Base(text_problems.Text2TextProblem):
  is_generate_per_split = True
  approx_vocab_size = 150
  dataset_splits = [{"split": "train", "shards": 1}, {"split": "eval", "shards": 1}]

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(rows(dataset_split)):
      yield {"inputs": "in number %d" % i, "targets": "out antidisestablishment %d" % i}


@registry.register_problem
class Everything(Base):
  inputs_prefix = "summarize: "
  targets_prefix = "summary: "
  additional_reserved_tokens = ["<SEP>", "<EOQ>"]
  max_subtoken_length = 4
  already_shuffled = True
  batch_size_means_tokens = False

  def __init__(self, *args, **kwargs):
    super(Everything, self).__init__(*args, **kwargs)
    self.made = True

  def max_length(self, model_hparams):
    return 17 + model_hparams.max_length

  def hparams(self, defaults, model_hparams):
    super(Everything, self).hparams(defaults, model_hparams)
    p = defaults
    p.stop_at_eos = int(True)
    p.batch_size_multiplier = 4
    p.vocab_size["inputs"] = self._encoders["inputs"].vocab_size
    p.input_space_id = problem.SpaceID.EN_TOK
    p.target_space_id = problem.SpaceID.DE_TOK


@registry.register_problem
class OldHparams(Base):
  def hparams(self, defaults, unused_model_hparams):
    p = defaults
    size = self._encoders["inputs"].vocab_size
    p.input_modality = {"inputs": (registry.Modalities.SYMBOL, size)}
    p.target_modality = (registry.Modalities.SYMBOL, size)


@registry.register_problem
class TargetsAlone(Base):
  has_inputs = False


@registry.register_problem
class Vocabulary(Base):
  def generate_text_for_vocab(self, data_dir, tmp_dir):
    return ["zebra zebra yak yak"] * 9


@registry.register_problem
class CallsTheBase(Base):
  def get_or_create_vocab(self, data_dir, tmp_dir, force_get=False):
    return super(CallsTheBase, self).get_or_create_vocab(data_dir, tmp_dir, force_get)


@registry.register_problem
class Numbers(text_problems.Text2RealProblem):
  is_generate_per_split = True
  vocab_type = text_problems.VocabType.CHARACTER
  ntasks = 2

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(rows(dataset_split)):
      yield {"inputs": str(i), "targets": [i / 2, i * 2]}


@registry.register_problem
class Elsewhere(text_problems.Text2TextRemotedir):
  SRC_REMOTE_DIR = os.path.join(os.path.dirname(__file__), "texts")
  TRAIN_FILES = ("a.txt", "b.txt")
  EVAL_FILES = ("a.txt", "b.txt")
  vocab_type = text_problems.VocabType.CHARACTER


@registry.register_problem
class Raises(Base):
  @property
  def inputs_prefix(self):
    raise NotImplementedError()


@registry.register_problem
class WrongHparams(Base):
  def hparams(self, defaults, unused_model_hparams):
    defaults.modality = {"inputs": modalities.ModalityType.IDENTITY}
    defaults.vocab_size = {"targets": 77}
    defaults.loss_multiplier = 3.0
    defaults.add_hparam("mine", 1)
"""


def test_prefixes_reserved_tokens_and_settings_of_a_problem_are_used(folder, generate):
    usr = folder(HONOURED)
    found = registry.problem("everything")
    assert (found.input_space_id, found.target_space_id) == (3, 8)
    assert found.batch_size_multiplier == 4 and not found.batch_size_means_tokens
    assert found.user.made and found.keeps_order
    assert found.max_length(registry.hparams("transformer_tiny").replace(max_length=3)) == 20
    data = generate("everything", usr)
    row = texts("everything", data, Split.EVAL)[1]  # in the order of the samples
    assert row["inputs"] == "summarize: in number 1"
    assert row["targets"] == "summary: out antidisestablishment 1"
    pieces = (data / "vocab.everything.150.subwords").read_text("utf-8").splitlines()
    assert pieces[2:4] == ["'<SEP>_'", "'<EOQ>_'"]
    assert max(len(piece) for piece in pieces[4:]) == 3 + 2  # less than 4, and quotes
    registry.problem("old_hparams")


def test_kinds_of_samples_and_vocabularies_follow_from_overrides(folder, generate):
    usr = folder(HONOURED)
    (usr / "texts").mkdir()
    for name in ("a", "b"):
        (usr / "texts" / f"{name}.txt").write_text(f"text {name}\n" * 9)
    assert texts("targets_alone", generate("targets_alone", usr), Split.EVAL)[0].keys() == {
        "targets"
    }
    data = generate("vocabulary", usr)
    assert "'yak_'" in (data / "vocab.vocabulary.150.subwords").read_text("utf-8")
    generate("calls_the_base", usr)
    data = generate("numbers", usr)
    assert registry.problem("numbers").features(data).targets["targets"].size == 2
    assert texts("elsewhere", generate("elsewhere", usr), Split.TRAIN)[0]["targets"] == "text b"
    said = (
        "hparams of tensor2tensor problem 'wrong_hparams' sets modality 'identity' of 'inputs', "
        "vocab_size of 'targets', loss_multiplier=3.0, mine, which nothing here reads"
    )
    with pytest.raises(RegistryError, match=said):
        registry.problem("wrong_hparams")
    said = r"defines inputs_prefix: it raises NotImplementedError\(\) in line"
    with pytest.raises(RegistryError, match=said):
        registry.problem("raises")


def test_keys_and_labels_of_samples_that_do_not_fit_are_named(folder, generate, capsys):
    usr = folder(
        """
class Base(text_problems.Text2TextProblem):
  is_generate_per_split = True
  vocab_type = text_problems.VocabType.CHARACTER
  SAMPLE = None

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    yield self.SAMPLE


@registry.register_problem
class OtherKeys(Base):
  SAMPLE = {"source": "a", "targets": "b"}


@registry.register_problem
class NoMapping(Base):
  SAMPLE = ("a", "b")


@registry.register_problem
class TextLabel(Base, text_problems.Text2ClassProblem):
  num_classes = 2
  SAMPLE = {"inputs": "a", "label": "pos"}


@registry.register_problem
class TargetsOfClasses(Base, text_problems.Text2ClassProblem):
  num_classes = 2
  SAMPLE = {"inputs": "a", "targets": 1}
"""
    )
    for problem, said in {
        "other_keys": "yields the keys ['source', 'targets'], without 'inputs': samples of this",
        "no_mapping": "yields ('a', 'b'), not a dict of {'inputs', 'targets'}",
        "text_label": "yields the label 'pos'; it is a number from 0 to 1",
        "targets_of_classes": "without 'label': samples of this kind of problem are {'inputs', 'la",
    }.items():
        with pytest.raises(AssertionError):
            generate(problem, usr)
        assert said in capsys.readouterr().err


def test_problems_of_the_catalogue_are_base_classes(folder, generate, tmp_path):
    usr = folder(
        """
from tensor2tensor.data_generators import translate_encs, translate_envi
from tensor2tensor.data_generators.imdb import SentimentIMDB


@registry.register_problem
class OwnVietnamese(translate_envi.TranslateEnviIwslt32k):
  approx_vocab_size = 300

  def source_data_files(self, dataset_split):
    return [["", ("train.en", "train.vi")]]


@registry.register_problem
class SmallVietnamese(translate_envi.TranslateEnviIwslt32k):
  approx_vocab_size = 300


@registry.register_problem
class OwnCzech(translate_encs.TranslateEncsWmt32k):
  @property
  def use_vocab_from_other_problem(self):
    return translate_encs.TranslateEncsWmt32k()


@registry.register_problem
class OwnReviews(SentimentIMDB):
  pass
"""
    )
    data = generate("own_vietnamese", usr, train__en="one\n" * 9, train__vi="ba\n" * 9)
    assert texts("own_vietnamese", data, Split.EVAL)[0] == {"inputs": "one", "targets": "ba"}
    (tmp_path / "raw" / "envi").mkdir()
    for archive, split in (("train", "train"), ("dev-2012", "tst2012")):
        with tarfile.open(tmp_path / "raw" / "envi" / f"{archive}-en-vi.tgz", "w:gz") as packed:
            for language in ("en", "vi"):
                (tmp_path / "text").write_text(f"{language} {split}\n" * 5)
                packed.add(tmp_path / "text", f"{split}.{language}")
    data = generate("small_vietnamese", usr)
    assert texts("small_vietnamese", data, Split.EVAL)[0] == {
        "inputs": "en tst2012",
        "targets": "vi tst2012",
    }
    czech = registry.problem("own_czech")
    assert czech.use_vocab_from_other_problem == "translate_encs_wmt32k"
    assert czech.target_space_id == registry.problem("translate_encs_wmt32k").target_space_id
    assert registry.problem("own_reviews").user.class_labels("") == ["neg", "pos"]


def test_translation_reads_marked_up_files_and_tables(folder, generate, tmp_path):
    usr = folder(
        """
@registry.register_problem
class Marked(translate.TranslateProblem):
  approx_vocab_size = 100

  def source_data_files(self, dataset_split):
    if dataset_split == problem.DatasetSplit.TRAIN:
      return [["", ("tsv", 2, 1, "table*.tsv")]]
    return [["", ("dev.en.sgm", "dev.de.sgm")]]

  def vocab_data_files(self):
    return [["", ("words.en", "words.de")]]
"""
    )
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(2):
        (raw / f"table{number}.tsv").write_text(f"x\tGerman {number}\tEnglish {number}\n" * 3)
    for language in ("en", "de"):
        line = f'<seg id="1">a {language}</seg>'
        (raw / f"dev.{language}.sgm").write_text(f'<srcset>\n<doc id="a">\n<p>\n{line}\n</p>\n')
        (raw / f"words.{language}").write_text("giraffe\n" * 20)
    data = generate("marked", usr)
    assert texts("marked", data, Split.EVAL) == [{"inputs": "a en", "targets": "a de"}]
    found = {row["inputs"]: row["targets"] for row in texts("marked", data, Split.TRAIN)}
    assert found == {"English 0": "German 0", "English 1": "German 1"}
    assert "giraffe" in (data / "vocab.marked.100.subwords").read_text("utf-8")


def test_files_that_the_folder_does_not_import_are_not_read(folder, generate, head):
    copy = head + DEALT  # of the same problem
    usr = folder(DEALT, old_copy=copy, broken="print 'of another version'\n")
    generate("lines_of_poems", usr, poems__txt=LINES)
    (usr / "__init__.py").write_text("from . import own, old_copy\n")
    registry._STATE.forget_index()
    with pytest.raises(RegistryError, match="declared twice"):
        registry.problem("lines_of_poems")


@pytest.mark.parametrize(
    "init",
    [
        "",
        "import importlib, glob\nfor f in glob.glob('*'):\n  importlib.import_module(f)\n",
        "from glob import iglob\nfor f in iglob('*'):\n  exec('from . import ' + f)\n",
    ],
)
def test_all_files_are_read_if_the_folder_does_not_say_which(folder, init):
    usr = folder(DEALT)
    (usr / "__init__.py").write_text(init)
    assert {path.name for path in registry.sources(usr)} == {"__init__.py", "own.py"}
    package = usr / "more"
    package.mkdir()
    (package / "__init__.py").write_text("from .two import *\n")
    (package / "two.py").write_text(f"import {usr.name}.three\n")
    for name in ("three", "four"):
        (usr / f"{name}.py").write_text("")
    (usr / "__init__.py").write_text("from .own import LinesOfPoems\nfrom .more import x\n")
    names = {str(path.relative_to(usr)) for path in registry.sources(usr)}
    assert names == {"__init__.py", "own.py", "more/__init__.py", "more/two.py", "three.py"}
    (usr / "__init__.py").write_text("from . import own\ndef f():\n  global done\n")
    assert {path.name for path in registry.sources(usr)} == {"__init__.py", "own.py"}


def test_packages_beside_the_folder_and_star_imports_see_the_modules(
    folder, generate, head, tmp_path
):
    beside = tmp_path / "beside_of_poems"
    beside.mkdir()
    (beside / "__init__.py").write_text(
        head + "class Base(text_problems.Text2TextProblem):\n  pass\n"
    )
    usr = folder(
        """
from beside_of_poems import Base
from tensor2tensor.data_generators.text_problems import *
from tensor2tensor.models.transformer import *


@registry.register_problem
class WithBase(Base):
  vocab_type = VocabType.CHARACTER
  is_generate_per_split = True

  def generate_samples(self, data_dir, tmp_dir, dataset_split):
    for i in range(9):
      yield {"inputs": text_encoder.native_to_unicode("a"), "targets": "b"}


@registry.register_hparams
def of_star():
  return transformer_base()
"""
    )
    generate("with_base", usr)
    assert registry.hparams("of_star").hidden_size == 512
