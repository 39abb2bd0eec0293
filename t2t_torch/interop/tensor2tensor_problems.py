"""Text encoders and base classes of problems for files that were written for tensor2tensor.

The base classes have the methods and defaults of tensor2tensor 1.15.7.  `MEMBERS` says what is done
with a user's own definition of each.  `tensor2tensor_registry.py` converts a user's class.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from t2t_torch.data.raw_file import RawFile, matching, member
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.files import read_lines
from t2t_torch.problem_types.text2text import ParallelCorpus
from t2t_torch.readers.delimited import read_tsv
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.text.encoder import (
    NUM_RESERVED,
    RESERVED_TOKENS,
    ByteEncoder,
    ClassLabelEncoder,
    TokenEncoder,
)
from t2t_torch.text.encoder import TextEncoder as OurTextEncoder
from t2t_torch.text.subword import load_subwords
from t2t_torch.text.tensor2tensor_subword import MAX_LENGTH, SubtokenEncoder, learn, split

PAGE = "docs/how_to/from_tensor2tensor.md"


class DatasetSplit:
    """Names of the splits, data_generators/problem.py."""

    TRAIN = "train"
    EVAL = "eval"
    TEST = "test"


class T2TVocabType:
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


class ProblemMember(NamedTuple):
    """A method, property or class attribute that a user's problem may override.

    Attributes:
      rule: honoured: it is used; default: it has to be what the base class has; unread: results do
        not depend on it; refused.
      text: how it is used, or why it is not.
    """

    rule: str
    text: str


_MEMBERS = """
honoured | is called with the data and raw folders | generate_samples
honoured | names and shards of the splits | dataset_splits is_generate_per_split
honoured | name of the data files | dataset_filename
honoured | kind, size and file of the vocabulary | vocab_type vocab_filename approx_vocab_size
honoured | is used for unknown words of a vocabulary of words | oov_token
honoured | samples that a vocabulary is learnt from | max_samples_for_vocab
honoured | problem whose vocabulary is used | use_vocab_from_other_problem
honoured | is used by tensor2tensor's algorithm, which learns the vocabulary | max_subtoken_length
honoured | ids from 2 on; tensor2tensor's algorithm learns the others | additional_reserved_tokens
honoured | is called for the vocabulary | get_or_create_vocab
honoured | texts that the vocabulary is learnt from | generate_text_for_vocab vocab_data_files
honoured | is put before each text of the data, not of requests | inputs_prefix targets_prefix
honoured | False: a language model of the targets | has_inputs
honoured | shards keep the order of the samples | already_shuffled
honoured | what `batch_size` counts | batch_size_means_tokens
honoured | length of the longest training example | max_length
honoured | metrics of the problem; unknown ones are named | eval_metrics
honoured | space ids | input_space_id target_space_id
honoured | sets space ids and `batch_size_multiplier`; no other modality, size or loss | hparams
honoured | names and number of the classes, numbers of a target | num_classes class_labels ntasks
honoured | raw files, downloaded and unpacked | source_data_files
honoured | names and folder of the files of pairs | TRAIN_FILES EVAL_FILES SRC_REMOTE_DIR
honoured | is called | __init__ _tmp_dir_override _generate_vocab
default | features in the files | example_reading_spec
default | changes to examples; what hyperparameters do is done | preprocess_example
default | runs after decoding; t2t-bleu computes BLEU | decode_hooks
default | t2t-datagen has its own processes | multiprocess_generate
default | packs rows: --hparams=pack_dataset=true,max_length=LENGTH packs them here | packed_length
default | removes bad pairs: remove them in generate_samples | datatypes_to_clean
default | joins two texts, which are two inputs here | CONCAT_TOKEN
default | separates question and context | QUESTION_SEPARATOR QUESTION_SEPARATOR_ID
unread | read with multiprocess_generate alone | num_generate_tasks prepare_to_generate
unread | read with packed_length alone | packed_spacing
unread | examples are counted | num_training_examples
unread | every epoch has its own order | skip_random_fraction_when_training
unread | read on TPUs alone | tpu_batch_size_per_shard
unread | read by MultiProblem alone | task_id set_task_id global_task_id
refused | encodes samples itself | feature_encoders get_feature_encoders generate_encoded_samples
refused | writes data files itself | generate_data
refused | is written for tensor2tensor before 1.4 | generator
refused | builds the input with TensorFlow | dataset input_fn make_estimator_input_fn preprocess
refused | builds the input with TensorFlow | serving_input_fn decode_example _dataset_partition
refused | builds the input with TensorFlow | feature_info _pack_fn _maybe_pack_examples
refused | exchanges features: add _rev or _copy to the name | was_reversed maybe_reverse_features
refused | exchanges features: add _rev or _copy to the name | maybe_copy_features
refused | exchanges features: add _rev or _copy to the name | maybe_reverse_and_copy
refused | names data files; t2t-datagen writes its own | training_filepaths dev_filepaths
refused | names data files; t2t-datagen writes its own | test_filepaths data_filepaths filepattern
refused | is of TensorFlow: register a metric here | all_metrics_fns eval_metric_fns eval_hooks
refused | replaces `hparams` and what follows from it | get_hparams
refused | names files to export; an artifact has its vocabularies | export_assets
"""
MEMBERS = {
    name: ProblemMember(rule, text)
    for rule, text, names in (line.split(" | ") for line in _MEMBERS.strip().splitlines())
    for name in names.split()
}
"""Members of tensor2tensor 1.15.7's problems: what is done with a user's own definition."""


class T2TTextEncoder:
    """Base class of encoders, data_generators/text_encoder.py: of numbers separated by spaces.

    Data and models use the encoders of this library, which give the same ids (`encoder_of`).

    Attributes:
      num_reserved_ids: the number of reserved ids.
    """

    def __init__(self, num_reserved_ids: int = NUM_RESERVED) -> None:
        self.num_reserved_ids = num_reserved_ids

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        raise NotImplementedError

    def encode(self, s: str) -> list[int]:
        """Returns the ids of a text."""
        return [int(word) + self.num_reserved_ids for word in s.split()]

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the text of ids."""
        return " ".join(str(one - self.num_reserved_ids) for one in ids)


