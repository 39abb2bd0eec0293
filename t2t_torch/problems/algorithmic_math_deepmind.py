"""DeepMind's Mathematics Dataset: 112 million questions of school mathematics and their answers.

Source: Saxton et al. 2019, "Analysing Mathematical Reasoning Abilities of Neural Models", ICLR.
Licence: Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import matching, published
from t2t_torch.mode import Split
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import Place
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2TextProblem, VocabType

# From TensorFlow Datasets, url_checksums/math_dataset.txt.
_ARCHIVE = published(
    "mathematics_dataset",
    "https://storage.googleapis.com/mathematics-dataset/mathematics_dataset-v1.0.tar.gz",
    "https://storage.cloud.google.com/mathematics-dataset/mathematics_dataset-v1.0.tar.gz",
    sha256="def638343403cb9ed60437d6b684c859dd23b72779f5cc5661b0a31e67c58576",
)
_FOLDERS = {
    Split.TRAIN: ("train-easy", "train-medium", "train-hard"),
    Split.EVAL: ("interpolate", "extrapolate"),
}


@register_problem("algorithmic_math_deepmind_all")
class AlgorithmicMathDeepmindAll(Text2TextProblem):
    """Answers questions, on bytes; evaluated on both the known and the longer kinds of question."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 128, Split.EVAL: 1}
    sources = (_ARCHIVE,)
    vocab_type = VocabType.CHARACTER
    suggested_flags = "--model=transformer --hparams_set=transformer_base"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the lines of each file by twos: a question and its answer."""
        for folder in _FOLDERS[split]:
            for path in matching(_ARCHIVE, tmp_dir, f"{folder}/*.txt"):
                question, number = None, 0
                for record in open_records(path, format="lines", bad=self.bad_records):
                    line, number = record.values["text"].strip(), number + 1
                    if question is None:
                        question = line
                    else:
                        yield {"inputs": question, "targets": line}
                        question = None
                if question is not None:
                    self.bad_records.report(Place(path, number), "a question without an answer")
