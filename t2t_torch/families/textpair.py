"""Two texts, to a class or to a number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from t2t_torch.data.learner import Learner
from t2t_torch.families.text2real import RealTargets
from t2t_torch.features import ClassLabel, Feature, Features, Text
from t2t_torch.text_problem import TextProblem


class TextPairProblem(TextProblem):
    """Two texts, "first" and "second"; a subclass says what they lead to."""

    text_fields = ("first", "second")
    suggested_flags = "--model=pair_classifier --hparams_set=pair_classifier_base"
    batch_size_means_tokens = True

    def pair(self, directory: Path) -> dict[str, Feature]:
        """Returns the inputs."""
        text = Text(self.encoder(directory))
        return {"first": text, "second": text, **self.dense(directory)}


class TextPair2ClassProblem(TextPairProblem):
    """Two texts, to one of several classes: entailment, paraphrase.

    `generate_samples` yields {"first": str, "second": str, "targets": str}.
    """

    metrics = ("accuracy", "neg_log_perplexity")

    def learners(self) -> Sequence[Learner]:
        """The vocabulary and the labels."""
        return [*super().learners(), *self.label_learner("targets")]

    def stored_features(self, directory: Path) -> Features:
        """Returns the texts and the label."""
        labels = self.label_encoder(directory, "targets")
        target = ClassLabel(labels, allow_unknown=not self.class_labels)
        return Features(self.pair(directory), {"targets": target}, notes=self.weights())


class TextPair2RealProblem(RealTargets, TextPairProblem):
    """Two texts, to numbers: how alike they are.

    `generate_samples` yields {"first": str, "second": str, "targets": number or list of numbers}.
    """

    def stored_features(self, directory: Path) -> Features:
        """Returns the texts and the numbers."""
        target = self.target(directory)
        return Features(self.pair(directory), {"targets": target}, notes=self.weights())
