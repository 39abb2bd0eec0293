"""TREC: 5,952 questions, classified by the type of the expected answer.

Source: Li and Roth 2002, "Learning Question Classifiers", COLING.  Licence: none stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile, mirrored
from t2t_torch.files import read_raw_lines
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.readers.text_file import Place
from t2t_torch.registry import register_problem

# From TensorFlow Datasets, text/trec/checksums.tsv.
_TRAIN, _EVAL = mirrored(
    ("https://cogcomp.seas.upenn.edu/Data/QA/QC/", "http://cogcomp.org/Data/QA/QC/"),
    {
        "train_5500.label": "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
        "TREC_10.label": "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
    },
    "trec",
    "",
)


@register_problem("question_trec_fine")
class QuestionTrecFine(Text2ClassProblem):
    """Classifies questions into 50 fine types, such as `NUM:date`; EVAL is the 500 of TREC 10.

    The raw files are `train_5500.label` and `TREC_10.label`, in Latin-1: each line holds the type,
    a space and the tokenized question.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    sources: ClassVar[Mapping[Split, RawFile]] = {Split.TRAIN: _TRAIN, Split.EVAL: _EVAL}
    approx_vocab_size = 2**13
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the questions of a split."""
        path = self.sources[split].get(tmp_dir)
        for number, line in enumerate(read_raw_lines(path), 1):
            text = line.decode("latin-1").strip()
            label, _, question = text.partition(" ")
            coarse, _, fine = label.partition(":")
            if coarse and fine and question:
                yield {"inputs": question.strip(), "targets": self.label(coarse, fine)}
            elif text:
                why = f"{text!r}, where KIND:kind and a question were expected"
                self.bad_records.report(Place(path, number), why)

    def label(self, coarse: str, fine: str) -> str:
        """Returns the label of a question with these types."""
        return f"{coarse}:{fine}"


@register_problem("question_trec")
class QuestionTrec(QuestionTrecFine):
    """Classifies questions into six coarse types, such as `NUM`; EVAL is the 500 of TREC 10."""

    class_labels = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

    def label(self, coarse: str, fine: str) -> str:
        """Returns the coarse type."""
        return coarse
