"""Base classes of problems with labels, with or without texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.manifest import datagen_command
from t2t_torch.data.vocabulary_builder import LabelVocabularyBuilder, VocabularyBuilder
from t2t_torch.errors import DataError
from t2t_torch.features import ClassLabel, Feature
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import ClassLabelEncoder


class LabelProblem(Problem):
    """Base class of problems whose samples may have labels.

    Attributes:
      class_labels: the names of the classes; if empty, those of the training data.
    """

    class_labels: ClassVar[tuple[str, ...]] = ()

    def labels_file(self, field: str) -> str:
        """Returns the name of the file with the labels of a field."""
        return f"labels.{self.dataset_name}.{field}.txt"

    def label_learner(self, field: str) -> list[VocabularyBuilder]:
        """Returns the builder of the labels of a field; none if `class_labels` lists them."""
        if self.class_labels:
            return []

        def labels(sample: Mapping[str, Any]) -> Iterable[str]:
            return [sample[field]] if isinstance(sample[field], str) else sample[field]

        return [LabelVocabularyBuilder(self.labels_file(field), labels)]

    def label_encoder(self, directory: Path, field: str) -> ClassLabelEncoder:
        """Returns the encoder of the labels of a field."""
        if self.class_labels:
            return ClassLabelEncoder(self.class_labels)
        return self.learnt_labels(directory, field)

    def learnt_labels(self, directory: Path, field: str) -> ClassLabelEncoder:
        """Returns the encoder of the labels that a field has in the training samples."""
        return ClassLabelEncoder.load(self._there(directory, self.labels_file(field)))

    def _there(self, directory: Path, file: str) -> Path:
        """Returns the path of a file that is learnt from the training samples, which must exist."""
        if not (directory / file).exists():
            raise DataError(
                f"{directory / file}, which {self.name!r} reads, is not there. "
                f"Make it:  {datagen_command(self.name, directory)}"
            )
        return directory / file


class LabelTargets(LabelProblem):
    """Base class of problems whose "targets" is one of several classes."""

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "neg_log_perplexity")

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builders of the inputs and of the labels."""
        return [*super().learners(), *self.label_learner("targets")]

    def target(self, directory: Path) -> Feature:
        """Returns the feature of the label."""
        labels = self.label_encoder(directory, "targets")
        return ClassLabel(labels, allow_unknown=not self.class_labels)
