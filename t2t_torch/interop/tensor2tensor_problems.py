"""Problems as tensor2tensor's users wrote them, and their conversion to problems of this library.

A user's class derives from the classes here, which have the methods and defaults of tensor2tensor
1.15.7.  Registering it makes a `Problem` of this library that calls an instance of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch import registry
from t2t_torch.data.raw_file import fetch, unpack
from t2t_torch.data.vocabulary_builder import SubwordVocabularyBuilder, VocabularyBuilder
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.files import copy_regular, read_lines, staged
from t2t_torch.interop.tensor2tensor_encoders import encoder_of
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem as OurText2ClassProblem
from t2t_torch.problem_types.classification import (
    TextPair2ClassProblem as OurTextPair2ClassProblem,
)
from t2t_torch.problem_types.text2text import QuestionContext2TextProblem
from t2t_torch.text.encoder import ByteEncoder, TextEncoder, TokenEncoder
from t2t_torch.text.subword import SmallVocabularyError, SubwordEncoder, load_subwords
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder, holds_subtokens
from t2t_torch.text_problem import Text2SelfProblem as OurText2SelfProblem
from t2t_torch.text_problem import Text2TextProblem as OurText2TextProblem
from t2t_torch.text_problem import TextProblem
from t2t_torch.text_problem import VocabType as OurVocabType

PAGE = "docs/how_to/from_tensor2tensor.md"


class DatasetSplit:
    """Names of the splits, data_generators/problem.py."""

    TRAIN = "train"
    EVAL = "eval"
    TEST = "test"


class VocabType:
    """Kinds of vocabularies, data_generators/text_problems.py."""

    CHARACTER = "character"
    SUBWORD = "subwords"
    TOKEN = "tokens"


class SpaceID:
    """Numbers of the kinds of texts, data_generators/problem.py."""


for _number, _name in enumerate(
    "GENERIC IMAGE_LABEL EN_CHR EN_TOK EN_BPE_TOK FR_CHR FR_TOK DE_CHR DE_TOK DE_BPE_TOK DIGIT_0 "
    "DIGIT_1 AUDIO_WAV AUDIO_SPECTRAL PARSE_CHR PARSE_TOK ZH_TOK ICE_CHAR ICE_TOK ICE_PARSE_TOK "
    "MK_TOK CS_TOK CS_CHR DNA REAL IMAGE PEPTIDE PY_TOK CPP_TOK STROKES PICKLED_PYTHON".split()
):
    setattr(SpaceID, _name, _number)

Sample = Mapping[str, Any]
_SPLITS = {
    Split.TRAIN: DatasetSplit.TRAIN,
    Split.EVAL: DatasetSplit.EVAL,
    Split.TEST: DatasetSplit.TEST,
}
_VOCAB_TYPES = {
    VocabType.SUBWORD: OurVocabType.SUBWORD,
    VocabType.TOKEN: OurVocabType.TOKEN,
    VocabType.CHARACTER: OurVocabType.CHARACTER,
}
_METRICS = {"accuracy_sequence": "accuracy_per_sequence"}
_REFUSED = {  # methods whose results nothing here uses, by the reason
    "feature_encoders": "it encodes texts itself",
    "generate_encoded_samples": "it encodes samples itself",
    "generate_data": "it writes data files itself",
    "generator": "it is written for tensor2tensor before 1.4",
}


class Missing:
    """Base class of classes whose base class is not here.

    Attributes:
      missing: its full name.
    """

    missing: ClassVar[str] = ""


class Problem:
    """Base class of problems; `was_reversed` and `was_copy` are those of the name."""

    name: ClassVar[str] = ""

    def __init__(self, was_reversed: bool = False, was_copy: bool = False) -> None:
        self._was_reversed = was_reversed
        self._was_copy = was_copy

    def dataset_filename(self) -> str:
        """Prefix of the names of the data files."""
        return self.name

    @property
    def input_space_id(self) -> int:
        """Kind of the inputs."""
        return 0

    @property
    def target_space_id(self) -> int:
        """Kind of the targets."""
        return 0

    def eval_metrics(self) -> list[str]:
        """Names of the metrics."""
        return ["accuracy", "accuracy_top5", "accuracy_per_sequence", "neg_log_perplexity"]

    def preprocess_example(self, example: Any, mode: Any, unused_hparams: Any) -> Any:
        """Returns the example."""
        return example

    def hparams(self, defaults: Any, unused_model_hparams: Any) -> None:
        """Sets modalities and vocabularies, which follow from the kind of problem here."""


class Text2TextProblem(Problem):
    """Text to text, data_generators/text_problems.py."""

    @property
    def dataset_splits(self) -> list[dict[str, Any]]:
        """Names and numbers of shards of the splits."""
        return [
            {"split": DatasetSplit.TRAIN, "shards": 100},
            {"split": DatasetSplit.EVAL, "shards": 1},
        ]

    @property
    def is_generate_per_split(self) -> bool:
        """True if `generate_samples` is called for each split; False if once for all."""
        raise RegistryError(
            f"{type(self).__name__} needs is_generate_per_split: True if generate_samples makes "
            "one split, False if it makes all samples."
        )

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Sample]:
        """Yields {"inputs": text, "targets": text}."""
        raise RegistryError(f"{type(self).__name__} has no generate_samples.")

    @property
    def vocab_type(self) -> str:
        """Kind of the vocabulary."""
        return VocabType.SUBWORD

    @property
    def approx_vocab_size(self) -> int:
        """Target size of a subword vocabulary."""
        return 2**15

    @property
    def additional_reserved_tokens(self) -> list[str]:
        """Further reserved tokens."""
        return []

    @property
    def oov_token(self) -> str | None:
        """Word of a token vocabulary for unknown words."""
        return None

    @property
    def max_samples_for_vocab(self) -> int | None:
        """Number of samples that a vocabulary is built from."""
        return None

    @property
    def use_vocab_from_other_problem(self) -> Any:
        """Problem whose vocabulary is used, or None."""
        return None

    @property
    def packed_length(self) -> int | None:
        """Length of packed examples; the hyperparameter pack_dataset here."""
        return None

    @property
    def has_inputs(self) -> bool:
        """False for a language model."""
        return True

    @property
    def vocab_filename(self) -> str:
        """Name of the vocabulary file."""
        other = self.use_vocab_from_other_problem
        if other is not None:
            return str(other.vocab_filename)
        return f"vocab.{self.dataset_filename()}.{self.approx_vocab_size}.{self.vocab_type}"


class Text2SelfProblem(Text2TextProblem):
    """A language model."""

    @property
    def has_inputs(self) -> bool:
        """False."""
        return False


class Text2ClassProblem(Text2TextProblem):
    """Text to class; samples are {"inputs": text, "label": number}."""

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        raise RegistryError(f"{type(self).__name__} needs num_classes.")

    def class_labels(self, data_dir: str) -> list[str]:
        """Names of the classes, in the order of their numbers."""
        return [f"ID_{number}" for number in range(self.num_classes)]

    def eval_metrics(self) -> list[str]:
        """Names of the metrics."""
        return ["accuracy", "neg_log_perplexity"]


class SentimentIMDB(Text2ClassProblem):
    """Two classes of texts, data_generators/imdb.py; for classes that generate other samples."""

    @property
    def is_generate_per_split(self) -> bool:
        """True."""
        return True

    @property
    def dataset_splits(self) -> list[dict[str, Any]]:
        """Ten shards to train on, one to evaluate."""
        return [
            {"split": DatasetSplit.TRAIN, "shards": 10},
            {"split": DatasetSplit.EVAL, "shards": 1},
        ]

    @property
    def approx_vocab_size(self) -> int:
        """8,192."""
        return 2**13

    @property
    def num_classes(self) -> int:
        """Two."""
        return 2

    def class_labels(self, data_dir: str) -> list[str]:
        """Names of the classes."""
        return ["neg", "pos"]


class QuestionAndContext2TextProblem(Text2TextProblem):
    """Question and context to text; samples are {"inputs", "context", "targets"}."""


class TextConcat2ClassProblem(Text2ClassProblem):
    """Two texts to class; samples are {"inputs": [text, text], "label": number}."""


class Text2textTmpdir(Text2TextProblem):
    """Pairs of lines of inputs.train.txt, targets.train.txt and of the same for eval and test."""

    @property
    def is_generate_per_split(self) -> bool:
        """True."""
        return True

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Sample]:
        """Yields the pairs."""
        source, target = (
            str(Path(tmp_dir, f"{side}.{dataset_split}.txt")) for side in ("inputs", "targets")
        )
        return text2text_txt_iterator(source, target)


class Text2textTmpdirTokens(Text2textTmpdir):
    """The same with a vocabulary of whole words."""

    @property
    def vocab_type(self) -> str:
        """Whole words."""
        return VocabType.TOKEN

    @property
    def oov_token(self) -> str | None:
        """Word for unknown words."""
        return "<UNK>"


class TranslateProblem(Text2TextProblem):
    """Translation, data_generators/translate.py."""

    @property
    def is_generate_per_split(self) -> bool:
        """True."""
        return True

    def source_data_files(self, dataset_split: str) -> list[Any]:
        """Returns the data sets of a split: [[URL, (source file, target file)], ...]."""
        raise RegistryError(f"{type(self).__name__} needs source_data_files.")

    def vocab_data_files(self) -> list[Any]:
        """Returns the data sets of the vocabulary."""
        return self.source_data_files(DatasetSplit.TRAIN)

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Sample]:
        """Yields the pairs of the data sets."""
        for dataset in self.source_data_files(dataset_split):
            source, target = (_raw_file(tmp_dir, dataset[0], name) for name in dataset[1])
            yield from text2text_txt_iterator(source, target)


def _raw_file(tmp_dir: str, url: str, name: str) -> str:
    """Returns a file of an archive that is in a folder, or is downloaded to it."""
    path, archive = Path(tmp_dir, name), Path(tmp_dir, url.rpartition("/")[2])
    if not path.exists() and url.startswith(("http://", "https://", "ftp://")):
        archive = fetch(url, tmp_dir)
    if not path.exists() and archive.is_file():
        path = unpack(archive) / name
    for found in (path, path.with_suffix("") if path.suffix == ".gz" else path):
        if found.exists():
            return str(found)
    raise DataError(f"{path} does not exist, and {url} does not have it. Put it there.")


# Readers of text files, data_generators/text_problems.py.


def txt_line_iterator(txt_path: str) -> Iterator[str]:
    """Yields the stripped lines of a file."""
    for line in read_lines(Path(txt_path)):
        yield line.strip()


def text2text_txt_iterator(source_txt_path: str, target_txt_path: str) -> Iterator[Sample]:
    """Yields the pairs of lines of two files."""
    lines = zip(
        txt_line_iterator(source_txt_path), txt_line_iterator(target_txt_path), strict=False
    )
    for inputs, targets in lines:
        yield {"inputs": inputs, "targets": targets}


def text2text_txt_tab_iterator(txt_path: str) -> Iterator[Sample]:
    """Yields the pairs of a file whose lines have two texts with a tab between."""
    for line in txt_line_iterator(txt_path):
        if line and "\t" in line:
            inputs, targets = line.split("\t", 1)
            yield {"inputs": inputs.strip(), "targets": targets.strip()}


def text2class_txt_iterator(
    source_txt_path: str, label_txt_path: str, class_strs: list[str] | None = None
) -> Iterator[Sample]:
    """Yields the texts of a file with the classes, numbers or names, of another."""
    labels = txt_line_iterator(label_txt_path)
    for inputs, label in zip(txt_line_iterator(source_txt_path), labels, strict=False):
        yield {"inputs": inputs, "label": class_strs.index(label) if class_strs else int(label)}


# Conversion.


def _train(texts: Sequence[str], size: int, path: Path) -> None:
    """Learns a subword vocabulary: with sentencepiece, or as tensor2tensor if it is too small."""
    try:
        SubwordEncoder.train(texts, size, path)
    except SmallVocabularyError:
        SubtokenEncoder.train(texts, size, path)


class _Subwords(SubwordVocabularyBuilder):
    """Builder of a subword vocabulary of any size."""

    def train(self, texts: Sequence[str], vocab_size: int, path: Path) -> None:
        """Trains the vocabulary and writes its file."""
        _train(texts, vocab_size, path)


class _Converted(TextProblem):
    """Parts of a converted problem that do not depend on its kind."""

    user_class: ClassVar[type[Text2TextProblem]]

    def __init__(self, *, reverse: bool = False, copy: bool = False) -> None:
        self.user = self.user_class()
        self._data_dir: Path | None = None
        for name, reason in _REFUSED.items():
            owner = next((c for c in self.user_class.__mro__ if name in c.__dict__), None)
            if owner is not None and owner.__module__ != __name__:
                raise self._refusal(name, reason)
        if _changes_examples(self.user):
            raise self._refusal("preprocess_example", "it changes examples with TensorFlow")
        for name, value in _settings_of(self.user).items():
            setattr(self, name, value)  # of the instance: a user's properties need one
        super().__init__(reverse=reverse, copy=copy)

    def _refusal(self, method: str, reason: str) -> RegistryError:
        return RegistryError(
            f"tensor2tensor problem {self.name!r} defines {method}: {reason}, which nothing here "
            f"can use. Yield texts from generate_samples instead; see {PAGE}."
        )

    def __reduce__(self) -> Any:
        """Pickles the name: other processes import the user's file."""
        state = {"_data_dir": self._data_dir, "bad_records": self.bad_records}
        return _found, (self.full_name, registry.usr_dirs()), state

    @property
    def dataset_name(self) -> str:
        """The user's prefix of data files."""
        return self.user.dataset_filename()

    @property
    def vocab_filename(self) -> str | None:
        """The user's vocabulary file."""
        if self.vocab_type is OurVocabType.CHARACTER:
            return None
        return self.user.vocab_filename

    def kept_vocab_files_in(self, directory: Path) -> tuple[str, ...]:
        """Returns also a subword vocabulary of tensor2tensor, which a trained model may have."""
        kept, file = super().kept_vocab_files_in(directory), self.vocab_filename
        if file is None or file in kept or not (directory / file).is_file():
            return kept
        return (*kept, file) if holds_subtokens(directory / file) else kept

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builders; a vocabulary too small for sentencepiece is learnt as in tensor2tensor."""
        return [
            _Subwords(
                one.file,
                self.texts,
                self.approx_vocab_size,
                self.max_samples_for_vocab,
                self.shuffle_seed,
            )
            if isinstance(one, SubwordVocabularyBuilder)
            else one
            for one in super().learners()
        ]

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        """Builds the vocabularies, from the texts of `generate_text_for_vocab` if it is there."""
        # Data is made in a hidden folder of the data directory, where users may have raw files.
        self._data_dir = data_dir.parent if data_dir.name.startswith(".") else data_dir
        texts: Callable[..., Any] | None = getattr(self.user, "generate_text_for_vocab", None)
        file = self.vocab_filename
        learns = self.vocab_type is OurVocabType.SUBWORD and file is not None
        if texts is not None and learns and not (data_dir / str(file)).exists():
            lines = list(texts(str(data_dir), str(tmp_dir)))
            _train(lines, self.approx_vocab_size, data_dir / str(file))
        if file is not None and self.use_vocab_from_other_problem is None:
            self._let_user_write(data_dir / file, str(self._data_dir), str(tmp_dir))
        elif file is None and self._makes_vocabulary:
            user = self.user.get_or_create_vocab(str(self._data_dir), str(tmp_dir))
            if not isinstance(encoder_of(user, self.name), ByteEncoder):
                raise RegistryError(
                    f"get_or_create_vocab of tensor2tensor problem {self.name!r} returns a "
                    f"{type(user).__name__}, and its vocab_type is {self.user.vocab_type!r}. Make "
                    "it VocabType.TOKEN or VocabType.SUBWORD."
                )
        super().build_vocab(data_dir, tmp_dir)

    def _let_user_write(self, path: Path, data_dir: str, tmp_dir: str) -> None:
        """Has the user's code write a vocabulary, if there is none and the code writes it.

        tensor2tensor calls `generate_samples`, which may copy a file of words, and then
        `get_or_create_vocab`.

        Args:
          path: the vocabulary file.
          data_dir: data folder, where the user's code writes.
          tmp_dir: folder of the raw files.

        Raises:
          RegistryError: `get_or_create_vocab` returns an encoder of the user's own.
        """
        written = Path(data_dir, path.name)
        if self.vocab_type is OurVocabType.TOKEN and not path.exists():
            samples = self._samples_of(Split.TRAIN, data_dir, tmp_dir)
            if not written.exists():
                next(iter(samples), None)
        if self._makes_vocabulary and not path.exists():
            encoder = encoder_of(self.user.get_or_create_vocab(data_dir, tmp_dir), self.name)
            if isinstance(encoder, TokenEncoder) and not written.exists():
                with staged(path) as temporary:
                    temporary.write_text("".join(f"{word}\n" for word in encoder.tokens), "utf-8")
            elif isinstance(encoder, SubtokenEncoder) and not written.exists():
                encoder.save(path)
        if written.is_file() and not path.exists():
            copy_regular(written, path)

    @property
    def _makes_vocabulary(self) -> bool:
        """True if the user's class has a `get_or_create_vocab`."""
        return hasattr(self.user, "get_or_create_vocab")

    def _encoder_in(self, path: Path) -> TextEncoder:
        """Returns the encoder of a vocabulary file, with the settings of the user's."""
        oov, reverse, is_words = self.oov_token, False, self.vocab_type is OurVocabType.TOKEN
        if self._makes_vocabulary:
            folder = str(path.parent)
            user = self.user.get_or_create_vocab(folder, folder)
            is_words = isinstance(encoder_of(user, self.name), TokenEncoder)
            oov, reverse = getattr(user, "replace_oov", oov), getattr(user, "reverse", reverse)
        if is_words:
            return TokenEncoder.load(path, replace_oov=oov, reverse=reverse)
        return load_subwords(path)

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the user's samples of a split; those of all splits are dealt by shards."""
        samples = self._samples_of(split, str(self._data_dir or tmp_dir), str(tmp_dir))
        total, first, last = 1, 0, 1
        if not self._is_per_split:
            total = sum(self.shards.values())
            earlier = itertools.takewhile(lambda one: one is not split, self.shards)
            first = sum(self.shards[one] for one in earlier)
            last = first + self.shards[split]
        for number, sample in enumerate(samples):
            if first <= number % total < last:
                yield self._converted(sample)

    @property
    def _is_per_split(self) -> bool:
        """True if `generate_samples` is called for each split."""
        per_split: Any = self.user.is_generate_per_split
        # A method where a property was meant is true in tensor2tensor.
        return callable(per_split) or bool(per_split)

    def _samples_of(self, split: Split, data_dir: str, tmp_dir: str) -> Iterable[Sample]:
        theirs = _SPLITS[split] if self._is_per_split else DatasetSplit.TRAIN
        return self.user.generate_samples(data_dir, tmp_dir, theirs)

    def _converted(self, sample: Sample) -> dict[str, Any]:
        fields = ("inputs", "targets") if self.user.has_inputs else ("targets",)
        missing = [field for field in fields if field not in sample]
        if missing:
            raise DataError(
                f"generate_samples of {self.name!r} yields {sorted(sample)}, not {missing[0]!r}."
            )
        return {field: _text(sample[field]) for field in fields}


