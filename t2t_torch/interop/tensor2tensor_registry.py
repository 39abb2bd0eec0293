"""Registry for users of tensor2tensor: conversion of their sets of hyperparameters and problems.

Registering a user's problem makes a `Problem` of this library that calls an instance of it.
"""

from __future__ import annotations

import functools
import itertools
import reprlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from absl import logging

from t2t_torch import registry
from t2t_torch.atomic_files import write_text
from t2t_torch.data.import_tfrecords import known_vocab_files
from t2t_torch.data.publish import kept_vocab_files
from t2t_torch.data.vocabulary_builder import SubwordVocabularyBuilder, VocabularyBuilder
from t2t_torch.errors import DataError, HParamsError, RegistryError
from t2t_torch.files import copy_regular
from t2t_torch.hparam import DataHParams, HParams
from t2t_torch.interop import tensor2tensor_problems as problems
from t2t_torch.interop.tensor2tensor_problems import PAGE, encoder_of
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import (
    Text2ClassProblem,
    Text2RealProblem,
    TextPair2ClassProblem,
)
from t2t_torch.problem_types.text2text import QuestionContext2TextProblem, TranslateProblem
from t2t_torch.text.encoder import ByteEncoder, TextEncoder, TokenEncoder
from t2t_torch.text.subword import SmallVocabularyError, SubwordEncoder, load_subwords
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder, holds_subtokens
from t2t_torch.text_problem import Text2SelfProblem, Text2TextProblem, TextProblem, VocabType


