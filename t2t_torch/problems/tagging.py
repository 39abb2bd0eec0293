"""Tags of words: names (CoNLL-2002 and 2003), phrases (CoNLL-2000), parts of speech (UD).

Sources and licences:
- CoNLL-2002, Spanish and Dutch news: Tjong Kim Sang 2002, "Introduction to the CoNLL-2002 Shared
  Task", CoNLL; research use, as distributed by NLTK.
- CoNLL-2003, 22,137 sentences of Reuters news: Tjong Kim Sang and De Meulder 2003, "Introduction to
  the CoNLL-2003 Shared Task", CoNLL; the text is Reuters', on request:
  trec.nist.gov/data/reuters/reuters.html.
- CoNLL-2000, 10,948 sentences of the Wall Street Journal: Tjong Kim Sang and Buchholz 2000,
  "Introduction to the CoNLL-2000 Shared Task: Chunking"; none stated, the text is from the Penn
  Treebank.
- UD English-EWT, 16,622 sentences of web text: Silveira et al. 2014, "A Gold Standard Dependency
  Corpus for English", LREC; github.com/UniversalDependencies/UD_English-EWT, a version between
  releases 2.15 and 2.16; CC BY-SA 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, member, mirrored, on_github, published
from t2t_torch.data.vocabulary_builder import VocabularyBuilder
from t2t_torch.features import Feature, WordLabel
from t2t_torch.mode import Split
from t2t_torch.problem import records_of
from t2t_torch.problem_types.words import Text2TagsProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

_ARCHIVE = published(
    "conll2002", *on_github("nltk/nltk_data/gh-pages/packages/corpora/conll2002.zip")
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "testa", Split.TEST: "testb"}


def _files(language: str) -> dict[Split, RawFile]:
    return {
        split: member(_ARCHIVE, f"conll2002/{language}.{part}") for split, part in _PARTS.items()
    }


class _ConllProblem(Text2TagsProblem):
    """Base class: the words and the names of files of the shared tasks."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    columns: ClassVar[tuple[str, ...]] = ("word", "pos", "name")
    word_shape = True  # capitals indicate names

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of a split, without the lines between documents."""
        options = {"columns": self.columns, "skip_docstart": True}
        for record in records_of(self, tmp_dir, split, "conll", **options):
            yield {"inputs": record.values["word"], "targets": record.values["name"]}


@register_problem("conll2002_es_ner")
class Conll2002EsNer(_ConllProblem):
    """Tags Spanish words with named entities: LOC, MISC, ORG and PER, as B-X and I-X.

    The raw files are `esp.{train,testa,testb}` of `conll2002.zip`.  EVAL is `testa`, TEST is
    `testb`; tensor2tensor evaluates on both together.
    """

    sources = _files("esp")


@register_problem("conll2002_nl_ner")
class Conll2002NlNer(Conll2002EsNer):
    """Tags Dutch words: the same with `ned.{train,testa,testb}`."""

    sources = _files("ned")


@register_problem("ner_conll2003")
class NerConll2003(_ConllProblem):
    """Tags words with named entities: LOC, MISC, ORG and PER, in IOB1.

    The raw files are `eng.{train,testa,testb}`, which the shared task's program creates from the
    text; put them in `--tmp_dir`.  Nothing is downloaded.
    """

    # Not redistributable, so there are no addresses.
    sources: ClassVar[Mapping[Split, RawFile]] = {
        split: RawFile(f"eng.{part}", ("conll2003", "")) for split, part in _PARTS.items()
    }
    columns = ("word", "pos", "chunk", "name")
    min_word_count = 2  # words seen once train the unknown word


# Compressed by the shared task's site.  Only checksums of the unpacked files are known.
_CHUNKS_TRAIN, _CHUNKS_TEST = mirrored(
    ["https://www.clips.uantwerpen.be/conll2000/chunking/"],
    dict.fromkeys(("train.txt.gz", "test.txt.gz")),
    "conll2000",
    "",
)
_CHUNKS_COLUMNS = ("word", "pos", "chunk")


class _SpelledWords(Text2TagsProblem):
    """Settings of the problems on lower-case words and their spelling."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 2, Split.EVAL: 1, Split.TEST: 1}
    approx_vocab_size = 2**14
    min_word_count = 2
    lower_case_words = True
    word_characters = 16
    word_shape = True


@register_problem("chunking_conll2000")
class ChunkingConll2000(_SpelledWords):
    """Tags words with phrase chunks: B-NP, I-NP, O, ...

    The raw files are `train.txt` and `test.txt`.  There is no development split: the last tenth of
    the training sentences is EVAL.
    """

    sources = (_CHUNKS_TRAIN, _CHUNKS_TEST)
    suggested_flags = (
        "--model=bilstm_tagger --hparams_set=bilstm_tagger_conll2000 --train_steps=1400"
    )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of a split."""
        for sample in self._sentences(tmp_dir, split):
            yield {field: sample[field] for field in ("inputs", "targets")}

    def _sentences(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences with their parts of speech."""
        path = (_CHUNKS_TEST if split is Split.TEST else _CHUNKS_TRAIN).get(tmp_dir)
        options = {"columns": _CHUNKS_COLUMNS}
        records = list(open_records(path, format="conll", bad=self.bad_records, options=options))
        cut = len(records) * 9 // 10
        if split is not Split.TEST:
            records = records[:cut] if split is Split.TRAIN else records[cut:]
        for record in records:
            values = record.values
            yield {"inputs": values["word"], "pos": values["pos"], "targets": values["chunk"]}


@register_problem("chunking_conll2000_pos")
class ChunkingConll2000Pos(ChunkingConll2000):
    """The same with the part of speech of each word as an input, as in the shared task.

    The parts of speech are predicted by Brill's tagger, also in the test split.  At prediction
    time the field "pos" must hold them.
    """

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The vocabulary and those of word features, chunks and parts of speech."""
        return [*super().learners(), *self.label_learner("pos")]

    def words(self, directory: Path) -> dict[str, Feature]:
        """Returns the words, their features and their parts of speech."""
        tags = WordLabel(self.words_field, self.label_encoder(directory, "pos"), field="pos")
        return {**super().words(directory), "inputs_pos": tags}

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of a split."""
        return self._sentences(tmp_dir, split)


# Pinned to one commit, as the treebank is updated continuously.
_UD_FILES = mirrored(
    on_github("UniversalDependencies/UD_English-EWT/15d613d/"),
    {
        "en_ewt-ud-train.conllu": (
            "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b"
        ),
        "en_ewt-ud-dev.conllu": "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6",
        "en_ewt-ud-test.conllu": "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd",
    },
    "ud_english_ewt",
    "",
    "UD_English-EWT",
)


@register_problem("pos_ud_english_ewt")
class PosUdEnglishEwt(_SpelledWords):
    """Tags words with universal parts of speech (NOUN, VERB, ...).

    The raw files are `en_ewt-ud-{train,dev,test}.conllu`; other releases work too.
    """

    sources: ClassVar = dict(zip(Split, _UD_FILES, strict=True))
    metrics = ("accuracy", "accuracy_per_sequence")  # one tag per word, no spans
    suggested_flags = "--model=bilstm_tagger --hparams_set=bilstm_tagger_ud --train_steps=1200"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences."""
        for record in records_of(self, tmp_dir, split, "conllu"):
            yield {"inputs": record.values["form"], "targets": record.values["upos"]}
