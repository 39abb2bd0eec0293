"""CoNLL-2002: Spanish and Dutch news, with names of people, places and organizations.

Source: Tjong Kim Sang 2002, "Introduction to the CoNLL-2002 Shared Task", CoNLL.
Licence: research use; as distributed by NLTK.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, member, published
from t2t_torch.mode import Split
from t2t_torch.problem_types.words import Text2TagsProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

_ARCHIVE = published(
    "conll2002",
    "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/conll2002.zip",
    "https://github.com/nltk/nltk_data/raw/gh-pages/packages/corpora/conll2002.zip",
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "testa", Split.TEST: "testb"}
_COLUMNS = ("word", "pos", "name")


def _files(language: str) -> dict[Split, RawFile]:
    return {
        split: member(_ARCHIVE, f"conll2002/{language}.{part}") for split, part in _PARTS.items()
    }


_SPANISH = _files("esp")
_DUTCH = _files("ned")


@register_problem("conll2002_es_ner")
class Conll2002EsNer(Text2TagsProblem):
    """Tags Spanish words with named entities: LOC, MISC, ORG and PER, as B-X and I-X.

    The raw files are `esp.{train,testa,testb}` of `conll2002.zip`.  EVAL is `testa`, TEST is
    `testb`; tensor2tensor evaluates on both together.
    """

    files: ClassVar[Mapping[Split, RawFile]] = _SPANISH
    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_SPANISH.values())
    approx_vocab_size = 2**15
    word_shape = True  # capitals indicate names

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of a split, without the lines between documents."""
        options = {"columns": _COLUMNS, "skip_docstart": True}
        path = self.files[split].get(tmp_dir)
        for record in open_records(path, format="conll", bad=self.bad_records, options=options):
            yield {"inputs": record.values["word"], "targets": record.values["name"]}


@register_problem("conll2002_nl_ner")
class Conll2002NlNer(Conll2002EsNer):
    """Tags Dutch words: the same with `ned.{train,testa,testb}`."""

    files: ClassVar[Mapping[Split, RawFile]] = _DUTCH
    sources = tuple(_DUTCH.values())
