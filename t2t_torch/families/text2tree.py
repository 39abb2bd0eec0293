"""Words, to a tree over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.data.learner import LabelLearner, Learner
from t2t_torch.errors import DataError
from t2t_torch.families.word import WordProblem
from t2t_torch.features import Features
from t2t_torch.features.tree import TreeFeature
from t2t_torch.text.transition import UNKNOWN_LABEL, TransitionEncoder
from t2t_torch.text.tree import Tree, parse_tree


class Text2TreeProblem(WordProblem):
    """Words, to a tree over them: of constituents, or of intents and slots.

    `generate_samples` yields {"inputs": list of words, "targets": str}, the tree in round brackets
    or in TOP's square ones; without "inputs" the words are those of the tree.  What is learnt are
    the transitions that build the tree; its words are not in them.
    """

    metrics = ("accuracy", "accuracy_per_sequence", "neg_log_perplexity")
    suggested_flags = (
        "--model=transformer --hparams_set=transformer_small "
        "--hparams=shared_embedding_and_softmax_weights=False"
    )

    def learners(self) -> Sequence[Learner]:
        """The vocabulary, what belongs to words, and the labels of constituents."""
        learners = list(super().learners())
        if not self.class_labels:
            learners.append(LabelLearner(self.labels_file("targets"), _labels))
        return learners

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample, its tree parsed; DataError if it is none, or of other words."""
        tree = sample["targets"]
        tree = tree if isinstance(tree, Tree) else parse_tree(tree)
        words = list(sample.get("inputs", tree.words))
        if words != list(tree.words):
            raise DataError(f"the tree's words are {list(tree.words)!r}, the text's {words!r}.")
        yield {**sample, "inputs": words, "targets": tree}

    def stored_features(self, directory: Path) -> Features:
        """Returns the words and the tree."""
        if self.class_labels:
            encoder = TransitionEncoder(self.class_labels)
        else:
            encoder = TransitionEncoder.load(self._there(directory, self.labels_file("targets")))
        notes = self.word_notes(directory)
        return Features(self.words(directory), {"targets": TreeFeature(encoder)}, notes=notes)


def _labels(sample: Mapping[str, Any]) -> Iterable[str]:
    return (label for label in sample["targets"].labels if label != UNKNOWN_LABEL)
