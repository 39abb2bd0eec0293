"""SICK: 9,927 sentence pairs about images, with entailment and relatedness.

Source: Marelli et al. 2014, "A SICK Cure for the Evaluation of Compositional Distributional
Semantic Models", LREC; SemEval-2014 task 1.  Licence: CC BY-NC-SA 3.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import mirrored, on_github
from t2t_torch.features import ClassLabel, Features, Real
from t2t_torch.mode import Split
from t2t_torch.problem import records_of
from t2t_torch.problem_types.classification import (
    TextPair2ClassProblem,
    TextPair2RealProblem,
    TextPairProblem,
)
from t2t_torch.readers.text_file import Record
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import ClassLabelEncoder, WordCutter
from t2t_torch.text_problem import VocabType

_FILES = mirrored(
    on_github("brmson/dataset-sts/master/data/sts/sick2014/"),
    {
        "SICK_train.txt": "266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e",
        "SICK_trial.txt": "5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56",
        "SICK_test_annotated.txt": (
            "2b8aa806658d6fc23c6824c83776c2d4fee7556000817b5ec0f982861413b7d0"
        ),
    },
    "sick",
    "",
)

_MEAN = 3.5  # mean of the training scores
_JUDGMENTS = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")


def _judgment(record: Record) -> str:
    """Returns the judgment of a pair; ValueError if it is none."""
    judgment = str(record.values["entailment_judgment"])
    if judgment not in _JUDGMENTS:
        raise ValueError(f"the judgment {judgment!r}, none of {', '.join(_JUDGMENTS)}")
    return judgment


def _score(record: Record) -> float:
    return float(record.values["relatedness_score"])


class _SickProblem(TextPairProblem):
    """Base class: the pairs, and the fields of their targets."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources: ClassVar = dict(zip(Split, _FILES, strict=True))
    fields: ClassVar[Mapping[str, Callable[[Record], str | float]]]

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the pairs."""
        for record in records_of(self, tmp_dir, split, "tsv"):
            pair = {"first": record.values["sentence_A"], "second": record.values["sentence_B"]}
            try:
                yield {**pair, **{name: read(record) for name, read in self.fields.items()}}
            except ValueError as error:
                self.bad_records.report(record.place, str(error))


@register_problem("entailment_sick")
class EntailmentSick(_SickProblem, TextPair2ClassProblem):
    """Classifies whether the second sentence follows from the first.

    The raw files are `SICK_{train,trial,test_annotated}.txt`.
    """

    fields: ClassVar = {"targets": _judgment}
    approx_vocab_size = 2**11
    class_labels = _JUDGMENTS


@register_problem("relatedness_sick")
class RelatednessSick(_SickProblem, TextPair2RealProblem):
    """Predicts the relatedness of two sentences, from 1 to 5: the mean of ten human ratings.

    The raw files are the same.
    """

    fields: ClassVar = {"targets": _score}
    use_vocab_from_other_problem = "entailment_sick"


@register_problem("sick_words")
class SickWords(_SickProblem):
    """Predicts entailment and relatedness of two sentences of lower-case words.

    The raw files are the same; the targets are "entailment" and "relatedness".
    """

    fields: ClassVar = {"entailment": _judgment, "relatedness": _score}
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

    def stored_features(self, directory: Path) -> Features:
        """Returns the texts, the label and the number."""
        targets = {
            "entailment": ClassLabel(ClassLabelEncoder(self.class_labels)),
            "relatedness": Real(mean=(_MEAN,), std=(1.0,)),
        }
        return Features(self.text_inputs(directory), targets, notes=self.weights())