class _Wrapped(T2TTextEncoder):
    """An encoder of this library."""

    def __init__(self, ours: OurTextEncoder | ClassLabelEncoder) -> None:
        super().__init__()
        self.ours: Any = ours

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return int(self.ours.vocab_size)

    def encode(self, s: str) -> Any:
        """Returns the ids of a text; of a label its number."""
        return self.ours.encode(s)

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the text of ids."""
        return str(self.ours.decode(ids))

    def store_to_file(self, filename: str, add_single_quotes: bool = True) -> None:
        """Writes the file of the vocabulary, of words or subwords."""
        self.ours.save(Path(filename))


class ByteTextEncoder(_Wrapped):
    """Bytes of UTF-8."""

    def __init__(self, num_reserved_ids: int = NUM_RESERVED) -> None:
        super().__init__(ByteEncoder())


class ClassLabels(_Wrapped):
    """Labels by their position, `text_encoder.ClassLabelEncoder`."""

    def __init__(
        self, class_labels: Sequence[str] | None = None, class_labels_fname: str | None = None
    ) -> None:
        labels = map(str, class_labels or [])
        super().__init__(
            ClassLabelEncoder(list(labels))
            if class_labels_fname is None
            else ClassLabelEncoder.load(Path(class_labels_fname))
        )


class TokenTextEncoder(_Wrapped):
    """Whole words, of a file or a list."""

    def __init__(
        self,
        vocab_filename: str | None = None,
        reverse: bool = False,
        vocab_list: Sequence[str] | None = None,
        replace_oov: str | None = None,
        num_reserved_ids: int = NUM_RESERVED,
    ) -> None:
        self.replace_oov, self.reverse = replace_oov, reverse
        super().__init__(
            TokenEncoder(list(vocab_list or []), replace_oov=replace_oov, reverse=reverse)
            if vocab_filename is None
            else TokenEncoder.load(Path(vocab_filename), replace_oov=replace_oov, reverse=reverse)
        )


class SubwordTextEncoder(_Wrapped):
    """Subwords, of a file or learnt."""

    def __init__(self, filename: str | None = None) -> None:
        if filename is None:
            raise RegistryError(
                "SubwordTextEncoder without a file is not in t2t_torch: make one with "
                "SubwordTextEncoder.build_from_generator."
            )
        super().__init__(load_subwords(Path(filename)))

    @classmethod
    def build_from_generator(
        cls,
        generator: Iterable[str],
        target_size: int,
        max_subtoken_length: int | None = None,
        reserved_tokens: Sequence[str] | None = None,
    ) -> SubwordTextEncoder:
        """Learns subwords from texts."""
        counts: Counter[str] = Counter()
        for text in generator:
            counts.update(split(text))
        return cls.build_to_target_size(
            target_size, counts, 1, 1000, max_subtoken_length, reserved_tokens
        )

    @classmethod
    def build_to_target_size(
        cls,
        target_size: int,
        token_counts: Mapping[str, int],
        min_val: int,
        max_val: int,
        max_subtoken_length: int | None = None,
        reserved_tokens: Sequence[str] | None = None,
        num_iterations: int = 4,
    ) -> SubwordTextEncoder:
        """Learns subwords from the counts of tokens."""
        if not token_counts:
            raise DataError("No text to learn a vocabulary from. Are the raw files empty?")
        made = object.__new__(cls)
        subtokens = learn(
            token_counts,
            target_size,
            reserved=RESERVED_TOKENS if reserved_tokens is None else list(reserved_tokens),
            max_length=max_subtoken_length,
            least_counts=(min_val, max_val),
        )
        _Wrapped.__init__(made, SubtokenEncoder(subtokens))
        return made


def get_or_generate_vocab_inner(
    data_dir: str | None,
    vocab_filename: str | None,
    vocab_size: int,
    generator: Iterable[str],
    max_subtoken_length: int | None = MAX_LENGTH,
    reserved_tokens: Sequence[str] | None = None,
) -> SubwordTextEncoder:
    """Returns the vocabulary of a file, which is learnt from texts if it is not there."""
    path = Path(data_dir, vocab_filename) if data_dir and vocab_filename else None
    if path is not None and path.exists():
        return SubwordTextEncoder(str(path))
    made = SubwordTextEncoder.build_from_generator(
        generator, vocab_size, max_subtoken_length, reserved_tokens
    )
    if path is not None:
        made.store_to_file(str(path))
    return made


def encoder_of(user: Any, owner: str) -> OurTextEncoder:
    """Returns the encoder of this library for a user's.

    Args:
      user: what a user's `get_or_create_vocab` has returned.
      owner: name of the problem, for messages.

    Raises:
      RegistryError: it is of a class that is not here.
    """
    if isinstance(user, OurTextEncoder):
        return user
    theirs = itertools.takewhile(lambda c: c.__module__ != __name__, type(user).__mro__)
    changed = any({"encode", "decode", "vocab_size"} & vars(one).keys() for one in theirs)
    if isinstance(user, _Wrapped) and not changed:
        encoder: OurTextEncoder = user.ours
        return encoder
    raise RegistryError(
        f"get_or_create_vocab of tensor2tensor problem {owner!r} returns a {type(user).__name__}, "
        "an encoder that is written there. Return a TokenTextEncoder, a SubwordTextEncoder or a "
        "ByteTextEncoder, and change the texts in generate_samples."
    )


class Missing:
    """Base class of classes whose base class is not here.

    Attributes:
      missing: its full name.
    """

    missing: ClassVar[str] = ""


class T2TProblem:
    """Base class of problems; `was_reversed` and `was_copy` are those of the name."""

    name: ClassVar[str] = ""
    input_space_id: Any = 0
    target_space_id: Any = 0
    batch_size_means_tokens: Any = False
    multiprocess_generate: Any = False
    decode_hooks: ClassVar[Any] = []

    def __init__(self, was_reversed: bool = False, was_copy: bool = False) -> None:
        self._encoders: Any = None

    def __getattr__(self, name: str) -> Any:
        """Raises an error for a member that the user's code lacks, or uses and is not here."""
        if name not in MEMBERS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        rule, text = MEMBERS[name]
        said = "needs" if rule == "honoured" else "uses tensor2tensor's"
        raise RegistryError(f"{type(self).__name__} {said} {name} ({text}). See {PAGE}.")

    def dataset_filename(self) -> str:
        """Prefix of the names of the data files."""
        return self.name

    def eval_metrics(self) -> list[str]:
        """Names of the metrics."""
        return ["accuracy", "accuracy_top5", "accuracy_per_sequence", "neg_log_perplexity"]

    def preprocess_example(self, example: Any, mode: Any, unused_hparams: Any) -> Any:
        """Returns the example."""
        return example

    def max_length(self, model_hparams: Any) -> int:
        """Returns the length of the longest training example."""
        longest = model_hparams.split_to_length or model_hparams.max_length
        return int(longest or model_hparams.batch_size)

    def example_reading_spec(self) -> tuple[dict[str, Any], None]:
        """Returns the features of the files by name."""
        return dict.fromkeys(modalities_of(self)), None

    def hparams(self, defaults: Any, unused_model_hparams: Any) -> None:
        """Sets modalities and vocabularies, which follow from the kind of problem here."""
        defaults.modality = modalities_of(self)
        defaults.vocab_size = {name: self._encoders[name].vocab_size for name in defaults.modality}


