"""TOP: 44,783 requests about navigation and events, as nested intents and slots.

Source: Gupta et al. 2018, "Semantic Parsing for Task Oriented Dialog using Hierarchical
Representations", EMNLP, arXiv:1810.07942.  Licence: CC BY-SA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem_types.words import Text2TreeProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text.tree import parse_tree

# Checksum unknown.
_ARCHIVE = RawFile(
    "top-dataset-semantic-parsing.zip",
    ("top", ""),
    (
        "https://download.pytorch.org/data/semanticparsingdialog.zip",
        "https://fb.me/semanticparsingdialog",
    ),
    other_names=("semanticparsingdialog.zip",),
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "eval", Split.TEST: "test"}
_FILES = {
    split: RawFile(
        f"{part}.tsv",
        ("top", "", "top-dataset-semantic-parsing"),
        archive=_ARCHIVE,
        inside=("top-dataset-semantic-parsing", ""),
        other_names=(f"{part}_supported.tsv",),
    )
    for split, part in _PARTS.items()
}
_UNSUPPORTED = "[IN:UNSUPPORTED"


@register_problem("semantic_parse_top")
class SemanticParseTop(Text2TreeProblem):
    """Parses the words of a request into a tree of intents and slots.

    The raw files are `{train,eval,test}.tsv` with request, words and tree, or
    `{train,eval,test}_supported.tsv` with words and tree, all tab-separated.  Requests with
    IN:UNSUPPORTED intents are left out, as in the paper.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 2, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    approx_vocab_size = 2**14
    min_word_count = 2
    word_characters = 16
    word_shape = True
    suggested_flags = "--model=rnng --hparams_set=rnng_top --train_steps=9000"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests with their trees."""
        path, bad = _FILES[split].get(tmp_dir), self.bad_records
        for record in open_records(path, format="tsv", bad=bad, options={"header": False}):
            *_, bracketed = record.values.values()
            if _UNSUPPORTED in bracketed:
                continue
            try:
                tree = parse_tree(bracketed)
            except DataError as error:
                bad.report(record.place, str(error))
            else:
                yield {"inputs": tree.words, "targets": bracketed}
