"""Tasks of GLUE, and SNLI: acceptability, paraphrase, similarity and entailment of sentences.

Source: Wang et al. 2019, "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding", ICLR; each class cites its data.  `sentiment_sst_binary` and `multi_nli` belong to
GLUE too.  The labels of GLUE's test sets are not public.  The names are tensor2tensor's, except
`stsb`, which it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, both_schemes, member, mirrored, published
from t2t_torch.files import read_lines
from t2t_torch.mode import Split
from t2t_torch.problem import records_of
from t2t_torch.problem_types.classification import (
    Text2ClassProblem,
    TextPair2ClassProblem,
    TextPair2RealProblem,
)
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import Record
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import TextProblem, VocabType

_BUCKET = (
    "https://firebasestorage.googleapis.com/v0/b/mtl-sentence-representations.appspot.com/o/data%2F"
)
_MIRROR = "https://dl.fbaipublicfiles.com/glue/data/"


_DEV = {Split.TRAIN: "train", Split.EVAL: "dev"}  # the labels of GLUE's test sets are not public


def _splits(
    name: str, token: str, sha256: str, *, published_as: str = "", parts: Mapping[Split, str] = _DEV
) -> dict[Split, RawFile]:
    """Returns the files in an archive; checksums: TensorFlow Datasets, url_checksums/glue.txt."""
    file = f"{published_as or name}.zip"
    urls = (f"{_MIRROR}{file}", f"{_BUCKET}{file}?alt=media&token={token}")
    archive = RawFile(f"{name}.zip", ("glue", ""), urls, sha256)
    return {split: member(archive, f"{name}/{part}.tsv") for split, part in parts.items()}


_MRPC_FOLDERS = ("glue/MRPC", "MRPC", "")
_MRPC_TRAIN, _MRPC_TEST = mirrored(
    (
        "https://dl.fbaipublicfiles.com/senteval/senteval_data/",
        "https://s3.amazonaws.com/senteval/senteval_data/",
    ),
    {
        "msr_paraphrase_train.txt": (
            "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"
        ),
        "msr_paraphrase_test.txt": (
            "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784"
        ),
    },
    *_MRPC_FOLDERS,
)
_MRPC_DEV_IDS = RawFile(
    "dev_ids.tsv",
    _MRPC_FOLDERS,
    (
        f"{_MIRROR}mrpc_dev_ids.tsv",
        f"{_BUCKET}mrpc_dev_ids.tsv?alt=media&token=ec5c0836-31d5-48f4-b431-7480817f1adc",
    ),
    "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
)
# From TensorFlow Datasets, url_checksums/snli.txt.
_SNLI = published(
    "snli",
    *both_schemes("nlp.stanford.edu/projects/snli/snli_1.0.zip"),
    sha256="afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
)

_SPLITS_100: Mapping[Split, int] = {Split.TRAIN: 100, Split.EVAL: 1}
_EN_TOK = 3  # tensor2tensor's SpaceID
_EN_CHR = 2


class _OnBytes(TextProblem):
    """Settings of the problems on bytes of English text."""

    vocab_type = VocabType.CHARACTER
    input_space_id = _EN_CHR


class _GlueSentenceProblem(Text2ClassProblem):
    """Classification of the sentences of a tab-separated file, with the labels 0 and 1.

    Attributes:
      options: of the format tsv.
    """

    options: ClassVar[Mapping[str, Any]] = {}
    input_space_id = _EN_TOK

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the sentences of a split."""
        labels = dict(zip("01", self.class_labels, strict=True))
        for record in records_of(self, tmp_dir, split, "tsv", **self.options):
            label, sentence = (record.values.get(name) for name in ("label", "sentence"))
            if label in labels and sentence is not None:
                yield {"inputs": sentence.strip(), "targets": labels[label]}
            else:
                why = f"the label {label!r}, where 0 or 1 was expected in the column label"
                self.bad_records.report(record.place, why)


