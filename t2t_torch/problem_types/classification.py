"""Classification, regression and ranking problems of texts, text pairs and dialogues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch import features
from t2t_torch.data.vocabulary_builder import MomentsBuilder, VocabularyBuilder, load_moments
from t2t_torch.features import Feature, Features, Text
from t2t_torch.problem_types.labelled import LabelTargets
from t2t_torch.text_problem import TextProblem

_OF_TEXTS = (
    "linear/linear_base",
    "text_cnn/text_cnn_small",
    "bilstm_attention_classifier/bilstm_attention_classifier_small",
)


class SingleTargetProblem(TextProblem):
    """Base class of text problems with one target, by default of one text."""

    text_fields: ClassVar[tuple[str, ...]] = ("inputs",)
    batch_size_means_tokens = True

    def text_inputs(self, directory: Path) -> dict[str, Feature]:
        """Returns the features of the texts."""
        return {"inputs": Text(self.encoder(directory))}

    def target(self, directory: Path) -> Feature:
        """Returns the feature of the target."""
        raise NotImplementedError

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the texts and the target."""
        inputs = {**self.text_inputs(directory), **self.dense(directory)}
        return Features(inputs, {"targets": self.target(directory)}, notes=self.weights())


class Text2ClassProblem(LabelTargets, SingleTargetProblem):
    """Text classification into one of several classes.

    `generate_samples` yields {"inputs": str, "targets": str}, the label by name.  A label that
    occurs only in evaluation data always counts as wrong and has no loss.

    Attributes:
      soft_labels: the targets are probabilities for `class_labels`, as a mapping or in their
        order.
    """

    suggested_flags = "--model=fasttext --hparams_set=fasttext_base"
    portfolio = _OF_TEXTS
    soft_labels: ClassVar[bool] = False
    optional_setting_names = (*TextProblem.optional_setting_names, "soft_labels")

    def label_learner(self, field: str) -> list[VocabularyBuilder]:
        """Returns the builder of the labels; none of probabilities."""
        return [] if self.soft_labels else super().label_learner(field)

    def target(self, directory: Path) -> Feature:
        """Returns the feature of the label, or of the probabilities."""
        if self.soft_labels:
            return features.SoftLabel(self.label_encoder(directory, "targets"))
        return super().target(directory)


class Text2MultiLabelProblem(LabelTargets, SingleTargetProblem):
    """Text classification into any number of classes, including none.

    `generate_samples` yields {"inputs": str, "targets": list of labels}.  A label that occurs only
    in evaluation data is ignored.
    """

    metrics = ("exact_match", "f1_micro")
    suggested_flags = "--model=fasttext --hparams_set=fasttext_base"
    portfolio = _OF_TEXTS

    def target(self, directory: Path) -> Feature:
        """Returns the feature of the labels."""
        labels = self.label_encoder(directory, "targets")
        return features.MultiLabel(labels, allow_unknown=not self.class_labels)