def _found(name: str, usr_dirs: list[str]) -> Any:
    """Returns a problem in another process."""
    for folder in usr_dirs:
        registry.import_usr_dir(folder)
    return registry.problem(name)


class _ConvertedText(_Converted, OurText2TextProblem):
    """A user's text to text problem."""


class _ConvertedSelf(_Converted, OurText2SelfProblem):
    """A user's language model."""


class _ConvertedQuestion(_Converted, QuestionContext2TextProblem):
    """A user's problem of questions on a context."""

    def _converted(self, sample: Sample) -> dict[str, Any]:
        return {field: _text(sample[field]) for field in self.text_fields}


class _Labelled(_Converted):
    """Parts of problems of classes."""

    user: Any

    def known_vocab_files(self, directory: Path) -> Mapping[str, str]:
        """Returns the file of the names of the classes, in the user's order."""
        names = self.user.class_labels(str(directory))
        return {self.labels_file("targets"): "".join(f"{name}\n" for name in names)}

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        """Writes the names of the classes; builds the vocabulary."""
        for file, text in self.known_vocab_files(data_dir).items():
            with staged(data_dir / file) as temporary:
                temporary.write_text(text, "utf-8")
        super().build_vocab(data_dir, tmp_dir)

    def _label(self, sample: Sample) -> str:
        names = self.user.class_labels(str(self._data_dir or ""))
        return str(names[int(sample["label"])])


