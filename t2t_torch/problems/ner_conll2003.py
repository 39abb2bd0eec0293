"""CoNLL-2003: 22,137 sentences of Reuters news, with names of people, places and organizations.

Source: Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task", CoNLL.
Licence: the text is Reuters', on request: trec.nist.gov/data/reuters/reuters.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.mode import Split
from t2t_torch.problem_types.words import Text2TagsProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

# Not redistributable, so there are no addresses.
_FILES = {
    split: RawFile(name, ("conll2003", ""))
    for split, name in (
        (Split.TRAIN, "eng.train"),
        (Split.EVAL, "eng.testa"),
        (Split.TEST, "eng.testb"),
    )
}
_COLUMNS = ("word", "pos", "chunk", "name")


@register_problem("ner_conll2003")
class NerConll2003(Text2TagsProblem):
    """Tags words with named entities: LOC, MISC, ORG and PER, in IOB1.

    The raw files are `eng.{train,testa,testb}`, which the shared task's program creates from the
    text; put them in `--tmp_dir`.  Nothing is downloaded.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(_FILES.values())
    approx_vocab_size = 2**15
    min_word_count = 2  # words seen once train the unknown word
    word_shape = True  # capitals indicate names

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the sentences of a split, without the lines between documents."""
        options = {"columns": _COLUMNS, "skip_docstart": True}
        path = _FILES[split].get(tmp_dir)
        for record in open_records(path, format="conll", bad=self.bad_records, options=options):
            yield {"inputs": record.values["word"], "targets": record.values["name"]}
