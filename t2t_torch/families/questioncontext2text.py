"""A question and what it is about, to an answer in words."""

from __future__ import annotations

from pathlib import Path

from t2t_torch.features import Features, Text
from t2t_torch.text_problem import TextProblem


class QuestionContext2TextProblem(TextProblem):
    """A question and a text that it is about, to an answer in words of its own.

    `generate_samples` yields {"inputs": the question, "context": str, "targets": the answer}.
    """

    text_fields = ("inputs", "context", "targets")
    batch_size_means_tokens = True

    def stored_features(self, directory: Path) -> Features:
        """Returns the three texts, which share one encoder."""
        text = Text(self.encoder(directory))
        inputs = {"inputs": text, "context": text, **self.dense(directory)}
        return Features(inputs, {"targets": text}, notes=self.weights())
