"""Interface of problems with text samples."""

from __future__ import annotations

import enum
import functools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch import registry
from t2t_torch.atomic_files import write_text
from t2t_torch.data.vocabulary_builder import (
    UNKNOWN_WORD,
    CharacterVocabularyBuilder,
    MomentsBuilder,
    SubwordVocabularyBuilder,
    VocabularyBuilder,
    WordVocabularyBuilder,
    load_moments,
)
from t2t_torch.errors import DataError
from t2t_torch.features import Feature, Features, Real, RowWeight, Text
from t2t_torch.problem_types.labelled import LabelProblem
from t2t_torch.text.encoder import (
    RESERVED_TOKENS,
    ByteEncoder,
    CharacterEncoder,
    TextEncoder,
    TokenEncoder,
)
from t2t_torch.text.pieces import PieceEncoder
from t2t_torch.text.subword import load_subwords


class VocabType(enum.Enum):
    """Units of a text vocabulary.  The names of the first three are tensor2tensor's."""

    CHARACTER = "character"  # UTF-8 bytes, in fact
    SUBWORD = "subword"
    TOKEN = "token"  # whole words of the user's file
    WORD = "word"  # whole words, learnt
    SYMBOL = "symbol"  # single Unicode characters, learnt


_SUFFIXES = {
    VocabType.SUBWORD: "subwords",
    VocabType.TOKEN: "tokens",
    VocabType.WORD: "words",
    VocabType.SYMBOL: "symbols",
}


