"""Parsing with a trained model: sentences to trees over their words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.label_predictor import check_aligned
from t2t_torch.decode.predictor import Predictor, input_columns, padded_rows
from t2t_torch.decode.search import Step
from t2t_torch.errors import DataError, DecodeError
from t2t_torch.features import OriginalWords, TreeFeature
from t2t_torch.features.text import words_of
from t2t_torch.features.word import WordLabel, labels_of
from t2t_torch.layers.recurrent import RowState
from t2t_torch.layers.tree import ParseState, ValidTransitions
from t2t_torch.model import State
from t2t_torch.runtime.prediction import Hypothesis, InputColumns, Prediction, sorted_hypotheses
from t2t_torch.text.encoder import EOS
from t2t_torch.text.tree import UNKNOWN_LABEL, builds_tree

_NO_TREE = Hypothesis("", (), 0.0)  # for a sentence without words


class AnnotatedSentence(list[int]):
    """The ids of a sentence, with its annotations.

    Attributes:
      row: given values by feature.
      words: all words.
      tags: tags of the words, if trees have them; else empty.
    """

    def __init__(
        self, ids: Iterable[int], row: Mapping[str, Any], words: list[str], tags: list[str]
    ) -> None:
        super().__init__(ids)
        self.row = row
        self.words = words
        self.tags = tags


@dataclasses.dataclass
class _Building(RowState):
    """A model's state and the progress of the trees; see `State`."""

    state: State
    progress: ParseState


