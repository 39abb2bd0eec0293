"""SST-2: 68,000 sentences and phrases of film reviews, positive or negative.

Source: Socher et al. 2013, "Recursive Deep Models for Semantic Compositionality Over a Sentiment
Treebank", EMNLP, as in GLUE, Wang et al. 2019.  Licence: none stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import member, published
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

# From TensorFlow Datasets, url_checksums/glue.txt.
_ARCHIVE = published(
    "glue",
    "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
    "https://firebasestorage.googleapis.com/v0/b/mtl-sentence-representations.appspot.com/o/"
    "data%2FSST-2.zip?alt=media&token=aabc5f6b-e466-44a2-b9b4-cf6337f84ac8",
    sha256="d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
)
# The labels of GLUE's test.tsv are not public.
_FILES = {
    Split.TRAIN: member(_ARCHIVE, "SST-2/train.tsv"),
    Split.EVAL: member(_ARCHIVE, "SST-2/dev.tsv"),
}


@register_problem("sentiment_sst_binary")
class SentimentSstBinary(Text2ClassProblem):
    """Classifies phrases (in EVAL sentences) of film reviews as positive or negative."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    sources = tuple(_FILES.values())
    approx_vocab_size = 2**14  # tensor2tensor's
    class_labels = ("neg", "pos")
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the phrases of a split."""
        path = _FILES[split].get(tmp_dir)
        labels = dict(zip("01", self.class_labels, strict=True))
        for record in open_records(path, format="tsv", bad=self.bad_records):
            label = record.values.get("label", "")
            if label in labels and "sentence" in record.values:
                yield {"inputs": record.values["sentence"].strip(), "targets": labels[label]}
            else:
                why = f"the label {label!r}, where 0 or 1 was expected in the column label"
                self.bad_records.report(record.place, why)


@register_problem("sentiment_sst_binary_characters")
class SentimentSstBinaryCharacters(SentimentSstBinary):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    input_space_id = 2  # SpaceID.EN_CHR
