"""A list of utterances, to one of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.learner import Learner
from t2t_torch.features import ClassLabel, Features, Turns
from t2t_torch.text_problem import TextProblem


class MultiTurn2ClassProblem(TextProblem):
    """A list of utterances, to one of several classes.

    `generate_samples` yields {"inputs": list of str, "targets": str}.

    Attributes:
      max_turns: so many utterances are kept, the last ones; 0 is all.
    """

    text_fields = ("inputs",)
    metrics = ("accuracy", "neg_log_perplexity")
    suggested_flags = "--model=seqnn --hparams_set=seqnn_base"
    batch_size_means_tokens = True
    max_turns: ClassVar[int] = 50  # PyText's SeqTokenTensorizer
    setting_names = (*TextProblem.setting_names, "max_turns")

    def learners(self) -> Sequence[Learner]:
        """The vocabulary and the labels."""
        return [*super().learners(), *self.label_learner("targets")]

    def stored_features(self, directory: Path) -> Features:
        """Returns the utterances and the label."""
        labels = self.label_encoder(directory, "targets")
        target = ClassLabel(labels, allow_unknown=not self.class_labels)
        turns = Turns(self.encoder(directory), max_turns=self.max_turns)
        inputs = {"inputs": turns, **self.dense(directory)}
        return Features(inputs, {"targets": target}, notes=self.weights())
