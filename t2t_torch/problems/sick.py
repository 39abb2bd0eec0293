"""SICK: 9,927 sentence pairs about images, with entailment and relatedness.

Source: Marelli et al. 2014, "A SICK Cure for the Evaluation of Compositional Distributional
Semantic Models", LREC; SemEval-2014 task 1.  Licence: CC BY-NC-SA 3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.features import ClassLabel, Features, Real
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import (
    TextPair2ClassProblem,
    TextPair2RealProblem,
    TextPairProblem,
)
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords, Record
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import ClassLabelEncoder, WordCutter
from t2t_torch.text_problem import VocabType

_MIRRORS = (
    "https://raw.githubusercontent.com/brmson/dataset-sts/master/data/sts/sick2014/",
    "https://github.com/brmson/dataset-sts/raw/master/data/sts/sick2014/",
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "trial", Split.TEST: "test_annotated"}
_SHA256 = {
    Split.TRAIN: "266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e",
    Split.EVAL: "5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56",
    Split.TEST: "2b8aa806658d6fc23c6824c83776c2d4fee7556000817b5ec0f982861413b7d0",
}
_FILES = {
    split: RawFile(
        f"SICK_{part}.txt",
        ("sick", ""),
        [f"{mirror}SICK_{part}.txt" for mirror in _MIRRORS],
        _SHA256[split],
    )
    for split, part in _PARTS.items()
}

_MEAN = 3.5  # mean of the training scores
_JUDGMENTS = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")


@register_problem("entailment_sick")
class EntailmentSick(TextPair2ClassProblem):
    """Classifies whether the second sentence follows from the first.

    The raw files are `SICK_{train,trial,test_annotated}.txt`.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    approx_vocab_size = 2**11
    class_labels = _JUDGMENTS

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the pairs."""
        for record in _records(tmp_dir, split, self.bad_records):
            judgment = _judgment(record, self.bad_records)
            if judgment is not None:
                yield {**_pair(record), "targets": judgment}


@register_problem("relatedness_sick")
class RelatednessSick(TextPair2RealProblem):
    """Predicts the relatedness of two sentences, from 1 to 5: the mean of ten human ratings.

    The raw files are the same.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    use_vocab_from_other_problem = "entailment_sick"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the pairs."""
        for record in _records(tmp_dir, split, self.bad_records):
            score = _score(record, self.bad_records)
            if score is not None:
                yield {**_pair(record), "targets": score}


@register_problem("sick_words")
class SickWords(TextPairProblem):
    """Predicts entailment and relatedness of two sentences of lower-case words.

    The raw files are the same; the targets are "entailment" and "relatedness".
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    vocab_type = VocabType.WORD
    approx_vocab_size = 2**12
    class_labels = _JUDGMENTS
    cutters: ClassVar[Mapping[str, WordCutter]] = dict.fromkeys(("first", "second"), WordCutter())
    metrics: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "entailment": ("accuracy",),
        "relatedness": ("rmse", "pearson"),
    }
    suggested_flags = (
        "--model=pair_classifier --hparams_set=pair_classifier_sick --train_steps=1000"
    )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the pairs."""
        for record in _records(tmp_dir, split, self.bad_records):
            judgment = _judgment(record, self.bad_records)
            score = _score(record, self.bad_records)
            if judgment is not None and score is not None:
                yield {**_pair(record), "entailment": judgment, "relatedness": score}

    def stored_features(self, directory: Path) -> Features:
        """Returns the texts, the label and the number."""
        targets = {
            "entailment": ClassLabel(ClassLabelEncoder(self.class_labels)),
            "relatedness": Real(mean=(_MEAN,), std=(1.0,)),
        }
        return Features(self.pair(directory), targets, notes=self.weights())


def _records(tmp_dir: Path, split: Split, bad: BadRecords) -> Iterator[Record]:
    return open_records(_FILES[split].get(tmp_dir), format="tsv", bad=bad)


def _pair(record: Record) -> dict[str, str]:
    return {"first": record.values["sentence_A"], "second": record.values["sentence_B"]}


def _judgment(record: Record, bad: BadRecords) -> str | None:
    judgment = str(record.values["entailment_judgment"])
    if judgment in _JUDGMENTS:
        return judgment
    bad.report(record.place, f"the judgment {judgment!r}, none of {', '.join(_JUDGMENTS)}")
    return None


def _score(record: Record, bad: BadRecords) -> float | None:
    try:
        return float(record.values["relatedness_score"])
    except ValueError as error:
        bad.report(record.place, str(error))
        return None
