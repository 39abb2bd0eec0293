"""The Penn Treebank sample of NLTK: 3,914 trees of the Wall Street Journal.

Source: Marcus et al. 1993, "Building a Large Annotated Corpus of English"; the package `treebank`
of nltk_data.  Licence: LDC 1995 sample, for non-commercial use only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, published
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem_types.words import Text2TreeProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text.tree import parse_tree

_ARCHIVE = published(
    "treebank",
    "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/treebank.zip",
    "https://github.com/nltk/nltk_data/raw/gh-pages/packages/corpora/treebank.zip",
    sha256="9da92d76c3666cfb6cddeaed0f7e86b344cce0f0928a286d439e555f19c37399",
)
_FOLDERS = ("treebank/treebank/combined", "treebank/combined", "combined")
_PARTS = {Split.TRAIN: range(1, 160), Split.EVAL: range(160, 180), Split.TEST: range(180, 200)}
_FILES = {
    split: tuple(
        RawFile(f"wsj_{i:04}.mrg", _FOLDERS, archive=_ARCHIVE, inside=("treebank/combined",))
        for i in numbers
    )
    for split, numbers in _PARTS.items()
}


@register_problem("parsing_treebank_sample")
class ParsingTreebankSample(Text2TreeProblem):
    """Parses words into phrase structure, without traces, with bare categories (NP-SBJ-1 is NP).

    The raw file is `treebank.zip`, or its content: `combined/wsj_{0001..0199}.mrg`.  There is no
    official split; here 0001-0159 are TRAIN, 0160-0179 EVAL and 0180-0199 TEST.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(file for files in _FILES.values() for file in files)
    approx_vocab_size = 2**13
    min_word_count = 2
    word_characters = 16
    word_shape = True
    suggested_flags = "--model=rnng --hparams_set=rnng_treebank --train_steps=4000"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences with their trees."""
        for file in _FILES[split]:
            for record in open_records(file.get(tmp_dir), bad=self.bad_records):
                try:
                    tree = parse_tree(record.values["tree"]).without_traces().without_functions()
                except DataError as error:  # only traces
                    self.bad_records.report(record.place, str(error))
                else:
                    yield {"inputs": tree.words, "targets": tree.to_round()}