class _ConvertedClass(_Labelled, OurText2ClassProblem):
    """A user's problem of classes."""

    def _converted(self, sample: Sample) -> dict[str, Any]:
        return {"inputs": _text(sample["inputs"]), "targets": self._label(sample)}


class _ConvertedPair(_Labelled, OurTextPair2ClassProblem):
    """A user's problem of classes of two texts."""

    def _converted(self, sample: Sample) -> dict[str, Any]:
        texts = list(sample["inputs"])
        if len(texts) != 2:
            raise DataError(f"a sample of {self.name!r} has {len(texts)} texts, not two.")
        first, second = map(_text, texts)
        return {"first": first, "second": second, "targets": self._label(sample)}


def _changes_examples(user: Problem) -> bool:
    """Returns True if a user's `preprocess_example` does more than to call the base class."""
    example: dict[str, Any] = {"inputs": object(), "targets": object()}
    before = dict(example)
    try:
        return user.preprocess_example(example, "train", None) is not example or example != before
    except Exception:
        return True


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _settings_of(user: Text2TextProblem) -> dict[str, Any]:
    """Returns the settings of a user's problem by our names."""
    shards = {}
    by_name = {name: split for split, name in _SPLITS.items()}
    for one in user.dataset_splits:
        shards[by_name[one["split"]]] = int(one["shards"])
    if Split.EVAL not in shards and not user.is_generate_per_split:
        shards[Split.EVAL] = 1
    known = set(registry.list_names("metric"))
    named = [_METRICS.get(name, name) for name in map(str, user.eval_metrics())]
    other = user.use_vocab_from_other_problem
    settings: dict[str, Any] = {
        "shards": shards,
        "vocab_type": _VOCAB_TYPES.get(user.vocab_type, OurVocabType.SUBWORD),
        "approx_vocab_size": int(user.approx_vocab_size),
        "oov_token": user.oov_token,
        "input_space_id": int(user.input_space_id),
        "target_space_id": int(user.target_space_id),
        "use_vocab_from_other_problem": None if other is None else other.name,
    }
    metrics = tuple(name for name in named if name in known)
    if metrics:
        settings["metrics"] = metrics
    if user.max_samples_for_vocab is not None:
        settings["max_samples_for_vocab"] = int(user.max_samples_for_vocab)
    return settings


