"""Words, to a tree over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.learner import LabelLearner, Learner
from t2t_torch.errors import DataError
from t2t_torch.families.word import WordProblem
from t2t_torch.features import Feature, Features, OriginalWords, WordLabel, Words
from t2t_torch.features.tree import TreeFeature
from t2t_torch.text.label import ClassLabelEncoder
from t2t_torch.text.transition import UNKNOWN_LABEL, TransitionEncoder, are_of_requests
from t2t_torch.text.tree import Tree, parse_tree


class Text2TreeProblem(WordProblem):
    """Words, to a tree over them: of constituents, or of intents and slots.

    `generate_samples` yields {"inputs": list of words, "targets": str}, the tree in round brackets
    or in TOP's square ones; without "inputs" the words are those of the tree.  What is learnt are
    the transitions that build the tree; its words are not in them.

    Attributes:
      given_tags: whether the labels right above the words are not learnt but given: an input more,
        of the field "tags", which is the tree's own where a sample has it not.
      round_brackets: whether trees are written in round brackets, else in square ones; None is
        round, but of labels that are all intents and slots.
    """

    metrics = ("accuracy", "accuracy_per_sequence", "neg_log_perplexity")
    suggested_flags = "--model=rnng --hparams_set=rnng_base"
    given_tags: ClassVar[bool] = False
    round_brackets: ClassVar[bool | None] = None
    optional_setting_names = (*WordProblem.optional_setting_names, "given_tags")

    def learners(self) -> Sequence[Learner]:
        """The vocabulary, what belongs to words, and the labels of constituents."""
        learners = list(super().learners())
        if not self.class_labels:
            learners.append(LabelLearner(self.labels_file("targets"), _labels))
        if self.given_tags:
            learners.append(LabelLearner(self.labels_file("tags"), lambda sample: sample["tags"]))
        return learners

    def words(self, directory: Path) -> dict[str, Feature]:
        """Returns the words and all inputs that belong to them."""
        inputs = super().words(directory)
        if self.given_tags:
            tags = WordLabel(self.words_field, self._tag_encoder(directory))
            inputs[f"{self.words_field}_tags"] = tags
        return inputs

    def _tag_encoder(self, directory: Path) -> ClassLabelEncoder:
        return ClassLabelEncoder.load(self._there(directory, self.labels_file("tags")))

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample, its tree parsed; DataError if it is none, or of other words."""
        tree = sample["targets"]
        tree = tree if isinstance(tree, Tree) else parse_tree(tree)
        words = list(sample.get("inputs", tree.words))
        if words != list(tree.words):
            raise DataError(f"the tree's words are {list(tree.words)!r}, the text's {words!r}.")
        sample = {**sample, "inputs": words, "targets": tree}
        if self.given_tags:
            tree, tags = tree.without_tags()
            sample = {**sample, "tags": list(sample.get("tags", tags)), "targets": tree}
            self.check_aligned(sample, "tags")
        yield sample

    def stored_features(self, directory: Path) -> Features:
        """Returns the words and the tree."""
        if self.class_labels:
            encoder = TransitionEncoder(self.class_labels)
        else:
            encoder = TransitionEncoder.load(self._there(directory, self.labels_file("targets")))
        notes = self.word_notes(directory)
        is_round = self.round_brackets
        tree = TreeFeature(
            encoder,
            of=self.words_field,
            tags="tags" if self.given_tags else "",
            is_round=not are_of_requests(encoder.labels) if is_round is None else is_round,
        )
        words = self.words(directory)
        encoded = words[self.words_field]
        assert isinstance(encoded, Words)
        kept = {f"{self.words_field}_original": OriginalWords(self.words_field, encoded)}
        return Features(words, {"targets": tree}, notes=notes, kept=kept)


def _labels(sample: Mapping[str, Any]) -> Iterable[str]:
    return (label for label in sample["targets"].labels if label != UNKNOWN_LABEL)
