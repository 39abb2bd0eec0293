"""MultiNLI: 412,000 sentence pairs of ten genres, for textual entailment.

Source: Williams et al. 2018, "A Broad-Coverage Challenge Corpus for Sentence Understanding through
Inference", NAACL, as in GLUE, Wang et al. 2019.
Licence: mostly the Open American National Corpus's; the paper's section 2.1 lists each genre.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import member, published
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import TextPair2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

# From TensorFlow Datasets, url_checksums/glue.txt.
_ARCHIVE = published(
    "glue",
    "https://dl.fbaipublicfiles.com/glue/data/MNLI.zip",
    "https://firebasestorage.googleapis.com/v0/b/mtl-sentence-representations.appspot.com/o/"
    "data%2FMNLI.zip?alt=media&token=50329ea1-e339-40e2-809c-10c40afff3ce",
    sha256="e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
)
# The labels of GLUE's test sets are not public.
_FILES = {
    Split.TRAIN: member(_ARCHIVE, "MNLI/train.tsv"),
    Split.EVAL: member(_ARCHIVE, "MNLI/dev_matched.tsv"),
    Split.TEST: member(_ARCHIVE, "MNLI/dev_mismatched.tsv"),
}
_COLUMNS = ("sentence1", "sentence2", "gold_label")


@register_problem("multi_nli")
class MultiNli(TextPair2ClassProblem):
    """Classifies the relation of a hypothesis to a premise.

    EVAL is the matched development set (genres of the training data), TEST the mismatched one.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 100, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    approx_vocab_size = 2**15
    class_labels = ("contradiction", "entailment", "neutral")  # in tensor2tensor's order
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the pairs of a split."""
        path = _FILES[split].get(tmp_dir)
        for record in open_records(path, format="tsv", bad=self.bad_records):
            first, second, label = (record.values.get(name, "").strip() for name in _COLUMNS)
            if first and second and label in self.class_labels:
                yield {"first": first, "second": second, "targets": label}
            else:
                expected = f"two sentences and a label, of {', '.join(self.class_labels)},"
                where = f"in the columns {', '.join(_COLUMNS)}"
                message = (
                    f"{first!r}, {second!r}, {label!r}, where {expected} were expected {where}"
                )
                self.bad_records.report(record.place, message)


@register_problem("multi_nli_characters")
class MultiNliCharacters(MultiNli):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    input_space_id = 2  # SpaceID.EN_CHR