class T2TText2TextProblem(T2TProblem):
    """Text to text, data_generators/text_problems.py."""

    # tensor2tensor has properties; a user may override them by properties or by values.
    dataset_splits: ClassVar[Any] = [
        {"split": DatasetSplit.TRAIN, "shards": 100},
        {"split": DatasetSplit.EVAL, "shards": 1},
    ]
    vocab_type: Any = T2TVocabType.SUBWORD
    approx_vocab_size: Any = 2**15
    additional_reserved_tokens: ClassVar[Any] = []
    oov_token: Any = None
    max_samples_for_vocab: Any = None
    use_vocab_from_other_problem: Any = None
    packed_length: Any = None
    max_subtoken_length: Any = MAX_LENGTH
    batch_size_means_tokens: Any = True
    already_shuffled: Any = False
    inputs_prefix: Any = ""
    targets_prefix: Any = ""
    has_inputs: Any = True

    @property
    def vocab_filename(self) -> str:
        """Name of the vocabulary file."""
        if (other := self.use_vocab_from_other_problem) is not None:
            return str(other.vocab_filename)
        if self.vocab_type != T2TVocabType.SUBWORD:
            return f"vocab.{self.dataset_filename()}.{T2TVocabType.TOKEN}"
        return f"vocab.{self.dataset_filename()}.{self.approx_vocab_size}.{T2TVocabType.SUBWORD}"

    def generate_text_for_vocab(self, data_dir: str, tmp_dir: str) -> Iterator[str]:
        """Yields the texts of the training samples."""
        texts = [name for name, kind in modalities_of(self).items() if kind == _SYMBOL]
        samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
        for sample in itertools.islice(samples, self.max_samples_for_vocab):
            for name in texts:
                value = sample[name]
                yield from [value] if isinstance(value, str) else value

    def get_or_create_vocab(
        self, data_dir: str, tmp_dir: str | None, force_get: bool = False
    ) -> T2TTextEncoder:
        """Returns the encoder of texts; learns its vocabulary if there is no file."""
        if self.vocab_type == T2TVocabType.CHARACTER:
            return ByteTextEncoder()
        path = Path(data_dir, self.vocab_filename)
        if self.vocab_type == T2TVocabType.TOKEN:
            return TokenTextEncoder(str(path), replace_oov=self.oov_token)
        if force_get or path.exists():
            return SubwordTextEncoder(str(path))
        return get_or_generate_vocab_inner(
            data_dir,
            self.vocab_filename,
            self.approx_vocab_size,
            self.generate_text_for_vocab(data_dir, str(tmp_dir)),
            self.max_subtoken_length,
            [*RESERVED_TOKENS, *self.additional_reserved_tokens],
        )


