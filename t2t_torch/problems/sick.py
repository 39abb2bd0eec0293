"""SICK: 9,927 pairs of sentences about pictures, by what follows from what and by how alike.

Source: Marelli et al. 2014, "A SICK Cure for the Evaluation of Compositional Distributional
Semantic Models", LREC; SemEval-2014 task 1.  Licence: CC BY-NC-SA 3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.families.textpair import TextPair2ClassProblem, TextPair2RealProblem
from t2t_torch.mode import Split
from t2t_torch.readers.bad_records import BadRecords, Record
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

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


@register_problem("entailment_sick")
class EntailmentSick(TextPair2ClassProblem):
    """Two sentences, to whether the second follows from the first.

    The raw files are `SICK_{train,trial,test_annotated}.txt`.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    approx_vocab_size = 2**11
    class_labels = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the pairs."""
        for record in _records(tmp_dir, split, self.bad_records):
            judgment = record.values["entailment_judgment"]
            if judgment in self.class_labels:
                yield {**_pair(record), "targets": judgment}
            else:
                known = ", ".join(self.class_labels)
                self.bad_records.report(record.place, f"the judgment {judgment!r}, none of {known}")


@register_problem("relatedness_sick")
class RelatednessSick(TextPair2RealProblem):
    """Two sentences, to how alike they are: from 1 to 5, the mean of ten people's judgments.

    The raw files are the same.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    use_vocab_from_other_problem = "entailment_sick"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the pairs."""
        for record in _records(tmp_dir, split, self.bad_records):
            try:
                score = float(record.values["relatedness_score"])
            except ValueError as error:
                self.bad_records.report(record.place, str(error))
            else:
                yield {**_pair(record), "targets": score}


def _records(tmp_dir: Path, split: Split, bad: BadRecords) -> Iterator[Record]:
    return open_records(_FILES[split].get(tmp_dir), format="tsv", bad=bad)


def _pair(record: Record) -> dict[str, str]:
    return {"first": record.values["sentence_A"], "second": record.values["sentence_B"]}
