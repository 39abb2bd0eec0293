"""English to Vietnamese, Chinese, Czech, Romanian, Estonian, Macedonian and Indonesian.

The names, corpora and sizes of vocabularies are tensor2tensor's.  Each class cites its corpora.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile, both_schemes, existing_files, member, published
from t2t_torch.mode import Split
from t2t_torch.problem_types.text2text import ParallelCorpus, TranslateProblem
from t2t_torch.problems.translate_ende import (
    COMMON_CRAWL,
    EUROPARL,
    EVALUATION_SETS,
    NEWS_COMMENTARY,
)
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

_SHARDS: Mapping[Split, int] = {Split.TRAIN: 100, Split.EVAL: 1}


def _corpus(archive: RawFile, path: str, languages: Sequence[str]) -> ParallelCorpus:
    """Returns the corpus of two members of an archive, whose names end in the languages."""
    first, second = (member(archive, f"{path}.{language}") for language in languages)
    return ParallelCorpus(first, second)


def _envi(name: str) -> RawFile:
    mirror = "https://github.com/stefan-it/nmt-en-vi/raw/master/data/"
    # Only in this folder: names such as train.en are also those of other data sets.
    return RawFile(name, ("envi",), (f"{mirror}{name}",))


@register_problem("translate_envi_iwslt32k")
class TranslateEnviIwslt32k(TranslateProblem):
    """English to Vietnamese, 133,000 pairs of talks; evaluated on tst2012.

    Source: Cettolo et al. 2015, "The IWSLT 2015 Evaluation Campaign"; Luong and Manning 2015.
    """

    shards: ClassVar[Mapping[Split, int]] = _SHARDS
    corpora: ClassVar = {
        Split.TRAIN: (_corpus(_envi("train-en-vi.tgz"), "train", ("en", "vi")),),
        Split.EVAL: (_corpus(_envi("dev-2012-en-vi.tgz"), "tst2012", ("en", "vi")),),
    }
    approx_vocab_size = 2**15


_UN = RawFile("UNv1.0.en-zh.tar.gz", ("wmt", ""))
_CWMT = RawFile("cwmt.tgz", ("wmt", ""))
_CWMT_PAIRS = (
    ("casia2015/casia2015_en.txt", "casia2015/casia2015_ch.txt"),
    ("casict2015/casict2015_en.txt", "casict2015/casict2015_ch.txt"),
    ("neu2017/NEU_en.txt", "neu2017/NEU_cn.txt"),
    ("datum2015/datum_en.txt", "datum2015/datum_ch.txt"),
    *((f"datum2017/Book{i}_en.txt", f"datum2017/Book{i}_cn.txt") for i in range(1, 21)),
)
_ENZH_OPTIONAL = (
    *(
        ParallelCorpus(member(_CWMT, f"cwmt/{first}"), member(_CWMT, f"cwmt/{second}"))
        for first, second in _CWMT_PAIRS
    ),
    _corpus(_UN, "en-zh/UNv1.0.en-zh", ("en", "zh")),
)


@register_problem("translate_enzh_wmt8k")
class TranslateEnzhWmt8k(TranslateProblem):
    """English to Chinese, 252,000 pairs of News Commentary; evaluated on newsdev2017.

    Each language has a vocabulary of its own.
    Source: Bojar et al. 2018, "Findings of the 2018 Conference on Machine Translation".
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    corpora: ClassVar = {
        Split.TRAIN: (
            _corpus(
                NEWS_COMMENTARY, "training-parallel-nc-v13/news-commentary-v13.zh-en", ("en", "zh")
            ),
        ),
        Split.EVAL: (
            ParallelCorpus(
                member(EVALUATION_SETS, "dev/newsdev2017-enzh-src.en.sgm"),
                member(EVALUATION_SETS, "dev/newsdev2017-enzh-ref.zh.sgm"),
            ),
        ),
    }
    approx_vocab_size = 2**13
    learns_vocabularies = True
    vocabularies: ClassVar[Mapping[str, str]] = {
        "inputs": "vocab.translate_enzh_wmt8k.8192.subwords.en",
        "targets": "vocab.translate_enzh_wmt8k.8192.subwords.zh",
    }