class T2TText2SelfProblem(T2TText2TextProblem):
    """A language model."""

    has_inputs: Any = False


class T2TText2ClassProblem(T2TText2TextProblem):
    """Text to class; samples are {"inputs": text, "label": number}."""

    def class_labels(self, data_dir: str) -> list[str]:
        """Names of the classes, in the order of their numbers."""
        return [f"ID_{number}" for number in range(self.num_classes)]

    def eval_metrics(self) -> list[str]:
        """Names of the metrics."""
        return ["accuracy", "neg_log_perplexity"]


class QuestionAndContext2TextProblem(T2TText2TextProblem):
    """Question and context to text; samples are {"inputs", "context", "targets"}."""

    QUESTION_SEPARATOR = "<EOQ>"
    QUESTION_SEPARATOR_ID = 2


class TextConcat2ClassProblem(T2TText2ClassProblem):
    """Two texts to class; samples are {"inputs": [text, text], "label": number}."""

    CONCAT_TOKEN = "$"


class T2TText2RealProblem(T2TText2TextProblem):
    """Text to numbers; samples are {"inputs": text, "targets": [number, ...]}."""

    ntasks: Any = 1

    def eval_metrics(self) -> list[str]:
        """Names of the metrics."""
        return ["rmse", "pearson"] if self.ntasks == 1 else ["rmse"]