class RealTargets(SingleTargetProblem):
    """Base class of problems with numeric "targets", which are standardized for training.

    t2t-datagen stores the mean and standard deviation over the training split, and the
    standardized targets, on which the loss is computed.  Predictions, exported graphs and metrics
    use the original units.  Data of earlier versions has no file of moments; its targets are used
    unchanged.

    Attributes:
      target_size: number of values.
      raw_targets: use the targets unchanged; required in mixtures, whose problems must agree on
        the scale of the stored values.
    """

    metrics = ("rmse", "pearson")
    target_size: ClassVar[int] = 1
    raw_targets: ClassVar[bool] = False
    setting_names = (*TextProblem.setting_names, "target_size")
    optional_setting_names = (*TextProblem.optional_setting_names, "raw_targets")

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builders of the inputs, and of the moments of the targets."""
        own = [] if self.raw_targets else [MomentsBuilder(self.moments_file("targets"), "targets")]
        return [*super().learners(), *own]

    def target(self, directory: Path) -> features.Real:
        """Returns the feature of the values, standardized if the folder has their moments."""
        file = directory / self.moments_file("targets")
        moments = load_moments(file) if not self.raw_targets and file.exists() else ()
        return features.Real(self.target_size, *moments)


class Text2RealProblem(RealTargets):
    """Text regression: predicts one or more numbers, such as a score or a price.

    `generate_samples` yields {"inputs": str, "targets": number or list of numbers}.
    """

    suggested_flags = "--model=fasttext --hparams_set=fasttext_base"
    portfolio = _OF_TEXTS


class TextPairProblem(SingleTargetProblem):
    """Base class of problems with two input texts, "first" and "second"."""

    text_fields = ("first", "second")
    suggested_flags = "--model=pair_classifier --hparams_set=pair_classifier_base"
    portfolio = ("linear/linear_base", "again")

    def text_inputs(self, directory: Path) -> dict[str, Feature]:
        """Returns the features of the two texts."""
        encoder = self.encoder(directory)
        return {"first": Text(encoder), "second": Text(encoder)}


class TextPair2ClassProblem(LabelTargets, TextPairProblem):
    """Classification of text pairs, such as entailment or paraphrase.

    `generate_samples` yields {"first": str, "second": str, "targets": str}.
    """


class TextPair2RealProblem(RealTargets, TextPairProblem):
    """Regression on text pairs, such as similarity.

    `generate_samples` yields {"first": str, "second": str, "targets": number or list of numbers}.
    """


class MultiTurn2ClassProblem(LabelTargets, SingleTargetProblem):
    """Classification of a list of utterances.

    `generate_samples` yields {"inputs": list of str, "targets": str}.

    Attributes:
      max_turns: maximum number of utterances, of which the last are kept; 0 for no limit.
    """

    suggested_flags = "--model=seqnn --hparams_set=seqnn_base"
    portfolio = ("again",)
    max_turns: ClassVar[int] = 50  # PyText's SeqTokenTensorizer
    setting_names = (*TextProblem.setting_names, "max_turns")

    def text_inputs(self, directory: Path) -> dict[str, Feature]:
        """Returns the feature of the utterances."""
        return {"inputs": features.Turns(self.encoder(directory), max_turns=self.max_turns)}


class PairRankingProblem(SingleTargetProblem):
    """Pairwise ranking: a query, a more relevant and a less relevant document.

    `generate_samples` yields {"query": str, "positive": str, "negative": str}.
    """

    text_fields = ("query", "positive", "negative")
    candidates: ClassVar[tuple[str, str]] = ("positive", "negative")
    metrics = ("pairwise_accuracy", "neg_log_perplexity")
    suggested_flags = "--model=pairwise_ranker --hparams_set=pairwise_ranker_base"
    portfolio = ("again",)

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample with the name of the more relevant document."""
        for example in super().examples_of(sample):
            yield {**example, "targets": self.candidates[0]}

    def text_inputs(self, directory: Path) -> dict[str, Feature]:
        """Returns the features of the three texts, which share one encoder."""
        return dict.fromkeys(self.text_fields, Text(self.encoder(directory)))

    def target(self, directory: Path) -> Feature:
        """Returns the feature of which candidate is more relevant."""
        return features.Choice(self.candidates)


class QueryRelevanceProblem(LabelTargets, SingleTargetProblem):
    """Relevance of one document to a query.

    `generate_samples` yields {"query": str, "document": str, "targets": str}, the relevance as a
    label such as "0" or "1".
    """

    metrics = ("query_map", "query_mrr", *LabelTargets.metrics)
    text_fields = ("query", "document")
    suggested_flags = "--model=pairwise_ranker --hparams_set=pairwise_ranker_relevance"
    portfolio = ("linear/linear_base", "again")

    def text_inputs(self, directory: Path) -> dict[str, Feature]:
        """Returns the features of the query and the document."""
        return dict.fromkeys(self.text_fields, Text(self.encoder(directory)))

    def weights(self) -> dict[str, Feature]:
        """Returns the annotation "weight", and the query of the document."""
        return {**super().weights(), "targets_query": features.QueryId()}
