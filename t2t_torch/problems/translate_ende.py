"""WMT, English to German: 4.5 million pairs of news, web pages and parliamentary speeches.

Source: Bojar et al. 2014, "Findings of the 2014 Workshop on Statistical Machine Translation", and
2018; the corpora are tensor2tensor's: News Commentary v13, Common Crawl, Europarl v7.
Licence: free for research, see statmt.org/wmt14 and statmt.org/europarl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from t2t_torch.data.raw_file import both_schemes, member, published
from t2t_torch.mode import Split
from t2t_torch.problem_types.text2text import ParallelCorpus, TranslateProblem
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

# The checksums are from TensorFlow Datasets, url_checksums/wmt18_translate.txt.
COMMON_CRAWL = published(
    "wmt",
    *both_schemes("www.statmt.org/wmt13/training-parallel-commoncrawl.tgz"),
    sha256="c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
EUROPARL = published(
    "wmt",
    *both_schemes("www.statmt.org/wmt13/training-parallel-europarl-v7.tgz"),
    sha256="0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
NEWS_COMMENTARY = published(
    "wmt",
    *both_schemes("data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz"),
    sha256="17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
)
EVALUATION_SETS = published(
    "wmt",
    *both_schemes("data.statmt.org/wmt19/translation-task/dev.tgz"),
    sha256="7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
)

_NEWS_COMMENTARY = "training-parallel-nc-v13/news-commentary-v13.de-en"
_TRAIN = tuple(
    ParallelCorpus(member(archive, f"{path}.en"), member(archive, f"{path}.de"))
    for archive, path in (
        (NEWS_COMMENTARY, _NEWS_COMMENTARY),
        (COMMON_CRAWL, "commoncrawl.de-en"),
        (EUROPARL, "training/europarl-v7.de-en"),
    )
)
_EVAL = ParallelCorpus(
    member(EVALUATION_SETS, "dev/newstest2013.en"), member(EVALUATION_SETS, "dev/newstest2013.de")
)
_TEST = ParallelCorpus(
    member(EVALUATION_SETS, "dev/newstest2014-deen-src.en.sgm"),
    member(EVALUATION_SETS, "dev/newstest2014-deen-ref.de.sgm"),
)


@register_problem("translate_ende_wmt32k")
class TranslateEndeWmt32k(TranslateProblem):
    """English to German; evaluated on newstest2013, tested on newstest2014."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1, Split.TEST: 1}
    corpora: ClassVar = {Split.TRAIN: _TRAIN, Split.EVAL: (_EVAL,), Split.TEST: (_TEST,)}
    approx_vocab_size = 2**15
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    target_space_id = 8  # SpaceID.DE_TOK


@register_problem("translate_ende_wmt8k")
class TranslateEndeWmt8k(TranslateEndeWmt32k):
    """The same with a smaller vocabulary."""

    approx_vocab_size = 2**13


@register_problem("translate_ende_wmt_characters")
class TranslateEndeWmtCharacters(TranslateEndeWmt32k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    input_space_id = 2  # SpaceID.EN_CHR
    target_space_id = 7  # SpaceID.DE_CHR
