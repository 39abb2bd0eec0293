"""WikiQA: 1,116 questions to a search engine, with sentences of Wikipedia that may answer them.

Source: Yang, Yih and Meek 2015, "WikiQA: A Challenge Dataset for Open-Domain Question Answering",
EMNLP, in the preparation of Yin et al. 2016 (ABCNN): only questions that a sentence answers.
Licence: Microsoft Research's data licence for the corpus, for research.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem import Asked
from t2t_torch.problem_types.classification import PairRankingProblem, QueryRelevanceProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords, Record
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import WordCutter
from t2t_torch.text_problem import VocabType

_MIRRORS = (
    "https://raw.githubusercontent.com/Lapis-Hong/ABCNN/master/data/WikiQA/",
    "https://github.com/Lapis-Hong/ABCNN/raw/master/data/WikiQA/",
)
_SHA256 = {
    "train.txt": "b2fff63b184902b9d00697e45b2cf4704f0646aa49a17ded4a2fb7a2ede99891",
    "test.txt": "ca5446c523a972d13ff21f4c4968bd5d0af901a7fa06088d6ac4fbccafef135c",
}
_TRAIN, _TEST = (
    RawFile(name, ("wikiqa", ""), [f"{mirror}{name}" for mirror in _MIRRORS], sha256)
    for name, sha256 in _SHA256.items()
)
_COLUMNS = ("label", "question", "sentence")
_LABELS = ("0", "1")
_EVERY = 10  # of the training questions, one in so many is EVAL
_BEGINNING = 5  # letters: "crocodile" and "crocodiles" begin alike


@register_problem("answer_ranking_wikiqa")
class AnswerRankingWikiqa(QueryRelevanceProblem):
    """A question and a sentence, to whether it answers it: "1" or "0".

    The raw files are `train.txt` and `test.txt`: label, question and sentence with tabs between.
    There is no part for development: every tenth training question is EVAL, with all its sentences.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = (_TRAIN, _TEST)
    approx_vocab_size = 2**13
    class_labels = _LABELS
    max_queries = 2**10
    max_documents = 2**5
    metrics = ("query_map", "query_mrr", "accuracy", "neg_log_perplexity")

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of each question."""
        questions = _questions(tmp_dir, split, self.bad_records)
        for number, (question, sentences) in enumerate(questions):
            for place, (label, sentence) in enumerate(sentences):
                texts = {"query": question, "document": sentence}
                yield {**texts, "targets": label, "place": [number, place]}


@register_problem("answer_ranking_wikiqa_words")
class AnswerRankingWikiqaWords(AnswerRankingWikiqa):
    """The same from lower-case words and signs: a question has no capitals to compare."""

    vocab_type = VocabType.WORD
    approx_vocab_size = 2**15
    cutters: ClassVar[Mapping[str, WordCutter]] = dict.fromkeys(("query", "document"), WordCutter())
    suggested_flags = (
        "--model=pair_classifier --hparams_set=pair_classifier_wikiqa --train_steps=400"
    )


@register_problem("answer_ranking_wikiqa_counts")
class AnswerRankingWikiqaCounts(AnswerRankingWikiqaWords):
    """The same with four numbers of each pair: what is common, also of words that are new.

    They are what share of the question's words begin as one of the sentence's does, what share of
    its neighbouring words are neighbours there, and the logarithms of how many words the sentence
    has and of its place in the article, from 1.  Yang et al. count common words beside a network,
    too.  Whoever asks the trained model gives in the field "dense" not the four numbers but the
    place alone, from 0; the others are counted.
    """

    dense_size = 4
    asked: ClassVar[Mapping[str, Asked]] = {
        "dense": Asked(0, "the place of the sentence in its article, from 0")
    }

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of each question."""
        for sample in super().generate_samples(tmp_dir, split):
            yield {**sample, "dense": sample["place"][1]}

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample, its texts in words, with its numbers."""
        place = sample["dense"]
        if isinstance(place, bool) or not isinstance(place, int | float) or place < 0:
            raise DataError(
                f"dense is {place!r}, where the place of the sentence in its article, a number "
                "from 0, was expected."
            )
        for example in super().examples_of(sample):
            question, sentence = example["query"].split(), example["document"].split()
            yield {**example, "dense": [*_common(question, sentence), math.log1p(place)]}

    def inputs_of(self, sample: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Returns the texts in words, with their numbers."""
        return list(self.examples_of(sample))


@register_problem("answer_pairs_wikiqa")
class AnswerPairsWikiqa(PairRankingProblem):
    """A question, a sentence that answers it and one of its sentences that does not.

    Each such pair of sentences is a sample.  The raw files and parts are the same.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = (_TRAIN, _TEST)
    approx_vocab_size = 2**13

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the pairs of each question; none if all of its sentences answer it."""
        for question, sentences in _questions(tmp_dir, split, self.bad_records):
            wrong, right = ([text for label, text in sentences if label == one] for one in _LABELS)
            for positive, negative in itertools.product(right, wrong):
                yield {"query": question, "positive": positive, "negative": negative}


def _questions(
    tmp_dir: Path, split: Split, bad: BadRecords
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields the questions of a part, each with its sentences and their labels."""
    path = (_TEST if split is Split.TEST else _TRAIN).get(tmp_dir)
    records = open_records(path, format="tsv", bad=bad, options={"columns": _COLUMNS})
    grouped = itertools.groupby(records, key=lambda record: record.values["question"])
    for number, (question, group) in enumerate(grouped):
        held_out = number % _EVERY == _EVERY - 1
        sentences = [
            (record.values["label"], record.values["sentence"])
            for record in group
            if _is_good(record, bad)
        ]
        if split is Split.TEST or held_out is (split is Split.EVAL):
            yield question, sentences


def _common(question: Sequence[str], sentence: Sequence[str]) -> tuple[float, float, float]:
    """Returns what shares of a question are in a sentence, and the logarithm of its words."""
    ours, theirs = ({word[:_BEGINNING] for word in words} for words in (question, sentence))
    words = len(ours & theirs) / max(1, len(ours))
    pairs = len(set(itertools.pairwise(question)) & set(itertools.pairwise(sentence)))
    return words, pairs / max(1, len(question) - 1), math.log(max(1, len(sentence)))


def _is_good(record: Record, bad: BadRecords) -> bool:
    label = record.values["label"]
    if label not in _LABELS:
        bad.report(record.place, f"the label {label!r}, where 0 or 1 is expected")
    return label in _LABELS