@register_problem("cola")
class Cola(_GlueSentenceProblem):
    """Classifies whether a sentence is acceptable English.

    Source: Warstadt et al. 2018, "Neural Network Acceptability Judgments", arXiv:1805.12471.
    """

    sources = _splits(
        "CoLA",
        "46d5e637-3411-4188-bc44-5809b5bfb5f4",
        "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff",
    )
    options: ClassVar[Mapping[str, Any]] = {"columns": ["source", "label", "mark", "sentence"]}
    approx_vocab_size = 2**13
    class_labels = ("unacceptable", "acceptable")
    metrics = ("accuracy", "matthews_correlation", "neg_log_perplexity")


@register_problem("cola_characters")
class ColaCharacters(_OnBytes, Cola):
    """The same on bytes."""


class _GluePairProblem(TextPair2ClassProblem):
    """Classification of the sentence pairs of a tab-separated file with a header.

    Attributes:
      columns: names of the columns of both sentences and of the label.
      is_numbered: True if the labels of the file are 0 and 1.
      both_orders: True to train on each pair also in the other order (Radford et al. 2018).
        tensor2tensor does so in evaluation too.
    """

    columns: ClassVar[tuple[str, str, str]] = ("sentence1", "sentence2", "label")
    is_numbered: ClassVar[bool] = False
    both_orders: ClassVar[bool] = False
    input_space_id = _EN_TOK

    @property
    def labels(self) -> Mapping[str, str]:
        """Classes by their spelling in the file."""
        names = "01" if self.is_numbered else self.class_labels
        return dict(zip(names, self.class_labels, strict=True))

    def records(self, tmp_dir: Path, split: Split) -> Iterator[Record]:
        """Yields the rows of a split."""
        return records_of(self, tmp_dir, split, "tsv")

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the pairs of a split."""
        for record in self.records(tmp_dir, split):
            first, second, label = (record.values.get(name, "").strip() for name in self.columns)
            if label not in self.labels or not (first and second):
                self._report(record, (first, second, label))
                continue
            target = self.labels[label]
            yield {"first": first, "second": second, "targets": target}
            if self.both_orders and split is Split.TRAIN:
                yield {"first": second, "second": first, "targets": target}

    def _report(self, record: Record, fields: tuple[str, str, str]) -> None:
        self.bad_records.report(
            record.place,
            f"{', '.join(map(repr, fields))}, where two sentences and a label, of "
            f"{', '.join(self.labels)}, were expected in the columns {', '.join(self.columns)}",
        )


@register_problem("msr_paraphrase_corpus")
class MsrParaphraseCorpus(_GluePairProblem):
    """Classifies whether two sentences of news say the same; MRPC of GLUE.

    The raw files are `msr_paraphrase_{train,test}.txt` and `dev_ids.tsv`, the pairs of the training
    file that are EVAL.
    Source: Dolan and Brockett 2005, "Automatically Constructing a Corpus of Sentential
    Paraphrases", IWP.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1, Split.TEST: 1}
    sources = (_MRPC_TRAIN, _MRPC_TEST, _MRPC_DEV_IDS)
    columns = ("#1 String", "#2 String", "Quality")
    approx_vocab_size = 2**13
    class_labels = ("not_paraphrase", "paraphrase")
    is_numbered = True
    both_orders = True

    def records(self, tmp_dir: Path, split: Split) -> Iterator[Record]:
        """Yields the rows of a split, without or only those of `dev_ids.tsv`."""
        held_out = {tuple(line.split()) for line in read_lines(_MRPC_DEV_IDS.get(tmp_dir))}
        path = (_MRPC_TEST if split is Split.TEST else _MRPC_TRAIN).get(tmp_dir)
        for record in open_records(path, format="tsv", bad=self.bad_records):
            ids = record.values.get("#1 ID", ""), record.values.get("#2 ID", "")
            if split is Split.TEST or (ids in held_out) is (split is Split.EVAL):
                yield record


@register_problem("msr_paraphrase_corpus_characters")
class MsrParaphraseCorpusCharacters(_OnBytes, MsrParaphraseCorpus):
    """The same on bytes."""


