"""WikiQA: 1,116 search engine questions with candidate answer sentences from Wikipedia.

Source: Yang, Yih and Meek 2015, "WikiQA: A Challenge Dataset for Open-Domain Question Answering",
EMNLP, as prepared by Yin et al. 2016 (ABCNN): only questions with at least one answer.
Licence: Microsoft Research's data licence for the corpus, for research.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import mirrored, on_github
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem import RequestInput
from t2t_torch.problem_types.classification import PairRankingProblem, QueryRelevanceProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords, Record
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import WordCutter
from t2t_torch.text_problem import VocabType

_TRAIN, _TEST = mirrored(
    on_github("Lapis-Hong/ABCNN/master/data/WikiQA/"),
    {
        "train.txt": "b2fff63b184902b9d00697e45b2cf4704f0646aa49a17ded4a2fb7a2ede99891",
        "test.txt": "ca5446c523a972d13ff21f4c4968bd5d0af901a7fa06088d6ac4fbccafef135c",
    },
    "wikiqa",
    "",
)
_COLUMNS = ("label", "question", "sentence")
_LABELS = ("0", "1")
_EVERY = 10  # one in this many training questions is EVAL
_BEGINNING = 5  # letters compared: "crocodile" and "crocodiles" match


@register_problem("answer_ranking_wikiqa")
class AnswerRankingWikiqa(QueryRelevanceProblem):
    """Classifies whether a sentence answers a question: "1" or "0".

    The raw files are `train.txt` and `test.txt`, tab-separated: label, question, sentence.
    There is no development split: every tenth training question, with all its sentences, is EVAL.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = (_TRAIN, _TEST)
    approx_vocab_size = 2**13
    class_labels = _LABELS

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of each question."""
        for question, sentences in _questions(tmp_dir, split, self.bad_records):
            for label, sentence in sentences:
                yield {"query": question, "document": sentence, "targets": label}


@register_problem("answer_ranking_wikiqa_words")
class AnswerRankingWikiqaWords(AnswerRankingWikiqa):
    """The same on lower-case words and punctuation; the questions have no capitals."""

    vocab_type = VocabType.WORD
    approx_vocab_size = 2**15
    cutters: ClassVar[Mapping[str, WordCutter]] = dict.fromkeys(("query", "document"), WordCutter())
    suggested_flags = (
        "--model=pair_classifier --hparams_set=pair_classifier_wikiqa --train_steps=400"
    )


@register_problem("answer_ranking_wikiqa_counts")
class AnswerRankingWikiqaCounts(AnswerRankingWikiqaWords):
    """The same with four numeric features per pair, mostly word overlap, including unknown words.

    They are the fraction of question words that share a prefix with a word of the sentence, the
    fraction of question bigrams that occur in the sentence, and the logarithms of the sentence
    length in words and of its position in the article, from 1.  Yang et al. combine such counts
    with a neural network.  At prediction time the field "dense" holds only the position, from 0;
    the other numbers are computed.
    """

    dense_size = 4
    request_inputs: ClassVar[Mapping[str, RequestInput]] = {
        "dense": RequestInput(0, "the place of the sentence in its article, from 0")
    }

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of each question."""
        samples = super().generate_samples(tmp_dir, split)
        for _, of_question in itertools.groupby(samples, key=lambda sample: sample["query"]):
            for place, sample in enumerate(of_question):
                yield {**sample, "dense": place}

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample as words, with its numeric features."""
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
        """Returns the texts as words, with their numeric features."""
        return list(self.examples_of(sample))


@register_problem("answer_pairs_wikiqa")
class AnswerPairsWikiqa(PairRankingProblem):
    """Ranks a sentence that answers a question above one that does not.

    Each pair of such sentences is a sample.  Raw files and splits are the same.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = (_TRAIN, _TEST)
    approx_vocab_size = 2**13

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the pairs of each question; none if all of its sentences are answers."""
        for question, sentences in _questions(tmp_dir, split, self.bad_records):
            wrong, right = ([text for label, text in sentences if label == one] for one in _LABELS)
            for positive, negative in itertools.product(right, wrong):
                yield {"query": question, "positive": positive, "negative": negative}


def _questions(
    tmp_dir: Path, split: Split, bad: BadRecords
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields the questions of a split, each with its sentences and their labels."""
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
    """Returns the two overlap fractions and the logarithm of the sentence length in words."""
    ours, theirs = ({word[:_BEGINNING] for word in words} for words in (question, sentence))
    words = len(ours & theirs) / max(1, len(ours))
    pairs = len(set(itertools.pairwise(question)) & set(itertools.pairwise(sentence)))
    return words, pairs / max(1, len(question) - 1), math.log(max(1, len(sentence)))


def _is_good(record: Record, bad: BadRecords) -> bool:
    label = record.values["label"]
    if label not in _LABELS:
        bad.report(record.place, f"the label {label!r}, where 0 or 1 is expected")
    return label in _LABELS