def converted(user: type, name: str) -> type[TextProblem]:
    """Returns a problem of this library that calls a user's.

    Args:
      user: the user's class.
      name: its registered name.

    Raises:
      RegistryError: it is of a kind that is not here.
    """
    kinds = (
        (QuestionAndContext2TextProblem, _ConvertedQuestion),
        (TextConcat2ClassProblem, _ConvertedPair),
        (Text2ClassProblem, _ConvertedClass),
        (Text2SelfProblem, _ConvertedSelf),
        (Text2TextProblem, _ConvertedText),
    )
    missing = [base.missing for base in user.__mro__ if getattr(base, "missing", "")]
    if missing:
        raise RegistryError(
            f"tensor2tensor problem {name!r} is a {missing[0]}, and {missing[0]} is not in "
            f"t2t_torch. {PAGE} shows how to write it."
        )
    for theirs, ours in kinds:
        if issubclass(user, theirs):
            attributes = {
                "user_class": user,
                "name": name,
                "__module__": user.__module__,
                "__qualname__": user.__qualname__,
                "__doc__": user.__doc__,
            }
            return type(user.__name__, (ours,), attributes)
    bases = ", ".join(base.__name__ for base in user.__bases__)
    raise RegistryError(
        f"tensor2tensor problem {name!r} is a {bases}; Text2TextProblem, Text2ClassProblem, "
        f"Text2SelfProblem and TranslateProblem can be used as they are. {PAGE} shows how to write "
        "others."
    )
