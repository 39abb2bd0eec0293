"""A text, to one of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.learner import Learner
from t2t_torch.features import ClassLabel, Features, SoftLabel, Text
from t2t_torch.text_problem import TextProblem


class Text2ClassProblem(TextProblem):
    """A text, to one of several classes.

    `generate_samples` yields {"inputs": str, "targets": str}, the label by name.  A label that only
    evaluation data has is never right and has no loss.

    Attributes:
      soft_labels: whether the targets are a probability for each of `class_labels`, as a mapping or
        in their order.
    """

    text_fields = ("inputs",)
    metrics = ("accuracy", "neg_log_perplexity")
    suggested_flags = "--model=fasttext --hparams_set=fasttext_base"
    batch_size_means_tokens = True
    soft_labels: ClassVar[bool] = False
    optional_setting_names = (*TextProblem.optional_setting_names, "soft_labels")

    def learners(self) -> Sequence[Learner]:
        """The vocabulary and the labels."""
        return [*super().learners(), *([] if self.soft_labels else self.label_learner("targets"))]

    def stored_features(self, directory: Path) -> Features:
        """Returns the text and the label."""
        labels = self.label_encoder(directory, "targets")
        target = (
            SoftLabel(labels)
            if self.soft_labels
            else ClassLabel(labels, allow_unknown=not self.class_labels)
        )
        inputs = {"inputs": Text(self.encoder(directory)), **self.dense(directory)}
        return Features(inputs, {"targets": target}, notes=self.weights())
