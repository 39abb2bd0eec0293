"""A query and documents, to the order of the documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.learner import Learner
from t2t_torch.features import Choice, ClassLabel, Feature, Features, Place, Text
from t2t_torch.text_problem import TextProblem


class PairRankingProblem(TextProblem):
    """A query, a document that answers it better, and one that answers it worse.

    `generate_samples` yields {"query": str, "positive": str, "negative": str}.
    """

    text_fields = ("query", "positive", "negative")
    candidates: ClassVar[tuple[str, str]] = ("positive", "negative")
    metrics = ("pairwise_accuracy", "neg_log_perplexity")
    suggested_flags = "--model=pairwise_ranker --hparams_set=pairwise_ranker_base"
    batch_size_means_tokens = True

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample with the name of the better document."""
        for example in super().examples_of(sample):
            yield {**example, "targets": self.candidates[0]}

    def stored_features(self, directory: Path) -> Features:
        """Returns the texts and which candidate is the better one."""
        text = Text(self.encoder(directory))
        inputs = {"query": text, "positive": text, "negative": text, **self.dense(directory)}
        return Features(inputs, {"targets": Choice(self.candidates)}, notes=self.weights())


class QueryRelevanceProblem(TextProblem):
    """A query and one document, to how relevant it is.

    `generate_samples` yields {"query": str, "document": str, "targets": str}, the relevance as a
    label such as "0" or "1".

    Attributes:
      max_queries: so many queries a split has at most; if given, a sample's "place" holds the
        numbers of its query and of its document, both from 0, and `query_map` and `query_mrr` may
        be among the metrics.
      max_documents: so many documents a query has at most.
    """

    max_queries: ClassVar[int] = 0
    max_documents: ClassVar[int] = 1000
    optional_setting_names = (*TextProblem.optional_setting_names, "max_queries")

    text_fields = ("query", "document")
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "neg_log_perplexity")
    suggested_flags = "--model=pairwise_ranker --hparams_set=pairwise_ranker_relevance"
    batch_size_means_tokens = True

    def learners(self) -> Sequence[Learner]:
        """The vocabulary and the labels."""
        return [*super().learners(), *self.label_learner("targets")]

    def stored_features(self, directory: Path) -> Features:
        """Returns the texts and the relevance."""
        text = Text(self.encoder(directory))
        labels = self.label_encoder(directory, "targets")
        inputs = {"query": text, "document": text, **self.dense(directory)}
        target = ClassLabel(labels, allow_unknown=not self.class_labels)
        notes: dict[str, Feature] = self.weights()
        if self.max_queries:
            notes["targets_place"] = Place(self.max_queries, self.max_documents)
        return Features(inputs, {"targets": target}, notes=notes)
