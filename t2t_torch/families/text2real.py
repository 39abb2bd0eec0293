"""A text, to numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.learner import Learner, MomentsLearner, load_moments
from t2t_torch.features import Features, Real, Text
from t2t_torch.text_problem import TextProblem


class RealTargets(TextProblem):
    """A problem whose "targets" are numbers, which are learned standardized.

    t2t-datagen stores their mean and standard deviation over the training split, and the targets
    less the one, divided by the other: the loss is that of standardized numbers.  Answers, exported
    graphs and metrics are in the numbers' own units.  Data of earlier versions has no such file;
    its numbers are learned as they are.

    Attributes:
      target_size: how many numbers.
      raw_targets: learn the numbers as they are; needed where problems are mixed, which have to
        agree on what a stored number means.
    """

    metrics = ("rmse", "pearson")
    target_size: ClassVar[int] = 1
    raw_targets: ClassVar[bool] = False
    setting_names = (*TextProblem.setting_names, "target_size")
    optional_setting_names = (*TextProblem.optional_setting_names, "raw_targets")

    def learners(self) -> Sequence[Learner]:
        """Those of the inputs, and the moments of the targets."""
        own = (MomentsLearner(file, "targets") for file in self.optional_vocab_files)
        return [*super().learners(), *own]

    @property
    def optional_vocab_files(self) -> tuple[str, ...]:
        """The file of the targets' moments."""
        return () if self.raw_targets else (f"moments.{self.dataset_name}.targets.json",)

    def target(self, directory: Path) -> Real:
        """Returns the numbers' feature, standardized if the folder has their moments."""
        for file in self.optional_vocab_files:
            if (directory / file).exists():
                mean, std = load_moments(directory / file)
                return Real(self.target_size, tuple(mean), tuple(std))
        return Real(self.target_size)


class Text2RealProblem(RealTargets):
    """A text, to numbers: a score, a price.

    `generate_samples` yields {"inputs": str, "targets": number or list of numbers}.
    """

    text_fields = ("inputs",)
    suggested_flags = "--model=fasttext --hparams_set=fasttext_base"
    batch_size_means_tokens = True

    def stored_features(self, directory: Path) -> Features:
        """Returns the text and the numbers."""
        inputs = {"inputs": Text(self.encoder(directory)), **self.dense(directory)}
        return Features(inputs, {"targets": self.target(directory)}, notes=self.weights())