@register_problem("translate_enzh_wmt32k")
class TranslateEnzhWmt32k(TranslateEnzhWmt8k):
    """The same, with CWMT's 9 million and the United Nations' 15 million pairs if they are there.

    Both require registration and are never downloaded: put `cwmt.tgz`
    (http://nlp.nju.edu.cn/cwmt-wmt/, as one archive) and `UNv1.0.en-zh.tar.gz`
    (https://conferences.unite.un.org/UNCorpus) into `--tmp_dir`.
    """

    shards: ClassVar[Mapping[Split, int]] = _SHARDS
    approx_vocab_size = 2**15
    vocabularies: ClassVar[Mapping[str, str]] = {
        "inputs": "vocab.translate_enzh_wmt32k.32768.subwords.en",
        "targets": "vocab.translate_enzh_wmt32k.32768.subwords.zh",
    }

    def raw_files(self, tmp_dir: Path) -> list[Path]:
        """Returns the existing files, including those of the optional corpora."""
        files = (file for corpus in _ENZH_OPTIONAL for file in corpus.files)
        return [*super().raw_files(tmp_dir), *existing_files(files, tmp_dir)]

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the pairs of News Commentary and of the optional corpora that are there."""
        yield from super().generate_samples(tmp_dir, split)
        for corpus in _ENZH_OPTIONAL if split is Split.TRAIN else ():
            if corpus.inputs.find(tmp_dir) is not None:
                for inputs, targets in corpus.pairs(tmp_dir, self.bad_records):
                    if inputs and targets:
                        yield {"inputs": inputs, "targets": targets}


_CZENG = published(
    "wmt",
    "https://lindat.mff.cuni.cz/repository/xmlui/bitstream/handle/11234/1-1458/"
    "data-plaintext-format.tar",
)


@register_problem("translate_encs_wmt32k")
class TranslateEncsWmt32k(TranslateProblem):
    """English to Czech, 57 million pairs; evaluated on newstest2013.

    Source: Bojar et al. 2016, "CzEng 1.6: Enlarged Czech-English Parallel Corpus", TSD (its
    licence is non-commercial), and WMT's News Commentary, Common Crawl and Europarl.
    """

    shards: ClassVar[Mapping[Split, int]] = _SHARDS
    corpora: ClassVar = {
        Split.TRAIN: (
            ParallelCorpus(_CZENG, columns=(3, 2), pattern="*train.gz"),
            _corpus(
                NEWS_COMMENTARY, "training-parallel-nc-v13/news-commentary-v13.cs-en", ("en", "cs")
            ),
            _corpus(COMMON_CRAWL, "commoncrawl.cs-en", ("en", "cs")),
            _corpus(EUROPARL, "training/europarl-v7.cs-en", ("en", "cs")),
        ),
        Split.EVAL: (_corpus(EVALUATION_SETS, "dev/newstest2013", ("en", "cs")),),
    }
    approx_vocab_size = 2**15


@register_problem("translate_encs_wmt_characters")
class TranslateEncsWmtCharacters(TranslateEncsWmt32k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER


_EUROPARL_RO = published("wmt", *both_schemes("www.statmt.org/europarl/v7/ro-en.tgz"))
_SETIMES_RO = published(
    "setimes",
    "https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-ro.txt.zip",
    "http://opus.nlpl.eu/download.php?f=SETIMES/v2/moses/en-ro.txt.zip",
)
_DEV_RO = published(
    "wmt", *both_schemes("data.statmt.org/wmt16/translation-task/dev-romanian-updated.tgz")
)


@register_problem("translate_enro_wmt8k")
class TranslateEnroWmt8k(TranslateProblem):
    """English to Romanian, 610,000 pairs; evaluated on newsdev2016.

    Source: Bojar et al. 2016, "Findings of the 2016 Conference on Machine Translation".
    """

    shards: ClassVar[Mapping[Split, int]] = _SHARDS
    corpora: ClassVar = {
        Split.TRAIN: (
            _corpus(_EUROPARL_RO, "europarl-v7.ro-en", ("en", "ro")),
            _corpus(_SETIMES_RO, "SETIMES.en-ro", ("en", "ro")),
        ),
        Split.EVAL: (
            ParallelCorpus(
                member(_DEV_RO, "dev/newsdev2016-roen-ref.en.sgm"),
                member(_DEV_RO, "dev/newsdev2016-roen-src.ro.sgm"),
            ),
        ),
    }
    approx_vocab_size = 2**13


@register_problem("translate_enro_wmt32k")
class TranslateEnroWmt32k(TranslateEnroWmt8k):
    """The same with a larger vocabulary."""

    approx_vocab_size = 2**15


@register_problem("translate_enro_wmt_characters")
class TranslateEnroWmtCharacters(TranslateEnroWmt8k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER


# Checksums are from TensorFlow Datasets, url_checksums/wmt18_translate.txt.
_EUROPARL_8 = published(
    "wmt",
    *both_schemes("data.statmt.org/wmt18/translation-task/training-parallel-ep-v8.tgz"),
    sha256="953eaf7f24dcfc87eff6845d13ec6ca8acbee0ccf7edf4063b8b94e943933a96",
)
_PARACRAWL = published(
    "wmt",
    "https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
    "paracrawl-release1.en-et.zipporah0-dedup-clean.tgz",
    sha256="1c3065a8e04a5a6d09d5d5c72ece8aeabcc418eb48cf85038bba6cdef638dc7d",
)
_RAPID = published(
    "wmt",
    *both_schemes("data.statmt.org/wmt18/translation-task/rapid2016.tgz"),
    sha256="41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a",
)
_DEV_ET = published(
    "wmt", "https://github.com/stefan-it/nmt-en-et/raw/master/data/newsdev2018-enet.tar.gz"
)


@register_problem("translate_enet_wmt32k")
class TranslateEnetWmt32k(TranslateProblem):
    """English to Estonian, 2.2 million pairs; evaluated on newsdev2018.

    Source: Bojar et al. 2018, "Findings of the 2018 Conference on Machine Translation".
    """

    shards: ClassVar[Mapping[Split, int]] = _SHARDS
    corpora: ClassVar = {
        Split.TRAIN: (
            _corpus(_EUROPARL_8, "training/europarl-v8.et-en", ("en", "et")),
            _corpus(_PARACRAWL, "paracrawl-release1.en-et.zipporah0-dedup-clean", ("en", "et")),
            _corpus(_RAPID, "rapid2016.en-et", ("en", "et")),
        ),
        Split.EVAL: (
            ParallelCorpus(
                member(_DEV_ET, "newsdev2018-enet-src.en"),
                member(_DEV_ET, "newsdev2018-enet-ref.et"),
            ),
        ),
    }
    approx_vocab_size = 2**15


@register_problem("translate_enet_wmt_characters")
class TranslateEnetWmtCharacters(TranslateEnetWmt32k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER


_SETIMES_MK = published("setimes", "http://nlp.ffzg.hr/data/corpora/setimes/setimes.en-mk.txt.tgz")
_DEV_MK = published(
    "setimes", "https://github.com/stefan-it/nmt-en-mk/raw/master/data/MTE-1984-dev.enmk.tgz"
)


@register_problem("translate_enmk_setimes32k")
class TranslateEnmkSetimes32k(TranslateProblem):
    """English to Macedonian, 207,000 pairs of news; evaluated on 4,986 of the novel "1984".

    Source: Tyers and Alperen 2010, "South-East European Times: A Parallel Corpus of Balkan
    Languages"; Erjavec 2012, "MULTEXT-East".
    """

    shards: ClassVar[Mapping[Split, int]] = _SHARDS
    corpora: ClassVar = {
        Split.TRAIN: (_corpus(_SETIMES_MK, "setimes.en-mk", ("en.txt", "mk.txt")),),
        Split.EVAL: (_corpus(_DEV_MK, "MTE1984-dev", ("en", "mk")),),
    }
    approx_vocab_size = 2**15


@register_problem("translate_enmk_setimes_characters")
class TranslateEnmkSetimesCharacters(TranslateEnmkSetimes32k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER


def _enid(name: str) -> RawFile:
    mirror = "https://github.com/prasastoadi/parallel-corpora-en-id/raw/master/"
    return RawFile(f"{name}.tgz", ("enid", ""), (f"{mirror}{name}.tgz",))


def _panl(subject: str, words: str) -> ParallelCorpus:
    archive = _enid(f"PANL-BPPT-{subject}-EN-ID-{words}")
    return ParallelCorpus(
        member(archive, f"PANL-BPPT-{subject}-EN-{words}.txt"),
        member(archive, f"PANL-BPPT-{subject}-ID-{words}.txt"),
    )


@register_problem("translate_enid_iwslt32k")
class TranslateEnidIwslt32k(TranslateProblem):
    """English to Indonesian, 133,000 pairs of talks and news; evaluated on tst2017plus.

    Source: Cettolo et al. 2017, "Overview of the IWSLT 2017 Evaluation Campaign"; PANL-BPPT 2009.
    """

    shards: ClassVar[Mapping[Split, int]] = _SHARDS
    corpora: ClassVar = {
        Split.TRAIN: (
            _corpus(_enid("IWSLT17.train.en-id"), "IWSLT17.train.en-id", ("en", "id")),
            _panl("ECO", "150Kw"),
            _panl("INT", "150Kw"),
            _panl("SCI", "100Kw"),
            _panl("SPO", "100Kw"),
        ),
        Split.EVAL: (
            _corpus(
                _enid("IWSLT17.TED.tst2017plus.en-id"),
                "IWSLT17.TED.tst2017plus.en-id",
                ("en", "id"),
            ),
        ),
    }
    approx_vocab_size = 2**15