class TreePredictor(Predictor):
    """A parser with any model of trees.

    An input is a text with words separated by spaces, or a list of words.  If labels of words are
    given, it is a mapping of fields: {"inputs": "the board met", "tags": "DT NN VBD"}.
    Unless `valid_trees` is off, the search is restricted to transitions that lead to one tree over
    all words.  Other outputs are repaired, so the tree contains every word.

    See `Predictor` for arguments and errors.

    Attributes:
      given: features created from an input.
      fields: fields of an input.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self._target, TreeFeature)
        self._tree = self._target
        self.given = self.features.given
        tags = [self._tree.tags] if self._tree.tags else []
        sources = [feature.source or name for name, feature in self.given.items()]
        self.fields = tuple(dict.fromkeys([*sources, *tags]))

    @property
    def columns(self) -> InputColumns:
        """Columns of the fields of an input."""
        return input_columns(self.problem, dict.fromkeys(self.fields, "words"))

    def _check_own(self, hparams: DecodeHParams) -> None:
        """Raises HParamsError if a setting applies only to other kinds of target."""
        hparams.check_of_trees()

    def encode(self, texts: Sequence[Any], hparams: DecodeHParams | None = None) -> list[list[int]]:
        """Returns the sentences of inputs.

        Raises:
          DataError: an input does not have one label per word, or has too many words.
          DecodeError: an input lacks a field.
        """
        return [self.cut(self._sentence(value), hparams) for value in texts]

    def _sentence(self, value: Any) -> AnnotatedSentence:
        if value == "":  # an empty line, for any fields
            return AnnotatedSentence([], {}, [], [])
        sample = value if isinstance(value, Mapping) else {self._tree.of: value}
        if missing := [field for field in self.fields if field not in sample]:
            raise DecodeError(
                f"{value!r} has no {', '.join(missing)}; {self.problem.full_name!r} takes "
                f"the fields {', '.join(self.fields)}. Give a mapping (in a file, called .jsonl, a "
                "JSON object, one a line)."
            )
        words = list(words_of(sample[self._tree.of]))
        tags = labels_of(sample[self._tree.tags]) if self._tree.tags else []
        row = {name: f.encode(sample[f.source or name]) for name, f in self.given.items()}
        check_aligned(self.given, sample, row)
        return AnnotatedSentence(row[self._tree.of], row, words, tags)

    def with_tree(self, text: str, tree: str) -> dict[str, Sequence[Any]]:
        """Returns the ids of a sentence and of a tree over its words, by feature.

        Given labels of words are read from the tree.

        Raises:
          DataError: the text is not a tree, or has other words.
          DecodeError: the problem needs more than a sentence and a tree.
        """
        (target,) = self.features.targets
        values = {self._tree.of: list(words_of(text)), target: tree}
        (sample,) = self.problem.examples_of(values)
        sentence = self._sentence(sample)
        self.cut(sentence)
        return {**sentence.row, target: self._tree.encode(sample[target])}

    def stored(self, row: Mapping[str, Sequence[int]]) -> AnnotatedSentence:
        """Returns the sentence of a row of generated data, by feature.

        If the ids do not decode to the words, the row's `OriginalWords` are used; older data lacks
        them, and unknown words appear as the vocabulary's unknown symbol.
        """
        words = list(self.given[self._tree.of].decode(row[self._tree.of]))
        for name, feature in self.features.kept.items():
            if isinstance(feature, OriginalWords) and name in row:
                words = feature.decode(row[name])[: len(words)] or words
        tags: list[str] = []
        for name, feature in self.given.items():
            if isinstance(feature, WordLabel) and feature.field == self._tree.tags:
                tags = [(feature.decode([i]) or [UNKNOWN_LABEL])[0] for i in row[name]]
        return AnnotatedSentence(row[self._tree.of], row, words, tags)

    def cut(self, ids: list[int], hparams: DecodeHParams | None = None) -> list[int]:
        """Returns the sentence unchanged; DataError if it is longer than `max_input_size`."""
        most = (hparams or self.hparams).max_input_size
        if 0 < most < len(ids):
            raise DataError(
                f"a sentence has {len(ids)} ids, more than max_input_size={most}: a tree is over "
                "all words, so it is not cut. Leave it out, or set a higher one."
            )
        return ids

    def over(self, ids: Sequence[int], sentence: AnnotatedSentence) -> str:
        """Returns the tree that transitions build over a sentence's words."""
        return self._tree.over(ids, sentence.words, sentence.tags)

    def written(
        self, sentences: Sequence[Sequence[int]], trees: Sequence[Sequence[int]] | None
    ) -> list[str]:
        """Returns sentences as lines: their words, or the given trees."""
        known = [sentence for sentence in sentences if isinstance(sentence, AnnotatedSentence)]
        if trees is None:
            return [" ".join(sentence.words) for sentence in known]
        return [self.over(ids, sentence) for sentence, ids in zip(known, trees, strict=True)]

    def _prediction(
        self, rows: list[list[int]], scores: list[float], given: Any = ()
    ) -> Prediction:
        """Returns the trees of a sentence."""
        hypotheses = []
        for ids, score in sorted_hypotheses(rows, scores):
            is_whole = builds_tree(self._tree.transitions(ids), len(given.words))
            tree = self.over(ids, given)
            hypotheses.append(Hypothesis(tree, tuple(ids), score, repaired=not is_whole))
        return Prediction.of_texts(self.target, hypotheses)

    @torch.no_grad()  # not inference mode: see `Predictor`
    def _predict_batch(
        self, inputs: list[Sequence[int]], hparams: DecodeHParams
    ) -> list[Prediction]:
        every: Any = inputs  # as `encode` makes them
        sentences = [sentence for sentence in every if sentence.words]
        results = iter(super()._predict_batch(sentences, hparams) if sentences else ())
        none = Prediction.of_texts(self.target, [_NO_TREE])
        return [next(results) if sentence.words else none for sentence in every]

    def _start(
        self, step: Step, state: Any, inputs: Sequence[Any], limits: Tensor, hparams: DecodeHParams
    ) -> tuple[Step, Any]:
        """Returns the step and the state of a search, of valid trees if that is set."""
        if not hparams.valid_trees:
            return step, state
        device = limits.device
        rules = ValidTransitions(
            self._tree, hparams.max_open_constituents, device, allow_unknown=False
        )
        words = torch.tensor([len(sentence.words) for sentence in inputs], device=device)

        def valid_step(ids: Tensor, building: _Building) -> tuple[Tensor, _Building]:
            progress = rules.after(ids, building.progress)
            logits, state = step(ids, building.state)
            logits = logits.float().masked_fill(~rules.valid(progress), -torch.inf)
            nothing = torch.isneginf(logits).all(1, keepdim=True)  # the row is dead anyway
            ends = torch.arange(logits.size(1), device=ids.device) == EOS
            return logits.masked_fill(nothing & ends, 0.0), _Building(state, progress)

        return valid_step, _Building(state, rules.start(words, limits))

    def _batch(self, inputs: Sequence[Any], device: torch.device) -> dict[str, Tensor]:
        """Returns the batch of sentences, with their annotations."""
        return {
            name: padded_rows(feature, [sentence.row[name] for sentence in inputs]).to(device)
            for name, feature in self.given.items()
        }