class TextProblem(LabelProblem):
    """Base class of text problems; all texts share a vocabulary built from the training samples.

    Attributes:
      text_fields: fields of a sample with texts, or lists of texts or words.
      vocab_type: units of the vocabulary.
      approx_vocab_size: target size of a learnt vocabulary; a small corpus gives a smaller one.
      max_samples_for_vocab: number of samples, drawn evenly, that a subword vocabulary is built
        from; None for all.
      min_word_count: least number of occurrences of a word in a learnt word vocabulary.
      lower_case_words: True to lower-case the words of a learnt word vocabulary; other features of
        words (characters, shape) keep their capitals.
      oov_token: word of a token vocabulary that replaces unknown words; None: they are an error.
      splits_words: True to split texts into words at spaces, for a word vocabulary; False if they
        are lists of words.
      use_vocab_from_other_problem: name of the problem whose vocabulary is shared.
      vocabularies: by text field, the user's vocabulary file in the data folder.  Fields may have
        the same file, or files of their own; the suffix is that of a vocabulary type.  Takes the
        place of `vocab_type` and `approx_vocab_size`.
      learns_vocabularies: True to learn the `vocabularies` as subwords of the training samples,
        each of `approx_vocab_size`, from the texts of its fields.
      keeps_vocabulary: True if the vocabulary files in the data folder are used as they are.
      class_labels: class labels; if empty, those of the training samples.
      dense_size: size of the additional input "dense", a list of numbers; 0 for none.
      pretrained_model: model that trains on if the texts have the tokens of a pretrained one.
      row_weight: True if the field "weight" is the weight of a sample in the loss.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("inputs", "targets")
    vocab_type: ClassVar[VocabType] = VocabType.SUBWORD
    approx_vocab_size: ClassVar[int] = 2**15
    max_samples_for_vocab: ClassVar[int | None] = 1_000_000
    min_word_count: ClassVar[int] = 0
    lower_case_words: ClassVar[bool] = False
    oov_token: ClassVar[str | None] = None
    use_vocab_from_other_problem: ClassVar[str | None] = None
    vocabularies: ClassVar[Mapping[str, str]] = {}
    learns_vocabularies: ClassVar[bool] = False
    keeps_vocabulary: bool = False
    dense_size: ClassVar[int] = 0
    row_weight: ClassVar[bool] = False
    splits_words: ClassVar[bool] = True
    pretrained_model: ClassVar[str] = "pretrained_encoder"
    setting_names: ClassVar[tuple[str, ...]] = (
        "vocab_filename",
        "max_samples_for_vocab",
        "oov_token",
    )
    optional_setting_names: ClassVar[tuple[str, ...]] = tuple(
        "vocabularies min_word_count lower_case_words class_labels dense_size row_weight".split()
    )

    def use_pretrained_vocabulary(self) -> None:
        """Takes the tokens of a pretrained model, which `t2t-datagen --pretrained` writes.

        The name of the problem, and of its data, ends in `_pretrained` from then on.
        """
        name = f"{self.name}{registry.PRETRAINED}"
        vars(self).update(
            name=name,
            vocab_type=VocabType.SUBWORD,
            use_vocab_from_other_problem=None,
            vocabularies=dict.fromkeys(self.text_fields, f"vocab.{name}.pieces"),
            learns_vocabularies=False,
            suggested_flags=f"--model={self.pretrained_model} "
            f"--hparams_set={self.pretrained_model}_base --hparams=pretrained=FOLDER",
            portfolio=(),
        )

    def corrupt(self, kind: str) -> None:
        """Makes it the problem of restoring its text; see `features/denoising.py`.

        Args:
          kind: one of `registry.CORRUPTIONS`.
        """
        flags = "--model=transformer --hparams_set=transformer_small"
        if kind == "masked":
            flags = "--model=transformer_encoder --hparams_set=transformer_encoder_small"
        if self.name.endswith(registry.PRETRAINED):
            model = "pretrained_encoder" if kind == "masked" else "pretrained_seq2seq"
            flags = f"--model={model} --hparams_set={model}_base --hparams=pretrained=FOLDER"
        metrics = ("accuracy", "accuracy_top5", "neg_log_perplexity", "perplexity")
        vars(self).update(corruption=kind, metrics=metrics, loss="", suggested_flags=flags)
        vars(self).update(portfolio=(), column_names={}, column_forms={}, request_inputs={})

    @property
    def vocab_filename(self) -> str | None:
        """Name of the vocabulary file in the data folder; None if there is none, or several."""
        if self.vocabularies:
            files = set(self.vocabularies.values())
            return files.pop() if len(files) == 1 else None
        if self.use_vocab_from_other_problem is not None:
            return self._vocab_owner().vocab_filename
        if self.vocab_type is VocabType.CHARACTER:
            return None
        return f"vocab.{self.dataset_name}.{self.approx_vocab_size}.{_SUFFIXES[self.vocab_type]}"

    @property
    def vocab_files(self) -> tuple[str, ...]:
        """Files of the vocabulary, if there is one, of labels and of moments."""
        return tuple(dict.fromkeys((*self.text_vocab_files, *super().vocab_files)))

    @property
    def text_vocab_files(self) -> tuple[str, ...]:
        """Files of the vocabulary of texts; none if it has none."""
        shared = self.vocab_filename
        return tuple(self.vocabularies.values()) or ((shared,) if shared is not None else ())

    @property
    def kept_vocab_files(self) -> tuple[str, ...]:
        """The vocabulary files that belong to another problem or are the user's."""
        if self.keeps_vocabulary:
            return tuple(dict.fromkeys(self.text_vocab_files))
        if self.vocabularies:
            files = () if self.learns_vocabularies else self.vocabularies.values()
            return tuple(dict.fromkeys(files))
        borrowed = self.use_vocab_from_other_problem is not None
        is_given = borrowed or self.vocab_type is VocabType.TOKEN
        return (self.vocab_filename,) if is_given and self.vocab_filename is not None else ()

    def texts(self, sample: Mapping[str, Any]) -> Iterator[str]:
        """Yields the texts of a sample; the words of a list are joined to one text."""
        for field in self.text_fields:
            value = sample[field]
            yield value if isinstance(value, str) else " ".join(value)

    def learners(self) -> Sequence[VocabularyBuilder]:
        """Builders of the vocabulary, unless it is shared, and of the moments of "dense"."""
        learners: list[VocabularyBuilder] = []
        file = self.vocab_filename  # None also if each field has its own
        size = self.approx_vocab_size
        limit, seed = self.max_samples_for_vocab, self.shuffle_seed
        if self.learns_vocabularies:
            for own in dict.fromkeys(self.vocabularies.values()):
                texts = functools.partial(self._texts_of, own)
                learners.append(SubwordVocabularyBuilder(own, texts, size, limit, seed))
        elif file is not None and file not in self.kept_vocab_files:
            if self.vocab_type is VocabType.SUBWORD:
                learners.append(SubwordVocabularyBuilder(file, self.texts, size, limit, seed))
            elif self.vocab_type is VocabType.WORD:
                learners.append(WordVocabularyBuilder(file, self._words, size, self.min_word_count))
            else:
                learners.append(CharacterVocabularyBuilder(file, self.texts))
        if self.dense_size:
            learners.append(MomentsBuilder(self.moments_file("dense"), "dense"))
        return learners

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        """Builds the vocabularies that are not in `data_dir` yet.

        Raises:
          DataError: there is no text to build from, or the user's token vocabulary is missing.
        """
        if self.use_vocab_from_other_problem is not None:
            owner = self._vocab_owner()
            file = owner.vocab_filename  # labels and moments are not shared
            if file is not None and not (data_dir / file).exists():
                owner.prepare(tmp_dir)
                owner.build_vocab(data_dir, tmp_dir)
        elif missing := [
            file
            for file in self.vocabularies.values()
            if file in self.kept_vocab_files and not (data_dir / file).exists()
        ]:
            raise DataError(
                f"{self.name!r} has the vocabularies {', '.join(dict.fromkeys(missing))}, which "
                f"are not in {data_dir}. Copy them there, for example from the run directory."
            )
        elif (
            self.vocab_type is VocabType.TOKEN
            and not self.vocabularies
            and not (data_dir / self._file).exists()
        ):
            raise DataError(
                f"{self.name!r} has a vocabulary of whole words, {self._file}, which is not there. "
                "Write it in --data_dir: one word a line, the first two lines <pad> and <EOS>."
            )
        super().build_vocab(data_dir, tmp_dir)

    def encoder(self, directory: Path) -> TextEncoder:
        """Returns the text encoder.

        Args:
          directory: data folder or run directory with the vocabulary.

        Raises:
          DataError: the vocabulary is missing or malformed.
        """
        if self.vocabularies:
            return self.encoder_of(self.text_fields[0], directory)
        if self.vocab_filename is None:
            return ByteEncoder()
        return self._encoder_in(self._there(directory, self._file))

    def encoder_of(self, field: str, directory: Path) -> TextEncoder:
        """Returns the text encoder of a field; see `encoder`."""
        if not self.vocabularies:
            return self.encoder(directory)
        if field not in self.vocabularies:
            raise DataError(
                f"`vocabularies` of {self.name!r} names no file for {field!r}. It names files for "
                f"{', '.join(self.vocabularies)}: add that field."
            )
        return self._encoder_in(self._there(directory, self.vocabularies[field]))

    def _encoder_in(self, path: Path) -> TextEncoder:
        """Returns the encoder of a vocabulary file."""
        if path.suffix == ".tokens":
            return TokenEncoder.load(path, replace_oov=self.oov_token)
        if path.suffix == ".words":
            lower_case = self._vocab_owner().lower_case_words
            return TokenEncoder.load(path, replace_oov=UNKNOWN_WORD, lower_case=lower_case)
        if path.suffix == ".symbols":
            return CharacterEncoder.load(path)
        return PieceEncoder.load(path) if path.suffix == ".pieces" else load_subwords(path)

    def text_features(self, fields: Iterable[str], directory: Path) -> dict[str, Text]:
        """Returns the features of text fields; those of one vocabulary share an encoder."""
        made: dict[str | None, Text] = {}
        features = {}
        for field in fields:
            file = self.vocabularies.get(field) if self.vocabularies else self.vocab_filename
            if file not in made:
                encoder = self.encoder_of(field, directory)
                made[file] = Text(encoder, add_eos=encoder.add_eos)
            features[field] = made[file]
        return features

    def dense(self, directory: Path) -> dict[str, Feature]:
        """Returns the feature "dense", if there is one."""
        if not self.dense_size:
            return {}
        moments = load_moments(self._there(directory, self.moments_file("dense")))
        return {"dense": Real(self.dense_size, *moments)}

    def weights(self) -> dict[str, Feature]:
        """Returns the annotation "weight", if there is one."""
        return {"weight": RowWeight()} if self.row_weight else {}

    @property
    def _file(self) -> str:
        return str(self.vocab_filename)

    def moments_file(self, field: str) -> str:
        """Returns the name of the file with the mean and the deviation of a field of numbers."""
        return f"moments.{self.dataset_name}.{field}.json"

    def _texts_of(self, file: str, sample: Mapping[str, Any]) -> Iterator[str]:
        return (sample[field] for field, own in self.vocabularies.items() if own == file)

    def _words(self, sample: Mapping[str, Any]) -> Iterator[str]:
        for field in self.text_fields:
            value = sample[field]
            for given in [value] if isinstance(value, str) else value:
                part = given.lower() if self.lower_case_words else given
                yield from part.split() if self.splits_words else [part]

    def _vocab_owner(self) -> TextProblem:
        """Returns the problem that owns the vocabulary, following chains of shared ones."""
        owner, visited = self, [self.name]
        while owner.use_vocab_from_other_problem is not None:
            other = registry.problem(owner.use_vocab_from_other_problem)
            if not isinstance(other, TextProblem):
                raise DataError(
                    f"{owner.name!r} wants the vocabulary of {other.name!r}, which is no "
                    "TextProblem. Name one that is in `use_vocab_from_other_problem`."
                )
            visited.append(other.name)
            if other.name in visited[:-1]:
                raise DataError(
                    f"no problem has the vocabulary of {self.name!r}: {' -> '.join(visited)}. Name "
                    "a problem that has its own in `use_vocab_from_other_problem`."
                )
            owner = other
        return owner