@register_problem("question_nli")
class QuestionNli(_GluePairProblem):
    """Classifies whether a sentence holds the answer to a question; QNLI of GLUE.

    Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text".
    """

    shards: ClassVar[Mapping[Split, int]] = _SPLITS_100
    # The second version, whose development set has no questions of the training set.
    sources = _splits(
        "QNLI",
        "6fdcf570-0fc5-4631-8456-9505272d1601",
        "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
        published_as="QNLIv2",
    )
    columns = ("question", "sentence", "label")
    class_labels = ("not_entailment", "entailment")


@register_problem("question_nli_characters")
class QuestionNliCharacters(_OnBytes, QuestionNli):
    """The same on bytes."""


@register_problem("quora_question_pairs")
class QuoraQuestionPairs(_GluePairProblem):
    """Classifies whether two questions ask the same; QQP of GLUE.

    The published file has a few rows with too few fields, which are skipped as in tensor2tensor.
    Source: Iyer et al. 2017, "First Quora Dataset Release: Question Pairs".
    """

    shards: ClassVar[Mapping[Split, int]] = _SPLITS_100
    sources = _splits(
        "QQP",
        "700c6acf-160d-4d89-81d1-de4191d02cb5",
        "67cb8f5fe66c90a0bc1bf5792e3924f63008b064ab7a473736c919d20bb140ad",
    )
    columns = ("question1", "question2", "is_duplicate")
    class_labels = ("not_duplicate", "duplicate")
    is_numbered = True
    both_orders = True

    def records(self, tmp_dir: Path, split: Split) -> Iterator[Record]:
        """Yields the rows of a split that have all fields."""
        names: list[str] = []
        for line in records_of(self, tmp_dir, split, "lines"):
            fields = line.values["text"].rstrip("\r").split("\t")
            names = names or fields
            if fields is not names and len(fields) == len(names):
                yield Record(line.place, dict(zip(names, fields, strict=True)))

    def _report(self, record: Record, fields: tuple[str, str, str]) -> None:
        if fields[0] and fields[1]:  # a few questions are empty
            super()._report(record, fields)


@register_problem("quora_question_pairs_characters")
class QuoraQuestionPairsCharacters(_OnBytes, QuoraQuestionPairs):
    """The same on bytes."""


@register_problem("rte")
class Rte(_GluePairProblem):
    """Classifies whether a sentence follows from a text; RTE of GLUE.

    Source: Dagan et al. 2006, Bar Haim et al. 2006, Giampiccolo et al. 2007, Bentivogli et al.
    2009: RTE1, 2, 3 and 5.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    sources = _splits(
        "RTE",
        "5efa7e85-a0bb-4f19-8ea2-9e1840f077fb",
        "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
    )
    approx_vocab_size = 2**13
    class_labels = ("not_entailment", "entailment")


@register_problem("rte_characters")
class RteCharacters(_OnBytes, Rte):
    """The same on bytes."""


@register_problem("winograd_nli")
class WinogradNli(_GluePairProblem):
    """Classifies whether a sentence with a pronoun replaced still follows; WNLI of GLUE.

    Source: Levesque et al. 2012, "The Winograd Schema Challenge", KR.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    sources = _splits(
        "WNLI",
        "068ad0a0-ded7-4bd7-99a5-5e00222e0faf",
        "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46",
    )
    approx_vocab_size = 2**13
    class_labels = ("not_entailment", "entailment")
    is_numbered = True


@register_problem("winograd_nli_characters")
class WinogradNliCharacters(_OnBytes, WinogradNli):
    """The same on bytes."""


