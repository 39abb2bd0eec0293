"""Base class of problems without texts whose target is a class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.manifest import datagen_command
from t2t_torch.data.vocabulary_builder import LabelVocabularyBuilder, VocabularyBuilder
from t2t_torch.errors import DataError
from t2t_torch.features import ClassLabel
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import ClassLabelEncoder


class LabelledProblem(Problem):
    """Base class of problems whose "targets" are classes, and whose inputs need no vocabulary.

    Attributes:
      class_labels: the names of the classes; if empty, those of the training data.
    """

    class_labels: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "neg_log_perplexity")

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builder of the labels; none if `class_labels` lists them."""
        if self.class_labels:
            return []
        return [LabelVocabularyBuilder(self._labels_file, lambda sample: [sample["targets"]])]

    def target(self, directory: Path) -> ClassLabel:
        """Returns the feature of the class.

        Raises:
          DataError: the list of labels is not in the data folder.
        """
        if self.class_labels:
            return ClassLabel(ClassLabelEncoder(self.class_labels), allow_unknown=False)
        path = directory / self._labels_file
        if not path.exists():
            raise DataError(
                f"The list of labels of {self.name!r}, {path}, is not there. "
                f"Make it:  {datagen_command(self.name, directory)}"
            )
        return ClassLabel(ClassLabelEncoder.load(path), allow_unknown=True)

    @property
    def _labels_file(self) -> str:
        return f"labels.{self.dataset_name}.targets.txt"
