"""WMT, English to French: 40 million pairs, or 1 million.

Source: Bojar et al. 2014, "Findings of the 2014 Workshop on Statistical Machine Translation"; the
corpora are tensor2tensor's: Common Crawl, Europarl v7, News Commentary v9, Giga-FrEn, UN, and for
the small problems OpenNMT's selection of one million pairs.
Licence: free for research, see statmt.org/wmt14.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile, both_schemes, member, published
from t2t_torch.mode import Split
from t2t_torch.problem_types.text2text import ParallelCorpus, TranslateProblem
from t2t_torch.problems.translate_ende import COMMON_CRAWL, EUROPARL, EVALUATION_SETS
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

# The checksums are from TensorFlow Datasets, url_checksums/wmt{13,14}_translate.txt.
_NEWS_COMMENTARY = published(
    "wmt",
    *both_schemes("www.statmt.org/wmt14/training-parallel-nc-v9.tgz"),
    sha256="cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
)
_GIGA = published(
    "wmt",
    *both_schemes("www.statmt.org/wmt10/training-giga-fren.tar"),
    sha256="3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
)
_UN = published(
    "wmt",
    *both_schemes("www.statmt.org/wmt13/training-parallel-un.tgz"),
    sha256="29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
)
# No checksum is published.
_MILLION = published(
    "wmt",
    "https://s3.amazonaws.com/opennmt-trainingdata/baseline-1M-enfr.tgz",
    "https://opennmt-trainingdata.s3.amazonaws.com/baseline-1M-enfr.tgz",
)


def _corpus(archive: RawFile, path: str) -> ParallelCorpus:
    return ParallelCorpus(member(archive, f"{path}.en"), member(archive, f"{path}.fr"))


_TRAIN = (
    _corpus(COMMON_CRAWL, "commoncrawl.fr-en"),
    _corpus(EUROPARL, "training/europarl-v7.fr-en"),
    _corpus(_NEWS_COMMENTARY, "training/news-commentary-v9.fr-en"),
    _corpus(_GIGA, "giga-fren.release2.fixed"),
    _corpus(_UN, "un/undoc.2000.fr-en"),
)
_EVAL = _corpus(EVALUATION_SETS, "dev/newstest2013")
_TEST = ParallelCorpus(
    member(EVALUATION_SETS, "dev/newstest2014-fren-src.en.sgm"),
    member(EVALUATION_SETS, "dev/newstest2014-fren-ref.fr.sgm"),
)
_SMALL_TRAIN = _corpus(_MILLION, "baseline-1M-enfr/baseline-1M_train")
_SMALL_EVAL = _corpus(_MILLION, "baseline-1M-enfr/baseline-1M_valid")


@register_problem("translate_enfr_wmt32k")
class TranslateEnfrWmt32k(TranslateProblem):
    """English to French, all five corpora; evaluated on newstest2013, tested on newstest2014."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1, Split.TEST: 1}
    corpora: ClassVar = {Split.TRAIN: _TRAIN, Split.EVAL: (_EVAL,), Split.TEST: (_TEST,)}
    approx_vocab_size = 2**15
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    target_space_id = 6  # SpaceID.FR_TOK


@register_problem("translate_enfr_wmt_characters")
class TranslateEnfrWmtCharacters(TranslateEnfrWmt32k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    input_space_id = 2  # SpaceID.EN_CHR
    target_space_id = 5  # SpaceID.FR_CHR


@register_problem("translate_enfr_wmt_small32k")
class TranslateEnfrWmtSmall32k(TranslateEnfrWmt32k):
    """One million pairs, with their own validation set."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1}
    corpora: ClassVar = {Split.TRAIN: (_SMALL_TRAIN,), Split.EVAL: (_SMALL_EVAL,)}


@register_problem("translate_enfr_wmt_small8k")
class TranslateEnfrWmtSmall8k(TranslateEnfrWmtSmall32k):
    """One million pairs with a smaller vocabulary."""

    approx_vocab_size = 2**13


@register_problem("translate_enfr_wmt_small_characters")
class TranslateEnfrWmtSmallCharacters(TranslateEnfrWmtSmall32k):
    """One million pairs on bytes."""

    vocab_type = VocabType.CHARACTER
    input_space_id = 2  # SpaceID.EN_CHR
    target_space_id = 5  # SpaceID.FR_CHR
