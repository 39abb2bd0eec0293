"""Trees: 3,914 of the Wall Street Journal, of phrases; 44,783 of requests, of intents and slots.

The Penn Treebank sample of NLTK: Marcus et al. 1993, "Building a Large Annotated Corpus of
English"; the package `treebank` of nltk_data.  Licence: LDC 1995 sample, for non-commercial use
only.  TOP, requests about navigation and events: Gupta et al. 2018, "Semantic Parsing for Task
Oriented Dialog using Hierarchical Representations", EMNLP, arXiv:1810.07942.  Licence: CC BY-SA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, on_github, published
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem import records_of
from t2t_torch.problem_types.words import Text2TreeProblem
from t2t_torch.registry import register_problem
from t2t_torch.text.tree import parse_tree

_ARCHIVE = published(
    "treebank",
    *on_github("nltk/nltk_data/gh-pages/packages/corpora/treebank.zip"),
    sha256="9da92d76c3666cfb6cddeaed0f7e86b344cce0f0928a286d439e555f19c37399",
)
_FOLDERS = ("treebank/treebank/combined", "treebank/combined", "combined")
_PARTS = {Split.TRAIN: range(1, 160), Split.EVAL: range(160, 180), Split.TEST: range(180, 200)}
_FILES = {
    split: tuple(
        RawFile(f"wsj_{i:04}.mrg", _FOLDERS, archive=_ARCHIVE, inside=("treebank/combined",))
        for i in numbers
    )
    for split, numbers in _PARTS.items()
}


class _SpelledSentences(Text2TreeProblem):
    """Settings of the problems that parse words by their spelling, too."""

    min_word_count = 2
    word_characters = 16
    word_shape = True


@register_problem("parsing_treebank_sample")
class ParsingTreebankSample(_SpelledSentences):
    """Parses words into phrase structure, without traces, with bare categories (NP-SBJ-1 is NP).

    The raw file is `treebank.zip`, or its content: `combined/wsj_{0001..0199}.mrg`.  There is no
    official split; here 0001-0159 are TRAIN, 0160-0179 EVAL and 0180-0199 TEST.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = _FILES
    approx_vocab_size = 2**13
    suggested_flags = "--model=rnng --hparams_set=rnng_treebank --train_steps=4000"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences with their trees."""
        for record in records_of(self, tmp_dir, split):
            try:
                tree = parse_tree(record.values["tree"]).without_traces().without_functions()
            except DataError as error:  # only traces
                self.bad_records.report(record.place, str(error))
            else:
                yield {"inputs": tree.words, "targets": tree.to_round()}


@register_problem("parsing_treebank_sample_tags")
class ParsingTreebankSampleTags(ParsingTreebankSample):
    """Parses words and their parts of speech into phrase structure.

    Given parts of speech are usual when parsers are compared without a tagger: Dyer et al. 2016,
    arXiv:1602.07776, section 7.
    """

    given_tags = True


# Checksum unknown.
_TOP_ARCHIVE = RawFile(
    "top-dataset-semantic-parsing.zip",
    ("top", ""),
    (
        "https://download.pytorch.org/data/semanticparsingdialog.zip",
        "https://fb.me/semanticparsingdialog",
    ),
    other_names=("semanticparsingdialog.zip",),
)
_TOP_PARTS = {Split.TRAIN: "train", Split.EVAL: "eval", Split.TEST: "test"}
_TOP_FILES = {
    split: RawFile(
        f"{part}.tsv",
        ("top", "", "top-dataset-semantic-parsing"),
        archive=_TOP_ARCHIVE,
        inside=("top-dataset-semantic-parsing", ""),
        other_names=(f"{part}_supported.tsv",),
    )
    for split, part in _TOP_PARTS.items()
}
_UNSUPPORTED = "[IN:UNSUPPORTED"


@register_problem("semantic_parse_top")
class SemanticParseTop(_SpelledSentences):
    """Parses the words of a request into a tree of intents and slots.

    The raw files are `{train,eval,test}.tsv` with request, words and tree, or
    `{train,eval,test}_supported.tsv` with words and tree, all tab-separated.  Requests with
    IN:UNSUPPORTED intents are left out, as in the paper.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 2, Split.EVAL: 1, Split.TEST: 1}
    sources = _TOP_FILES
    approx_vocab_size = 2**14
    suggested_flags = "--model=rnng --hparams_set=rnng_top --train_steps=9000"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests with their trees."""
        for record in records_of(self, tmp_dir, split, "tsv", header=False):
            *_, bracketed = record.values.values()
            if _UNSUPPORTED in bracketed:
                continue
            try:
                tree = parse_tree(bracketed)
            except DataError as error:
                self.bad_records.report(record.place, str(error))
            else:
                yield {"inputs": tree.words, "targets": bracketed}