class RawVocabularyProblem(TextProblem):
    """Base class of problems whose raw files list the words of the vocabulary.

    Other words become `UNKNOWN_WORD`.  Name this class before the type of the problem:
    `class Lambada(RawVocabularyProblem, Text2SelfProblem)`.
    """

    vocab_type = VocabType.TOKEN
    oov_token = UNKNOWN_WORD

    @abstractmethod
    def vocabulary_words(self, tmp_dir: Path) -> Iterable[str]:
        """Returns the words in the order of their ids; duplicates and reserved words are skipped.

        Raises:
          DataError: the raw file of the words is missing.
        """

    @property
    def kept_vocab_files(self) -> tuple[str, ...]:
        """None: the vocabulary is built with the data, unless `keeps_vocabulary`."""
        return super().kept_vocab_files if self.keeps_vocabulary else ()

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        """Writes the vocabulary if it is not in `data_dir` yet, and builds what else is learnt."""
        path = data_dir / self._file
        if not path.exists():
            reserved = (*RESERVED_TOKENS, UNKNOWN_WORD)
            words = (word for word in self.vocabulary_words(tmp_dir) if word)
            write_text(path, "".join(f"{line}\n" for line in dict.fromkeys((*reserved, *words))))
        super().build_vocab(data_dir, tmp_dir)


