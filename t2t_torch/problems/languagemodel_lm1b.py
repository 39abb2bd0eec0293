"""One Billion Words: 30 million sentences of news, in random order.

Source: Chelba et al. 2013, "One Billion Word Benchmark for Measuring Progress in Statistical
Language Modeling", arXiv:1312.3005.
Licence: none stated for the text, which is WMT 2011's News Crawl; the scripts are Apache 2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import both_schemes, member, published
from t2t_torch.files import read_lines
from t2t_torch.mode import Split
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2SelfProblem, VocabType

_FOLDER = "1-billion-word-language-modeling-benchmark-r13output"
# From TensorFlow Datasets, url_checksums/lm1b.txt.
_ARCHIVE = published(
    "lm1b",
    *both_schemes(f"www.statmt.org/lm-benchmark/{_FOLDER}.tar.gz"),
    sha256="01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
)
# The 793,471 words of the published benchmark.  No checksum is published.
_WORDS = published(
    "lm1b",
    "http://download.tensorflow.org/models/LM_LSTM_CNN/vocab-2016-09-10.txt",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/vocab-2016-09-10.txt",
)
_TRAIN = f"{_FOLDER}/training-monolingual.tokenized.shuffled"
_HELD_OUT = f"{_FOLDER}/heldout-monolingual.tokenized.shuffled"
_FILES = {
    Split.TRAIN: tuple(
        member(_ARCHIVE, f"{_TRAIN}/news.en-{i:05d}-of-00100") for i in range(1, 100)
    ),
    Split.EVAL: (member(_ARCHIVE, f"{_HELD_OUT}/news.en.heldout-00000-of-00050"),),
}
_UNKNOWN = "UNK"  # tensor2tensor's


@register_problem("languagemodel_lm1b32k")
class LanguagemodelLm1b32k(Text2SelfProblem):
    """News sentences; words outside the benchmark's vocabulary are replaced by UNK.

    The raw files are the 99 training files and the first held-out file, as in published results.
    To compare a loss per token with these, multiply it by tokens per word, as `word_perplexity`
    does.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1}
    sources = (*(file for files in _FILES.values() for file in files), _WORDS)
    approx_vocab_size = 2**15
    max_samples_for_vocab = 63_000  # tensor2tensor's
    target_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    suggested_flags = "--model=transformer --hparams_set=transformer_base"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the sentences."""
        known = {word.strip() for word in read_lines(_WORDS.get(tmp_dir))}
        for file in _FILES[split]:
            path = file.get(tmp_dir)
            for record in open_records(path, format="lines", bad=self.bad_records):
                words = record.values["text"].split()
                if words:
                    replaced = (word if word in known else _UNKNOWN for word in words)
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
