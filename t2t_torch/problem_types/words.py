"""Problems on lists of words: tagging, intents and slots, parsing, answer spans."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch import features
from t2t_torch.data.vocabulary_builder import (
    CharacterVocabularyBuilder,
    LabelVocabularyBuilder,
    VocabularyBuilder,
)
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.features import Feature, Features, Words
from t2t_torch.features.text import TreeFeature
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.text.encoder import ByteEncoder, CharacterEncoder
from t2t_torch.text.tokenizer import IDEOGRAPHS, Token, marks, word_expression
from t2t_torch.text.tree import UNKNOWN_LABEL, TransitionEncoder, Tree, are_of_requests, parse_tree
from t2t_torch.text_problem import TextProblem, VocabType


class WordProblem(TextProblem):
    """Base class of problems whose texts are lists of words, with optional word features.

    With a subword or byte vocabulary a word has several ids.  Word features and targets belong to
    its first id, whose position is in the annotation `inputs_starts`.

    Attributes:
      words_field: the field of the words.
      word_characters: number of characters of each word in an additional input, with an alphabet
        learned from the training samples; 0 to disable.
      word_bytes: number of bytes of each word in an additional input; 0 to disable.
      word_shape: add the shape of each word (capitals, digits) as an input.
      gazetteer: add the field "gazetteer" as an input, a mapping of labels to weights for each
        word.
      gazetteer_width: maximum number of labels of a word, those of greatest weight.
      word_dense_size: number of values per word in the field "word_dense", a list of lists, added
        as an input, such as precomputed vectors; 0 to disable.
      tokenizer: name of a tokenizer of `text/tokenizer.py`, or a regular expression of a word,
        that splits a text into words at inference; lists of words are read as they are, and
        training samples are never split by it.  "": texts are split at spaces.
    """

    vocab_type = VocabType.WORD
    text_fields: ClassVar[tuple[str, ...]] = ("inputs",)
    splits_words = False
    batch_size_means_tokens = True
    suggested_flags = "--model=bilstm_tagger --hparams_set=bilstm_tagger_base"
    words_field: ClassVar[str] = "inputs"
    word_characters: ClassVar[int] = 0
    word_bytes: ClassVar[int] = 0
    word_shape: ClassVar[bool] = False
    gazetteer: ClassVar[bool] = False
    gazetteer_width: ClassVar[int] = 4
    word_dense_size: ClassVar[int] = 0
    tokenizer: ClassVar[str] = ""
    tags_field: ClassVar[str] = ""  # field of one tag per word, if the problem type has one
    optional_setting_names = (
        *TextProblem.optional_setting_names,
        "tokenizer",
        "word_characters",
        "word_bytes",
        "word_shape",
        "gazetteer",
        "word_dense_size",
    )

    def __init__(self, *, reverse: bool = False, copy: bool = False) -> None:
        super().__init__(reverse=reverse, copy=copy)
        if self.cutters:
            raise RegistryError(
                f"{self.name!r} names `cutters` of {', '.join(self.cutters)}, but "
                f"{type(self).__name__} has its texts as words: nothing would be cut. Leave "
                "`cutters` out, and cut in generate_samples; `tokenizer` splits texts at inference."
            )
        if self.tokenizer and not self.tags_field:
            raise RegistryError(
                f"{self.name!r} has a `tokenizer`, which {type(self).__name__} does not read: only "
                "problems of tags do. Leave it out."
            )
        try:
            self._word = word_expression(self.tokenizer) if self.tokenizer else ""
        except ValueError as error:
            raise RegistryError(f"`tokenizer` of {self.name!r}: {error}") from None

    def use_pretrained_vocabulary(self) -> None:
        """Takes the tokens of a pretrained model, which read what a word is made of themselves."""
        super().use_pretrained_vocabulary()
        vars(self).update(word_characters=0, word_bytes=0, word_shape=False)

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builders of the vocabulary, the character alphabet and the gazetteer labels."""
        learners = list(super().learners())
        if self.word_characters:
            learners.append(CharacterVocabularyBuilder(self._alphabet_file, self.texts))
        if self.gazetteer:
            file = self.labels_file("gazetteer")
            learners.append(LabelVocabularyBuilder(file, lambda one: chain(*one["gazetteer"])))
        return learners

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample; DataError unless it has one tag per word, if it has tags."""
        for example in super().examples_of(sample):
            if self.tags_field:
                self.check_aligned(example, self.tags_field)
            yield example

    def words(self, directory: Path) -> dict[str, Feature]:
        """Returns the features of the words and all their word features."""
        field = self.words_field
        inputs: dict[str, Feature] = {field: Words(self.encoder(directory), tokenizer=self._word)}
        if self.word_characters:
            alphabet = CharacterEncoder.load(self._there(directory, self._alphabet_file))
            inputs[f"{field}_characters"] = features.WordCharacters(
                field, alphabet, self.word_characters
            )
        if self.word_bytes:
            inputs[f"{field}_bytes"] = features.WordCharacters(
                field, ByteEncoder(), self.word_bytes
            )
        if self.word_shape:
            inputs[f"{field}_shape"] = features.WordShape(field)
        if self.gazetteer:
            entries = self.learnt_labels(directory, "gazetteer")
            inputs["gazetteer"] = features.Gazetteer(field, entries, width=self.gazetteer_width)
        if self.word_dense_size:
            inputs["word_dense"] = features.WordReal(field, self.word_dense_size)
        return {**inputs, **self.dense(directory)}

    def word_notes(self, directory: Path) -> dict[str, Feature]:
        """Returns the word starts, unless each word has one id, and the weights if present."""
        notes, field = self.weights(), self.words_field
        if self.gazetteer:
            entries, width = self.learnt_labels(directory, "gazetteer"), self.gazetteer_width
            notes["gazetteer_weights"] = features.GazetteerWeights(field, entries, width=width)
        file = self.vocabularies.get(field, self.vocab_filename) or ""
        if not file.endswith((".words", ".tokens")):  # a word may have several ids
            notes[f"{field}_starts"] = features.WordStarts(field, Words(self.encoder(directory)))
        return notes

    def check_aligned(self, sample: Mapping[str, Any], field: str) -> None:
        """Checks that a field, and each word feature, has one entry per word.

        Raises:
          DataError: the numbers of entries differ.
        """
        words = sample[self.words_field]
        beside = {"gazetteer": self.gazetteer, "word_dense": self.word_dense_size > 0}
        for name in (field, *(name for name, is_there in beside.items() if is_there)):
            entries = sample[name]
            if len(words) != len(entries):
                raise DataError(
                    f"{len(words)} words and {len(entries)} {name}, where one for each word was "
                    f"expected: {list(words)!r}, {list(entries)!r}."
                )

    @property
    def _alphabet_file(self) -> str:
        return f"vocab.{self.dataset_name}.{self.words_field}.symbols"


class Text2TagsProblem(WordProblem):
    """Word tagging, such as parts of speech, named entities or chunks.

    `generate_samples` yields {"inputs": list of words, "targets": list of tags}, one per word.
    Tags of spans are written B-X, I-X, O, or in another scheme (`text/tags.py`); for other tags
    `metrics` may omit `span_f1`.
    """

    portfolio = ("linear_crf/linear_crf_base", "again")
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "accuracy_per_sequence", "span_f1")
    tags_field = "targets"

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builders of the vocabulary, the word features and the tags."""
        return [*super().learners(), *self.label_learner("targets")]

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the words and the tags."""
        labels = self.label_encoder(directory, "targets")
        target = features.Tags(labels, self.words_field, allow_unknown=not self.class_labels)
        notes = self.word_notes(directory)
        return Features(self.words(directory), {"targets": target}, notes=notes)


class IntentSlotProblem(WordProblem):
    """Joint intent classification and slot filling: two targets of one request.

    `generate_samples` yields {"inputs": list of words, "intent": str, "slots": list of tags}.
    Labels that occur only in evaluation data always count as wrong.
    """

    metrics: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "intent": ("accuracy",),
        "slots": ("accuracy", "span_f1"),
    }

    suggested_flags = "--model=joint_bilstm --hparams_set=joint_bilstm_base"
    portfolio = ("again",)
    tags_field = "slots"

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builders of the vocabulary, the word features, the intents and the slots."""
        labels = [*self.label_learner("intent"), *self.label_learner("slots")]
        return [*super().learners(), *labels]

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of the words, the intent and the slots."""
        slots = self.label_encoder(directory, "slots")
        targets = {
            "intent": features.ClassLabel(
                self.label_encoder(directory, "intent"), allow_unknown=True
            ),
            "slots": features.Tags(slots, self.words_field, allow_unknown=True),
        }
        return Features(self.words(directory), targets, notes=self.word_notes(directory))


class Text2TreeProblem(WordProblem):
    """Parsing of words into a tree: of constituents, or of intents and slots.

    `generate_samples` yields {"inputs": list of words, "targets": str}, the tree in round brackets
    or in TOP's square ones; without "inputs" the words are those of the tree.  The target sequence
    consists of the transitions that build the tree, without its words.

    Attributes:
      given_tags: the labels directly above the words are an input instead of a target; they come
        from the field "tags", by default from the tree.
      round_brackets: write trees in round brackets (True) or square ones (False); None selects
        square brackets only if all labels are intents and slots.
    """

    metrics = ("accuracy", "accuracy_per_sequence", "neg_log_perplexity")
    suggested_flags = "--model=rnng --hparams_set=rnng_base"
    given_tags: ClassVar[bool] = False
    round_brackets: ClassVar[bool | None] = None
    optional_setting_names = (*WordProblem.optional_setting_names, "given_tags")

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builders of the vocabulary, the word features and the constituent labels."""
        learners = list(super().learners())
        if not self.class_labels:
            learners.append(LabelVocabularyBuilder(self.labels_file("targets"), _labels))
        if self.given_tags:
            learners.append(
                LabelVocabularyBuilder(self.labels_file("tags"), lambda sample: sample["tags"])
            )
        return learners

    def words(self, directory: Path) -> dict[str, Feature]:
        """Returns the features of the words and all their word features."""
        inputs = super().words(directory)
        if self.given_tags:
            tags = features.WordLabel(self.words_field, self.learnt_labels(directory, "tags"))
            inputs[f"{self.words_field}_tags"] = tags
        return inputs

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the sample with its tree parsed; DataError for an invalid tree or other words."""
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
        """Returns the features of the words and the tree."""
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
        kept = {f"{self.words_field}_original": features.OriginalWords(self.words_field, encoded)}
        return Features(words, {"targets": tree}, notes=notes, kept=kept)


def _labels(sample: Mapping[str, Any]) -> Iterable[str]:
    return (label for label in sample["targets"].labels if label != UNKNOWN_LABEL)


def tokens_of(text: str) -> list[Token]:
    """Splits a text into words and punctuation marks, without spaces.

    Combining marks, such as the vowel signs of Hindi, belong to their word.  Each Chinese
    character or kana is a word.
    """
    return [Token(match[0], *match.span()) for match in token_pattern().finditer(text)]


@functools.cache
def token_pattern() -> re.Pattern[str]:
    """Returns the pattern of `tokens_of`: a word or one punctuation mark."""
    ideograph, mark = f"[{IDEOGRAPHS}]", f"[{marks()}]"
    return re.compile(rf"{ideograph}{mark}*|(?:[^\W{IDEOGRAPHS}]|{mark})+|[^\w\s]")


class SpanQAProblem(WordProblem):
    """Extractive question answering, as in SQuAD: the answer is a span of the context.

    `generate_samples` yields {"question": str, "context": str, "answers": [{"text": str, "start":
    int}, ...]}, with the character offsets of the answers in the context; an empty list means no
    answer.  A context of more than `max_context` words becomes several overlapping examples; those
    without the first answer have none.  Only the first of several answers is trained and evaluated.

    For a long context the prediction is the most probable answer of all its windows, as written in
    the context; "" if there is none.

    Attributes:
      max_context: maximum number of context words in one example.
      context_stride: number of words between the starts of consecutive windows.
    """

    text_fields = ("question", "context")
    words_field = "context"
    metrics = ("answer_exact_match", "answer_f1")
    suggested_flags = "--model=span_qa --hparams_set=span_qa_base"
    portfolio = ("again",)
    max_context: ClassVar[int] = 384
    context_stride: ClassVar[int] = 256
    setting_names = (*WordProblem.setting_names, "max_context", "context_stride")

    def examples_of(self, sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields one example per window of the context."""
        others = {k: v for k, v in sample.items() if k not in ("question", "context", "answers")}
        span = _span(tokens_of(sample["context"]), sample)
        for number, window in enumerate(self.inputs_of(sample)):
            start = number * self.context_stride
            inside = _within(span, start, len(window["context"]))
            words = {field: window[field] for field in ("question", "context")}
            yield {**others, **words, "targets": inside}

    def inputs_of(self, sample: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Returns the words of the question and the context, for each window of the context."""
        for field in ("question", "context"):
            if not isinstance(sample[field], str):
                raise DataError(f"{field} is {sample[field]!r}, where a text was expected.")
        question = [token.text for token in tokens_of(sample["question"])]
        context = [token.text for token in tokens_of(sample["context"])]
        if not question or not context:
            raise DataError(f"a question or a context without a word: {dict(sample)!r}.")
        beyond = max(0, len(context) - self.max_context)
        windows = -(-beyond // self.context_stride) + 1
        starts = (number * self.context_stride for number in range(windows))
        cut = (context[start : start + self.max_context] for start in starts)
        return [{**sample, "question": question, "context": window} for window in cut]

    def answer_of(
        self, target: str, parts: Sequence[Prediction], sample: Mapping[str, Any]
    ) -> Prediction:
        """Returns the most probable answer of all windows, as written in the context.

        If no window has an answer it is "", with the probability of the least certain window.
        """
        sure = [one.probability or 0.0 for one in parts]
        there = [number for number, one in enumerate(parts) if one.value is not None]
        if not there:
            return Prediction.of_value(target, "", min(sure))
        best = max(there, key=sure.__getitem__)
        first, last = (place + best * self.context_stride for place in parts[best].value)
        tokens = tokens_of(sample["context"])
        text = sample["context"][tokens[first].start : tokens[last].end]
        return Prediction.of_value(target, text, sure[best])

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of question, context (with its word features) and answer."""
        inputs = {"question": Words(self.encoder(directory)), **self.words(directory)}
        notes = self.word_notes(directory)
        return Features(inputs, {"targets": features.Span(self.words_field)}, notes=notes)


def _span(context: Sequence[Token], sample: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns the first and the last word of the first answer; None if there is none."""
    if not sample["answers"]:
        return None
    answer = sample["answers"][0]
    start = int(answer["start"])
    end = start + len(answer["text"])
    if sample["context"][start:end] != answer["text"]:
        raise DataError(
            f"the answer {answer['text']!r} is not at character {start} of its context, where "
            f"{sample['context'][start:end]!r} stands. Fix answer_start."
        )
    touched = [i for i, token in enumerate(context) if token.start < end and token.end > start]
    if not touched:
        raise DataError(f"the answer {answer['text']!r} has no word in it.")
    return touched[0], touched[-1]


def _within(span: tuple[int, int] | None, start: int, length: int) -> tuple[int, int] | None:
    if span is None or span[0] < start or span[1] >= start + length:
        return None
    return span[0] - start, span[1] - start
