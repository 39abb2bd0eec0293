"""A text, to any number of classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from t2t_torch.data.learner import Learner
from t2t_torch.features import Features, MultiLabel, Text
from t2t_torch.text_problem import TextProblem


class Text2MultiLabelProblem(TextProblem):
    """A text, to any number of classes, also none.

    `generate_samples` yields {"inputs": str, "targets": list of labels}.  A label that only
    evaluation data has is left out.
    """

    text_fields = ("inputs",)
    metrics = ("exact_match", "f1_micro")
    suggested_flags = "--model=fasttext --hparams_set=fasttext_base"
    batch_size_means_tokens = True

    def learners(self) -> Sequence[Learner]:
        """The vocabulary and the labels."""
        return [*super().learners(), *self.label_learner("targets")]

    def stored_features(self, directory: Path) -> Features:
        """Returns the text and the labels."""
        labels = self.label_encoder(directory, "targets")
        target = MultiLabel(labels, allow_unknown=not self.class_labels)
        inputs = {"inputs": Text(self.encoder(directory)), **self.dense(directory)}
        return Features(inputs, {"targets": target}, notes=self.weights())
