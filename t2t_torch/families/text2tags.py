"""Words, to a tag for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.learner import Learner
from t2t_torch.families.word import WordProblem
from t2t_torch.features import Features, Tags


class Text2TagsProblem(WordProblem):
    """Words, to a tag for each: parts of speech, names, chunks.

    `generate_samples` yields {"inputs": list of words, "targets": list of tags}, one for each word.
    Tags of spans are written B-X, I-X, O (also IOB1, where B- stands only between neighbours);
    for others `metrics` may leave `span_f1` out.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "accuracy_per_sequence", "span_f1")

    def learners(self) -> Sequence[Learner]:
        """The vocabulary, what belongs to words, and the tags."""
        return [*super().learners(), *self.label_learner("targets")]

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample; DataError unless it has one tag for each word."""
        for example in super().examples_of(sample):
            self.check_aligned(example, "targets")
            yield example

    def stored_features(self, directory: Path) -> Features:
        """Returns the words and the tags."""
        labels = self.label_encoder(directory, "targets")
        target = Tags(labels, self.words_field, allow_unknown=not self.class_labels)
        notes = self.word_notes(directory)
        return Features(self.words(directory), {"targets": target}, notes=notes)
