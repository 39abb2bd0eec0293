"""Words, to an intent and a slot for each word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.learner import Learner
from t2t_torch.families.word import WordProblem
from t2t_torch.features import ClassLabel, Features, Tags


class IntentSlotProblem(WordProblem):
    """A request, to what is wanted and which words say what: two targets from one text.

    `generate_samples` yields {"inputs": list of words, "intent": str, "slots": list of tags}.
    Labels that only evaluation data has are never right.
    """

    metrics: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "intent": ("accuracy",),
        "slots": ("accuracy", "span_f1"),
    }

    suggested_flags = "--model=joint_bilstm --hparams_set=joint_bilstm_base"

    def learners(self) -> Sequence[Learner]:
        """The vocabulary, what belongs to words, the intents and the slots."""
        labels = [*self.label_learner("intent"), *self.label_learner("slots")]
        return [*super().learners(), *labels]

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample; DataError unless it has one tag for each word."""
        for example in super().examples_of(sample):
            self.check_aligned(example, "slots")
            yield example

    def stored_features(self, directory: Path) -> Features:
        """Returns the words, the intent and the slots."""
        slots = self.label_encoder(directory, "slots")
        targets = {
            "intent": ClassLabel(self.label_encoder(directory, "intent"), allow_unknown=True),
            "slots": Tags(slots, self.words_field, allow_unknown=True),
        }
        notes = self.word_notes(directory)
        return Features(self.words(directory), targets, notes=notes)
