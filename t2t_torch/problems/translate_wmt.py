"""WMT and others: English to ten languages, from news, web pages, speeches and talks.

The names, corpora and sizes of vocabularies are tensor2tensor's.  German and French: Bojar et al.
2014, "Findings of the 2014 Workshop on Statistical Machine Translation", and 2018; the small French
problems are OpenNMT's selection of one million pairs.  Licence: free for research, see
statmt.org/wmt14 and statmt.org/europarl.  Each class of another language cites its corpora.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile, both_schemes, existing_files, member, published
from t2t_torch.mode import Split
from t2t_torch.problem_types.text2text import ParallelCorpus, TranslateProblem
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType


def _wmt(address: str, sha256: str | None = None) -> RawFile:
    """Returns a file of the workshop's hosts, which serve both https and http."""
    return published("wmt", *both_schemes(address), sha256=sha256)


# The checksums are from TensorFlow Datasets, url_checksums/wmt18_translate.txt.
COMMON_CRAWL = _wmt(
    "www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
EUROPARL = _wmt(
    "www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
NEWS_COMMENTARY = _wmt(
    "data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz",
    "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
)
EVALUATION_SETS = _wmt(
    "data.statmt.org/wmt19/translation-task/dev.tgz",
    "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
)

_CHECKED: Mapping[Split, int] = {Split.TRAIN: 100, Split.EVAL: 1}
_TESTED: Mapping[Split, int] = {**_CHECKED, Split.TEST: 1}
_V13 = "training-parallel-nc-v13/news-commentary-v13"


def _corpus(archive: RawFile, path: str, first: str, second: str) -> ParallelCorpus:
    """Returns the corpus of two members of an archive: `path` with the ending of each language."""
    return ParallelCorpus(member(archive, path + first), member(archive, path + second))


@register_problem("translate_ende_wmt32k")
class TranslateEndeWmt32k(TranslateProblem):
    """English to German; evaluated on newstest2013, tested on newstest2014."""

    shards: ClassVar[Mapping[Split, int]] = _TESTED
    corpora: ClassVar = {
        Split.TRAIN: (
            _corpus(NEWS_COMMENTARY, f"{_V13}.de-en", ".en", ".de"),
            _corpus(COMMON_CRAWL, "commoncrawl.de-en", ".en", ".de"),
            _corpus(EUROPARL, "training/europarl-v7.de-en", ".en", ".de"),
        ),
        Split.EVAL: (_corpus(EVALUATION_SETS, "dev/newstest2013", ".en", ".de"),),
        Split.TEST: (
            _corpus(EVALUATION_SETS, "dev/newstest2014-deen", "-src.en.sgm", "-ref.de.sgm"),
        ),
    }
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


# The checksums are from TensorFlow Datasets, url_checksums/wmt{13,14}_translate.txt.
_NEWS_COMMENTARY_9 = _wmt(
    "www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
    "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
)
_GIGA = _wmt(
    "www.statmt.org/wmt10/training-giga-fren.tar",
    "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
)
_UN_FR = _wmt(
    "www.statmt.org/wmt13/training-parallel-un.tgz",
    "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
)
# No checksum is published.
_MILLION = published(
    "wmt",
    "https://s3.amazonaws.com/opennmt-trainingdata/baseline-1M-enfr.tgz",
    "https://opennmt-trainingdata.s3.amazonaws.com/baseline-1M-enfr.tgz",
)


@register_problem("translate_enfr_wmt32k")
class TranslateEnfrWmt32k(TranslateProblem):
    """English to French, all five corpora; evaluated on newstest2013, tested on newstest2014."""

    shards: ClassVar[Mapping[Split, int]] = _TESTED
    corpora: ClassVar = {
        Split.TRAIN: (
            _corpus(COMMON_CRAWL, "commoncrawl.fr-en", ".en", ".fr"),
            _corpus(EUROPARL, "training/europarl-v7.fr-en", ".en", ".fr"),
            _corpus(_NEWS_COMMENTARY_9, "training/news-commentary-v9.fr-en", ".en", ".fr"),
            _corpus(_GIGA, "giga-fren.release2.fixed", ".en", ".fr"),
            _corpus(_UN_FR, "un/undoc.2000.fr-en", ".en", ".fr"),
        ),
        Split.EVAL: (_corpus(EVALUATION_SETS, "dev/newstest2013", ".en", ".fr"),),
        Split.TEST: (
            _corpus(EVALUATION_SETS, "dev/newstest2014-fren", "-src.en.sgm", "-ref.fr.sgm"),
        ),
    }
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

    shards: ClassVar[Mapping[Split, int]] = _CHECKED
    corpora: ClassVar = {
        Split.TRAIN: (_corpus(_MILLION, "baseline-1M-enfr/baseline-1M_train", ".en", ".fr"),),
        Split.EVAL: (_corpus(_MILLION, "baseline-1M-enfr/baseline-1M_valid", ".en", ".fr"),),
    }


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


def _envi(name: str) -> RawFile:
    mirror = "https://github.com/stefan-it/nmt-en-vi/raw/master/data/"
    # Only in this folder: names such as train.en are also those of other data sets.
    return RawFile(name, ("envi",), (f"{mirror}{name}",))


@register_problem("translate_envi_iwslt32k")
class TranslateEnviIwslt32k(TranslateProblem):
    """English to Vietnamese, 133,000 pairs of talks; evaluated on tst2012.

    Source: Cettolo et al. 2015, "The IWSLT 2015 Evaluation Campaign"; Luong and Manning 2015.
    """

    shards: ClassVar[Mapping[Split, int]] = _CHECKED
    corpora: ClassVar = {
        Split.TRAIN: (_corpus(_envi("train-en-vi.tgz"), "train", ".en", ".vi"),),
        Split.EVAL: (_corpus(_envi("dev-2012-en-vi.tgz"), "tst2012", ".en", ".vi"),),
    }


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
    *(_corpus(_CWMT, "cwmt/", first, second) for first, second in _CWMT_PAIRS),
    _corpus(_UN, "en-zh/UNv1.0.en-zh", ".en", ".zh"),
)


@register_problem("translate_enzh_wmt8k")
class TranslateEnzhWmt8k(TranslateProblem):
    """English to Chinese, 252,000 pairs of News Commentary; evaluated on newsdev2017.

    Each language has a vocabulary of its own.
    Source: Bojar et al. 2018, "Findings of the 2018 Conference on Machine Translation".
    """

    corpora: ClassVar = {
        Split.TRAIN: (_corpus(NEWS_COMMENTARY, f"{_V13}.zh-en", ".en", ".zh"),),
        Split.EVAL: (
            _corpus(EVALUATION_SETS, "dev/newsdev2017-enzh", "-src.en.sgm", "-ref.zh.sgm"),
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

    shards: ClassVar[Mapping[Split, int]] = _CHECKED
    approx_vocab_size = 2**15
    vocabularies: ClassVar[Mapping[str, str]] = {
        "inputs": "vocab.translate_enzh_wmt32k.32768.subwords.en",
        "targets": "vocab.translate_enzh_wmt32k.32768.subwords.zh",
    }

    def raw_files(self, tmp_dir: Path) -> list[Path]:
        """Returns the existing files, including those of the optional corpora."""
        files = (file for corpus in _ENZH_OPTIONAL for file in corpus.files)
        return [*super().raw_files(tmp_dir), *existing_files(files, tmp_dir)]

    def corpora_there(self, tmp_dir: Path, split: Split) -> Sequence[ParallelCorpus]:
        """Returns News Commentary and the optional corpora that are there."""
        optional = _ENZH_OPTIONAL if split is Split.TRAIN else ()
        there = (corpus for corpus in optional if corpus.inputs.find(tmp_dir) is not None)
        return [*super().corpora_there(tmp_dir, split), *there]


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

    shards: ClassVar[Mapping[Split, int]] = _CHECKED
    corpora: ClassVar = {
        Split.TRAIN: (
            ParallelCorpus(_CZENG, columns=(3, 2), pattern="*train.gz"),
            _corpus(NEWS_COMMENTARY, f"{_V13}.cs-en", ".en", ".cs"),
            _corpus(COMMON_CRAWL, "commoncrawl.cs-en", ".en", ".cs"),
            _corpus(EUROPARL, "training/europarl-v7.cs-en", ".en", ".cs"),
        ),
        Split.EVAL: (_corpus(EVALUATION_SETS, "dev/newstest2013", ".en", ".cs"),),
    }


@register_problem("translate_encs_wmt_characters")
class TranslateEncsWmtCharacters(TranslateEncsWmt32k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER


_EUROPARL_RO = _wmt("www.statmt.org/europarl/v7/ro-en.tgz")
_SETIMES_RO = published(
    "setimes",
    "https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-ro.txt.zip",
    "http://opus.nlpl.eu/download.php?f=SETIMES/v2/moses/en-ro.txt.zip",
)
_DEV_RO = _wmt("data.statmt.org/wmt16/translation-task/dev-romanian-updated.tgz")


@register_problem("translate_enro_wmt8k")
class TranslateEnroWmt8k(TranslateProblem):
    """English to Romanian, 610,000 pairs; evaluated on newsdev2016.

    Source: Bojar et al. 2016, "Findings of the 2016 Conference on Machine Translation".
    """

    shards: ClassVar[Mapping[Split, int]] = _CHECKED
    corpora: ClassVar = {
        Split.TRAIN: (
            _corpus(_EUROPARL_RO, "europarl-v7.ro-en", ".en", ".ro"),
            _corpus(_SETIMES_RO, "SETIMES.en-ro", ".en", ".ro"),
        ),
        Split.EVAL: (_corpus(_DEV_RO, "dev/newsdev2016-roen", "-ref.en.sgm", "-src.ro.sgm"),),
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
_EUROPARL_8 = _wmt(
    "data.statmt.org/wmt18/translation-task/training-parallel-ep-v8.tgz",
    "953eaf7f24dcfc87eff6845d13ec6ca8acbee0ccf7edf4063b8b94e943933a96",
)
_PARACRAWL = published(
    "wmt",
    "https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
    "paracrawl-release1.en-et.zipporah0-dedup-clean.tgz",
    sha256="1c3065a8e04a5a6d09d5d5c72ece8aeabcc418eb48cf85038bba6cdef638dc7d",
)
_RAPID = _wmt(
    "data.statmt.org/wmt18/translation-task/rapid2016.tgz",
    "41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a",
)
_DEV_ET = published(
    "wmt", "https://github.com/stefan-it/nmt-en-et/raw/master/data/newsdev2018-enet.tar.gz"
)


@register_problem("translate_enet_wmt32k")
class TranslateEnetWmt32k(TranslateProblem):
    """English to Estonian, 2.2 million pairs; evaluated on newsdev2018.

    Source: Bojar et al. 2018, "Findings of the 2018 Conference on Machine Translation".
    """

    shards: ClassVar[Mapping[Split, int]] = _CHECKED
    corpora: ClassVar = {
        Split.TRAIN: (
            _corpus(_EUROPARL_8, "training/europarl-v8.et-en", ".en", ".et"),
            _corpus(_PARACRAWL, "paracrawl-release1.en-et.zipporah0-dedup-clean", ".en", ".et"),
            _corpus(_RAPID, "rapid2016.en-et", ".en", ".et"),
        ),
        Split.EVAL: (_corpus(_DEV_ET, "newsdev2018-enet", "-src.en", "-ref.et"),),
    }


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

    shards: ClassVar[Mapping[Split, int]] = _CHECKED
    corpora: ClassVar = {
        Split.TRAIN: (_corpus(_SETIMES_MK, "setimes.en-mk", ".en.txt", ".mk.txt"),),
        Split.EVAL: (_corpus(_DEV_MK, "MTE1984-dev", ".en", ".mk"),),
    }


@register_problem("translate_enmk_setimes_characters")
class TranslateEnmkSetimesCharacters(TranslateEnmkSetimes32k):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER


def _enid(name: str) -> RawFile:
    mirror = "https://github.com/prasastoadi/parallel-corpora-en-id/raw/master/"
    return RawFile(f"{name}.tgz", ("enid", ""), (f"{mirror}{name}.tgz",))


def _iwslt(name: str) -> ParallelCorpus:
    return _corpus(_enid(name), name, ".en", ".id")


def _panl(subject: str, words: str) -> ParallelCorpus:
    archive = _enid(f"PANL-BPPT-{subject}-EN-ID-{words}")
    return _corpus(archive, f"PANL-BPPT-{subject}", f"-EN-{words}.txt", f"-ID-{words}.txt")


@register_problem("translate_enid_iwslt32k")
class TranslateEnidIwslt32k(TranslateProblem):
    """English to Indonesian, 133,000 pairs of talks and news; evaluated on tst2017plus.

    Source: Cettolo et al. 2017, "Overview of the IWSLT 2017 Evaluation Campaign"; PANL-BPPT 2009.
    """

    shards: ClassVar[Mapping[Split, int]] = _CHECKED
    corpora: ClassVar = {
        Split.TRAIN: (
            _iwslt("IWSLT17.train.en-id"),
            _panl("ECO", "150Kw"),
            _panl("INT", "150Kw"),
            _panl("SCI", "100Kw"),
            _panl("SPO", "100Kw"),
        ),
        Split.EVAL: (_iwslt("IWSLT17.TED.tst2017plus.en-id"),),
    }