class Text2textTmpdir(T2TText2TextProblem):
    """Pairs of lines of inputs.train.txt, targets.train.txt and of the same for eval."""

    TRAIN_FILES = ("inputs.train.txt", "targets.train.txt")
    EVAL_FILES = ("inputs.eval.txt", "targets.eval.txt")

    _tmp_dir_override: Any = None
    is_generate_per_split: Any = True

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Sample]:
        """Yields the pairs."""
        files = {DatasetSplit.TRAIN: self.TRAIN_FILES, DatasetSplit.EVAL: self.EVAL_FILES}
        named = files.get(dataset_split, ("inputs.test.txt", "targets.test.txt"))
        source, target = (str(Path(self._tmp_dir_override or tmp_dir, file)) for file in named)
        return text2text_txt_iterator(source, target)


class Text2TextRemotedir(Text2textTmpdir):
    """The same in the folder `SRC_REMOTE_DIR`."""

    @property
    def _tmp_dir_override(self) -> str:
        """The folder."""
        return str(self.SRC_REMOTE_DIR)


class Text2textTmpdirTokens(Text2textTmpdir):
    """The same with a vocabulary of whole words, those of vocab.txt."""

    vocab_type: Any = T2TVocabType.TOKEN
    oov_token: Any = "<UNK>"

    def _generate_vocab(self, tmp_dir: str) -> TokenTextEncoder:
        """Returns the encoder of the words of vocab.txt."""
        words = txt_line_iterator(str(Path(tmp_dir, "vocab.txt")))
        return TokenTextEncoder(vocab_list=[str(self.oov_token), *words])

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Sample]:
        """Writes the vocabulary if there is none; yields the pairs."""
        path = Path(data_dir, self.vocab_filename)
        if not path.exists():
            self._generate_vocab(tmp_dir).store_to_file(str(path))
        return super().generate_samples(data_dir, tmp_dir, dataset_split)