class T2THParams:
    """Hyperparameters that can be set by attribute, `tensor2tensor.utils.hparam.HParams`.

    Args:
      base: hyperparameters of this library that are changed; None: those of every model.
      values: values by name.
    """

    def __init__(self, base: HParams | None = None, **values: Any) -> None:
        self.__dict__.update(_base=base or HParams(), _values=dict(values), _added=set(values))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        values, base = self.__dict__["_values"], self.__dict__["_base"]
        if name in values:
            return values[name]
        if name in type(base).model_fields:
            return getattr(base, name)
        if name in type(base).unsupported:
            return type(base).unsupported[name].values[0]
        raise AttributeError(
            f"hparams have no {name!r}. Add it:  hparams.add_hparam({name!r}, ...)"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = value

    @property
    def changed(self) -> set[str]:
        """Names that were set."""
        return set(self._values)

    def __contains__(self, name: str) -> bool:
        kind = type(self._base)
        return name in self._values or name in kind.model_fields or name in kind.unsupported

    def add_hparam(self, name: str, value: Any) -> None:
        """Sets a hyperparameter, new or not."""
        self._values[name] = value
        self._added.add(name)

    set_hparam = add_hparam

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter that was set."""
        self._values.pop(name, None)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a value, or the default if there is none."""
        return getattr(self, name) if name in self else default

    def values(self) -> dict[str, Any]:
        """Returns all values by name."""
        fields = type(self._base).model_fields
        return {**{name: getattr(self._base, name) for name in fields}, **self._values}

    def override_from_dict(self, values: dict[str, Any]) -> T2THParams:
        """Sets several values."""
        self._values.update(values)
        return self

    def parse(self, text: str) -> T2THParams:
        """Sets the values of "name=value,name=value"."""
        changed = self.ours().parse(text, "parse")
        read = {name for name, source in changed.provenance.items() if source == "parse"}
        self._values.update((name, getattr(changed, name)) for name in read)
        return self

    def ours(self) -> HParams:
        """Returns hyperparameters of this library.

        Raises:
          HParamsError: a value changes the model to something that is not here.
        """
        base: HParams = self._base
        if type(base) is HParams and not self._values.keys() <= type(base).model_fields.keys():
            base = registry.model("transformer").HParams()  # that of most sets from nothing
        fields, changes, other = type(base).model_fields, {}, []
        for name, value in self._values.items():
            known = type(base).unsupported.get(name)
            if name in fields:
                value = value.lower() if name == "optimizer" else value
                changes[name] = tuple(value) if isinstance(value, list) else value
            elif known is not None and known.accepts(value):
                continue
            elif known.reads == "model" if known else name not in self._added:
                other.append(f"{name}={value!r}")
            else:
                logging.warning("No model here reads the hyperparameter %s=%r.", name, value)
        if other:
            raise HParamsError(
                f"no model here reads tensor2tensor's {', '.join(other)}. Leave it out; {PAGE} "
                "lists the hyperparameters that are here."
            )
        if changes.get("pos", "") is None:
            changes["pos"] = "none"
        return base.replace(**changes)


def basic_params1() -> T2THParams:
    """Returns tensor2tensor's basic set."""
    return T2THParams()


def set_named(name: str) -> Callable[[], T2THParams]:
    """Returns the function of a set, for modules such as `tensor2tensor.models.transformer`."""

    def made() -> T2THParams:
        return T2THParams(registry.hparams(name))

    made.__name__ = name
    return made


class _Set:
    """A user's function of hyperparameters, as one of this library.

    It stands in the user's file, where the registry looks for it.
    """

    def __init__(self, function: Callable[[], T2THParams]) -> None:
        functools.update_wrapper(self, function)
        self.__code__ = function.__code__
        self._function = function

    def __call__(self) -> HParams:
        made = self._function()
        if isinstance(made, HParams):
            return made
        if not isinstance(made, T2THParams):
            raise RegistryError(f"{self._function.__name__} returns {made!r}, no hyperparameters.")
        return made.ours()


_METRICS = {"accuracy_sequence": "accuracy_per_sequence"}
_VOCAB_TYPES = {
    getattr(problems.T2TVocabType, kind): VocabType[kind]
    for kind in ("SUBWORD", "TOKEN", "CHARACTER")
}
_SPLITS = {split: getattr(problems.DatasetSplit, split.name) for split in Split}
_OUR_SPLITS = {theirs: split for split, theirs in _SPLITS.items()}


class _ProblemHParams(SimpleNamespace):
    """Values that a problem's `hparams` sets."""

    def add_hparam(self, name: str, value: Any) -> None:
        """Sets a value."""
        setattr(self, name, value)

    set_hparam = add_hparam


_ANY_SIZE = 1_000_003  # stands for the size of a vocabulary that is not learnt yet


def _hparams_of(user: Any) -> _ProblemHParams:
    """Returns what a user's `hparams` sets, after checks.

    Raises:
      RegistryError: it sets a modality, a size or a value that this kind of problem does not have.
    """
    kinds = problems.modalities_of(user)
    sizes = {"class_label": "num_classes", "real_l2_loss": "ntasks"}
    known = {
        name: getattr(user, sizes[kind]) if kind in sizes else _ANY_SIZE
        for name, kind in kinds.items()
    }
    user._encoders = {name: SimpleNamespace(vocab_size=size) for name, size in known.items()}
    made = _ProblemHParams(modality={}, vocab_size={}, input_modality={}, target_modality=None)
    made.input_space_id, made.target_space_id = user.input_space_id, user.target_space_id
    made.batch_size_multiplier, made.loss_multiplier, made.stop_at_eos = 1, 1.0, False
    read, model_hparams = set(vars(made)), T2THParams()
    user.hparams(made, model_hparams)
    user._encoders = None
    old = dict(made.input_modality)  # before tensor2tensor 1.10: (kind, size) by name
    if made.target_modality is not None:
        old["targets"] = made.target_modality
    given = {**made.modality, **{name: one[0] for name, one in old.items()}}
    given = {name: str(one).partition(":")[0] for name, one in given.items()}
    counts = {**made.vocab_size, **{name: one[1] for name, one in old.items()}}
    factor = made.loss_multiplier
    usual = (1.0, 2.0) if user.vocab_type == problems.T2TVocabType.CHARACTER else (1.0,)
    other = [
        *(
            f"modality {one!r} of {n!r}"
            for n, one in given.items()
            if kinds.get(n) != str(one).partition(":")[0]
        ),
        *(f"vocab_size of {n!r}" for n, one in counts.items() if known.get(n) != one),
        *([] if factor in usual else [f"loss_multiplier={factor}"]),
        *sorted((vars(made).keys() - read) | model_hparams.changed),
    ]
    if other:
        raise RegistryError(
            f"hparams of tensor2tensor problem {user.name!r} sets {', '.join(other)}, which "
            f"nothing here reads. Leave it out; see {PAGE}."
        )
    return made


def _is_default(user: Any, name: str) -> bool:
    """Returns True if a member that a user has defined is what the base class has."""
    base = next(one for one in type(user).__mro__ if one.__module__ == problems.__name__)
    if name == "preprocess_example":  # does it no more than to call the base class?
        example: dict[str, Any] = {"inputs": object(), "targets": object()}
        before = dict(example)
        try:
            return user.preprocess_example(example, "train", None) is example and example == before
        except Exception:
            return False
    if name == "example_reading_spec":
        fields, decoders = user.example_reading_spec()
        return decoders is None and set(fields) == set(problems.modalities_of(user))
    usual, own = getattr(base, name), getattr(user, name)
    return bool(own == usual or (not own and not usual))


class _Subwords(SubwordVocabularyBuilder):
    """Builder of a subword vocabulary: sentencepiece's, or tensor2tensor's if it is too small."""

    def train(self, texts: Sequence[str], vocab_size: int, path: Path) -> None:
        """Trains the vocabulary and writes its file."""
        try:
            SubwordEncoder.train(texts, vocab_size, path)
        except SmallVocabularyError:
            SubtokenEncoder.train(texts, vocab_size, path)


_OF_VOCABULARY = (
    *("get_or_create_vocab", "generate_text_for_vocab", "vocab_data_files"),
    *("additional_reserved_tokens", "max_subtoken_length"),
)
"""Members whose overrides change how tensor2tensor makes a vocabulary: its code makes it then."""


@functools.singledispatch
def vocab_type_of(encoder: TextEncoder) -> VocabType:
    """Returns the kind of vocabulary of an encoder."""
    return VocabType.SUBWORD


vocab_type_of.register(ByteEncoder, lambda encoder: VocabType.CHARACTER)
vocab_type_of.register(TokenEncoder, lambda encoder: VocabType.TOKEN)


@functools.singledispatch
def save_vocabulary(encoder: TextEncoder, path: Path) -> None:
    """Writes the vocabulary file of an encoder, if it has one."""


save_vocabulary.register(SubtokenEncoder, SubtokenEncoder.save)
save_vocabulary.register(TokenEncoder, TokenEncoder.save)


class _Converted(TextProblem):
    """Parts of a converted problem that do not depend on its kind."""

    user_class: ClassVar[type[problems.T2TText2TextProblem]]
    optional_setting_names = (
        *TextProblem.optional_setting_names,
        "additional_reserved_tokens",
        "prefixes",
    )
    additional_reserved_tokens: Sequence[str] = ()
    prefixes: Sequence[str] = ()

    def __init__(self, *, reverse: bool = False, copy: bool = False) -> None:
        self.user = self.user_class()
        self._data_dir: Path | None = None
        self._noted = False
        own = [name for name in problems.MEMBERS if problems.overrides(self.user_class, name)]
        for name in own:
            rule, reason = problems.MEMBERS[name]
            if rule == "refused" or (rule == "default" and not _is_default(self.user, name)):
                raise self._refusal(name, f"it {reason}")
        try:
            made = _hparams_of(self.user) if "hparams" in own else None
            settings = _settings_of(self.user, made)
        except RegistryError:
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise self._refusal(
                place.name, f"it raises {type(error).__name__}({error}) in line {place.lineno}"
            ) from error
        for name, value in settings.items():
            setattr(self, name, value)  # of the instance: a user's properties need one
        super().__init__(reverse=reverse, copy=copy)

    def _refusal(self, method: str, reason: str) -> RegistryError:
        return RegistryError(
            f"tensor2tensor problem {self.name!r} defines {method}: {reason}, which nothing here "
            f"can use. Leave it out, or do it to the texts of generate_samples; see {PAGE}."
        )

    def max_length(self, hparams: DataHParams) -> int:
        """Returns the length of the longest training example, the user's if there is one."""
        if problems.overrides(self.user_class, "max_length"):
            return int(self.user.max_length(hparams))
        return super().max_length(hparams)

    def __reduce__(self) -> Any:
        """Pickles the name: other processes import the user's file."""
        state = {"_data_dir": self._data_dir, "bad_records": self.bad_records}
        return _problem_named, (self.full_name, registry.usr_dirs()), state

    @property
    def dataset_name(self) -> str:
        """The user's prefix of data files."""
        return self.user.dataset_filename()

    @property
    def vocab_filename(self) -> str | None:
        """The user's vocabulary file."""
        return None if self.vocab_type is VocabType.CHARACTER else self.user.vocab_filename

    def learners(self) -> Sequence[VocabularyBuilder]:
        """The builders; a vocabulary too small for sentencepiece is learnt as in tensor2tensor."""
        size, limit, seed = self.approx_vocab_size, self.max_samples_for_vocab, self.shuffle_seed
        return [
            _Subwords(one.file, self.texts, size, limit, seed)
            if isinstance(one, SubwordVocabularyBuilder)
            else one
            for one in super().learners()
        ]

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        """Builds the vocabularies, from the texts of `generate_text_for_vocab` if it is there."""
        # Data is made in a hidden folder of the data directory, where users may have raw files.
        self._data_dir = data_dir.parent if data_dir.name.startswith(".") else data_dir
        file = self.vocab_filename
        if file is not None and self.use_vocab_from_other_problem is None:
            self._let_user_write(data_dir / file, str(self._data_dir), str(tmp_dir))
        elif file is None and self._makes_vocabulary:
            user = self.user.get_or_create_vocab(str(self._data_dir), str(tmp_dir))
            if vocab_type_of(encoder_of(user, self.name)) is not VocabType.CHARACTER:
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
        if self.vocab_type is VocabType.TOKEN and not path.exists():
            samples = self._samples_of(Split.TRAIN, data_dir, tmp_dir)
            if not written.exists():
                next(iter(samples), None)
        if self._makes_vocabulary and not path.exists():
            encoder = encoder_of(self.user.get_or_create_vocab(data_dir, tmp_dir), self.name)
            if not written.exists():
                save_vocabulary(encoder, path)
        if written.is_file() and not path.exists():
            copy_regular(written, path)

    @property
    def _makes_vocabulary(self) -> bool:
        """True if the user's class changes how tensor2tensor makes a vocabulary."""
        return any(problems.overrides(self.user_class, name) for name in _OF_VOCABULARY)

    def _encoder_in(self, path: Path) -> TextEncoder:
        """Returns the encoder of a vocabulary file, with the settings of the user's."""
        oov, reverse, is_words = self.oov_token, False, self.vocab_type is VocabType.TOKEN
        if self._makes_vocabulary:
            folder = str(path.parent)
            user = self.user.get_or_create_vocab(folder, folder)
            is_words = vocab_type_of(encoder_of(user, self.name)) is VocabType.TOKEN
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
                yield self._converted(self._checked(sample))

    @property
    def _is_per_split(self) -> bool:
        """True if `generate_samples` is called for each split."""
        per_split: Any = self.user.is_generate_per_split
        # A method where a property was meant is true in tensor2tensor.
        return callable(per_split) or bool(per_split)

    def _samples_of(self, split: Split, data_dir: str, tmp_dir: str) -> Iterable[problems.Sample]:
        theirs = _SPLITS[split] if self._is_per_split else problems.DatasetSplit.TRAIN
        made: Iterable[problems.Sample] = self.user.generate_samples(data_dir, tmp_dir, theirs)
        return made

    @property
    def sample_fields(self) -> tuple[str, ...]:
        """Keys of the user's samples."""
        kinds = problems.modalities_of(self.user).items()
        return tuple("label" if kind == "class_label" else name for name, kind in kinds)

    def _checked(self, sample: Any) -> problems.Sample:
        """Returns a sample after checks of its keys."""
        wanted = f"{{{', '.join(map(repr, self.sample_fields))}}}"
        if not isinstance(sample, Mapping):
            raise DataError(
                f"generate_samples of {self.name!r} yields {reprlib.repr(sample)}, not a dict of "
                f"{wanted}."
            )
        if missing := [field for field in self.sample_fields if field not in sample]:
            raise DataError(
                f"generate_samples of {self.name!r} yields the keys {sorted(sample)}, without "
                f"{missing[0]!r}: samples of this kind of problem are {wanted}. Rename the keys, "
                "or derive from the class that has these."
            )
        if (more := sorted(sample.keys() - set(self.sample_fields))) and not self._noted:
            self._noted = True
            logging.warning("nothing reads %s of the samples of %r", ", ".join(more), self.name)
        return sample

    def _converted(self, sample: problems.Sample) -> dict[str, Any]:
        prefixes = {"inputs": self.user.inputs_prefix, "targets": self.user.targets_prefix}
        return {
            field: prefixes.get(field, "") + _text(sample[field]) for field in self.sample_fields
        }


def _problem_named(name: str, usr_dirs: list[str]) -> Any:
    """Returns a problem in another process."""
    for folder in usr_dirs:
        registry.import_usr_dir(folder)
    return registry.problem(name)


@kept_vocab_files.register
def _(problem: _Converted, folder: Path) -> tuple[str, ...]:
    """Returns also a subword vocabulary of tensor2tensor, which a trained model may have."""
    kept, file = problem.kept_vocab_files, problem.vocab_filename
    if file is None or file in kept or not (folder / file).is_file():
        return kept
    return (*kept, file) if holds_subtokens(folder / file) else kept


class _ConvertedReal(_Converted):
    """A user's problem of numbers."""

    def _converted(self, sample: problems.Sample) -> dict[str, Any]:
        values = sample["targets"]
        numbers = [values] if isinstance(values, int | float) else list(map(float, values))
        return {"inputs": _text(sample["inputs"]), "targets": numbers}


class _Labelled(_Converted):
    """Parts of problems of classes."""

    user: Any

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        """Writes the names of the classes; builds the vocabulary."""
        for file, text in known_vocab_files(self, data_dir).items():
            write_text(data_dir / file, text)
        super().build_vocab(data_dir, tmp_dir)

    def _label(self, sample: problems.Sample) -> str:
        names = self.user.class_labels(str(self._data_dir or ""))
        try:
            return str(names[range(len(names))[int(sample["label"])]])
        except (TypeError, ValueError, IndexError):
            raise DataError(
                f"generate_samples of {self.name!r} yields the label {sample['label']!r}; it is a "
                f"number from 0 to {len(names) - 1}, that of one of {reprlib.repr(names)}."
            ) from None


@known_vocab_files.register
def _(problem: _Labelled, directory: Path) -> Mapping[str, str]:
    """Returns the file of the names of the classes, in the user's order."""
    names = problem.user.class_labels(str(directory))
    return {problem.labels_file("targets"): "".join(f"{name}\n" for name in names)}


class _ConvertedClass(_Labelled):
    """A user's problem of classes."""

    def _converted(self, sample: problems.Sample) -> dict[str, Any]:
        return {"inputs": _text(sample["inputs"]), "targets": self._label(sample)}


class _ConvertedPair(_Labelled):
    """A user's problem of classes of two texts."""

    def _converted(self, sample: problems.Sample) -> dict[str, Any]:
        texts = list(sample["inputs"])
        if len(texts) != 2:
            raise DataError(f"a sample of {self.name!r} has {len(texts)} texts, not two.")
        first, second = map(_text, texts)
        return {"first": first, "second": second, "targets": self._label(sample)}


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _settings_of(user: Any, made: _ProblemHParams | None) -> dict[str, Any]:
    """Returns the settings of a user's problem by our names, with those of its `hparams`."""
    shards = {_OUR_SPLITS[one["split"]]: int(one["shards"]) for one in user.dataset_splits}
    if Split.EVAL not in shards and not user.is_generate_per_split:
        shards[Split.EVAL] = 1
    known = set(registry.list_names("metric"))
    named = [_METRICS.get(name, name) for name in map(str, user.eval_metrics())]
    other = user.use_vocab_from_other_problem
    settings: dict[str, Any] = {
        "shards": shards,
        "vocab_type": _VOCAB_TYPES.get(user.vocab_type, VocabType.SUBWORD),
        "approx_vocab_size": int(user.approx_vocab_size),
        "oov_token": user.oov_token,
        "input_space_id": int(user.input_space_id),
        "target_space_id": int(user.target_space_id),
        "use_vocab_from_other_problem": None if other is None else other.name,
        "keeps_order": bool(user.already_shuffled),
        "batch_size_means_tokens": bool(user.batch_size_means_tokens),
        "additional_reserved_tokens": list(user.additional_reserved_tokens)
        if problems.overrides(type(user), "additional_reserved_tokens")
        else [],
        "prefixes": [one for one in (user.inputs_prefix, user.targets_prefix) if one],
    }
    metrics = tuple(name for name in named if name in known)
    if lost := [name for name in named if name not in known]:
        logging.warning("%s: there is no metric %s; see metrics.md", user.name, ", ".join(lost))
    if metrics:
        settings["metrics"] = metrics
    if isinstance(user, problems.T2TText2RealProblem):
        settings["target_size"] = int(user.ntasks)
    if made is not None:
        names = ("input_space_id", "target_space_id", "batch_size_multiplier")
        settings |= {name: int(getattr(made, name)) for name in names}
    if not user.has_inputs:
        settings |= {"has_inputs": False, "text_fields": ("targets",)}
    if user.max_samples_for_vocab is not None:
        settings["max_samples_for_vocab"] = int(user.max_samples_for_vocab)
    return settings


_KINDS: tuple[tuple[type, type[TextProblem], type[TextProblem]], ...] = (
    (problems.QuestionAndContext2TextProblem, _Converted, QuestionContext2TextProblem),
    (problems.TextConcat2ClassProblem, _ConvertedPair, TextPair2ClassProblem),
    (problems.T2TText2ClassProblem, _ConvertedClass, Text2ClassProblem),
    (problems.T2TText2RealProblem, _ConvertedReal, Text2RealProblem),
    (problems.T2TText2SelfProblem, _Converted, Text2SelfProblem),
    (problems.T2TTranslateProblem, _Converted, TranslateProblem),
    (problems.T2TText2TextProblem, _Converted, Text2TextProblem),
)
"""Kinds of problems: tensor2tensor's class, parts of a converted problem, our kind."""


@functools.cache
def of_catalogue(class_name: str) -> type | None:
    """Returns a base class with the data of a problem of this library; None if there is none.

    Args:
      class_name: name of the class in tensor2tensor, such as `TranslateEnviIwslt32k`.
    """
    name = registry.default_name(class_name, True)
    place = next((one.path for one in registry.entries("problem") if one.name == name), "")
    if not place or not Path(place).is_relative_to(registry.PACKAGE):
        return None
    ours: Any = registry.problem(name)
    if not isinstance(ours, TextProblem):
        return None
    base = next((theirs for theirs, _, kind in _KINDS if isinstance(ours, kind)), None)
    labels = list(getattr(ours, "class_labels", ()))
    vocab_type = {kind: theirs for theirs, kind in _VOCAB_TYPES.items()}.get(ours.vocab_type)
    if (
        base is None
        or vocab_type is None
        or (issubclass(base, problems.T2TText2ClassProblem) and not labels)
    ):
        return None

    def generate_samples(self: Any, data_dir: str, tmp_dir: str, split: str) -> Iterator[Any]:
        if problems.overrides(type(self), "source_data_files"):
            yield from problems.T2TTranslateProblem.generate_samples(self, data_dir, tmp_dir, split)
            return
        ours.prepare(Path(tmp_dir))
        for sample in ours.generate_samples(Path(tmp_dir), _OUR_SPLITS[split]):
            if "first" in sample:
                sample = {**sample, "inputs": [sample["first"], sample["second"]]}
            yield {**sample, "label": labels.index(sample["targets"])} if labels else sample

    fixed = {
        "is_generate_per_split": True,
        "dataset_splits": [
            {"split": _SPLITS[one], "shards": count} for one, count in ours.shards.items()
        ],
        "vocab_type": vocab_type,
        "approx_vocab_size": ours.approx_vocab_size,
        "input_space_id": ours.input_space_id,
        "target_space_id": ours.target_space_id,
        "num_classes": len(labels),
        "class_labels": lambda self, data_dir: list(labels),
        "eval_metrics": lambda self: list(ours.metrics),
    }
    own = {"name": name, "generate_samples": generate_samples, "__module__": problems.__name__}
    return type(class_name, (base,), {**fixed, **own, "__doc__": ours.__doc__})


def _named_as(user: Any, *bases: type, **content: Any) -> type[Any]:
    """Returns a class with the name, place and documentation of a user's."""
    own = {name: getattr(user, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(user.__name__, bases, {**own, **content})


def converted(user: type, name: str) -> type[TextProblem]:
    """Returns a problem of this library that calls a user's.

    Args:
      user: the user's class.
      name: its registered name.

    Raises:
      RegistryError: it is of a kind that is not here.
    """
    if missing := [what for base in user.__mro__ if (what := getattr(base, "missing", ""))]:
        raise RegistryError(
            f"tensor2tensor problem {name!r} is a {missing[0]}, and {missing[0]} is not in "
            f"t2t_torch. {PAGE} shows how to write it."
        )
    for theirs, parts, kind in _KINDS:
        if issubclass(user, theirs):
            kind = Text2TextProblem if kind is TranslateProblem else kind
            return _named_as(user, parts, kind, user_class=user, name=name)
    bases = ", ".join(base.__name__.removeprefix("T2T") for base in user.__bases__)
    raise RegistryError(
        f"tensor2tensor problem {name!r} is a {bases}; Text2TextProblem, Text2ClassProblem, "
        f"Text2SelfProblem and TranslateProblem can be used as they are. {PAGE} shows how to write "
        "others."
    )


def _decorator(register: Callable[[str | None, Any], Any]) -> Callable[..., Any]:
    """Returns a decorator with or without a name."""

    def decorate(target: Any = None) -> Any:
        if target is None or isinstance(target, str):
            return functools.partial(register, target)
        return register(None, target)

    return decorate


def _problem(name: str | None, user: Any) -> Any:
    name = name or registry.default_name(user.__name__, True)
    user.name = name
    try:
        ours: Any = converted(user, name)
    except RegistryError as error:
        reason = str(error)

        def refuse(self: Any, **_: Any) -> None:  # when it is used: the rest of the file works
            raise RegistryError(reason)

        ours = _named_as(user, __init__=refuse)
    registry.register_problem(name)(ours)
    return user


def _hparams(name: str | None, function: Any) -> Any:
    registry.register_hparams(name or function.__name__)(_Set(function))
    return function


def _model(name: str | None, user: Any) -> Any:
    from t2t_torch.model import T2TModel

    name = name or registry.default_name(user.__name__, True)

    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise RegistryError(
            f"model {name!r} is a model of TensorFlow ({user.__module__}). {PAGE} shows how to "
            "write it for torch."
        )

    attributes = {"__init__": refuse, "body": refuse, "__module__": user.__module__}
    registry.register_model(name)(type(user.__name__, (T2TModel,), attributes))
    return user


register_problem = _decorator(_problem)
register_hparams = _decorator(_hparams)
register_ranged_hparams = registry.register_ranged_hparams
register_model = _decorator(_model)


def problem(name: str) -> Any:
    """Returns a problem: a user's instance where it was written for tensor2tensor."""
    found: Any = registry.problem(name)
    return getattr(found, "user", found)


def hparams(name: str) -> T2THParams:
    """Returns the hyperparameters of a set."""
    return T2THParams(registry.hparams(name))
