"""A text, to numbers."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from t2t_torch.features import Features, Real, Text
from t2t_torch.text_problem import TextProblem


class Text2RealProblem(TextProblem):
    """A text, to numbers: a score, a price.

    `generate_samples` yields {"inputs": str, "targets": number or list of numbers}.

    Attributes:
      target_size: how many numbers.
    """

    text_fields = ("inputs",)
    metrics = ("rmse", "pearson")
    suggested_flags = "--model=fasttext --hparams_set=fasttext_base"
    batch_size_means_tokens = True
    target_size: ClassVar[int] = 1
    setting_names = (*TextProblem.setting_names, "target_size")

    def stored_features(self, directory: Path) -> Features:
        """Returns the text and the numbers."""
        inputs = {"inputs": Text(self.encoder(directory)), **self.dense(directory)}
        return Features(inputs, {"targets": Real(self.target_size)}, notes=self.weights())