class Text2TextProblem(TextProblem):
    """Text-to-text problem: `generate_samples` yields {"inputs": str, "targets": str}.

    Inputs and targets share a vocabulary, unless `vocabularies` names two.  A subword vocabulary is
    built from both sides of the training samples; a token vocabulary is the user's file in the data
    folder.

    Attributes:
      has_inputs: False for a language model, whose samples are {"targets": str}.
    """

    batch_size_means_tokens = True
    pretrained_model = "pretrained_seq2seq"
    has_inputs: ClassVar[bool] = True

    def stored_features(self, directory: Path) -> Features:
        """Returns the text features."""
        fields = ("inputs", "targets") if self.has_inputs else ("targets",)
        texts: dict[str, Feature] = {**self.text_features(fields, directory)}
        targets = {"targets": texts.pop("targets")}
        dense = self.dense(directory) if self.has_inputs else {}
        return Features({**texts, **dense}, targets, notes=self.weights())


class Text2SelfProblem(Text2TextProblem):
    """Language modelling problem: `generate_samples` yields {"targets": str}.

    Attributes:
      chop_length: number of tokens per piece of a text, each piece an example; 0: texts are not
        split.  The hyperparameter `split_to_length` overrides it.
    """

    text_fields = ("targets",)
    pretrained_model = "pretrained_lm"
    has_inputs = False
    metrics: ClassVar[tuple[str, ...]] = tuple(
        "accuracy accuracy_top5 neg_log_perplexity perplexity word_perplexity".split()
    )