@register_problem("stanford_nli")
class StanfordNli(_GluePairProblem):
    """Classifies the relation of a hypothesis to a premise, about pictures; SNLI.

    Pairs without a majority label, "-", are skipped.  TEST has its labels, unlike GLUE's.
    Source: Bowman et al. 2015, "A large annotated corpus for learning natural language inference",
    EMNLP.  Licence: CC BY-SA 4.0.
    """

    shards: ClassVar[Mapping[Split, int]] = {**_SPLITS_100, Split.TEST: 1}
    sources: ClassVar[Mapping[Split, RawFile]] = {
        split: member(_SNLI, f"snli_1.0/snli_1.0_{part}.txt")
        for split, part in ((Split.TRAIN, "train"), (Split.EVAL, "dev"), (Split.TEST, "test"))
    }
    columns = ("sentence1", "sentence2", "gold_label")
    class_labels = ("contradiction", "entailment", "neutral")

    def records(self, tmp_dir: Path, split: Split) -> Iterator[Record]:
        """Yields the rows of a split that have a label."""
        for record in super().records(tmp_dir, split):
            if record.values.get("gold_label") != "-":
                yield record


@register_problem("stanford_nli_characters")
class StanfordNliCharacters(_OnBytes, StanfordNli):
    """The same on bytes."""


@register_problem("stanford_nli_shared_vocab")
class StanfordNliSharedVocab(StanfordNli):
    """The same in the subwords of `languagemodel_lm1b32k`."""

    use_vocab_from_other_problem = "languagemodel_lm1b32k"


@register_problem("stsb")
class Stsb(TextPair2RealProblem):
    """Predicts how alike two sentences are, from 0 to 5; STS-B of GLUE.

    Source: Cer et al. 2017, "SemEval-2017 Task 1: Semantic Textual Similarity", SemEval.
    """

    sources = _splits(
        "STS-B",
        "bddb94a7-8706-4e0d-a694-1109e12273b5",
        "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
    )
    approx_vocab_size = 2**13
    input_space_id = _EN_TOK

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the pairs of a split."""
        for record in records_of(self, tmp_dir, split, "tsv"):
            pair = (record.values.get(name, "").strip() for name in ("sentence1", "sentence2"))
            first, second = pair
            text = record.values.get("score", "")
            try:
                yield {"first": first, "second": second, "targets": float(text)}
            except ValueError:
                why = f"the score {text!r}, where a number from 0 to 5 was expected"
                self.bad_records.report(record.place, why)


@register_problem("stsb_characters")
class StsbCharacters(_OnBytes, Stsb):
    """The same on bytes."""


@register_problem("multi_nli")
class MultiNli(_GluePairProblem):
    """Classifies the relation of a hypothesis to a premise.

    EVAL is the matched development set (genres of the training data), TEST the mismatched one.
    Source: Williams et al. 2018, "A Broad-Coverage Challenge Corpus for Sentence Understanding
    through Inference", NAACL.  Licence: mostly the Open American National Corpus's; the paper's
    section 2.1 lists each genre.
    """

    shards: ClassVar[Mapping[Split, int]] = {**_SPLITS_100, Split.TEST: 1}
    sources = _splits(
        "MNLI",
        "50329ea1-e339-40e2-809c-10c40afff3ce",
        "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
        parts={Split.TRAIN: "train", Split.EVAL: "dev_matched", Split.TEST: "dev_mismatched"},
    )
    columns = ("sentence1", "sentence2", "gold_label")
    class_labels = ("contradiction", "entailment", "neutral")  # in tensor2tensor's order


@register_problem("multi_nli_characters")
class MultiNliCharacters(_OnBytes, MultiNli):
    """The same on bytes."""


@register_problem("sentiment_sst_binary")
class SentimentSstBinary(_GlueSentenceProblem):
    """Classifies phrases (in EVAL sentences) of film reviews as positive or negative.

    Source: SST-2, Socher et al. 2013, "Recursive Deep Models for Semantic Compositionality Over a
    Sentiment Treebank", EMNLP.  Licence: none stated.
    """

    sources = _splits(
        "SST-2",
        "aabc5f6b-e466-44a2-b9b4-cf6337f84ac8",
        "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
    )
    approx_vocab_size = 2**14  # tensor2tensor's
    class_labels = ("neg", "pos")


@register_problem("sentiment_sst_binary_characters")
class SentimentSstBinaryCharacters(_OnBytes, SentimentSstBinary):
    """The same on bytes."""