class T2TTranslateProblem(T2TText2TextProblem):
    """Translation, data_generators/translate.py."""

    is_generate_per_split: Any = True
    datatypes_to_clean: Any = None

    def vocab_data_files(self) -> Any:
        """Returns the data sets of the vocabulary."""
        return self.source_data_files(DatasetSplit.TRAIN)

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Sample]:
        """Yields the pairs of the data sets, without those with an empty side."""
        for dataset in self.source_data_files(dataset_split):
            for sample in _pairs_of(Path(tmp_dir), dataset):
                if sample["inputs"] and sample["targets"]:
                    yield sample

    def generate_text_for_vocab(self, data_dir: str, tmp_dir: str) -> Iterator[str]:
        """Yields lines of the data sets of the vocabulary: a million characters of each file."""
        for dataset in self.vocab_data_files():
            left = dict.fromkeys(("inputs", "targets"), _CHARACTERS_FOR_VOCABULARY)
            for sample in _pairs_of(Path(tmp_dir), dataset):
                for name in left:
                    left[name] -= len(sample[name])
                    if left[name] >= 0:
                        yield sample[name]
                if max(left.values()) < 0:
                    break


_CHARACTERS_FOR_VOCABULARY = 1_000_000


def _pairs_of(tmp_dir: Path, dataset: Any) -> Iterator[Sample]:
    """Yields the pairs of a data set: of two files, plain or SGML, or of columns of tables.

    Args:
      tmp_dir: folder of raw files.
      dataset: [URL, (source file, target file)] or [URL, ("tsv", column, column, pattern)]; the
        files are in the folder or in the archive.

    Raises:
      DataError: there are no such files, or they are of another kind.
    """
    url, names = dataset[0], dataset[1]
    if names[0] == "tmx":
        raise DataError(f"{names[1]} is TMX: convert it to two files of lines, or to TSV.")
    archive = RawFile(url.rpartition("/")[2], urls=(url,) if "://" in url else ())
    if names[0] == "tsv":
        columns = [str(column) for column in names[1:3]]
        for table in sorted(tmp_dir.glob(names[3])) or matching(archive, tmp_dir, names[3]):
            for record in read_tsv(table, BadRecords(), header=False):
                inputs, targets = (record.values[column].strip() for column in columns)
                yield {"inputs": inputs, "targets": targets}
        return
    files: Iterator[Any] = (member(archive, name.removesuffix(".gz")) for name in names)
    for inputs, targets in ParallelCorpus(*files).pairs(tmp_dir, BadRecords()):
        yield {"inputs": inputs, "targets": targets}


def txt_line_iterator(txt_path: str) -> Iterator[str]:
    """Yields the stripped lines of a file."""
    for line in read_lines(Path(txt_path)):
        yield line.strip()


def text2text_txt_iterator(source_txt_path: str, target_txt_path: str) -> Iterator[Sample]:
    """Yields the pairs of lines of two files."""
    for inputs, targets in zip(
        txt_line_iterator(source_txt_path), txt_line_iterator(target_txt_path), strict=False
    ):
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


_SYMBOL = "symbol"


def modalities_of(user: T2TProblem) -> dict[str, str]:
    """Returns the features of a problem, with tensor2tensor's names of their modalities."""
    if isinstance(user, T2TText2ClassProblem):
        return {"inputs": _SYMBOL, "targets": "class_label"}
    if isinstance(user, T2TText2RealProblem):
        return {"inputs": _SYMBOL, "targets": "real_l2_loss"}
    names = ["inputs"] if getattr(user, "has_inputs", True) else []
    context = ["context"] if isinstance(user, QuestionAndContext2TextProblem) else []
    return dict.fromkeys([*names, *context, "targets"], _SYMBOL)


def overrides(user: type, name: str) -> bool:
    """Returns True if a user's class, or a base class of the user's, defines a member."""
    owner = next((one for one in user.__mro__ if name in one.__dict__), object)
    return owner is not object and owner.__module__ != __name__
