"""LAMBADA: the last word of a passage of a novel, predictable only from the whole passage.

Source: Paperno et al. 2016, "The LAMBADA dataset: Word prediction requiring a broad discourse
context", ACL; as reading comprehension Chu et al. 2017, "Broad Context Language Modeling as Reading
Comprehension", EACL.  Licence: CC BY 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile, matching, member, published, sources_of
from t2t_torch.data.vocabulary_builder import VocabularyBuilder
from t2t_torch.files import read_lines
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import RESERVED_TOKENS, ClassLabelEncoder
from t2t_torch.text_problem import RawVocabularyProblem, Text2SelfProblem

_ARCHIVE = published(
    "lambada",
    "https://zenodo.org/record/2630551/files/lambada-dataset.tar.gz",
    "http://clic.cimec.unitn.it/lambada/lambada-dataset.tar.gz",
)
_NOVELS = member(_ARCHIVE, "train-novels.tar")
_WORDS = member(_ARCHIVE, "lambada-vocab-2.txt")
_TRAIN = {Split.TRAIN: (_NOVELS, _WORDS)}
_PASSAGES = {
    Split.EVAL: member(_ARCHIVE, "lambada_development_plain_text.txt"),
    Split.TEST: member(_ARCHIVE, "lambada_test_plain_text.txt"),
}
_CONTROL = {Split.EVAL: member(_ARCHIVE, "lambada_control_test_data_plain_text.txt")}
_MOST_WORDS = 60_000


class _LambadaProblem(RawVocabularyProblem):
    """Base class of the problems: lines of novels to train on, passages to evaluate on.

    The vocabulary is the first 60,000 words of `lambada-vocab-2.txt`.

    `sources` are the novels and the words of TRAIN, and the passages of the other splits.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1, Split.TEST: 1}
    sources: ClassVar[Mapping[Split, RawFile | Sequence[RawFile]]] = {**_TRAIN, **_PASSAGES}
    approx_vocab_size = _MOST_WORDS

    def vocabulary_words(self, tmp_dir: Path) -> Iterator[str]:
        """Yields the words; the other columns of the file are their counts."""
        for number, line in enumerate(read_lines(_WORDS.get(tmp_dir))):
            if number < _MOST_WORDS:
                yield line.split("\t")[0].strip()

    def lines(self, tmp_dir: Path, split: Split) -> Iterator[list[str]]:
        """Yields the words of each line that has any."""
        if split is Split.TRAIN:
            paths = matching(_NOVELS, tmp_dir, "*/*.txt")
        else:
            paths = [file.get(tmp_dir) for file in sources_of(self, split)]
        for path in paths:
            for record in open_records(path, format="lines", bad=self.bad_records):
                if words := record.values["text"].split():
                    yield words


@register_problem("lambada_lm")
class LambadaLm(_LambadaProblem, Text2SelfProblem):
    """Language model of the novels; evaluated on the development passages, tested on the others."""

    suggested_flags = "--model=transformer --hparams_set=transformer_base"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the lines."""
        for words in self.lines(tmp_dir, split):
            yield {"targets": " ".join(words)}


@register_problem("lambada_lm_control")
class LambadaLmControl(LambadaLm):
    """The same, evaluated on the control passages, whose last words are easier to predict."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    sources: ClassVar[Mapping[Split, RawFile | Sequence[RawFile]]] = {**_TRAIN, **_CONTROL}


@register_problem("lambada_rc")
class LambadaRc(_LambadaProblem, Text2ClassProblem):
    """Predicts the last word of a line, a class, from the words before it."""

    suggested_flags = "--model=transformer_encoder --hparams_set=transformer_encoder_small"

    def label_learner(self, field: str) -> list[VocabularyBuilder]:
        """None: the classes are the words of the vocabulary."""
        return []

    def label_encoder(self, directory: Path, field: str) -> ClassLabelEncoder:
        """Returns the words of the vocabulary."""
        path = self._there(directory, self._file)
        return ClassLabelEncoder(list(read_lines(path))[len(RESERVED_TOKENS) :])

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the lines of at least two words."""
        for *words, last in self.lines(tmp_dir, split):
            if words:
                yield {"inputs": " ".join(words), "targets": last}


@register_problem("lambada_rc_control")
class LambadaRcControl(LambadaRc):
    """The same, evaluated on the control passages."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    sources: ClassVar[Mapping[Split, RawFile | Sequence[RawFile]]] = {**_TRAIN, **_CONTROL}
