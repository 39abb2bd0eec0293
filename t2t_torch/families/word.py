"""The contract of problems whose texts are lists of words, with what is known of each word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.learner import CharacterLearner, LabelLearner, Learner
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.features import (
    Feature,
    Gazetteer,
    GazetteerWeights,
    WordCharacters,
    WordReal,
    Words,
    WordShape,
    WordStarts,
)
from t2t_torch.text.byte import ByteEncoder
from t2t_torch.text.character import CharacterEncoder
from t2t_torch.text.label import ClassLabelEncoder
from t2t_torch.text_problem import TextProblem, VocabType


class WordProblem(TextProblem):
    """Texts are lists of words in one field, and what is learnt may belong to each of them.

    With a vocabulary of subwords or bytes a word has several ids, and what belongs to a word
    belongs to its first id, whose place the note `inputs_starts` tells.

    Attributes:
      words_field: the field of the words.
      word_characters: so many characters of each word are an input more, learnt from the training
        samples; 0 for none.
      word_bytes: so many bytes of each word are an input more; 0 for none.
      word_shape: whether the shape of each word (capitals, digits) is an input more.
      gazetteer: whether the field "gazetteer", a mapping of labels to weights for each word, is an
        input more.
      gazetteer_width: so many of a word's labels are kept, those of greatest weight.
      word_dense_size: numbers of each word in the field "word_dense", a list of lists, which are an
        input more, such as vectors that were made elsewhere; 0 for none.
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
    optional_setting_names = (
        *TextProblem.optional_setting_names,
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
                "`cutters` out, and cut in generate_samples."
            )

    def learners(self) -> Sequence[Learner]:
        """The vocabulary, the alphabet of the words' characters, the gazetteer's labels."""
        learners = list(super().learners())
        if self.word_characters:
            learners.append(CharacterLearner(self._alphabet_file, self.texts))
        if self.gazetteer:
            learners.append(LabelLearner(self.labels_file("gazetteer"), _labels_of_words))
        return learners

    def words(self, directory: Path) -> dict[str, Feature]:
        """Returns the words and all inputs that belong to them."""
        field = self.words_field
        inputs: dict[str, Feature] = {field: Words(self.encoder(directory))}
        if self.word_characters:
            alphabet = CharacterEncoder.load(self._there(directory, self._alphabet_file))
            inputs[f"{field}_characters"] = WordCharacters(field, alphabet, self.word_characters)
        if self.word_bytes:
            inputs[f"{field}_bytes"] = WordCharacters(field, ByteEncoder(), self.word_bytes)
        if self.word_shape:
            inputs[f"{field}_shape"] = WordShape(field)
        if self.gazetteer:
            entries = self._gazetteer_labels(directory)
            inputs["gazetteer"] = Gazetteer(field, entries, width=self.gazetteer_width)
        if self.word_dense_size:
            inputs["word_dense"] = WordReal(field, self.word_dense_size)
        return {**inputs, **self.dense(directory)}

    def word_notes(self, directory: Path) -> dict[str, Feature]:
        """Returns where words start, unless each has one id, and the weights there are."""
        notes = self.weights()
        if self.gazetteer:
            entries = self._gazetteer_labels(directory)
            weights = GazetteerWeights(self.words_field, entries, width=self.gazetteer_width)
            notes["gazetteer_weights"] = weights
        if self.vocab_type not in (VocabType.WORD, VocabType.TOKEN):
            field = self.words_field
            notes[f"{field}_starts"] = WordStarts(field, Words(self.encoder(directory)))
        return notes

    def check_aligned(self, sample: Mapping[str, Any], field: str) -> None:
        """Checks that a field, and what else is known of words, has one entry for each word.

        Raises:
          DataError: it has more or fewer.
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

    def _gazetteer_labels(self, directory: Path) -> ClassLabelEncoder:
        return ClassLabelEncoder.load(self._there(directory, self.labels_file("gazetteer")))

    @property
    def _alphabet_file(self) -> str:
        return f"vocab.{self.dataset_name}.{self.words_field}.symbols"


def _labels_of_words(sample: Mapping[str, Any]) -> Iterator[str]:
    for word in sample["gazetteer"]:
        yield from word
